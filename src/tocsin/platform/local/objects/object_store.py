"""The file in which all objects keep their entries and alarms: one SQLite database, one writer.

`commit` applies one object's turn as one transaction. It writes to the write-ahead log and returns
without waiting for the disk; a thread then makes the log durable, one fdatasync for all commits that
came meanwhile, and whoever waits for `durable` is woken. This is what SQLite does with
synchronous=FULL, except that the wait is outside of the commit and shared.

Limits: after a failed fdatasync nothing can be known about the log, so the store refuses all further
work (`on_fatal` is told) and the process should be started again.
"""

import asyncio
import contextlib
import os
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from tocsin.platform.local.objects.alarm import Alarm
from tocsin.platform.local.sqlite.sqlite_file import connect, sync_directory

OBJECT_MIGRATIONS = Path(__file__).parent / "sql"
QUICK_DISK_S = 0.001  # a disk that answers within this is waited for on the loop
CHECKPOINT_COMMITS = 1_000  # commits after which the log is copied into the database
LOG_RESTART_COMMITS = 50_000  # commits after which the writer itself waits for that, once

_ALARM_COLUMNS = "scheduled_at, due_at, decided_at, generation, retry_count, backoff, last_failure_counted"


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose data it is: the object's id, and what is needed to build it again when its alarm rings."""

    object: str
    namespace: str
    name: str | None


@dataclass(slots=True)
class Changes:
    """What one turn changed. A value of None is a deleted key; `cleared` comes before the entries."""

    cleared: bool = False
    entries: dict[str, str | None] = field(default_factory=dict)
    alarm: Alarm | None = None
    alarm_changed: bool = False

    def __bool__(self) -> bool:
        return self.cleared or self.alarm_changed or bool(self.entries)

    def absorb(self, later: "Changes") -> None:
        if later.cleared:
            self.cleared = True
            self.entries.clear()
        self.entries.update(later.entries)
        if later.alarm_changed:
            self.alarm, self.alarm_changed = later.alarm, True


class ObjectStore:
    """Opens on the running loop; everything but the waiting for the disk happens on its thread."""

    def __init__(self, path: Path, *, on_fatal: Callable[[OSError], None]) -> None:
        self._path = path
        self._on_fatal = on_fatal
        # Tests look in here: called with a name at each step of a commit, may raise or kill.
        self.at_point: Callable[[str, sqlite3.Connection], None] = lambda _point, _connection: None
        self.commits = 0  # how many commits were made, ever, by this process
        self.syncs = 0
        self.synced = 0  # how many of them are durable
        self._waiters: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._syncing = False
        self._disk_s = 0.0  # how long the disk takes to answer, at worst, lately
        self._copying: asyncio.Future[None] | None = None
        self._checkpointed = 0
        self._restarted = 0
        self._fatal: OSError | None = None

    def open(self) -> None:
        """Open the file, which exists and has OBJECT_MIGRATIONS: a DataDir has seen to that."""
        self._loop = asyncio.get_running_loop()
        self._db = _connect(self._path)
        # The log's file exists from here on, and must be found after a power cut.
        (newest,) = self._db.execute("SELECT coalesce(max(generation), 0) FROM alarms").fetchone()
        sync_directory(self._path.parent)
        self._log_fd = os.open(f"{self._path}-wal", os.O_RDONLY)
        self._checkpointer = _connect(self._path)
        self._threads = ThreadPoolExecutor(max_workers=2, thread_name_prefix="tocsin-store")
        self._generation: int = newest

    def next_generation(self) -> int:
        self._generation += 1
        return self._generation

    # Reading

    def read(self, object_id: str, key: str) -> str | None:
        row = self._db.execute(
            "SELECT value FROM entries WHERE object = ? AND key = ?", (object_id, key)
        ).fetchone()
        return None if row is None else row[0]

    def read_from(self, object_id: str, start: str) -> Iterable[tuple[str, str]]:
        """Entries from this key on, in the byte order of their keys."""
        return self._db.execute(
            "SELECT key, value FROM entries WHERE object = ? AND key >= ? ORDER BY key", (object_id, start)
        )

    def read_alarm(self, object_id: str) -> Alarm | None:
        row = self._db.execute(
            f"SELECT {_ALARM_COLUMNS} FROM alarms WHERE object = ?",  # noqa: S608 - a constant list of columns
            (object_id,),
        ).fetchone()
        return None if row is None else _alarm(row)

    def read_alarms(self) -> list[tuple[Owner, Alarm]]:
        rows = self._db.execute(
            f"SELECT object, namespace, name, {_ALARM_COLUMNS} FROM alarms ORDER BY due_at"  # noqa: S608 - as above
        )
        return [(Owner(*row[:3]), _alarm(row[3:])) for row in rows]

    # Writing

    def commit(self, owner: Owner, changes: Changes) -> int:
        """Apply one turn, all or nothing; answers the number to wait for with `durable`."""
        if self._fatal is not None:
            raise self._fatal
        db = self._db
        db.execute("BEGIN IMMEDIATE")
        try:
            self._apply(owner, changes)
            self.at_point("before commit", db)
            db.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                db.execute("ROLLBACK")
            raise
        self.at_point("after commit", db)
        self.commits += 1
        if not self._syncing:
            # Not at once: other turns of this round of the loop may commit too, and share the wait.
            self._syncing = True
            self._loop.call_soon(self._sync)
        return self.commits

    def _apply(self, owner: Owner, changes: Changes) -> None:
        db, object_id = self._db, owner.object
        if changes.cleared:
            db.execute("DELETE FROM entries WHERE object = ?", (object_id,))
        for key, value in changes.entries.items():
            if value is None:
                db.execute("DELETE FROM entries WHERE object = ? AND key = ?", (object_id, key))
            else:
                db.execute("INSERT OR REPLACE INTO entries VALUES (?, ?, ?)", (object_id, key, value))
        if changes.alarm_changed:
            alarm = changes.alarm
            if alarm is None:
                db.execute("DELETE FROM alarms WHERE object = ?", (object_id,))
            else:
                row = (
                    *(object_id, owner.namespace, owner.name),
                    *(alarm.scheduled_at, alarm.due_at, alarm.decided_at, alarm.generation),
                    *(alarm.retry_count, alarm.backoff, alarm.last_failure_counted),
                )
                db.execute("INSERT OR REPLACE INTO alarms VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)

    # Durability

    def durable(self, commit: int) -> "asyncio.Future[None] | None":
        """What to await until this commit is on disk; None when it already is."""
        if commit <= self.synced:
            return None
        future = self._loop.create_future()
        if self._fatal is not None:
            future.set_exception(self._fatal)
        else:
            self._waiters.append((commit, future))
        return future

    def _sync(self) -> None:
        """Make everything committed so far durable."""
        self.at_point("before sync", self._db)
        target = self.commits
        if self._disk_s < QUICK_DISK_S:
            # A quick disk is waited for here: to hand over to a thread and back takes longer.
            self._synced(target, _timed_sync(self._log_fd))
        else:
            job = self._loop.run_in_executor(self._threads, _timed_sync, self._log_fd)
            job.add_done_callback(lambda done: self._synced(target, done.result()))

    def _synced(self, target: int, took: float | OSError) -> None:
        if isinstance(took, OSError):
            self._die(took)
            return
        self.at_point("after sync", self._db)
        # One slow answer moves the waiting into the thread; it comes back when answers stay quick.
        self._disk_s = max(took, self._disk_s * 0.98)
        self.syncs += 1
        self.synced = target
        while self._waiters and self._waiters[0][0] <= target:
            _, future = self._waiters.popleft()
            if not future.done():
                future.set_result(None)
        if self.commits > target:
            self._sync()
        else:
            self._syncing = False
        if target - self._checkpointed >= CHECKPOINT_COMMITS:
            self._checkpoint(target)

    def _die(self, error: OSError) -> None:
        self._fatal = error
        for _, future in self._waiters:
            if not future.done():
                future.set_exception(error)
        self._waiters.clear()
        self._on_fatal(error)

    def _checkpoint(self, target: int) -> None:
        """Copy the log into the database, so that it can start over instead of growing."""
        if self._copying is not None and not self._copying.done():
            return
        self._checkpointed = target
        if target - self._restarted >= LOG_RESTART_COMMITS:
            # Under constant load the copying never catches up by itself; here the writer waits for it.
            self._restarted = target
            self._db.execute("PRAGMA wal_checkpoint(RESTART)").fetchall()
        else:
            self._copying = self._loop.run_in_executor(self._threads, _copy_log, self._checkpointer)

    async def close(self) -> None:
        while self._syncing and self._fatal is None:
            waiting = self.durable(self.commits)
            if waiting is None:
                break
            await waiting
        if self._copying is not None:
            await self._copying
        self._threads.shutdown()
        self._checkpointer.close()
        self._db.close()
        os.close(self._log_fd)


def _timed_sync(fd: int) -> float | OSError:
    """How long it took, or why it failed."""
    began_at = time.perf_counter()
    try:
        os.fdatasync(fd)
    except OSError as error:
        return error
    return time.perf_counter() - began_at


def _copy_log(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()


def _connect(path: Path) -> sqlite3.Connection:
    db = connect(path)
    db.execute("PRAGMA synchronous = NORMAL")  # the log is synced by us, before anybody is told
    db.execute("PRAGMA wal_autocheckpoint = 0")  # copying happens in a thread, not inside a commit
    return db


def _alarm(row: tuple[int, int, int, int, int, int, int]) -> Alarm:
    return Alarm(*row[:6], bool(row[6]))
