"""The clock. On Cloudflare it stands still between two real waits, as a defence against timing attacks."""

import asyncio
import time


class CloudflareClock:
    """The `Clock` binding."""

    def now(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
