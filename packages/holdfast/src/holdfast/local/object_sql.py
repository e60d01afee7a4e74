"""`storage.sql`: each object has a SQLite database of its own, which becomes durable with the object's turns.

While the object uses it, the database is a file next to the shared one. At the end of a turn, SQLite commits to the log
of that file. The pages that it appended there go into the shared file, in the transaction that stores the entries and
the alarm of the turn: one sync makes everything durable, and nothing can be torn.

The shared file is the truth, and has every page. The file of an object is only a copy, never synced and never trusted
by another process: the first use in a process writes it anew from the shared file, and so does the first use after a
turn that reached the copy but not the shared file. Therefore a backup of the shared file is complete, too.
"""

import os
import resource
import shutil
import sqlite3
import struct
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

from holdfast.errors import ObjectReset, StoreUnavailable, UsageError
from holdfast.local.database import D1_LIMITS, as_bound
from holdfast.local.migrations import split
from holdfast.local.sqlite_file import translated
from holdfast.local.turns import HostObject, ObjectUnwound
from holdfast.sql import SqlCursor
from holdfast.statements import ALLOWED_PRAGMAS, IN_OBJECTS, STATEMENTS_MAX, Value, bound, first_word, refuse_reserved

PAGE_BYTES = 1024  # three pages fit into one of the shared file; with 4,096 bytes each would need two
LOG_BYTES_MAX = 4 * 1024 * 1024  # SQLite then copies the log into the file, and begins a new one
CACHE_KB = 500  # memory that each open database may take
_HANDLES = resource.getrlimit(resource.RLIMIT_NOFILE)[0]  # negative if there is no limit
OPEN_MAX = 256 if _HANDLES < 0 else min(256, _HANDLES // 8)  # databases that are open at once, with three handles each

_PRAGMAS = (
    "locking_mode = EXCLUSIVE",  # before the first access: then the index of the log needs no file
    f"page_size = {PAGE_BYTES}",
    "synchronous = OFF",
    "journal_mode = WAL",
    "wal_autocheckpoint = 0",
    f"cache_size = -{CACHE_KB}",
    "foreign_keys = ON",
)
_FRAME = struct.Struct(">II16x")  # the number of the page; pages of the database after a commit, or 0
_FRAME_BYTES = _FRAME.size + PAGE_BYTES
_LOG_HEADER_BYTES = 32
_OUR_PRAGMAS = frozenset(("page_count", "data_version"))  # the second is that of full-text search
_READS = frozenset(("SELECT", "VALUES", "EXPLAIN"))
_TEMPORARY = frozenset(
    (
        sqlite3.SQLITE_CREATE_TEMP_INDEX,
        sqlite3.SQLITE_CREATE_TEMP_TABLE,
        sqlite3.SQLITE_CREATE_TEMP_TRIGGER,
        sqlite3.SQLITE_CREATE_TEMP_VIEW,
    )
)


class PageStore(Protocol):
    """The shared file."""

    crash_point: Callable[[str, sqlite3.Connection], None]

    def read_pages(self, object_id: str) -> Iterable[tuple[int, bytes]]: ...


class SqlFiles:
    """The open databases of the objects of one process, and the directory of their files."""

    def __init__(self, directory: Path, store: PageStore) -> None:
        self.directory = directory
        self.store = store
        self.current: set[str] = set()  # objects whose file has exactly the pages of the shared file
        self.open: dict[str, ObjectSql] = {}  # the least recently used first

    def remove(self) -> None:
        """Remove all files: nobody reads those of another process."""
        if self.directory.exists():
            shutil.rmtree(self.directory)

    def make_room(self) -> None:
        """Close the databases that were not used for the longest time, until one more may be opened."""
        for sql in list(self.open.values()):
            if len(self.open) < OPEN_MAX:
                return
            sql.close_if_idle()

    def write(self, path: Path, pages: Iterable[tuple[int, bytes]]) -> None:
        """Write the file of an object anew."""
        self.directory.mkdir(mode=0o700, exist_ok=True)
        _log_of(path).unlink(missing_ok=True)
        path.unlink(missing_ok=True)
        count = last = 0
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            for number, content in pages:
                if number == 1:
                    count = int.from_bytes(content[28:32])
                if number != last + 1:  # each seek would write what is buffered
                    file.seek((number - 1) * PAGE_BYTES)
                file.write(content)
                last = number
            file.truncate(count * PAGE_BYTES)  # SQLite never wrote the last pages if they were free again at the commit


class ObjectSql:
    """`ctx.storage.sql` of one live object. `layers` are the storage's: the turn, then each open transaction."""

    def __init__(self, files: SqlFiles, object_id: str, host: HostObject, layers: list[Any]) -> None:
        self._files = files
        self._object = object_id
        self._host = host
        self._layers = layers
        self._path = files.directory / f"{object_id}.sqlite"
        self._db: sqlite3.Connection | None = None
        self._log_fd = -1
        self._log_bytes = 0
        self._log_read = 0  # of these, how many have pages that the shared file has, or gets in this turn
        self._savepoints = 0  # one for each open transaction that may have to be rolled back here
        self._cleared = False  # by delete_all(), in this turn
        self._ahead = False  # the file has what the shared file does not have (yet)

    # For the object

    def exec(self, query: str, /, *values: Value) -> SqlCursor:
        """Run one statement or several; only the last takes values, and its rows are returned."""
        statements, reads = _statements(query)
        bindings = bound(values)
        db = self._opened()
        if not reads:
            self._begin(db)
        began, changes = db.in_transaction, db.total_changes
        statement = ""
        try:
            for statement in statements[:-1]:
                db.execute(statement).fetchall()
            statement = statements[-1]
            cursor = db.execute(statement, as_bound(statement, bindings))
            rows = cursor.fetchall()
        except sqlite3.Error as error:
            if began and not db.in_transaction:  # a full disk, or ON CONFLICT ROLLBACK
                self._host.reset(ObjectReset(f"SQLite rolled back the turn, so the object was reset: {error}"))
                raise ObjectUnwound from error
            raise _explained(error, statement) from error
        names = [column[0] for column in cursor.description or ()]
        return SqlCursor(names, rows, rows_read=len(rows), rows_written=db.total_changes - changes)

    @property
    def database_size(self) -> int:
        """The size of the database in bytes."""
        (pages,) = self._opened().execute("PRAGMA page_count").fetchone()
        return int(pages) * PAGE_BYTES

    # For the storage

    def end_turn(self) -> dict[int, bytes]:
        """Commit to the file. Returns the changed pages, for the shared file."""
        db = self._db
        if db is None or not db.in_transaction:
            return {}
        was_ahead, self._ahead = self._ahead, True
        db.execute("COMMIT")
        pages = self._changed_pages()
        self._ahead = was_ahead or bool(pages)
        self._files.store.crash_point("after sql commit", db)
        return pages

    def turn_committed(self) -> None:
        """The shared file has the pages, too."""
        if self._ahead:
            self._ahead = self._cleared = False
            if self._db is not None:
                self._files.current.add(self._object)
                if self._log_bytes > LOG_BYTES_MAX:
                    self.close()

    def drop(self, transaction: int) -> None:
        """Roll back this transaction of the storage, and those inside it. The outermost has number 1."""
        if self._db is not None and self._savepoints >= transaction:
            self._db.execute(f"ROLLBACK TO _{transaction}")
            self.merge(transaction)

    def merge(self, transaction: int) -> None:
        if self._db is not None and self._savepoints >= transaction:
            self._db.execute(f"RELEASE _{transaction}")
            self._savepoints = transaction - 1

    def clear(self) -> None:
        """Begin an empty database, as part of the turn."""
        self._ahead = self._cleared = True
        self.close()

    def close_if_idle(self) -> None:
        if self._db is not None and not self._db.in_transaction and not self._ahead:
            self.close()

    # The file

    def _opened(self) -> sqlite3.Connection:
        self._host.check_alive()
        opened = self._files.open
        if self._db is None:
            self._files.make_room()
            self._open()
        else:
            del opened[self._object]
        opened[self._object] = self
        assert self._db is not None
        return self._db

    def _open(self) -> None:
        try:
            if self._object not in self._files.current or not self._path.exists():
                self._files.current.discard(self._object)
                pages = () if self._cleared else self._files.store.read_pages(self._object)
                self._files.write(self._path, pages)
            self._db = self._connect()
        except (OSError, sqlite3.Error) as error:
            raise StoreUnavailable(
                f"the tables cannot be used: {self._path.parent} needs room and handles ({error}); try again later"
            ) from error
        self._log_read = _LOG_HEADER_BYTES
        if not self._cleared:
            self._files.current.add(self._object)

    def _connect(self) -> sqlite3.Connection:
        db = sqlite3.connect(
            self._path, timeout=0, isolation_level=None, check_same_thread=False, cached_statements=STATEMENTS_MAX
        )
        try:
            for pragma in _PRAGMAS:
                db.execute(f"PRAGMA {pragma}")
            for category, limit in D1_LIMITS.items():
                db.setlimit(category, limit)
            db.execute("SELECT 1 FROM sqlite_schema").fetchone()  # creates the log
            db.set_authorizer(_authorize)
            self._log_fd = os.open(_log_of(self._path), os.O_RDONLY)
        except BaseException:
            db.close()
            raise
        return db

    def _begin(self, db: sqlite3.Connection) -> None:
        """Begin a transaction that ends with the turn, and a savepoint for each open one of the storage."""
        if not db.in_transaction:
            db.execute("BEGIN")
            self._host.wrote()
        while self._savepoints < len(self._layers) - 1:
            self._savepoints += 1
            db.execute(f"SAVEPOINT _{self._savepoints}")

    def _changed_pages(self) -> dict[int, bytes]:
        """The pages of the log that are new up to its last commit.

        Behind that there may be pages of a large transaction that was rolled back, which SQLite overwrites later.
        """
        self._log_bytes = os.fstat(self._log_fd).st_size
        count = max(0, self._log_bytes - self._log_read)
        new = os.pread(self._log_fd, count, self._log_read)
        if len(new) < count:  # Linux reads 2 GB at once
            raise OSError(f"a turn changed {count:,} bytes of its tables, which is too much for one transaction")
        pages, uncommitted, end = dict[int, bytes](), dict[int, bytes](), 0
        for at in range(0, len(new) - _FRAME_BYTES + 1, _FRAME_BYTES):
            number, committed = _FRAME.unpack_from(new, at)
            uncommitted[number] = new[at + _FRAME.size : at + _FRAME_BYTES]
            if committed:
                pages |= uncommitted
                uncommitted = {}
                end = at + _FRAME_BYTES
        self._log_read += end
        return pages

    def close(self) -> None:
        """Close the file, without what was not committed.

        SQLite copies the log into it and removes the log, unless the disk is full.
        """
        self._files.open.pop(self._object, None)
        if self._db is not None:
            db, self._db, self._savepoints = self._db, None, 0
            with suppress(sqlite3.Error):
                db.rollback()
            db.close()
            os.close(self._log_fd)
            self._ahead = self._ahead or _log_of(self._path).exists()
        if self._ahead and self._object in self._files.current:
            self._files.current.remove(self._object)
            self._path.unlink(missing_ok=True)


def _log_of(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


@lru_cache(maxsize=STATEMENTS_MAX)
def _statements(query: str) -> tuple[list[str], bool]:
    """The statements of a query, and whether all of them only read."""
    statements = split(query)
    if not statements:
        raise UsageError("SQL code did not contain a statement.")
    for statement in statements:
        refuse_reserved(statement, IN_OBJECTS)
    return statements, all(first_word(statement) in _READS for statement in statements)


def _authorize(action: int, first: str | None, second: str | None, _database: str | None, _trigger: str | None) -> int:
    """SQLite asks this about each part of a statement, when it compiles it."""
    if action == sqlite3.SQLITE_PRAGMA:
        allowed = str(first).lower() in ALLOWED_PRAGMAS | _OUR_PRAGMAS
    else:
        names = (first or "", second or "")
        allowed = action not in _TEMPORARY and not any(name[:4].lower() == "_cf_" for name in names)
    return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY


def _explained(error: sqlite3.Error, statement: str) -> Exception:
    subject = f"SQL: {' '.join(statement.split())[:80]}"
    if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_AUTH:
        refused = "temporary tables, this pragma, and names that begin with _cf_ are the platform's"
        return UsageError(f"{subject}: {refused} ({error})")
    return translated(error, subject, "the statement changed nothing")
