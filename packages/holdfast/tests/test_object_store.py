"""The file of all objects: when it syncs, what it does with its log, values that cannot be read."""

import asyncio
import os
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import ObjectReset, RemoteError
from holdfast.local import object_store
from holdfast.local.object_id import LocalObjectId
from holdfast.local.object_store import Changes, ObjectStore
from holdfast_testing.captured_log import CapturedLog
from holdfast_testing.linux import only_linux, open_files
from holdfast_testing.objects import Register, objects
from holdfast_testing.stores import LOG_FRAME, broken_disk, make_objects_file


class Disk:
    """Syncs that take as long as a test says, by their own measure."""

    def __init__(self, *took_s: float) -> None:
        self.took_s = list(took_s)
        self.in_thread: list[bool] = []

    def sync(self, _fd: int) -> float:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            self.in_thread.append(True)
        else:
            self.in_thread.append(False)
        return self.took_s.pop(0) if self.took_s else 0.0001


@pytest.mark.holdfast(real_threads=True)
async def test_after_a_slow_sync_the_next_ones_are_made_in_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A millisecond is slow; when syncs stay quick, they return to the loop after a while."""
    disk = Disk(0.0009, 0.0011)
    async with objects(tmp_path, Register) as made:
        await made.stub().get("k")
        monkeypatch.setattr(object_store, "_timed_sync", disk.sync)
        for number in range(12):
            await made.stub().put("k", number)

    assert disk.in_thread[:3] == [False, False, True]
    assert not disk.in_thread[-1]
    assert sum(disk.in_thread) == 5  # until 0.0011 s has decayed by 2 % for each sync


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have another call")
async def test_an_answer_leaves_after_a_sync_of_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the system call: the file that was synced is the log that has the write."""
    synced: list[str] = []
    sync = os.fdatasync

    def fdatasync(fd: int) -> None:
        synced.append(Path(f"/proc/self/fd/{fd}").readlink().name)
        sync(fd)

    async with objects(tmp_path, Register) as made:
        await made.stub().get("k")
        monkeypatch.setattr(os, "fdatasync", fdatasync)
        await made.stub().get("k")
        before = len(synced)
        await made.stub().put("k", 1)

    assert before == 0
    assert synced[0] == "objects.sqlite-wal"


async def test_who_waits_for_a_sync_that_fails_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them, including later ones; one that has stopped waiting does no harm. Nothing more is committed."""
    fatal: list[OSError] = []
    store = object_store.ObjectStore(make_objects_file(tmp_path), logger=CapturedLog(), on_fatal=fatal.append)
    store.open()
    owner, changes = LocalObjectId("a", "TEST", "a"), object_store.Changes(entries={"k": "1"})
    monkeypatch.setattr(object_store, "_timed_sync", broken_disk)
    number = store.commit(owner, changes)
    waiting = [store.durable(number) for _ in range(3)]
    assert waiting[0] is not None
    waiting[0].cancel()
    await asyncio.sleep(0)
    ended = await asyncio.gather(*(each for each in waiting[1:] if each is not None), return_exceptions=True)
    late = store.durable(number)
    assert late is not None
    with pytest.raises(OSError, match="Input/output error"):
        await late
    with pytest.raises(OSError, match="Input/output error"):
        store.commit(owner, changes)
    await store.close()

    assert [str(error) for error in ended] == ["[Errno 5] Input/output error"] * 2
    assert len(fatal) == 1


async def test_the_log_is_copied_now_and_then_and_restarted_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here a copy never catches up, so the writer waits for the one after four pages more, unless somebody reads."""
    steps: list[str] = []
    reading = [False]
    restart = object_store._restart_log

    def copy_log(_connection: Any) -> None:
        steps.append(f"{made.runtime.store.synced} copy")

    def restart_log(connection: Any) -> bool:
        steps.append(f"{made.runtime.store.synced} restart")
        return not reading[0] and restart(connection)

    monkeypatch.setattr(object_store, "CHECKPOINT_BYTES", 2 * LOG_FRAME)
    monkeypatch.setattr(object_store, "LOG_RESTART_BYTES", 4 * LOG_FRAME)
    monkeypatch.setattr(object_store, "_copy_log", copy_log)
    monkeypatch.setattr(object_store, "_restart_log", restart_log)
    async with objects(tmp_path, Register) as made:
        for number in range(12):
            reading[0] = number < 6
            await made.stub().put("k", number)
            await asyncio.sleep(0.01)

    assert steps == ["2 copy", "5 restart", "8 restart", "10 copy"]


@pytest.mark.slow
@pytest.mark.parametrize(("copies", "bytes_max"), [(True, 5_000_000), (False, 38_000_000)])
async def test_the_log_is_bounded_by_its_size_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, copies: bool, bytes_max: int
) -> None:
    """A few large commits: the log is copied at 4 MiB. If the copy never catches up, it restarts at 32 MiB."""
    if not copies:
        monkeypatch.setattr(object_store, "_copy_log", lambda *_: None)
    sizes = []
    async with objects(tmp_path, Register) as made:
        for number in range(200):
            await made.stub().put("k", str(number % 10) * 250_000)
            await asyncio.sleep(0.01)  # the copy in the thread ends
            sizes.append((tmp_path / "objects.sqlite-wal").stat().st_size)

    assert 4_000_000 < max(sizes) < bytes_max
    assert sizes[-1] < max(sizes)


@only_linux
async def test_a_closed_store_leaves_no_file_open(tmp_path: Path) -> None:
    """Its database, its log and the connection that copies the log."""
    path = make_objects_file(tmp_path)
    before = open_files()
    store = ObjectStore(path, logger=CapturedLog(), on_fatal=lambda _error: None)
    store.open()
    number = store.commit(LocalObjectId("a", "TEST", "a"), Changes(entries={"k": "1"}))
    waiting = store.durable(number)
    assert waiting is not None
    await waiting
    await store.close()

    assert open_files() == before


class Loading(Register):
    """Reads everything when it is constructed, as many do."""

    def __init__(self, ctx: Any, env: Any) -> None:
        super().__init__(ctx, env)
        ctx.block_concurrency_while(self.all)


NOT_JSON = "'{\"a\": \"' || char(1) || '\"}'"
NOT_UTF8 = "CAST(x'22c122' AS TEXT)"


async def damaged(directory: Path, value: str) -> None:
    async with objects(directory, Register) as made:
        for key in ("a", "good", "z"):
            await made.stub().put(key, [key])
    with closing(sqlite3.connect(directory / "objects.sqlite")) as connection, connection:
        connection.execute(f"UPDATE entries SET value = {value} WHERE key = 'z'")


@pytest.mark.parametrize("value", [NOT_JSON, NOT_UTF8])
async def test_the_error_names_the_file_and_the_entry(tmp_path: Path, value: str) -> None:
    """Whether it is requested alone or with others. The other entries can be read."""
    await damaged(tmp_path, value)
    entry = "(the value of the entry 'z'|the entry after 'good' of a list)"
    sentence = rf"{tmp_path}/objects.sqlite is damaged: {entry} cannot be read.*Restore"
    async with objects(tmp_path, Register) as made:
        with pytest.raises(RemoteError, match=sentence):
            await made.stub().get("z")
        with pytest.raises(RemoteError, match=sentence):
            await made.stub().all()

        assert await made.stub().get("good") == ["good"]


@pytest.mark.parametrize("value", [NOT_JSON, NOT_UTF8])
async def test_an_object_that_cannot_be_loaded_says_why(tmp_path: Path, value: str) -> None:
    """The first call fails with the same sentence."""
    await damaged(tmp_path, value)
    async with objects(tmp_path, Loading) as made:
        with pytest.raises(
            ObjectReset, match=r"objects.sqlite is damaged: the (value of the entry 'z'|entry after 'good')"
        ):
            await made.stub().get("good")
