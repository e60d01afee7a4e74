"""Pauses: what stops, what is refused, what a resume does."""

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import UsageError
from support.scheduler import MINUTE, Job, scheduler
from tocsin.scheduler.task import TaskContext, TaskResult


def prices(**options: Any) -> Job:
    return Job("tenero", 5 * MINUTE, **options)


def sweep(**options: Any) -> Job:
    return Job("sweep", 15 * MINUTE, slice_ms=14 * MINUTE, upstream="hiro", **options)


async def test_a_pause_stops_a_run_at_its_next_checkpoint_and_starts_none(tmp_path: Path) -> None:
    """What was done is kept; an explicit refresh still runs and shows that the scheduler is paused."""

    async def walk(context: TaskContext) -> TaskResult:
        for done in range(60):
            context.checkpoint()
            context.progress(done, 60, scanned=done)
            await context.clock.sleep(1)
        return TaskResult({"scanned": 60})

    job = sweep(run=walk)
    async with scheduler(tmp_path, job) as made:
        await asyncio.sleep(20.5)
        until = made.clock.now() + 3_600_000
        await made.stub().pause_until(until)
        await asyncio.sleep(1800)
        runs = (await made.client().runs(None, 50)).runs
        assert (runs[0].outcome, runs[0].result) == ("stopped", {"scanned": 20})
        assert (runs[0].reason, runs[0].error) == ("the scheduler is paused", None)
        assert len(job.started) == 1
        answer = await made.client().refresh("sweep")
        assert answer.summary["scanned"] == 60
        assert answer.run.paused_until == until
        await asyncio.sleep(1800)

    assert [at >= until for at in job.started] == [False, False, True]


@pytest.mark.parametrize("until", [0, -1, 1, 10**18, 1.5, "soon", None])
async def test_absurd_pauses_are_refused_with_the_bound(tmp_path: Path, until: Any) -> None:
    """Nobody can pause forever by accident."""
    async with scheduler(tmp_path, prices()) as made:
        with pytest.raises(UsageError, match=r"unix milliseconds|at most 7 days"):
            await made.stub().pause_until(until)

        assert (await made.client().status()).paused_until is None


@pytest.mark.parametrize(
    ("ahead_ms", "sentence"),
    [
        (0, "That time is past: it is 2026-05-13 19:30 UTC now."),
        (-86_400_000, "That time is past: it is 2026-05-13 19:30 UTC now."),
        (7 * 86_400_000 + 1, "That is too far ahead for a pause."),
    ],
)
async def test_a_refused_pause_says_when_in_readable_times(tmp_path: Path, ahead_ms: int, sentence: str) -> None:
    """No unix milliseconds: people read it."""
    async with scheduler(tmp_path, prices()) as made:
        with pytest.raises(UsageError) as refused:
            await made.stub().pause_until(made.clock.now() + ahead_ms)

    assert str(refused.value) == (f"{sentence} Give one at most 7 days ahead, 2026-05-20 19:30 UTC at the latest.")
    assert re.search(r"\d{5}", str(refused.value)) is None


async def test_resume_undoes_a_pause_at_once(tmp_path: Path) -> None:
    """The slot that passed in the meantime runs now."""
    job = prices()
    async with scheduler(tmp_path, job) as made:
        await asyncio.sleep(1)
        await made.stub().pause_until(made.clock.now() + 3_600_000)
        await asyncio.sleep(1200)
        resumed_at = made.clock.now()
        await made.stub().resume()
        await asyncio.sleep(1)

    assert job.started[-1] == resumed_at
