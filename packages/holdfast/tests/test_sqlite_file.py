"""One SQLite file: how it is created, synced and opened, and the order of its keys."""

import errno
import fcntl
import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from holdfast.local import sqlite_file
from holdfast.local.sqlite_file import after_all_with
from holdfast_testing.linux import only_linux, open_files


@only_linux
def test_a_damaged_file_is_not_left_open(tmp_path: Path) -> None:
    """The connection is closed as soon as SQLite refuses the file, not when it is collected."""
    damaged = tmp_path / "damaged"
    damaged.write_bytes(b"not a database" * 1000)
    before = open_files()
    with pytest.raises(sqlite3.DatabaseError) as refused:
        sqlite_file.connect(damaged)

    assert open_files() == before
    assert "not a database" in str(refused.value)


class Calls:
    """Which calls were made, each with an error or without."""

    def __init__(self, **errors: OSError) -> None:
        self.made: list[str] = []
        self._errors = errors

    def of(self, name: str) -> Any:
        def call(*arguments: int) -> None:
            assert arguments in {(7,), (7, 51)}  # the file and, on macOS, its own call
            self.made.append(name)
            if name in self._errors:
                raise self._errors[name]

        return call


@pytest.mark.parametrize(
    ("has_full_sync", "has_fdatasync", "errors", "expected"),
    [
        (False, True, {}, ["fdatasync"]),
        (False, False, {}, ["fsync"]),
        (True, True, {}, ["fcntl"]),
        (True, True, {"fcntl": OSError(errno.ENOTSUP, "no")}, ["fcntl", "fsync"]),
    ],
)
def test_a_file_is_synced_by_the_strongest_call_that_there_is(
    monkeypatch: pytest.MonkeyPatch,
    has_full_sync: bool,
    has_fdatasync: bool,
    errors: dict[str, OSError],
    expected: list[str],
) -> None:
    """On macOS fsync leaves the data in the drive's cache; where its own call does not work, fsync is used."""
    calls = Calls(**errors)
    if has_full_sync:
        monkeypatch.setattr(fcntl, "F_FULLFSYNC", 51, raising=False)
    monkeypatch.setattr(fcntl, "fcntl", calls.of("fcntl"))
    monkeypatch.setattr(os, "fsync", calls.of("fsync"))
    if has_fdatasync:
        monkeypatch.setattr(os, "fdatasync", calls.of("fdatasync"), raising=False)
    else:
        monkeypatch.delattr(os, "fdatasync", raising=False)

    sqlite_file.sync_file(7)

    assert calls.made == expected


@only_linux
def test_a_new_database_is_synced_with_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The directory, after the file has its name; no draft is left and no file is open."""
    synced: list[tuple[str, bool]] = []

    def fsync(fd: int) -> None:
        synced.append((Path(f"/proc/self/fd/{fd}").readlink().name, (tmp_path / "a.sqlite").exists()))

    before = open_files()
    monkeypatch.setattr(os, "fsync", fsync)
    (tmp_path / "a.sqlite.new").write_text("left by a kill")
    sqlite_file.create(tmp_path / "a.sqlite")

    assert synced == [(tmp_path.name, True)]
    assert [file.name for file in tmp_path.iterdir()] == ["a.sqlite"]
    assert open_files() == before


@pytest.mark.parametrize(
    ("prefix", "bound"),
    [
        ("a", "b"),
        ("ab", "ac"),
        ("run:", "run;"),
        ("a\U0010ffff", "b"),
        ("\U0010ffff", b""),
        ("", b""),
        ("x\ud7ff", "x\ue000"),
    ],
)
def test_the_bound_of_a_prefix_is_the_first_name_after_all_of_its(prefix: str, bound: str | bytes) -> None:
    """Not before the last of them, and not after any other."""
    assert after_all_with(prefix) == bound
