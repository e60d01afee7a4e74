// Stock Pyodide in stock workerd. A start takes seconds, of which a snapshot of the memory saves most.
import { loadPyodide, version } from "pyodide.mjs";
import createPyodideModule from "pyodide.asm.mjs";
import wasm from "pyodide.asm.wasm";
import stdlib from "python_stdlib.zip";
import project from "project.zip";

const BUNDLE = "http://bundle/";
const PAGE = 65_536;

// Options are Pyodide's own. The files in project.zip are found by `import`.
export async function startPyodide(options) {
  const pyodide = await bundled(() =>
    loadPyodide({
      indexURL: BUNDLE,
      lockFileContents: { info: { abi_version: "2026_0", arch: "wasm32", platform: "emscripten", version }, packages: {} },
      createPyodideModule: (settings) => createPyodideModule({ ...settings, instantiateWasm: instantiator(options._loadSnapshot?.byteLength ?? 0) }),
      ...options,
    }),
  );
  pyodide.unpackArchive(project, "zip", { extractDir: "/project" });
  pyodide.runPython("import sys; '/project' in sys.path or sys.path.insert(0, '/project')");
  return pyodide;
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

// Pyodide copies a snapshot into the memory that it has, and does not enlarge it for that.
const instantiator = (memoryMin) => (imports, receive) => {
  const marker = Symbol("error marker");
  imports.env.Jsv_GetError_import = () => marker;
  imports.env.JsvError_Check = (value) => value === marker;
  WebAssembly.instantiate(wasm, imports).then((instance) => {
    const { memory } = instance.exports;
    memory.grow(Math.max(0, Math.ceil((memoryMin - memory.buffer.byteLength) / PAGE)));
    receive(instance, wasm);
  });
  return {};
};
