"""The time of this machine: the `Clock` binding that both platforms extend."""

import asyncio
import time


class RealClock:
    """Wall-clock and monotonic time, as the Python runtime reports them."""

    def now(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
