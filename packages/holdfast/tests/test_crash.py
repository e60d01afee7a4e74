"""After a kill or a power cut at every step of every commit: nothing acknowledged is ever lost."""

import json
import signal
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from holdfast_testing.crash import STEPS
from holdfast_testing.processes import python
from holdfast_testing.stores import LOG_FRAME

FAR_MS = 3 * 10**12


crash = partial(python, "-m", "holdfast_testing.crash")


def states() -> list[dict[str, Any]]:
    """The state after each number of steps, when a due alarm has rung."""
    entries: dict[str, Any] = {}
    alarm: int | None = None
    moves: list[int] = []
    result: list[dict[str, Any]] = [{"entries": {}, "alarm": None, "moves": []}]
    for method, arguments in STEPS:
        match method:
            case "put":
                entries[arguments[0]] = arguments[1]
            case "move":
                entries["a"] -= arguments[0]
                entries["b"] += arguments[0]
                moves = sorted([*moves, arguments[0]])
            case "put_and_arm":
                entries[arguments[0]], alarm = "armed", FAR_MS
            case "many":
                entries |= {f"{arguments[0]}{n:03}": "x" * 200 for n in range(100)}
            case "ring_now":
                moves = sorted([*moves, 0]) if "rings" in entries else moves
                entries["rings"], alarm = entries.get("rings", 0) + 1, None
            case "clear":
                entries, alarm, moves = {}, None, []
        result.append({"entries": dict(sorted(entries.items())), "alarm": alarm, "moves": moves})
    return result


STATES = states()


def allowed(acknowledged: int) -> list[dict[str, Any]]:
    """All acknowledged steps, and perhaps the one that was running: completely, or not at all."""
    return STATES[acknowledged : acknowledged + 2]


@pytest.mark.slow
@pytest.mark.parametrize("disk", ["quick", "slow"])
def test_killed_at_every_point(disk: str, tmp_path: Path) -> None:
    """No acknowledged write is lost, no alarm is lost, no transaction is incomplete."""
    done = crash("run", disk, tmp_path)
    assert done.returncode == 0, done.stderr
    *killed, last = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(killed) > 50  # with both disks, more than a hundred
    assert last == [0, len(STEPS), STATES[-1]]
    for point, (killed_by, acknowledged, left) in enumerate(killed, 1):
        assert killed_by == signal.SIGKILL
        assert left in allowed(acknowledged), f"killed at point {point}"


@pytest.mark.slow
def test_power_cut_at_every_point(tmp_path: Path) -> None:
    """The same is true for any part of the log after the last completed sync that reached the disk."""
    done = crash("record", tmp_path)
    assert done.returncode == 0, done.stderr
    cuts = [json.loads(line.removeprefix("cut ")) for line in done.stdout.splitlines()]
    homes: dict[Path, int] = {}
    for name, acknowledged, synced, size in cuts:
        torn = sorted({synced, synced + LOG_FRAME, size - 1, (synced + size) // 2, size} & set(range(synced, size + 1)))
        for length in torn:
            home = tmp_path / f"{name} cut at byte {length} of {size}"
            home.mkdir()
            (home / "objects.sqlite").write_bytes((tmp_path / name / "objects.sqlite").read_bytes())
            log = (tmp_path / name / "objects.sqlite-wal").read_bytes()
            (home / "objects.sqlite-wal").write_bytes(log[:length])
            homes[home] = acknowledged
    assert len(homes) > len(cuts)
    left = crash("read", *homes)
    assert left.returncode == 0, left.stderr
    for (home, acknowledged), state in zip(homes.items(), left.stdout.splitlines(), strict=True):
        assert json.loads(state) in allowed(acknowledged), home.name
