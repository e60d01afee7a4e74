"""The run history: 30 days of runs, the totals of each day for longer, bounded in storage, memory and reading."""

import asyncio
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import UsageError
from holdfast.testing.virtual_time import START_MS, VirtualClock
from support.scheduler import MINUTE, Job, Scheduler, ended_run, prices, run_entries, scheduler
from tocsin.errors import MalformedShape
from tocsin.scheduler.history import _numbered, day_of
from tocsin.scheduler.task import TaskContext, TaskResult
from tocsin.scheduler.types import DayTotals, RunFilter, RunRecord

DAY = 24 * 3_600_000
HOUR = 3_600_000


def many_runs(first: int, last: int, started_at: int, every_ms: int) -> dict[str, Any]:
    """Entries of runs, as the scheduler stores them: `first` started at `started_at`, then one every `every_ms`."""
    numbers = range(first, last + 1)
    return run_entries(*(ended_run(n, calls=2, at=started_at + (n - first) * every_ms) for n in numbers))


def noted(last: int, runs: dict[str, Any]) -> dict[str, Any]:
    """A history with these runs."""
    return {"scheduler": {}, "task:tenero": {"lastRun": last}, **runs}


def numbers(made: Scheduler) -> list[int]:
    return [int(key[4:]) for key in made.entries() if key.startswith("run:")]


async def test_runs_are_removed_after_thirty_days_a_few_at_a_time(tmp_path: Path) -> None:
    """Every alarm removes at most 128 of those that are too old, until none is left."""
    clock = VirtualClock(START_MS + 33 * DAY)
    entries = noted(2_600, many_runs(1, 2_600, START_MS, 15 * MINUTE))
    async with scheduler(tmp_path, Job("tenero", MINUTE, slice_ms=1000), clock=clock, stored=entries) as made:
        await made.status()
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
    entries = noted(2_300, many_runs(1, 2_300, START_MS, 1_000))
    async with scheduler(tmp_path, Job("tenero", MINUTE, slice_ms=1000), clock=clock, stored=entries) as made:
        await asyncio.sleep(30 * 60)
        left = numbers(made)

    assert 2_000 <= len(left) <= 2_000 + 128


async def test_an_object_that_wakes_reads_few_rows(tmp_path: Path) -> None:
    """However long the history is: Cloudflare bills every row, and wakes the object every minute."""
    clock = VirtualClock(START_MS + DAY)
    days = {f"day:2025-{month:02}-{day:02}": {"day": "x"} for month in range(6, 13) for day in range(1, 29)}
    entries = noted(5_000, {**many_runs(1, 5_000, START_MS, 15_000), **days})
    async with scheduler(tmp_path, prices(), clock=clock, stored=entries, arm=False) as made:
        use = made.watch_store()
        await made.stub().arm()
        await asyncio.sleep(1)

    assert [key for key in use.listed if key.startswith("run:")] == ["run:000000000001"]  # is it too old?
    assert [key for key in use.listed if key.startswith("day:")] == []
    assert len(use.listed) < 10
    assert use.read == [
        *("budget:hiro", "budget:tenero", "measures", "scheduler"),
        *("run:000000005000", "day:2026-05-14"),
    ]


@pytest.mark.slow
async def test_all_runs_are_found_page_by_page(tmp_path: Path) -> None:
    """In memory and in storage, each once, newest first; with filters, and since a time."""
    clock = VirtualClock(START_MS + DAY)
    runs = many_runs(1, 6_500, START_MS, 10_000)
    for number in (3, 700, 6_400):
        runs[f"run:{number:012}"].update(outcome="failed", trigger="refresh")
    async with scheduler(
        tmp_path, Job("tenero", DAY), Job("sweep", DAY), clock=clock, stored=noted(6_500, runs), arm=False
    ) as made:
        client = made.client()

        async def pages(limit: int, **query: Any) -> list[list[int]]:
            found, cursor = [], None
            while True:
                names = ("outcome", "since", "trigger", "until")
                outcome, since, trigger, until = (query.get(name) for name in names)
                page = await client.runs(RunFilter(query.get("task"), limit, outcome, since, cursor, trigger, until))
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
    runs = {**many_runs(1, 1_500, START_MS, 1_000), "run:000000000700": "garbage"}
    runs["run:000000000600"]["id"] = 10**30
    async with scheduler(tmp_path, Job("tenero", DAY), clock=clock, stored=noted(1_500, runs), arm=False) as made:
        found = [run.id for run in await made.runs(limit=2_000)]
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


async def test_days_are_removed_after_four_hundred(tmp_path: Path) -> None:
    """With the runs: what is kept is bounded."""
    clock = VirtualClock(START_MS + 410 * DAY)
    days = {f"day:{day_of(START_MS + n * DAY)}": DayTotals(day_of(START_MS + n * DAY)).to_json() for n in range(410)}
    old = many_runs(1, 2_300, START_MS, 1_000)
    entries = noted(2_300, {**old, **days})
    async with scheduler(tmp_path, Job("tenero", MINUTE, slice_ms=1000), clock=clock, stored=entries) as made:
        await asyncio.sleep(120)
        left = sorted(key[4:] for key in made.entries() if key.startswith("day:"))

    assert left[0] == day_of(START_MS + 10 * DAY)
    assert len(left) == 401


async def test_the_console_still_sees_six_hours_and_more(tmp_path: Path) -> None:
    """500 runs at once, also after a reset, when only the newest 120 are in memory."""
    async with scheduler(tmp_path, Job("tenero", 1000, slice_ms=900)) as made:
        await asyncio.sleep(700)
        made.reset()
        runs = await made.runs(limit=500)

    assert [run.id for run in runs] == list(range(runs[0].id, runs[0].id - 500, -1))


async def test_runs_of_an_unknown_task_are_refused_with_the_names(tmp_path: Path) -> None:
    """An empty list would look like a task that never ran."""
    async with scheduler(tmp_path, prices()) as made:
        with pytest.raises(UsageError, match=r"^there is no task 'price': give one of tenero$"):
            await made.stub().runs({"task": "price"})


@pytest.mark.parametrize("wrong", [{"startedAt": 10**400}, {"durationMs": 10**16}, {"calls": -5}])
def test_a_run_with_a_damaged_number_is_not_read(wrong: dict[str, int]) -> None:
    """A stored duration of many thousand years would hide all others of that day permanently."""
    with pytest.raises(MalformedShape):
        RunRecord.from_json({**ended_run(1).to_json(), **wrong})


def test_a_day_begins_at_midnight_utc() -> None:
    """To the millisecond; before 1970 and after the year 9999 there are none."""
    assert [day_of(DAY - 1), day_of(DAY), day_of(-5)] == ["1970-01-01", "1970-01-02", "1970-01-01"]
    assert day_of(253_402_300_799_999) == day_of(10**30) == "9999-12-31"


def test_a_query_includes_its_until() -> None:
    """`until` is included."""
    assert RunFilter(until=START_MS).fits(ended_run(1))
    assert not RunFilter(until=START_MS - 1).fits(ended_run(1))


@pytest.mark.parametrize(
    ("digits", "number"),
    [("000000000007", 7), ("9" * 15, 10**15 - 1), ("9" * 16, 0), ("7x", 0), ("\u0667", 0), ("", 0)],
)
def test_a_key_without_a_number_counts_as_the_oldest(digits: str, number: int) -> None:
    """It is removed with the first ones, and ends no search; an unreadable start counts as equally old."""
    assert _numbered(f"run:{digits}", {"startedAt": START_MS}) == (number, START_MS)
    assert _numbered(f"run:{digits}", {"startedAt": "yesterday"}) == (number, 0)
    assert _numbered(f"run:{digits}", None) == (number, 0)


async def test_without_a_limit_fifty_runs_and_thirty_days_are_shown(tmp_path: Path) -> None:
    """And a limit of nothing is one."""
    clock = VirtualClock(START_MS + DAY)
    days = {f"day:{day_of(START_MS - n * DAY)}": DayTotals(day_of(START_MS - n * DAY)).to_json() for n in range(40)}
    entries = {**many_runs(1, 70, START_MS, 1_000), **days}
    async with scheduler(tmp_path, prices(), clock=clock, stored=entries, arm=False) as made:
        runs = await made.stub().runs()
        days_shown = await made.stub().days()
        none = (await made.stub().runs({"limit": 0}), await made.stub().days(0))

    assert [run["id"] for run in runs["runs"]] == list(range(70, 20, -1))
    assert runs["next"] == 21
    assert len(days_shown["days"]) == 30
    assert (len(none[0]["runs"]), len(none[1]["days"])) == (1, 1)


async def test_a_page_that_ends_with_the_first_run_has_no_next(tmp_path: Path) -> None:
    """One that ends before it has."""
    clock = VirtualClock(START_MS + DAY)
    entries = many_runs(1, 4, START_MS, 1_000)
    async with scheduler(tmp_path, prices(), clock=clock, stored=entries, arm=False) as made:
        client = made.client()
        pages = [
            await client.runs(RunFilter(None, 4)),
            await client.runs(RunFilter(None, 3)),
            await client.runs(RunFilter(None, 9, before=2)),
        ]

    assert [page.next for page in pages] == [None, 2, None]
    assert [run.id for run in pages[2].runs] == [1]


async def test_a_removed_run_is_not_found(tmp_path: Path) -> None:
    """Neither in storage nor in memory, nor its log lines: a number far ahead has made all of them old."""
    clock = VirtualClock(START_MS + DAY)
    lines = {"run-log:000000000003": {"lines": [], "leftOut": 0}}
    entries = noted(100_000, {**lines, **many_runs(1, 10, START_MS, 1_000)})
    async with scheduler(tmp_path, prices(), clock=clock, stored=entries) as made:
        await asyncio.sleep(1)
        shown = [run.id for run in await made.runs()]
        left = [key for key in made.entries() if key.startswith(("run:", "run-log:"))]
        with pytest.raises(UsageError, match="there is no run 3"):
            await made.client().run(3)

    assert shown == [100_001]
    assert left == ["run:000000100001"]


@pytest.mark.slow
async def test_the_totals_of_a_week_are_kept_day_by_day(tmp_path: Path) -> None:
    """Memory holds the newest days only; each of them is stored with its own runs."""
    async with scheduler(tmp_path, Job("tenero", 8 * 3_600_000)) as made:
        await asyncio.sleep(7 * 86_400)
        days = (await made.client().days(30)).days
        failed = made.runtime.metrics.alarms_failed

    assert [day.tasks["tenero"].runs for day in days[1:-1]] == [3] * 6
    assert failed == 0


@pytest.mark.parametrize(
    ("run_seq", "age_ms", "is_kept"),
    [
        (3_000, 31 * DAY, False),
        (3_000, 30 * DAY + HOUR, True),  # an hour later than it could be
        (3_000, 30 * DAY + HOUR + 1, False),
        (2_127, 90 * DAY, True),  # with 128 more, fewer than two thousand would be left
        (2_129, 90 * DAY, False),
        (60_128, DAY, True),
        (60_129, DAY, False),
    ],
)
async def test_when_the_oldest_run_is_removed(tmp_path: Path, run_seq: int, age_ms: int, *, is_kept: bool) -> None:
    """By its age or by the number of those after it, and never one of the newest two thousand."""
    clock = VirtualClock(START_MS + 100 * DAY)
    entries = noted(run_seq, many_runs(1, 1, clock.now() - age_ms, 0))
    async with scheduler(tmp_path, prices(), clock=clock, stored=entries) as made:
        await asyncio.sleep(1)
        kept = "run:000000000001" in made.entries()

    assert kept is is_kept


async def test_one_query_reads_a_limited_number_of_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here 50: the answer states where to continue, and the next request finds the rest."""
    monkeypatch.setattr("tocsin.scheduler.history.SCANNED_MAX", 50)
    clock = VirtualClock(START_MS + DAY)
    runs = many_runs(1, 52, START_MS + 1_000, 1_000)
    async with scheduler(tmp_path, prices(), clock=clock, stored=runs, arm=False) as made:
        first = await made.client().runs(RunFilter(None, 50, "failed"))
        rest = await made.client().runs(RunFilter(None, 50, None, None, first.next))

    assert (first.runs, first.next) == ([], 3)
    assert [run.id for run in rest.runs] == [2, 1]
