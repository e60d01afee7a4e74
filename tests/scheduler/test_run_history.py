"""The run history: 30 days of runs, the totals of each day for longer, bounded in storage, memory and reading."""

import asyncio
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import UsageError
from holdfast.types import JSON
from holdfast_testing.virtual_time import START_MS, VirtualClock
from support.scheduler import MINUTE, Job, Scheduler, scheduler, store_entries
from tocsin.scheduler.history import counted, day_of
from tocsin.scheduler.task import TaskContext, TaskResult
from tocsin.scheduler.types import DayTotals, RunRecord, TaskTotals

DAY = 24 * 3_600_000
HOUR = 3_600_000


def stored_runs(first: int, last: int, started_at: int, every_ms: int, **fields: JSON) -> dict[str, Any]:
    """Entries of runs, as the scheduler stores them: `first` started at `started_at`, then one every `every_ms`."""
    runs = {}
    for number in range(first, last + 1):
        at = started_at + (number - first) * every_ms
        record = RunRecord(number, "tenero", "alarm", at, 0, at, at + 100, 100, "ok", calls=2)
        runs[f"run:{number:012}"] = {**record.to_json(), **fields}
    return runs


async def prepared(directory: Path, clock: VirtualClock, runs: dict[str, Any], last: int) -> None:
    about = {"version": 3, "runSeq": last, "lastRun": {"tenero": last}, "daysCountedSince": START_MS}
    await store_entries(directory, clock, {**about, **runs})


def numbers(made: Scheduler) -> list[int]:
    return [int(key[4:]) for key in made.entries() if key.startswith("run:")]


async def test_runs_leave_after_thirty_days_a_limited_number_at_a_time(tmp_path: Path) -> None:
    """Every alarm removes at most 128 of those that are too old, until none is left."""
    clock = VirtualClock(START_MS + 33 * DAY)
    await prepared(tmp_path, clock, stored_runs(1, 2_600, START_MS, 15 * MINUTE), 2_600)
    async with scheduler(tmp_path, Job("tenero", MINUTE, slice_ms=1000), clock=clock) as made:
        await made.client().status()
        left = [numbers(made)[0]]
        for _ in range(6):
            await asyncio.sleep(60)
            left.append(numbers(made)[0])

    assert left[0] == 129
    assert max(later - earlier for earlier, later in pairwise(left)) <= 128
    assert left[-1] == pytest.approx(3 * 96 + 1, abs=2)  # three days of four runs an hour have left


async def test_a_clock_that_was_set_ahead_leaves_two_thousand_runs(tmp_path: Path) -> None:
    """A year ahead everything would be too old."""
    clock = VirtualClock(START_MS + 365 * DAY)
    await prepared(tmp_path, clock, stored_runs(1, 2_300, START_MS, 1_000), 2_300)
    async with scheduler(tmp_path, Job("tenero", MINUTE, slice_ms=1000), clock=clock) as made:
        await asyncio.sleep(30 * 60)
        left = numbers(made)

    assert 2_000 <= len(left) <= 2_000 + 128


@pytest.mark.slow
async def test_the_number_of_runs_is_bounded_whatever_the_cadence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A demo that runs for a month must not fill the disk."""
    monkeypatch.setattr("tocsin.scheduler.history.RUNS_MAX", 2_200)
    async with scheduler(tmp_path, Job("tenero", 1000, slice_ms=900)) as made:
        await asyncio.sleep(3_000)
        stored = numbers(made)

    assert stored[-1] == pytest.approx(3_000, abs=1)
    assert 2_200 <= len(stored) <= 2_200 + 2 * 128


def counting(rows: Any, read: list[str]) -> Any:
    """The same rows, with the key of each that is read."""

    def read_rows(*arguments: Any, **options: Any) -> Any:
        for key, value in rows(*arguments, **options):
            read.append(key)
            yield key, value

    return read_rows


async def test_an_object_that_wakes_reads_few_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the history is: Cloudflare bills every row, and wakes the object every minute."""
    clock = VirtualClock(START_MS + DAY)
    days = {f"day:2025-{month:02}-{day:02}": {"day": "x"} for month in range(6, 13) for day in range(1, 29)}
    await prepared(tmp_path, clock, {**stored_runs(1, 5_000, START_MS, 15_000), **days}, 5_000)
    read: list[str] = []
    async with scheduler(tmp_path, Job("tenero", 5 * MINUTE), clock=clock, arm=False) as made:
        store = made.runtime.store
        monkeypatch.setattr(store, "read_range", counting(store.read_range, read))
        read_one, got = store.read, list[str]()

        def counted_read(owner: str, key: str) -> str | None:
            got.append(key)
            return read_one(owner, key)

        monkeypatch.setattr(store, "read", counted_read)
        await made.stub().arm()
        await asyncio.sleep(1)

    assert [key for key in read if key.startswith("run:")] == ["run:000000000001"]  # is it too old?
    assert [key for key in read if key.startswith("day:")] == []
    assert len(read) < 10
    assert got == ["run:000000005000", "day:2026-05-14"]


@pytest.mark.slow
async def test_all_runs_are_found_page_by_page(tmp_path: Path) -> None:
    """In memory and in storage, each once, newest first; with filters, and since a time."""
    clock = VirtualClock(START_MS + DAY)
    runs = stored_runs(1, 6_500, START_MS, 10_000)
    for number in (3, 700, 6_400):
        runs[f"run:{number:012}"].update(outcome="failed", trigger="refresh")
    await prepared(tmp_path, clock, runs, 6_500)
    async with scheduler(tmp_path, Job("tenero", DAY), Job("sweep", DAY), clock=clock, arm=False) as made:
        client = made.client()

        async def pages(limit: int, **query: Any) -> list[list[int]]:
            found, cursor = [], None
            while True:
                names = ("outcome", "since", "trigger", "until")
                outcome, since, trigger, until = (query.get(name) for name in names)
                page = await client.runs(query.get("task"), limit, outcome, since, cursor, trigger, until)
                found.append([run.id for run in page.runs])
                if page.next is None:
                    return found
                cursor = page.next

        everything = await pages(900)
        failed = await pages(50, outcome="failed")
        none = await pages(50, task="sweep")
        since = await pages(1_000, since=START_MS + 6_000 * 10_000)
        by_hand = await pages(50, trigger="refresh", until=START_MS + 699 * 10_000)

    assert [number for page in everything for number in page] == list(range(6_500, 0, -1))
    assert [len(page) for page in everything] == [900] * 7 + [200]
    assert failed == [[6_400], [700, 3]]  # one request reads 5,000
    assert none == [[], []]
    assert by_hand == [[], [700, 3]]
    assert since == [list(range(6_500, 6_000, -1))]


async def test_an_unreadable_run_of_long_ago_is_put_aside_and_the_others_are_found(tmp_path: Path) -> None:
    """As at the start: one damaged entry hides no other."""
    clock = VirtualClock(START_MS + DAY)
    runs = {**stored_runs(1, 1_500, START_MS, 1_000), "run:000000000700": "garbage"}
    runs["run:000000000600"]["id"] = 10**30
    await prepared(tmp_path, clock, runs, 1_500)
    async with scheduler(tmp_path, Job("tenero", DAY), clock=clock, arm=False) as made:
        found = [run.id for run in (await made.client().runs(None, 2_000)).runs]
        lines = [line["key"] for line in made.log.named("state.entry_unreadable")]

    assert len(found) == 1_499
    assert {*range(1, 1_501)} - {*found} == {600, 700}
    assert lines == ["run:000000000700"]


async def test_the_runs_of_a_day_are_added_up(tmp_path: Path) -> None:
    """By task: outcomes, calls, items and durations. They outlive the process, and go on after midnight."""

    async def work(context: TaskContext) -> TaskResult:
        context.progress(4, 4)
        await context.clock.sleep(2)
        return TaskResult({}, "no answer", None, "Unavailable") if len(job.started) == 2 else TaskResult({})

    job = Job("tenero", 8 * HOUR, run=work)
    clock = VirtualClock(START_MS)  # 19:30 UTC
    async with scheduler(tmp_path, job, clock=clock) as made:
        await asyncio.sleep(3 * 3600)
        await made.client().refresh("tenero")
    async with scheduler(tmp_path, job, clock=clock) as made:
        await made.client().refresh("tenero")
        await asyncio.sleep(6 * 3600)
        newest, oldest = (await made.client().days(30)).days
        limited = (await made.client().days(1)).days

    totals = oldest.tasks["tenero"]
    assert (newest.day, oldest.day) == ("2026-05-14", "2026-05-13")
    assert (totals.runs, totals.outcomes) == (3, {"ok": 2, "failed": 1})
    assert (totals.items, totals.duration_ms, totals.duration_max_ms) == (12, 6_000, 2_000)
    assert newest.tasks["tenero"].runs == 1
    assert limited == [newest]


async def test_days_leave_after_four_hundred(tmp_path: Path) -> None:
    """With the runs: what is kept is bounded."""
    clock = VirtualClock(START_MS + 410 * DAY)
    days = {f"day:{day_of(START_MS + n * DAY)}": DayTotals(day_of(START_MS + n * DAY)).to_json() for n in range(410)}
    old = stored_runs(1, 2_300, START_MS, 1_000)
    await prepared(tmp_path, clock, {**old, **days}, 2_300)
    async with scheduler(tmp_path, Job("tenero", MINUTE, slice_ms=1000), clock=clock) as made:
        await asyncio.sleep(120)
        left = sorted(key[4:] for key in made.entries() if key.startswith("day:"))

    assert left[0] == day_of(START_MS + 10 * DAY)
    assert len(left) == 401


async def test_the_runs_of_an_earlier_release_are_counted_once(tmp_path: Path) -> None:
    """Daily totals did not exist: they begin with the runs that are still stored."""
    clock = VirtualClock(START_MS + 2 * DAY)
    runs = stored_runs(1, 100, START_MS, 30 * MINUTE)
    await store_entries(tmp_path, clock, {"version": 2, "runSeq": 100, **runs})
    async with scheduler(tmp_path, Job("tenero", DAY), clock=clock, arm=False) as made:
        first = (await made.client().days(30)).days
        made.reset()
        again = (await made.client().days(30)).days
        lines = made.log.named("state.runs_counted")

    assert again == first
    assert [line["runs"] for line in lines] == [100]
    assert sum(day.tasks["tenero"].runs for day in first) == 100
    assert [day.day for day in first] == ["2026-05-15", "2026-05-14", "2026-05-13"]
    assert first[1].tasks["tenero"] == TaskTotals(48, {"ok": 48}, 96, 0, 4_800, 100)


async def test_the_console_still_sees_six_hours_and_more(tmp_path: Path) -> None:
    """500 runs at once, also after a reset, when only the newest 120 are in memory."""
    async with scheduler(tmp_path, Job("tenero", 1000, slice_ms=900)) as made:
        await asyncio.sleep(700)
        made.reset()
        runs = (await made.client().runs(None, 500)).runs

    assert [run.id for run in runs] == list(range(runs[0].id, runs[0].id - 500, -1))


async def test_runs_of_an_unknown_task_are_refused_with_the_names(tmp_path: Path) -> None:
    """An empty list would look like a task that never ran."""
    async with scheduler(tmp_path, Job("tenero", 5 * MINUTE)) as made:
        with pytest.raises(UsageError, match=r"^there is no task 'price': give one of tenero$"):
            await made.stub().runs("price")


def test_a_damaged_number_counts_nothing() -> None:
    """A stored duration of a thousand years would hide all others of that day permanently."""
    run = RunRecord(1, "tenero", "alarm", 0, 0, 10**400, 10**400, 10**15, "ok", calls=-5)

    assert day_of(10**400) == "9999-12-31"
    assert counted(DayTotals("2026-05-13"), run).tasks["tenero"] == TaskTotals(1, {"ok": 1}, 0, 0, 0, 0)


async def test_an_upgrade_writes_no_runs(tmp_path: Path) -> None:
    """The runs of 0.1.0 have no `calls` and no `reason`: they are upgraded whenever they are read."""
    clock = VirtualClock(START_MS + DAY)
    runs = stored_runs(1, 1_200, START_MS, 10_000)
    for run in runs.values():
        del run["calls"], run["reason"]
    await store_entries(tmp_path, clock, {"runSeq": 1_200, **runs})
    async with scheduler(tmp_path, Job("tenero", DAY), clock=clock, arm=False) as made:
        found = (await made.client().runs(None, 2_000)).runs
        [line] = made.log.named("state.upgraded")
        unreadable = made.log.named("state.entry_unreadable")

    assert [run.id for run in found] == list(range(1_200, 0, -1))
    assert (line["entries"], unreadable) == (0, [])
