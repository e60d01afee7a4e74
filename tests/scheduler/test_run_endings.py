"""How runs end: in time, at a checkpoint, cut off at the end of the slice, or interrupted."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import ObjectReset
from holdfast_testing.virtual_time import VirtualClock
from support.scheduler import MINUTE, Job, scheduler
from tocsin.scheduler.task import TaskContext, TaskResult
from tocsin.scheduler.types import RunError
from tocsin.upstream.hiro import HiroClient


def lone(run: Any, **options: Any) -> Job:
    """A task without an upstream."""
    return Job("agents", **{"cadence_ms": 15 * MINUTE, "upstream": None, "calls_per_run": 0, "run": run, **options})


async def two_minutes(context: TaskContext) -> TaskResult:
    await context.clock.sleep(120)
    return TaskResult({"succeeded": 1})


async def walk(context: TaskContext) -> TaskResult:
    """A unit of work every 10 seconds."""
    for done in range(100):
        context.checkpoint()
        context.progress(done, 100, scanned=done)
        await context.clock.sleep(10)
    return TaskResult({"scanned": 100})


@pytest.mark.parametrize("cadence_ms", [15 * MINUTE, 30 * MINUTE])
async def test_long_runs_end_without_a_reset(tmp_path: Path, cadence_ms: int) -> None:
    """13 minutes, three times in a row, while no other task rings."""

    async def thirteen_minutes(context: TaskContext) -> TaskResult:
        await context.clock.sleep(13 * 60)
        return TaskResult({"succeeded": 1})

    job = lone(thirteen_minutes, cadence_ms=cadence_ms, slice_ms=14 * MINUTE)
    async with scheduler(tmp_path, job) as made:
        await asyncio.sleep(3 * cadence_ms / 1000 - 1)
        runs = (await made.client().runs(None, 50)).runs

    assert [(run.outcome, run.duration_ms) for run in runs] == [("ok", 780_000)] * 3
    assert (made.runtime.metrics.objects_reset, made.runtime.metrics.alarms_failed) == (0, 0)


async def test_a_run_that_hangs_for_the_longest_slice_is_cut_off_without_a_reset(tmp_path: Path) -> None:
    """After 14 minutes, a minute before the platform would reset the object."""

    async def hang(_context: TaskContext) -> TaskResult:
        await asyncio.Event().wait()
        raise AssertionError("not reached")

    async with scheduler(tmp_path, lone(hang, slice_ms=14 * MINUTE)) as made:
        await asyncio.sleep(45 * 60 - 1)
        runs = (await made.client().runs(None, 50)).runs

    assert [(run.outcome, run.duration_ms) for run in runs] == [("failed", 840_000)] * 3
    assert (made.runtime.metrics.objects_reset, made.runtime.metrics.alarms_failed) == (0, 0)


async def test_a_run_that_is_cut_off_by_a_reset_has_that_reason(tmp_path: Path) -> None:
    """The process is the same, so the cause is certain; the task runs again at once."""
    job = lone(two_minutes)
    async with scheduler(tmp_path, job) as made:
        await asyncio.sleep(30)
        made.reset()
        status = await made.client().status()
        await asyncio.sleep(1)
        newest, oldest = (await made.client().runs(None, 50)).runs

    assert (oldest.outcome, oldest.error) == (
        "interrupted",
        RunError("Interrupted", "the object was reset during this run"),
    )
    assert oldest.duration_ms == 30_000
    assert str(status.tasks["agents"].last_error) == "Interrupted: the object was reset during this run"
    assert (newest.outcome, newest.trigger) == ("running", "rerun")
    assert [line["run"] for line in made.log.named("run.interrupted")] == [oldest.id]


async def test_a_refresh_that_is_cut_off_by_a_reset_fails_and_is_on_record(tmp_path: Path) -> None:
    """Its caller gets the reset as an error."""
    async with scheduler(tmp_path, lone(two_minutes), arm=False) as made:
        refresh = made.stub().refresh_now("agents")
        await asyncio.sleep(30)
        made.reset()
        with pytest.raises(ObjectReset):
            await refresh
        [run] = (await made.client().runs(None, 50)).runs

    assert (run.trigger, run.outcome) == ("refresh", "interrupted")
    assert run.error is not None
    assert run.error.message == "the object was reset during this run"


async def test_a_run_that_is_cut_off_by_the_end_of_the_process_has_that_reason(tmp_path: Path) -> None:
    """A new process cannot distinguish a crash from a move to another machine."""
    clock, job = VirtualClock(), lone(two_minutes)
    async with scheduler(tmp_path, job, clock=clock):
        await asyncio.sleep(30)
    async with scheduler(tmp_path, job, clock=clock, arm=False) as made:
        run = (await made.client().runs(None, 50)).runs[-1]

    assert run.outcome == "interrupted"
    assert run.error == RunError("Interrupted", "the process ended during this run, or the platform moved the object")


async def test_a_run_ends_at_a_checkpoint_when_its_slice_is_nearly_over(tmp_path: Path) -> None:
    """It is partial: neither a failure nor a success, and it keeps its counters."""
    is_short = [True]

    async def short_at_first(context: TaskContext) -> TaskResult:
        return TaskResult({"scanned": 1}) if is_short[0] else await walk(context)

    async with scheduler(tmp_path, lone(short_at_first, slice_ms=MINUTE)) as made:
        await asyncio.sleep(60)
        before = await made.client().status()
        is_short[0] = False
        await asyncio.sleep(15 * 60)
        after = await made.client().status()
        run = (await made.client().runs(None, 50)).runs[0]
        refreshed = await made.client().refresh("agents")

    assert (run.outcome, run.reason, run.error) == ("partial", "its time slice of 60 s is nearly over", None)
    assert (run.result, run.duration_ms) == ({"scanned": 4}, 50_000)
    assert after.consecutive_failures == {"agents": 0}
    assert after.tasks["agents"].last_error is None
    assert after.tasks["agents"].run_counts == {"ok": 1, "partial": 1}
    assert before.tasks["agents"].last_success_at == run.started_at - 15 * MINUTE
    assert after.tasks["agents"].last_success_at == before.tasks["agents"].last_success_at
    assert after.last_result["agents"] == {"scanned": 4, "startedAt": run.started_at, "durationMs": 50_000}
    assert (refreshed.run.outcome, refreshed.run.reason) == (run.outcome, run.reason)
    assert [line.level for line in made.log.of("run.ended")] == ["INFO", "WARN", "WARN"]


async def test_a_partial_run_does_not_end_a_row_of_failures(tmp_path: Path) -> None:
    """Nor does it add to it."""
    fails = [True]

    async def fail_at_first(context: TaskContext) -> TaskResult:
        return TaskResult({}, error="down") if fails[0] else await walk(context)

    async with scheduler(tmp_path, lone(fail_at_first, slice_ms=MINUTE)) as made:
        await asyncio.sleep(16 * 60)
        fails[0] = False
        await asyncio.sleep(15 * 60)
        status = await made.client().status()

    assert status.tasks["agents"].run_counts == {"failed": 2, "partial": 1}
    assert status.consecutive_failures == {"agents": 2}
    assert status.tasks["agents"].last_success_at is None


async def test_a_paused_scheduler_stops_a_run_at_its_checkpoint(tmp_path: Path) -> None:
    """Stopped, not partial: it was not the slice."""
    async with scheduler(tmp_path, lone(walk, slice_ms=MINUTE)) as made:
        await asyncio.sleep(25)
        await made.client().pause_until(made.clock.now() + 60 * MINUTE)
        await asyncio.sleep(60)
        status = await made.client().status()
        [run] = (await made.client().runs(None, 50)).runs

    assert (run.outcome, run.reason, run.result) == ("stopped", "the scheduler is paused", {"scanned": 2})
    assert run.duration_ms == 30_000
    assert status.consecutive_failures == {"agents": 0}
    assert status.tasks["agents"].last_success_at is None


async def test_a_task_without_an_upstream_runs(tmp_path: Path) -> None:
    """On its cadence, whatever other tasks spend; the status says why."""

    async def count(_context: TaskContext) -> TaskResult:
        return TaskResult({"agents": 7})

    async with scheduler(tmp_path, lone(count)) as made:
        await asyncio.sleep(60)
        status = await made.client().status()

    task = status.tasks["agents"]
    assert (task.upstream, task.effective_cadence_ms) == (None, task.cadence_ms)
    assert task.cadence_reason == "as configured: it makes no calls"
    assert (status.last_result["agents"] or {})["agents"] == 7
    assert (task.run_counts, task.overdue) == ({"ok": 1}, False)


async def test_a_task_without_an_upstream_that_takes_too_long_is_cut_off(tmp_path: Path) -> None:
    """There is no limiter to ask whether it is closed; the alarm does not fail."""

    async def hang(context: TaskContext) -> TaskResult:
        await context.clock.sleep(3_600)
        raise AssertionError("not reached")

    async with scheduler(tmp_path, lone(hang, slice_ms=MINUTE)) as made:
        await asyncio.sleep(120)
        status = await made.client().status()
        [run] = (await made.client().runs(None, 50)).runs

    assert run.error == RunError("SliceExceeded", "the run took longer than its slice of 60 s")
    assert (status.consecutive_failures, status.next_run_after) == ({"agents": 1}, {"agents": None})
    assert (made.runtime.metrics.alarms_failed, made.log.of("wait_until.failed")) == (0, [])


async def test_a_run_that_asks_for_an_unknown_upstream_fails_with_the_known_names(tmp_path: Path) -> None:
    """Like any missing binding: an error of the platform that leaves the alarm set."""

    async def ask(context: TaskContext) -> TaskResult:
        context.upstream("nowhere", HiroClient)
        raise AssertionError("not reached")

    async with scheduler(tmp_path, lone(ask)) as made:
        await asyncio.sleep(60)
        [run] = (await made.client().runs(None, 50)).runs

    assert run.error == RunError(
        "BindingMissing", "There is no upstream 'nowhere' with a HiroClient; the upstreams are: hiro, tenero."
    )
    assert made.runtime.metrics.alarms_failed == 1
