// Makes the snapshot with which host.js starts: Pyodide after it has imported the packages, and of our own what does
// not hold an object of JavaScript. Cloudflare also starts a Worker from a snapshot that was made after its imports.
import { startPyodide } from "pyodide_start.js";

const IMPORTS = `
import anyio, asyncio, base64, calendar, csv, decimal, email.utils, hashlib, hmac, http.cookies, ipaddress, json, logging
import mashumaro.codecs.basic, secrets, starlette.applications, starlette.middleware, starlette.routing, statistics
import unicodedata, urllib.parse, zlib
import contract.cases, contract.contract_do, tocsin.rounds.file, tocsin.scheduler.scheduler_do
import tocsin.app, tocsin.web.app
`;

export default {
  async fetch() {
    const pyodide = await startPyodide({ _makeSnapshot: true });
    pyodide.runPython(IMPORTS);
    return new Response(pyodide.makeMemorySnapshot());
  },
};
