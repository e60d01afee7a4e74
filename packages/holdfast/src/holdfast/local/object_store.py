"""The file in which all objects keep their entries, alarms and tables: one SQLite database, one writer.

`commit` adds one object's turn to the open transaction. The next callback of the loop ends the transaction: turns that
end together share it, as most of its cost does not depend on what is in it. If it fails, all of them are undone. One
sync of the log then makes all commits so far durable, and wakes the callers of `durable`. SQLite does the same with
synchronous=FULL, but there each transaction waits for its own sync.

After a failed sync the content of the log on disk is unknown. The store then refuses all further work and
calls `on_fatal`; the process should be restarted.
"""

import asyncio
import contextlib
import os
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.errors import StoreUnavailable
from holdfast.local import sqlite_file
from holdfast.local.alarms import Alarm
from holdfast.local.object_id import LocalObjectId
from holdfast.local.object_sql import SqlFiles
from holdfast.local.sqlite_file import connect, sync_directory, sync_file
from holdfast.types import Logger

OBJECT_MIGRATIONS = Path(__file__).parent / "sql" / "objects"
QUICK_DISK_S = 0.001  # a sync that takes less is done on the loop
CHECKPOINT_BYTES = 4 * 1024 * 1024  # of a log that is copied into the database; SQLite cuts it to this when it restarts
LOG_RESTART_BYTES = 32 * 1024 * 1024  # of a log for whose copy the writer waits


@dataclass(slots=True, eq=False)
class Changes:
    """What one turn or transaction changed. A value of None is a deleted key. `cleared` applies before all else.

    `pages` are those of the object's own database, by number.
    """

    cleared: bool = False
    entries: dict[str, str | None] = field(default_factory=dict)
    alarm: Alarm | None = None
    alarm_changed: bool = False
    pages: dict[int, bytes] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return self.cleared or self.alarm_changed or bool(self.entries) or bool(self.pages)

    def absorb(self, later: "Changes") -> None:
        if later.cleared:
            self.cleared = True
            self.entries.clear()
        self.entries.update(later.entries)
        if later.alarm_changed:
            self.alarm, self.alarm_changed = later.alarm, True


_FORWARD = "SELECT key, value FROM entries WHERE object = ? AND key >= ? AND key < ? ORDER BY key"
_BACKWARD = f"{_FORWARD} DESC"

# The place of a page has the number of its object in the upper half, and its own in the lower.
_PLACES = """place BETWEEN (SELECT number << 32 FROM sql_files WHERE object = ?)
  AND (SELECT (number << 32) + 0xFFFFFFFF FROM sql_files WHERE object = ?)"""
_PAGES = f"SELECT place & 0xFFFFFFFF, content FROM sql_pages WHERE {_PLACES} ORDER BY place"  # noqa: S608 - a constant
_NEW_FILE = "INSERT INTO sql_files (object) VALUES (?)"


class ObjectStore:
    """Opens on the running loop. Reads and commits run on it, slow syncs and checkpoints in threads."""

    def __init__(self, path: Path, *, logger: Logger, on_fatal: Callable[[OSError], None]) -> None:
        self._path = path
        self._logger = logger
        self._on_fatal = on_fatal
        # For tests: called with a name at each step of a commit; may raise, or kill the process.
        self.crash_point: Callable[[str, sqlite3.Connection], None] = lambda _step, _connection: None
        self.commits = 0  # turns of this process, with those of the open transaction
        self.ended = 0  # of these, those of transactions that have ended
        self._undo: list[Callable[[BaseException], None]] = []  # for each turn of the open transaction, if it fails
        self.synced = 0  # of these, how many are durable
        self._waiters: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._syncing = False
        self._disk_s = 0.0  # how long a sync takes: the slowest recent one, decaying
        self._copying: asyncio.Future[None] | None = None
        self._copy_above = CHECKPOINT_BYTES  # the size of the log at which it is copied again
        self._fatal: OSError | None = None
        self.refusal: str | None = None  # why no commit is accepted at the moment

    def open(self) -> None:
        """Open the file. It must exist and have OBJECT_MIGRATIONS, as a DataDir provides it."""
        self._loop = asyncio.get_running_loop()
        self._db = _connect(self._path)
        # This query creates the log's file. Its name must survive a power cut.
        (newest,) = self._db.execute("SELECT coalesce(max(generation), 0) FROM alarms").fetchone()
        sync_directory(self._path.parent)
        self._log_fd = os.open(f"{self._path}-wal", os.O_RDONLY)
        self.sql_files = SqlFiles(self._path.with_name(f"{self._path.stem}-sql"), self)
        self.sql_files.remove()
        self._checkpointer = _connect(self._path)
        self._threads = ThreadPoolExecutor(max_workers=2, thread_name_prefix="object-store")
        self._generation: int = newest

    def next_generation(self) -> int:
        self._generation += 1
        return self._generation

    # Reading

    def read(self, object_id: str, key: str) -> str | None:
        try:
            row = self._db.execute(
                "SELECT value FROM entries WHERE object = ? AND key = ?", (object_id, key)
            ).fetchone()
        except sqlite3.OperationalError as error:
            raise self._explained(error, f"the value of the entry {key!r}") from error
        return None if row is None else row[0]

    def read_range(
        self, object_id: str, start: str, end: str | bytes, *, reverse: bool = False
    ) -> Iterator[tuple[str, str]]:
        """Entries from `start` (included) to `end` (excluded), in the byte order of their keys or against it."""
        last = None
        try:
            for last in self._db.execute(_BACKWARD if reverse else _FORWARD, (object_id, start, end)):
                yield last
        except sqlite3.OperationalError as error:
            where = "the first entry" if last is None else f"the entry after {last[0]!r}"
            raise self._explained(error, f"{where} of a list") from error

    def unreadable(self, what: str, error: Exception) -> StoreUnavailable:
        """The error for something stored that this code cannot have written."""
        return StoreUnavailable(
            f"{self._path} is damaged: {what} cannot be read ({error}). "
            f"Restore {self._path.name} from a backup, or remove this row of its table entries"
        )

    def _explained(self, error: sqlite3.OperationalError, what: str) -> Exception:
        """The error with the place, if it is about a text that is not UTF-8: then it is not SQLite's."""
        return error if hasattr(error, "sqlite_errorcode") else self.unreadable(what, error)

    def read_alarm(self, object_id: str) -> Alarm | None:
        row = self._db.execute("SELECT * FROM alarms WHERE object = ?", (object_id,)).fetchone()
        return None if row is None else Alarm(*row[3:])

    def read_alarms(self) -> list[tuple[LocalObjectId, Alarm]]:
        rows = self._db.execute("SELECT * FROM alarms ORDER BY due_at")
        return [(LocalObjectId(*row[:3]), Alarm(*row[3:])) for row in rows]

    def read_pages(self, object_id: str) -> Iterator[tuple[int, bytes]]:
        """The pages of the object's own database, in order."""
        return self._db.execute(_PAGES, (object_id, object_id))

    # Writing

    def commit(
        self, owner: LocalObjectId, changes: Changes, undo: Callable[[BaseException], None] = lambda _error: None
    ) -> int:
        """Apply one turn, all or nothing. Returns the commit's number, for `durable`.

        Reads see it from now on. If the transaction fails later, `undo` is called with the error.
        """
        self._check_accepted()
        try:
            if not self._undo:
                self._db.execute("BEGIN IMMEDIATE")
                self._loop.call_soon(self.flush_quietly)
            self._apply(owner, changes)
        except BaseException as error:
            self._roll_back(error)
            raise
        self._undo.append(undo)
        self.commits += 1
        return self.commits

    def flush(self) -> None:
        """End the open transaction now. If that fails, it raises after all turns of the transaction are undone."""
        if not self._undo:
            return
        try:
            self._check_accepted()
            self.crash_point("before commit", self._db)
            self._db.execute("COMMIT")
            self.crash_point("after commit", self._db)
        except BaseException as error:
            self._roll_back(error)
            raise
        self._undo.clear()
        self._transaction_ended()

    def flush_quietly(self) -> None:
        """The same, for those who learn of a failure from `undo`."""
        with contextlib.suppress(Exception):
            self.flush()

    def _roll_back(self, error: BaseException) -> None:
        with contextlib.suppress(sqlite3.Error):
            self._db.execute("ROLLBACK")
        undo, self._undo = self._undo, []
        for each in reversed(undo):
            each(error)
        self._transaction_ended()

    def _transaction_ended(self) -> None:
        """Let the sync cover its commits. It wakes those who wait for undone ones, too: their objects were reset."""
        self.ended = self.commits
        if not self._syncing and self.ended > self.synced:
            self._syncing = True
            self._sync()

    def _check_accepted(self) -> None:
        if self._fatal is not None:
            raise self._fatal
        if self.refusal is not None:
            raise OSError(self.refusal)

    def _apply(self, owner: LocalObjectId, changes: Changes) -> None:
        db, object_id = self._db, owner.hex
        if changes.cleared:
            db.execute("DELETE FROM entries WHERE object = ?", (object_id,))
            db.execute(f"DELETE FROM sql_pages WHERE {_PLACES}", (object_id, object_id))  # noqa: S608 - a constant
            db.execute("DELETE FROM sql_files WHERE object = ?", (object_id,))
        entries = changes.entries.items()
        written = [(object_id, key, value) for key, value in entries if value is not None]
        if len(written) < len(entries):
            deleted = [(object_id, key) for key, value in entries if value is None]
            db.executemany("DELETE FROM entries WHERE object = ? AND key = ?", deleted)
        if written:
            db.executemany("INSERT OR REPLACE INTO entries VALUES (?, ?, ?)", written)
        if changes.pages:
            self._apply_pages(object_id, changes.pages)
        if changes.alarm_changed:
            if changes.alarm is None:
                db.execute("DELETE FROM alarms WHERE object = ?", (object_id,))
            else:
                row = (owner.hex, owner.namespace, owner.name, *changes.alarm)  # in the order of the columns
                db.execute("INSERT OR REPLACE INTO alarms VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)

    def _apply_pages(self, object_id: str, pages: dict[int, bytes]) -> None:
        found = self._db.execute("SELECT number FROM sql_files WHERE object = ?", (object_id,)).fetchone()
        number = found[0] if found else self._db.execute(_NEW_FILE, (object_id,)).lastrowid
        assert number is not None
        rows = [(number << 32 | page, content) for page, content in pages.items()]
        self._db.executemany("INSERT OR REPLACE INTO sql_pages VALUES (?, ?)", rows)

    # Durability

    def durable(self, commit: int) -> "asyncio.Future[None] | None":
        """A future that is done when this commit is on disk, or None if it already is."""
        if commit <= self.synced:
            return None
        future = self._loop.create_future()
        if self._fatal is not None:
            future.set_exception(self._fatal)
        else:
            self._waiters.append((commit, future))
        return future

    def _sync(self) -> None:
        """Make everything committed so far durable. A callback of the loop: an error must not leave it."""
        target = self.ended
        try:
            self.crash_point("before sync", self._db)
            if self._disk_s < QUICK_DISK_S:
                # With a quick disk, switching to a thread and back takes longer than the sync.
                self._synced(target, _timed_sync(self._log_fd))
            else:
                job = self._loop.run_in_executor(self._threads, _timed_sync, self._log_fd)
                job.add_done_callback(lambda done: self._sync_ended(target, done))
        except Exception as error:  # noqa: BLE001 - it reaches every caller that waits
            self._fail(error)

    def _sync_ended(self, target: int, job: "asyncio.Future[float]") -> None:
        """Continue `_sync` after a sync in the thread."""
        try:
            took_s = job.result()
            self.flush_quietly()  # the log cannot restart while one is open
            self._synced(target, took_s)
        except Exception as error:  # noqa: BLE001 - as above
            self._fail(error)

    def _synced(self, target: int, took_s: float) -> None:
        self.crash_point("after sync", self._db)
        # One slow sync moves the syncs into the thread; they return to the loop when they stay quick.
        self._disk_s = max(took_s, self._disk_s * 0.98)
        self.synced = target
        while self._waiters and self._waiters[0][0] <= target:
            _, future = self._waiters.popleft()
            if not future.done():
                future.set_result(None)
        if self.ended > target:
            self._sync()
        else:
            self._syncing = False
        log_bytes = os.fstat(self._log_fd).st_size
        if log_bytes <= CHECKPOINT_BYTES:  # it has restarted
            self._copy_above = CHECKPOINT_BYTES
        if log_bytes > self._copy_above:
            self._checkpoint(log_bytes)

    def _fail(self, error: Exception) -> None:
        """Refuse all further work, permanently."""
        if self._fatal is not None:
            return
        if isinstance(error, OSError):
            fatal = error
        else:
            fatal = OSError(f"{type(error).__name__}: {error}")
            fatal.__cause__ = error
        self._fatal = fatal
        for _, future in self._waiters:
            if not future.done():
                future.set_exception(fatal)
        self._waiters.clear()
        self._on_fatal(fatal)

    def _checkpoint(self, log_bytes: int) -> None:
        """Copy the log into the database, so that the log can restart instead of growing.

        A failure loses nothing: the log has every write, and a later commit tries again.
        """
        if self._copying is not None and not self._copying.done():
            return
        self._copy_above = log_bytes + CHECKPOINT_BYTES
        if log_bytes > LOG_RESTART_BYTES:
            # Under constant load the copy in the thread never catches up. Here the writer waits for it, but not for a
            # reader, such as a backup: this is the event loop.
            try:
                _restart_log(self._db)
            except sqlite3.Error as error:
                self._checkpoint_failed(error)
        else:
            self._copying = self._loop.run_in_executor(self._threads, _copy_log, self._checkpointer)
            self._copying.add_done_callback(self._copied)

    def _copied(self, job: "asyncio.Future[None]") -> None:
        error = job.exception()
        if error is not None:
            self._checkpoint_failed(error)

    def _checkpoint_failed(self, error: BaseException) -> None:
        self._logger.warning("store.checkpoint_failed", error=repr(error))

    async def close(self) -> None:
        self.flush_quietly()
        while self._syncing and self._fatal is None:
            waiting = self.durable(self.commits)
            if waiting is None:
                break
            await waiting
        if self._copying is not None:
            await asyncio.wait([self._copying])
        self._threads.shutdown()
        self.sql_files.remove()
        self._checkpointer.close()
        self._db.close()
        os.close(self._log_fd)


def _timed_sync(fd: int) -> float:
    """Sync the file; returns how many seconds that took."""
    began_at = time.perf_counter()
    sync_file(fd)
    return time.perf_counter() - began_at


def _copy_log(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()


def _restart_log(connection: sqlite3.Connection) -> bool:
    """Copy the whole log and restart it; False if somebody still reads from it."""
    (wait_ms,) = connection.execute("PRAGMA busy_timeout").fetchone()
    connection.execute("PRAGMA busy_timeout = 0")
    try:
        (is_busy, _, _) = connection.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()
    finally:
        connection.execute(f"PRAGMA busy_timeout = {wait_ms}")
    return not is_busy


def _connect(path: Path) -> sqlite3.Connection:
    db = connect(path)
    if sqlite_file.SYNCS:
        db.execute("PRAGMA synchronous = NORMAL")  # we sync the log, before a reply leaves
    db.execute("PRAGMA wal_autocheckpoint = 0")  # the log is copied in a thread, not in a commit
    db.execute(f"PRAGMA journal_size_limit = {CHECKPOINT_BYTES}")
    return db
