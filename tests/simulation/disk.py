"""The disk of the simulated process: it can be full, slow, fail to sync, or end the process at a call.

Every storage call passes through here: the commits and syncs of the objects, and each job of a database's thread. So a
fault can hit any one of them by its number.
"""

import errno
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Literal, TypeAlias

from holdfast.errors import StoreUnavailable
from holdfast.local import object_store
from simulation.time_and_loop import ProcessKilled, SimulatedTime

CallFault: TypeAlias = Literal["fails", "killed before", "killed after"]

DATABASE = "db-w"  # the thread that writes to it
QUICK_SYNC_S = 0.0002
SLOW_SYNC_S = 0.5


@dataclass
class Disk:
    """Counts the storage calls and decides the outcome of each."""

    time: SimulatedTime
    rng: Random
    calls: int = 0
    faults: dict[int, CallFault] = field(default_factory=dict)  # by the number of the call
    full_until_s: float = 0.0
    full_share: float = 1.0
    slow_until_s: float = 0.0
    sync_fails: bool = False
    process_is_dead: bool = False
    failed_s: float = -1_000.0  # when a call last failed

    @property
    def is_full(self) -> bool:
        return self.time.now_s < self.full_until_s

    @property
    def is_slow(self) -> bool:
        return self.time.now_s < self.slow_until_s

    def before(self, call: str) -> int:
        """Raise if the call fails; return its number for `after`."""
        if self.process_is_dead:
            raise ProcessKilled
        number, self.calls = self.calls, self.calls + 1
        fault = self.faults.get(number)
        if fault == "killed before":
            self.process_is_dead = True
            raise ProcessKilled
        if call == "sync":
            if fault == "fails" or self.sync_fails:
                self.sync_fails, self.failed_s = False, self.time.now_s
                raise OSError(errno.EIO, os.strerror(errno.EIO))
        elif fault == "fails" or (self.is_full and self.rng.random() < self.full_share):
            self.failed_s = self.time.now_s
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorcode = sqlite3.SQLITE_FULL
            if call == DATABASE:  # there the job itself translates SQLite's errors
                raise StoreUnavailable("DB: database or disk is full; nothing of the call was written") from error
            raise error
        return number

    def after(self, number: int) -> None:
        if self.faults.get(number) == "killed after":
            self.process_is_dead = True
            raise ProcessKilled

    def sync(self, _fd: int) -> float:
        """Replace a real sync; return how long it took."""
        self.after(self.before("sync"))
        return SLOW_SYNC_S * self.rng.random() if self.is_slow else QUICK_SYNC_S

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Make the objects' store sync to this disk."""
        real = object_store._timed_sync
        object_store._timed_sync = self.sync  # type: ignore[assignment]  # another name of its argument
        try:
            yield
        finally:
            object_store._timed_sync = real
