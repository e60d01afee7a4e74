"""The object under test: its behaviour is a script of JSON ops, the same ops as in the recordings.

`OPS` defines each op. Names of ops and events are those of the recordings (camelCase).
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from holdfast.errors import ObjectError
from holdfast.types import AlarmInfo, DurableObject


class World:
    """`env`: the bindings, and what all objects of one process share."""

    def __init__(self, emit: Callable[[dict[str, Any]], None], now: Callable[[], int]) -> None:
        self.emit = emit
        self.now = now
        self.attempts: dict[str, int] = {}
        self.constructions: dict[str, int] = {}
        self.registers: dict[str, Any] = {}
        self.fetch: Callable[[str], Awaitable[tuple[int, str]]]
        self.spin: Callable[[int], None]


class Scripted(DurableObject):
    """Base of all scripted classes."""

    def __init__(self, ctx: Any, env: World) -> None:
        super().__init__(ctx, env)
        self.world = env
        self.mem = 0
        self.instanceFn = lambda: "own-property function"
        self.oname: str = ctx.id.name or str(ctx.id)[:8]
        n = env.constructions[self.oname] = env.constructions.get(self.oname, 0) + 1
        self.emit("constructor", n=n, idName=ctx.id.name)

    def emit(self, ev: str, **fields: Any) -> None:
        self.world.emit({"obj": self.oname, "ev": ev, **fields})

    def _underscore(self) -> str:
        return "underscore ok"

    def echo(self, *arguments: Any) -> Any:
        return arguments[0] if len(arguments) == 1 else list(arguments)

    def argc(self, *arguments: Any) -> int:
        return len(arguments)

    async def run(self, label: str, ops: list[Any]) -> Any:
        return await self.exec(label, ops)

    async def plan(self, plan: dict[str, Any]) -> bool:
        self.ctx.storage.put("__plan", plan)
        return True

    async def alarm(self, info: AlarmInfo) -> None:
        n = self.world.attempts.get(self.oname, 0)
        self.world.attempts[self.oname] = n + 1
        self.emit(
            "alarm.start",
            n=n,
            isRetry=info.is_retry,
            retryCount=info.retry_count,
            schedAbs=info.scheduled_time,
            idName=self.ctx.id.name,
        )
        plan = await self.ctx.storage.get("__plan") or {}
        attempts = plan.get("attempts", [])
        ops = attempts[n] if n < len(attempts) else plan.get("default", [])
        try:
            await self.exec(f"alarm{n}", ops)
        except Exception as error:
            self.emit("alarm.throw", n=n, error=str(error))
            raise
        self.emit("alarm.end", n=n)

    async def exec(self, label: str, ops: list[Any]) -> list[Any]:
        out: list[Any] = []
        for op, *a in ops:
            try:
                await OPS[op](self, label, out, *a)
            except Exception as error:
                if op not in {"throw", "throwType", "try"}:
                    self.emit("op.throw", **{"in": label}, op=op, error=error_info(error))
                raise
        return out

    async def exec_txn(self, label: str, txn: Any, ops: list[Any]) -> list[Any]:  # noqa: C901 - a list of ops
        out: list[Any] = []
        for op, *a in ops:
            match op:
                case "put":
                    await txn.put(a[0], a[1])
                case "get":
                    out.append(await txn.get(a[0]))
                case "setAlarm":
                    await txn.set_alarm(self.world.now() + a[0])
                case "deleteAlarm":
                    await txn.delete_alarm()
                case "getAlarm":
                    self.emit("txn.getAlarm", **{"in": label}, valAbs=await txn.get_alarm())
                case "sleep":
                    await asyncio.sleep(a[0] / 1000)
                case "rollback":
                    txn.rollback()
                case "deleteAll":
                    await txn.delete_all()
                case "outer":
                    await self.exec(label, a[0])
                case "throw":
                    raise Exception(a[0] if a else "txn boom")  # noqa: TRY002 - a plain error is the point
        return out


def error_info(error: Exception) -> dict[str, Any]:
    names: dict[type[Exception], str] = {TypeError: "TypeError", ValueError: "RangeError"}
    name = next((n for kind, n in names.items() if isinstance(error, kind)), "Error")
    info: dict[str, Any] = {"name": name, "message": str(error)}
    if getattr(error, "remote", False):
        info["remote"] = True
    if isinstance(error, ObjectError):
        flags = {"overloaded": error.overloaded, "durableObjectReset": error.durable_object_reset}
        info |= {flag: True for flag, on in flags.items() if on}
    return info


# The ops. Each takes the object, the label of the call, the list of results, and its own arguments.


async def _log(do: Scripted, label: str, _out: list[Any], msg: Any) -> None:
    do.emit("log", **{"in": label}, msg=msg)


async def _get_alarm(do: Scripted, label: str, out: list[Any]) -> None:
    at = await do.ctx.storage.get_alarm()
    do.emit("getAlarm", **{"in": label}, valAbs=at)
    out.append(_time(at))


async def _set_alarm(do: Scripted, label: str, out: list[Any], delay: int) -> None:
    at = do.world.now() + delay
    await do.ctx.storage.set_alarm(at)
    do.emit("setAlarm", **{"in": label}, reqAbs=at, ret="undefined")
    out.append(_time(at))


async def _set_alarm_no_await(do: Scripted, label: str, out: list[Any], delay: int) -> None:
    at = do.world.now() + delay
    do.ctx.storage.set_alarm(at)
    do.emit("setAlarm", **{"in": label}, reqAbs=at)
    out.append(_time(at))


async def _set_alarm_raw(do: Scripted, label: str, out: list[Any], arg: Any) -> None:
    from datetime import UTC, datetime

    special = {"NaN": float("nan"), "Infinity": float("inf"), "undefined": None}
    value: Any = special.get(arg, arg) if isinstance(arg, str) else arg
    if isinstance(arg, dict):
        at = do.world.now() + arg["date" if "date" in arg else "rel"]
        value = datetime.fromtimestamp(at / 1000, UTC) if "date" in arg else at
    await do.ctx.storage.set_alarm(value)
    at = await do.ctx.storage.get_alarm()
    do.emit("setAlarmRaw", **{"in": label}, arg=arg, valAbs=at)
    out.append(_time(at))


async def _delete_alarm(do: Scripted, label: str, _out: list[Any]) -> None:
    await do.ctx.storage.delete_alarm()
    do.emit("deleteAlarm", **{"in": label})


async def _put(do: Scripted, label: str, _out: list[Any], key: str, value: Any) -> None:
    await do.ctx.storage.put(key, value)
    do.emit("put", **{"in": label}, k=key, v=value)


async def _put_no_await(do: Scripted, label: str, _out: list[Any], key: str, value: Any) -> None:
    do.ctx.storage.put(key, value)
    do.emit("putNoAwait", **{"in": label}, k=key)


async def _get(do: Scripted, label: str, out: list[Any], key: str) -> None:
    value = await do.ctx.storage.get(key)
    do.emit("get", **{"in": label}, k=key, v=value)
    out.append(value)


async def _delete(do: Scripted, label: str, out: list[Any], key: str) -> None:
    existed = await do.ctx.storage.delete(key)
    do.emit("delete", **{"in": label}, k=key, ret=existed)
    out.append(existed)


async def _list(do: Scripted, label: str, out: list[Any], options: dict[str, Any] | None = None) -> None:
    renamed = {("start_after" if k == "startAfter" else k): v for k, v in (options or {}).items()}
    found = await do.ctx.storage.list(**renamed)
    keys = [key for key in found if not key.startswith("__")]
    do.emit("list", **{"in": label}, keys=keys)
    out.append(keys)


async def _delete_all(do: Scripted, label: str, _out: list[Any]) -> None:
    await do.ctx.storage.delete_all()
    do.emit("deleteAll", **{"in": label})


async def _sync(do: Scripted, label: str, _out: list[Any]) -> None:
    await do.ctx.storage.sync()
    do.emit("sync", **{"in": label})


async def _sleep(_do: Scripted, _label: str, _out: list[Any], ms: int) -> None:
    await asyncio.sleep(ms / 1000)


async def _microtask(_do: Scripted, _label: str, _out: list[Any], _n: int = 1) -> None:
    """A microtask is not a suspension, so Python does not wait here."""


async def _spin(do: Scripted, label: str, _out: list[Any], ms: int) -> None:
    do.world.spin(ms)
    do.emit("spun", **{"in": label}, ms=ms)


async def _ext(do: Scripted, label: str, out: list[Any], path: str) -> None:
    status, body = await do.world.fetch(path)
    do.emit("ext", **{"in": label}, path=path, status=status, body=body)
    out.append(body)


async def _ext_no_await(do: Scripted, label: str, _out: list[Any], path: str) -> None:
    async def exchange() -> None:
        try:
            await do.world.fetch(path)
        except Exception as error:  # noqa: BLE001 - recorded
            do.emit("extFail", **{"in": label}, path=path, error=str(error))
        else:
            do.emit("extDone", **{"in": label}, path=path)

    _keep(asyncio.create_task(exchange()))
    do.emit("extStarted", **{"in": label}, path=path)


async def _mem(do: Scripted, label: str, out: list[Any]) -> None:
    do.mem += 1
    do.emit("mem", **{"in": label}, mem=do.mem)
    out.append(do.mem)


async def _throw(_do: Scripted, _label: str, _out: list[Any], message: str = "boom") -> None:
    raise Exception(message)  # noqa: TRY002 - a plain error is the point


async def _throw_type(_do: Scripted, _label: str, _out: list[Any], message: str = "type boom") -> None:
    raise TypeError(message)


async def _abort(do: Scripted, label: str, _out: list[Any], reason: str | None = None, options: Any = None) -> None:
    do.emit("abort", **{"in": label})
    do.ctx.abort(reason, retry_alarm=(options or {}).get("retryAlarm", True))


def _section(do: Scripted, label: str, ops: list[Any]) -> Callable[[], Awaitable[Any]]:
    async def work() -> Any:
        do.emit("bcw.begin", **{"in": label})
        result = await do.exec(label, ops)
        do.emit("bcw.end", **{"in": label})
        return result

    return work


async def _bcw(do: Scripted, label: str, out: list[Any], ops: list[Any]) -> None:
    out.append(await do.ctx.block_concurrency_while(_section(do, label, ops)))


async def _bcw_no_await(do: Scripted, label: str, _out: list[Any], ops: list[Any]) -> None:
    do.ctx.block_concurrency_while(_section(do, label, ops))


async def _txn(do: Scripted, label: str, out: list[Any], ops: list[Any]) -> None:
    async def work(txn: Any) -> Any:
        do.emit("txn.begin", **{"in": label})
        result = await do.exec_txn(label, txn, ops)
        do.emit("txn.end", **{"in": label})
        return result

    out.append(await do.ctx.storage.transaction(work))


async def _txn_sync(do: Scripted, label: str, out: list[Any], ops: list[Any]) -> None:
    def work() -> str:
        for op, *b in ops:
            if op == "put":
                do.ctx.storage.put(b[0], b[1])
            elif op == "setAlarm":
                do.ctx.storage.set_alarm(do.world.now() + b[0])
            elif op == "sql":
                do.ctx.storage.sql.exec(b[0])
            elif op == "throw":
                raise Exception(b[0] if b else "txnSync boom")  # noqa: TRY002 - as above
        return "committed"

    result = do.ctx.storage.transaction_sync(work)
    do.emit("txnSync", **{"in": label}, ret=result)
    out.append(result)


async def _fk_break(do: Scripted, label: str, _out: list[Any]) -> None:
    """Leave the database violating a deferred constraint, so that the commit fails."""
    sql = do.ctx.storage.sql
    sql.exec("CREATE TABLE IF NOT EXISTS p(id INTEGER PRIMARY KEY)")
    sql.exec("CREATE TABLE IF NOT EXISTS c(id INTEGER PRIMARY KEY, pid INTEGER REFERENCES p(id))")
    sql.exec("PRAGMA defer_foreign_keys=ON")
    sql.exec("INSERT INTO c(pid) VALUES (999)")
    do.emit("fkBreak", **{"in": label})


async def _sql(do: Scripted, label: str, out: list[Any], query: str, values: list[Any] | None = None) -> None:
    rows = do.ctx.storage.sql.exec(query, *(values or [])).all()
    do.emit("sql", **{"in": label}, q=query[:60], rows=rows)
    out.append(rows)


async def _sql_raw(do: Scripted, label: str, out: list[Any], query: str, values: list[Any] | None = None) -> None:
    cursor = do.ctx.storage.sql.exec(query, *(values or []))
    rows = [cursor.column_names, list(cursor.raw())]
    do.emit("sqlRaw", **{"in": label}, q=query[:60], rows=rows)
    out.append(rows)


async def _sql_one(do: Scripted, label: str, out: list[Any], query: str, values: list[Any] | None = None) -> None:
    row = do.ctx.storage.sql.exec(query, *(values or [])).one()
    do.emit("sqlOne", **{"in": label}, q=query[:60], row=row)
    out.append(row)


async def _kv(do: Scripted, label: str, out: list[Any], method: str, *arguments: Any) -> None:
    if method == "list":
        options = arguments[0] if arguments else {}
        found = do.ctx.storage.kv.list(**{("start_after" if k == "startAfter" else k): v for k, v in options.items()})
        result: Any = [[key, value] for key, value in found.items() if not key.startswith("__")]
    else:
        result = getattr(do.ctx.storage.kv, method)(*arguments)
    do.emit("kv", **{"in": label}, method=method, v=result)
    out.append(result)


async def _rmw(do: Scripted, _label: str, out: list[Any], key: str, how: str = "", ms: int = 0) -> None:
    value = await do.ctx.storage.get(key) or 0
    if how == "sleep":
        await asyncio.sleep(ms / 1000)
    elif how == "ext":
        await do.world.fetch(f"delay?ms={ms}")
    await do.ctx.storage.put(key, value + 1)
    out.append(value + 1)


async def _try(do: Scripted, label: str, out: list[Any], ops: list[Any]) -> None:
    try:
        out.append(await do.exec(label, ops))
    except Exception as error:  # noqa: BLE001 - recorded
        do.emit("caught", **{"in": label}, error=error_info(error))
        out.append({"caught": error_info(error)})


async def _timer_throw(do: Scripted, label: str, _out: list[Any], ms: int) -> None:
    async def timer() -> None:
        await asyncio.sleep(ms / 1000)
        do.emit("timerThrow.fired", **{"in": label})
        raise Exception("from timer")  # noqa: TRY002 - as above

    _keep(asyncio.create_task(timer()))


async def _timer_log(do: Scripted, label: str, _out: list[Any], ms: int, msg: Any) -> None:
    async def timer() -> None:
        await asyncio.sleep(ms / 1000)
        do.emit("timerLog.fired", **{"in": label}, msg=msg)

    _keep(asyncio.create_task(timer()))


async def _wait_until(do: Scripted, label: str, _out: list[Any], ms: int, error: str | None = None) -> None:
    async def work() -> None:
        await asyncio.sleep(ms / 1000)
        do.emit("waitUntil.done", **{"in": label})
        if error:
            raise Exception(error)  # noqa: TRY002 - as above

    do.ctx.wait_until(work())


async def _set_reg(do: Scripted, _label: str, _out: list[Any], name: str, value: Any) -> None:
    do.world.registers[name] = value


async def _call_other(
    do: Scripted, label: str, out: list[Any], cls: str, name: str, inner: str, ops: list[Any]
) -> None:
    result = await getattr(do.env, cls).get_by_name(name).run(inner, ops)
    do.emit("callOther.done", **{"in": label}, r=result)
    out.append(result)


async def _call_self(do: Scripted, label: str, out: list[Any], inner: str, ops: list[Any]) -> None:
    result = await do.env.Obj.get_by_name(do.oname).run(inner, ops)
    do.emit("callSelf.done", **{"in": label})
    out.append(result)


async def _put_mixed(do: Scripted, label: str, _out: list[Any]) -> None:
    mixed: dict[str, Any] = {"pa": 1, "pb": lambda: 1, "pc": 3}
    await do.ctx.storage.put(mixed)
    do.emit("putMixed", **{"in": label})


_running: set[asyncio.Task[None]] = set()


def _keep(task: asyncio.Task[None]) -> None:
    """Keep a reference: the loop has only weak ones."""
    _running.add(task)
    task.add_done_callback(_running.discard)
    task.add_done_callback(lambda done: done.cancelled() or done.exception())


def _time(at: int | None) -> Any:
    return None if at is None else {"abs": at}


OPS: dict[str, Callable[..., Awaitable[None]]] = {
    "log": _log,
    "getAlarm": _get_alarm,
    "setAlarm": _set_alarm,
    "setAlarmNoAwait": _set_alarm_no_await,
    "setAlarmRaw": _set_alarm_raw,
    "deleteAlarm": _delete_alarm,
    "put": _put,
    "putNoAwait": _put_no_await,
    "get": _get,
    "delete": _delete,
    "list": _list,
    "deleteAll": _delete_all,
    "sync": _sync,
    "sleep": _sleep,
    "microtask": _microtask,
    "spin": _spin,
    "ext": _ext,
    "extNoAwait": _ext_no_await,
    "mem": _mem,
    "throw": _throw,
    "throwType": _throw_type,
    "abort": _abort,
    "bcw": _bcw,
    "bcwNoAwait": _bcw_no_await,
    "txn": _txn,
    "txnSync": _txn_sync,
    "fkBreak": _fk_break,
    "sql": _sql,
    "sqlRaw": _sql_raw,
    "sqlOne": _sql_one,
    "kv": _kv,
    "rmw": _rmw,
    "try": _try,
    "timerThrow": _timer_throw,
    "timerLog": _timer_log,
    "waitUntil": _wait_until,
    "setReg": _set_reg,
    "callOther": _call_other,
    "callSelf": _call_self,
    "putMixed": _put_mixed,
}


class Obj(Scripted):
    """The class most scenarios use."""

    async def throwCustom(self) -> None:  # noqa: N802 - the recordings' name
        class CustomError(Exception):
            pass

        raise CustomError("custom message")

    def throwSync(self) -> None:  # noqa: N802 - as above
        raise ValueError("sync range")

    async def throwCause(self) -> None:  # noqa: N802 - as above
        raise Exception("outer") from Exception("inner")  # noqa: TRY002 - as above

    async def retUndefined(self) -> None:  # noqa: N802 - as above
        pass

    async def retNotTarget(self) -> Any:  # noqa: N802 - as above
        return object()

    async def retBig(self, n: int) -> str:  # noqa: N802 - as above
        return "x" * n

    @staticmethod
    def stat() -> int:
        return 1


class Other(Scripted):
    """A second namespace."""


class NoAlarm(DurableObject):
    """Has no alarm()."""

    async def trySet(self) -> str:  # noqa: N802 - the recordings' name
        await self.ctx.storage.set_alarm(self.env.now() + 1000)
        return "set"

    async def tryGet(self) -> Any:  # noqa: N802 - as above
        return await self.ctx.storage.get_alarm()


class BadCtor(Scripted):
    """Raises in the constructor, or in a critical section started there, as often as a register says."""

    def __init__(self, ctx: Any, env: World) -> None:
        super().__init__(ctx, env)
        left = env.registers.get("fail:" + self.oname, 0)
        if left > 0:
            env.registers["fail:" + self.oname] = left - 1
            self.emit("ctor.throw", left=left)
            raise Exception("ctor failed")  # noqa: TRY002 - as above
        left = env.registers.get("bcwfail:" + self.oname, 0)
        if left > 0:
            env.registers["bcwfail:" + self.oname] = left - 1
            ctx.block_concurrency_while(self._fail_later)

    async def _fail_later(self) -> None:
        await asyncio.sleep(0.05)
        self.emit("ctor.bcw.throw")
        raise Exception("ctor bcw failed")  # noqa: TRY002 - as above


class CtorAlarm(Scripted):
    """Sets an alarm from the constructor if none is set."""

    def __init__(self, ctx: Any, env: World) -> None:
        super().__init__(ctx, env)

        async def load() -> None:
            at = await ctx.storage.get_alarm()
            self.emit("ctor.getAlarm", valAbs=at)
            if at is None and not await ctx.storage.get("done"):
                await ctx.storage.set_alarm(env.now() + 300)

        ctx.block_concurrency_while(load)


class SlowCtor(Scripted):
    """Is ready one second after its construction."""

    def __init__(self, ctx: Any, env: World) -> None:
        super().__init__(ctx, env)
        self.ready = False

        async def load() -> None:
            await asyncio.sleep(1)
            self.ready = True
            self.emit("ctor.ready")

        ctx.block_concurrency_while(load)

    async def isReady(self) -> bool:  # noqa: N802 - the recordings' name
        self.emit("isReady", ready=self.ready)
        return self.ready


class CtorExtend(Scripted):
    """Postpones its alarm whenever it is constructed."""

    def __init__(self, ctx: Any, env: World) -> None:
        super().__init__(ctx, env)
        mode = env.registers.get("mode:" + self.oname)
        if mode == "fire":
            ctx.storage.set_alarm(env.now() + 1500)
            self.emit("ctor.setAlarm")

        async def extend() -> None:
            await ctx.storage.set_alarm(env.now() + 1500)
            await ctx.storage.sync()
            self.emit("ctor.setAlarm+sync")

        if mode == "bcw":
            ctx.block_concurrency_while(extend)


CLASSES: list[type[DurableObject]] = [Obj, Other, NoAlarm, BadCtor, CtorAlarm, SlowCtor, CtorExtend]
