"""Objects on Cloudflare: any class as a Durable Object, its `ctx` and storage, and the stubs that call it.

Every call goes through one method, `call(method, arguments)`, with one JSON text in each direction: values
stay exact, and an error keeps its class. Python callers use nothing else; callers in JavaScript need methods of
their own.

Entries use Cloudflare's synchronous `storage.kv`, one JSON text each. As on the local platform they take
effect when called and complete without yielding to the loop. (The asynchronous calls would yield: a promise
reaches Python through a timer, and other events of the object could run in between.) Only `get_alarm`,
`sync` and `transaction` yield here.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any, ClassVar, NoReturn, TypeVar, cast

from pyodide.ffi import JsException, create_once_callable
from workers import DurableObject as WorkersObject

from holdfast.cloudflare import javascript
from holdfast.cloudflare.bindings import to_javascript, translated
from holdfast.cloudflare.javascript import JsPromise, PyWork
from holdfast.errors import UsageError
from holdfast.rpc import arguments_text, completed, error_text, make_call, read_reply, takes_argument
from holdfast.rules import instant
from holdfast.sql import SqlCursor
from holdfast.statements import IN_OBJECTS, Value, bound, refuse_reserved
from holdfast.storage import OpenTransaction, Storage, StorageTransaction
from holdfast.subrequests import SUBREQUESTS_MAX, invocation
from holdfast.types import JSON, AlarmInfo, DurableObject, Level, Levels, Logger

T = TypeVar("T")

RETRY_START_MS = 60_000

_TASKS: set[asyncio.Task[Any]] = set()  # the loop keeps only weak references to tasks


class OwnObject(WorkersObject):  # type: ignore[misc]  # the SDK has no types outside of the runtime
    """Base of the classes that `wrangler.jsonc` names. `makes` is the class of the object, or `_make` makes it.

    If the object cannot be made (the settings need a change), every call raises the reason, and the alarm
    rings again every minute: a deployment with correct settings needs no further action.
    """

    makes: ClassVar[type[DurableObject]]
    subrequests_max: ClassVar[int] = SUBREQUESTS_MAX

    def __init__(self, ctx: Any, env: Any) -> None:
        super().__init__(ctx, env)
        self._js_ctx = javascript.unwrap(ctx, "_ctx")
        self._object: DurableObject | None = None
        self._refusal: Exception | None = None
        try:
            self._object = self._make(self._js_ctx, javascript.unwrap(env, "_env"))
        except Exception as error:  # noqa: BLE001 - raised to every caller
            self._refusal = error
            line = {"level": "ERROR", "event": "object.refused", "error": str(error)}
            javascript.js.console.error(json.dumps(line))

    def _make(self, ctx: Any, env: Any) -> DurableObject:
        return self.makes(CloudflareContext(ctx, object_id(ctx, None, ""), ConsoleLogger()), objects_of(env))

    async def call(self, method: str, arguments: str) -> str:
        if self._object is None:
            assert self._refusal is not None
            return error_text(self._refusal)
        with invocation(self.subrequests_max):
            return await make_call(self._object, method, arguments)

    async def alarm(self, info: Any = None) -> None:
        if self._object is None:
            self._js_ctx.storage.setAlarm(int(javascript.js.Date.now()) + RETRY_START_MS)
            return
        handler: Any = self._object.alarm  # type: ignore[attr-defined]  # an object that sets an alarm has a handler
        at = javascript.number(getattr(info, "scheduledTime", None)) or int(javascript.js.Date.now())
        alarm_info = AlarmInfo(at, javascript.number(getattr(info, "retryCount", None)) or 0)
        with invocation(self.subrequests_max):
            await completed(handler(alarm_info) if takes_argument(handler) else handler())


class CloudflareNamespace:
    """A binding such as `env.SCHEDULER`."""

    def __init__(self, binding: Any) -> None:
        self._js = binding

    def id_from_name(self, name: str) -> Any:
        return self._js.idFromName(name)

    def get(self, id: Any) -> "CloudflareStub":  # noqa: A002 - Cloudflare's word
        return CloudflareStub(self._js.get(id))

    def get_by_name(self, name: str) -> "CloudflareStub":
        return self.get(self.id_from_name(name))


class CloudflareStub:
    """Carries calls to an object: `await stub.status()`."""

    def __init__(self, stub: Any) -> None:
        self._js = stub

    def __getattr__(self, method: str) -> Callable[..., Any]:
        async def call(*arguments: JSON, **keywords: JSON) -> Any:  # whatever the method returns
            text = arguments_text(method, arguments, keywords)
            try:
                reply = await self._js.call(method, text)
            except JsException as error:
                raise javascript.reset(error) from None
            return read_reply(reply)

        return call


class CloudflareStorage(Storage):
    """`ctx.storage`, on the storage of a SQLite-backed Durable Object."""

    def __init__(self, storage: Any) -> None:
        self._js = storage
        self._entries = storage.kv
        self._open_transactions = 0

    @property
    def sql(self) -> "CloudflareSql":
        return CloudflareSql(self._js.sql)

    def delete_all(self) -> Awaitable[None]:
        if self._open_transactions:
            raise UsageError("Cannot call delete_all() within a transaction")
        return JsPromise(_call(self._js.deleteAll), _nothing)

    # The alarm

    def get_alarm(self) -> Awaitable[int | None]:
        return JsPromise(_call(self._js.getAlarm), javascript.number)

    def set_alarm(self, scheduled_time: float | datetime | timedelta) -> Awaitable[None]:
        at = instant(scheduled_time, int(javascript.js.Date.now()))
        return JsPromise(_call(self._js.setAlarm, at), _nothing)

    def delete_alarm(self) -> Awaitable[None]:
        return JsPromise(_call(self._js.deleteAlarm), _nothing)

    # Transactions

    def sync(self) -> Awaitable[None]:
        return JsPromise(_call(self._js.sync), _nothing)

    def transaction(self, work: Callable[[StorageTransaction], Awaitable[T]]) -> Awaitable[T]:
        py_work = PyWork[T]()

        async def body(transaction: Any) -> None:
            self._open_transactions += 1
            try:
                opened = OpenTransaction(self, transaction.rollback)
                await py_work.run(lambda: work(cast("StorageTransaction", opened)))
            finally:
                self._open_transactions -= 1

        return py_work.outcome(_call(self._js.transaction, create_once_callable(body)))

    def transaction_sync(self, work: Callable[[], T]) -> T:
        py_work = PyWork[T]()
        self._open_transactions += 1
        try:
            self._js.transactionSync(create_once_callable(lambda: py_work.run_sync(work)))
        except JsException as error:
            raise py_work.error(error) from None
        finally:
            self._open_transactions -= 1
        return py_work.result

    def _check_usable(self) -> None:
        """Not needed here: the runtime's storage raises itself."""

    def _read(self, key: str) -> str | None:
        return javascript.text(_call(self._entries.get, key))

    def _rows(
        self, start: str, end: str | None, prefix: str, *, reverse: bool, limit: int | None
    ) -> Iterable[tuple[str, str]]:
        options = javascript.options(
            {"start": start or None, "end": end, "prefix": prefix or None, "reverse": reverse, "limit": limit}
        )
        rows: list[tuple[str, str]] = _call(lambda: javascript.js.Array.from_(self._entries.list(options)).to_py())
        return rows

    def _write(self, texts: Mapping[str, str]) -> None:
        for key, text in texts.items():
            _call(self._entries.put, key, text)

    def _delete(self, key: str) -> bool:
        return bool(_call(self._entries.delete, key))


class CloudflareSql:
    """`ctx.storage.sql`."""

    def __init__(self, sql: Any) -> None:
        self._js = sql

    @property
    def database_size(self) -> int:
        return int(self._js.databaseSize)

    def exec(self, query: str, /, *values: Value) -> SqlCursor:
        """Run one statement or several; only the last takes values, and its rows are returned."""
        refuse_reserved(query, IN_OBJECTS)
        bindings = map(to_javascript, bound(values))
        try:
            cursor = self._js.exec(query, *bindings)
            rows = [[javascript.cell(value) for value in row] for row in cursor.raw().toArray()]
        except JsException as error:
            raise _sql_error(error, query) from None
        names = javascript.to_json(cursor.columnNames)
        return SqlCursor(names, rows, rows_read=int(cursor.rowsRead), rows_written=int(cursor.rowsWritten))


def _sql_error(error: JsException, query: str) -> Exception:
    """A refused statement, or the error of an object that is broken."""
    text = str(error.message)
    if "SQLITE_AUTH" not in text and ("SQLITE_" in text or "constraint failed" in text):
        return translated(text, f"SQL: {' '.join(query.split())[:80]}", "the statement changed nothing")
    broken = javascript.reset(error)
    return broken if broken.durable_object_reset else UsageError(f"SQL: {text}")


def _call(call: Callable[..., Any], *arguments: Any) -> Any:
    """Call the runtime's storage. An exception means that the object is broken."""
    try:
        return call(*arguments)
    except JsException as error:
        raise javascript.reset(error) from None


def _nothing(_value: Any) -> None:
    return None


def keep_alive(ctx: Any, work: Coroutine[Any, Any, None]) -> None:
    """Keep the current event alive until this work is done. The work must report its own errors."""
    finished = javascript.js.Promise.withResolvers()

    def done(task: asyncio.Task[Any]) -> None:
        _TASKS.discard(task)
        finished.resolve(None)

    # Started at once: an iteration of the loop is a timer of the runtime, which takes a millisecond or two.
    task = asyncio.Task(work, loop=asyncio.get_running_loop(), eager_start=True)  # type: ignore[call-arg]  # 3.12
    _TASKS.add(task)
    task.add_done_callback(done)
    ctx.waitUntil(finished.promise)


class ObjectAborted(BaseException):
    """Ends the code of an object that called `abort()`. Nothing may catch it."""


class CloudflareObjectId:
    """The id of an object. Its text is 64 hex digits."""

    def __init__(self, js_id: Any, name: str | None) -> None:
        self._js = js_id
        self.name = name

    def __str__(self) -> str:
        return str(self._js.toString())


class CloudflareContext:
    """`ctx` on top of Cloudflare's own."""

    def __init__(self, ctx: Any, object_id: CloudflareObjectId, logger: Logger) -> None:
        self._js = ctx
        self._logger = logger
        self.id = object_id
        self.storage = CloudflareStorage(ctx.storage)

    def now(self) -> int:
        return int(javascript.js.Date.now())

    def block_concurrency_while(self, work: Callable[[], Awaitable[T]]) -> Awaitable[T]:
        py_work = PyWork[T]()

        async def body() -> None:
            await py_work.run(work)

        return py_work.outcome(self._js.blockConcurrencyWhile(create_once_callable(body)))

    def wait_until(self, work: Awaitable[Any]) -> None:
        keep_alive(self._js, self._report_failure(work))

    async def _report_failure(self, work: Awaitable[Any]) -> None:
        try:
            await work
        except Exception as error:  # noqa: BLE001 - nothing else would report it
            self._logger.warning("wait_until.failed", object=str(self.id), error=repr(error))

    def abort(self, reason: str | None = None, *, retry_alarm: bool = True) -> NoReturn:
        """Reset the object. JavaScript ends its stack at once, so Python's must unwind before."""
        message = reason or "The object called abort() and was reset."
        options = javascript.options({"retryAlarm": retry_alarm})
        javascript.js.queueMicrotask(create_once_callable(lambda: self._js.abort(message, options)))
        raise ObjectAborted(message)


def object_id(ctx: Any, namespace: Any, expected: str) -> CloudflareObjectId:
    """The object's id, with its name.

    Some runtimes do not pass the name to an object that is constructed for its alarm. An id is derived from
    its name, so we can check whether it belongs to the expected name.
    """
    name = javascript.text(ctx.id.name)
    if name is None and namespace is not None and ctx.id.equals(namespace.idFromName(expected)):
        name = expected
    return CloudflareObjectId(ctx.id, name)


class ConsoleLogger(Levels):
    """Writes each line as JSON to the console, which is what Cloudflare's own logs show."""

    def _line(self, level: Level, event: str, fields: dict[str, JSON]) -> None:
        line = {"level": level, "event": event, **fields}
        getattr(javascript.js.console, level.lower())(json.dumps(line))


def objects_of(env: Any) -> SimpleNamespace:
    """The bindings of objects, like those of `open_objects` locally: `objects_of(env).HEART.get_by_name("v1")`."""
    bindings = javascript.unwrap(env, "_env")
    found = {name: getattr(bindings, name) for name in javascript.to_json(javascript.js.Object.keys(bindings))}
    return SimpleNamespace(
        **{
            name: CloudflareNamespace(binding)
            for name, binding in found.items()
            if javascript.kind(binding) == "DurableObjectNamespace"
        }
    )
