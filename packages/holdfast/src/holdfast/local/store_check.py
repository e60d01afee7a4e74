"""Checks a database file before it is opened, and writes neither to it nor to its directory. It needs no other room.

Opening a database would write: SQLite replays the log of a killed process, and copies it into the database when it
closes. So a file with an empty log is opened as `immutable`. A file with a log is opened with `mode=ro`, which never
copies the log, and with `readonly_shm`, which keeps the index of the log in memory instead of in the `-shm` file.

Only what SQLite calls corrupt (SQLITE_CORRUPT, SQLITE_NOTADB, or a failed integrity check) is damage. A disk that
cannot be read is refused as such. Whatever else prevents the check, such as somebody's lock, says nothing about the
data: then `examine` returns the reason, and the start goes on.

How much is checked depends on the size, so that a start stays quick. Up to INTEGRITY_BYTES_MAX everything is
checked, including the indexes (231 MB would take 2.5 s). Up to EXAMINE_BYTES_MAX the indexes are left out (231 MB
take 0.2 s). Above that only the headers and the length are checked.
"""

import errno
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Literal

from holdfast.errors import StoreUnusable
from holdfast.local.migrations import Migration, check
from holdfast.local.sqlite_file import connect_to_read

INTEGRITY_BYTES_MAX = 64 * 1024 * 1024
EXAMINE_BYTES_MAX = 256 * 1024 * 1024

_HEADER = b"SQLite format 3\0"
_HEADER_BYTES = 100
_LOG_MAGIC = (bytes.fromhex("377f0682"), bytes.fromhex("377f0683"))
_LOG_HEADER_BYTES = 32
_FRAME_HEADER_BYTES = 24
_WAIT_S = 1.0  # somebody may hold the database for a moment
_RESTORE = "Restore it from a backup"


def examine(path: Path, migrations: Sequence[Migration] | None, *, in_use: bool = False) -> str | None:
    """Raise if this database cannot be used, or if these migrations cannot be applied to it.

    Returns why its content could not be checked, or None if it was, or if it is too large for that. A database that
    another process has open (`in_use`) is read through SQLite, which coordinates with that process.
    """
    log = path.with_name(path.name + "-wal")
    _check_own(path, log, path.with_name(path.name + "-shm"))
    if not path.exists():
        if _size(log):
            raise StoreUnusable(
                f"{path} is missing but its log {log.name} exists, which has the latest writes. "
                f"Put {path.name} back, or restore it from a backup; keep the log elsewhere until then"
            )
        return None
    header = _checked_header(path)
    if not in_use:
        _check_log_header(path, log)
        _check_length(path, log, header)
    if path.stat().st_size + _size(log) > EXAMINE_BYTES_MAX:
        return None
    try:
        damage = _damage(path, log, migrations, in_use=in_use)
        if damage is not None:  # or a disk that failed for a moment: read everything, then look again
            _read_through(path)
            _read_through(log)
            damage = _damage(path, log, migrations, in_use=in_use)
    except sqlite3.Error as error:
        if _primary_code(error) == sqlite3.SQLITE_IOERR:
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path)) from error
        return str(error)
    if damage is not None:
        raise StoreUnusable(f"{path} is damaged ({damage}). {_RESTORE}{_and_keep(path, log)}")
    return None


def is_damage(error: sqlite3.Error) -> bool:
    """Whether SQLite blames the content, rather than the disk, the room or another process."""
    return _primary_code(error) in {None, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


def _primary_code(error: sqlite3.Error) -> int | None:
    """SQLite's code. None for a text that cannot be decoded, which the sqlite3 module itself finds."""
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF


def _damage(path: Path, log: Path, migrations: Sequence[Migration] | None, *, in_use: bool) -> str | None:
    """What is wrong with the content, in SQLite's words. Raises if only the schema is wrong."""
    view = closing(connect_to_read(path)) if in_use else _view(path, log)
    try:
        with view as connection:
            (pages,) = connection.execute("PRAGMA page_count").fetchone()
            (page_bytes,) = connection.execute("PRAGMA page_size").fetchone()
            scope = "integrity_check" if pages * page_bytes <= INTEGRITY_BYTES_MAX else "quick_check"
            (verdict,) = connection.execute(f"PRAGMA {scope}(1)").fetchone()
            if verdict != "ok":
                return " ".join(verdict.split())
            if migrations is not None:
                check(connection, migrations, path.name)
    except sqlite3.DatabaseError as error:
        if not is_damage(error):
            raise
        return str(error)
    return None


def _read_through(path: Path) -> None:
    """Raise the error of the disk, if it has one."""
    if path.exists():
        with path.open("rb", buffering=0) as file:
            while file.read(1024 * 1024):
                pass


def _and_keep(path: Path, log: Path) -> str:
    return f", and keep {path.name} and {log.name} until you have" if _size(log) else ""


def _check_own(*files: Path) -> None:
    """Raise if a file is not writable, or is a link, whose target would be overwritten."""
    for file in files:
        if os.path.lexists(file):
            os.close(os.open(file, os.O_RDWR | os.O_NOFOLLOW))


def _checked_header(path: Path) -> bytes:
    """Find damage that SQLite would read as an empty database, and then overwrite."""
    header = _first_bytes(path, _HEADER_BYTES)
    if not header:
        raise StoreUnusable(f"{path} is empty: its content is lost. {_RESTORE}, or remove it to start with a new one")
    if len(header) < _HEADER_BYTES or not header.startswith(_HEADER) or _page_bytes(header) < 512:
        raise StoreUnusable(f"{path} is not a SQLite database. {_RESTORE}, or remove it to start with a new one")
    return header


def _page_bytes(header: bytes) -> int:
    return int.from_bytes(header[16:18]) if header[16:18] != b"\0\1" else 65536


def _check_log_header(path: Path, log: Path) -> None:
    """Find damage that SQLite would read as an empty log, and then overwrite."""
    log_header = _first_bytes(log, _LOG_HEADER_BYTES)
    # A crash may leave a short header or one of zeros. Then nothing in that log was ever acknowledged.
    torn = len(log_header) < _LOG_HEADER_BYTES or not any(log_header)
    if not torn and not _is_log_header(log_header):
        raise StoreUnusable(
            f"{log} is damaged: it has the latest writes to {path.name}. Restore both from a backup, "
            "and keep the damaged files until you have"
        )


def _is_log_header(header: bytes) -> bool:
    """Whether SQLite reads a log that begins so. It ignores any other, and overwrites it."""
    if not header.startswith(_LOG_MAGIC):
        return False
    order: Literal["little", "big"] = "big" if header[3] & 1 else "little"
    sums = [0, 0]
    for at in range(0, 24, 8):
        for half in (0, 1):
            word = int.from_bytes(header[at + 4 * half : at + 4 * half + 4], order)
            sums[half] = (sums[half] + word + sums[1 - half]) & 0xFFFF_FFFF
    return header[24:32] == sums[0].to_bytes(4) + sums[1].to_bytes(4)


def _check_length(path: Path, log: Path, header: bytes) -> None:
    """Raise if the database is not whole pages, or lacks pages that its log refers to."""
    page_bytes = _page_bytes(header)
    in_log, pages_max = _pages_in(log, page_bytes)
    pages, rest = divmod(path.stat().st_size, page_bytes)
    if rest and pages + 1 not in in_log:  # a crash may cut the last page, if the log has all of it
        raise StoreUnusable(f"{path} is damaged (the last {page_bytes - rest} bytes are missing). {_RESTORE}")
    # SQLite's own bound. It refuses such a log too, but only when it copies it.
    if pages_max * page_bytes > path.stat().st_size + _size(log) + 65536:
        raise StoreUnusable(
            f"{path} is damaged (its log refers to {pages_max} pages, the database has {pages}). "
            f"{_RESTORE}{_and_keep(path, log)}"
        )


def _pages_in(log: Path, page_bytes: int) -> tuple[set[int], int]:
    """The numbers of the pages in a log, and the most pages that the database has after one of its commits."""
    pages, pages_max = set[int](), 0
    if _size(log):
        with log.open("rb") as file:
            salt = file.read(_LOG_HEADER_BYTES)[16:24]
            whole = _FRAME_HEADER_BYTES + page_bytes
            while len(frame := file.read(whole)) == whole:
                if frame[8:16] == salt:  # otherwise it is left over from before the log restarted
                    pages.add(int.from_bytes(frame[:4]))
                    pages_max = max(pages_max, int.from_bytes(frame[4:8]))
    return pages, pages_max


@contextmanager
def _view(path: Path, log: Path) -> Iterator[sqlite3.Connection]:
    """A connection to the content of the file and its log. It leaves no files."""
    if _size(log) <= _LOG_HEADER_BYTES:  # with a header alone, SQLite would wait for the index for ten seconds
        with closing(_open(path, "immutable=1")) as connection:
            yield connection
        return
    index = path.with_name(path.name + "-shm")
    made = not index.exists()
    if made:  # SQLite does not read it, but wants it to exist; after kill -9 it does
        index.touch(0o600)
    try:
        with closing(_open(path, "mode=ro&readonly_shm=1")) as connection:
            yield connection
    finally:
        if made and not _size(index):  # not empty: another process has opened the database meanwhile
            index.unlink(missing_ok=True)


def _open(path: Path, options: str) -> sqlite3.Connection:
    uri = f"{path.absolute().as_uri()}?{options}"
    return sqlite3.connect(uri, uri=True, isolation_level=None, timeout=_WAIT_S)


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
