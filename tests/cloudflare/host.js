// Runs an unchanged Python Worker on stock workerd and stock Pyodide, without Cloudflare's own bundle of both, which
// would be downloaded at start. Forwards like workerd's Python entry point: handlers get the runtime's values, calls
// pass through the conversions of the SDK.
import { DurableObject, WorkerEntrypoint } from "cloudflare:workers";
import * as cloudflareWorkersModule from "cloudflare:workers";
import * as cloudflareSocketsModule from "cloudflare:sockets";
import { startPyodide } from "pyodide_start.js";
import sdk from "workers_runtime_sdk.whl";
import snapshot from "snapshot.bin";

const RAW = new Set(["alarm"]); // as in workerd, its argument is not converted

const BRIDGE = `
import inspect
from pyodide.code import relaxed_call
from workers import python_from_rpc, python_to_rpc

async def call(instance, name, *arguments):
    method, values = getattr(instance, name), map(python_from_rpc, arguments)
    result = relaxed_call(method, *values) if name == "fetch" else method(*values)
    return python_to_rpc(await result if inspect.isawaitable(result) else result)
`;

let python;
const started = () => (python ??= start());

async function start() {
  const pyodide = await startPyodide(snapshot.byteLength ? { _loadSnapshot: new Uint8Array(snapshot) } : {});
  pyodide.runPython("import random; random.seed()"); // it was the same after every start
  pyodide.unpackArchive(sdk, "wheel");
  pyodide.registerJsModule("_pyodide_entrypoint_helper", {
    cloudflareWorkersModule,
    cloudflareSocketsModule,
    doAnImport: (name) => import(name),
    patchWaitUntil() {},
  });
  pyodide.registerJsModule("_cloudflare_compat_flags", { python_request_headers_preserve_commas: true });
  const bridge = pyodide.toPy({});
  pyodide.runPython(BRIDGE, { globals: bridge });

  return { worker: pyodide.pyimport("cloudflare.worker"), call: bridge.get("call") };
}

function entrypoint(base, name, handlers) {
  const made = class extends base {
    constructor(ctx, env) {
      super(ctx, env);
      const ready = started().then((python) => ({ ...python, instance: python.worker[name](ctx, env) }));
      ready.catch(() => {}); // every call gets the error
      return new Proxy(this, {
        get(target, method, receiver) {
          if (typeof method !== "string" || method === "then") return Reflect.get(target, method, receiver);
          return async (...args) => {
            const { call, instance } = await ready;
            if (typeof instance[method] !== "function") throw new TypeError(`Method ${method} does not exist`);
            return RAW.has(method) ? await instance[method](...args) : await call(instance, method, ...args);
          };
        },
      });
    }
  };
  for (const handler of handlers) made.prototype[handler] = () => {}; // workerd looks for these; the proxy handles the calls
  return made;
}

export const SchedulerDO = entrypoint(DurableObject, "SchedulerDO", ["alarm"]);
export const ContractDO = entrypoint(DurableObject, "ContractDO", ["alarm"]);
export const HeartDO = entrypoint(DurableObject, "HeartDO", ["alarm"]);
export default entrypoint(WorkerEntrypoint, "Default", ["fetch", "scheduled"]);
