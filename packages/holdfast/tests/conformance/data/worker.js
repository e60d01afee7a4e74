// The objects of the recordings on workerd: their behavior is a script of JSON ops, which exec() defines.
// record.py runs it, worker.py is its counterpart on our runtime.
import { DurableObject, RpcTarget } from "cloudflare:workers";

let SEQ = 0;                       // process-global event order
const attempts = new Map();        // object name -> alarm() invocations seen by this process
const ctorCount = new Map();       // object name -> constructions seen by this process
const memRegs = new Map();         // process-global registers (survive object resets, not restarts)

function emit(o) { console.log("@@" + JSON.stringify({ seq: SEQ++, at: Date.now(), ...o })); }
const sleep = (ms) => new Promise((r) => setTimeout(r, ms));
function errInfo(e) {
  if (!(e instanceof Error)) return { nonError: String(e) };
  const o = { name: e.name, message: e.message };
  for (const k of ["remote", "retryable", "overloaded", "durableObjectReset", "code", "custom", "durableObjectId"])
    if (k in e) o[k] = k === "durableObjectId" ? "<id>" : e[k];
  o.instanceofError = e instanceof Error;
  o.ctor = e.constructor && e.constructor.name;
  return o;
}

class Base extends DurableObject {
  #secret = 42;
  constructor(ctx, env) {
    super(ctx, env);
    this.mem = 0;
    this.instanceFn = () => "own-property function";
    this.oname = ctx.id.name ?? ctx.storage.kv.get("__name") ?? ctx.id.toString().slice(0, 8);
    const n = (ctorCount.get(this.oname) ?? 0) + 1;
    ctorCount.set(this.oname, n);
    emit({ obj: this.oname, ev: "constructor", n, idName: ctx.id.name ?? null });
  }
  get getterProp() { return "getter value"; }
  #hidden() { return this.#secret; }
  _underscore() { return "underscore ok"; }
  echo(...a) { return a.length === 1 ? a[0] : a; }
  argc(...a) { return a.length; }
  describe(x) { return { type: Object.prototype.toString.call(x), ctor: x?.constructor?.name ?? null, keys: x && typeof x === "object" ? Object.keys(x) : null, typeof: typeof x }; }
  async run(label, ops) { return await this.exec(label, ops); }
  // Installs what alarm() does: {attempts:[ops...], default: ops}
  async plan(p) { this.ctx.storage.kv.put("__plan", p); this.ctx.storage.kv.put("__name", this.oname); return true; }
  async planAndRun(p, label, ops) { await this.plan(p); return await this.exec(label, ops); }

  async alarm(info) {
    const n = attempts.get(this.oname) ?? 0;
    attempts.set(this.oname, n + 1);
    emit({ obj: this.oname, ev: "alarm.start", n, isRetry: info?.isRetry, retryCount: info?.retryCount, schedAbs: info?.scheduledTime ?? null, idName: this.ctx.id.name ?? null });
    const plan = this.ctx.storage.kv.get("__plan") ?? {};
    const ops = plan.attempts?.[n] ?? plan.default ?? [];
    try {
      await this.exec("alarm" + n, ops);
      emit({ obj: this.oname, ev: "alarm.end", n });
    } catch (e) {
      emit({ obj: this.oname, ev: "alarm.throw", n, error: errInfo(e).message });
      throw e;
    }
  }

  async exec(label, ops) {
    const S = this.ctx.storage;
    const out = [];
    const say = (ev, o = {}) => { const r = { obj: this.oname, in: label, ev, ...o }; emit(r); };
    for (const [op, ...a] of ops) {
      try {
        switch (op) {
          case "log": say("log", { msg: a[0] }); break;
          case "getAlarm": { const v = await S.getAlarm(); say("getAlarm", { valAbs: v }); out.push(v); break; }
          case "setAlarm": { const t = Date.now() + a[0]; const r = await S.setAlarm(t); say("setAlarm", { reqAbs: t, ret: r === undefined ? "undefined" : r }); out.push(t); break; }
          case "setAlarmNoAwait": { const t = Date.now() + a[0]; S.setAlarm(t); say("setAlarm", { reqAbs: t }); out.push(t); break; }
          case "setAlarmRaw": {
            let v = a[0];
            if (v === "NaN") v = NaN; else if (v === "Infinity") v = Infinity; else if (v === "undefined") v = undefined;
            else if (v && v.date !== undefined) v = new Date(Date.now() + v.date); else if (v && v.rel !== undefined) v = Date.now() + v.rel;
            await S.setAlarm(v); const g = await S.getAlarm();
            say("setAlarmRaw", { arg: a[0], valAbs: g }); out.push(g); break; }
          case "deleteAlarm": await S.deleteAlarm(); say("deleteAlarm"); break;
          case "put": await S.put(a[0], a[1]); say("put", { k: a[0], v: a[1] }); break;
          case "putNoAwait": S.put(a[0], a[1]); say("putNoAwait", { k: a[0] }); break;
          case "putUnconfirmed": S.put(a[0], a[1], { allowUnconfirmed: true }); say("putUnconfirmed", { k: a[0] }); break;
          case "get": { const v = await S.get(a[0]); say("get", { k: a[0], v: v === undefined ? null : v }); out.push(v === undefined ? null : v); break; }
          case "delete": { const v = await S.delete(a[0]); say("delete", { k: a[0], ret: v }); out.push(v); break; }
          case "list": { const m = await S.list(a[0]); const ks = [...m.keys()].filter((k) => !k.startsWith("__")); say("list", { keys: ks }); out.push(ks); break; }
          case "deleteAll": await S.deleteAll(); say("deleteAll"); break;
          case "sync": await S.sync(); say("sync"); break;
          case "sleep": await sleep(a[0]); break;
          case "microtask": for (let i = 0; i < (a[0] ?? 1); i++) await Promise.resolve(); break;
          case "spin": { const t = Date.now(); while (Date.now() - t < a[0]); say("spun", { ms: a[0] }); break; }
          case "ext": { const r = await this.env.EXT.fetch("http://ext/" + a[0]); const t = await r.text(); say("ext", { path: a[0], status: r.status, body: t }); out.push(t); break; }
          case "extNoAwait": { this.extP = this.env.EXT.fetch("http://ext/" + a[0]).then((r) => r.text()).then((t) => say("extDone", { path: a[0] }), (e) => say("extFail", { path: a[0], error: e.message })); say("extStarted", { path: a[0] }); break; }
          case "mem": this.mem += 1; say("mem", { mem: this.mem }); out.push(this.mem); break;
          case "throw": throw new Error(a[0] ?? "boom");
          case "throwType": throw new TypeError(a[0] ?? "type boom");
          case "abort": say("abort"); if (a.length > 1) this.ctx.abort(a[0], a[1]); else this.ctx.abort(a[0]); break;
          case "bcw": { const r = await this.ctx.blockConcurrencyWhile(async () => { say("bcw.begin"); const x = await this.exec(label, a[0]); say("bcw.end"); return x; }); out.push(r); break; }
          case "bcwNoAwait": this.ctx.blockConcurrencyWhile(async () => { say("bcw.begin"); await this.exec(label, a[0]); say("bcw.end"); }); break;
          case "txn": { const r = await S.transaction(async (txn) => { say("txn.begin"); const x = await this.execTxn(label, txn, a[0]); say("txn.end"); return x; }); out.push(r); break; }
          case "txnSync": { const r = S.transactionSync(() => { for (const [o, ...b] of a[0]) { if (o === "put") S.kv.put(b[0], b[1]); else if (o === "throw") throw new Error(b[0] ?? "txnSync boom"); else if (o === "sql") S.sql.exec(b[0]); else if (o === "setAlarm") S.setAlarm(Date.now() + b[0]); } return "committed"; }); say("txnSync", { ret: r }); out.push(r); break; }
          case "sql": { const r = [...S.sql.exec(a[0], ...(a[1] ?? []))]; say("sql", { q: a[0].slice(0, 60), rows: r }); out.push(r); break; }
          case "sqlRaw": { const c = S.sql.exec(a[0], ...(a[1] ?? [])); const r = [c.columnNames, [...c.raw()]]; say("sqlRaw", { q: a[0].slice(0, 60), rows: r }); out.push(r); break; }
          case "sqlOne": { const r = S.sql.exec(a[0], ...(a[1] ?? [])).one(); say("sqlOne", { q: a[0].slice(0, 60), row: r }); out.push(r); break; }
          case "kv": { let r = S.kv[a[0]](...a.slice(1)); if (a[0] === "list") r = [...r].filter(([k]) => !k.startsWith("__")); say("kv", { method: a[0], v: r ?? null }); out.push(r ?? null); break; }
          case "fkBreak": // leaves the db violating a deferred FK so that COMMIT fails
            S.sql.exec("CREATE TABLE IF NOT EXISTS p(id INTEGER PRIMARY KEY)"); S.sql.exec("CREATE TABLE IF NOT EXISTS c(id INTEGER PRIMARY KEY, pid INTEGER REFERENCES p(id))");
            S.sql.exec("PRAGMA defer_foreign_keys=ON"); S.sql.exec("INSERT INTO c(pid) VALUES (999)"); say("fkBreak"); break;
          case "rmw": { const v = (await S.get(a[0])) ?? 0; if (a[1] === "sleep") await sleep(a[2]); else if (a[1] === "ext") await (await this.env.EXT.fetch("http://ext/delay?ms=" + a[2])).text(); await S.put(a[0], v + 1); out.push(v + 1); break; }
          case "try": { try { out.push(await this.exec(label, a[0])); } catch (e) { say("caught", { error: errInfo(e) }); out.push({ caught: errInfo(e) }); } break; }
          case "timerThrow": setTimeout(() => { say("timerThrow.fired"); throw new Error("from timer"); }, a[0]); break;
          case "timerLog": setTimeout(() => say("timerLog.fired", { msg: a[1] }), a[0]); break;
          case "waitUntil": this.ctx.waitUntil((async () => { await sleep(a[0]); say("waitUntil.done"); if (a[1]) throw new Error(a[1]); })()); break;
          case "setReg": memRegs.set(a[0], a[1]); break;
          case "callOther": { const st = this.env[a[0]].getByName(a[1]); const r = await st.run(a[2], a[3]); say("callOther.done", { r }); out.push(r); break; }
          case "callSelf": { const st = this.env.Obj.getByName(this.oname); const r = await st.run(a[0], a[1]); say("callSelf.done"); out.push(r); break; }
          case "bigPut": { const key = "k".repeat(a[0]); const val = a[2] === "bytes" ? new Uint8Array(a[1]) : "v".repeat(a[1]); await S.put(key, val); say("bigPut", { key: a[0], val: a[1] }); out.push("ok"); break; }
          case "multiGet": { const m = await S.get(Array.from({ length: a[0] }, (_, i) => "mk" + i)); out.push(m.size); say("multiGet", { n: a[0], size: m.size }); break; }
          case "multiPut": { await S.put(Object.fromEntries(Array.from({ length: a[0] }, (_, i) => ["mk" + i, i]))); say("multiPut", { n: a[0] }); break; }
          case "putWeird": { const w = { fn: () => 1, undef: undefined, symbol: Symbol("x"), date: new Date(0), map: new Map([[1, 2]]), set: new Set([1]), err: new RangeError("x"), bigint: 10n, nan: NaN, negzero: -0, re: /x/g, cyc: null, cls: new (class Foo { x = 1; m() {} })(), ab: new Uint8Array([1, 2]).buffer };
            w.cyc = {}; w.cyc.self = w.cyc; const v = w[a[0]]; await S.put("w", v); const g = await S.get("w");
            const d = { type: Object.prototype.toString.call(g), ctor: g?.constructor?.name ?? null, negzero: Object.is(g, -0), nan: Number.isNaN(g), self: g?.self === g && !!g, sameRef: g === v && typeof v === "object" }; say("putWeird", { kind: a[0], d }); out.push(d); break; }
          case "putMixed": await S.put({ pa: 1, pb: () => 1, pc: 3 }); say("putMixed"); break;
          case "mutateAfterPut": { const o = { x: 1 }; const p = S.put("m", o); o.x = 2; await p; const g = await S.get("m"); const g2 = await S.get("m"); say("mutateAfterPut", { x: g.x, sameRef: g === g2 }); out.push(g.x); break; }
          default: throw new Error("unknown op " + op);
        }
      } catch (e) { if (op !== "throw" && op !== "throwType" && op !== "try") say("op.throw", { op, error: errInfo(e) }); throw e; }
    }
    return out;
  }
  async execTxn(label, txn, ops) {
    const out = [];
    for (const [op, ...a] of ops) switch (op) {
      case "put": await txn.put(a[0], a[1]); break;
      case "get": out.push((await txn.get(a[0])) ?? null); break;
      case "setAlarm": await txn.setAlarm(Date.now() + a[0]); break;
      case "deleteAlarm": await txn.deleteAlarm(); break;
      case "getAlarm": { const v = await txn.getAlarm(); emit({ obj: this.oname, in: label, ev: "txn.getAlarm", valAbs: v }); break; }
      case "sleep": await sleep(a[0]); break;
      case "rollback": txn.rollback(); break;
      case "deleteAll": await txn.deleteAll(); break;
      case "outer": await this.exec(label, a[0]); break;   // use ctx.storage inside the txn
      case "throw": throw new Error(a[0] ?? "txn boom");
    }
    return out;
  }
}

class Target extends RpcTarget { constructor() { super(); this.own = 1; } hi() { return "hi from target"; } get prop() { return "proto getter"; } }
class NotTarget { constructor() { this.x = 1; } m() { return 1; } }
class CustomError extends Error { constructor(m) { super(m); this.name = "CustomError"; this.code = "E_CUSTOM"; this.custom = { a: 1 }; } }

export class Obj extends Base {
  async throwCustom() { throw new CustomError("custom message"); }
  async throwString() { throw "just a string"; }
  throwSync() { throw new RangeError("sync range"); }
  async throwCause() { throw new Error("outer", { cause: new Error("inner") }); }
  async retFn() { return (x) => x + 1; }
  async retTarget() { return new Target(); }
  async retNotTarget() { return new NotTarget(); }
  async retUndefined() {}
  async retBig(n) { return "x".repeat(n); }
  async retStream() { return new Response("streamed").body; }
  async callCb(cb, x) { return await cb(x); }
  static stat() { return 1; }
}
export class Other extends Base {}
export class NoAlarm extends DurableObject {
  async trySet() { await this.ctx.storage.setAlarm(Date.now() + 1000); return "set"; }
  async tryGet() { return await this.ctx.storage.getAlarm(); }
}
let badCtorCalls = 0;
// Throws in the constructor while register ctorFail[name] > 0 (counts down).
export class BadCtor extends Base {
  constructor(ctx, env) {
    super(ctx, env);
    const left = memRegs.get("fail:" + this.oname) ?? 0;
    if (left > 0) { memRegs.set("fail:" + this.oname, left - 1); emit({ obj: this.oname, ev: "ctor.throw", left }); throw new Error("ctor failed"); }
    const bl = memRegs.get("bcwfail:" + this.oname) ?? 0;
    if (bl > 0) { memRegs.set("bcwfail:" + this.oname, bl - 1); ctx.blockConcurrencyWhile(async () => { await sleep(50); emit({ obj: this.oname, ev: "ctor.bcw.throw" }); throw new Error("ctor bcw failed"); }); }
  }
}
export class CtorAlarm extends Base {   // sets an alarm from the constructor if none is set
  constructor(ctx, env) {
    super(ctx, env);
    ctx.blockConcurrencyWhile(async () => {
      const a = await ctx.storage.getAlarm();
      emit({ obj: this.oname, ev: "ctor.getAlarm", valAbs: a });
      if (a === null && !ctx.storage.kv.get("done")) { await ctx.storage.setAlarm(Date.now() + 300); }
    });
  }
}
export class SlowCtor extends Base {
  constructor(ctx, env) {
    super(ctx, env);
    this.ready = false;
    ctx.blockConcurrencyWhile(async () => { await sleep(1000); this.ready = true; emit({ obj: this.oname, ev: "ctor.ready" }); });
  }
  async isReady() { emit({ obj: this.oname, ev: "isReady", ready: this.ready }); return this.ready; }
}
// Constructor pushes the alarm back every time it runs (the "TTL extended in the constructor" trap).
export class CtorExtend extends Base {
  constructor(ctx, env) {
    super(ctx, env);
    const mode = memRegs.get("mode:" + this.oname);
    if (mode === "fire") { ctx.storage.setAlarm(Date.now() + 1500); emit({ obj: this.oname, ev: "ctor.setAlarm" }); }
    if (mode === "bcw") ctx.blockConcurrencyWhile(async () => { await ctx.storage.setAlarm(Date.now() + 1500); await ctx.storage.sync(); emit({ obj: this.oname, ev: "ctor.setAlarm+sync" }); });
  }
}
export class Plain {   // does NOT extend DurableObject: no RPC, fetch()/alarm() only
  constructor(state, env) { this.state = state; }
  async fetch() { return new Response("plain ok"); }
  hello() { return "hello"; }
}
export class Bench extends DurableObject {
  async readOne() { return (await this.ctx.storage.get("k")) ?? 0; }
  async writeOne() { await this.ctx.storage.put("k", Date.now()); return 1; }
  async incr() { const v = ((await this.ctx.storage.get("n")) ?? 0) + 1; await this.ctx.storage.put("n", v); return v; }
  noop() { return 1; }
  async arm(delta) { const t = Date.now() + delta; await this.ctx.storage.setAlarm(t); return t; }
  async alarm(info) {
    emit({ ev: "bench.alarm", schedAbs: info?.scheduledTime ?? null, id: this.ctx.id.toString().slice(0, 12), retryCount: info?.retryCount });
  }
}

export default {
  async fetch(req, env) {
    const url = new URL(req.url);
    if (url.pathname.startsWith("/b/")) {           // bench: /b/<method>/<object name>
      const [, , m, name] = url.pathname.split("/");
      return new Response(String(await env.Bench.getByName(name)[m]()));
    }
    if (url.pathname === "/ping") return new Response("pong");
    const { cls = "Obj", name, method, args = [], special } = await req.json();
    try {
      if (special) return Response.json({ ok: true, value: await specials[special](env, name, ...args) });
      const stub = env[cls].getByName(name);
      const value = await stub[method](...args);
      return Response.json({ ok: true, value: value === undefined ? null : value, undef: value === undefined });
    } catch (e) {
      return Response.json({ ok: false, error: errInfo(e) });
    }
  },
};

const tryIt = async (f) => { try { const v = await f(); return { ok: v === undefined ? "undefined" : v }; } catch (e) { return { err: errInfo(e) }; } };
const specials = {
  async ids(env) {
    const a = env.Obj.idFromName("x"), b = env.Obj.idFromName("x"), c = env.Other.idFromName("x"), u1 = env.Obj.newUniqueId(), u2 = env.Obj.newUniqueId();
    const s = env.Obj.idFromString(a.toString());
    return {
      hex: a.toString(), len: a.toString().length, equals: a.equals(b), sameStr: a.toString() === b.toString(), otherNsDiffers: a.toString() !== c.toString(),
      uniqueDiffer: u1.toString() !== u2.toString(), name: a.name ?? null, uniqueName: u1.name ?? null, fromStringName: s.name ?? null, fromStringEquals: s.equals(a),
      uniqueRoundTrip: await tryIt(() => env.Obj.idFromString(u1.toString()).equals(u1)),
      wrongNs: await tryIt(() => env.Obj.idFromString(c.toString())), garbage: await tryIt(() => env.Obj.idFromString("zz")), garbage64: await tryIt(() => env.Obj.idFromString("0".repeat(64))),
      empty: await tryIt(() => env.Obj.idFromName("").toString()), getNoId: await tryIt(() => env.Obj.get("notanid")), idFromNameNum: await tryIt(() => env.Obj.idFromName(5).name),
      upper: await tryIt(() => env.Obj.idFromString(a.toString().toUpperCase()).equals(a)), json: JSON.stringify(a),
      stubId: env.Obj.getByName("x").id.equals(a), stubName: env.Obj.getByName("x").name,
    };
  },
  async rpc(env, name) {
    const st = env.Obj.getByName(name); const r = {};
    const probe = (k, f) => tryIt(f).then((v) => { r[k] = v; });
    await probe("echo", () => st.echo(1)); await probe("extraArgs", () => st.argc(1, 2, 3)); await probe("missingMethod", () => st.nope()); await probe("instanceFn", () => st.instanceFn());
    await probe("mem(own prop)", () => st.mem); await probe("getter", () => st.getterProp); await probe("methodAsProp", async () => typeof (await st.echo)); await probe("underscore", () => st._underscore());
    for (const m of ["alarm", "constructor", "webSocketMessage", "webSocketClose", "webSocketError", "toString", "hasOwnProperty", "ctx", "env", "exec", "stat"]) await probe("call:" + m, () => st[m]());
    await probe("call:fetch(no args)", () => st.fetch());
    await probe("throwCustom", () => st.throwCustom()); await probe("throwString", () => st.throwString()); await probe("throwSync", () => st.throwSync()); await probe("throwCause", async () => { try { await st.throwCause(); } catch (e) { return { msg: e.message, cause: e.cause?.message ?? null, stackHasRemote: /throwCause/.test(e.stack ?? ""), stackLen: (e.stack ?? "").split("\n").length }; } });
    await probe("retUndefined", () => st.retUndefined()); await probe("retFn", async () => { const f = await st.retFn(); return await f(41); }); await probe("retTarget", async () => { const t = await st.retTarget(); return [await t.hi(), await t.prop]; }); await probe("retTarget.own", async () => { const t = await st.retTarget(); return await t.own; });
    await probe("retNotTarget", () => st.retNotTarget()); await probe("argNotTarget", () => st.echo(new NotTarget())); await probe("pipelined", () => st.retTarget().hi());
    await probe("callback", () => st.callCb((x) => x * 2, 21)); await probe("date", () => st.describe(new Date(0))); await probe("map", () => st.describe(new Map([[1, 2]]))); await probe("set", () => st.describe(new Set([1]))); await probe("u8", () => st.describe(new Uint8Array(3))); await probe("err", () => st.describe(new RangeError("x"))); await probe("undefinedArg", () => st.describe(undefined)); await probe("bigint", async () => String(await st.echo(10n))); await probe("symbol", () => st.echo(Symbol("x"))); await probe("regexp", () => st.describe(/x/)); await probe("cyclic", async () => { const o = {}; o.o = o; const q = await st.echo(o); return q.o === q; });
    await probe("plainObjWithFn", async () => { const q = await st.echo({ f: () => 7, n: 1 }); return [q.n, await q.f()]; }); await probe("stubAsArg", () => st.describe(env.Obj.getByName("zz"))); await probe("32MiB-", async () => (await st.retBig(33 * 1024 * 1024 - 1024 * 1024 - 64)).length); await probe("32MiB+", async () => (await st.retBig(33 * 1024 * 1024)).length);
    await probe("stream", async () => new Response(await st.retStream()).text());
    await probe("plainClassRpc", () => env.Plain.getByName("p").hello()); await probe("plainClassFetch", async () => (await env.Plain.getByName("p").fetch("http://x/")).text());
    await probe("noFetchHandler", async () => (await st.fetch("http://x/")).text());
    return r;
  },
  // e-order: many calls on ONE stub without awaiting in between
  async order(env, name) { const st = env.Obj.getByName(name); const ps = []; for (let i = 0; i < 20; i++) ps.push(st.run("o" + i, [["log", i]])); await Promise.all(ps); return "done"; },
  // same stub used before/after the object resets itself
  async brokenStub(env, name) {
    const st = env.Obj.getByName(name); const r = {};
    r.before = await tryIt(() => st.run("a", [["mem"], ["mem"]]));
    r.abort = await tryIt(() => st.run("b", [["put", "pre", 1], ["abort", "my reason"]]));
    r.sameStubAfter = await tryIt(() => st.run("c", [["mem"], ["get", "pre"]]));
    r.newStubAfter = await tryIt(() => env.Obj.getByName(name).run("d", [["mem"], ["get", "pre"]]));
    return r;
  },
  async setReg(env, name, k, v) { memRegs.set(k, v); return v; },
  async plainFetch(env, name) { return await tryIt(async () => (await env.Plain.getByName("p").fetch("http://x/")).text()); },
};
