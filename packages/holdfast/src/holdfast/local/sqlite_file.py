"""One SQLite file: creating and opening it, its thread, and its errors as ours."""

import asyncio
import fcntl
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

from holdfast.errors import ConstraintViolated, StoreError, StoreUnavailable, UsageError
from holdfast.statements import constraint_kind

T = TypeVar("T")

SYNCS = True  # False in tests that need no disk: nothing then survives a power cut
STATEMENTS_KEPT = 512  # prepared statements per connection: more than the service has
_PRAGMAS = (
    "journal_mode = WAL",  # a reader never waits for the writer, nor the writer for a reader
    "synchronous = FULL",  # a commit that returned survives a power cut; one fsync each
    "fullfsync = ON",  # the same on macOS, where fsync alone is not enough; no effect elsewhere
    "foreign_keys = ON",  # as on D1; SQLite's own default is off
    "busy_timeout = 5000",  # ms; a backup or an operator's shell may hold the file for a moment
    "journal_size_limit = 16777216",  # bytes; the log shrinks again after many writes
)

_UNAVAILABLE = frozenset(
    (
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_INTERRUPT,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_NOTADB,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_PROTOCOL,
        sqlite3.SQLITE_READONLY,
    )
)


def create(path: Path) -> None:
    """Create an empty database that only this user can read. It appears complete or not at all.

    Therefore a database file of zero bytes is always damaged, and never left by a first start that was
    killed. SQLite gives the files that it adds the permissions of the database.
    """
    draft = path.with_name(path.name + ".new")
    draft.unlink(missing_ok=True)
    os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    with closing(sqlite3.connect(draft)) as connection:
        connection.execute(f"PRAGMA synchronous = {'FULL' if SYNCS else 'OFF'}")
        connection.execute("PRAGMA journal_mode = WAL")  # writes and syncs the first page
    draft.rename(path)
    sync_directory(path.parent)


def sync_file(fd: int) -> None:
    """Make the content of a file survive a power cut."""
    if not SYNCS:
        return
    full_sync: int | None = getattr(fcntl, "F_FULLFSYNC", None)
    if full_sync is not None:  # macOS: its fsync leaves the data in the drive's cache
        try:
            fcntl.fcntl(fd, full_sync)
        except OSError:  # a file system without it, as SQLite also assumes
            os.fsync(fd)
    elif hasattr(os, "fdatasync"):
        os.fdatasync(fd)
    else:
        os.fsync(fd)


def sync_directory(path: Path) -> None:
    """Make the names of new files in a directory survive a power cut."""
    if not SYNCS:
        return
    directory = os.open(path, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def connect(path: Path, *, query_only: bool = False) -> sqlite3.Connection:
    """Open an existing database. Transactions are explicit. Only one thread at a time may use it."""
    uri = f"{path.absolute().as_uri()}?mode=rw"
    connection = sqlite3.connect(
        uri, uri=True, isolation_level=None, check_same_thread=False, cached_statements=STATEMENTS_KEPT
    )
    try:
        for pragma in (*_PRAGMAS, "query_only = ON") if query_only else _PRAGMAS:
            connection.execute(f"PRAGMA {pragma}")
        if not SYNCS:
            connection.execute("PRAGMA synchronous = OFF")
    except sqlite3.Error:  # such as a damaged file
        connection.close()
        raise
    return connection


def connect_to_read(path: Path) -> sqlite3.Connection:
    """Open a database for reading. Another process may have it open. Creates no files.

    There is a log next to the database while a process has it open, or after that process was killed. Without a log
    no process writes, and SQLite does not need to create its own files to coordinate with one.
    """
    mode = "mode=ro" if path.with_name(path.name + "-wal").exists() else "immutable=1"
    return sqlite3.connect(f"{path.absolute().as_uri()}?{mode}", uri=True, isolation_level=None)


def after_all_with(prefix: str) -> str | bytes:
    """The least upper bound of all names with this prefix. UTF-8 sorts like code points."""
    head = prefix.rstrip("\U0010ffff")
    if not head:
        return b""  # SQLite sorts any blob after any text
    last = ord(head[-1]) + 1
    return head[:-1] + chr(0xE000 if last == 0xD800 else last)  # valid text has no surrogates


class SqliteThread:
    """A connection and the one thread that uses it.

    A job runs completely or not at all: if the task that waits for it is cancelled, a job that has not
    started is removed from the queue, and one that has started finishes. A transaction that a failed job
    left open is rolled back.
    """

    def __init__(
        self, path: Path, *, query_only: bool = False, limits: Mapping[int, int] = MappingProxyType({})
    ) -> None:
        self._path = path
        self._interrupt_at_close = query_only
        self._connection = connect(path, query_only=query_only)
        for category, limit in limits.items():
            self._connection.setlimit(category, limit)
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=f"{path.stem}-{'r' if query_only else 'w'}")
        self._closed = False
        self.refusal: str | None = None  # why no job is accepted at the moment

    async def run(self, job: Callable[[sqlite3.Connection], T]) -> T:
        if self._closed:
            raise StoreUnavailable(f"{self._path.name} is closed: the process is stopping")
        if self.refusal is not None:
            raise StoreUnavailable(self.refusal)
        return await asyncio.get_running_loop().run_in_executor(self._executor, self._run_whole, job)

    def _run_whole(self, job: Callable[[sqlite3.Connection], T]) -> T:
        try:
            return job(self._connection)
        finally:
            if self._connection.in_transaction:
                self._connection.rollback()

    async def close(self) -> None:
        """Finish the accepted writes, interrupt a read, close the file."""
        if self._closed:
            return
        self._closed = True
        if self._interrupt_at_close:
            self._connection.interrupt()
        await asyncio.get_running_loop().run_in_executor(self._executor, self._connection.close)
        self._executor.shutdown(wait=False)


@contextmanager
def store_errors(subject: str) -> Iterator[None]:
    """Raise SQLite's errors as ours. `subject` names the operation, without its values."""
    try:
        yield
    except sqlite3.Error as error:
        raise translated(error, subject) from error


def translated(
    error: sqlite3.Error, subject: str, effect: str = "nothing of the call was written"
) -> StoreError | UsageError:
    """SQLite's error as one of ours."""
    code = getattr(error, "sqlite_errorcode", None)
    text = str(error)
    if code is None:  # an error of the sqlite3 module itself, before SQLite was called
        if "closed" in text:
            return StoreUnavailable(f"{subject}: the database is closed, the process is stopping")
        return UsageError(f"{subject}: {text}")
    primary = code & 0xFF
    if primary == sqlite3.SQLITE_CONSTRAINT:
        return ConstraintViolated(f"{subject}: {text}; {effect}", constraint_kind(text))
    if primary in _UNAVAILABLE:
        return StoreUnavailable(f"{subject}: {text}; {effect}, try again later")
    return StoreError(f"{subject}: {text}; {effect}")
