"""The scheduler's own figures: when it reports, how long it holds back, what a request job leaves."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import BindingMissing, UsageError
from holdfast.types import JSON
from holdfast_testing.virtual_time import START_MS, VirtualClock
from support.scheduler import MINUTE, Job, Scheduler, scheduler, store_entries
from support.scripted_fetch import ScriptedFetch, always, response
from tocsin.scheduler.history import tend
from tocsin.scheduler.task import TaskContext, TaskResult, WorkContext
from tocsin.scheduler.types import RunRecord
from tocsin.upstream.budget import Quota
from tocsin.upstream.tenero import TeneroClient

FIVE = 5 * MINUTE
HOUR = 60 * MINUTE
DAY = 24 * HOUR


def prices(run: Any = None, **options: Any) -> Job:
    return Job("tenero", FIVE, run=run, **options)


async def events(made: Scheduler, name: str) -> list[dict[str, Any]]:
    return [event.fields for event in (await made.client().events(0, 0)).events if event.event == name]


async def test_progress_is_reported_twice_a_second_and_at_the_end(tmp_path: Path) -> None:
    """A task that reports every 100 ms does not push everything else out; the end is never left out."""

    async def walk(context: TaskContext) -> TaskResult:
        for done in range(1, 14):
            context.progress(done, 13)
            await context.clock.sleep(0.1)
        return TaskResult({})

    async with scheduler(tmp_path, prices(walk)) as made:
        await asyncio.sleep(10)
        reported = [fields["done"] for fields in await events(made, "run.progressed")]

    assert reported == [1, 6, 11, 13]


async def test_a_run_that_reports_nothing_has_done_nothing_of_nothing(tmp_path: Path) -> None:
    """While it runs and afterwards; a new task has missed no slot, has no result and no outcome."""

    async def silent(context: TaskContext) -> TaskResult:
        await context.clock.sleep(10)
        return TaskResult({})

    async with scheduler(tmp_path, prices(silent), arm=False) as made:
        new = (await made.client().status()).tasks["tenero"]
        await made.client().arm()
        await asyncio.sleep(1)
        running = (await made.client().status()).tasks["tenero"].running
        await asyncio.sleep(10)
        [run] = (await made.client().runs(None, 50)).runs

    assert (new.missed_slots, new.run_counts, new.last_success_at, new.failing) == (0, {}, None, False)
    assert running is not None
    assert (running.done, running.total) == (run.done, run.total) == (0, 0)


async def test_a_watcher_without_news_has_its_answer_in_time(tmp_path: Path) -> None:
    """After as many milliseconds as it asked for; without a wait at once."""
    async with scheduler(tmp_path, prices()) as made:
        await asyncio.sleep(1)
        seen = (await made.client().events(0, 0)).next
        began_at = made.clock.now()
        at_once = await made.stub().events(seen)
        at_once_at = made.clock.now()
        none = await made.client().events(seen, 7_500)
        ended_at = made.clock.now()

    assert (at_once["events"], at_once_at - began_at) == ([], 0)
    assert (none.events, ended_at - began_at) == ([], 7_500)


@pytest.mark.parametrize("failures", [1, 2])
async def test_a_breaker_opens_at_the_failure_that_the_settings_name(tmp_path: Path, failures: int) -> None:
    """Also at the first one; for an hour, by an error of the log."""

    async def broken(_context: TaskContext) -> TaskResult:
        raise RuntimeError("down")

    job = prices(broken)
    async with scheduler(tmp_path, job, breaker_failures=failures) as made:
        await asyncio.sleep(50 * 60)
        held_until = (await made.client().status()).next_run_after["tenero"]
        [line] = made.log.of("breaker.opened")

    assert len(job.started) == failures
    assert held_until == job.started[-1] + HOUR
    assert (line.level, line.fields["failures"]) == ("ERROR", failures)


@pytest.mark.parametrize(("minute", "is_held"), [(100, True), (200, False)])
async def test_another_plan_ends_what_the_old_one_held_back(minute: int, is_held: bool, tmp_path: Path) -> None:
    """After a restart with the same plan the task still waits; with another one it may run."""
    clock, fetch = VirtualClock(), ScriptedFetch(always(response({})))

    async def limited(context: TaskContext) -> TaskResult:
        await context.upstream("tenero", TeneroClient).client.get("/x", lambda body: body, context.session)
        until = context.clock.now() + 30 * MINUTE
        return TaskResult({}, incomplete="429", limited_until=until, progressed=False)

    before = {"tenero": Quota(minute=100)}
    async with scheduler(tmp_path, prices(limited), clock=clock, fetch=fetch, quotas=before) as made:
        await asyncio.sleep(1)
        assert (await made.client().status()).next_run_after["tenero"] is not None
    after = {"tenero": Quota(minute=minute)}
    async with scheduler(tmp_path, prices(limited), clock=clock, quotas=after, arm=False) as made:
        held_until = (await made.client().status()).next_run_after["tenero"]

    assert (held_until is not None) == is_held


async def test_a_resume_leaves_alone_what_no_breaker_holds(tmp_path: Path) -> None:
    """A task that its upstream limits waits as long as the upstream asked."""

    async def limited(context: TaskContext) -> TaskResult:
        until = context.clock.now() + 30 * MINUTE
        return TaskResult({}, incomplete="429", limited_until=until, progressed=False)

    job = prices(limited)
    async with scheduler(tmp_path, job, breaker_failures=2) as made:
        await asyncio.sleep(1)
        before = (await made.client().status()).next_run_after["tenero"]
        await made.client().resume()
        after = (await made.client().status()).next_run_after["tenero"]
        await asyncio.sleep(20 * 60)

    assert before == after == job.started[0] + 30 * MINUTE
    assert len(job.started) == 1


async def test_a_limited_task_runs_again_after_a_tenth_of_its_cadence_at_the_earliest(tmp_path: Path) -> None:
    """An upstream that keeps answering "in a second" is called ten times per cadence, not three hundred times."""

    async def limited(context: TaskContext) -> TaskResult:
        until = context.clock.now() + 1_000
        return TaskResult({}, incomplete="429", limited_until=until)

    job = prices(limited)
    async with scheduler(tmp_path, job) as made:
        await asyncio.sleep(95)
        triggers = [run.trigger for run in reversed((await made.client().runs(None, 50)).runs)]

    assert [at - job.started[0] for at in job.started] == [0, 30_000, 60_000, 90_000]
    assert triggers == ["alarm", "rerun", "rerun", "rerun"]


async def test_a_run_that_our_own_budget_limited_waits_as_long_as_it_says(tmp_path: Path) -> None:
    """It is not run again before its next slot, and counts as no failure."""

    async def limited(context: TaskContext) -> TaskResult:
        until = context.clock.now() + 1_000
        return TaskResult({}, incomplete="budget", limited_until=until, by_budget=True, progressed=False)

    job = prices(limited)
    async with scheduler(tmp_path, job) as made:
        await asyncio.sleep(4 * 60)
        status = await made.client().status()

    assert len(job.started) == 1
    assert status.consecutive_failures["tenero"] == 0


async def test_a_wish_to_be_woken_is_granted_after_a_second_at_the_earliest(tmp_path: Path) -> None:
    """A time that is farther away is kept to the millisecond."""
    wishes = [400, 1_000, 2_345]

    async def work(context: TaskContext) -> TaskResult:
        wake_at = context.clock.now() + wishes.pop(0) if wishes else None
        return TaskResult({}, wake_at=wake_at)

    job = Job("rounds", HOUR, run=work)
    async with scheduler(tmp_path, job):
        await asyncio.sleep(60)

    assert [at - job.started[0] for at in job.started] == [0, 1_000, 2_000, 4_345]


async def test_a_refresh_uses_no_slot_and_misses_none(tmp_path: Path) -> None:
    """The slots continue as if it had not happened; its run records what started it."""
    job = prices()
    async with scheduler(tmp_path, job) as made:
        await asyncio.sleep(100)
        refreshed = await made.client().refresh("tenero")
        run = (await made.client().runs(None, 1)).runs[0]
        await asyncio.sleep(300)
        status = await made.client().status()

    assert (run.trigger, run.slot_at, run.missed_slots) == ("refresh", None, 0)
    assert (refreshed.run.id, refreshed.run.joined, refreshed.run.paused_until) == (run.id, False, None)
    assert status.tasks["tenero"].missed_slots == 0
    assert len(job.started) == 3


async def test_a_refresh_of_all_runs_every_task_once(tmp_path: Path) -> None:
    """With a result for each; a name that is not known is refused, with those that are."""
    jobs = [prices(), Job("sweep", HOUR, upstream="hiro")]
    async with scheduler(tmp_path, *jobs) as made:
        await asyncio.sleep(1)
        results = await made.client().refresh_all()
        started = [len(job.started) for job in jobs]
        with pytest.raises(UsageError, match=r"^there is no task 'price': give one of tenero, sweep, all$"):
            await made.client().refresh("price")

    assert {name: result.run.outcome for name, result in results.items()} == {"tenero": "ok", "sweep": "ok"}
    assert started == [2, 2]  # by the alarm, and by this


@pytest.mark.parametrize(
    ("result", "level"),
    [
        (TaskResult({}), "INFO"),
        (TaskResult({}, incomplete="no answer"), "WARN"),
        (TaskResult({}, error="broken"), "WARN"),
    ],
)
async def test_the_end_of_a_run_is_a_warning_unless_all_is_well(tmp_path: Path, result: TaskResult, level: str) -> None:
    """With its number, what started it, and how it ended."""

    async def work(_context: TaskContext) -> TaskResult:
        return result

    async with scheduler(tmp_path, prices(work)) as made:
        await asyncio.sleep(1)
        [line] = made.log.of("run.ended")

    assert line.level == level
    assert (line.fields["task"], line.fields["run"], line.fields["trigger"]) == ("tenero", 1, "alarm")


async def test_what_a_run_says_is_kept_up_to_three_hundred_characters(tmp_path: Path) -> None:
    """Of an error and of a reason."""
    results = [TaskResult({}, error="e" * 301, error_kind="Odd"), TaskResult({}, incomplete="i" * 301)]

    async def work(_context: TaskContext) -> TaskResult:
        return results.pop(0)

    async with scheduler(tmp_path, prices(work)) as made:
        await asyncio.sleep(1)
        first = (await made.client().runs(None, 1)).runs[0]
        await made.client().refresh("tenero")
        second = (await made.client().runs(None, 1)).runs[0]

    assert first.error is not None
    assert (first.error.kind, first.error.message, first.outcome) == ("Odd", "e" * 300, "failed")
    assert (second.reason, second.outcome) == ("i" * 300, "partial")


async def test_a_request_job_is_done_and_remembered(tmp_path: Path) -> None:
    """By the time of its last success, also after a restart; one that is not known says so."""

    async def double(_context: WorkContext, argument: JSON) -> JSON:
        assert isinstance(argument, int)
        return 2 * argument

    async def fail(_context: WorkContext, _argument: JSON) -> JSON:
        raise UsageError("not like this")

    clock, jobs = VirtualClock(), {"double": double, "fail": fail}
    async with scheduler(tmp_path, prices(), clock=clock, request_jobs=jobs, arm=False) as made:
        await asyncio.sleep(3)
        answer = await made.client().run_job("double", 21)
        with pytest.raises(UsageError, match="not like this"):
            await made.client().run_job("fail", None)
        with pytest.raises(BindingMissing, match="there is no job 'other' in this deployment"):
            await made.client().run_job("other", None)
        done_at = clock.now()
    async with scheduler(tmp_path, prices(), clock=clock, request_jobs=jobs, arm=False) as made:
        remembered = (await made.client().status()).last_job_at

    assert (answer, remembered) == (42, {"double": done_at})


async def look(context: WorkContext, _argument: JSON) -> JSON:
    """A request job that wants a run of the feed, or of the sweep where there is no feed."""
    context.wake("feed", "sweep")
    return None


async def test_a_request_job_may_ask_for_a_run(tmp_path: Path) -> None:
    """It starts at once, but at most ten times in a cadence, and never during a pause."""
    feed, sweep = Job("feed", HOUR), Job("sweep", HOUR)
    async with scheduler(tmp_path, feed, sweep, request_jobs={"look": look}) as made:
        await asyncio.sleep(400)
        await made.client().run_job("look", None)
        await asyncio.sleep(1)
        await made.client().run_job("look", None)
        await made.client().run_job("look", None)
        await asyncio.sleep(499)
        await made.client().pause_until(made.clock.now() + 600_000)
        await made.client().run_job("look", None)
        await asyncio.sleep(800)

    assert [at - feed.started[0] for at in feed.started] == [0, 400_000, 760_000, 1_500_000]
    assert len(sweep.started) == 1


async def test_a_run_that_is_asked_for_during_a_run_follows_it(tmp_path: Path) -> None:
    """What came in meanwhile may be behind the place where the run already is."""

    async def slow(context: TaskContext) -> TaskResult:
        await context.clock.sleep(60)
        return TaskResult({})

    feed = Job("feed", FIVE, run=slow)
    async with scheduler(tmp_path, feed, request_jobs={"look": look}) as made:
        await asyncio.sleep(45)
        await made.client().run_job("look", None)
        await asyncio.sleep(30)

    assert [at - feed.started[0] for at in feed.started] == [0, 60_000]


@pytest.mark.parametrize("enabled", [True, False])
async def test_the_next_task_runs_where_the_first_is_switched_off(tmp_path: Path, *, enabled: bool) -> None:
    """One that is switched off is not started, and neither is one that does not exist."""
    sweep = Job("sweep", HOUR)
    async with scheduler(tmp_path, replace(sweep.task(), enabled=enabled), request_jobs={"look": look}) as made:
        await asyncio.sleep(400)
        await made.client().run_job("look", None)
        await made.client("v2").run_job("look", None)  # not the active instance
        await asyncio.sleep(1)

    assert len(sweep.started) == (2 if enabled else 0)


async def test_a_retried_alarm_is_not_measured_as_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its lateness is the back-off of what failed, not of the clock: only first rings are counted."""
    failures = [3]

    async def tend_or_fail(*arguments: Any) -> None:
        if failures[0]:
            failures[0] -= 1
            raise RuntimeError("a defect")
        await tend(*arguments)

    monkeypatch.setattr("tocsin.scheduler.scheduler_do.tend", tend_or_fail)
    async with scheduler(tmp_path, prices()) as made:
        await asyncio.sleep(60)
        lateness = (await made.client().measures()).alarm_lateness

    assert made.runtime.metrics.alarms_failed == 3
    assert (lateness.counts[0], lateness.sum) == (sum(lateness.counts), 0)


def old_run(number: int, at: int) -> dict[str, Any]:
    return {
        f"run:{number:012}": RunRecord(number, "tenero", "alarm", at, 0, at, at + 100, 100, "ok", calls=2).to_json()
    }


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
async def test_when_the_oldest_run_leaves(tmp_path: Path, run_seq: int, age_ms: int, *, is_kept: bool) -> None:
    """By its age or by the number of those after it, and never one of the newest two thousand."""
    clock = VirtualClock(START_MS + 100 * DAY)
    entries = {"version": 3, "runSeq": run_seq, "daysCountedSince": START_MS, **old_run(1, clock.now() - age_ms)}
    await store_entries(tmp_path, clock, entries)
    async with scheduler(tmp_path, prices(), clock=clock) as made:
        await asyncio.sleep(1)
        kept = "run:000000000001" in made.entries()

    assert kept is is_kept


async def test_a_question_looks_at_so_many_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here 50: the answer states where to continue, and the next request finds the rest."""
    monkeypatch.setattr("tocsin.scheduler.history.SCANNED_MAX", 50)
    clock = VirtualClock(START_MS + DAY)
    runs: dict[str, Any] = {}
    for number in range(1, 53):
        runs |= old_run(number, START_MS + number * 1_000)
    await store_entries(tmp_path, clock, {"version": 3, "runSeq": 52, "daysCountedSince": START_MS, **runs})
    async with scheduler(tmp_path, prices(), clock=clock, arm=False) as made:
        first = await made.client().runs(None, 50, "failed")
        rest = await made.client().runs(None, 50, None, None, first.next)

    assert (first.runs, first.next) == ([], 3)
    assert [run.id for run in rest.runs] == [2, 1]


async def test_what_operators_decide_outlives_the_process(tmp_path: Path) -> None:
    """A pause, and the end of one."""
    clock, paused = VirtualClock(), []
    for act in ("pause", "resume", "nothing"):
        async with scheduler(tmp_path, prices(), clock=clock) as made:
            paused.append((await made.client().status()).paused_until is not None)
            if act == "pause":
                await made.client().pause_until(clock.now() + DAY)
            elif act == "resume":
                await made.client().resume()

    assert paused == [False, True, False]


async def test_what_a_run_logs_is_in_the_log(tmp_path: Path) -> None:
    """At its level and with its task; what is kept with the run is a copy."""

    async def work(context: TaskContext) -> TaskResult:
        logger = context.logger.bind(unit=7)
        for write in (logger.debug, logger.info, logger.warn, logger.error):
            write("unit.seen", a=1)
        return TaskResult({})

    async with scheduler(tmp_path, prices(work)) as made:
        await asyncio.sleep(1)
        lines = made.log.of("unit.seen")
        kept = (await made.client().run(1)).log.lines

    assert [line.level for line in lines] == ["DEBUG", "INFO", "WARN", "ERROR"]
    assert {(line.fields["task"], line.fields["unit"], line.fields["a"]) for line in lines} == {("tenero", 7, 1)}
    assert [line.level for line in kept] == ["INFO", "WARN", "ERROR"]
