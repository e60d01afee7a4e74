"""The clock of the local platform: wall time for alarms, monotonic time for everything else.

`SystemClock.ring_at` waits for a wall-clock instant. On Linux it uses a timerfd with an absolute time, which
also reports when the clock is set: an idle process does not wake up between alarms, and a jump of the clock
is noticed at once. Where there is no timerfd, it uses a timer of the event loop that checks the wall clock
every 30 seconds.
"""

import asyncio
import ctypes
import os
import struct
import time
from collections.abc import Callable
from typing import Protocol

from holdfast.types import Clock

RECHECK_S = 30.0  # how long a jump of the wall clock may go unnoticed where there is no timerfd

_CLOCK_REALTIME = 0
_TFD_NONBLOCK_CLOEXEC = 0o4000 | 0o2000000
_TFD_ABSTIME_CANCEL_ON_SET = 1 | 2


class LocalClock(Clock, Protocol):
    """The `Clock` binding, with one timer for the runtime's alarms."""

    def ring_at(self, at_ms: int | None) -> None:
        """Call the bell at this wall-clock time; None disarms. Replaces the previous setting."""

    def open(self, bell: Callable[[], None]) -> None:
        """Start, on the running loop. The bell may also ring too early: it must check the clock."""

    def close(self) -> None: ...


class SystemClock:
    """Real time, and a timer on it."""

    def __init__(self) -> None:
        self._timer: _TimerFd | _LoopTimer | None = None

    def now(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def open(self, bell: Callable[[], None]) -> None:
        try:
            self._timer = _TimerFd(bell)
        except (AttributeError, OSError):  # the system does not have timerfd, or does not allow it
            self._timer = _LoopTimer(self.now, bell)

    def ring_at(self, at_ms: int | None) -> None:
        assert self._timer is not None, "the clock is not open"
        self._timer.ring_at(at_ms)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.close()
            self._timer = None


class _TimerFd:
    """timerfd(2), called with ctypes: the standard library has it only since Python 3.13."""

    def __init__(self, bell: Callable[[], None]) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd = self._libc.timerfd_create(_CLOCK_REALTIME, _TFD_NONBLOCK_CLOEXEC)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create failed")
        self._bell = bell
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._fd, self._on_readable)

    def ring_at(self, at_ms: int | None) -> None:
        # An absolute time of zero disarms; a time already past fires at once.
        seconds, ms = divmod(at_ms or 0, 1000)
        spec = struct.pack("@qqqq", 0, 0, seconds, ms * 1_000_000)
        if self._libc.timerfd_settime(self._fd, _TFD_ABSTIME_CANCEL_ON_SET, spec, None) < 0:
            # ECANCELED: the wall clock was set since the last call. The timer is armed nevertheless.
            self._loop.call_soon(self._bell)

    def _on_readable(self) -> None:
        try:
            os.read(self._fd, 8)
        except BlockingIOError:
            return
        except OSError:
            pass  # ECANCELED: the wall clock was set; the bell checks it
        self._bell()

    def close(self) -> None:
        self._loop.remove_reader(self._fd)
        os.close(self._fd)


class _LoopTimer:
    """A timer of the loop that never waits longer than RECHECK_S, so that it notices a jump of the clock."""

    def __init__(self, now: Callable[[], int], bell: Callable[[], None]) -> None:
        self._now = now
        self._bell = bell
        self._loop = asyncio.get_running_loop()
        self._handle: asyncio.TimerHandle | None = None

    def ring_at(self, at_ms: int | None) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        if at_ms is not None:
            delay_s = max(0, at_ms - self._now()) / 1000
            self._handle = self._loop.call_later(min(delay_s, RECHECK_S), self._bell)

    def close(self) -> None:
        self.ring_at(None)
