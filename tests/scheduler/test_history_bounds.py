"""What is remembered, and how much of it: newest runs, pages and days without a limit, counts."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import UsageError
from holdfast_testing.virtual_time import START_MS, VirtualClock
from support.scheduler import MINUTE, Job, scheduler, store_entries
from tocsin.scheduler.history import RunQuery, _numbered, counted, day_of
from tocsin.scheduler.scheduler_do import EventLog
from tocsin.scheduler.state import SchedulerState, TaskState
from tocsin.scheduler.stored import Measurements
from tocsin.scheduler.types import DayTotals, Outcome, RunRecord, TaskTotals
from tocsin.upstream.budget import Moment

DAY = 86_400_000
NOW = Moment(START_MS, 1_000_000, "a boot")


def record(number: int, task: str = "tenero", outcome: Outcome = "ok", calls: int = 0, at: int = START_MS) -> RunRecord:
    return RunRecord(number, task, "alarm", at, 0, at, at + 100, 100, outcome, calls=calls)


def stored_runs(*numbers: int, at: int = START_MS) -> dict[str, Any]:
    return {f"run:{number:012}": record(number, at=at + number * 1_000).to_json() for number in numbers}


def state(*names: str) -> SchedulerState:
    return SchedulerState({name: TaskState() for name in names})


def test_the_usual_calls_are_those_of_the_newest_twelve_complete_runs() -> None:
    """Of the task itself; runs that were not complete say nothing."""
    made = state("tenero", "sweep")
    for number in range(1, 15):
        made.end(record(number, calls=number), NOW)
    made.end(record(15, calls=99, outcome="partial"), NOW)
    made.end(record(16, "sweep", calls=77), NOW)

    assert list(made.tasks["tenero"].recent_calls) == [3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14]
    assert list(made.tasks["sweep"].recent_calls) == [77]


def test_memory_holds_the_runs_that_have_not_ended() -> None:
    """All others are in the storage."""
    made = state("tenero", "sweep")
    for number in range(1, 5):
        made.begin(record(number, outcome="running"))
    made.begin(record(5, "sweep", outcome="running"))
    for number in (1, 3, 4):
        made.end(record(number), NOW)

    assert list(made.open_runs) == [2, 5]


def test_a_success_is_shown_as_it_was_noted_unless_the_clock_was_set() -> None:
    """A drift of two seconds changes nothing; more is a clock that was set, and the age stays right."""
    made = state("tenero")
    made.begin(record(1))
    made.end(record(1), NOW)
    task = made.tasks["tenero"]

    assert task.last_success_at(Moment(START_MS + 62_000, 1_060_000)) == START_MS
    assert task.last_success_at(Moment(START_MS + 62_001, 1_060_000)) == START_MS + 2_001
    assert task.last_success_at(Moment(START_MS + 60_000, 1_060_000)) == START_MS


def test_a_hold_ends_at_its_very_time() -> None:
    """It is shown until then, by the wall clock of the moment."""
    task = TaskState()
    task.hold(5_000, NOW)

    assert task.next_run_after(Moment(START_MS + 4_999, 1_004_999)) == START_MS + 5_000
    assert task.next_run_after(Moment(START_MS + 5_000, 1_005_000)) is None


def test_a_complete_run_clears_what_failures_have_left() -> None:
    """Failures in a row, the hold, the error; the counts of all runs stay."""
    made = state("tenero")
    for number in (1, 2):
        made.begin(record(number, outcome="failed"))
        made.end(record(number, outcome="failed"), NOW, is_failure=True, hold_ms=60_000)
    task = made.tasks["tenero"]
    before = (task.consecutive_failures, task.next_run_after(NOW), task.last_error is not None)
    made.begin(record(3))
    made.end(record(3), NOW, items=4)

    assert before == (2, START_MS + 60_000, True)
    assert (task.consecutive_failures, task.held_until_ms, task.last_error) == (0, None, None)
    assert task.run_counts == {"failed": 2, "ok": 1}
    assert made.ended_runs == 3
    assert made.days["2026-05-13"].tasks["tenero"].items == 4


@pytest.mark.parametrize(("before", "hold_ms"), [(0, None), (1, 2_000), (3, 8_000), (4, 10_000), (9, 10_000)])
def test_runs_that_are_cut_off_in_a_row_wait_longer_each_time(before: int, hold_ms: int | None) -> None:
    """At once, then 2, 4, 8 seconds, ten at most; runs of other tasks in between do not count, complete ones do."""
    made = state("tenero", "sweep")
    made.end(record(1, outcome="interrupted"), NOW)
    made.end(record(2), NOW)
    for number in range(3, 3 + before):
        made.end(record(number, outcome="interrupted"), NOW)
    made.end(record(80, "sweep"), NOW)
    made.begin(record(90, outcome="running"))
    made.interrupt(NOW, lambda _run: "the test ended it")
    task = made.tasks["tenero"]

    assert task.rerun
    assert task.held_until_ms == (None if hold_ms is None else NOW.monotonic_ms + hold_ms)
    assert task.consecutive_failures == 1


def test_a_day_of_runs_is_added_up_within_reason() -> None:
    """Up to a million million; a damaged number beyond it counts nothing."""
    day = counted(DayTotals("2026-05-13"), RunRecord(1, "t", "alarm", 0, 0, 0, 0, 10**12, "ok", calls=10**12), 3)
    day = counted(day, RunRecord(2, "t", "alarm", 0, 0, 0, 0, 10**12 + 1, "failed", calls=10**12 + 1), 4)
    day = counted(day, RunRecord(3, "t", "alarm", 0, 0, 0, None, None, "ok", calls=-1))

    assert day.tasks["t"] == TaskTotals(3, {"ok": 2, "failed": 1}, 10**12, 7, 10**12, 10**12)


def test_a_day_begins_at_midnight_utc() -> None:
    """To the millisecond; before 1970 and after the year 9999 there are none."""
    assert [day_of(DAY - 1), day_of(DAY), day_of(-5)] == ["1970-01-01", "1970-01-02", "1970-01-01"]
    assert day_of(253_402_300_799_999) == day_of(10**30) == "9999-12-31"


def test_a_query_reaches_the_very_instant_that_it_names() -> None:
    """`until` is included."""
    assert RunQuery(until=START_MS).fits(record(1))
    assert not RunQuery(until=START_MS - 1).fits(record(1))


@pytest.mark.parametrize(
    ("digits", "number"),
    [("000000000007", 7), ("9" * 15, 10**15 - 1), ("9" * 16, 0), ("7x", 0), ("\u0667", 0), ("", 0)],
)
def test_a_key_that_is_no_number_is_older_than_all_others(digits: str, number: int) -> None:
    """It is removed with the first ones, and ends no search; an unreadable start counts as equally old."""
    assert _numbered(f"run:{digits}", {"startedAt": START_MS}) == (number, START_MS)
    assert _numbered(f"run:{digits}", {"startedAt": "yesterday"}) == (number, 0)
    assert _numbered(f"run:{digits}", None) == (number, 0)


async def test_without_a_limit_fifty_runs_and_thirty_days_are_shown(tmp_path: Path) -> None:
    """And a limit of nothing is one."""
    clock = VirtualClock(START_MS + DAY)
    days = {f"day:{day_of(START_MS - n * DAY)}": DayTotals(day_of(START_MS - n * DAY)).to_json() for n in range(40)}
    entries = {"version": 3, "runSeq": 70, "daysCountedSince": START_MS, **stored_runs(*range(1, 71)), **days}
    await store_entries(tmp_path, clock, entries)
    async with scheduler(tmp_path, Job("tenero", 5 * MINUTE), clock=clock, arm=False) as made:
        runs = await made.stub().runs()
        days_shown = await made.stub().days()
        none = (await made.stub().runs(None, 0), await made.stub().days(0))

    assert [run["id"] for run in runs["runs"]] == list(range(70, 20, -1))
    assert runs["next"] == 21
    assert len(days_shown["days"]) == 30
    assert (len(none[0]["runs"]), len(none[1]["days"])) == (1, 1)


async def test_a_page_that_ends_with_the_first_run_has_no_next(tmp_path: Path) -> None:
    """One that ends before it has."""
    clock = VirtualClock(START_MS + DAY)
    entries = {"version": 3, "runSeq": 4, "daysCountedSince": START_MS, **stored_runs(1, 2, 3, 4)}
    await store_entries(tmp_path, clock, entries)
    async with scheduler(tmp_path, Job("tenero", 5 * MINUTE), clock=clock, arm=False) as made:
        client = made.client()
        pages = [await client.runs(None, 4), await client.runs(None, 3), await client.runs(None, 9, before=2)]

    assert [page.next for page in pages] == [None, 2, None]
    assert [run.id for run in pages[2].runs] == [1]


async def test_a_run_that_leaves_the_history_is_not_found_any_more(tmp_path: Path) -> None:
    """Neither in storage nor in memory, nor its log lines: a number far ahead has made all of them old."""
    clock = VirtualClock(START_MS + DAY)
    entries = {
        "version": 3,
        "runSeq": 100_000,
        "daysCountedSince": START_MS,
        "run-log:000000000003": {"lines": [], "leftOut": 0},
        **stored_runs(*range(1, 11)),
    }
    await store_entries(tmp_path, clock, entries)
    async with scheduler(tmp_path, Job("tenero", 5 * MINUTE), clock=clock) as made:
        await asyncio.sleep(1)
        shown = [run.id for run in (await made.client().runs(None, 50)).runs]
        left = [key for key in made.entries() if key.startswith(("run:", "run-log:"))]
        with pytest.raises(UsageError, match="there is no run 3"):
            await made.client().run(3)

    assert shown == [100_001]
    assert left == ["run:000000100001"]


async def test_a_watcher_that_has_seen_the_first_event_gets_all_others() -> None:
    """Only one that has seen none gets the newest fifty; a watcher waits no longer than 25 seconds."""
    log = EventLog(1)
    for number in range(100):
        log.add("run.started", number, {})
    loop = asyncio.get_running_loop()

    assert [event.seq for event in (await log.after(1, 0)).events] == list(range(2, 101))
    assert len((await log.after(0, 0)).events) == 50
    assert len((await log.after(-1, 0)).events) == 50
    assert ((await log.after(100, 600)).events, loop.time()) == ([], 25)
    assert ((await log.after(100, 3)).events, loop.time()) == ([], 28)


async def test_the_newest_four_hundred_events_are_kept() -> None:
    """For all watchers: memory is bounded."""
    log = EventLog(1)
    for number in range(1_000):
        log.add("run.started", number, {})

    assert [event.seq for event in (await log.after(1, 0)).events] == list(range(601, 1_001))


def test_what_is_measured_has_these_bounds() -> None:
    """Dashboards and alert rules depend on them: a change affects everybody who measures."""
    counted_so_far = Measurements()
    counted_so_far.run_ended(record(1))
    counted_so_far.call_answered("hiro", "ok", 0.07)
    for late_ms in (-5_000, 0, 30):
        counted_so_far.alarm_rang(late_ms)
    measures = counted_so_far.measures()

    runs, calls = measures.run_seconds["tenero"], measures.call_seconds["hiro"]["ok"]
    assert runs.bounds == [0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600]
    assert (runs.counts[0], runs.sum) == (1, 0.1)
    assert calls.bounds == [0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 8]
    assert measures.alarm_lateness.bounds == [0.01, 0.05, 0.1, 0.5, 1, 5, 15, 60, 300]
    assert (measures.alarm_lateness.counts[:2], measures.alarm_lateness.sum) == ([2, 1], 0.03)
    assert counted_so_far.is_new


def test_a_run_that_was_cut_off_is_not_measured() -> None:
    """Nobody knows how long it took; nothing new is to be stored."""
    counted_so_far = Measurements()
    counted_so_far.run_ended(record(1, outcome="interrupted"))

    assert (counted_so_far.measures().run_seconds, counted_so_far.is_new) == ({}, False)


@pytest.mark.slow
async def test_the_totals_of_a_week_are_kept_day_by_day(tmp_path: Path) -> None:
    """Memory holds the newest days only; each of them is stored with its own runs."""
    async with scheduler(tmp_path, Job("tenero", 8 * 3_600_000)) as made:
        await asyncio.sleep(7 * 86_400)
        days = (await made.client().days(30)).days
        failed = made.runtime.metrics.alarms_failed

    assert [day.tasks["tenero"].runs for day in days[1:-1]] == [3] * 6
    assert failed == 0


async def test_a_run_of_a_task_that_is_gone_is_ended_for_good(tmp_path: Path) -> None:
    """A release without that task starts: the run was interrupted, and nothing else is made of it."""
    clock = VirtualClock(START_MS + DAY)
    running = RunRecord(7, "gone", "alarm", START_MS, 0, START_MS)
    entries = {"version": 3, "runSeq": 7, "daysCountedSince": START_MS, "run:000000000007": running.to_json()}
    await store_entries(tmp_path, clock, entries)
    async with scheduler(tmp_path, Job("tenero", 5 * MINUTE), clock=clock, arm=False) as made:
        await made.client().status()
        stored = made.entries()["run:000000000007"]
        lines = made.log.named("run.interrupted")

    assert (stored["outcome"], stored["endedAt"]) == ("interrupted", START_MS + DAY)
    assert [(line["task"], line["run"]) for line in lines] == [("gone", 7)]
