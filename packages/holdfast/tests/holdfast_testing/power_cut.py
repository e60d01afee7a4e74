"""A process that writes through the whole local platform until it is killed, and one that reads what is left.

python -m holdfast_testing.power_cut write DIR    every line on standard output is an acknowledged write: name, number
python -m holdfast_testing.power_cut read DIR…    opens each directory as a start does; prints the number of every name
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from holdfast.local import object_sql, object_store
from holdfast.local.clock import SystemClock
from holdfast.local.data_dir import DataDir
from holdfast.local.database import SqliteDatabase
from holdfast.local.kv import KV_MIGRATIONS, SqliteKV
from holdfast.local.migrations import Migration, load
from holdfast.local.object_store import OBJECT_MIGRATIONS
from holdfast.local.open_objects import OBJECTS_FILE
from holdfast.local.runtime import Runtime
from holdfast.types import DurableObject
from holdfast_testing.captured_log import CapturedLog

PAUSES_S = {"a": 0.0, "b": 0.001, "c": 0.0025}  # of each object between two writes: some commit during a sync
FAR_MS = 3 * 10**12
SCHEMAS = {
    OBJECTS_FILE: load(OBJECT_MIGRATIONS),
    "db.sqlite": [Migration(1, "0001_number", "", ("CREATE TABLE number (value INTEGER)",))],
    "kv.sqlite": load(KV_MIGRATIONS),
}


class Counter(DurableObject):
    """Counts calls: in an entry and, if requested, in the time of its alarm, or in rows together with an entry."""

    async def add(self, number: int) -> None:
        await self.ctx.storage.put("number", number)

    async def arm(self, number: int) -> None:
        await self.ctx.storage.set_alarm(FAR_MS + number)

    async def insert(self, number: int) -> None:
        sql = self.ctx.storage.sql
        sql.exec("CREATE TABLE IF NOT EXISTS numbers (value INTEGER PRIMARY KEY, text TEXT)")
        sql.exec("INSERT INTO numbers VALUES (?, ?)", number, "x" * 100 * (number % 30))
        if number % 3 == 0:
            sql.exec("DELETE FROM numbers WHERE value = ?", number - 1)
        self.ctx.storage.kv.put("rows", number)

    async def numbers(self) -> Any:
        alarm_at = await self.ctx.storage.get_alarm()
        return [await self.ctx.storage.get("number") or 0, 0 if alarm_at is None else alarm_at - FAR_MS, self._rows()]

    def _rows(self) -> int:
        """The last number that was inserted. Raises if entry and rows differ, or if the rows have a gap."""
        last = self.ctx.storage.kv.get("rows") or 0
        if last:
            sql = self.ctx.storage.sql
            found = [value for (value,) in sql.exec("SELECT value FROM numbers ORDER BY value").raw()]
            assert found == [n for n in range(1, last + 1) if n == last or (n + 1) % 3], f"{found} with {last}"
            assert sql.exec("PRAGMA quick_check").one() == {"quick_check": "ok"}
        return int(last)

    async def alarm(self) -> None:
        raise AssertionError("it rings in the far future")


class Platform:
    """The bindings of the local platform on one directory."""

    def __init__(self, directory: Path, runtime: Runtime) -> None:
        self._counters = runtime.namespace("COUNTER", Counter)
        self.db = SqliteDatabase(directory / "db.sqlite")
        self.kv = SqliteKV(directory / "kv.sqlite", runtime.clock)

    def counter(self, name: str) -> Any:
        return self._counters.get_by_name(name)

    async def put_in_db(self, number: int) -> None:
        delete, insert = "DELETE FROM number", "INSERT INTO number VALUES (?)"
        await self.db.batch([self.db.prepare(delete), self.db.prepare(insert).bind(number)])

    async def put_in_kv(self, number: int) -> None:
        await self.kv.put("number", str(number))

    async def numbers(self) -> dict[str, int]:
        """Return the stored numbers, by the names under which they were acknowledged."""
        row = await self.db.prepare("SELECT value FROM number").first()
        numbers = {"db": row["value"] if row else 0, "kv": int(await self.kv.get("number") or 0)}
        for name in PAUSES_S:
            numbers[name], numbers[f"{name}-alarm"], numbers[f"{name}-rows"] = await self.counter(name).numbers()
        return numbers


@asynccontextmanager
async def platform(directory: Path) -> AsyncIterator[Platform]:
    clock, log = SystemClock(), CapturedLog()
    data = DataDir(directory, SCHEMAS, now=clock.now(), logger=log)
    runtime = Runtime(directory / OBJECTS_FILE, clock=clock, logger=log, env=None)
    made = Platform(directory, runtime)
    await runtime.open()
    try:
        yield made
    finally:
        await runtime.close()
        await made.kv.close()
        await made.db.close()
        data.close()


async def count(name: str, write: Callable[[int], Awaitable[object]], pause_s: float = 0.0) -> None:
    number = 0
    while True:
        await asyncio.sleep(pause_s)
        number += 1
        await write(number)
        sys.stdout.write(f"{name} {number}\n")
        sys.stdout.flush()


async def write(directory: Path) -> None:
    object_store.CHECKPOINT_BYTES, object_store.LOG_RESTART_BYTES = 100_000, 250_000  # so that both happen
    object_sql.LOG_BYTES_MAX, object_sql.OPEN_MAX = 20_000, 2  # so that files are closed and opened again
    async with platform(directory) as made, asyncio.TaskGroup() as group:
        for name, pause_s in PAUSES_S.items():
            group.create_task(count(name, made.counter(name).add, pause_s))
            group.create_task(count(f"{name}-alarm", made.counter(name).arm, pause_s))
            group.create_task(count(f"{name}-rows", made.counter(name).insert, pause_s))
        group.create_task(count("db", made.put_in_db))
        group.create_task(count("kv", made.put_in_kv))


async def read(directory: Path) -> dict[str, int]:
    async with platform(directory) as made:
        return await made.numbers()


if __name__ == "__main__":
    command, *directories = sys.argv[1:]
    if command == "write":
        asyncio.run(write(Path(directories[0])))
    for directory in directories:
        print(json.dumps(asyncio.run(read(Path(directory)))), flush=True)
