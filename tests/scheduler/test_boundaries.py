"""The scheduler at its limits: armed before any work, the very end of a pause, late starts, repeated restarts."""

import asyncio
import itertools
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import StoreUnavailable
from holdfast_testing.virtual_time import VirtualClock
from support.scheduler import MINUTE, Job, scheduler
from tocsin.scheduler.slots import TaskSchedule, clamped, due_at
from tocsin.scheduler.task import TaskContext, TaskResult
from tocsin.text import utc_time
from tocsin.upstream.budget import Quota

FIVE = 5 * MINUTE
DAY_MS = 86_400_000
NOON = 1_778_673_600_000  # a round five minutes


def prices(**options: Any) -> Job:
    return Job("tenero", FIVE, **options)


def stored(directory: Path) -> tuple[list[int], list[str]]:
    """Return what a process that starts now would find: the times of alarms, and the recorded runs."""
    with closing(sqlite3.connect(directory / "objects.sqlite")) as connection:
        alarms = [at for (at,) in connection.execute("SELECT due_at FROM alarms")]
        runs = [key for (key,) in connection.execute("SELECT key FROM entries WHERE key LIKE 'run:%'")]
    return alarms, runs


async def test_the_next_alarm_is_stored_before_any_work(tmp_path: Path) -> None:
    """The first thing that a task does finds the next slot's alarm on disk, and its own run on record."""
    seen = []

    async def look(context: TaskContext) -> TaskResult:
        seen.append((context.clock.now(), *stored(tmp_path)))
        return TaskResult({"succeeded": 1})

    async with scheduler(tmp_path, prices(run=look)):
        await asyncio.sleep(6 * 60)

    (first_at, first_alarms, first_runs), (second_at, second_alarms, second_runs) = seen[:2]
    assert (first_alarms, second_alarms) == ([second_at], [second_at + FIVE])
    assert second_at - first_at == FIVE
    assert (len(first_runs), len(second_runs)) == (1, 2)


async def test_a_run_at_the_very_end_of_a_pause_is_not_stopped_by_it(tmp_path: Path) -> None:
    """The pause is over at its end, not a moment later."""

    async def work(context: TaskContext) -> TaskResult:
        context.checkpoint()
        return TaskResult({"succeeded": 1})

    job = prices(run=work)
    async with scheduler(tmp_path, job) as made:
        await asyncio.sleep(60)
        until = made.clock.now() + 20 * MINUTE
        await made.stub().pause_until(until)
        await asyncio.sleep(21 * 60)
        newest = (await made.client().runs(None, 1)).runs[0]

    assert job.started[1:] == [until]
    assert newest.outcome == "ok"


async def test_the_longest_pause_is_seven_days(tmp_path: Path) -> None:
    """To the millisecond."""
    async with scheduler(tmp_path, prices()) as made:
        until = made.clock.now() + 7 * DAY_MS
        await made.stub().pause_until(until)

        assert (await made.client().status()).paused_until == until


async def test_a_clock_that_is_set_back_makes_no_pause_longer_than_seven_days(tmp_path: Path) -> None:
    """The status, the tasks' sentences and the next run name the same end."""
    async with scheduler(tmp_path, prices()) as made:
        await made.stub().pause_until(made.clock.now() + 6 * DAY_MS)
        made.clock.jump(-60 * DAY_MS)
        status, latest = await made.client().status(), made.clock.now() + 7 * DAY_MS

    task = status.tasks["tenero"]
    assert status.paused_until == latest
    assert task.next_due_at == latest
    assert task.sentence == f"tenero is paused until {utc_time(latest)}"


def test_a_clock_set_back_within_a_cadence_runs_no_slot_twice() -> None:
    """The slot of 12:05 has run; at 12:03 by the new clock the next is still 12:10."""
    ran = TaskSchedule("tenero", FIVE, FIVE, last_slot_at=NOON + FIVE)

    kept = clamped(ran, now=NOON + 3 * MINUTE)

    assert due_at(kept, now=NOON + 3 * MINUTE, paused_until=None) == NOON + 2 * FIVE


@pytest.mark.parametrize("late_s", [7, 200])
async def test_a_late_start_does_not_move_the_slots_of_a_stretched_cadence(tmp_path: Path, late_s: int) -> None:
    """The process was down at a slot and starts later: the slot after that comes when it would have come."""
    clock, job, quota = VirtualClock(), prices(calls_per_run=40), {"tenero": Quota(minute=2, request_share=0)}
    async with scheduler(tmp_path, job, clock=clock, quotas=quota) as made:
        await asyncio.sleep(60)
        effective_ms = (await made.client().status()).tasks["tenero"].effective_cadence_ms
    await asyncio.sleep(effective_ms / 1000 - 60 + late_s)
    async with scheduler(tmp_path, job, clock=clock, quotas=quota) as made:
        await asyncio.sleep(effective_ms / 1000)
        runs = (await made.client().runs(None, 3)).runs

    slots = [run.slot_at or 0 for run in reversed(runs)]
    assert effective_ms == 20 * MINUTE
    assert job.started[1] == job.started[0] + effective_ms + late_s * 1000
    assert slots == [slots[0], slots[0] + effective_ms, slots[0] + 2 * effective_ms]


async def test_a_task_that_runs_as_often_as_it_can_afford_is_not_overdue(tmp_path: Path) -> None:
    """Its cadence is stretched to 20 minutes; after 19 it is fine, although three of its own have passed."""
    quota = {"tenero": Quota(minute=2, request_share=0)}
    async with scheduler(tmp_path, prices(calls_per_run=40), quotas=quota) as made:
        await asyncio.sleep(19 * 60)
        task = (await made.client().status()).tasks["tenero"]

    assert (task.effective_cadence_ms, task.overdue, task.condition) == (20 * MINUTE, False, "ok")


async def test_a_run_that_is_interrupted_again_and_again_waits_ten_seconds_at_most(tmp_path: Path) -> None:
    """Twelve processes in a row end during it; the thirteenth still runs it soon."""

    async def slow(context: TaskContext) -> TaskResult:
        await context.clock.sleep(30)
        return TaskResult({"succeeded": 1})

    clock, job = VirtualClock(), prices(run=slow)
    for _ in range(12):
        async with scheduler(tmp_path, job, clock=clock):
            await asyncio.sleep(11)
    began_at = clock.now()
    async with scheduler(tmp_path, job, clock=clock):
        await asyncio.sleep(11)

    assert len(job.started) == 13
    assert job.started[12] - began_at <= 10_000


async def test_a_run_that_takes_the_process_down_waits_longer_each_time(tmp_path: Path) -> None:
    """The first time it is run again at once, then after two, four, eight and ten seconds."""

    async def slow(context: TaskContext) -> TaskResult:
        await context.clock.sleep(30)
        return TaskResult({"succeeded": 1})

    clock, job, waits = VirtualClock(), prices(run=slow), list[float]()
    for _ in range(6):
        began_at = clock.now()
        async with scheduler(tmp_path, job, clock=clock):
            await asyncio.sleep(11)
        waits.append((job.started[-1] - began_at) / 1000)

    assert [round(wait) for wait in waits] == [0, 0, 2, 4, 8, 10]


async def test_a_run_that_is_cut_off_after_many_newer_ones_is_noticed(tmp_path: Path) -> None:
    """An operator refreshed another task 200 times during it: a wake reads the last run of each task."""

    async def slow(context: TaskContext) -> TaskResult:
        await context.clock.sleep(200)
        return TaskResult({})

    clock, sweep, quick = VirtualClock(), Job("sweep", FIVE, run=slow), Job("rounds", FIVE)
    async with scheduler(tmp_path, sweep, quick, clock=clock) as made:
        await asyncio.sleep(1)
        for _ in range(200):
            await made.client().refresh("rounds")
    async with scheduler(tmp_path, sweep, quick, clock=clock) as again:
        await asyncio.sleep(5)
        outcomes = [run.outcome for run in (await again.client().runs("sweep", 10)).runs]

    assert outcomes == ["running", "interrupted"]


async def test_after_a_restart_it_is_the_newest_runs_that_count(tmp_path: Path) -> None:
    """A run was cut off before one that was complete: the next one that is cut off is run again at once."""

    async def slow(context: TaskContext) -> TaskResult:
        await context.clock.sleep(30)
        return TaskResult({"succeeded": 1})

    clock, job = VirtualClock(), prices(run=slow)
    async with scheduler(tmp_path, job, clock=clock):
        await asyncio.sleep(11)
    async with scheduler(tmp_path, job, clock=clock):
        while len(job.started) < 3:
            await asyncio.sleep(1)
    began_at = clock.now()
    async with scheduler(tmp_path, job, clock=clock):
        await asyncio.sleep(5)

    assert job.started[3] - began_at < 1_000


async def test_after_a_restart_the_newest_runs_are_the_newest(tmp_path: Path) -> None:
    """The history continues in its order: newest first, and runs in a row are counted from the newest."""
    clock, job = VirtualClock(), prices()
    async with scheduler(tmp_path, job, clock=clock):
        await asyncio.sleep(31 * 60)
    async with scheduler(tmp_path, job, clock=clock) as made:
        await asyncio.sleep(5 * 60)
        ids = [run.id for run in (await made.client().runs(None, 50)).runs]

    assert len(ids) == 8
    assert ids == sorted(ids, reverse=True)


async def test_a_run_is_woken_at_the_time_that_it_asked_for_also_after_a_restart(tmp_path: Path) -> None:
    """Requested at 90 s: the run starts then, in this process or the next; the cadence stays unchanged."""
    started: list[int] = []

    async def work(context: TaskContext) -> TaskResult:
        started.append(context.clock.now())
        wake_at = started[0] + 90_000 if len(started) == 1 else None
        return TaskResult({"succeeded": 1}, wake_at=wake_at)

    async with scheduler(tmp_path, Job("rounds", FIVE, run=work)) as made:
        await asyncio.sleep(10)
        clock = made.clock
    async with scheduler(tmp_path, Job("rounds", FIVE, run=work), clock=clock):
        await asyncio.sleep(6 * 60)

    first = started[0]
    assert started[1] == first + 90_000
    assert started[2] == first - first % FIVE + FIVE
    assert len(started) == 3


async def test_a_run_that_was_asked_for_does_not_wait_for_another_task(tmp_path: Path) -> None:
    """Both began with one alarm. Its handler waits for the sweep, but only until the next alarm."""

    async def watch(context: TaskContext) -> TaskResult:
        return TaskResult({}, wake_at=context.clock.now() + MINUTE)

    async def sweep(_context: TaskContext) -> TaskResult:
        await asyncio.sleep(170)
        return TaskResult({})

    rounds, long = Job("rounds", FIVE, run=watch), Job("sweep", FIVE, run=sweep)
    async with scheduler(tmp_path, rounds, long):
        await asyncio.sleep(150)

    assert [at - rounds.started[0] for at in rounds.started] == [0, MINUTE, 2 * MINUTE]
    assert len(long.started) == 1


async def test_a_run_that_always_asks_for_the_past_runs_once_a_second_at_most(tmp_path: Path) -> None:
    """A wrong request must not keep the object busy."""
    started: list[int] = []

    async def work(context: TaskContext) -> TaskResult:
        started.append(context.clock.now())
        return TaskResult({"succeeded": 1}, wake_at=0)

    async with scheduler(tmp_path, Job("rounds", FIVE, run=work)):
        await asyncio.sleep(10)

    assert 5 <= len(started) <= 11


async def test_a_task_without_calls_tries_again_soon_after_the_store_failed(tmp_path: Path) -> None:
    """An hourly task does not wait for its next hour: a tenth of its cadence is enough."""
    started: list[int] = []

    async def work(context: TaskContext) -> TaskResult:
        started.append(context.clock.now())
        if len(started) <= 2:
            raise StoreUnavailable("the disk is full")
        return TaskResult({"succeeded": 1})

    async with scheduler(tmp_path, Job("snapshot", 12 * FIVE, run=work, upstream=None, calls_per_run=0)) as made:
        await asyncio.sleep(30 * 60)
        task = (await made.client().status()).tasks["snapshot"]

    assert [after - before for before, after in itertools.pairwise(started[:3])] == [6 * MINUTE, 6 * MINUTE]
    assert task.condition == "ok"
