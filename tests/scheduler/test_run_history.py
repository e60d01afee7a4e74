"""The runs that are kept: a day of them, bounded, and by the names of known tasks."""

import asyncio
from pathlib import Path
from types import SimpleNamespace

import pytest

from support.scheduler import MINUTE, Job, scheduler
from tocsin.bindings import JSON
from tocsin.errors import UsageError
from tocsin.shapes.scheduler import RunRecord


async def test_history_is_bounded(tmp_path: Path) -> None:
    """The oldest runs leave, in memory and in storage."""
    async with scheduler(tmp_path, Job("tenero", 1000, slice_ms=900)) as made:
        await asyncio.sleep(2_100)
        runs = (await made.client().runs(None, 3_000)).runs
        stored = [key for key in made.entries() if key.startswith("run:")]

    assert len(runs) == 2_000
    assert len(stored) == 2_000


async def test_an_object_that_wakes_reads_the_newest_runs_and_the_others_when_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading the whole history at every wake would cost hundreds of rows every five minutes."""
    read: list[int] = []

    def counting(value: JSON) -> RunRecord:
        record = RunRecord.from_json(value)
        read.append(record.id)
        return record

    monkeypatch.setattr("tocsin.scheduler.state.RunRecord", SimpleNamespace(from_json=counting))
    async with scheduler(tmp_path, Job("tenero", 1000, slice_ms=900)) as made:
        await asyncio.sleep(300)
        before = [run["id"] for run in (await made.stub().runs(None, 1000))["runs"]]
        made.reset()
        await made.stub().status()
        at_wake = len(read)
        after = [run["id"] for run in (await made.stub().runs(None, 1000))["runs"]]

    assert at_wake == 120
    assert after[-len(before) :] == before == list(range(before[0], 0, -1))


@pytest.mark.slow
async def test_history_holds_a_day_and_more(tmp_path: Path) -> None:
    """At the default cadences the console can show the last 24 hours, with room for refreshes by hand."""
    prices, sweep = Job("tenero", 5 * MINUTE), Job("sweep", 15 * MINUTE, upstream="hiro")
    async with scheduler(tmp_path, prices, sweep) as made:
        started_at = made.clock.now()
        await asyncio.sleep(24 * 3600 - 1)
        for _ in range(50):
            await made.client().refresh("sweep")
        runs = (await made.client().runs(None, 500)).runs

    assert runs[-1].started_at == started_at
    assert len(runs) == 288 + 96 + 50


async def test_runs_of_an_unknown_task_are_refused_with_the_names(tmp_path: Path) -> None:
    """An empty list would look like a task that never ran."""
    async with scheduler(tmp_path, Job("tenero", 5 * MINUTE)) as made:
        with pytest.raises(UsageError, match=r"^there is no task 'price': give one of tenero$"):
            await made.stub().runs("price")
