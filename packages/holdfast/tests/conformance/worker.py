"""The object under test: its behavior is a script of JSON ops, the same ops as in the recordings.

`Call` has a method for each op. Names of ops and events are those of the recordings (camelCase).
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
        return await Call(self, label).run(ops)

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
            await Call(self, f"alarm{n}").run(ops)
        except Exception as error:
            self.emit("alarm.throw", n=n, error=str(error))
            raise
        self.emit("alarm.end", n=n)


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


class Call:
    """One call of an object: its ops, which are methods here, and their results."""

    def __init__(self, do: Scripted, label: str) -> None:
        self.do = do
        self.label = label
        self.world = do.world
        self.storage = do.ctx.storage
        self.out: list[Any] = []

    def emit(self, ev: str, **fields: Any) -> None:
        self.do.emit(ev, **{"in": self.label}, **fields)

    async def run(self, ops: list[Any]) -> list[Any]:
        for op, *a in ops:
            try:
                await getattr(self, f"op_{op}")(*a)
            except Exception as error:
                if op not in {"throw", "throwType", "try"}:
                    self.emit("op.throw", op=op, error=error_info(error))
                raise
        return self.out

    async def _run_in(self, txn: Any, ops: list[Any]) -> list[Any]:  # noqa: C901 - a list of ops
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
                    self.emit("txn.getAlarm", valAbs=await txn.get_alarm())
                case "sleep":
                    await asyncio.sleep(a[0] / 1000)
                case "rollback":
                    txn.rollback()
                case "deleteAll":
                    await txn.delete_all()
                case "outer":
                    await Call(self.do, self.label).run(a[0])
                case "throw":
                    raise Exception(a[0] if a else "txn boom")  # noqa: TRY002 - a plain error is the point
        return out

    async def op_log(self, msg: Any) -> None:
        self.emit("log", msg=msg)

    async def op_getAlarm(self) -> None:
        at = await self.storage.get_alarm()
        self.emit("getAlarm", valAbs=at)
        self.out.append(_time(at))

    async def op_setAlarm(self, delay: int) -> None:
        at = self.world.now() + delay
        await self.storage.set_alarm(at)
        self.emit("setAlarm", reqAbs=at, ret="undefined")
        self.out.append(_time(at))

    async def op_setAlarmNoAwait(self, delay: int) -> None:
        at = self.world.now() + delay
        self.storage.set_alarm(at)
        self.emit("setAlarm", reqAbs=at)
        self.out.append(_time(at))

    async def op_setAlarmRaw(self, arg: Any) -> None:
        from datetime import UTC, datetime

        special = {"NaN": float("nan"), "Infinity": float("inf"), "undefined": None}
        value: Any = special.get(arg, arg) if isinstance(arg, str) else arg
        if isinstance(arg, dict):
            at = self.world.now() + arg["date" if "date" in arg else "rel"]
            value = datetime.fromtimestamp(at / 1000, UTC) if "date" in arg else at
        await self.storage.set_alarm(value)
        at = await self.storage.get_alarm()
        self.emit("setAlarmRaw", arg=arg, valAbs=at)
        self.out.append(_time(at))

    async def op_deleteAlarm(self) -> None:
        await self.storage.delete_alarm()
        self.emit("deleteAlarm")

    async def op_put(self, key: str, value: Any) -> None:
        await self.storage.put(key, value)
        self.emit("put", k=key, v=value)

    async def op_putNoAwait(self, key: str, value: Any) -> None:
        self.storage.put(key, value)
        self.emit("putNoAwait", k=key)

    async def op_get(self, key: str) -> None:
        value = await self.storage.get(key)
        self.emit("get", k=key, v=value)
        self.out.append(value)

    async def op_delete(self, key: str) -> None:
        existed = await self.storage.delete(key)
        self.emit("delete", k=key, ret=existed)
        self.out.append(existed)

    async def op_list(self, options: dict[str, Any] | None = None) -> None:
        renamed = {("start_after" if k == "startAfter" else k): v for k, v in (options or {}).items()}
        found = await self.storage.list(**renamed)
        keys = [key for key in found if not key.startswith("__")]
        self.emit("list", keys=keys)
        self.out.append(keys)

    async def op_deleteAll(self) -> None:
        await self.storage.delete_all()
        self.emit("deleteAll")

    async def op_sync(self) -> None:
        await self.storage.sync()
        self.emit("sync")

    async def op_sleep(self, ms: int) -> None:
        await asyncio.sleep(ms / 1000)

    async def op_microtask(self, _n: int = 1) -> None:
        """A microtask is not a suspension, so Python does not wait here."""

    async def op_spin(self, ms: int) -> None:
        self.world.spin(ms)
        self.emit("spun", ms=ms)

    async def op_ext(self, path: str) -> None:
        status, body = await self.world.fetch(path)
        self.emit("ext", path=path, status=status, body=body)
        self.out.append(body)

    async def op_extNoAwait(self, path: str) -> None:
        async def exchange() -> None:
            try:
                await self.world.fetch(path)
            except Exception as error:  # noqa: BLE001 - recorded
                self.emit("extFail", path=path, error=str(error))
            else:
                self.emit("extDone", path=path)

        _keep(asyncio.create_task(exchange()))
        self.emit("extStarted", path=path)

    async def op_mem(self) -> None:
        self.do.mem += 1
        self.emit("mem", mem=self.do.mem)
        self.out.append(self.do.mem)

    async def op_throw(self, message: str = "boom") -> None:
        raise Exception(message)  # noqa: TRY002 - a plain error is the point

    async def op_throwType(self, message: str = "type boom") -> None:
        raise TypeError(message)

    async def op_abort(self, reason: str | None = None, options: Any = None) -> None:
        self.emit("abort")
        self.do.ctx.abort(reason, retry_alarm=(options or {}).get("retryAlarm", True))

    async def _section(self, ops: list[Any]) -> Any:
        self.emit("bcw.begin")
        result = await Call(self.do, self.label).run(ops)
        self.emit("bcw.end")
        return result

    async def op_bcw(self, ops: list[Any]) -> None:
        self.out.append(await self.do.ctx.block_concurrency_while(lambda: self._section(ops)))

    async def op_bcwNoAwait(self, ops: list[Any]) -> None:
        self.do.ctx.block_concurrency_while(lambda: self._section(ops))

    async def op_txn(self, ops: list[Any]) -> None:
        async def work(txn: Any) -> Any:
            self.emit("txn.begin")
            result = await self._run_in(txn, ops)
            self.emit("txn.end")
            return result

        self.out.append(await self.storage.transaction(work))

    async def op_txnSync(self, ops: list[Any]) -> None:
        def work() -> str:
            for op, *b in ops:
                if op == "put":
                    self.storage.put(b[0], b[1])
                elif op == "setAlarm":
                    self.storage.set_alarm(self.world.now() + b[0])
                elif op == "sql":
                    self.storage.sql.exec(b[0])
                elif op == "throw":
                    raise Exception(b[0] if b else "txnSync boom")  # noqa: TRY002 - as above
            return "committed"

        result = self.storage.transaction_sync(work)
        self.emit("txnSync", ret=result)
        self.out.append(result)

    async def op_fkBreak(self) -> None:
        """Leave the database violating a deferred constraint, so that the commit fails."""
        sql = self.storage.sql
        sql.exec("CREATE TABLE IF NOT EXISTS p(id INTEGER PRIMARY KEY)")
        sql.exec("CREATE TABLE IF NOT EXISTS c(id INTEGER PRIMARY KEY, pid INTEGER REFERENCES p(id))")
        sql.exec("PRAGMA defer_foreign_keys=ON")
        sql.exec("INSERT INTO c(pid) VALUES (999)")
        self.emit("fkBreak")

    async def op_sql(self, query: str, values: list[Any] | None = None) -> None:
        rows = self.storage.sql.exec(query, *(values or [])).all()
        self.emit("sql", q=query[:60], rows=rows)
        self.out.append(rows)

    async def op_sqlRaw(self, query: str, values: list[Any] | None = None) -> None:
        cursor = self.storage.sql.exec(query, *(values or []))
        rows = [cursor.column_names, list(cursor.raw())]
        self.emit("sqlRaw", q=query[:60], rows=rows)
        self.out.append(rows)

    async def op_sqlOne(self, query: str, values: list[Any] | None = None) -> None:
        row = self.storage.sql.exec(query, *(values or [])).one()
        self.emit("sqlOne", q=query[:60], row=row)
        self.out.append(row)

    async def op_kv(self, method: str, *arguments: Any) -> None:
        if method == "list":
            options = arguments[0] if arguments else {}
            found = self.storage.kv.list(**{("start_after" if k == "startAfter" else k): v for k, v in options.items()})
            result: Any = [[key, value] for key, value in found.items() if not key.startswith("__")]
        else:
            result = getattr(self.storage.kv, method)(*arguments)
        self.emit("kv", method=method, v=result)
        self.out.append(result)

    async def op_rmw(self, key: str, how: str = "", ms: int = 0) -> None:
        value = await self.storage.get(key) or 0
        if how == "sleep":
            await asyncio.sleep(ms / 1000)
        elif how == "ext":
            await self.world.fetch(f"delay?ms={ms}")
        await self.storage.put(key, value + 1)
        self.out.append(value + 1)

    async def op_try(self, ops: list[Any]) -> None:
        try:
            self.out.append(await Call(self.do, self.label).run(ops))
        except Exception as error:  # noqa: BLE001 - recorded
            self.emit("caught", error=error_info(error))
            self.out.append({"caught": error_info(error)})

    async def op_timerThrow(self, ms: int) -> None:
        async def timer() -> None:
            await asyncio.sleep(ms / 1000)
            self.emit("timerThrow.fired")
            raise Exception("from timer")  # noqa: TRY002 - as above

        _keep(asyncio.create_task(timer()))

    async def op_timerLog(self, ms: int, msg: Any) -> None:
        async def timer() -> None:
            await asyncio.sleep(ms / 1000)
            self.emit("timerLog.fired", msg=msg)

        _keep(asyncio.create_task(timer()))

    async def op_waitUntil(self, ms: int, error: str | None = None) -> None:
        async def work() -> None:
            await asyncio.sleep(ms / 1000)
            self.emit("waitUntil.done")
            if error:
                raise Exception(error)  # noqa: TRY002 - as above

        self.do.ctx.wait_until(work())

    async def op_setReg(self, name: str, value: Any) -> None:
        self.world.registers[name] = value

    async def op_callOther(self, cls: str, name: str, inner: str, ops: list[Any]) -> None:
        result = await getattr(self.world, cls).get_by_name(name).run(inner, ops)
        self.emit("callOther.done", r=result)
        self.out.append(result)

    async def op_callSelf(self, inner: str, ops: list[Any]) -> None:
        result = await self.do.env.Obj.get_by_name(self.do.oname).run(inner, ops)
        self.emit("callSelf.done")
        self.out.append(result)

    async def op_putMixed(self) -> None:
        mixed: dict[str, Any] = {"pa": 1, "pb": lambda: 1, "pc": 3}
        await self.storage.put(mixed)
        self.emit("putMixed")


_running: set[asyncio.Task[None]] = set()


def _keep(task: asyncio.Task[None]) -> None:
    """Keep a reference: the loop has only weak ones."""
    _running.add(task)
    task.add_done_callback(_running.discard)
    task.add_done_callback(lambda done: done.cancelled() or done.exception())


def _time(at: int | None) -> Any:
    return None if at is None else {"abs": at}


class Obj(Scripted):
    """The class most scenarios use."""

    async def throwCustom(self) -> None:
        class CustomError(Exception):
            pass

        raise CustomError("custom message")

    def throwSync(self) -> None:
        raise ValueError("sync range")

    async def throwCause(self) -> None:
        raise Exception("outer") from Exception("inner")  # noqa: TRY002 - as above

    async def retUndefined(self) -> None:
        pass

    async def retNotTarget(self) -> Any:
        return object()

    async def retBig(self, n: int) -> str:
        return "x" * n

    @staticmethod
    def stat() -> int:
        return 1


class Other(Scripted):
    """A second namespace."""


class NoAlarm(DurableObject):
    """Has no alarm()."""

    async def trySet(self) -> str:
        await self.ctx.storage.set_alarm(self.env.now() + 1000)
        return "set"

    async def tryGet(self) -> Any:
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

    async def isReady(self) -> bool:
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
