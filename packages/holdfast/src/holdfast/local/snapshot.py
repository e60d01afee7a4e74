"""Copies several SQLite files as they were at one instant, while other processes write to them.

A read transaction sees one state of one file. To see one state of all files, their write locks are held together for a
moment: while nobody can commit to any of them, a read transaction is begun on each. Then the locks are released, and
the pages are copied from the read transactions, however long that takes. SQLite's backup reads inside the transaction
that is open on its source (VACUUM INTO refuses one).

No commit is under way at that instant, so the copies are what `kill -9` at that instant would have left.

The writer of the first file waits while the later ones are locked, at most LOCK_WAIT_MS for each. Put the file whose
writer must not wait last. If a file stays locked, all locks are released and taken again.
"""

import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

from holdfast.errors import StoreUnavailable
from holdfast.local.sqlite_file import connect

LOCK_WAIT_MS = 100
RETRY_S = 0.05
COPIED_PAGES = 4_096  # per step; between two steps Ctrl-C works


@contextmanager
def one_instant(paths: Sequence[Path], *, wait_s: float = 30.0) -> Iterator[dict[Path, sqlite3.Connection]]:
    """Connections that all read the state of the same instant, until the end of the block."""
    with ExitStack() as stack:
        lockers = [stack.enter_context(closing(_connect(path))) for path in paths]
        readers = {path: stack.enter_context(closing(_connect(path))) for path in paths}
        ends_at_s = time.monotonic() + wait_s
        while not _begin(lockers, list(readers.values())):
            if time.monotonic() > ends_at_s:
                raise StoreUnavailable(
                    f"another program has kept a database in {paths[0].parent} locked for {wait_s:g} s: "
                    "end it (an import, or a shell with an open transaction), then try again"
                )
            time.sleep(RETRY_S)
        yield readers


def copy(source: sqlite3.Connection, path: Path) -> None:
    """Copy the content that this connection reads into a new file. The copy needs no log."""
    with closing(sqlite3.connect(path)) as target:
        source.backup(target, pages=COPIED_PAGES, sleep=0)


def row_counts(connection: sqlite3.Connection) -> Mapping[str, int]:
    """How many rows each table has."""
    names = connection.execute(
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT GLOB 'sqlite_*' ORDER BY name"
    ).fetchall()
    counts = {}
    for (name,) in names:
        quoted = name.replace('"', '""')
        (counts[name],) = connection.execute(f'SELECT count(*) FROM "{quoted}"').fetchone()  # noqa: S608 - quoted
    return counts


def _connect(path: Path) -> sqlite3.Connection:
    connection = connect(path)
    connection.execute(f"PRAGMA busy_timeout = {LOCK_WAIT_MS}")
    return connection


def _begin(lockers: Sequence[sqlite3.Connection], readers: Sequence[sqlite3.Connection]) -> bool:
    """Begin a read transaction on every file while nobody can write to any. False if one of them stays locked."""
    try:
        for locker in lockers:
            locker.execute("BEGIN IMMEDIATE")
        for reader in readers:
            reader.execute("BEGIN")
            reader.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchall()  # the first read fixes the state
    except sqlite3.OperationalError as error:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF not in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}:
            raise
        for reader in readers:
            _roll_back(reader)
        return False
    finally:
        for locker in reversed(lockers):
            _roll_back(locker)
    return True


def _roll_back(connection: sqlite3.Connection) -> None:
    if connection.in_transaction:
        with suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
