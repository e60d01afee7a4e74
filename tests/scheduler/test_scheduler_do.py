"""The whole object in virtual time: days of slots, failures of every kind, restarts."""

import asyncio
from pathlib import Path
from random import Random
from typing import Any

import pytest

from holdfast.errors import StoreUnavailable, UsageError
from holdfast_testing.virtual_time import VirtualClock
from support.scheduler import MINUTE, Job, scheduler
from support.scripted_fetch import ScriptedFetch, always, response
from tocsin.scheduler.scheduler_do import SchedulerDO
from tocsin.scheduler.task import TaskContext, TaskResult
from tocsin.scheduler.types import RunError, Status
from tocsin.upstream.tenero import TeneroClient

DAY_S = 86_400


def prices(**options: Any) -> Job:
    return Job("tenero", 5 * MINUTE, **options)


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

    one, two = prices(run=any_length), sweep(run=any_length)
    async with scheduler(tmp_path, one, two) as made:
        began_at = made.clock.now()
        await asyncio.sleep(DAY_S - 1)
        status = await made.client().status()

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

    async def hang(_context: TaskContext) -> TaskResult:
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    one, two = prices(), sweep(run=hang)
    async with scheduler(tmp_path, one, two) as made:
        await asyncio.sleep(3600)
        status = await made.client().status()

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

    async with scheduler(tmp_path, prices(run=hang)) as made:
        began_at = made.clock.now()
        answer = await made.client().refresh("tenero")
        shown = (await made.client().status()).last_result["tenero"]

    assert shown == {"scanned": 1, "startedAt": began_at, "durationMs": 4 * MINUTE}
    assert answer.summary == shown


async def test_a_task_that_raises_harms_no_other_and_is_counted(tmp_path: Path) -> None:
    """Policy B: the failure is a result with class and message, and the next slot tries again."""

    async def broken(_context: TaskContext) -> TaskResult:
        raise ZeroDivisionError("a defect")

    one, two = prices(run=broken), sweep()
    async with scheduler(tmp_path, one, two) as made:
        await asyncio.sleep(16 * 60)
        status = await made.client().status()
        runs = (await made.client().runs("tenero", 1)).runs

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

    clock, job = VirtualClock(), prices(run=ask)
    async with scheduler(tmp_path, job, clock=clock) as made:
        until = (await made.client().status()).next_run_after["tenero"]
        assert until is None
        await asyncio.sleep(60)
        until = (await made.client().status()).next_run_after["tenero"]
    async with scheduler(tmp_path, job, clock=clock) as made:
        assert (await made.client().status()).next_run_after["tenero"] == until
        limited[0] = False
        await asyncio.sleep(25 * 60)
        status = await made.client().status()

    assert job.started[1] == until
    assert status.next_run_after["tenero"] is None
    assert status.consecutive_failures["tenero"] == 0


async def test_a_run_that_is_cut_off_behind_a_closed_limiter_is_held_back_too(tmp_path: Path) -> None:
    """It could not report that its upstream asked to slow down."""

    async def hang(context: TaskContext) -> TaskResult:
        await context.upstream("tenero", TeneroClient).fetch_token_price_usd("stx", context.logger, context.session)
        await context.clock.sleep(3_600)
        raise AssertionError("not reached")

    job, limit = prices(run=hang), response({}, status=429, headers={"retry-after": "1800"})
    async with scheduler(tmp_path, job, fetch=ScriptedFetch(always(limit))) as made:
        began_at = made.clock.now()
        await asyncio.sleep(5 * 60)
        status = await made.client().status()

    assert last_error_kind(status, "tenero") == "SliceExceeded"
    assert status.next_run_after["tenero"] == began_at + 30 * MINUTE


async def test_a_back_off_never_exceeds_its_bound(tmp_path: Path) -> None:
    """An upstream that says "next year" is asked again within the hour, even after a clock jump."""

    async def ask(context: TaskContext) -> TaskResult:
        return TaskResult({}, error="limited", limited_until=context.clock.now() + 365 * DAY_S * 1000)

    job = prices(run=ask)
    async with scheduler(tmp_path, job) as made:
        await asyncio.sleep(60)
        made.clock.jump(-3 * 3_600_000)
        await asyncio.sleep(2 * 3600)

    assert len(job.started) >= 2


async def test_the_breaker_opens_loudly_and_half_opens_by_itself(tmp_path: Path) -> None:
    """Policy D, when it is switched on: an error line, an hour of silence, one try."""

    async def broken(_context: TaskContext) -> TaskResult:
        raise RuntimeError("down")

    job = prices(run=broken)
    async with scheduler(tmp_path, job, breaker_failures=3) as made:
        await asyncio.sleep(3600 + 15 * 60)
        opened = made.log.named("breaker.opened")

    assert len(job.started) == 4
    assert job.started[3] - job.started[2] >= 3_600_000
    assert [line["failures"] for line in opened] == [3, 4]


async def test_a_platform_failure_leaves_the_alarm_and_it_stays_armed(tmp_path: Path) -> None:
    """Policy A: the runtime sees it, the run is recorded, and the next slot comes."""

    async def no_store(_context: TaskContext) -> TaskResult:
        raise StoreUnavailable("KV.put: the disk is full")

    job = prices(run=no_store)
    async with scheduler(tmp_path, job) as made:
        await asyncio.sleep(11 * 60)
        status = await made.client().status()

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
        status = await made.client().status()

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
        status = await made.client().status()

    assert [line["runs"] for line in made.log.named("alarm.exhausted")] == [7]
    assert status.next_alarm_at is not None
    assert status.tasks["tenero"].overdue is False


async def test_two_callers_share_one_run(tmp_path: Path) -> None:
    """Single flight: the later caller joins and gets the same result; the alarm does not start another."""

    async def slow(context: TaskContext) -> TaskResult:
        await context.clock.sleep(30)
        return TaskResult({"succeeded": len(job.started)})

    job = prices(run=slow)
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
        status = await made.client().status()

        assert made.clock.now() == before
        running = status.tasks["sweep"].running
        assert running is not None
        assert (running.done, running.total) == (40, 100)


async def test_a_run_cut_off_by_a_crash_is_interrupted_counted_and_run_again(tmp_path: Path) -> None:
    """At the next start it is recorded as such, and runs at once; not twice in a row."""

    async def slow(context: TaskContext) -> TaskResult:
        await context.clock.sleep(120)
        return TaskResult({"succeeded": 1})

    clock, job = VirtualClock(), prices(run=slow)
    async with scheduler(tmp_path, job, clock=clock) as made:
        await asyncio.sleep(30)
    async with scheduler(tmp_path, job, clock=clock) as made:
        await asyncio.sleep(1)
        assert (await made.client().status()).consecutive_failures["tenero"] == 1
        await asyncio.sleep(30)
    async with scheduler(tmp_path, job, clock=clock) as made:
        await asyncio.sleep(1)
        runs = (await made.client().runs(None, 50)).runs
        waiting = len(job.started)
        await asyncio.sleep(500)
        later = (await made.client().runs(None, 50)).runs

    assert [(run.outcome, run.trigger) for run in runs] == [("interrupted", "rerun"), ("interrupted", "alarm")]
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
