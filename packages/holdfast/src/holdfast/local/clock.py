"""The clock of the local platform: wall time for alarms, monotonic time for everything else."""

import asyncio
import time
from collections.abc import Callable


class SystemClock:
    """Real time, and one timer for the runtime's alarms.

    The event loop does not know when the wall clock is set or the machine was suspended: the timer looks at the clock
    every `recheck_s` seconds.
    """

    recheck_s = 30.0

    def __init__(self) -> None:
        self._bell: Callable[[], None] | None = None
        self._handle: asyncio.TimerHandle | None = None

    def now(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def open(self, bell: Callable[[], None]) -> None:
        """Set what the timer calls. It may also ring too early: the bell must check the clock."""
        self._bell = bell

    def ring_at(self, at_ms: int) -> None:
        """Call the bell at this wall-clock time, instead of at the previous one."""
        if self._handle is not None:
            self._handle.cancel()
        if self._bell is not None:
            delay_s = max(0, at_ms - self.now()) / 1000
            self._handle = asyncio.get_running_loop().call_later(min(delay_s, self.recheck_s), self._bell)

    def close(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._bell = self._handle = None
