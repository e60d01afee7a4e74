"""Files of the data directory at their limits: who holds it, what is synced, what is left open, what is compared."""

import errno
import fcntl
import json
import os
import re
import socket
import sqlite3
import sys
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import DataDirInUse, SchemaMismatch, StoreError, StoreUnavailable, StoreUnusable
from holdfast.local import sqlite_file, store_check
from holdfast.local.data_dir import LOCK_NAME, DataDir, DataLock, is_in_use
from holdfast.local.database import SqliteDatabase
from holdfast.local.migrations import Migration, after_all_with, check, plain
from holdfast.local.object_store import Changes, ObjectStore, Owner
from holdfast.local.snapshot import one_instant, row_counts
from support.captured_log import CapturedLog
from support.local_store import make_file, make_objects_file, open_kv
from support.virtual_time import START_MS, VirtualClock

linux = pytest.mark.skipif(sys.platform != "linux", reason="the open files are counted in /proc")
HOLDER = {"pid": os.getpid(), "startedAt": START_MS, "host": socket.gethostname()}


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@linux
def test_a_damaged_file_is_not_left_open(tmp_path: Path) -> None:
    """The connection is closed as soon as SQLite refuses the file, not when it is collected."""
    damaged = tmp_path / "damaged"
    damaged.write_bytes(b"not a database" * 1000)
    before = open_files()
    with pytest.raises(sqlite3.DatabaseError) as refused:
        sqlite_file.connect(damaged)

    assert open_files() == before
    assert "not a database" in str(refused.value)


# The lock


def test_the_holder_is_named_with_its_start(tmp_path: Path) -> None:
    """In UTC, to the second; text of an earlier holder does not show through."""
    (tmp_path / LOCK_NAME).write_text("x" * 500)
    lock = DataLock(tmp_path)
    lock.sign(START_MS)
    text = (tmp_path / LOCK_NAME).read_text()
    with pytest.raises(DataDirInUse) as refused:
        DataLock(tmp_path)
    lock.release()

    assert json.loads(text) == HOLDER
    holder = f"process {os.getpid()} on {socket.gethostname()}, started 2026-05-13T19:30:00+00:00"
    assert f"{tmp_path} is in use by {holder}. Stop that process" in str(refused.value)
    assert (tmp_path / LOCK_NAME).read_text() == ""


@pytest.mark.parametrize(
    "text",
    [
        "",
        "not json",
        "[]",
        "{}",
        json.dumps({**HOLDER, "startedAt": 10**30}),
        json.dumps({**HOLDER, "startedAt": "x"}),
        json.dumps({**HOLDER, "pid": "x"}),
        json.dumps({**HOLDER, "pid": 2**22 + 1}),  # no process has this number
        json.dumps({**HOLDER, "host": "h" * 1_000}),  # longer than is read
    ],
    ids=["empty", "not-json", "list", "nothing", "late", "no-time", "no-pid", "no-process", "long"],
)
def test_a_holder_that_cannot_be_read_is_one_that_is_just_starting(tmp_path: Path, text: str) -> None:
    """Whatever the file says: the directory is in use."""
    lock = DataLock(tmp_path)
    (tmp_path / LOCK_NAME).write_text(text)
    with pytest.raises(DataDirInUse, match="in use by another process that is just starting"):
        DataLock(tmp_path)
    lock.release()


@pytest.mark.parametrize("pid", [1, 2**22 + 1])
def test_a_holder_on_another_machine_is_named_as_it_signed(tmp_path: Path, pid: int) -> None:
    """Its process cannot be looked up from here."""
    lock = DataLock(tmp_path)
    (tmp_path / LOCK_NAME).write_text(json.dumps({**HOLDER, "pid": pid, "host": "another"}))
    with pytest.raises(DataDirInUse, match=f"in use by process {pid} on another, started 2026"):
        DataLock(tmp_path)
    lock.release()


@linux
def test_whether_a_directory_is_in_use_can_be_asked_without_a_trace(tmp_path: Path) -> None:
    """While it is held and afterwards; the check itself holds nothing and leaves no file open."""
    before = open_files()
    lock = DataLock(tmp_path)
    held = [is_in_use(tmp_path) for _ in range(2)]
    lock.release()
    free = [is_in_use(tmp_path) for _ in range(2)]
    after = open_files()
    DataLock(tmp_path).abandon()

    assert (held, free) == ([True, True], [False, False])
    assert after == before


@linux
def test_a_refused_lock_leaves_no_file_open(tmp_path: Path) -> None:
    """A service that keeps retrying must not run out of descriptors."""
    lock = DataLock(tmp_path)
    before = open_files()
    for _ in range(3):
        with pytest.raises(DataDirInUse):
            DataLock(tmp_path)

    assert open_files() == before
    lock.release()
    assert open_files() == before - 2


@pytest.mark.parametrize("code", [errno.EBADF, errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_refused_by_a_start_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """A mere check returns no: the start reports the reason."""

    def flock(_fd: int, _operation: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(StoreUnusable, match="is on a file system without locks"):
        DataLock(tmp_path)
    assert not is_in_use(tmp_path)


def test_a_directory_that_was_made_for_a_start_that_is_refused_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An existing one stays."""

    def flock(_fd: int, _operation: int) -> None:
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr(fcntl, "flock", flock)
    (tmp_path / "old").mkdir()
    for name in ("new", "old"):
        with pytest.raises(StoreUnusable):
            DataDir(tmp_path / name, {}, now=START_MS, logger=CapturedLog())

    assert [path.name for path in tmp_path.iterdir()] == ["old"]


@linux
async def test_a_closed_database_leaves_no_file_open(tmp_path: Path) -> None:
    """Neither the reader's nor the writer's; an error names eighty characters of its statement."""
    path = make_file(tmp_path / "db.sqlite", "CREATE TABLE t (a)")
    before = open_files()
    database = SqliteDatabase(path)
    await database.prepare("INSERT INTO t VALUES (1)").run()
    with pytest.raises(StoreError) as refused:
        await database.prepare("SELECT nothing_of_this_name" + " " * 5 + "x" * 200 + " FROM t").all()
    await database.close()

    assert open_files() == before
    assert f"DB: SELECT nothing_of_this_name {'x' * 52}:" in str(refused.value)


# Syncs


class Calls:
    """Which calls were made, each with an error or without."""

    def __init__(self, **errors: OSError) -> None:
        self.made: list[str] = []
        self._errors = errors

    def of(self, name: str) -> Any:
        def call(*_arguments: Any) -> None:
            self.made.append(name)
            if name in self._errors:
                raise self._errors[name]

        return call


@pytest.mark.parametrize(
    ("has_full_sync", "has_fdatasync", "errors", "expected"),
    [
        (False, True, {}, ["fdatasync"]),
        (False, False, {}, ["fsync"]),
        (True, True, {}, ["fcntl"]),
        (True, True, {"fcntl": OSError(errno.ENOTSUP, "no")}, ["fcntl", "fsync"]),
    ],
)
def test_a_file_is_synced_by_the_strongest_call_that_there_is(
    monkeypatch: pytest.MonkeyPatch,
    has_full_sync: bool,
    has_fdatasync: bool,
    errors: dict[str, OSError],
    expected: list[str],
) -> None:
    """On macOS fsync leaves the data in the drive's cache; where its own call does not work, fsync is used."""
    calls = Calls(**errors)
    if has_full_sync:
        monkeypatch.setattr(fcntl, "F_FULLFSYNC", 51, raising=False)
    monkeypatch.setattr(fcntl, "fcntl", calls.of("fcntl"))
    monkeypatch.setattr(os, "fsync", calls.of("fsync"))
    if has_fdatasync:
        monkeypatch.setattr(os, "fdatasync", calls.of("fdatasync"), raising=False)
    else:
        monkeypatch.delattr(os, "fdatasync", raising=False)

    sqlite_file.sync_file(7)

    assert calls.made == expected


@linux
def test_a_new_database_is_synced_with_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The directory, after the file has its name; no draft is left and no file is open."""
    synced: list[tuple[str, bool]] = []

    def fsync(fd: int) -> None:
        synced.append((Path(f"/proc/self/fd/{fd}").readlink().name, (tmp_path / "a.sqlite").exists()))

    before = open_files()
    monkeypatch.setattr(os, "fsync", fsync)
    (tmp_path / "a.sqlite.new").write_text("left by a kill")
    sqlite_file.create(tmp_path / "a.sqlite")

    assert synced == [(tmp_path.name, True)]
    assert [file.name for file in tmp_path.iterdir()] == ["a.sqlite"]
    assert open_files() == before


@linux
async def test_a_closed_store_leaves_no_file_open(tmp_path: Path) -> None:
    """Its database, its log and the connection that copies the log."""
    path = make_objects_file(tmp_path)
    before = open_files()
    store = ObjectStore(path, logger=CapturedLog(), on_fatal=lambda _error: None)
    store.open()
    number = store.commit(Owner("a", "TEST", "a"), Changes(entries={"k": "1"}))
    waiting = store.durable(number)
    assert waiting is not None
    await waiting
    await store.close()

    assert open_files() == before


# What is checked


def test_how_much_of_a_database_is_checked_depends_on_its_size() -> None:
    """As docs/data.md has it: everything up to 64 MiB, without the indexes up to 256 MiB."""
    assert store_check.INTEGRITY_BYTES_MAX == 67_108_864
    assert store_check.EXAMINE_BYTES_MAX == 268_435_456


def test_the_difference_of_a_schema_is_shown_up_to_twenty_lines(tmp_path: Path) -> None:
    """And how many more there are; twenty are shown without that."""
    migration = Migration(1, "0001_a", "", ("CREATE TABLE a (b TEXT)",))

    def shown(tables: int) -> str:
        names = [f"CREATE TABLE t{number:02} (b TEXT)" for number in range(tables)]
        path = make_file(tmp_path / f"{tables}.sqlite", *names)
        with (
            closing(sqlite3.connect(path)) as connection,
            pytest.raises(SchemaMismatch, match="differs from what its migrations created") as refused,
        ):
            check(connection, [migration], path.name)
        return str(refused.value)

    assert "more" not in shown(10)
    assert shown(10).count("unexpected: ") == 20
    assert shown(11).endswith("\n  and 2 more")
    assert shown(11).count("unexpected: ") == 20


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("CREATE TABLE t (a TEXT)", 'create table "t" (\n  [a]  text -- a comment\n)', True),
        ("CREATE TABLE t (a TEXT DEFAULT 'x')", "CREATE TABLE t (a TEXT DEFAULT 'X')", False),
        ("CREATE TABLE t (a TEXT)", "CREATE TABLE t (/* two\nlines */ a TEXT)", True),
        ("CREATE TABLE t (a TEXT, b TEXT)", "CREATE TABLE t (b TEXT, a TEXT)", False),
        ("CREATE TABLE t (a INT CHECK (a IN (1, 2)))", "CREATE TABLE t (a INT CHECK (a IN (1,2)))", True),
    ],
)
def test_two_statements_are_the_same_without_their_layout(one: str, other: str, *, same: bool) -> None:
    """Comments of several lines, quotes, case; but text is text."""
    assert (plain(one) == plain(other)) is same


@pytest.mark.parametrize(
    ("prefix", "bound"),
    [
        ("a", "b"),
        ("ab", "ac"),
        ("run:", "run;"),
        ("a\U0010ffff", "b"),
        ("\U0010ffff", b""),
        ("", b""),
        ("x\ud7ff", "x\ue000"),
    ],
)
def test_the_bound_of_a_prefix_is_the_first_name_after_all_of_its(prefix: str, bound: str | bytes) -> None:
    """Not before the last of them, and not after any other."""
    assert after_all_with(prefix) == bound


# Entries and copies


def entries_in(directory: Path) -> int:
    (path,) = directory.glob("*.sqlite")
    with closing(sqlite3.connect(path)) as connection:
        (count,) = connection.execute("SELECT count(*) FROM entries").fetchone()
    return int(count)


async def test_one_write_removes_a_hundred_expired_entries(tmp_path: Path) -> None:
    """No write takes long, however many have expired at once."""
    clock = VirtualClock()
    async with open_kv(tmp_path, clock) as kv:
        for number in range(250):
            await kv.put(f"k{number}", "v", expiration_ttl=60)
        clock.jump(60_000)
        left = []
        for _ in range(3):
            await kv.put("live", "v")
            left.append(entries_in(tmp_path))

    assert left == [151, 51, 1]


def test_a_copy_waits_for_a_file_that_is_locked_for_a_moment(tmp_path: Path) -> None:
    """An import ends, and the copy begins without a message."""
    paths = [make_file(tmp_path / name, "CREATE TABLE t (a)") for name in ("a.sqlite", "b.sqlite")]
    with closing(sqlite_file.connect(paths[1])) as shell:
        shell.execute("BEGIN IMMEDIATE")
        free = threading.Timer(0.4, shell.execute, ["COMMIT"])
        free.start()
        with one_instant(paths, wait_s=20) as readers:
            counts = [row_counts(reader) for reader in readers.values()]
        free.join()

    assert counts == [{"t": 0}, {"t": 0}]


def test_a_copy_gives_up_after_the_time_that_it_was_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a pause between two tries, so that it does not keep a core busy."""
    path = make_file(tmp_path / "a.sqlite", "CREATE TABLE t (a)")
    now, slept = [100.0], list[float]()

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    monkeypatch.setattr("holdfast.local.snapshot.time.monotonic", lambda: now[0])
    monkeypatch.setattr("holdfast.local.snapshot.time.sleep", sleep)
    monkeypatch.setattr("holdfast.local.snapshot.LOCK_WAIT_MS", 0)
    with closing(sqlite_file.connect(path)) as shell:
        shell.execute("BEGIN IMMEDIATE")
        with (
            pytest.raises(StoreUnavailable, match=re.escape("locked for 0.12 s: end it")),
            one_instant([path], wait_s=0.12),
        ):
            pass

    assert slept == [0.05, 0.05, 0.05]
