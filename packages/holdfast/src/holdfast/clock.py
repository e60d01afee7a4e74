"""Real time: the common part of both platforms' clocks."""

import asyncio
import time


class RealClock:
    """The `Clock` binding on the system's clocks."""

    boot_id = ""

    def now(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
