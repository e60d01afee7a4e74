"""What a start finds in a database and its log, and how it reports problems."""

import sqlite3
from contextlib import closing
from io import StringIO
from pathlib import Path

import pytest

from holdfast.errors import StoreUnusable
from holdfast.local import data_dir, sqlite_file, store_check
from holdfast.local.clock import SystemClock
from holdfast.local.data_dir import DataDir
from holdfast.local.kv import KV_MIGRATIONS
from holdfast.local.migrations import load
from support.virtual_time import START_MS
from tocsin.local.logs import open_logger
from tocsin.logs import Redactor

FILL = """
WITH RECURSIVE counter (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM counter WHERE n < 500)
INSERT INTO entries SELECT hex(randomblob(20)), hex(randomblob(200)), n FROM counter"""


def open_dir(path: Path) -> DataDir:
    logger = open_logger(StringIO(), SystemClock(), Redactor())
    return DataDir(path, {"kv.sqlite": load(KV_MIGRATIONS)}, now=START_MS, logger=logger)


def contents(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in path.iterdir()}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A directory that was used and closed properly."""
    open_dir(tmp_path / "data").close()
    return tmp_path / "data"


def killed_after(path: Path, *statements: str) -> dict[str, bytes]:
    """Return the database and its log as left by a process that is killed after these statements."""
    connection = sqlite_file.connect(path)
    for statement in statements:
        connection.execute(statement)
    kept = {name: (path.parent / name).read_bytes() for name in (path.name, f"{path.name}-wal")}
    connection.close()
    return kept


def test_a_log_that_is_left_beside_a_restored_database_is_refused(data: Path) -> None:
    """The database was restored without its log. That cannot be told from damage, so both files are kept."""
    backup = (data / "kv.sqlite").read_bytes()
    killed_after(data / "kv.sqlite", FILL)
    later = killed_after(data / "kv.sqlite", "UPDATE entries SET value = 'x' WHERE expires_at = 1")
    (data / "kv.sqlite").write_bytes(backup)
    (data / "kv.sqlite-wal").write_bytes(later["kv.sqlite-wal"])
    before = contents(data)
    with pytest.raises(
        StoreUnusable, match=r"kv.sqlite is damaged .* keep kv.sqlite and kv.sqlite-wal until you have$"
    ):
        open_dir(data)

    assert contents(data) == before


def test_a_page_that_a_crash_has_cut_is_taken_from_the_log(data: Path) -> None:
    """A full disk may cut the page that is copied from the log. The log still has it, so nothing is damaged."""
    kept = killed_after(data / "kv.sqlite", FILL)
    (data / "kv.sqlite").write_bytes(kept["kv.sqlite"] + b"half a page")
    (data / "kv.sqlite-wal").write_bytes(kept["kv.sqlite-wal"])
    open_dir(data).close()

    with closing(sqlite3.connect(data / "kv.sqlite")) as connection:
        assert connection.execute("SELECT count(*) FROM entries").fetchone() == (500,)


def test_the_indexes_of_a_large_database_are_not_compared(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would take too long. Its pages are still checked."""
    monkeypatch.setattr(store_check, "INTEGRITY_BYTES_MAX", 0)
    condition = " AND key <> 'c'"
    with closing(sqlite3.connect(data / "kv.sqlite")) as connection, connection:
        connection.execute("PRAGMA writable_schema = ON")
        sql = "UPDATE sqlite_schema SET sql = sql || ? WHERE name = 'entries_by_expiry'"
        connection.execute(sql, (condition,))
    with closing(sqlite3.connect(data / "kv.sqlite")) as connection, connection:
        connection.execute("INSERT INTO entries VALUES ('c', '3', 7)")
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("UPDATE sqlite_schema SET sql = replace(sql, ?, '')", (condition,))
    open_dir(data).close()

    (data / "kv.sqlite").write_bytes((data / "kv.sqlite").read_bytes()[:4096])
    with pytest.raises(StoreUnusable, match=r"kv.sqlite is damaged"):
        open_dir(data)


def test_a_database_with_pages_of_64_kib_is_checked_by_its_own_page_size(tmp_path: Path) -> None:
    """The header has no room for 65,536 and says 1 instead."""
    path = tmp_path / "large.sqlite"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA page_size = 65536")
        connection.execute("CREATE TABLE t (a)")
    store_check.examine(path, None)

    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(StoreUnusable, match=r"large.sqlite is damaged \(the last 1 bytes are missing\)"):
        store_check.examine(path, None)


def test_a_database_that_cannot_be_opened_is_called_damaged_only_if_it_is(data: Path) -> None:
    """SQLite blames the file system, then the content."""
    (data / "text").write_text("no database" * 100)
    with (
        pytest.raises(StoreUnusable, match=r"\(unable to open database file\)\. The data may be intact: see"),
        data_dir._explained(data),
    ):
        sqlite_file.connect(data / "absent")
    with (
        pytest.raises(StoreUnusable, match=r"\(file is not a database\)\. Restore a backup$"),
        data_dir._explained(data),
    ):
        sqlite_file.connect(data / "text")
