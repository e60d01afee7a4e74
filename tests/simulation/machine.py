"""The simulated machine: its time, its event loop, its disk, and what a history changes in the interpreter.

The only source of randomness is a seed. Each process of the service gets its own loop. Nothing runs in a thread: the
jobs that asyncio would hand to one run on the loop after a random delay, in an order that a thread pool allows. Timers
fire slightly late, as real ones do, so timers due at the same time fire in a random order. `kill_in` ends the process
between two callbacks, wherever its code is at that point.

Every storage call passes through the disk: the commits and syncs of the objects, and each job of a database's thread.
So a fault can hit any one of them by its number. The disk can be full, slow, fail to sync, or end the process.
"""

import asyncio
import errno
import gc
import heapq
import os
import sqlite3
import sys
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any, Literal, TypeAlias, TypeVar

from holdfast.errors import StoreUnavailable
from holdfast.local import object_store
from holdfast.testing.virtual_time import VirtualClock

T = TypeVar("T")
START_MS = 1_778_716_800_000  # a midnight of 2026, in the first days of the campaign
TIMER_LATE_S = 0.0001  # the longest that a timer fires late
WRITER = "-w"  # the suffix of the name of a thread that writes
STATEMENTS = "_run_whole"  # the job that runs them; another one closes the file
RESOLUTION_S = 1e-9  # a timer due this soon is due now
CLOSED = "Event loop is closed"
JOB_S = (0.0001, 0.002)  # how long a job in a thread takes
CallFault: TypeAlias = Literal["fails", "killed before", "killed after"]
DATABASE = "db-w"  # the thread that writes to it
QUICK_SYNC_S = 0.0002
SLOW_SYNC_S = 0.5
COLLECT_AFTER = 1_000_000  # new objects: a history makes few cycles; frequent searches take a sixth of the time


class ProcessKilled(KeyboardInterrupt):
    """The process is gone. None of its code runs any more: asyncio passes this exception on at once."""


class Stuck(RuntimeError):
    """Nothing is left to wait for."""


class SimulatedTime:
    """The true time, and the clock of everything outside the process: of the chain and the upstreams."""

    def __init__(self, start_ms: int = START_MS) -> None:
        self.start_ms = start_ms
        self.now_s = 0.0

    def now(self) -> int:
        return self.start_ms + int(self.now_s * 1000 + 1e-6)

    def monotonic(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class MachineClock(VirtualClock):
    """The clock of the machine: `jump` sets its wall clock, `reboot` restarts its monotonic clock."""

    def __init__(self, time: SimulatedTime) -> None:
        super().__init__(start_ms=0)
        self._time = time
        self._booted_s = 0.0

    def now(self) -> int:
        return self._time.now() + self._wall_ms  # how far it was set

    def monotonic(self) -> float:
        return self._time.now_s - self._booted_s

    @property
    def is_wrong(self) -> bool:
        return self._wall_ms != 0

    def reboot(self) -> bool:
        """Restart the machine, which sets its wall clock right; return whether it was wrong."""
        was_wrong = self._wall_ms != 0
        self._booted_s, self._wall_ms = self._time.now_s, 0
        return was_wrong

    def set_right(self) -> None:
        """Set the clock right while no process runs."""
        self._wall_ms = 0

    def lose_process(self) -> None:
        self._bell = self._handle = None


@dataclass
class Disk:
    """Counts the storage calls and decides the outcome of each."""

    time: SimulatedTime
    rng: Random
    calls: int = 0
    faults: dict[int, CallFault] = field(default_factory=dict)  # by the number of the call
    full_until_s: float = 0.0
    full_share: float = 1.0
    slow_until_s: float = 0.0
    sync_fails: bool = False
    process_is_dead: bool = False
    failed_s: float = -1_000.0  # when a call last failed

    @property
    def is_full(self) -> bool:
        return self.time.now_s < self.full_until_s

    @property
    def is_slow(self) -> bool:
        return self.time.now_s < self.slow_until_s

    def before(self, call: str) -> int:
        """Raise if the call fails; return its number for `after`."""
        if self.process_is_dead:
            raise ProcessKilled
        number, self.calls = self.calls, self.calls + 1
        fault = self.faults.get(number)
        if fault == "killed before":
            self.process_is_dead = True
            raise ProcessKilled
        if call == "sync":
            if fault == "fails" or self.sync_fails:
                self.sync_fails, self.failed_s = False, self.time.now_s
                raise OSError(errno.EIO, os.strerror(errno.EIO))
        elif fault == "fails" or (self.is_full and self.rng.random() < self.full_share):
            self.failed_s = self.time.now_s
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorcode = sqlite3.SQLITE_FULL
            if call == DATABASE:  # there the job itself translates SQLite's errors
                raise StoreUnavailable("DB: database or disk is full; nothing of the call was written") from error
            raise error
        return number

    def after(self, number: int) -> None:
        if self.faults.get(number) == "killed after":
            self.process_is_dead = True
            raise ProcessKilled

    def sync(self, _fd: int) -> float:
        """Replace a real sync; return how long it took."""
        self.after(self.before("sync"))
        return SLOW_SYNC_S * self.rng.random() if self.is_slow else QUICK_SYNC_S

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Make the objects' store sync to this disk."""
        real = object_store._timed_sync
        object_store._timed_sync = self.sync  # type: ignore[assignment]  # another name of its argument
        try:
            yield
        finally:
            object_store._timed_sync = real


class SimulatedLoop(asyncio.BaseEventLoop):
    """The loop of one process. It has no selector: waiting means moving time."""

    def __init__(self, time: SimulatedTime, rng: Random, storage: Disk) -> None:
        super().__init__()
        self._time = time
        self._rng = rng
        self._storage = storage
        self._workers: dict[Executor | None, list[float]] = {}  # when each is free
        self._abandoned = False
        self.kill_in: int | None = None  # iterations of the loop
        self.errors: list[dict[str, Any]] = []  # what nobody caught
        self.set_exception_handler(self._not_caught)

    def _not_caught(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if not self._abandoned:
            self.errors.append(context)

    def time(self) -> float:
        return self._time.now_s

    def call_at(  # type: ignore[override]  # as below
        self, when: float, callback: Any, *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        return self._at(when + self._rng.random() * TIMER_LATE_S, callback, args, context)

    def _at(self, when: float, callback: Any, args: tuple[Any, ...], context: Any = None) -> asyncio.TimerHandle:
        """Schedule a timer like asyncio's loop, without its checks of the caller: this is half of the loop's work."""
        if self._closed:  # type: ignore[attr-defined]  # of BaseEventLoop, as below
            raise RuntimeError(CLOSED)
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._scheduled, timer)  # type: ignore[attr-defined]
        timer._scheduled = True  # type: ignore[attr-defined]
        return timer

    def call_soon(  # type: ignore[override]
        self, callback: Any, *args: Any, context: Any = None
    ) -> asyncio.Handle:
        if self._closed:  # type: ignore[attr-defined]
            raise RuntimeError(CLOSED)
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)  # type: ignore[attr-defined]
        return handle

    def run_in_executor(  # type: ignore[override]  # the stub's generics are narrower than we need
        self, executor: Executor | None, func: Callable[..., T], *args: Any
    ) -> "asyncio.Future[T]":
        future: asyncio.Future[T] = self.create_future()
        free_at = self._workers.setdefault(executor, [0.0] * getattr(executor, "_max_workers", 1))
        began_s = max(heapq.heappop(free_at), self._time.now_s)
        ends_s = began_s + self._rng.uniform(*JOB_S)
        if self._storage.is_slow:
            ends_s += self._rng.random()
        heapq.heappush(free_at, ends_s)
        name = getattr(executor, "_thread_name_prefix", "")
        self._at(ends_s, self._do, (future, name, func, *args))
        return future

    def _do(self, future: "asyncio.Future[T]", name: str, func: Callable[..., T], *args: Any) -> None:
        if future.cancelled():
            return
        try:
            is_write = name.endswith(WRITER) and getattr(func, "__name__", "") == STATEMENTS
            number = self._storage.before(name) if is_write else None
            result = func(*args)
            if number is not None:
                self._storage.after(number)
        except ProcessKilled:
            raise
        except BaseException as error:  # noqa: BLE001 - as an executor does
            future.set_exception(error)
        else:
            future.set_result(result)

    def _run_once(self) -> None:
        if self.kill_in is not None:
            self.kill_in -= 1
            if self.kill_in < 0:
                at = self._rng.randrange(len(self._ready) + 1)  # type: ignore[attr-defined]  # the ready queue
                self._ready.insert(at, asyncio.Handle(_kill, (), self))  # type: ignore[attr-defined]
        ready, scheduled = self._ready, self._scheduled  # type: ignore[attr-defined]
        while scheduled and scheduled[0]._cancelled:
            heapq.heappop(scheduled)._scheduled = False
        if not ready and not self._stopping:  # type: ignore[attr-defined]
            if not scheduled:
                raise Stuck("no timer, no job, nothing is ready: the process waits forever")
            self._time.now_s = max(self._time.now_s, scheduled[0]._when)
        until_s = self._time.now_s + RESOLUTION_S
        while scheduled and scheduled[0]._when < until_s:
            timer = heapq.heappop(scheduled)
            timer._scheduled = False
            ready.append(timer)
        for _ in range(len(ready)):  # callbacks that they add run in the next iteration
            handle = ready.popleft()
            if not handle._cancelled:
                handle._run()

    def _write_to_self(self) -> None:
        """There are no threads."""

    def abandon(self) -> None:
        """Drop everything that waits, as the end of a process does."""
        self._abandoned = True
        self._ready.clear()  # type: ignore[attr-defined]
        self._scheduled.clear()  # type: ignore[attr-defined]
        for task in asyncio.all_tasks(self):
            task._log_destroy_pending = False  # type: ignore[attr-defined]  # it is meant to be lost
            with suppress(BaseException):  # its `finally` would need a loop, and there is none
                task.get_coro().close()  # if the collector closed it later, it would use the next loop
        self.close()


def _kill() -> None:
    raise ProcessKilled


@contextmanager
def quiet_end() -> Iterator[None]:
    """Silence warnings from code of a killed process when the collector ends it."""
    hook, thresholds = sys.unraisablehook, gc.get_threshold()
    sys.unraisablehook = lambda _: None
    gc.freeze()  # older objects stay: scanning them takes most of a collection
    try:
        gc.set_threshold(COLLECT_AFTER, *thresholds[1:])
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*was never awaited", category=RuntimeWarning)
            yield
    finally:
        gc.unfreeze()
        sys.unraisablehook = hook
        gc.set_threshold(*thresholds)
