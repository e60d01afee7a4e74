"""The task `sweep`, as the scheduler sees it."""

from pathlib import Path

from support.competition import open_world
from tocsin.competition.sweep import Sweep
from tocsin.settings import Settings
from tocsin.tasks.sweep_competition import sweep_task


async def test_a_sweep_that_did_nothing_has_the_result_of_one_that_was_cut_off_at_once(
    tmp_path: Path,
) -> None:
    """So `lastSweepResult` always has the same fields."""
    task = sweep_task(Settings())
    async with open_world(tmp_path) as world:
        counters = Sweep(world.run(), world.rules, cadence_ms=task.cadence_ms).counters()

    assert counters == {**task.empty_result, "startedAt": counters["startedAt"], "durationMs": 0}
