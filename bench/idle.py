"""A process with one object whose alarm is an hour away: what does waiting cost?"""

import asyncio
import sys
import time
from pathlib import Path

from objects_server import Bench, Quiet

from tocsin.platform.local.clock import SystemClock
from tocsin.platform.local.runtime import Runtime


async def main(directory: Path) -> None:
    runtime = Runtime(directory / "objects.sqlite", clock=SystemClock(), logger=Quiet(), env=None)
    stub = runtime.namespace("BENCH", Bench).get_by_name("x")
    await runtime.open()
    await stub.arm(int(time.time() * 1000) + 3_600_000, 0)
    await asyncio.sleep(12)  # the object is evicted after ten seconds
    print("idle", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
