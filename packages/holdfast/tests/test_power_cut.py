"""kill -9, and a power cut at any system call: unsynced data is gone, but no acknowledged data is.

The process is real and is killed. A library between it and the kernel has recorded every write and every sync, in
order, so a power cut can be tried at each moment of its life.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from holdfast_testing.linux import compiled
from holdfast_testing.processes import TESTS, python
from holdfast_testing.synced_files import Disk, Record

ACKNOWLEDGED = 240  # lines, after which the process is killed
FIRST, CUTS = 8, 24

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="LD_PRELOAD is Linux's")]


def read_log(log: bytes) -> Iterator[Record]:
    """Yield all records; a last one that was cut off by a kill is left out."""
    at = 0
    while (end := log.find(b"\n", at)) >= 0:
        kind, inode, offset, length, path = log[at:end].decode().split(" ", 4)
        at = end + 1 + int(length)
        if at > len(log):
            return
        yield Record(kind, int(inode), int(offset), path, log[end + 1 : at])


@pytest.fixture(scope="module")
def recorder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return compiled("syscall_recorder.c", tmp_path_factory.mktemp("recorder"))


def record(recorder: str, directory: Path, log: Path, sync_ms: int) -> tuple[list[Record], dict[str, int]]:
    """Let the process write until it has acknowledged enough, kill it. Return what it did, and what it acknowledged."""
    with subprocess.Popen(
        [sys.executable, "-m", "holdfast_testing.power_cut", "write", directory],
        cwd=TESTS,
        env={
            **os.environ,
            "LD_PRELOAD": recorder,
            "RECORD_DIR": str(directory),
            "RECORD_LOG": str(log),
            "RECORD_SYNC_MS": str(sync_ms),
        },
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(ACKNOWLEDGED)]
        process.kill()
        assert all(lines), "the process ended by itself"
        lines += process.stdout.readlines()
    acknowledged = {name: int(number) for name, number in (line.split() for line in lines if line.endswith("\n"))}
    return list(read_log(log.read_bytes())), acknowledged


@dataclass(frozen=True, slots=True)
class Cut:
    """What a power cut, or the kill, left, and what had been acknowledged by then."""

    directory: Path
    acknowledged: dict[str, int]


def cuts(records: list[Record], directory_inode: int, home: Path, chance: Random) -> Iterator[Cut]:
    """Cuts after the first acknowledgements and at random places, with and without unsynced data."""
    acknowledgements = [at for at, record in enumerate(records) if record.kind == "A"]
    places = {*acknowledgements[:FIRST], acknowledgements[-1], *chance.sample(range(len(records)), CUTS)}
    disk, acknowledged = Disk(directory_inode), dict[str, int]()
    for at, each in enumerate(records):
        if each.kind == "A":
            name, number = each.content.split()
            acknowledged[name.decode()] = int(number)
        else:
            disk.take(each)
        if at in places:
            for what, luck in (("synced", None), ("some", chance)):
                left = home / f"{at}-{what}"
                left.mkdir()
                disk.leave(left, luck)
                yield Cut(left, dict(acknowledged))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("sync_ms", [0, 3], ids=["quick", "slow"])
def test_after_a_power_cut_everything_acknowledged_is_there(recorder: str, sync_ms: int, tmp_path: Path) -> None:
    """Objects, their alarms, DB and KV: each has its last acknowledged number, or the one after it."""
    directory, home = tmp_path.resolve() / "data", tmp_path / "cuts"
    directory.mkdir()
    home.mkdir()
    records, acknowledged_at_kill = record(recorder, directory, tmp_path / "log", sync_ms)
    made = list(cuts(records, directory.stat().st_ino, home, Random(sync_ms)))
    made.append(Cut(directory, acknowledged_at_kill))

    read = python("-m", "holdfast_testing.power_cut", "read", *(cut.directory for cut in made))

    assert read.returncode == 0, f"a store does not open: {read.stderr[-2000:]}"
    for cut, line in zip(made, read.stdout.splitlines(), strict=True):
        for name, number in json.loads(line).items():
            acknowledged = cut.acknowledged.get(name, 0)
            assert number in {acknowledged, acknowledged + 1}, f"{name} in {cut.directory.name}"


def test_what_was_not_synced_is_gone(tmp_path: Path) -> None:
    """The disk of the test above loses data that no sync covered, and names without a sync of the directory."""
    log = b"C 7 0 0 f\nW 7 0 4 f\nfourS 7 1 0 f\nW 7 4 4 f\nmoreE 7 1 0 f\n"
    disk, empty, full = Disk(1), tmp_path / "empty", tmp_path / "full"
    empty.mkdir()
    full.mkdir()
    for each in read_log(log):
        disk.take(each)
    disk.leave(empty, None)
    for each in read_log(b"S 1 2 0 \nE 1 2 0 \nC 8 0 0 late\nW 7 8 9 f\ncut of"):
        disk.take(each)
    disk.leave(full, None)

    assert list(empty.iterdir()) == []
    assert {file.name: file.read_bytes() for file in full.iterdir()} == {"f": b"four"}
