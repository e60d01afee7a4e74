"""Systems without fdatasync (macOS, BSD), and disks that fail: in real time, on a real file."""

import asyncio
import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.errors import ObjectReset
from holdfast.local import object_store, sqlite_file
from holdfast.local.clock import SystemClock
from holdfast.local.runtime import Runtime
from holdfast.types import DurableObject
from holdfast_testing.captured_log import CapturedLog
from holdfast_testing.stores import make_objects_file

PATIENCE_S = 10


class Bell(DurableObject):
    """Stores a value, and records that its alarm rang."""

    async def put(self, value: str) -> None:
        await self.ctx.storage.put("value", value)

    async def arm(self, delay_ms: int) -> None:
        await self.ctx.storage.set_alarm(self.env.clock.now() + delay_ms)

    async def alarm(self) -> None:
        await self.ctx.storage.put("rung", self.env.clock.now())
        self.env.rung.set()


async def put_and_ring(directory: Path, copy: Path) -> None:
    """Put, copy the files as a power cut would leave them, then wait for an alarm."""
    clock = SystemClock()
    env = SimpleNamespace(clock=clock, rung=asyncio.Event())
    runtime = Runtime(make_objects_file(directory), clock=clock, logger=CapturedLog(), env=env)
    bells = runtime.namespace("BELL", Bell)
    await runtime.open()
    try:
        await bells.get_by_name("x").put("kept")
        for name in ("objects.sqlite", "objects.sqlite-wal"):
            shutil.copy(directory / name, copy)
        assert runtime.store.synced == runtime.store.commits
        await bells.get_by_name("x").arm(30)
        await asyncio.wait_for(env.rung.wait(), PATIENCE_S)
    finally:
        await runtime.close()


def values(directory: Path) -> list[str]:
    with closing(sqlite3.connect(directory / "objects.sqlite")) as connection:
        return [value for (value,) in connection.execute("SELECT value FROM entries WHERE key = 'value'")]


def test_the_runtime_works_without_fdatasync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A put is durable when it returns, and an alarm rings: with fsync alone."""
    synced: list[int] = []
    fsync = os.fsync

    def counted(fd: int) -> None:
        synced.append(fd)
        fsync(fd)

    monkeypatch.delattr(os, "fdatasync")
    monkeypatch.setattr(os, "fsync", counted)
    home, copy = tmp_path / "data", tmp_path / "copy"
    home.mkdir()
    copy.mkdir()
    asyncio.run(asyncio.wait_for(put_and_ring(home, copy), PATIENCE_S))

    assert values(copy) == ['"kept"']
    assert len(synced) >= 2


async def _put_after(directory: Path, sync: Any, log: CapturedLog, fatal: list[Exception]) -> None:
    runtime = Runtime(make_objects_file(directory), clock=SystemClock(), logger=log, env=None, on_fatal=fatal.append)
    bells = runtime.namespace("BELL", Bell)
    await runtime.open()
    object_store._timed_sync = sync
    try:
        await asyncio.wait_for(bells.get_by_name("x").put("lost"), PATIENCE_S)
    finally:
        await runtime.close()


@pytest.mark.parametrize("quick_disk_s", [1.0, 0.0], ids=["on the loop", "in the thread"])
@pytest.mark.parametrize(
    "error", [AttributeError("module 'os' has no attribute 'fdatasync'"), OSError(5, "Input/output error")]
)
def test_any_error_of_the_sync_reaches_the_caller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick_disk_s: float, error: Exception
) -> None:
    """Nobody waits forever: the call fails with the reason, and the process is asked to stop."""

    def broken(_fd: int) -> float:
        raise error

    monkeypatch.setattr(object_store, "QUICK_DISK_S", quick_disk_s)
    monkeypatch.setattr(object_store, "_timed_sync", object_store._timed_sync)
    log, fatal = CapturedLog(), list[Exception]()
    with pytest.raises(ObjectReset, match=str(error.args[-1])):
        asyncio.run(_put_after(tmp_path, broken, log, fatal))

    assert len(fatal) == len(log.named("store.failed")) == 1


@pytest.mark.parametrize("restart_bytes", [0, 10**9], ids=["on the loop", "in the thread"])
def test_a_failed_checkpoint_is_reported_and_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, restart_bytes: int
) -> None:
    """The log keeps every write; it is copied into the database with a later commit."""
    monkeypatch.setattr(object_store, "CHECKPOINT_BYTES", 0)
    monkeypatch.setattr(object_store, "LOG_RESTART_BYTES", restart_bytes)

    def full(_connection: sqlite3.Connection) -> bool:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(object_store, "_copy_log", full)
    monkeypatch.setattr(object_store, "_restart_log", full)
    log, fatal = CapturedLog(), list[Exception]()
    asyncio.run(_put_after(tmp_path, object_store._timed_sync, log, fatal))

    assert fatal == []
    assert log.named("store.checkpoint_failed")
    assert values(tmp_path) == ['"lost"']


def test_the_event_loop_does_not_wait_for_a_backup(tmp_path: Path) -> None:
    """The log is not restarted while somebody reads it: the next commits try again."""
    path = tmp_path / "objects.sqlite"
    sqlite_file.create(path)
    with closing(sqlite_file.connect(path)) as writer, closing(sqlite_file.connect(path)) as reader:
        writer.execute("CREATE TABLE t (n)")
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM t").fetchall()
        writer.execute("INSERT INTO t VALUES (1)")
        asked: list[str] = []
        writer.set_trace_callback(asked.append)
        restarted = object_store._restart_log(writer)
        writer.set_trace_callback(None)
        reader.execute("ROLLBACK")

        assert not restarted
        assert asked.index("PRAGMA busy_timeout = 0") < asked.index("PRAGMA wal_checkpoint(RESTART)")
        assert writer.execute("PRAGMA busy_timeout").fetchone() == (5000,)
        assert object_store._restart_log(writer)
