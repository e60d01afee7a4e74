"""A wake reads the last run of each task, or the newest runs if it is not known which those are."""

from pathlib import Path
from typing import Any

import pytest

from holdfast_testing.virtual_time import START_MS, VirtualClock
from support.scheduler import MINUTE, Job, scheduler, store_entries
from tocsin.scheduler.types import Outcome, RunRecord


def stored_run(number: int, task: str, outcome: Outcome, calls: int = 0) -> dict[str, Any]:
    at = START_MS + number * 1_000
    return RunRecord(number, task, "alarm", at, 0, at, at + 100, 100, outcome, calls=calls).to_json()


async def test_after_a_rollback_the_newest_runs_are_looked_at(tmp_path: Path) -> None:
    """Version 2 stored two runs after what version 3 had noted. One of them was under way, as an older one was."""
    clock = VirtualClock(START_MS + 600 * MINUTE)
    numbers = range(1, 201)
    runs = {number: stored_run(number, "tenero", "ok", calls=number) for number in numbers}
    runs[7] = stored_run(7, "sweep", "running")
    runs[199] = stored_run(199, "tenero", "interrupted")
    runs[200] = stored_run(200, "tenero", "running")
    entries: dict[str, Any] = {f"run:{number:012}": run for number, run in runs.items()}
    noted = {"lastRun": {"tenero": 198, "sweep": 6}, "interruptions": {"tenero": 5, "sweep": 5}}
    entries |= {"version": 2, "runSeq": 200, "daysCountedSince": START_MS, "openRuns": [7], **noted}
    entries |= {"recentCalls": {"tenero": [5], "sweep": [5]}}
    await store_entries(tmp_path, clock, entries)
    jobs = Job("tenero", 5 * MINUTE), Job("sweep", 5 * MINUTE)
    async with scheduler(tmp_path, *jobs, clock=clock, arm=False) as made:
        found = (await made.client().runs(None, 200)).runs
        stored = made.entries()

    assert [run.id for run in found if run.outcome == "interrupted"] == [200, 199, 7]
    assert stored["version"] == 3
    assert "openRuns" not in stored
    assert stored["lastRun"] == {"tenero": 200, "sweep": 7}
    assert stored["interruptions"] == {"tenero": 2, "sweep": 1}
    assert stored["recentCalls"] == {"tenero": [*range(187, 199)], "sweep": []}


async def test_a_run_under_way_is_noticed_if_the_numbers_of_the_last_runs_are_damaged(tmp_path: Path) -> None:
    """Then the newest runs are read."""
    clock = VirtualClock(START_MS + MINUTE)
    run = {"run:000000000001": stored_run(1, "tenero", "running")}
    for damage in ("garbage", {"tenero": 2.5}, {"tenero": 10**15}, {str(n): n for n in range(1, 200)}):
        directory = tmp_path / str(damage)[:12]
        directory.mkdir()
        entries = {"version": 3, "runSeq": 1, "daysCountedSince": START_MS, "lastRun": damage, **run}
        await store_entries(directory, clock, entries)
        async with scheduler(directory, Job("tenero", 5 * MINUTE), clock=clock, arm=False) as made:
            [found] = (await made.client().runs(None, 50)).runs

        assert found.outcome == "interrupted", damage


@pytest.mark.parametrize("noted", [[*range(1, 500)], [10**5000], [-7], ["1"], "garbage"])
async def test_damaged_numbers_of_version_2_do_not_keep_it_from_starting(tmp_path: Path, noted: Any) -> None:
    """The newest runs are read anyway."""
    clock = VirtualClock(START_MS + MINUTE)
    run = {"run:000000000001": stored_run(1, "tenero", "running")}
    entries = {"version": 2, "runSeq": 1, "daysCountedSince": START_MS, "openRuns": noted, **run}
    await store_entries(tmp_path, clock, entries)
    async with scheduler(tmp_path, Job("tenero", 5 * MINUTE), clock=clock, arm=False) as made:
        [found] = (await made.client().runs(None, 50)).runs

    assert found.outcome == "interrupted"
