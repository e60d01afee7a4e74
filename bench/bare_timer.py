"""The control of the alarm benchmark: an asyncio timer and one fsynced SQLite commit per tick."""

import asyncio
import json
import sqlite3
import sys
import time


async def main(path: str, ticks: int) -> None:
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    db.execute("CREATE TABLE IF NOT EXISTS ticks (n INTEGER)")
    first = int(time.time()) + 2
    lateness_ms = []
    for n in range(ticks):
        due = first + n
        await asyncio.sleep(due - time.time())
        lateness_ms.append((time.time() - due) * 1000)
        db.execute("INSERT INTO ticks VALUES (?)", (n,))
    print(json.dumps(lateness_ms))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
