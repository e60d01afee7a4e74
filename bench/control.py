"""The bare control: an asyncio timer and one fsynced SQLite commit per tick, nothing else."""

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
    late = []
    for n in range(ticks):
        due = first + n
        await asyncio.sleep(due - time.time())
        late.append((time.time() - due) * 1000)
        db.execute("INSERT INTO ticks VALUES (?)", (n,))
    print(json.dumps(late))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
