"""How runs end, and their log lines: in time, at a checkpoint, cut off with their slice, or interrupted."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import ObjectReset, UsageError
from holdfast.testing.virtual_time import START_MS, VirtualClock
from holdfast_testing.captured_log import CapturedLog
from support.scheduler import FIVE, MINUTE, Job, doing, hang, prices, scheduler
from tocsin.scheduler.run import LineCollector, RunLogger
from tocsin.scheduler.state import INTERRUPTED
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


@pytest.mark.parametrize(
    ("run", "cadence_ms", "expected"),
    [
        (doing(for_s=13 * 60), 15 * MINUTE, ("ok", 780_000)),
        (doing(for_s=13 * 60), 30 * MINUTE, ("ok", 780_000)),
        (hang, 15 * MINUTE, ("failed", 840_000)),  # a minute before the platform would reset the object
    ],
)
async def test_long_runs_end_without_a_reset(
    tmp_path: Path, run: Any, cadence_ms: int, expected: tuple[str, int]
) -> None:
    """Three times in a row, while no other task rings."""
    async with scheduler(tmp_path, lone(run, cadence_ms=cadence_ms, slice_ms=14 * MINUTE)) as made:
        await asyncio.sleep(3 * cadence_ms / 1000 - 1)
        runs = await made.runs()

    assert [(run.outcome, run.duration_ms) for run in runs] == [expected] * 3
    assert (made.runtime.metrics.objects_reset, made.runtime.metrics.alarms_failed) == (0, 0)


async def test_a_run_that_is_cut_off_by_a_reset_runs_again(tmp_path: Path) -> None:
    """At once, as after the end of a process; its record says that it was cut off."""
    job = lone(two_minutes)
    async with scheduler(tmp_path, job) as made:
        await asyncio.sleep(30)
        made.reset()
        status = await made.status()
        await asyncio.sleep(1)
        newest, oldest = await made.runs()

    assert (oldest.outcome, oldest.error) == ("interrupted", RunError("Interrupted", INTERRUPTED))
    assert oldest.duration_ms == 30_000
    assert str(status.tasks["agents"].last_error) == f"Interrupted: {INTERRUPTED}"
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
        [run] = await made.runs()

    assert (run.trigger, run.outcome) == ("refresh", "interrupted")
    assert run.error is not None
    assert run.error.message == INTERRUPTED


async def test_a_run_ends_at_a_checkpoint_when_its_slice_is_nearly_over(tmp_path: Path) -> None:
    """It is partial: neither a failure nor a success, and it keeps its counters."""
    is_short = [True]

    async def short_at_first(context: TaskContext) -> TaskResult:
        return TaskResult({"scanned": 1}) if is_short[0] else await walk(context)

    async with scheduler(tmp_path, lone(short_at_first, slice_ms=MINUTE)) as made:
        await asyncio.sleep(60)
        before = await made.status()
        is_short[0] = False
        await asyncio.sleep(15 * 60)
        after = await made.status()
        run = (await made.runs())[0]
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
        status = await made.status()

    assert status.tasks["agents"].run_counts == {"failed": 2, "partial": 1}
    assert status.consecutive_failures == {"agents": 2}
    assert status.tasks["agents"].last_success_at is None


async def test_a_task_without_an_upstream_runs(tmp_path: Path) -> None:
    """On its cadence, whatever other tasks spend; the status says why."""
    async with scheduler(tmp_path, lone(doing(TaskResult({"agents": 7})))) as made:
        await asyncio.sleep(60)
        status = await made.status()

    task = status.tasks["agents"]
    assert (task.upstream, task.effective_cadence_ms) == (None, task.cadence_ms)
    assert task.cadence_reason == "as configured: it makes no calls"
    assert (status.last_result["agents"] or {})["agents"] == 7
    assert (task.run_counts, task.overdue) == ({"ok": 1}, False)


async def test_a_task_without_an_upstream_that_takes_too_long_is_cut_off(tmp_path: Path) -> None:
    """There is no limiter to ask whether it is closed; the alarm does not fail."""
    async with scheduler(tmp_path, lone(hang, slice_ms=MINUTE)) as made:
        await asyncio.sleep(120)
        status = await made.status()
        [run] = await made.runs()

    assert run.error == RunError("SliceExceeded", "the run took longer than its slice of 60 s")
    assert (status.consecutive_failures, status.next_run_after) == ({"agents": 1}, {"agents": None})
    assert (made.runtime.metrics.alarms_failed, made.log.of("wait_until.failed")) == (0, [])


async def test_a_timeout_within_a_run_is_not_the_end_of_its_slice(tmp_path: Path) -> None:
    async with scheduler(tmp_path, prices(doing(TimeoutError("no answer")))) as made:
        await asyncio.sleep(1)
        (run,) = await made.runs()

    assert run.error is not None
    assert (run.error.kind, run.error.message) == ("TimeoutError", "no answer")


async def test_a_run_that_asks_for_an_unknown_upstream_fails_with_the_known_names(tmp_path: Path) -> None:
    """Like any missing binding: an error of the platform that leaves the alarm set."""

    async def ask(context: TaskContext) -> TaskResult:
        context.upstream("nowhere", HiroClient)
        raise AssertionError("not reached")

    async with scheduler(tmp_path, lone(ask)) as made:
        await asyncio.sleep(60)
        [run] = await made.runs()

    assert run.error == RunError(
        "BindingMissing", "There is no upstream 'nowhere' with a HiroClient; the upstreams are: hiro, tenero."
    )
    assert made.runtime.metrics.alarms_failed == 1


async def test_a_run_without_progress_shows_zero_of_zero(tmp_path: Path) -> None:
    """While it runs and afterwards; a new task has missed no slot, has no result and no outcome."""
    async with scheduler(tmp_path, prices(doing(for_s=10)), arm=False) as made:
        new = (await made.status()).tasks["tenero"]
        await made.client().arm()
        await asyncio.sleep(1)
        running = (await made.status()).tasks["tenero"].running
        await asyncio.sleep(10)
        [run] = await made.runs()

    assert (new.missed_slots, new.run_counts, new.last_success_at, new.failing) == (0, {}, None, False)
    assert running is not None
    assert (running.done, running.total) == (run.done, run.total) == (0, 0)


@pytest.mark.parametrize(
    ("result", "level"),
    [
        (TaskResult({}), "INFO"),
        (TaskResult({}, incomplete="no answer"), "WARN"),
        (TaskResult({}, error="broken"), "WARN"),
    ],
)
async def test_the_end_of_a_run_is_a_warning_unless_it_is_complete(
    tmp_path: Path, result: TaskResult, level: str
) -> None:
    """With its number, what started it, and how it ended."""

    async def work(_context: TaskContext) -> TaskResult:
        return result

    async with scheduler(tmp_path, prices(work)) as made:
        await asyncio.sleep(1)
        [line] = made.log.of("run.ended")

    assert line.level == level
    assert (line.fields["task"], line.fields["run"], line.fields["trigger"]) == ("tenero", 1, "alarm")


async def test_errors_and_reasons_are_cut_at_three_hundred_characters(tmp_path: Path) -> None:
    """Of an error and of a reason."""
    results = [TaskResult({}, error="e" * 301, error_kind="Odd"), TaskResult({}, incomplete="i" * 301)]

    async def work(_context: TaskContext) -> TaskResult:
        return results.pop(0)

    async with scheduler(tmp_path, prices(work)) as made:
        await asyncio.sleep(1)
        first = (await made.runs(limit=1))[0]
        await made.client().refresh("tenero")
        second = (await made.runs(limit=1))[0]

    assert first.error is not None
    assert (first.error.kind, first.error.message, first.outcome) == ("Odd", "e" * 300, "failed")
    assert (second.reason, second.outcome) == ("i" * 300, "partial")


async def test_what_a_run_logs_is_in_the_log(tmp_path: Path) -> None:
    """At its level and with its task; what is kept with the run is a copy."""

    async def work(context: TaskContext) -> TaskResult:
        logger = context.logger.bind(unit=7)
        for write in (logger.debug, logger.info, logger.warning, logger.error):
            write("unit.seen", a=1)
        return TaskResult({})

    async with scheduler(tmp_path, prices(work)) as made:
        await asyncio.sleep(1)
        lines = made.log.of("unit.seen")
        kept = (await made.client().run(1)).log.lines

    assert [line.level for line in lines] == ["DEBUG", "INFO", "WARN", "ERROR"]
    assert {(line.fields["task"], line.fields["unit"], line.fields["a"]) for line in lines} == {("tenero", 7, 1)}
    assert [line.level for line in kept] == ["INFO", "WARN", "ERROR"]


async def test_a_run_that_takes_the_process_down_waits_longer_each_time(tmp_path: Path) -> None:
    """The first time it is run again at once, then after two, four and eight, and never after more than ten seconds."""
    clock, job, waits = VirtualClock(), prices(doing(TaskResult({"succeeded": 1}), for_s=30)), list[float]()
    for _ in range(8):
        began_at = clock.now()
        async with scheduler(tmp_path, job, clock=clock):
            await asyncio.sleep(11)
        waits.append((job.started[-1] - began_at) / 1000)

    assert [round(wait) for wait in waits] == [0, 0, 2, 4, 8, 10, 10, 10]


async def test_a_run_that_is_cut_off_after_many_newer_ones_is_noticed(tmp_path: Path) -> None:
    """An operator refreshed another task 200 times during it: a wake reads the last run of each task."""
    clock, sweep, quick = VirtualClock(), Job("sweep", FIVE, run=doing(for_s=200)), Job("rounds", FIVE)
    async with scheduler(tmp_path, sweep, quick, clock=clock) as made:
        await asyncio.sleep(1)
        for _ in range(200):
            await made.client().refresh("rounds")
    async with scheduler(tmp_path, sweep, quick, clock=clock) as again:
        await asyncio.sleep(5)
        outcomes = [run.outcome for run in await again.runs("sweep", 10)]

    assert outcomes == ["running", "interrupted"]


async def fail_a_unit(context: TaskContext) -> TaskResult:
    context.progress(1, 3)
    context.logger.bind(unit="SP.one").warning("sweep.unit_unanswered", reason="HTTP 503")
    context.logger.debug("sweep.detail")
    await asyncio.sleep(5)
    context.progress(2, 3)
    return TaskResult({"scanned": 2}, incomplete="one unit had no answer")


async def test_a_run_is_shown_with_its_lines_while_it_runs_and_after_its_end(tmp_path: Path) -> None:
    """And after a restart; its progress at the end is in its record."""
    job = prices(fail_a_unit)
    clock = VirtualClock(START_MS)
    async with scheduler(tmp_path, job, clock=clock) as made:
        await asyncio.sleep(1)
        under_way = await made.client().run(1)
        await asyncio.sleep(10)
        another = asyncio.create_task(made.client().refresh("tenero"))
        await asyncio.sleep(1)
        ended = await made.client().run(1)
        await another
    async with scheduler(tmp_path, job, clock=clock) as made:
        again = await made.client().run(1)
        with pytest.raises(UsageError, match=r"^there is no run 99: "):
            await made.client().run(99)

    assert under_way.progress is not None
    assert (under_way.run.outcome, under_way.progress.done, under_way.progress.total) == ("running", 1, 3)
    assert (ended.run.outcome, ended.run.done, ended.run.total) == ("partial", 2, 3)
    assert [(line.at, line.level, line.event, line.text) for line in ended.log.lines] == [
        (ended.run.started_at, "WARN", "sweep.unit_unanswered", "unit=SP.one reason=HTTP 503")
    ]
    assert under_way.log == ended.log == again.log
    assert ended == again


@pytest.mark.slow
async def test_old_runs_are_removed_with_their_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the cadence is: a demo that runs for a month must not fill the disk."""
    monkeypatch.setattr("tocsin.scheduler.history.RUNS_MAX", 200)
    monkeypatch.setattr("tocsin.scheduler.history.RUNS_MIN", 100)

    async def work(context: TaskContext) -> TaskResult:
        context.logger.info("prices.refreshed", count=1)
        return TaskResult({})

    async with scheduler(tmp_path, Job("tenero", 1000, slice_ms=900, run=work)) as made:
        await asyncio.sleep(800)
        keys = list(made.entries())

    runs = {key.removeprefix("run:") for key in keys if key.startswith("run:")}
    assert {key.removeprefix("run-log:") for key in keys if key.startswith("run-log:")} == runs
    assert 200 <= len(runs) <= 200 + 2 * 128


async def test_an_object_that_wakes_reads_no_lines(tmp_path: Path) -> None:
    """They are read when somebody requests their run."""
    job = Job("tenero", MINUTE, slice_ms=20_000, run=fail_a_unit)
    async with scheduler(tmp_path, job) as made:
        await asyncio.sleep(600)
        use = made.watch_store()
        made.reset()
        await made.status()

    assert use.listed
    assert [key for key in use.listed if key.startswith("run-log:")] == []


async def test_the_first_lines_and_the_newest_are_kept() -> None:
    """Ten and twenty, with the number of lines missing in between."""
    kept = LineCollector(VirtualClock(START_MS), str)
    for number in range(100):
        kept.add("INFO", "unit.done", {"number": number})

    lines = kept.lines()
    assert [line.text for line in lines.lines] == [f"number={number}" for number in (*range(10), *range(80, 100))]
    assert lines.left_out == 70


async def test_a_line_is_short_and_has_no_secret() -> None:
    """A key in a reason is masked before the text is cut, so that no part of it stays."""
    kept = LineCollector(VirtualClock(START_MS), lambda text: text.replace("s3cret" * 60, "***"))
    logger = RunLogger(CapturedLog(), kept)
    logger.error("upstream.failed", reason="s3cret" * 60, body={"a": [1, None]}, more="x" * 1_000)

    [line] = kept.lines().lines
    assert line.text.startswith('reason=*** body={"a": [1, null]} more=xxx')
    assert len(line.text) == 300


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (RunError("Unavailable", "tenero answered 503"), "tenero answered 503"),
        (RunError("Interrupted", "the process ended during this run"), "the process ended during this run"),
        (RunError("KeyError", "'price'"), "KeyError: 'price'"),
    ],
)
def test_the_cause_of_a_failure_is_a_sentence(error: RunError, cause: str) -> None:
    """With the class of an exception only if nobody expected it."""
    assert error.cause == cause
