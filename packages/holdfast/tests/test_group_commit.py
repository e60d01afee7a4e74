"""Turns that end together share one transaction of SQLite: all of it is stored and acknowledged, or nothing."""

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import ObjectReset
from holdfast.local import object_store
from holdfast.local.object_id import LocalObjectId
from holdfast.local.object_store import Changes, ObjectStore
from holdfast_testing.captured_log import CapturedLog
from holdfast_testing.objects import Objects, Register, objects
from holdfast_testing.stores import full_disk, make_objects_file, nothing

CrashPoint = Callable[[str, sqlite3.Connection], None]


class Armed(Register):
    """Has an entry, a row and an alarm."""

    async def write(self, value: str, delay_ms: int) -> str:
        sql = self.ctx.storage.sql
        sql.exec("CREATE TABLE IF NOT EXISTS t (id INTEGER PRIMARY KEY, v TEXT)")
        sql.exec("INSERT OR REPLACE INTO t VALUES (1, ?)", value)
        self.ctx.storage.put("k", value)
        await self.ctx.storage.set_alarm(self.env.now() + delay_ms)
        return value

    async def disarm(self) -> None:
        await self.ctx.storage.delete_alarm()

    async def read(self) -> list[Any]:
        row = self.ctx.storage.sql.exec("SELECT v FROM t").one().v
        return [await self.ctx.storage.get("k"), row, await self.ctx.storage.get_alarm()]

    async def go_on(self, by: str) -> None:
        self.ctx.storage.put("k", "new")
        match by:
            case "a section":
                await self.ctx.block_concurrency_while(self._effect)
            case "wait_until":
                self.ctx.wait_until(self._effect())
            case "a task":
                await asyncio.create_task(self._effect())
            case "itself":
                await asyncio.sleep(0)
                await self._effect()

    async def _effect(self) -> None:
        self.env.rings.append("effect")

    async def leave(self) -> None:
        self.ctx.abort("as requested")

    async def alarm(self) -> None:
        self.env.rings.append((self.ctx.id.name, self.env.now()))


def broken_commit(step: str, connection: sqlite3.Connection) -> None:
    """Let COMMIT fail itself: what it has to check is violated. The transaction stays open."""
    if step == "before commit":
        connection.execute("CREATE TABLE child (k TEXT REFERENCES alarms (object) DEFERRABLE INITIALLY DEFERRED)")
        connection.execute("INSERT INTO child VALUES ('nobody')")


async def prepared(made: Objects) -> list[list[Any]]:
    """Give each object a state, with alarms after 10, 20 and 30 seconds. Returns the states."""
    made.env.rings = []
    for number, name in enumerate("abc", 1):
        await made.stub(name).write(f"old {name}", number * 10_000)
    return [await made.stub(name).read() for name in "abc"]


async def test_turns_of_one_iteration_share_a_transaction(tmp_path: Path) -> None:
    """The replies come in the order of the calls, each when its writes are stored."""
    steps: list[str] = []
    replies: list[str] = []
    async with objects(tmp_path, Armed) as made:
        made.runtime.store.crash_point = lambda step, _connection: steps.append(step)
        calls = [made.stub(name).put("k", name) for name in "abcab"]
        for number, call in enumerate(calls):
            call.add_done_callback(lambda _, number=number: replies.append(f"{number} after {steps[-1]}"))
        await asyncio.gather(*calls)

        assert made.runtime.store.commits == made.runtime.store.synced == 5
    assert steps == ["before commit", "after commit", "before sync", "after sync"]
    assert replies == [f"{number} after after sync" for number in range(5)]


@pytest.mark.parametrize(
    ("broken", "reason"), [(full_disk, "No space left on device"), (broken_commit, "FOREIGN KEY constraint failed")]
)
async def test_a_failed_transaction_undoes_all_its_turns(tmp_path: Path, broken: CrashPoint, reason: str) -> None:
    """No call is answered, and every object goes on with its stored entries, rows and alarm."""
    async with objects(tmp_path, Armed) as made:
        before, began_at = await prepared(made), made.clock.now()
        made.runtime.store.crash_point = broken
        calls = [made.stub("a").write("new", 1_000), made.stub("b").disarm(), made.stub("c").write("new", 50_000)]
        calls += [made.stub("c").write("newer", 500), made.stub("a").disarm()]
        ended = await asyncio.gather(*calls, return_exceptions=True)
        made.runtime.store.crash_point = nothing

        message = "The object was reset and rolled back to its last committed state: "
        assert all(isinstance(each, ObjectReset) and str(each).startswith(message) for each in ended)
        assert all(reason in str(each) for each in ended)
        assert made.runtime.metrics.objects_reset == 3
        assert [await made.stub(name).read() for name in "abc"] == before
        assert await made.stub("a").write("newest", 5_000) == "newest"
        await asyncio.sleep(60)
        assert made.env.rings == [("a", began_at + 5_000), ("b", began_at + 20_000), ("c", began_at + 30_000)]
    with closing(sqlite3.connect(tmp_path / "objects.sqlite")) as stored:
        assert [k for (k,) in stored.execute("SELECT value FROM entries ORDER BY value")] == [
            '"newest"', '"old b"', '"old c"',
        ]  # fmt: skip


async def test_a_failed_statement_undoes_the_turns_before_it(tmp_path: Path) -> None:
    """A turn after it begins a new transaction."""
    async with objects(tmp_path, Armed) as made:
        before = await prepared(made)
        db = made.runtime.store._db
        (pages,) = db.execute("PRAGMA page_count").fetchone()
        db.execute(f"PRAGMA max_page_count = {pages + 2}")
        calls = [made.stub("a").put("k", "new"), made.stub("b").put("k", "x" * 100_000), made.stub("c").put("k", "new")]
        ended = await asyncio.gather(*calls, return_exceptions=True)

        assert [type(each) for each in ended] == [ObjectReset, ObjectReset, type(None)]
        assert "last committed state: database or disk is full" in str(ended[0])
        assert made.runtime.store.commits == made.runtime.store.synced
        before[2][0] = "new"
        assert [await made.stub(name).read() for name in "abc"] == before


@pytest.mark.parametrize("by", ["a section", "wait_until", "a task", "itself"])
async def test_code_goes_on_only_from_what_is_committed(tmp_path: Path, by: str) -> None:
    """Neither the code itself, nor what it has begun."""
    async with objects(tmp_path, Armed) as made:
        await prepared(made)
        made.runtime.store.crash_point = broken_commit
        with pytest.raises(ObjectReset, match="FOREIGN KEY"):
            await made.stub("a").go_on(by)
        await asyncio.sleep(1)
        made.runtime.store.crash_point = nothing
        assert made.env.rings == []
        await made.stub("a").go_on(by)
        await asyncio.sleep(1)

    assert made.env.rings == ["effect"]


@pytest.mark.parametrize("broken", [False, True])
async def test_a_new_instance_waits_for_what_it_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, broken: bool
) -> None:
    """An object is reset after its turn, before the commit: the next instance tells what it read when it is durable."""
    monkeypatch.setattr(object_store, "QUICK_DISK_S", 0.0)
    durable: list[bool] = []
    async with objects(tmp_path, Armed) as made:
        await prepared(made)
        store = made.runtime.store
        store.crash_point = broken_commit if broken else nothing
        written, left = made.stub("a").put("k", "new"), made.stub("a").leave()
        while not made.runtime.metrics.objects_reset:
            await asyncio.sleep(0)
        read = made.stub("a").get("k")
        read.add_done_callback(lambda _: durable.append(store.synced == store.commits))
        ended = await asyncio.gather(written, left, read, return_exceptions=True)

    assert [str(each) for each in ended[:2]] == ["as requested"] * 2
    if broken:
        assert "FOREIGN KEY" in str(ended[2])
    else:
        assert (ended[2], durable) == ("new", [True])


async def test_a_reader_is_not_held_up_by_the_failure_of_others(tmp_path: Path) -> None:
    """It began while their transaction was open."""
    async with objects(tmp_path, Armed) as made:
        await prepared(made)
        await asyncio.sleep(31)  # all are evicted
        made.runtime.store.crash_point = broken_commit
        written, read = made.stub("a").put("k", "new"), made.stub("b").get("k")
        ended = await asyncio.gather(written, read, return_exceptions=True)

    assert [type(ended[0]), ended[1]] == [ObjectReset, "old b"]


async def test_the_log_never_restarts_within_a_transaction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Turns end while a thread waits for the disk."""
    monkeypatch.setattr(object_store, "QUICK_DISK_S", 0.0)
    monkeypatch.setattr(object_store, "CHECKPOINT_BYTES", 10_000)
    monkeypatch.setattr(object_store, "LOG_RESTART_BYTES", 10_000)
    restarts: list[bool] = []
    restart_log = object_store._restart_log

    def restarting(connection: sqlite3.Connection) -> bool:
        restarts.append(restart_log(connection))
        return restarts[-1]

    monkeypatch.setattr(object_store, "_restart_log", restarting)

    async def client(name: str, rests: int) -> None:
        for number in range(30):
            await made.stub(name).put("k", number)
            for _ in range(number % rests):
                await asyncio.sleep(0)

    async with objects(tmp_path, Armed) as made:
        await asyncio.gather(*(client(name, rests) for rests, name in enumerate("abcdefg", 1)))

        assert made.log.named("store.checkpoint_failed") == []
        assert sum(restarts) > 10


async def test_a_store_that_closes_ends_its_transaction(tmp_path: Path) -> None:
    """Its turns have ended; nobody waits for them any more."""
    path = make_objects_file(tmp_path)
    store = ObjectStore(path, logger=CapturedLog(), on_fatal=lambda _error: None)
    store.open()
    for name in "ab":
        store.commit(LocalObjectId(name, "TEST", name), Changes(entries={"k": "1"}))
    await store.close()

    with closing(sqlite3.connect(path)) as stored:
        assert stored.execute("SELECT object FROM entries ORDER BY object").fetchall() == [("a",), ("b",)]
