"""What the watch of a process sees, what a stuck loop cannot hide, and which alerts the process sends itself."""

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import ObjectReset, StoreUnavailable
from holdfast.testing.virtual_time import START_MS, VirtualClock
from holdfast_testing.captured_log import CapturedLog
from support.scheduler import MINUTE, Job, scheduler
from support.statuses import scheduler_status
from tocsin.errors import FetchFailed
from tocsin.fetch import Fetch, FetchResponse
from tocsin.scheduler.alerts import ProcessAlerts
from tocsin.scheduler.client import SchedulerClient
from tocsin.scheduler.config import SchedulerEnv
from tocsin.scheduler.health import HealthSnapshot
from tocsin.scheduler.types import MeasuredStatus, Measures, Status
from tocsin.scheduler.watch import HealthWatch
from tocsin.settings import Settings

URL = "https://alerts.test/T0/s3cret"


@dataclass(frozen=True)
class Problem:
    """What is wrong with a file."""

    sentence: str
    loses_writes: bool


@dataclass
class Process:
    """A process with a scheduler, a store and a receiver of alerts that tests break and repair."""

    clock: VirtualClock = field(default_factory=VirtualClock)
    log: CapturedLog = field(default_factory=CapturedLog)
    answer: Status | Exception | None = field(default_factory=scheduler_status)  # None: it never answers
    armed: int = 0
    takes_alarm: bool = True
    store_error: str | None = None
    written: int = 0
    lost: Problem | None = None
    alarm_late_ms: int | None = None  # None: the time of its alarm is as in the answer
    overdue: bool = False
    receiver_down: bool = False
    told: list[dict[str, Any]] = field(default_factory=list)
    told_at: list[float] = field(default_factory=list)

    def watch(self, on_check: Callable[[HealthSnapshot], None] = lambda _: None) -> HealthWatch:
        return HealthWatch(lambda: SchedulerClient(self), self, self.clock, lambda: self.lost, on_check)  # type: ignore[arg-type]  # and of a store

    async def put(self, _key: str, _value: str, **_options: Any) -> None:
        if self.store_error is not None:
            raise StoreUnavailable(self.store_error)
        self.written += 1

    async def measured_status(self) -> dict[str, Any]:
        if isinstance(self.answer, Exception):
            raise self.answer
        if self.answer is None:
            await asyncio.Event().wait()
        assert self.answer is not None
        status = self.answer
        if self.overdue:
            sweep = replace(status.tasks["sweep"], condition="overdue", problem="sweep is overdue")
            status = replace(status, tasks={**status.tasks, "sweep": sweep})
        if self.alarm_late_ms is not None:
            status = replace(status, next_alarm_at=self.clock.now() - self.alarm_late_ms)
        return MeasuredStatus(status, Measures()).to_json()

    async def arm(self) -> int | None:
        if isinstance(self.answer, Exception):
            raise self.answer
        self.armed += 1
        if not self.takes_alarm:
            await asyncio.Event().wait()
        return 5

    async def fetch(self, url: str, **options: Any) -> FetchResponse:
        assert url == URL
        if self.receiver_down:
            raise FetchFailed("cannot connect: refused")
        self.told.append(json.loads(options["body"]))
        self.told_at.append(self.clock.monotonic())
        return FetchResponse(200, {}, b"")

    @property
    def events(self) -> list[str]:
        return [alert["event"] for alert in self.told]


async def test_an_old_check_shows_its_age() -> None:
    """A stuck loop checks nothing: the age of the last check grows, whatever it saw."""
    made = Process()
    health = made.watch()
    await health.check()
    fresh = await health.snapshot()
    await made.clock.sleep(60)

    assert (fresh.loop_tick_age_s, fresh.scheduler_error) == (0, None)
    assert fresh.status is not None
    assert fresh.status.next_alarm_at == START_MS + 60_000
    assert (await health.snapshot()).loop_tick_age_s == 60


async def test_a_store_error_and_its_recovery_are_noticed() -> None:
    """It is written to every few seconds, and at each check while it fails."""
    made = Process()
    health = made.watch()
    await health.check()
    await health.check()
    assert made.written == 1
    made.store_error = "KV.put: disk full"
    await made.clock.sleep(5)
    await health.check()
    assert (await health.snapshot()).store_error == "KV.put: disk full"
    made.store_error = None
    await health.check()

    assert (await health.snapshot()).store_error is None


async def test_a_scheduler_that_does_not_answer_is_a_problem() -> None:
    """An error or silence: each has its sentence."""
    failed, silent = Process(answer=ObjectReset("reset")).watch(), Process(answer=None).watch()
    await failed.check()
    await silent.check()

    assert (await failed.snapshot()).scheduler_error == "the scheduler does not answer: reset"
    assert (await silent.snapshot()).scheduler_error == "the scheduler did not answer within 2 s"


async def test_the_alarm_is_set_again_when_the_store_recovers() -> None:
    """Once, and not before the scheduler takes it."""
    made = Process()
    health = made.watch()
    await health.check()
    made.store_error = "KV.put: disk full"
    await made.clock.sleep(5)
    await health.check()
    made.store_error, made.answer = None, ObjectReset("reset")
    await health.check()
    armed_while_reset, made.answer = made.armed, scheduler_status()
    for _ in range(3):
        await made.clock.sleep(5)
        await health.check()

    assert (armed_while_reset, made.armed) == (0, 1)


@pytest.mark.slow
async def test_work_resumes_soon_after_a_full_disk(tmp_path: Path) -> None:
    """The retries of the alarm have become rare by then, and the watch does not wait for the next one."""
    prices, store = Job("tenero", MINUTE, slice_ms=MINUTE // 2), Process()

    def full(step: str, _connection: sqlite3.Connection) -> None:
        if step == "before commit":
            raise sqlite3.OperationalError("database or disk is full")

    async with scheduler(tmp_path, prices) as made:
        health = HealthWatch(made.client, store, made.clock)  # type: ignore[arg-type]
        watching = asyncio.create_task(health.watch())
        await asyncio.sleep(90)
        free = made.runtime.store.crash_point
        made.runtime.store.crash_point = full
        store.store_error = "KV.put: database or disk is full"
        await asyncio.sleep(400)
        made.runtime.store.crash_point = free
        store.store_error, freed_at = None, made.clock.now()
        await asyncio.sleep(300)
        watching.cancel()

    first = next(at for at in prices.started if at >= freed_at)
    assert first - freed_at < 5_000


async def test_a_lost_file_is_the_error_of_the_store() -> None:
    """While writes would be lost, nothing is tried. A lost lock file is a problem, but work continues."""
    made, seen = Process(), []
    health = made.watch()
    deleted, unlocked = Problem("db.sqlite was deleted", True), Problem("tocsin.lock was deleted", False)
    for made.lost in (None, deleted, unlocked, None):
        await made.clock.sleep(5)
        await health.check()
        snapshot = await health.snapshot()
        seen.append((snapshot.store_error, snapshot.file_problem, made.written, made.armed))

    assert seen == [
        (None, None, 1, 0),
        ("db.sqlite was deleted", None, 1, 0),
        (None, "tocsin.lock was deleted", 2, 1),
        (None, None, 3, 1),
    ]


async def test_the_store_is_written_every_five_seconds_and_looked_at_every_second() -> None:
    made, ages = Process(), []
    await made.clock.sleep(100)

    def note(seen: HealthSnapshot) -> None:
        ages.append((made.clock.now() - START_MS - 100_000, seen.loop_tick_age_s, made.written))

    watching = asyncio.create_task(made.watch(note).watch())
    await made.clock.sleep(5.5)
    watching.cancel()

    assert ages == [(0, 0, 1), (1_000, 0, 1), (2_000, 0, 1), (3_000, 0, 1), (4_000, 0, 1), (5_000, 0, 2)]


@pytest.mark.parametrize(("active", "next_alarm_at", "armed"), [(True, None, 1), (False, None, 0), (True, START_MS, 0)])
async def test_a_missing_alarm_is_set_again(active: bool, next_alarm_at: int | None, armed: int) -> None:
    """Unless this scheduler is not the active one."""
    made = Process(answer=scheduler_status(active=active, next_alarm_at=next_alarm_at))
    await made.watch().check()

    assert made.armed == armed


async def test_before_the_first_check_the_scheduler_is_a_problem() -> None:
    health = Process().watch()

    assert health.seen().scheduler_error == "the scheduler has not been checked yet"
    assert (health.seen().store_error, health.seen().file_problem) == (None, None)


async def test_a_scheduler_that_does_not_take_the_alarm_does_not_stop_the_watch() -> None:
    """It is called again at the next successful write."""
    made = Process(takes_alarm=False)
    health = made.watch()
    made.store_error = "KV.put: disk full"
    await health.check()
    made.store_error = None
    for _ in range(2):
        await health.check()
        await made.clock.sleep(5)

    assert made.armed == 2
    assert health.seen().status is not None


def process_alerts(fetch: Fetch, clock: VirtualClock, log: CapturedLog) -> ProcessAlerts:
    settings = Settings(alert_url=URL)
    env = SchedulerEnv(
        fetch, clock, log, lambda: 0.5, settings, {}, (), mask=lambda text: text.replace("hunter2", "***")
    )
    return ProcessAlerts(env)


@asynccontextmanager
async def process() -> AsyncIterator[Process]:
    made = Process(alarm_late_ms=0)
    sender = process_alerts(made.fetch, made.clock, made.log)
    watching = asyncio.create_task(made.watch(sender.check).watch())
    try:
        yield made
    finally:
        watching.cancel()


@pytest.mark.slow
async def test_a_store_error_is_sent_within_a_minute() -> None:
    """Once, without secrets, and once more when it works again."""
    async with process() as made:
        await asyncio.sleep(300)
        assert made.told == []
        made.store_error = "disk I/O error near hunter2"
        await asyncio.sleep(3_600)
        assert made.events == ["not_ready"]
        assert made.told_at[0] <= 360
        made.store_error = None
        await asyncio.sleep(60)

    assert made.events == ["not_ready", "ready"]
    assert made.told[0]["state"] == "broken"
    assert made.told[0]["reasons"] == ["the store cannot be written: disk I/O error near ***"]


async def test_a_lost_file_is_reported() -> None:
    """With its name, and that it is back."""
    async with process() as made:
        made.lost = Problem("kv.sqlite was deleted or replaced while Tocsin was running", loses_writes=True)
        await asyncio.sleep(60)
        made.lost = None
        await asyncio.sleep(60)

    assert made.events == ["not_ready", "ready"]
    assert "kv.sqlite was deleted or replaced" in made.told[0]["reasons"][0]


async def test_an_alarm_that_does_not_ring_is_reported() -> None:
    """This is for a silent death: a scheduler that answers but does nothing."""
    async with process() as made:
        made.alarm_late_ms = 120_000
        await asyncio.sleep(60)

    assert made.events == ["not_ready"]
    assert made.told[0]["reasons"] == ["the alarm is 120 s late"]


async def test_a_brief_problem_is_not_reported() -> None:
    """A second or two without a store is no news."""
    async with process() as made:
        for _ in range(20):
            made.store_error = "database is locked"
            await asyncio.sleep(10)
            made.store_error = None
            await asyncio.sleep(10)

    assert made.told == []


@pytest.mark.slow
async def test_the_object_reports_problems_of_its_tasks_itself() -> None:
    """No "ready" alert is sent while a task is overdue, and one is sent when it is not."""
    async with process() as made:
        made.overdue = True
        await asyncio.sleep(600)
        assert made.told == []
        made.store_error = "disk I/O error"
        await asyncio.sleep(60)
        made.store_error = None
        await asyncio.sleep(600)
        assert made.events == ["not_ready"]
        made.overdue = False
        await asyncio.sleep(60)

    assert made.events == ["not_ready", "ready"]


@pytest.mark.slow
async def test_a_receiver_that_is_down_is_tried_again() -> None:
    """After a minute, two, four; the log reports it once."""
    async with process() as made:
        made.receiver_down, made.store_error = True, "disk I/O error"
        await asyncio.sleep(400)
        made.receiver_down = False
        await asyncio.sleep(600)

    assert made.events == ["not_ready"]
    assert len(made.log.named("alert.send_failed")) == 1
    assert len(made.log.named("alert.sent")) == 1


async def test_a_broken_process_is_reported_after_twenty_seconds_and_one_alert_at_a_time() -> None:
    """Not a moment before; checks during the exchange send nothing; a failure is logged with its attempt."""
    log, under_way, at_once = CapturedLog(), [0], list[int]()

    async def receive(url: str, **_options: Any) -> FetchResponse:
        assert url == URL
        under_way[0] += 1
        at_once.append(under_way[0])
        await asyncio.sleep(30)
        under_way[0] -= 1
        return FetchResponse(500 if len(at_once) == 1 else 200, {}, b"")

    alerts = process_alerts(receive, VirtualClock(), log)
    broken = HealthSnapshot(None, "the store is gone", None)
    alerts.check(broken)
    await asyncio.sleep(19.999)
    alerts.check(broken)
    await asyncio.sleep(0)
    before = len(at_once)
    await asyncio.sleep(0.001)
    for _ in range(20):
        alerts.check(broken)
        await asyncio.sleep(1)
    while_sent = len(at_once)
    await asyncio.sleep(45)
    alerts.check(broken)
    await asyncio.sleep(60)

    assert (before, while_sent, at_once) == (0, 1, [1, 1])
    assert [line["attempts"] for line in log.named("alert.send_failed")] == [1]
    assert [line["attempts"] for line in log.named("alert.sent")] == [2]
