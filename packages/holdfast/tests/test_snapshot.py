"""Copies of several files show all of them at one instant, while other processes write."""

import re
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import StoreUnavailable
from holdfast.local import sqlite_file
from holdfast.local.snapshot import copy, one_instant, row_counts
from holdfast_testing.stores import make_file

TESTS = Path(__file__).parent
NAMES = ("a.sqlite", "b.sqlite", "c.sqlite")


def files(directory: Path) -> list[Path]:
    """Three databases that are large enough for many commits of the writer during a copy."""
    for name in NAMES:
        sqlite_file.create(directory / name)
        with closing(sqlite_file.connect(directory / name)) as connection:
            connection.execute("CREATE TABLE counter (number INTEGER)")
            connection.execute("INSERT INTO counter VALUES (0)")
            connection.execute("CREATE TABLE pages (number INTEGER, text TEXT)")
            connection.execute("BEGIN")
            connection.executemany("INSERT INTO pages VALUES (0, ?)", [("x" * 3_000,)] * 400)
            connection.execute("COMMIT")
    return [directory / name for name in NAMES]


@contextmanager
def writing(paths: list[Path]) -> Iterator[None]:
    command = [sys.executable, "-m", "holdfast_testing.processes", "count", *map(str, paths)]
    with subprocess.Popen(command, cwd=TESTS, stdout=subprocess.PIPE, text=True) as writer:
        try:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "writing\n"
            yield
        finally:
            writer.kill()


def number_in(connection: sqlite3.Connection) -> int:
    """The counter, which the same transaction wrote at both ends of the file."""
    (number,) = connection.execute("SELECT number FROM counter").fetchone()
    assert connection.execute("SELECT max(number) FROM pages").fetchone() == (number,)
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    return int(number)


@pytest.mark.slow
def test_fifty_copies_under_load_each_show_an_instant_that_a_kill_could_have_left(tmp_path: Path) -> None:
    """One process counts in three files in turn: in every copy a file is at most one behind the one before it."""
    paths = files(tmp_path)
    seen = []
    with writing(paths):
        for attempt in range(50):
            into = tmp_path / str(attempt)
            into.mkdir()
            with one_instant(paths if attempt % 2 else paths[::-1]) as readers:
                for path, reader in readers.items():
                    copy(reader, into / path.name)
            with closing(sqlite_file.connect_to_read(into / NAMES[0])) as first:
                numbers = [number_in(first)]
            for name in NAMES[1:]:
                with closing(sqlite_file.connect_to_read(into / name)) as other:
                    numbers.append(number_in(other))
            seen.append(numbers)

    assert all(a >= b >= c and a - c <= 1 for a, b, c in seen), seen
    assert len({tuple(numbers) for numbers in seen}) > 25  # the writer was active all the time


def test_nobody_can_write_to_any_file_while_the_instant_is_fixed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At every moment at which a read transaction begins, all files are locked; afterwards none is."""
    paths = files(tmp_path)
    refused: list[list[bool]] = []

    def is_locked(path: Path) -> bool:
        with closing(sqlite3.connect(path, isolation_level=None, timeout=0)) as other:
            try:
                other.execute("UPDATE counter SET number = 9")
            except sqlite3.OperationalError:
                return True
        return False

    class Probing(sqlite3.Connection):
        def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
            if sql == "BEGIN":
                refused.append([is_locked(path) for path in paths])
            return super().execute(sql, *values)

    def connect(path: Path) -> sqlite3.Connection:
        return sqlite3.connect(path, factory=Probing, isolation_level=None)

    monkeypatch.setattr("holdfast.local.snapshot.connect", connect)
    with one_instant(paths):
        after = [is_locked(path) for path in paths]

    assert refused == [[True, True, True]] * 3
    assert after == [False, False, False]


def test_what_is_committed_after_the_instant_is_not_copied(tmp_path: Path) -> None:
    """The copy is read from the transaction that began at the instant, not from later contents of the file."""
    paths = files(tmp_path)
    with one_instant(paths) as readers:
        for path in paths:
            with closing(sqlite_file.connect(path)) as other:  # nothing is locked now
                other.execute("PRAGMA busy_timeout = 0")
                other.execute("UPDATE counter SET number = 7")
                other.execute("UPDATE pages SET number = 7")
                other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        for path, reader in readers.items():
            copy(reader, tmp_path / f"copy-{path.name}")

    for name in NAMES:
        with closing(sqlite_file.connect_to_read(tmp_path / f"copy-{name}")) as copied:
            assert number_in(copied) == 0


def test_a_file_that_stays_locked_is_named_and_the_others_are_let_go(tmp_path: Path) -> None:
    """A shell with an open transaction must not stop the service's other writers while we wait for it."""
    paths = files(tmp_path)
    with closing(sqlite_file.connect(paths[2])) as shell:
        shell.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match="locked for 0 s: end it"), one_instant(paths, wait_s=0):
            pass
        for path in paths[:2]:
            with closing(sqlite_file.connect(path)) as other:
                other.execute("PRAGMA busy_timeout = 0")
                other.execute("UPDATE counter SET number = 1")


def test_a_copy_waits_for_a_file_that_is_locked_for_a_moment(tmp_path: Path) -> None:
    """An import ends, and the copy begins without a message."""
    paths = [make_file(tmp_path / name, "CREATE TABLE t (a)") for name in ("a.sqlite", "b.sqlite")]
    with closing(sqlite_file.connect(paths[1])) as shell:
        shell.execute("BEGIN IMMEDIATE")
        free = threading.Timer(0.4, shell.execute, ["COMMIT"])
        free.start()
        with one_instant(paths, wait_s=20) as readers:
            counts = [row_counts(reader) for reader in readers.values()]
        free.join()

    assert counts == [{"t": 0}, {"t": 0}]


def test_a_copy_gives_up_after_the_time_that_it_was_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a pause between two tries, so that it does not keep a core busy."""
    path = make_file(tmp_path / "a.sqlite", "CREATE TABLE t (a)")
    now, slept = [100.0], list[float]()

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    monkeypatch.setattr("holdfast.local.snapshot.time.monotonic", lambda: now[0])
    monkeypatch.setattr("holdfast.local.snapshot.time.sleep", sleep)
    monkeypatch.setattr("holdfast.local.snapshot.LOCK_WAIT_MS", 0)
    with closing(sqlite_file.connect(path)) as shell:
        shell.execute("BEGIN IMMEDIATE")
        with (
            pytest.raises(StoreUnavailable, match=re.escape("locked for 0.12 s: end it")),
            one_instant([path], wait_s=0.12),
        ):
            pass

    assert slept == [0.05, 0.05, 0.05]
