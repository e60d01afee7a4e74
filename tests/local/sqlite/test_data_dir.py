"""The data directory: one process at a time, and refusals that change nothing."""

import fcntl
import hashlib
import json
import os
import signal
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from io import StringIO
from pathlib import Path

import pytest

from holdfast.errors import DataDirInUse, MigrationFailed, SchemaMismatch, StartError, StoreUnusable
from holdfast.local import data_dir as data_lock
from holdfast.local import sqlite_file, store_check
from holdfast.local.clock import SystemClock
from holdfast.local.data_dir import LOCK_NAME, DataDir, DataLock
from holdfast.local.kv import KV_MIGRATIONS
from holdfast.local.migrations import Migration, load
from holdfast.types import Clock
from support.virtual_time import START_MS
from tocsin.local.logs import open_logger
from tocsin.logs import Redactor

SCHEMAS = {"kv.sqlite": load(KV_MIGRATIONS)}
TESTS = Path(__file__).parents[2]


def open_dir(path: Path, schemas: dict[str, list[Migration]] | None = None) -> DataDir:
    clock: Clock = SystemClock()
    logger = open_logger(StringIO(), clock, Redactor())
    return DataDir(path, SCHEMAS if schemas is None else schemas, now=START_MS, logger=logger)


def snapshot(path: Path) -> dict[str, tuple[int, int, str]]:
    """Every file in a directory: mode, modification time, content."""
    return {
        str(file.relative_to(path)): (
            file.stat().st_mode,
            file.stat().st_mtime_ns,
            hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else "",
        )
        for file in [path, *path.rglob("*")]
    }


@contextmanager
def holder(path: Path) -> Iterator["subprocess.Popen[str]"]:
    """Another process that holds the directory."""
    process = start_holder(path)
    assert process.stdout is not None
    assert process.stdout.readline() == "open\n"
    try:
        yield process
    finally:
        process.communicate()


def start_holder(path: Path, *, wrapped_in: tuple[str, ...] = ()) -> "subprocess.Popen[str]":
    command = [*wrapped_in, sys.executable, "-m", "support.hold_data_dir", str(path), f"kv.sqlite={KV_MIGRATIONS}"]
    return subprocess.Popen(command, cwd=TESTS, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A directory that was used and closed properly."""
    open_dir(tmp_path / "data").close()
    return tmp_path / "data"


def test_a_new_directory_is_private_and_ready(tmp_path: Path) -> None:
    """It is only for this user, has each database at its schema, and can be opened again."""
    path = tmp_path / "data"
    lines = StringIO()
    DataDir(path, SCHEMAS, now=START_MS, logger=open_logger(lines, SystemClock(), Redactor())).close()
    open_dir(path).close()

    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert json.loads(lines.getvalue())["migration"] == "0001_create_entries"
    with closing(sqlite3.connect(path / "kv.sqlite")) as connection:
        assert connection.execute("SELECT count(*) FROM entries").fetchone() == (0,)


def test_a_second_process_gets_the_holder_of_the_directory(tmp_path: Path) -> None:
    """The message has the directory and the holder's process id, and the refused start changes nothing."""
    path = tmp_path / "data"
    with holder(path) as process:
        before = snapshot(path)
        with pytest.raises(DataDirInUse, match=rf"{path} is in use by process {process.pid} on .*, started 20\d\d-"):
            open_dir(path)

        assert snapshot(path) == before
    open_dir(path).close()


def test_deleting_the_lock_file_lets_no_second_process_in(tmp_path: Path) -> None:
    """The lock is on the directory. The refused start does not create a new lock file either."""
    path = tmp_path / "data"
    with holder(path):
        (path / LOCK_NAME).unlink()
        before = snapshot(path)
        with pytest.raises(DataDirInUse, match=f"{path} is in use by another process"):
            open_dir(path)

        assert snapshot(path) == before
    open_dir(path).close()


def test_a_lock_file_of_an_older_release_counts(tmp_path: Path) -> None:
    """Releases before 0.2.0 lock only the file."""
    open_dir(tmp_path).close()
    with (tmp_path / LOCK_NAME).open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(DataDirInUse, match="is in use"):
            open_dir(tmp_path)
    open_dir(tmp_path).close()


def test_a_link_in_place_of_the_lock_file_is_refused(tmp_path: Path) -> None:
    """Its target keeps its content."""
    target, path = tmp_path / "precious", tmp_path / "data"
    target.write_text("mine")
    path.mkdir()
    (path / LOCK_NAME).symlink_to(target)
    with pytest.raises(StoreUnusable, match=f"{path / LOCK_NAME} is a symbolic link.*Remove the link"):
        open_dir(path)

    assert target.read_text() == "mine"


@pytest.mark.parametrize("name", ["kv.sqlite", "kv.sqlite-wal", "kv.sqlite-shm"])
@pytest.mark.parametrize("exists", [True, False])
def test_a_link_in_place_of_a_database_is_refused(data: Path, tmp_path: Path, name: str, *, exists: bool) -> None:
    """SQLite would follow it, and write to or create what it points to."""
    target = tmp_path / "elsewhere"
    if exists:
        target.write_text("precious")
    (data / name).unlink(missing_ok=True)
    (data / name).symlink_to(target)

    with pytest.raises(StoreUnusable, match=f"{data / name} is a symbolic link.*Remove the link"):
        open_dir(data)

    assert target.exists() is exists
    assert not exists or target.read_text() == "precious"


def test_files_are_private_whatever_the_umask(tmp_path: Path) -> None:
    """In a directory that existed before, with a umask that would let everybody write."""
    previous = os.umask(0)
    try:
        opened = open_dir(tmp_path)
        with closing(sqlite_file.connect(tmp_path / "kv.sqlite")) as connection:
            connection.execute("SELECT count(*) FROM entries")
            modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}
        opened.close()
    finally:
        os.umask(previous)

    names = {"kv.sqlite", "kv.sqlite-wal", "kv.sqlite-shm", LOCK_NAME}
    assert modes == dict.fromkeys(names, 0o600)


def test_the_same_process_is_refused_too(tmp_path: Path) -> None:
    """Opening twice in one process does not bypass the lock."""
    first = open_dir(tmp_path)
    with pytest.raises(DataDirInUse, match=f"process {os.getpid()} "):
        open_dir(tmp_path)
    first.close()


def test_a_killed_holder_leaves_nothing_to_clean_up(tmp_path: Path) -> None:
    """After kill -9 the next start works and holds the lock."""
    path = tmp_path / "data"
    with holder(path) as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
    reopened = open_dir(path)
    with pytest.raises(DataDirInUse, match=f"process {os.getpid()} "):
        open_dir(path)
    reopened.close()


def test_a_holder_that_has_not_signed_yet_is_not_confused_with_a_dead_one(data: Path) -> None:
    """While a new holder is still checking, the text of a killed one is ignored."""
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    opened = open_dir(data)
    text = json.loads((data / "tocsin.lock").read_text())
    (data / "tocsin.lock").write_text(json.dumps(text | {"pid": dead.pid}))
    with pytest.raises(DataDirInUse, match="in use by another process that is just starting"):
        open_dir(data)
    opened.close()


def of_one_page(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:4096])


def with_garbage_inside(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[4096:8192] = os.urandom(4096)
    path.write_bytes(content)


def with_a_newer_schema(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("INSERT INTO tocsin_migrations VALUES (2, '0002_from_the_future', '', 0)")


def changed_by_hand(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE handmade (a)")


def without_its_database(path: Path) -> None:
    path.with_name("kv.sqlite-wal").write_bytes(b"leftover")
    path.unlink()


def with_a_garbled_log(path: Path) -> None:
    path.with_name("kv.sqlite-wal").write_bytes(os.urandom(8192))


def cut_within_a_page(path: Path) -> None:
    """The checksum of the last migration is at the end of the file."""
    path.write_bytes(path.read_bytes()[:-7])


def with_an_index_that_lacks_a_row(path: Path) -> None:
    condition = " AND key <> 'c'"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("INSERT INTO entries VALUES ('a', '1', 5), ('b', '2', 6)")
        connection.execute("PRAGMA writable_schema = ON")
        name = "entries_by_expiry"
        connection.execute("UPDATE sqlite_schema SET sql = sql || ? WHERE name = ?", (condition, name))
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("INSERT INTO entries VALUES ('c', '3', 7)")
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("UPDATE sqlite_schema SET sql = replace(sql, ?, '')", (condition,))


@pytest.mark.parametrize(
    ("damage", "error", "sentence"),
    [
        (cut_within_a_page, StoreUnusable, "kv.sqlite is damaged"),
        (with_an_index_that_lacks_a_row, StoreUnusable, "kv.sqlite is damaged"),
        (lambda path: path.write_bytes(b""), StoreUnusable, "kv.sqlite is empty"),
        (lambda path: path.write_bytes(b"\0" * 8192), StoreUnusable, "kv.sqlite is not a SQLite database"),
        (lambda path: path.write_bytes(path.read_bytes()[:60]), StoreUnusable, "kv.sqlite is not a SQLite database"),
        (of_one_page, StoreUnusable, "kv.sqlite is damaged"),
        (with_garbage_inside, StoreUnusable, "kv.sqlite is damaged"),
        (with_a_garbled_log, StoreUnusable, "kv.sqlite-wal is damaged"),
        (without_its_database, StoreUnusable, "kv.sqlite is missing but its log"),
        (with_a_newer_schema, SchemaMismatch, "kv.sqlite is newer than this code"),
        (changed_by_hand, SchemaMismatch, "kv.sqlite differs from what its migrations created"),
        (lambda path: path.with_name("other.sqlite").write_bytes(b"?"), StoreUnusable, "other.sqlite is not a SQLite"),
    ],
)
def test_a_store_that_cannot_be_used_is_refused_untouched(
    data: Path, damage: Callable[[Path], None], error: type[StartError], sentence: str
) -> None:
    """Each kind of damage has a message with a fix. All files stay as they were. After a repair it starts."""
    good = (data / "kv.sqlite").read_bytes()
    damage(data / "kv.sqlite")
    before = snapshot(data)
    with pytest.raises(error, match=sentence):
        open_dir(data)

    assert snapshot(data) == before
    assert sentence.split(" ", 1)[1] in (TESTS.parent / "docs" / "data.md").read_text(encoding="utf-8")

    for file in data.iterdir():
        if "sqlite" in file.name:
            file.unlink()
    (data / "kv.sqlite").write_bytes(good)
    open_dir(data).close()


def test_damage_is_found_behind_a_log_that_was_not_replayed(data: Path) -> None:
    """A killed process leaves a log. The check reads file and log together and changes neither."""
    changed_by_hand_in_log = sqlite_file.connect(data / "kv.sqlite")
    changed_by_hand_in_log.execute("CREATE TABLE handmade (a)")
    kept = {file.name: file.read_bytes() for file in data.glob("kv.sqlite*")}
    changed_by_hand_in_log.close()
    for name, content in kept.items():
        (data / name).write_bytes(content)
    before = snapshot(data)
    with pytest.raises(SchemaMismatch, match="unexpected: table handmade"):
        open_dir(data)

    assert snapshot(data) == before


@pytest.mark.parametrize("log", [b"", b"short", bytes(8192)])
def test_a_log_that_a_crash_left_unwritten_is_not_damage(data: Path, log: bytes) -> None:
    """Nothing in a log without a header was ever acknowledged. The start succeeds."""
    (data / "kv.sqlite-wal").write_bytes(log)
    open_dir(data).close()


def test_a_refused_start_leaves_no_lock_file_behind(tmp_path: Path) -> None:
    """A directory with only a damaged database in it has only that afterwards."""
    (tmp_path / "kv.sqlite").write_bytes(b"?")
    with pytest.raises(StoreUnusable, match="not a SQLite database"):
        open_dir(tmp_path)

    assert [file.name for file in tmp_path.iterdir()] == ["kv.sqlite"]


def test_a_lock_file_that_was_removed_meanwhile_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a refused start removes the file between our two calls, the new file is locked instead."""
    open_file, removed = data_lock._open, list[Path]()

    def lose_the_race(path: Path) -> tuple[int, bool]:
        opened = open_file(path)
        if not removed:
            removed.append(path)
            path.unlink()
        return opened

    monkeypatch.setattr(data_lock, "_open", lose_the_race)
    lock = DataLock(tmp_path)

    with (tmp_path / LOCK_NAME).open() as other, pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    lock.abandon()


def test_a_large_store_gets_the_cheap_checks_and_still_its_schema(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Above the limit no file is read completely. A newer schema is still refused."""
    monkeypatch.setattr(store_check, "EXAMINE_BYTES_MAX", 0)
    open_dir(data).close()
    with_a_newer_schema(data / "kv.sqlite")
    with pytest.raises(SchemaMismatch, match="newer"):
        open_dir(data)


def test_a_start_that_cannot_migrate_lets_the_next_one_in(data: Path) -> None:
    """A failed migration stops the start with its name, and the lock is released."""
    broken = Migration(1, "0001_broken", "", ("INSERT INTO nowhere VALUES (1)",))
    with pytest.raises(MigrationFailed, match="0001_broken"):
        open_dir(data, {"db.sqlite": [broken]})
    open_dir(data).close()


def test_a_file_is_not_a_directory(tmp_path: Path) -> None:
    """The message has its path. The file stays as it was."""
    file = tmp_path / "data"
    file.write_text("mine")
    with pytest.raises(StoreUnusable, match=f"{file} is not a directory"):
        open_dir(file)

    assert file.read_text() == "mine"


def test_a_missing_parent_is_named(tmp_path: Path) -> None:
    """Only the directory itself is created. The message asks for the one above it."""
    with pytest.raises(StoreUnusable, match="its parent directory does not exist"):
        open_dir(tmp_path / "absent" / "data")

    assert list(tmp_path.iterdir()) == []
