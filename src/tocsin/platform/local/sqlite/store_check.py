"""Checks a database file before it is opened, and writes neither to it nor to its directory.

Opening a database would write: SQLite replays the log of a killed process and creates an index file. So a
file with an empty log is opened as `immutable`. A file with a log is copied together with its log, and the
copy is checked.

How much is checked depends on the size, so that a start stays quick. Up to INTEGRITY_BYTES_MAX everything is
checked, including the indexes (231 MB would take 2.5 s). Up to EXAMINE_BYTES_MAX the indexes are left out (231 MB
take 0.2 s). Above that only the headers and the length are checked.
"""

import os
import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from tocsin.errors import StoreUnusable
from tocsin.platform.local.sqlite.migrations import Migration, check
from tocsin.platform.local.sqlite.sqlite_file import connect_to_read

INTEGRITY_BYTES_MAX = 64 * 1024 * 1024
EXAMINE_BYTES_MAX = 256 * 1024 * 1024

_HEADER = b"SQLite format 3\0"
_HEADER_BYTES = 100
_LOG_MAGIC = (bytes.fromhex("377f0682"), bytes.fromhex("377f0683"))
_LOG_HEADER_BYTES = 32
_FRAME_HEADER_BYTES = 24
_RESTORE = "Restore it from a backup"


def examine(path: Path, migrations: Sequence[Migration] | None, *, in_use: bool = False) -> None:
    """Raise if this database cannot be used, or if these migrations cannot be applied to it.

    A database that another process has open (`in_use`) is read through SQLite, which coordinates with that process:
    a copy of its files could mix old and new pages.
    """
    log = path.with_name(path.name + "-wal")
    _check_own(path, log, path.with_name(path.name + "-shm"))
    if not path.exists():
        if _size(log):
            raise StoreUnusable(
                f"{path} is missing but its log {log.name} exists. {_RESTORE}, or remove the log"
            )
        return
    _check_headers(path, log)
    if not in_use:
        _check_length(path, log)
    if path.stat().st_size + _size(log) > EXAMINE_BYTES_MAX:
        return
    view = closing(connect_to_read(path)) if in_use else _view(path, log)
    damage = _damage(view, migrations, path.name)
    if damage is None:
        return
    if not in_use and _size(log) and _damage(_immutable(path), None, path.name) is None:
        raise StoreUnusable(
            f"{path} is damaged together with its log {log.name} ({damage}), but is intact without it. "
            f"If you have restored {path.name} from a backup, the log is left over from before: "
            f"remove {log.name}. If not, restore both from a backup"
        )
    raise StoreUnusable(f"{path} is damaged ({damage}). {_RESTORE}")


def _damage(
    view: AbstractContextManager[sqlite3.Connection], migrations: Sequence[Migration] | None, file_name: str
) -> str | None:
    """What is wrong with the content, in SQLite's words. Raises if only the schema is wrong."""
    try:
        with view as connection:
            (pages,) = connection.execute("PRAGMA page_count").fetchone()
            (page_bytes,) = connection.execute("PRAGMA page_size").fetchone()
            scope = "integrity_check" if pages * page_bytes <= INTEGRITY_BYTES_MAX else "quick_check"
            (verdict,) = connection.execute(f"PRAGMA {scope}(1)").fetchone()
            if verdict != "ok":
                return " ".join(verdict.split())
            if migrations is not None:
                check(connection, migrations, file_name)
    except sqlite3.DatabaseError as error:
        return str(error)
    return None


def _check_own(*files: Path) -> None:
    """Raise if a file is not writable, or is a link, whose target would be overwritten."""
    for file in files:
        if os.path.lexists(file):
            os.close(os.open(file, os.O_RDWR | os.O_NOFOLLOW))


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


def _check_length(path: Path, log: Path) -> None:
    """Raise if the database is not whole pages. A crash may cut the last one, if the log has all of it."""
    header = _first_bytes(path, _HEADER_BYTES)
    page_bytes = int.from_bytes(header[16:18]) if header[16:18] != b"\0\1" else 65536
    if page_bytes < 512:
        raise StoreUnusable(
            f"{path} is not a SQLite database. {_RESTORE}, or remove it to start with a new one"
        )
    pages, rest = divmod(path.stat().st_size, page_bytes)
    if rest and pages + 1 not in _pages_in(log, page_bytes):
        raise StoreUnusable(f"{path} is damaged (the last {page_bytes - rest} bytes are missing). {_RESTORE}")


def _pages_in(log: Path, page_bytes: int) -> set[int]:
    """The numbers of the pages in a log."""
    if not _size(log):
        return set()
    pages = set()
    with log.open("rb") as file:
        salt = file.read(_LOG_HEADER_BYTES)[16:24]
        while len(frame := file.read(_FRAME_HEADER_BYTES + page_bytes)) == _FRAME_HEADER_BYTES + page_bytes:
            if frame[8:16] == salt:  # otherwise it is left over from before the log restarted
                pages.add(int.from_bytes(frame[:4]))
    return pages


@contextmanager
def _view(path: Path, log: Path) -> Iterator[sqlite3.Connection]:
    """A connection to the content of the file and its log."""
    if not _size(log):
        with _immutable(path) as connection:
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
            connection.execute(
                "PRAGMA wal_checkpoint"
            ).fetchall()  # fails if the log does not belong to the database
            yield connection


def _immutable(path: Path) -> AbstractContextManager[sqlite3.Connection]:
    """A connection to the content of the file without its log. It creates no files."""
    return closing(sqlite3.connect(f"{path.absolute().as_uri()}?immutable=1", uri=True, isolation_level=None))


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
