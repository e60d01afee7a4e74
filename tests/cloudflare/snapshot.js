// Makes the snapshot with which host.js starts: Pyodide after it has imported the packages that do not change.
import { startPyodide } from "pyodide_start.js";

const IMPORTS = `
import anyio, asyncio, base64, calendar, csv, decimal, email.utils, hashlib, hmac, http.cookies, ipaddress, json, logging
import mashumaro.codecs.basic, secrets, starlette.applications, starlette.middleware, starlette.routing, statistics
import unicodedata, urllib.parse, zlib
`;

export default {
  async fetch() {
    const pyodide = await startPyodide({ _makeSnapshot: true });
    pyodide.runPython(IMPORTS);
    return new Response(pyodide.makeMemorySnapshot());
  },
};
