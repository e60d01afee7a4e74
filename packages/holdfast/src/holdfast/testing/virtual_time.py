"""Virtual time: an event loop that jumps to the next timer instead of waiting for it.

Jobs for our own executors, such as SQLite's, run on the loop one iteration later. Time stands still while a thread
works, so a test sees no difference, and switching to a thread and back costs more than most jobs. `real_threads` gives
them their threads. The default executor and the machine's sockets are always real, and the loop waits for them. When
nothing is left to wait for, the loop raises an error instead of hanging.
"""

import asyncio
import math
import selectors
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import Any, TypeVar

from holdfast.local.clock import SystemClock

T = TypeVar("T")

START_MS = 1_778_700_600_000  # an arbitrary, round instant of 2026
THREAD_WAIT_S = 150.0  # real time that a thread gets before a test counts as stuck
RESOLUTION_S = 1e-9
SOCKET_GRACE_S = 0.002  # real time that bytes get to pass through loopback


class _Selector(selectors.DefaultSelector):
    """Asks the kernel without waiting; waiting means moving the loop's clock."""

    loop: "VirtualLoop"

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        if self.loop.threads_busy:
            return super().select(THREAD_WAIT_S)
        if len(self.get_map()) > 1:  # more than the loop's own wake-up pipe
            ready = super().select(SOCKET_GRACE_S)
            if ready:
                return ready
        if timeout is None:
            raise RuntimeError("virtual time stands still: no timer, no thread, nothing is ready")
        self.loop.advance(timeout)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """An asyncio loop whose `time()` moves only when everybody waits."""

    def __init__(self, *, real_threads: bool = False) -> None:
        selector = _Selector()
        selector.loop = self
        self._real_threads = real_threads
        self.threads_busy = 0
        self._now_s = 0.0
        super().__init__(selector)
        self._clock_resolution = RESOLUTION_S

    def time(self) -> float:
        return self._now_s

    def advance(self, seconds: float) -> None:
        self._now_s += seconds
        # After months, the next float is more than a nanosecond away, and the timer at this very time would never fire.
        self._clock_resolution = max(RESOLUTION_S, 2 * math.ulp(self._now_s))

    def run_in_executor(self, executor: Executor | None, func: Callable[..., T], *args: object) -> "asyncio.Future[T]":
        future: asyncio.Future[T]
        if executor is not None and not self._real_threads:
            future = self.create_future()
            self.call_soon(_run_job, future, func, args)
            return future
        self.threads_busy += 1
        future = super().run_in_executor(executor, func, *args)
        future.add_done_callback(self._thread_done)
        return future

    async def shutdown_default_executor(self, _timeout: float | None = None) -> None:
        self.threads_busy += 1  # it waits for a thread that is not an executor's job
        try:
            await super().shutdown_default_executor()
        finally:
            self.threads_busy -= 1

    def _thread_done(self, _future: "asyncio.Future[Any]") -> None:
        self.threads_busy -= 1


def _run_job(future: "asyncio.Future[T]", func: Callable[..., T], args: tuple[Any, ...]) -> None:
    if future.cancelled():
        return
    try:
        future.set_result(func(*args))
    except Exception as error:  # noqa: BLE001 - it belongs to the caller that waits
        future.set_exception(error)


class VirtualClock(SystemClock):
    """A clock on a virtual loop. `jump` moves the wall clock without moving time."""

    recheck_s = math.inf  # `jump` rings the bell

    def __init__(self, start_ms: int = START_MS) -> None:
        super().__init__()
        self._wall_ms = start_ms

    def now(self) -> int:
        return self._wall_ms + int(self.monotonic() * 1000 + 1e-3)  # a rounding error is not a millisecond

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def jump(self, by_ms: int) -> None:
        self._wall_ms += by_ms
        if self._bell is not None:
            asyncio.get_running_loop().call_soon(self._bell)


def run_virtual(main: Coroutine[Any, Any, T], *, real_threads: bool = False) -> T:
    """Run a coroutine to its end in virtual time."""
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(real_threads=real_threads)) as runner:
        return runner.run(main)
