"""`ctx`: what an object's constructor is given."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, NoReturn, TypeVar

from tocsin.bindings import Logger
from tocsin.platform.cloudflare import javascript
from tocsin.platform.cloudflare.javascript import PyWork, create_once_callable
from tocsin.platform.cloudflare.storage import CloudflareStorage

T = TypeVar("T")

_TASKS: set[asyncio.Task[Any]] = set()  # the loop itself holds tasks only weakly


def keep_alive(ctx: Any, work: Coroutine[Any, Any, None]) -> None:
    """Run work beside the event at hand, which lasts until it is done. Work tells of its failures itself."""
    settled = javascript.js.Promise.withResolvers()

    def done(task: asyncio.Task[Any]) -> None:
        _TASKS.discard(task)
        settled.resolve(None)

    # Begun at once: a turn of the loop is a timer of the runtime, and costs a millisecond or two.
    task = asyncio.Task(work, loop=asyncio.get_running_loop(), eager_start=True)  # type: ignore[call-arg]  # 3.12
    _TASKS.add(task)
    task.add_done_callback(done)
    ctx.waitUntil(settled.promise)


class ObjectAborted(BaseException):
    """Ends the code of an object that called `abort()`; nothing may catch it."""


class CloudflareObjectId:
    """An object's id. Its text is 64 hex digits."""

    def __init__(self, js_id: Any, name: str | None) -> None:
        self._js = js_id
        self.name = name

    def __str__(self) -> str:
        return str(self._js.toString())


class CloudflareContext:
    """`ctx` over Cloudflare's own."""

    def __init__(self, ctx: Any, object_id: CloudflareObjectId, logger: Logger) -> None:
        self._js = ctx
        self._logger = logger
        self.id = object_id
        self.storage = CloudflareStorage(ctx.storage)

    def block_concurrency_while(self, work: Callable[[], Awaitable[T]]) -> Awaitable[T]:
        carried = PyWork[T]()

        async def body() -> None:
            await carried.run(work)

        return carried.outcome(self._js.blockConcurrencyWhile(create_once_callable(body)))

    def wait_until(self, work: Awaitable[Any]) -> None:
        keep_alive(self._js, self._tell_of_failure(work))

    async def _tell_of_failure(self, work: Awaitable[Any]) -> None:
        try:
            await work
        except Exception as error:  # noqa: BLE001 - nobody else would hear of it
            self._logger.warn("wait_until.failed", object=str(self.id), error=repr(error))

    def abort(self, reason: str | None = None, *, retry_alarm: bool = True) -> NoReturn:
        """Reset the object. JavaScript ends its own stack at once, so Python's must unwind before."""
        said = reason or "The object called abort() and was reset."
        options = javascript.options({"retryAlarm": retry_alarm})
        javascript.js.queueMicrotask(create_once_callable(lambda: self._js.abort(said, options)))
        raise ObjectAborted(said)


def object_id(ctx: Any, namespace: Any, candidate: str) -> CloudflareObjectId:
    """The object's id, with its name.

    Some runtimes do not tell the name to an object that its alarm has woken. An id follows from its name, so
    the name that we expect can be recognised all the same.
    """
    name = javascript.text(ctx.id.name)
    if name is None and namespace is not None and ctx.id.equals(namespace.idFromName(candidate)):
        name = candidate
    return CloudflareObjectId(ctx.id, name)
