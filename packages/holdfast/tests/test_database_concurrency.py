"""DB under concurrency: reads during writes, cancelled callers, the output gate, close."""

import asyncio
import sqlite3
import threading
from pathlib import Path

import pytest

from holdfast.errors import ObjectReset, StoreUnavailable
from holdfast.local.database import SqliteDatabase
from holdfast.local.turns import GATE
from holdfast_testing.stores import ITEMS, item_names, open_database

pytestmark = pytest.mark.holdfast(real_threads=True)


class Hold:
    """The SQL function hold(): waits inside SQLite until it is released. `reached` waits for the call."""

    def __init__(self) -> None:
        self._entered = threading.Event()
        self._released = threading.Event()
        self.release = self._released.set

    def install(self, connection: sqlite3.Connection) -> None:
        connection.create_function("hold", 0, self._call)

    def _call(self) -> None:
        self._entered.set()
        assert self._released.wait(20)

    async def reached(self) -> None:
        assert await asyncio.get_running_loop().run_in_executor(None, self._entered.wait, 20)


async def test_a_read_does_not_wait_for_a_write(tmp_path: Path) -> None:
    """While the writer is blocked, reads see the last commit, and the loop is not blocked."""
    hold = Hold()
    async with open_database(tmp_path, ITEMS) as database:
        await database._writer.run(hold.install)
        write = asyncio.create_task(database.prepare("INSERT INTO items (name) SELECT coalesce(hold(), 'x')").run())
        await hold.reached()
        names_meanwhile = await item_names(database)
        hold.release()
        await write

        assert names_meanwhile == []
        assert await item_names(database) == ["x"]


async def test_a_write_does_not_wait_for_a_read_nor_affect_it(tmp_path: Path) -> None:
    """A long batch of reads keeps its view of the data while a write becomes durable."""
    hold = Hold()
    count = "SELECT count(*) AS n FROM items"
    async with open_database(tmp_path, ITEMS) as database:
        await database._reader.run(hold.install)
        reads = asyncio.create_task(database.batch([database.prepare(sql) for sql in (count, "SELECT hold()", count)]))
        await hold.reached()
        await database.prepare("INSERT INTO items (name) VALUES ('x')").run()
        hold.release()
        first, _, last = await reads

        assert first.results == last.results == [{"n": 0}]
        assert await item_names(database) == ["x"]


async def test_a_cancelled_batch_that_has_started_is_finished(tmp_path: Path) -> None:
    """After the caller is cancelled, the whole batch is written, and the connection still works."""
    hold = Hold()
    async with open_database(tmp_path, ITEMS) as database:
        await database._writer.run(hold.install)
        held = database.prepare("INSERT INTO items (name) SELECT coalesce(hold(), 'second')")
        insert = database.prepare("INSERT INTO items (name) VALUES (?)")
        task = asyncio.create_task(database.batch([insert.bind("first"), held, insert.bind("third")]))
        await hold.reached()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        hold.release()
        await insert.bind("later").run()

        assert await item_names(database) == ["first", "second", "third", "later"]


async def test_a_cancelled_write_that_has_not_started_never_runs(tmp_path: Path) -> None:
    """A statement is not run if its caller is cancelled before the writer takes it."""
    hold = Hold()
    async with open_database(tmp_path, ITEMS) as database:
        await database._writer.run(hold.install)
        insert = database.prepare("INSERT INTO items (name) VALUES (?)")
        running = asyncio.create_task(database.prepare("INSERT INTO items (name) SELECT coalesce(hold(), 'a')").run())
        await hold.reached()
        waiting = asyncio.create_task(insert.bind("b").run())
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        hold.release()
        await running
        await insert.bind("c").run()

        assert await item_names(database) == ["a", "c"]


async def test_close_finishes_writes_and_interrupts_reads(tmp_path: Path) -> None:
    """Accepted writes are in the file after close. An endless read does not delay it."""
    endless = "WITH RECURSIVE c (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT count(hold()) FROM c"
    hold = Hold()
    async with open_database(tmp_path, ITEMS) as database:
        await database._reader.run(hold.install)
        read = asyncio.create_task(database.prepare(endless).run())
        await hold.reached()
        write = asyncio.create_task(database.prepare("INSERT INTO items (name) VALUES ('x')").run())
        await asyncio.sleep(0)
        hold.release()
        await database.close()
        await write

        with pytest.raises(StoreUnavailable):
            await read
        with pytest.raises(StoreUnavailable, match="closed"):
            await item_names(database)
    reopened = SqliteDatabase(tmp_path / "db.sqlite")
    assert await item_names(reopened) == ["x"]
    await reopened.close()


async def test_a_call_waits_for_the_output_gate(tmp_path: Path) -> None:
    """Nothing is written before the calling object's own writes are durable, and never if it was reset."""
    gate = asyncio.Event()

    async def reset() -> None:
        raise ObjectReset("reset")

    async with open_database(tmp_path, ITEMS) as database:
        insert = database.prepare("INSERT INTO items (name) VALUES (?)")
        GATE.set(gate.wait)  # type: ignore[arg-type]  # what wait() returns does not matter
        waiting = asyncio.create_task(insert.bind("x").run())
        GATE.set(reset)
        with pytest.raises(ObjectReset):
            await insert.bind("y").run()
        GATE.set(None)
        await insert.bind("first").run()
        names_meanwhile = await item_names(database)
        gate.set()
        await waiting

        assert names_meanwhile == ["first"]
        assert await item_names(database) == ["first", "x"]
