"""The task `sweep`, as the scheduler sees it."""

from pathlib import Path

from support.scripted_fetch import always, response
from support.task_run import task_bench
from tocsin.competition.allowlist import built_in
from tocsin.competition.rules import Rules
from tocsin.competition.sweep import Sweep
from tocsin.tasks.sweep_competition import sweep_task


async def test_a_sweep_that_did_nothing_has_the_result_of_one_that_was_cut_off_at_once(
    tmp_path: Path,
) -> None:
    """So `lastSweepResult` always has the same fields."""
    rules = Rules(built_in())
    task = sweep_task(rules)
    async with task_bench(tmp_path, always(response({}))) as bench:
        result = Sweep(bench.context(task), rules, cadence_ms=task.cadence_ms).result()

    assert result == {**task.empty_result, "startedAt": result["startedAt"], "durationMs": 0}
