"""Databases and data directories, made in a test's own directory."""

import functools
import sqlite3
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path

from holdfast.local import sqlite_file
from holdfast.local.data_dir import DataDir
from holdfast.local.database import SqliteDatabase
from holdfast.local.kv import KV_MIGRATIONS, SqliteKV
from holdfast.local.migrations import Migration, last_applied, load, migrate
from holdfast.local.object_store import OBJECT_MIGRATIONS
from holdfast.testing.virtual_time import START_MS
from holdfast.types import Clock, Database, Logger
from holdfast_testing.captured_log import CapturedLog

ITEMS = """
CREATE TABLE items (
  id INTEGER PRIMARY KEY, name TEXT UNIQUE, n INTEGER NOT NULL DEFAULT 0 CHECK (n >= 0)
)"""


LOG_FRAME = 24 + 4096  # bytes of a page in SQLite's log, with its header
SCHEMAS = {"kv.sqlite": load(KV_MIGRATIONS)}


def nothing(_step: str, _connection: sqlite3.Connection) -> None:
    """Take the place of a crash point."""


def full_disk(step: str, _connection: sqlite3.Connection) -> None:
    """Take the place of a crash point, and let each commit fail."""
    if step == "before commit":
        raise OSError(28, "No space left on device")


def broken_disk(_fd: int) -> float:
    """Take the place of a sync."""
    raise OSError(5, "Input/output error")


def open_dir(
    path: Path, schemas: Mapping[str, Sequence[Migration]] | None = None, log: Logger | None = None
) -> DataDir:
    return DataDir(path, SCHEMAS if schemas is None else schemas, now=START_MS, logger=log or CapturedLog())


def make_file(path: Path, *statements: str) -> Path:
    sqlite_file.create(path)
    with closing(sqlite_file.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)
    return path


def with_an_index_that_lacks_a_row(path: Path) -> None:
    """Damage a file of KV: an index has fewer rows than its table."""
    condition = " AND key <> 'c'"
    change = "UPDATE sqlite_schema SET sql = {} WHERE name = 'entries_by_expiry'"
    for sql, key in (("sql || ?", "a"), ("replace(sql, ?, '')", "c")):
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("INSERT INTO entries VALUES (?, '1', 5)", (key,))
            connection.execute("PRAGMA writable_schema = ON")
            connection.execute(change.format(sql), (condition,))


@asynccontextmanager
async def open_database(directory: Path, *statements: str) -> AsyncIterator[SqliteDatabase]:
    database = SqliteDatabase(make_file(directory / "db.sqlite", *statements))
    try:
        yield database
    finally:
        await database.close()


def make_objects_file(directory: Path) -> Path:
    """The file that a DataDir would have made for the objects."""
    return migrated(directory / "objects.sqlite", OBJECT_MIGRATIONS)


def migrated(path: Path, migrations: Path) -> Path:
    """Return a file with these migrations: a new one, or an existing one that may have had fewer."""
    if path.exists():
        with closing(sqlite_file.connect(path)) as connection:
            if last_applied(connection) != _loaded(migrations)[-1].name:
                migrate(connection, _loaded(migrations), path.name, now=0)
    else:
        path.touch(0o600)
        path.write_bytes(_new_file(migrations))
    return path


_loaded = functools.cache(load)


@functools.cache
def _new_file(migrations: Path) -> bytes:
    """Return the content of a new file: migrating takes ten times as long as copying."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "new.sqlite"
        sqlite_file.create(path)
        with closing(sqlite_file.connect(path)) as connection:
            migrate(connection, _loaded(migrations), path.name, now=0)
        return path.read_bytes()


@asynccontextmanager
async def open_kv(directory: Path, clock: Clock) -> AsyncIterator[SqliteKV]:
    kv = SqliteKV(migrated(directory / "kv.sqlite", KV_MIGRATIONS), clock)
    try:
        yield kv
    finally:
        await kv.close()


async def item_names(database: Database) -> list[str]:
    rows = (await database.prepare("SELECT name FROM items ORDER BY id").all()).results
    return [row["name"] for row in rows]
