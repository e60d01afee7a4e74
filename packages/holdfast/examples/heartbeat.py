"""`Heart` on one machine: kill -9 it and start it again.

python heartbeat.py DIRECTORY
"""

import asyncio
import sys

from heart import Heart
from holdfast import open_objects
from holdfast.errors import StartError


async def main(directory: str) -> None:
    async with open_objects(directory, HEART=Heart) as objects:
        await objects.get(Heart, "v1").start()
        await asyncio.Event().wait()


if __name__ == "__main__":
    try:
        asyncio.run(main(sys.argv[1]))
    except StartError as error:
        sys.exit(str(error))
