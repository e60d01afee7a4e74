"""`Heart` on one machine: kill -9 it and start it again.

python -m examples.heartbeat DIRECTORY
"""

import asyncio
import sys
from pathlib import Path

from examples.heart import Heart
from holdfast.errors import StartError
from holdfast.local.clock import SystemClock
from holdfast.local.open_objects import open_objects
from tocsin.local.logs import open_logger
from tocsin.logs import Redactor


async def main(directory: Path) -> None:
    logger = open_logger(sys.stderr, SystemClock(), Redactor([]))
    async with open_objects(directory, logger=logger, HEART=Heart) as env:
        await env.HEART.get_by_name("v1").start()
        await asyncio.Event().wait()


if __name__ == "__main__":
    try:
        asyncio.run(main(Path(sys.argv[1])))
    except StartError as error:
        sys.exit(str(error))
