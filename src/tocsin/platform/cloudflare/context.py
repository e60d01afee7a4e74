"""`ctx`, which an object's constructor gets."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, NoReturn, TypeVar

from tocsin.bindings import Logger
from tocsin.platform.cloudflare import javascript
from tocsin.platform.cloudflare.javascript import PyWork, create_once_callable
from tocsin.platform.cloudflare.storage import CloudflareStorage

T = TypeVar("T")

_TASKS: set[asyncio.Task[Any]] = set()  # the loop keeps only weak references to tasks


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
            self._logger.warn("wait_until.failed", object=str(self.id), error=repr(error))

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
