"""Checks a database file before it is opened, and writes neither to it nor to its directory.

Opening a database would write: SQLite replays the log of a killed process and creates an index file. So a
file with an empty log is opened as `immutable`, and a file with a log is copied together with its log, and
the copy is checked. For files above EXAMINE_BYTES_MAX only the headers are checked (a full check of 137 MB
takes 0.1 s).
"""

import os
import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from tocsin.errors import StoreUnusable
from tocsin.platform.local.sqlite.migrations import Migration, check

EXAMINE_BYTES_MAX = 256 * 1024 * 1024

_HEADER = b"SQLite format 3\0"
_HEADER_BYTES = 100
_LOG_MAGIC = (bytes.fromhex("377f0682"), bytes.fromhex("377f0683"))
_LOG_HEADER_BYTES = 32
_RESTORE = "Restore it from a backup"


def examine(path: Path, migrations: Sequence[Migration] | None) -> None:
    """Raise if this database cannot be used, or if these migrations cannot be applied to it."""
    log = path.with_name(path.name + "-wal")
    if not path.exists():
        if _size(log):
            raise StoreUnusable(
                f"{path} is missing but its log {log.name} is there. {_RESTORE}, or remove the log"
            )
        return
    _check_writable(path, log, path.with_name(path.name + "-shm"))
    _check_headers(path, log)
    if path.stat().st_size + _size(log) > EXAMINE_BYTES_MAX:
        return
    try:
        with _view(path, log) as connection:
            (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
            if verdict != "ok":
                raise StoreUnusable(f"{path} is damaged ({' '.join(verdict.split())}). {_RESTORE}")
            if migrations is not None:
                check(connection, migrations, path.name)
    except sqlite3.DatabaseError as error:
        raise StoreUnusable(f"{path} is damaged ({error}). {_RESTORE}") from error


def _check_writable(*files: Path) -> None:
    for file in files:
        if file.exists():
            os.close(os.open(file, os.O_RDWR))


def _check_headers(path: Path, log: Path) -> None:
    """Find damage that SQLite would read as an empty database or an empty log, and then overwrite."""
    header = _first_bytes(path, _HEADER_BYTES)
    if not header:
        raise StoreUnusable(
            f"{path} is empty: its content is lost. {_RESTORE}, or remove it to start with a new one"
        )
    if len(header) < _HEADER_BYTES or not header.startswith(_HEADER):
        raise StoreUnusable(
            f"{path} is not a SQLite database. {_RESTORE}, or remove it to start with a new one"
        )
    log_header = _first_bytes(log, _LOG_HEADER_BYTES)
    # A crash may leave a short header or one of zeros. Then nothing in that log was ever acknowledged.
    torn = len(log_header) < _LOG_HEADER_BYTES or not any(log_header)
    if not torn and not log_header.startswith(_LOG_MAGIC):
        raise StoreUnusable(
            f"{log} is damaged: it has the latest writes to {path.name}. Restore both from a backup"
        )


@contextmanager
def _view(path: Path, log: Path) -> Iterator[sqlite3.Connection]:
    """A connection to the content of the file and its log."""
    if not _size(log):
        uri = f"{path.absolute().as_uri()}?immutable=1"
        with closing(sqlite3.connect(uri, uri=True, isolation_level=None)) as connection:
            yield connection
        return
    with TemporaryDirectory(prefix="tocsin-check-") as scratch:
        copy = Path(scratch) / path.name
        try:
            shutil.copyfile(path, copy)
            shutil.copyfile(log, copy.with_name(log.name))
        except OSError as error:
            raise StoreUnusable(
                f"{path} was not closed properly, and cannot be copied to {scratch} to be checked "
                f"({error.strerror}). Set TMPDIR to a directory with more space"
            ) from error
        with closing(sqlite3.connect(copy, isolation_level=None)) as connection:
            yield connection


def _first_bytes(path: Path, count: int) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(count)
    except FileNotFoundError:
        return b""


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
