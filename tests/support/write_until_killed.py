"""A separate process that writes to DB and KV until it is killed, and prints each write that returned.

python -m support.write_until_killed DIRECTORY
"""

import asyncio
import sys
from pathlib import Path

from holdfast.local.clock import SystemClock
from holdfast.local.database import SqliteDatabase
from holdfast.local.kv import SqliteKV


async def main() -> None:
    directory = Path(sys.argv[1])
    database = SqliteDatabase(directory / "db.sqlite")
    kv = SqliteKV(directory / "kv.sqlite", SystemClock())
    insert = database.prepare("INSERT INTO pairs (n, half) VALUES (?, ?)")
    number = 0
    while True:
        number += 1
        await database.batch([insert.bind(number, "left"), insert.bind(number, "right")])
        sys.stdout.write(f"db {number}\n")
        await kv.put(f"k{number}", "v")
        sys.stdout.write(f"kv {number}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main())
