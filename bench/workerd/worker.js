// The same routes as bench/objects_server.py, on the real workerd.
import { DurableObject } from "cloudflare:workers";

const lateness = [];
const firstAlarm = [];

export class Bench extends DurableObject {
  async read_one() { return (await this.ctx.storage.get("k")) ?? 0; }
  async write_one() { await this.ctx.storage.put("k", Date.now()); return 1; }
  read_row() { return this.#table().exec("SELECT v FROM t WHERE id = 1").toArray()[0]?.v ?? 0; }
  write_row() { this.#table().exec("INSERT OR REPLACE INTO t VALUES (1, ?)", Date.now()); return 1; }
  #hasTable = false;
  #table() {
    const sql = this.ctx.storage.sql;
    if (!this.#hasTable) sql.exec("CREATE TABLE IF NOT EXISTS t (id INTEGER PRIMARY KEY, v INTEGER)");
    this.#hasTable = true;
    return sql;
  }
  async arm(at) { await this.ctx.storage.setAlarm(at); }
  async alarm(info) {
    const now = Date.now();
    lateness.push(now - info.scheduledTime);
    if (firstAlarm.length === 0) firstAlarm.push(now);
  }
}

export default {
  async fetch(request, env) {
    const url = new URL(request.url);
    const [, first, method, name] = url.pathname.split("/");
    if (first === "b") return new Response(String(await env.BENCH.getByName(name)[method]()));
    if (first === "results") return Response.json({ lateness, firstAlarm });
    if (first === "arm") {
      const [n, at, within] = ["n", "at", "within"].map((k) => Number(url.searchParams.get(k) ?? 0));
      lateness.length = 0;
      for (let i = 0; i < n; i++) await env.BENCH.getByName("alarm" + i).arm(at + Math.floor((i * within) / n));
      return Response.json({ armed: n });
    }
    return new Response("unknown", { status: 404 });
  },
};
