"""One live object: constructed at its first event, run in turns, reset after an error, evicted when idle.

Everything that enters an object is an event with a reply: a call through a stub, or a ring of its alarm. A
reply leaves only when everything that the object has committed so far is durable. If the object is reset
before that, every open reply fails with the reason, no matter what the code had returned.
"""

import asyncio
import contextvars
import inspect
import sqlite3
from collections.abc import Awaitable, Callable, Coroutine
from copy import copy
from functools import partial
from typing import Any, Protocol, TypeVar

from holdfast.errors import ObjectReset, RemoteError
from holdfast.local.alarms import Alarm, AlarmSchedule
from holdfast.local.clock import SystemClock
from holdfast.local.object_id import LocalObjectId
from holdfast.local.object_store import Changes, ObjectStore
from holdfast.local.storage import ObjectStorage
from holdfast.local.turns import ACTIVITY, GATE, Activity, ObjectUnwound, Sections, Turns, coroutine
from holdfast.rpc import as_remote, completed, invoke, takes_argument
from holdfast.types import ALARM_LIMIT_MS, JSON, AlarmInfo, DurableObject, Logger
from holdfast.values import IMMUTABLE, decode, encode

T = TypeVar("T")

ALARM_LIMIT_S = ALARM_LIMIT_MS / 1000
IDLE_S = 10.0  # an object without work for this long is evicted, unless the runtime says otherwise


class ObjectRuntime(Protocol):
    """The runtime, as a live object uses it."""

    clock: SystemClock
    logger: Logger
    store: ObjectStore
    alarms: AlarmSchedule
    idle_s: float | None

    def forget(self, live: "LiveObject") -> None: ...
    def undo(self, owner: LocalObjectId, changes: Changes) -> Callable[[BaseException], None]: ...


class Ring:
    """One ring of an alarm, delivered to an object. The reply is True if the handler ran."""

    def __init__(self, alarm: Alarm) -> None:
        self.alarm = alarm
        self.reply: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.handler_started = False
        self.retry = True


class LiveObject:
    """One instance of a class, with its storage, tasks and open replies. `LocalContext` is its `ctx`."""

    def __init__(self, runtime: ObjectRuntime, cls: type[DurableObject], env: Any, object_id: LocalObjectId) -> None:  # noqa: ANN401 - each class declares its own
        self._runtime = runtime
        self._loop = asyncio.get_running_loop()
        self._cls = cls
        self._env = env
        self.id = object_id
        self.storage = ObjectStorage(
            runtime.store, object_id, self, has_alarm_handler=callable(getattr(cls, "alarm", None))
        )
        self.in_turn = False
        self.ring: Ring | None = None
        self._error: ObjectReset | None = None
        self._instance: DurableObject | None = None
        self._sections = Sections(self)
        self._replies: dict[asyncio.Future[Any], None] = {}  # in order of arrival
        self._tasks: set[asyncio.Task[Any]] = set()
        self._last_commit = runtime.store.commits  # an instance that was reset may have just written what is read here
        self._idle_timer: asyncio.TimerHandle | None = None
        self._idle_since = 0.0
        self._idle_s = runtime.idle_s
        self._context = contextvars.Context()
        self._context.run(GATE.set, self.output_gate)

    # Events

    def call(self, method: str, arguments: str) -> "asyncio.Future[JSON]":
        """Deliver a call. The arguments are one JSON list."""
        reply: asyncio.Future[JSON] = self._loop.create_future()
        if self._error is not None:
            reply.set_exception(self._failure())
            return reply
        activity = self._sections.activity()
        work = partial(self._invoke, method, arguments)
        self._open(reply, self._reply(reply, method, work, activity, _for_caller), activity)
        return reply

    def deliver(self, ring: Ring) -> None:
        """Deliver a ring of the alarm. The result is in its reply."""
        self.ring = ring
        activity = self._sections.activity()
        self._open(ring.reply, self._reply_to_ring(ring, activity), activity)

    async def _invoke(self, method: str, arguments: str) -> Any:  # noqa: ANN401 - whatever the method returns
        assert self._instance is not None
        result = invoke(self._instance, method, arguments)
        if inspect.isawaitable(result):
            result = await result
        return result if type(result) in IMMUTABLE else decode(encode(result, f"the result of {method}()"))

    async def _reply_to_ring(self, ring: Ring, activity: Activity) -> None:
        limit = self._loop.call_later(ALARM_LIMIT_S, self.time_out, "alarm()", ALARM_LIMIT_S)
        try:
            await self._reply(ring.reply, "alarm", partial(self._ring, ring), activity)
        finally:
            limit.cancel()
            self.ring = None
            self.storage.ringing = None

    async def _reply(
        self,
        reply: "asyncio.Future[T]",
        method: str,
        work: Callable[[], Coroutine[Any, Any, T]],
        activity: Activity,
        explain: Callable[[Exception], Exception] = lambda error: error,
    ) -> None:
        """Do the work, and reply when all its writes are durable."""
        try:
            self._construct()
            result = await Turns(work(), activity)
            await self.durable()
        except asyncio.CancelledError:
            _fail(reply, self._failure() if self._error else RemoteError(f"{method}() was cancelled"))
        except Exception as error:  # noqa: BLE001 - any error is an answer
            _fail(reply, explain(error))
        else:
            if not reply.done():
                reply.set_result(result)

    async def _ring(self, ring: Ring) -> bool:
        """Run the handler and, in the commit of its last turn, remove its alarm."""
        alarm, instance = ring.alarm, self._instance
        if not self.storage.alarm_in_force(alarm.generation):
            return False  # the constructor or an earlier call has set or deleted the alarm
        handler = getattr(instance, "alarm", None)
        if handler is None:
            self._runtime.logger.error("alarm.dropped", object=self.id.hex, reason="no alarm() handler")
        else:
            self.storage.ringing = alarm.generation
            ring.handler_started = True
            info = AlarmInfo(alarm.scheduled_at, alarm.retry_count)
            await completed(handler(info) if takes_argument(handler) else handler())
        self.storage.alarm_succeeded(alarm.generation)
        return True

    def _construct(self) -> None:
        if self._instance is not None:
            return
        self.check_alive()
        self.in_turn = True
        try:
            self._instance = self._cls(LocalContext(self), self._env)
        except Exception as error:
            self.reset(ObjectReset(str(error)))
            raise self._failure() from error
        finally:
            self.in_turn = False
        self.end_turn()

    # Turns, gates, sections

    @property
    def broken(self) -> bool:
        return self._error is not None

    def now(self) -> int:
        return self._runtime.clock.now()

    def wrote(self) -> None:
        """Note a write. Outside of a turn, schedule its commit."""
        if not self.in_turn:
            self._loop.call_soon(self._end_stray_turn)

    def _end_stray_turn(self) -> None:
        if self._error is None:
            try:
                self.end_turn()
            except ObjectUnwound:
                return  # the object was reset, and all its replies have failed

    def end_turn(self) -> None:
        """Commit what the turn wrote. A failed commit resets the object and ends its code."""
        try:
            changes = self.storage.take_turn()
            if changes is None:
                return
            self._last_commit = self._runtime.store.commit(self.id, changes, self._runtime.undo(self.id, changes))
        except (sqlite3.Error, OSError) as error:
            self.roll_back(error)
            raise ObjectUnwound from error
        self.storage.turn_committed()
        if changes.alarm_changed:
            self._runtime.alarms.set(self.id, changes.alarm)

    def settle(self) -> None:
        """End the transaction that has a turn of this object; a failure resets the object.

        Code that goes on later finds it ended. Only a task that was begun in the turn may be earlier.
        """
        if self._last_commit > self._runtime.store.ended:
            self._runtime.store.flush_quietly()

    def roll_back(self, error: BaseException) -> None:
        """Reset the object, because a turn of it was not committed."""
        self.reset(
            ObjectReset(
                f"The object was reset and rolled back to its last committed state: {error}",
                durable_object_reset=False,
                by_platform=not isinstance(error, sqlite3.IntegrityError),
            )
        )

    async def durable(self) -> None:
        """Wait until everything committed so far is on disk."""
        self.check_alive()
        waiting = self._runtime.store.durable(self._last_commit)
        if waiting is not None:
            await waiting
            self.check_alive()

    async def output_gate(self) -> None:
        self.check_alive()
        self.end_turn()
        await self.durable()

    def enter(self, work: Callable[[], Awaitable[T]], *, fatal: bool = False) -> Awaitable[T]:
        """Run a critical section. Its failure is raised to the caller or, if it is `fatal`, resets the object."""
        self.check_alive()
        return self._sections.enter(work, fatal=fatal)

    # Reset and eviction

    def abort(self, reason: str | None = None, *, retry_alarm: bool = True) -> None:
        if self.ring is not None:
            self.ring.retry = retry_alarm
        self.reset(ObjectReset(reason or "The object called abort() and was reset."))
        raise ObjectUnwound

    def reset(self, error: ObjectReset) -> None:
        """Drop uncommitted writes, fail every open reply, end all code of this instance."""
        if self._error is not None:
            return
        self._error = error
        self.storage.discard()
        self._runtime.forget(self)
        for reply in list(self._replies):
            _fail(reply, self._failure())
        running = asyncio.current_task()
        for task in self._tasks:
            if task is not running:
                task.cancel()

    async def close(self) -> None:
        """End all code because the process stops."""
        self.reset(ObjectReset("The process is shutting down."))
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        await asyncio.gather(*tasks, return_exceptions=True)

    def time_out(self, what: str, limit_s: float) -> None:
        reason = f"{what} in an object took too long: the limit is {limit_s:.0f} s. The object was reset."
        self.reset(ObjectReset(reason, overloaded=True))

    def _failure(self) -> ObjectReset:
        """A new exception for each caller: raising one twice would mix up its tracebacks."""
        assert self._error is not None
        return copy(self._error)

    def check_alive(self) -> None:
        """Raise the reason if the object was reset."""
        if self._error is not None:
            raise self._failure()

    # Tasks

    def _open(self, reply: "asyncio.Future[Any]", work: Coroutine[Any, Any, None], activity: Activity) -> None:
        self._replies[reply] = None
        reply.add_done_callback(self._replies.pop)
        self.spawn(work, activity)

    def spawn(self, work: Coroutine[Any, Any, Any], activity: Activity) -> "asyncio.Task[Any]":
        context = self._context.copy()
        context.run(ACTIVITY.set, activity)
        # Not create_task: the loop's task factory would make this a child of the calling task.
        task = asyncio.Task(work, loop=self._loop, context=context)
        self.adopt(task)
        return task

    def adopt(self, task: "asyncio.Task[Any]") -> None:
        """Adopt a task: while it runs, the object is not idle, and a reset of the object cancels it."""
        self._tasks.add(task)
        task.add_done_callback(self._task_done)

    async def idle(self) -> None:
        """Wait until no task is left."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def wait_until(self, work: Awaitable[Any]) -> None:
        task = self.spawn(self._wait_until(work), self._sections.activity())
        if isinstance(work, Coroutine):  # cancelled before its first step, it was never awaited
            task.add_done_callback(lambda _: work.close())

    async def _wait_until(self, work: Awaitable[Any]) -> None:
        try:
            self.settle()
            await Turns(coroutine(lambda: work), self._sections.activity())
        except Exception as error:  # noqa: BLE001 - nothing else would report it
            self._runtime.logger.warning("wait_until.failed", object=self.id.hex, error=repr(error))

    def _task_done(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if self._error is not None and not task.cancelled():
            task.exception()  # of code that outlived the reset: every caller already knows of the reset
        if not self._tasks and self._error is None and self._idle_s is not None:
            self._idle_since = self._loop.time()
            if self._idle_timer is None:
                self._idle_timer = self._loop.call_later(self._idle_s, self._check_idle)

    def _check_idle(self) -> None:
        self._idle_timer = None
        if self._tasks or self._error is not None or self._idle_s is None:
            return
        left_s = self._idle_since + self._idle_s - self._loop.time()
        if left_s > 0:
            self._idle_timer = self._loop.call_later(left_s, self._check_idle)
        else:
            self._runtime.forget(self)


class LocalContext:
    """`ctx`, as an object's constructor gets it."""

    def __init__(self, live: LiveObject) -> None:
        self._live = live
        self.id = live.id
        self.storage = live.storage
        self.now = live.now
        self.wait_until = live.wait_until
        self.abort = live.abort

    def block_concurrency_while(self, work: Callable[[], Awaitable[T]]) -> Awaitable[T]:
        return self._live.enter(work, fatal=True)


def _for_caller(error: Exception) -> Exception:
    return error if isinstance(error, ObjectReset) else as_remote(error)


def _fail(reply: "asyncio.Future[Any]", error: BaseException) -> None:
    if not reply.done():
        reply.set_exception(error)
