"""The whole object in virtual time: days of slots, pauses, failures of every kind, restarts, request jobs."""

import asyncio
import itertools
import re
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from holdfast.errors import BindingMissing, StoreUnavailable, UsageError
from holdfast.testing.virtual_time import VirtualClock
from holdfast.types import JSON
from support.scheduler import FIVE, MINUTE, Job, Scheduler, doing, hang, limited, prices, scheduler
from support.scripted_fetch import Request, ScriptedFetch, always, response
from tocsin.errors import RunStopped
from tocsin.fetch import FetchResponse
from tocsin.scheduler.history import prepare_history
from tocsin.scheduler.scheduler_do import SchedulerDO
from tocsin.scheduler.state import INTERRUPTED
from tocsin.scheduler.task import TaskContext, TaskResult, WorkContext
from tocsin.scheduler.types import RunError, Status
from tocsin.text import utc_time
from tocsin.upstream.answer import Limited, NoAnswer, value_or_raise
from tocsin.upstream.budget import Quota
from tocsin.upstream.hiro import HiroClient
from tocsin.upstream.tenero import TeneroClient
from tocsin.upstream.windows import DAY_MS

DAY_S = 86_400
NOON = 1_778_673_600_000  # a round five minutes
HOUR = 60 * MINUTE
DAY = 24 * HOUR
PAGE = {"total": 0, "limit": 50, "cursor": {"next": None, "previous": None, "current": None}, "results": []}


def sweep(**options: Any) -> Job:
    return Job("sweep", 15 * MINUTE, slice_ms=14 * MINUTE, upstream="hiro", **options)


def last_error_kind(status: Status, task: str) -> str | None:
    error = status.tasks[task].last_error
    return None if error is None else error.kind


@pytest.mark.slow
async def test_a_day_has_exactly_the_expected_slots(tmp_path: Path) -> None:
    """288 and 96 slots, each once, with runs of any length; the grid never moves."""
    random = Random(11)

    async def any_length(context: TaskContext) -> TaskResult:
        await context.clock.sleep(random.uniform(0, 0.9 * context.time_left_s()))
        return TaskResult({})

    one, two = prices(any_length), sweep(run=any_length)
    async with scheduler(tmp_path, one, two) as made:
        began_at = made.clock.now()
        await asyncio.sleep(DAY_S - 1)
        status = await made.status()

    for job, count in ((one, 288), (two, 96)):
        first = began_at - began_at % job.cadence_ms
        slots = [first + n * job.cadence_ms for n in range(count)]
        assert [at - at % job.cadence_ms for at in job.started] == slots[: len(job.started)]
        assert len(job.started) in {count, count + 1}  # the first slot had begun before the start
        assert max(at % job.cadence_ms for at in job.started[1:]) < 10
        assert status.tasks[job.name].missed_slots == 0
        assert status.tasks[job.name].overdue is False


async def test_a_hanging_task_delays_no_other(tmp_path: Path) -> None:
    """It is cut off at the end of its slice and counted; the other keeps its grid to the millisecond."""
    one, two = prices(), sweep(run=hang)
    async with scheduler(tmp_path, one, two) as made:
        await asyncio.sleep(3601)
        status = await made.status()

    assert max(at % one.cadence_ms for at in one.started[1:]) <= 10
    assert len(one.started) == 13
    assert status.consecutive_failures == {"tenero": 0, "sweep": 4}
    assert last_error_kind(status, "sweep") == "SliceExceeded"
    assert status.tasks["sweep"].failing is True


async def test_the_result_of_a_run_that_was_cut_off_has_the_runs_own_times(tmp_path: Path) -> None:
    """The counters are those of the last report; the times are the scheduler's own."""

    async def hang(context: TaskContext) -> TaskResult:
        context.progress(1, 2, scanned=1, startedAt=0, durationMs=7)
        await context.clock.sleep(3_600)
        raise AssertionError("not reached")

    async with scheduler(tmp_path, prices(hang)) as made:
        began_at = made.clock.now()
        answer = await made.client().refresh("tenero")
        shown = (await made.status()).last_result["tenero"]

    assert shown == {"scanned": 1, "startedAt": began_at, "durationMs": 4 * MINUTE}
    assert answer.summary == shown


async def test_a_task_that_raises_is_counted_and_affects_no_other(tmp_path: Path) -> None:
    """Policy B: the failure is a result with class and message, and the next slot tries again."""
    one, two = prices(doing(ZeroDivisionError("a defect"))), sweep()
    async with scheduler(tmp_path, one, two) as made:
        await asyncio.sleep(16 * 60)
        status = await made.status()
        runs = await made.runs("tenero", 1)

    assert status.consecutive_failures["tenero"] == len(one.started) == 4
    assert status.consecutive_failures["sweep"] == 0
    assert runs[0].error == RunError("ZeroDivisionError", "a defect")
    assert runs[0].outcome == "failed"
    assert made.log.named("run.ended")[-2]["error"]["class"] == "ZeroDivisionError"
    assert made.runtime.metrics.alarms_failed == 0


async def test_a_limited_upstream_holds_its_task_back_until_then(tmp_path: Path) -> None:
    """Policy C: next_run_after is stored, survives a restart, and is cleared by the first success."""
    limited = [True]

    async def ask(context: TaskContext) -> TaskResult:
        if limited[0]:
            until = context.clock.now() + 20 * MINUTE
            return TaskResult({"succeeded": 0}, error="tenero said 429", limited_until=until)
        return TaskResult({"succeeded": 3})

    clock, job = VirtualClock(), prices(ask)
    async with scheduler(tmp_path, job, clock=clock) as made:
        until = (await made.status()).next_run_after["tenero"]
        assert until is None
        await asyncio.sleep(60)
        until = (await made.status()).next_run_after["tenero"]
    async with scheduler(tmp_path, job, clock=clock) as made:
        assert (await made.status()).next_run_after["tenero"] == until
        limited[0] = False
        await asyncio.sleep(25 * 60)
        status = await made.status()

    assert job.started[1] == until
    assert status.next_run_after["tenero"] is None
    assert status.consecutive_failures["tenero"] == 0


async def test_a_run_that_is_cut_off_behind_a_closed_limiter_is_held_back_too(tmp_path: Path) -> None:
    """It could not report that its upstream asked to slow down."""

    async def hang(context: TaskContext) -> TaskResult:
        await context.upstream("tenero", TeneroClient).fetch_token_price_usd("stx", context.logger, context.session)
        await context.clock.sleep(3_600)
        raise AssertionError("not reached")

    job, limit = prices(hang), response({}, status=429, headers={"retry-after": "1800"})
    async with scheduler(tmp_path, job, fetch=ScriptedFetch(always(limit))) as made:
        began_at = made.clock.now()
        await asyncio.sleep(5 * 60)
        status = await made.status()

    assert last_error_kind(status, "tenero") == "SliceExceeded"
    assert status.next_run_after["tenero"] == began_at + 30 * MINUTE


async def test_a_back_off_never_exceeds_its_bound(tmp_path: Path) -> None:
    """An upstream that says "next year" is asked again within the hour, even after a clock jump."""
    job = prices(limited(365 * DAY_S * 1000, error="limited"))
    async with scheduler(tmp_path, job) as made:
        await asyncio.sleep(60)
        made.clock.jump(-3 * 3_600_000)
        await asyncio.sleep(2 * 3600)

    assert len(job.started) >= 2


async def test_a_platform_failure_leaves_the_alarm_and_it_stays_armed(tmp_path: Path) -> None:
    """Policy A: the runtime sees it, the run is recorded, and the next slot comes."""
    job = prices(doing(StoreUnavailable("KV.put: the disk is full")))
    async with scheduler(tmp_path, job) as made:
        await asyncio.sleep(11 * 60)
        status = await made.status()

    assert made.runtime.metrics.alarms_failed == len(job.started) == 3
    assert status.next_alarm_at is not None
    assert last_error_kind(status, "tenero") == "StoreUnavailable"


async def test_a_full_disk_for_an_hour_does_not_leave_it_unarmed(tmp_path: Path) -> None:
    """Disk failures exhaust nothing: rings continue at growing intervals, and work resumes by itself."""
    full = [False]

    def fail_when_full(step: str, _db: Any) -> None:
        if full[0] and step == "before commit":
            raise OSError(28, "No space left on device")

    job = prices()
    async with scheduler(tmp_path, job) as made:
        await asyncio.sleep(60)
        made.runtime.store.crash_point = fail_when_full
        full[0] = True
        await asyncio.sleep(3600)
        assert len(job.started) == 1
        failed = made.runtime.metrics.alarms_failed
        full[0] = False
        await asyncio.sleep(1300)
        status = await made.status()

    assert 7 < failed < 15
    assert made.runtime.metrics.alarms_exhausted == 0
    assert status.next_alarm_at is not None
    assert status.consecutive_failures["tenero"] == 0
    assert len(job.started) > 2


async def test_seven_failures_of_the_alarm_itself_do_not_leave_it_unarmed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the runtime's retries are exhausted, the hook arms it again, and the log has a line."""
    job = prices()
    async with scheduler(tmp_path, job) as made:
        await asyncio.sleep(60)
        ring = SchedulerDO.alarm

        async def broken(_self: SchedulerDO, _info: Any = None) -> None:
            raise RuntimeError("a defect in alarm() itself")

        monkeypatch.setattr(SchedulerDO, "alarm", broken)
        await asyncio.sleep(420)
        monkeypatch.setattr(SchedulerDO, "alarm", ring)
        await asyncio.sleep(600)
        status = await made.status()

    assert [line["runs"] for line in made.log.named("alarm.exhausted")] == [7]
    assert status.next_alarm_at is not None
    assert status.tasks["tenero"].overdue is False


async def test_two_callers_share_one_run(tmp_path: Path) -> None:
    """Single flight: the later caller joins and gets the same result; the alarm does not start another."""

    async def slow(context: TaskContext) -> TaskResult:
        await context.clock.sleep(30)
        return TaskResult({"succeeded": len(job.started)})

    job = prices(slow)
    async with scheduler(tmp_path, job, arm=False) as made:
        first = asyncio.create_task(made.client().refresh("tenero"))
        await asyncio.sleep(10)
        second = asyncio.create_task(made.client().refresh("tenero"))
        answers = [await first, await second]

    assert [answer.summary["succeeded"] for answer in answers] == [1, 1]
    assert [answer.run.joined for answer in answers] == [False, True]
    assert answers[0].run.id == answers[1].run.id


async def test_status_answers_at_once_and_shows_progress(tmp_path: Path) -> None:
    """While a sweep runs, status shows how far it is, without waiting for it."""

    async def walk(context: TaskContext) -> TaskResult:
        for done in range(100):
            context.progress(done, 100, scanned=done)
            await context.clock.sleep(1)
        return TaskResult({"scanned": 100})

    async with scheduler(tmp_path, sweep(run=walk)) as made:
        await asyncio.sleep(40.5)
        before = made.clock.now()
        status = await made.status()

        assert made.clock.now() == before
        running = status.tasks["sweep"].running
        assert running is not None
        assert (running.done, running.total) == (40, 100)


async def test_a_run_cut_off_by_a_crash_is_interrupted_counted_and_run_again(tmp_path: Path) -> None:
    """At the next start it is recorded as such, and runs at once; not twice in a row."""
    clock, job = VirtualClock(), prices(doing(TaskResult({"succeeded": 1}), for_s=120))
    async with scheduler(tmp_path, job, clock=clock) as made:
        await asyncio.sleep(30)
    async with scheduler(tmp_path, job, clock=clock) as made:
        await asyncio.sleep(1)
        assert (await made.status()).consecutive_failures["tenero"] == 1
        await asyncio.sleep(30)
    async with scheduler(tmp_path, job, clock=clock) as made:
        await asyncio.sleep(1)
        runs = await made.runs()
        waiting = len(job.started)
        await asyncio.sleep(500)
        later = await made.runs()

    assert [(run.outcome, run.trigger) for run in runs] == [("interrupted", "rerun"), ("interrupted", "alarm")]
    assert runs[1].error == RunError("Interrupted", INTERRUPTED)
    assert waiting == 2
    assert later[0].outcome == "ok"


async def test_only_the_instance_in_the_settings_runs(tmp_path: Path) -> None:
    """Moving to "v2": the old object drains harmlessly, the new one works; both can be asked."""
    clock, job = VirtualClock(), prices()
    async with scheduler(tmp_path, job, clock=clock):
        await asyncio.sleep(60)
    runs_of_v1 = len(job.started)
    async with scheduler(tmp_path, job, clock=clock, instance="v2", arm=False) as made:
        await made.stub("v2").arm()
        await asyncio.sleep(3600)
        old, new = await made.client("v1").status(), await made.client("v2").status()
        with pytest.raises(UsageError, match="'v2' is"):
            await made.stub("v1").refresh_now("tenero")

    assert (old.active, old.next_alarm_at) == (False, None)
    assert (new.active, new.consecutive_failures) == (True, {"tenero": 0})
    assert len(job.started) == runs_of_v1 + 13
    assert len(made.log.named("scheduler.drained")) == 1


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
        runs = await made.runs()
        assert (runs[0].outcome, runs[0].result) == ("stopped", {"scanned": 20})
        assert (runs[0].reason, runs[0].error) == ("the scheduler is paused", None)
        status = await made.status()
        assert (status.consecutive_failures["sweep"], status.tasks["sweep"].last_success_at) == (0, None)
        assert len(job.started) == 1
        answer = await made.client().refresh("sweep")
        assert answer.summary["scanned"] == 60
        assert answer.run.paused_until == until
        await asyncio.sleep(1800)

    assert [at >= until for at in job.started] == [False, False, True]


async def test_a_pause_lasts_seven_days_at_most(tmp_path: Path) -> None:
    """A longer one is refused in times that people can read, and changes nothing."""
    async with scheduler(tmp_path, prices()) as made:
        longest = made.clock.now() + 7 * DAY_MS
        with pytest.raises(UsageError) as refused:
            await made.stub().pause_until(longest + 1)
        after_it = (await made.status()).paused_until
        await made.stub().pause_until(longest)

        assert (after_it, (await made.status()).paused_until) == (None, longest)
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

    async with scheduler(tmp_path, prices(look)):
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

    job = prices(work)
    async with scheduler(tmp_path, job) as made:
        await asyncio.sleep(60)
        until = made.clock.now() + 20 * MINUTE
        await made.stub().pause_until(until)
        await asyncio.sleep(21 * 60)
        newest = (await made.runs(limit=1))[0]

    assert job.started[1:] == [until]
    assert newest.outcome == "ok"


async def test_a_clock_that_is_set_back_makes_no_pause_longer_than_seven_days(tmp_path: Path) -> None:
    """The status, the tasks' sentences and the next run name the same end."""
    async with scheduler(tmp_path, prices()) as made:
        await made.stub().pause_until(made.clock.now() + 6 * DAY_MS)
        made.clock.jump(-60 * DAY_MS)
        status, latest = await made.status(), made.clock.now() + 7 * DAY_MS

    task = status.tasks["tenero"]
    assert status.paused_until == latest
    assert task.next_due_at == latest
    assert task.sentence == f"Tenero paused until {utc_time(latest)}"


@pytest.mark.parametrize("late_s", [7, 200])
async def test_a_late_start_does_not_move_the_slots_of_a_stretched_cadence(tmp_path: Path, late_s: int) -> None:
    """The process was down at a slot and starts later: the slot after that comes when it would have come."""
    clock, job, quota = VirtualClock(), prices(calls_per_run=40), {"tenero": Quota(minute=2, request_share=0)}
    async with scheduler(tmp_path, job, clock=clock, quotas=quota) as made:
        await asyncio.sleep(60)
        effective_ms = (await made.status()).tasks["tenero"].effective_cadence_ms
    await asyncio.sleep(effective_ms / 1000 - 60 + late_s)
    async with scheduler(tmp_path, job, clock=clock, quotas=quota) as made:
        await asyncio.sleep(effective_ms / 1000)
        runs = await made.runs(limit=3)

    slots = [run.slot_at or 0 for run in reversed(runs)]
    assert effective_ms == 20 * MINUTE
    assert job.started[1] == job.started[0] + effective_ms + late_s * 1000
    assert slots == [slots[0], slots[0] + effective_ms, slots[0] + 2 * effective_ms]


async def test_a_task_that_runs_as_often_as_it_can_afford_is_not_overdue(tmp_path: Path) -> None:
    """Its cadence is stretched to 20 minutes; after 19 it is fine, although three of its own have passed."""
    quota = {"tenero": Quota(minute=2, request_share=0)}
    async with scheduler(tmp_path, prices(calls_per_run=40), quotas=quota) as made:
        await asyncio.sleep(19 * 60)
        task = (await made.status()).tasks["tenero"]

    assert (task.effective_cadence_ms, task.overdue, task.condition) == (20 * MINUTE, False, "ok")


async def test_a_complete_run_ends_a_row_of_interruptions_across_restarts(tmp_path: Path) -> None:
    """A run was cut off before one that was complete: the next one that is cut off is run again at once."""
    clock, job = VirtualClock(), prices(doing(TaskResult({"succeeded": 1}), for_s=30))
    async with scheduler(tmp_path, job, clock=clock):
        await asyncio.sleep(11)
    async with scheduler(tmp_path, job, clock=clock):
        while len(job.started) < 3:
            await asyncio.sleep(1)
    began_at = clock.now()
    async with scheduler(tmp_path, job, clock=clock):
        await asyncio.sleep(5)

    assert job.started[3] - began_at < 1_000


async def test_the_history_continues_in_order_after_a_restart(tmp_path: Path) -> None:
    """The history continues in its order: newest first, and runs in a row are counted from the newest."""
    clock, job = VirtualClock(), prices()
    async with scheduler(tmp_path, job, clock=clock):
        await asyncio.sleep(31 * 60)
    async with scheduler(tmp_path, job, clock=clock) as made:
        await asyncio.sleep(5 * 60)
        ids = [run.id for run in await made.runs()]

    assert len(ids) == 8
    assert ids == sorted(ids, reverse=True)


async def test_a_task_wakes_when_its_run_asked_for_it_even_after_a_restart(tmp_path: Path) -> None:
    """Requested at 90 s: the run starts then, in this process or the next; the cadence stays unchanged."""

    async def work(_context: TaskContext) -> TaskResult:
        return TaskResult({}, wake_at=job.started[0] + 90_000 if len(job.started) == 1 else None)

    clock, job = VirtualClock(), Job("rounds", FIVE, run=work)
    async with scheduler(tmp_path, job, clock=clock):
        await asyncio.sleep(10)
    async with scheduler(tmp_path, job, clock=clock):
        await asyncio.sleep(6 * 60)

    first = job.started[0]
    assert job.started[1:] == [first + 90_000, first - first % FIVE + FIVE]


async def test_a_requested_run_does_not_wait_for_another_task(tmp_path: Path) -> None:
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


async def test_a_task_without_calls_tries_again_soon_after_the_store_failed(tmp_path: Path) -> None:
    """An hourly task does not wait for its next hour: a tenth of its cadence is enough."""

    async def work(_context: TaskContext) -> TaskResult:
        if len(job.started) <= 2:
            raise StoreUnavailable("the disk is full")
        return TaskResult({})

    job = Job("snapshot", 12 * FIVE, run=work, upstream=None, calls_per_run=0)
    async with scheduler(tmp_path, job) as made:
        await asyncio.sleep(30 * 60)
        task = (await made.status()).tasks["snapshot"]

    assert [after - before for before, after in itertools.pairwise(job.started[:3])] == [6 * MINUTE, 6 * MINUTE]
    assert task.condition == "ok"


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


@pytest.mark.parametrize("failures", [1, 3])
async def test_the_breaker_opens_loudly_and_half_opens_by_itself(tmp_path: Path, failures: int) -> None:
    """Policy D, when it is switched on, at the failure of the settings: an error line, an hour of silence, one try."""
    job = prices(doing(RuntimeError("down")))
    async with scheduler(tmp_path, job, breaker_failures=failures) as made:
        await asyncio.sleep(50 * 60)
        held_until = (await made.status()).next_run_after["tenero"]
        await asyncio.sleep(25 * 60)
        opened = made.log.of("breaker.opened")

    assert held_until == job.started[failures - 1] + HOUR
    assert len(job.started) == failures + 1
    assert job.started[-1] >= held_until
    assert [(line.level, line.fields["failures"]) for line in opened] == [("ERROR", failures), ("ERROR", failures + 1)]


@pytest.mark.parametrize(("minute", "is_held"), [(100, True), (200, False)])
async def test_a_changed_plan_ends_a_hold(minute: int, is_held: bool, tmp_path: Path) -> None:
    """After a restart with the same plan the task still waits; with another one it may run."""
    clock, fetch = VirtualClock(), ScriptedFetch(always(response({})))

    async def limited(context: TaskContext) -> TaskResult:
        await context.upstream("tenero", TeneroClient).client.get("/x", lambda body: body, context.session)
        until = context.clock.now() + 30 * MINUTE
        return TaskResult({}, incomplete="429", limited_until=until, progressed=False)

    before = {"tenero": Quota(minute=100)}
    async with scheduler(tmp_path, prices(limited), clock=clock, fetch=fetch, quotas=before) as made:
        await asyncio.sleep(1)
        assert (await made.status()).next_run_after["tenero"] is not None
    after = {"tenero": Quota(minute=minute)}
    async with scheduler(tmp_path, prices(limited), clock=clock, quotas=after, arm=False) as made:
        held_until = (await made.status()).next_run_after["tenero"]

    assert (held_until is not None) == is_held


async def test_a_resume_does_not_end_holds_by_the_upstream(tmp_path: Path) -> None:
    """A task that its upstream limits waits as long as the upstream asked."""
    job = prices(limited(30 * MINUTE, incomplete="429", progressed=False))
    async with scheduler(tmp_path, job, breaker_failures=2) as made:
        await asyncio.sleep(1)
        before = (await made.status()).next_run_after["tenero"]
        await made.client().resume()
        after = (await made.status()).next_run_after["tenero"]
        await asyncio.sleep(20 * 60)

    assert before == after == job.started[0] + 30 * MINUTE
    assert len(job.started) == 1


async def test_a_limited_task_runs_again_after_a_tenth_of_its_cadence_at_the_earliest(tmp_path: Path) -> None:
    """An upstream that keeps answering "in a second" is called ten times per cadence, not three hundred times."""
    job = prices(limited(1_000, incomplete="429"))
    async with scheduler(tmp_path, job) as made:
        await asyncio.sleep(95)
        triggers = [run.trigger for run in reversed(await made.runs())]

    assert [at - job.started[0] for at in job.started] == [0, 30_000, 60_000, 90_000]
    assert triggers == ["alarm", "rerun", "rerun", "rerun"]


async def test_a_run_that_our_own_budget_limited_waits_as_long_as_it_says(tmp_path: Path) -> None:
    """It is not run again before its next slot, and counts as no failure."""
    job = prices(limited(1_000, incomplete="budget", by_budget=True, progressed=False))
    async with scheduler(tmp_path, job) as made:
        await asyncio.sleep(4 * 60)
        status = await made.status()

    assert len(job.started) == 1
    assert status.consecutive_failures["tenero"] == 0


async def test_a_run_asked_for_starts_after_a_second_at_the_earliest(tmp_path: Path) -> None:
    """Even if it asks for the past; a time that is farther away is kept to the millisecond."""
    wishes = [-DAY, 400, 1_000, 2_345]

    async def work(context: TaskContext) -> TaskResult:
        wake_at = context.clock.now() + wishes.pop(0) if wishes else None
        return TaskResult({}, wake_at=wake_at)

    job = Job("rounds", HOUR, run=work)
    async with scheduler(tmp_path, job):
        await asyncio.sleep(60)

    assert [at - job.started[0] for at in job.started] == [0, 1_000, 2_000, 3_000, 5_345]


async def test_a_refresh_uses_no_slot_and_misses_none(tmp_path: Path) -> None:
    """The slots continue as if it had not happened; its run records what started it."""
    job = prices()
    async with scheduler(tmp_path, job) as made:
        await asyncio.sleep(100)
        refreshed = await made.client().refresh("tenero")
        run = (await made.runs(limit=1))[0]
        await asyncio.sleep(300)
        status = await made.status()

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
        remembered = (await made.status()).last_job_at

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


async def test_before_it_is_armed_a_request_job_starts_nothing(tmp_path: Path) -> None:
    feed = Job("feed", HOUR)
    async with scheduler(tmp_path, feed, request_jobs={"look": look}, arm=False) as made:
        await made.client().run_job("look", None)
        await asyncio.sleep(60)
        next_at = (await made.status()).next_alarm_at

    assert (feed.started, next_at) == ([], None)


async def test_a_run_requested_during_a_run_follows_it(tmp_path: Path) -> None:
    """What came in meanwhile may be behind the place where the run already is."""
    feed = Job("feed", FIVE, run=doing(for_s=60))
    async with scheduler(tmp_path, feed, request_jobs={"look": look}) as made:
        await asyncio.sleep(45)
        await made.client().run_job("look", None)
        await asyncio.sleep(30)

    assert [at - feed.started[0] for at in feed.started] == [0, 60_000]


async def test_a_task_is_woken_by_runs_of_others(tmp_path: Path) -> None:
    """However they end; without calls only a second apart, never during a pause, and not by others' counters."""

    async def work(context: TaskContext) -> TaskResult:
        context.progress(1, 2, inserted=len(feed.started) % 2)
        raise RunStopped("paused")

    feed = Job("feed", FIVE, run=work)
    board = Job("board", HOUR, upstream=None, calls_per_run=0, run=doing(for_s=2))
    task = replace(board.task(), woken_by=lambda name, counters: name == "feed" and bool(counters["inserted"]))
    async with scheduler(tmp_path, feed, task, request_jobs={"look": look}) as made:
        await asyncio.sleep(901)
        await made.client().pause_until(made.clock.now() + 600_000)
        await made.client().refresh("feed")
        await asyncio.sleep(640)

    began = board.started[0]
    assert [at - began for at in feed.started] == [0, 300_000, 600_000, 900_000, 901_000, 1_501_000]
    assert [at - began for at in board.started] == [0, 2_000, 600_000, 1_501_000]


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

    async def prepare_or_fail(*arguments: Any) -> None:
        if failures[0]:
            failures[0] -= 1
            raise RuntimeError("a defect")
        await prepare_history(*arguments)

    monkeypatch.setattr("tocsin.scheduler.scheduler_do.prepare_history", prepare_or_fail)
    async with scheduler(tmp_path, prices()) as made:
        await asyncio.sleep(60)
        lateness = (await made.client().measured_status()).measures.alarm_lateness

    assert made.runtime.metrics.alarms_failed == 3
    assert (lateness.counts[0], lateness.sum) == (sum(lateness.counts), 0)


async def test_a_pause_and_a_resume_survive_a_restart(tmp_path: Path) -> None:
    """A pause, and the end of one."""
    clock, paused = VirtualClock(), []
    for act in ("pause", "resume", "nothing"):
        async with scheduler(tmp_path, prices(), clock=clock) as made:
            paused.append((await made.status()).paused_until is not None)
            if act == "pause":
                await made.client().pause_until(clock.now() + DAY)
            elif act == "resume":
                await made.client().resume()

    assert paused == [False, True, False]


async def test_a_paused_task_that_is_held_back_says_when_it_runs(tmp_path: Path) -> None:
    """When both have ended."""
    async with scheduler(tmp_path, prices(limited(10 * MINUTE, incomplete="429", progressed=False))) as made:
        await asyncio.sleep(1)
        dues = []
        for minutes in (5, 30):
            until = made.clock.now() + minutes * MINUTE
            await made.client().pause_until(until, "tenero")
            task, held_until = (await made.status()).tasks["tenero"], (await made.status()).next_run_after["tenero"]
            dues.append((task.next_due_at == held_until, task.next_due_at == until))

    assert dues == [(True, False), (False, True)]


async def test_a_pause_of_one_task_leaves_the_others_alone(tmp_path: Path) -> None:
    """Its run under way stops, a refresh by hand works, it lasts across a restart and says why it is overdue."""

    async def work(context: TaskContext) -> TaskResult:
        for _ in range(10):
            context.checkpoint()
            await context.clock.sleep(1)
        return TaskResult({})

    clock, sweep, tenero = VirtualClock(), Job("sweep", 5 * MINUTE, run=work, upstream="hiro"), prices(work)
    async with scheduler(tmp_path, tenero, sweep, clock=clock) as made:
        await asyncio.sleep(2)
        until = clock.now() + 30 * MINUTE
        await made.client().pause_until(until, "sweep")
        await asyncio.sleep(20)
        stopped, by_hand = (await made.runs("sweep"))[0], await made.client().refresh("sweep")
    async with scheduler(tmp_path, tenero, sweep, clock=clock) as made:
        await asyncio.sleep(20 * 60)
        status = await made.status()
        resumed_at = clock.now()
        await made.client().resume("tenero")
        await made.client().pause_until(until + 60 * MINUTE)
        await made.client().resume()  # all of them
        await asyncio.sleep(1)

    task = status.tasks["sweep"]
    assert (stopped.outcome, stopped.reason) == ("stopped", "the task is paused")
    assert by_hand.run.outcome == "ok"
    assert (status.paused_until, task.paused_until, task.next_due_at) == (None, until, until)
    assert (task.condition, task.problem is None) == ("overdue", False)
    assert task.sentence.endswith("(every 5m): it is paused; next run 20:00 UTC")
    assert (status.tasks["tenero"].condition, len(tenero.started)) == ("ok", 5)
    assert sweep.started[2:] == [resumed_at]


async def ask(context: TaskContext) -> TaskResult:
    """One call; a refused one holds the task back as the upstream says."""
    hiro = context.upstream("hiro", HiroClient)
    try:
        value_or_raise(await hiro.principal_transactions("SP1", context.session, None))
    except NoAnswer as error:
        until = error.answer.until if isinstance(error.answer, Limited) else None
        return TaskResult({}, limited_until=until, incomplete=str(error), progressed=False)
    return TaskResult({"succeeded": 1})


def asking(**options: Any) -> Job:
    return Job("sweep", 5 * MINUTE, upstream="hiro", **{"run": ask, **options})


class Hiro:
    """Answers with a page, with a 429, or not at all."""

    def __init__(self) -> None:
        self.mode = "page"
        self.fetch = ScriptedFetch(self._answer)

    async def _answer(self, _request: Request) -> FetchResponse:
        if self.mode == "hang":
            await asyncio.sleep(3_600)
        return response({}, status=429, headers={"retry-after": "30"}) if self.mode == "429" else response(PAGE)


async def test_after_an_eviction_a_429_does_not_close_the_upstream_for_good(tmp_path: Path) -> None:
    """Run, wake again, run into a 429, run again: the last one is let in."""
    hiro = Hiro()
    async with scheduler(tmp_path, asking(), fetch=hiro.fetch) as made:
        await asyncio.sleep(60)
        made.reset()
        hiro.mode = "429"
        limited = (await made.client().refresh("sweep")).run.outcome
        hiro.mode = "page"
        await asyncio.sleep(15 * 60)
        status = await made.status()
        runs = await made.runs("sweep", 1)

    assert limited == "limited"
    assert runs[0].outcome == "ok"
    assert status.budgets["hiro"].in_flight == 0


async def test_a_run_that_is_repeated_by_itself_waits_for_a_closed_upstream(tmp_path: Path) -> None:
    """Only an operator's refresh may try at once."""
    hiro = Hiro()
    hiro.mode = "429"
    async with scheduler(tmp_path, asking(), fetch=hiro.fetch) as made:
        await asyncio.sleep(5)
        made.reset()
        await made.status()
        await asyncio.sleep(15)
        runs, calls = await made.runs(), len(hiro.fetch.requests)

    assert ([run.trigger for run in runs], calls) == (["rerun", "alarm"], 1)


async def test_a_call_cut_off_with_its_slice_is_no_longer_in_flight(tmp_path: Path) -> None:
    """The slice ends during the fetch; then a 429 arrives, and after it the upstream is called again."""
    hiro = Hiro()
    hiro.mode = "hang"
    async with scheduler(tmp_path, asking(slice_ms=MINUTE), fetch=hiro.fetch) as made:
        await asyncio.sleep(61)
        cut_off = (await made.runs("sweep", 1))[0]
        in_flight = (await made.status()).budgets["hiro"].in_flight
        hiro.mode = "429"
        await made.client().refresh("sweep")
        hiro.mode = "page"
        await asyncio.sleep(15 * 60)
        runs = await made.runs("sweep", 1)

    assert cut_off.error is not None
    assert (cut_off.outcome, cut_off.error.kind) == ("failed", "SliceExceeded")
    assert in_flight == 0
    assert runs[0].outcome == "ok"


async def test_resume_lets_an_open_breaker_try_again(tmp_path: Path) -> None:
    """At once, not after the hour for which the breaker holds the task back; the breaker of another task stays open."""
    job, other = asking(run=doing(RuntimeError("down"))), prices(doing(RuntimeError("down")))
    async with scheduler(tmp_path, job, other, breaker_failures=3) as made:
        await asyncio.sleep(20 * 60)
        assert len(job.started) == 3
        resumed_at = made.clock.now()
        await made.stub().resume("sweep")
        await asyncio.sleep(1)

    assert (job.started[3:], other.started[3:]) == ([resumed_at], [])


async def test_a_run_that_did_not_fail_opens_no_breaker(tmp_path: Path) -> None:
    """After the hour it runs at every slot again, although it is never complete: a round may wait for days."""
    failing = [True]

    async def fail_at_first(_context: TaskContext) -> TaskResult:
        if failing[0]:
            raise RuntimeError("down")
        return TaskResult({}, incomplete="a round waits")

    job = asking(run=fail_at_first)
    async with scheduler(tmp_path, job, breaker_failures=3) as made:
        await asyncio.sleep(20 * 60)
        failing[0] = False
        await asyncio.sleep(60 * 60)
        runs = len(job.started)
        await asyncio.sleep(60 * 60)

        assert len(made.log.named("breaker.opened")) == 1
    assert len(job.started) == runs + 12


async def test_a_reload_changes_the_tasks_of_the_living_object(tmp_path: Path) -> None:
    """A cadence, a task that comes and one that goes; the alarm follows at once."""
    prices, feed = Job("tenero", 60 * MINUTE), Job("feed", 10 * MINUTE, upstream="hiro")
    async with scheduler(tmp_path, prices, Job("sweep", 60 * MINUTE, upstream="hiro")) as made:
        await asyncio.sleep(1)
        prices.started.clear()
        prices.cadence_ms = 5 * MINUTE
        made.env.tasks = [prices.task(), feed.task()]
        await made.client().reload()
        await asyncio.sleep(3_600)
        status = await made.status()

    assert list(status.tasks) == ["tenero", "feed"]
    assert status.tasks["tenero"].cadence_ms == 300_000
    assert len(prices.started) == 12  # in an hour; the first run was a second ago
    assert len(feed.started) == 7


async def test_a_run_under_way_ends_although_its_task_is_gone(tmp_path: Path) -> None:
    """It is recorded as it began, and its task does not come back."""
    slow = Job("sweep", FIVE, run=doing(for_s=2))
    async with scheduler(tmp_path, Job("tenero", 60 * MINUTE), slow) as made:
        await asyncio.sleep(1)
        made.env.tasks = made.env.tasks[:1]
        await made.client().reload()
        await asyncio.sleep(1_200)
        runs = await made.runs()

    assert [run.outcome for run in runs if run.task == "sweep"] == ["ok"]
    assert slow.started[1:] == []
