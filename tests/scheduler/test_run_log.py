"""The log lines of a run are kept with it: bounded, without secrets, and until the run leaves the history."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import UsageError
from holdfast_testing.captured_log import CapturedLog
from holdfast_testing.virtual_time import START_MS, VirtualClock
from support.scheduler import MINUTE, Job, scheduler
from tocsin.scheduler.run import KeptLines, RunLogger
from tocsin.scheduler.task import TaskContext, TaskResult


async def fail_a_unit(context: TaskContext) -> TaskResult:
    context.progress(1, 3)
    context.logger.bind(unit="SP.one").warn("sweep.unit_failed", reason="HTTP 503")
    context.logger.debug("sweep.detail")
    await asyncio.sleep(5)
    context.progress(2, 3)
    return TaskResult({"scanned": 2}, incomplete="one unit had no answer")


async def test_a_run_is_shown_with_its_lines_while_it_runs_and_after_its_end(tmp_path: Path) -> None:
    """And after a restart; its progress at the end is in its record."""
    job = Job("tenero", 5 * MINUTE, run=fail_a_unit)
    clock = VirtualClock(START_MS)
    async with scheduler(tmp_path, job, clock=clock) as made:
        await asyncio.sleep(1)
        under_way = await made.client().run(1)
        await asyncio.sleep(10)
        ended = await made.client().run(1)
    async with scheduler(tmp_path, job, clock=clock) as made:
        again = await made.client().run(1)
        with pytest.raises(UsageError, match=r"^there is no run 99: "):
            await made.client().run(99)

    assert under_way.progress is not None
    assert (under_way.run.outcome, under_way.progress.done, under_way.progress.total) == ("running", 1, 3)
    assert (ended.run.outcome, ended.run.done, ended.run.total) == ("partial", 2, 3)
    assert [(line.at, line.level, line.event, line.text) for line in ended.log.lines] == [
        (ended.run.started_at, "WARN", "sweep.unit_failed", "unit=SP.one reason=HTTP 503")
    ]
    assert under_way.log == ended.log == again.log
    assert ended == again


@pytest.mark.slow
async def test_the_lines_leave_with_their_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is stored is bounded."""
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
    assert len(runs) < 500


async def test_an_object_that_wakes_reads_no_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are read when somebody requests their run."""
    job = Job("tenero", MINUTE, slice_ms=20_000, run=fail_a_unit)
    async with scheduler(tmp_path, job) as made:
        await asyncio.sleep(600)
        read: list[str] = []
        rows = made.runtime.store.read_range

        def read_range(*arguments: Any, **options: Any) -> Iterator[tuple[str, str]]:
            for key, value in rows(*arguments, **options):
                read.append(key)
                yield key, value

        monkeypatch.setattr(made.runtime.store, "read_range", read_range)
        made.reset()
        await made.client().status()

    assert [key for key in read if key.startswith("run-log:")] == []


async def test_the_first_lines_and_the_newest_are_kept() -> None:
    """Ten and twenty, with the number of lines missing in between."""
    kept = KeptLines(VirtualClock(START_MS), str)
    for number in range(100):
        kept.add("INFO", "unit.done", {"number": number})

    lines = kept.lines()
    assert [line.text for line in lines.lines] == [f"number={number}" for number in (*range(10), *range(80, 100))]
    assert lines.left_out == 70


async def test_a_line_is_short_and_has_no_secret() -> None:
    """A key in a reason is masked before the text is cut, so that no part of it stays."""
    kept = KeptLines(VirtualClock(START_MS), lambda text: text.replace("s3cret" * 60, "***"))
    logger = RunLogger(CapturedLog(), kept)
    logger.error("upstream.failed", reason="s3cret" * 60, body={"a": [1, None]}, more="x" * 1_000)

    [line] = kept.lines().lines
    assert line.text.startswith('reason=*** body={"a": [1, null]} more=xxx')
    assert len(line.text) == 300
