"""A process with one object whose alarm is an hour away, to measure the cost of waiting."""

import asyncio
import sys
import time
from pathlib import Path

from null_logger import NullLogger
from objects_server import Bench

from holdfast.local.open_objects import open_objects


async def main(directory: Path) -> None:
    async with open_objects(directory, logger=NullLogger(), BENCH=Bench) as env:
        await env.BENCH.get_by_name("x").arm(int(time.time() * 1000) + 3_600_000)
        await asyncio.sleep(12)  # the object is evicted after ten seconds
        print("idle", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
