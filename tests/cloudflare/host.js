// Runs an unchanged Python Worker on stock workerd and stock Pyodide, without Cloudflare's own bundle of both, which
// would be downloaded at start. Forwards like workerd's Python entry point: handlers get the runtime's values, calls
// pass through the conversions of the SDK.
import { DurableObject, WorkerEntrypoint } from "cloudflare:workers";
import * as cloudflareWorkersModule from "cloudflare:workers";
import * as cloudflareSocketsModule from "cloudflare:sockets";
import { loadPyodide, version } from "pyodide.mjs";
import createPyodideModule from "pyodide.asm.mjs";
import wasm from "pyodide.asm.wasm";
import stdlib from "python_stdlib.zip";
import sdk from "workers_runtime_sdk.whl";
import project from "project.zip";

const BUNDLE = "http://bundle/";
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
  const pyodide = await bundled(() =>
    loadPyodide({
      indexURL: BUNDLE,
      lockFileContents: { info: { abi_version: "2026_0", arch: "wasm32", platform: "emscripten", version }, packages: {} },
      createPyodideModule: (settings) => createPyodideModule({ ...settings, instantiateWasm }),
    }),
  );
  pyodide.unpackArchive(sdk, "wheel");
  pyodide.unpackArchive(project, "zip", { extractDir: "/project" });
  pyodide.registerJsModule("_pyodide_entrypoint_helper", {
    cloudflareWorkersModule,
    cloudflareSocketsModule,
    doAnImport: (name) => import(name),
    patchWaitUntil() {},
  });
  pyodide.registerJsModule("_cloudflare_compat_flags", { python_request_headers_preserve_commas: true });
  pyodide.runPython("import sys; sys.path.insert(0, '/project')");
  const bridge = pyodide.toPy({});
  pyodide.runPython(BRIDGE, { globals: bridge });

  return { worker: pyodide.pyimport("cloudflare.worker"), call: bridge.get("call") };
}

// The loader assumes a browser; what it fetches comes from the bundle. Without MessageChannel it schedules with
// setTimeout, which stays within the object or request that calls it; one channel for all would not.
async function bundled(load) {
  const { fetch, MessageChannel } = globalThis;
  globalThis.location = BUNDLE;
  globalThis.addEventListener = () => {};
  globalThis.MessageChannel = undefined;
  globalThis.fetch = async (url) => new Response(String(url).endsWith(".zip") ? stdlib : null);
  try {
    return await load();
  } finally {
    Object.assign(globalThis, { fetch, MessageChannel });
  }
}

function instantiateWasm(imports, receive) {
  const marker = Symbol("error marker");
  imports.env.Jsv_GetError_import = () => marker;
  imports.env.JsvError_Check = (value) => value === marker;
  WebAssembly.instantiate(wasm, imports).then((instance) => receive(instance, wasm));
  return {};
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
