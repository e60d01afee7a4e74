"""Durable Objects in one process: namespaces, stubs, live objects and their alarms.

    runtime = Runtime(path, clock=SystemClock(), logger=logger, env=env)
    env.COUNTER = runtime.namespace("COUNTER", Counter)
    await runtime.open()                      # alarms that are overdue ring now
    stub = env.COUNTER.get(env.COUNTER.id_from_name("v1"))
    await stub.increment()

It logs `alarm.failed`, `alarm.exhausted` and `object.reset`, and counts them in `metrics`. An alarm whose
retries are exhausted is never dropped silently: `on_exhausted` is called and may arm it again.
"""

import asyncio
import contextvars
import random
import sqlite3
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from holdfast.errors import ObjectReset, UsageError, ValueRefused
from holdfast.local.alarms import Alarm, AlarmSchedule, after_failure
from holdfast.local.clock import SystemClock
from holdfast.local.live_object import IDLE_S, LiveObject, Ring
from holdfast.local.object_id import IdFactory, LocalObjectId
from holdfast.local.object_store import Changes, ObjectStore
from holdfast.local.turns import ACTIVITY, Activity, Turns, output_gate
from holdfast.rpc import arguments_text
from holdfast.types import JSON, DurableObject, Logger

T = TypeVar("T")


@dataclass(slots=True)
class RuntimeCounters:
    """Counts since the process started."""

    calls: int = 0
    alarms_rung: int = 0
    alarms_failed: int = 0
    alarms_exhausted: int = 0
    objects_reset: int = 0


class Runtime:
    """All objects of this process. One runtime per data directory."""

    def __init__(
        self,
        path: Path,
        *,
        clock: SystemClock,
        logger: Logger,
        env: Any,  # noqa: ANN401 - each class declares its own
        on_exhausted: Callable[[LocalObjectId, Exception], Awaitable[None]] | None = None,
        on_fatal: Callable[[OSError], None] | None = None,
        chance: Callable[[], float] = random.random,
        idle_s: float | None = IDLE_S,
    ) -> None:
        """An object that was idle for `idle_s` seconds is dropped from memory; None: never."""
        self.clock = clock
        self.logger = logger
        self.env = env
        self.metrics = RuntimeCounters()
        self.store = ObjectStore(path, logger=logger, on_fatal=self._disk_failed)
        self.alarms = AlarmSchedule(clock, self.ring)
        self._on_exhausted = on_exhausted
        self._on_fatal = on_fatal
        self._chance = chance
        self.idle_s = idle_s
        self._namespaces: dict[str, LocalNamespace] = {}
        self._live: dict[str, LiveObject] = {}
        self._ringing: set[str] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closing = False

    def namespace(self, name: str, cls: type[DurableObject]) -> "LocalNamespace":
        if not issubclass(cls, DurableObject):
            raise UsageError(f"{cls.__name__} cannot be an object: make it a subclass of DurableObject")
        self._namespaces[name] = LocalNamespace(self, name, cls)
        return self._namespaces[name]

    async def open(self) -> None:
        loop = asyncio.get_running_loop()
        self.store.open()
        self._previous_factory = loop.get_task_factory()
        loop.set_task_factory(self._task_factory)
        self.alarms.open()
        for owner, alarm in self.store.read_alarms():
            if owner.namespace in self._namespaces:
                self.alarms.set(owner, alarm)
            else:
                self.logger.warning("alarm.orphaned", namespace=owner.namespace, object=owner.hex)

    def refuse_writes(self, reason: str | None) -> None:
        """Refuse all writes of all objects for this reason; None allows them again."""
        self.store.refusal = reason

    async def close(self) -> None:
        """Stop at once and release everything. Interrupted alarms ring again at the next start."""
        self._closing = True
        self.alarms.close()
        for live in list(self._live.values()):
            await live.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        asyncio.get_running_loop().set_task_factory(self._previous_factory)
        await self.store.close()

    # For tests

    def kill(self) -> None:
        """End all code, as a kill of the process does: nothing more is written, and no reply leaves."""
        self._closing = True
        self.store.refusal = "the process was killed"
        for live in list(self._live.values()):
            live.reset(ObjectReset("The process was killed."))

    async def evict(self, owner: LocalObjectId) -> None:
        """Drop an object from memory when its work is done."""
        live = self._live.get(owner.hex)
        if live is not None:
            await live.idle()
            self.forget(live)

    # For the objects

    def forget(self, live: LiveObject) -> None:
        if self._live.get(live.id.hex) is live:
            del self._live[live.id.hex]
        if not live.broken:
            live.storage.close()
        elif not self._closing:
            self.metrics.objects_reset += 1
            self.logger.warning("object.reset", **_names(live.id))

    def undo(self, owner: LocalObjectId, changes: Changes) -> Callable[[BaseException], None]:
        """What to do if a turn that ends now is not committed after all."""
        armed = self.alarms.armed(owner)

        def undo(error: BaseException) -> None:
            self.store.sql_files.current.discard(owner.hex)
            if (live := self._live.get(owner.hex)) is not None:
                live.roll_back(error)
            if changes.alarm_changed and not self._closing:
                self.alarms.set(owner, armed)

        return undo

    def live(self, owner: LocalObjectId) -> LiveObject:
        """The live instance of an object. Makes one if there is none."""
        live = self._live.get(owner.hex)
        if live is None:
            if self._closing:
                raise UsageError("the runtime is closed")
            cls = self._namespaces[owner.namespace].cls
            live = self._live[owner.hex] = LiveObject(self, cls, self.env, owner)
        return live

    def _task_factory(
        self,
        loop: asyncio.AbstractEventLoop,
        coro: Any,  # noqa: ANN401 - as asyncio declares a task factory
        **options: Any,  # noqa: ANN401 - same
    ) -> "asyncio.Task[Any]":
        """Tasks that an object's code starts belong to the object: they run in turns, and end with it."""
        context = options.get("context")
        activity = ACTIVITY.get() if context is None else context.get(ACTIVITY)
        if activity is None:
            return asyncio.Task(coro, loop=loop, **options)
        task = asyncio.Task(_turns(coro, activity), loop=loop, **options)
        task.add_done_callback(lambda _done: coro.close())  # if it was cancelled before it began
        activity.object.adopt(task)
        return task

    # Alarms

    def ring(self, owner: LocalObjectId, alarm: Alarm) -> "asyncio.Task[None] | None":
        """Ring an alarm that is due; the task ends with the handler."""
        if owner.hex in self._ringing:
            return None  # alarm() never overlaps itself; _ring checks again when it has ended
        self._ringing.add(owner.hex)
        # In its own context: an object's code may have set the timer, and this task is not its child.
        task = asyncio.Task(self._ring(owner, alarm), context=contextvars.Context())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _ring(self, owner: LocalObjectId, alarm: Alarm) -> None:
        ring = Ring(alarm)
        failure: Exception | None = None
        try:
            self.live(owner).deliver(ring)
            if await ring.reply:
                self.metrics.alarms_rung += 1
        except Exception as error:  # noqa: BLE001 - after any error the alarm is retried
            failure = error
        self._ringing.discard(owner.hex)
        if self._closing:
            return
        current = self.store.read_alarm(owner.hex)
        if failure is not None:
            self.metrics.alarms_failed += 1
            if current is not None and current.generation == alarm.generation:
                await self._failed(owner, ring, failure)
                return
            self.logger.warning("alarm.failed", **_names(owner), error=repr(failure), retry_at=None)
        if current is not None:
            self.alarms.set(owner, current)  # set while the handler ran, and perhaps already due

    async def _failed(self, owner: LocalObjectId, ring: Ring, failure: Exception) -> None:
        retry = None
        if ring.retry:
            # A failure of the constructor or the disk is not one of the handler, and is not counted.
            by_platform = isinstance(failure, ObjectReset) and failure.by_platform
            counted = ring.handler_started and not by_platform
            retry = after_failure(ring.alarm, counted=counted, now=self.clock.now(), chance=self._chance())
        self._reschedule(owner, retry)
        if retry is not None or not ring.retry:
            retry_at = None if retry is None else retry.due_at
            self.logger.warning("alarm.failed", **_names(owner), error=repr(failure), retry_at=retry_at)
            return
        self.metrics.alarms_exhausted += 1
        self.logger.error("alarm.exhausted", **_names(owner), error=repr(failure), runs=ring.alarm.retry_count + 1)
        if self._on_exhausted is not None:
            try:
                await self._on_exhausted(owner, failure)
            except Exception as error:
                self.logger.exception("alarm.hook_failed", **_names(owner), error=repr(error))

    def _reschedule(self, owner: LocalObjectId, alarm: Alarm | None) -> None:
        """Store the retry. If that fails, keep it in memory; a restart would then ring at once."""
        try:
            self.store.commit(owner, Changes(alarm=alarm, alarm_changed=True))
            self.store.flush()
        except (sqlite3.Error, OSError) as error:
            if self.store.refusal is None:  # otherwise the refusal has already been reported
                self.logger.exception("alarm.unsaved", **_names(owner), error=repr(error))
        if (live := self._live.get(owner.hex)) is not None:
            live.storage.alarm_rescheduled(alarm)
        self.alarms.set(owner, alarm)

    def _disk_failed(self, error: OSError) -> None:
        self.logger.error("store.failed", error=repr(error))
        for live in list(self._live.values()):
            live.reset(ObjectReset(f"Writes can no longer be made durable ({error}): restart the process."))
        if self._on_fatal is not None:
            self._on_fatal(error)


class LocalNamespace(IdFactory):
    """A binding: gives access to the objects of one class."""

    def __init__(self, runtime: Runtime, name: str, cls: type[DurableObject]) -> None:
        super().__init__(name)
        self.cls = cls
        self._runtime = runtime

    def get(self, id: LocalObjectId) -> "Stub":  # noqa: A002 - Cloudflare's word
        if not isinstance(id, LocalObjectId):
            raise ValueRefused(f"get() takes an id of this namespace, not {type(id).__name__}: id_from_name(...)")
        self.id_from_string(id.hex)  # raises if it is of another one
        return Stub(self._runtime, id)

    def get_by_name(self, name: str) -> "Stub":
        return Stub(self._runtime, self.id_from_name(name))  # made here, so there is nothing to check


class Stub:
    """Carries calls to one object: `await stub.method(...)`. Calls on one stub arrive in order.

    The call starts when the method is called; awaiting returns its result. After the object was reset, every
    call on this stub fails with the same reason: get a new stub, it costs nothing.
    """

    def __init__(self, runtime: Runtime, id: LocalObjectId) -> None:  # noqa: A002 - Cloudflare's word
        self._runtime = runtime
        self._live: LiveObject | None = None
        self.id = id
        self.name = id.name

    def __getattr__(self, method: str) -> Callable[..., "asyncio.Future[JSON]"]:
        if method.startswith("__"):
            raise AttributeError(method)

        def call(*arguments: JSON, **keywords: JSON) -> "asyncio.Future[JSON]":
            text = arguments_text(method, arguments, keywords)
            if ACTIVITY.get() is None:
                return self._deliver(method, text)
            # From an object's code this is output: it leaves when the caller's writes are durable.
            return asyncio.ensure_future(self._deliver_after_gate(method, text))

        return call

    async def _deliver_after_gate(self, method: str, arguments: str) -> JSON:
        await output_gate()
        return await self._deliver(method, arguments)

    def _deliver(self, method: str, arguments: str) -> "asyncio.Future[JSON]":
        self._runtime.metrics.calls += 1
        if self._live is None or not self._live.broken:
            self._live = self._runtime.live(self.id)
        return self._live.call(method, arguments)


async def _turns(work: Coroutine[Any, Any, T], activity: Activity) -> T:
    activity.object.settle()
    return await Turns(work, activity)


def _names(owner: LocalObjectId) -> dict[str, JSON]:
    return {"namespace": owner.namespace, "object": owner.hex[:12], "name": owner.name}
