// A stand-in for the worker-logs service: its RPC entry point, and the entries it got.
import { WorkerEntrypoint } from "cloudflare:workers";

const taken = [];

export class LogsRPC extends WorkerEntrypoint {
  async logBatch(appId, entries) {
    taken.push(...entries.map((entry) => ({ appId, ...entry })));
  }
  async query() {
    return taken;
  }
}

export default { fetch: () => new Response(null, { status: 404 }) };
