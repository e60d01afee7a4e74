"""After a kill or a power cut at every step of every commit: nothing acknowledged is ever lost."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.crash import STEPS

SCRIPT = Path(__file__).parents[2] / "support" / "crash.py"
TESTS = SCRIPT.parents[1]
FAR_MS = 3 * 10**12
FRAME = 24 + 4096  # a frame of SQLite's log: header and page


def crash(*arguments: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPT), *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": f"{TESTS}{os.pathsep}{TESTS.parent / 'src'}"},
    )


def states() -> list[dict[str, Any]]:
    """The state after each number of steps, when a due alarm has rung."""
    entries: dict[str, Any] = {}
    alarm: int | None = None
    result: list[dict[str, Any]] = [{"entries": {}, "alarm": None}]
    for method, arguments in STEPS:
        match method:
            case "put":
                entries[arguments[0]] = arguments[1]
            case "move":
                entries["a"] -= arguments[0]
                entries["b"] += arguments[0]
            case "put_and_arm":
                entries[arguments[0]], alarm = "armed", FAR_MS
            case "many":
                entries |= {f"{arguments[0]}{n:03}": "x" * 200 for n in range(100)}
            case "ring_now":
                entries["rings"], alarm = entries.get("rings", 0) + 1, None
            case "clear":
                entries, alarm = {}, None
        result.append({"entries": dict(sorted(entries.items())), "alarm": alarm})
    return result


STATES = states()


def allowed(acknowledged: int) -> list[dict[str, Any]]:
    """All acknowledged steps, and perhaps the one that was running: completely, or not at all."""
    return STATES[acknowledged : acknowledged + 2]


@pytest.fixture(scope="module")
def points(tmp_path_factory: pytest.TempPathFactory) -> int:
    done = crash("count", tmp_path_factory.mktemp("count"))
    assert done.returncode == 0, done.stderr
    return int(done.stdout.split()[-1])


@pytest.mark.timeout(300)
def test_killed_at_every_point(points: int, tmp_path: Path) -> None:
    """No acknowledged write is lost, no alarm is lost, no transaction is incomplete."""
    assert points > 3 * len(STEPS)
    for point in range(1, points + 1):
        home = tmp_path / str(point)
        home.mkdir()
        killed = crash("run", home, point)
        assert killed.returncode == -9, killed.stderr
        acknowledged = killed.stdout.count("acknowledged")
        left = crash("read", home)
        assert left.returncode == 0, left.stderr

        assert json.loads(left.stdout) in allowed(acknowledged), f"killed at point {point}"


@pytest.mark.timeout(300)
def test_power_cut_at_every_point(tmp_path: Path) -> None:
    """The same is true for any part of the log after the last completed sync that reached the disk."""
    done = crash("record", tmp_path)
    assert done.returncode == 0, done.stderr
    cuts = [json.loads(line.removeprefix("cut ")) for line in done.stdout.splitlines()]
    tried = 0
    for name, acknowledged, synced, size in cuts:
        torn = sorted(
            {synced, synced + FRAME, size - 1, (synced + size) // 2, size} & set(range(synced, size + 1))
        )
        for length in torn:
            home = tmp_path / f"{name}-{length}"
            home.mkdir()
            (home / "objects.sqlite").write_bytes((tmp_path / name / "objects.sqlite").read_bytes())
            log = (tmp_path / name / "objects.sqlite-wal").read_bytes()
            (home / "objects.sqlite-wal").write_bytes(log[:length])
            left = crash("read", home)
            assert left.returncode == 0, left.stderr
            tried += 1

            assert json.loads(left.stdout) in allowed(acknowledged), f"{name} cut at byte {length} of {size}"
    assert tried > len(cuts)
