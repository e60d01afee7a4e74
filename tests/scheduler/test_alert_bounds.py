"""Alerts at their limits: which answers count as accepted, how often, how late, and never two at a time."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from holdfast_testing.captured_log import CapturedLog
from holdfast_testing.virtual_time import START_MS, VirtualClock
from support.scheduler import MINUTE, Job, scheduler
from tocsin.fetch import FetchResponse
from tocsin.scheduler.alert_sender import exchange
from tocsin.scheduler.alerts import (
    Alert,
    AlertState,
    HeartbeatState,
    attempted,
    due,
    heartbeat_due,
    observed,
    ring_at,
    send_at,
)
from tocsin.scheduler.config import AlertTarget
from tocsin.scheduler.health import HealthSnapshot
from tocsin.scheduler.task import TaskContext, TaskResult
from tocsin.scheduler.types import Health
from tocsin.scheduler.watch import ProcessAlerts

NOW = START_MS
HOUR = 60 * MINUTE
TARGET = AlertTarget("https://alerts.test/T0/s3cret")
READY = Health(ready=True, state="ready", reasons=[], notes=[])
TROUBLE = Health(ready=False, state="failing", reasons=["it fails"], notes=[])


def pending(at: int, attempts: int = 0) -> Alert:
    return Alert(ready=False, state="failing", reasons=[], at=NOW, try_at=at, attempts=attempts)


@pytest.mark.parametrize(
    ("status", "taken"), [(199, False), (200, True), (204, True), (299, True), (300, False), (500, False)]
)
async def test_an_answer_of_the_two_hundreds_takes_an_alert(status: int, *, taken: bool) -> None:
    """A redirect is none of them: nobody has read the alert."""

    async def fetch(url: str, **_options: Any) -> FetchResponse:
        return FetchResponse(status, {}, b"")

    problem = await exchange(fetch, "https://alerts.test")

    assert problem == (None if taken else f"the receiver answered {status}")


def test_the_seventh_alert_of_an_hour_waits_until_the_first_is_an_hour_old() -> None:
    """Six changes, a minute apart, are sent at once; the seventh at the very end of that hour, then the eighth."""
    state, health = AlertState(), READY
    for minute in range(7):
        health = TROUBLE if health is READY else READY
        now = NOW + minute * MINUTE
        state = observed(state, health, now)
        if minute < 6:
            alert = due(state, now)
            assert alert is not None
            state = attempted(state, alert, now)
    now = NOW + 6 * MINUTE

    assert send_at(state, now) == NOW + HOUR
    assert due(state, NOW + HOUR - 1) is None
    seventh = due(state, NOW + HOUR)
    assert seventh is not None
    later = observed(attempted(state, seventh, NOW + HOUR), READY, NOW + HOUR + 1)
    assert send_at(later, NOW + HOUR + 1) == NOW + MINUTE + HOUR


def test_an_alert_that_was_tried_waits_for_its_next_attempt_only() -> None:
    """Six others in the hour do not delay it further: it was counted when it was sent first."""
    sent_at = [NOW - n * MINUTE for n in range(6, 0, -1)]

    assert send_at(AlertState(pending=pending(NOW + MINUTE, attempts=1), sent_at=sent_at), NOW) == NOW + MINUTE
    assert send_at(AlertState(pending=pending(NOW), sent_at=sent_at), NOW) == NOW + 54 * MINUTE
    assert send_at(AlertState(pending=pending(NOW), sent_at=sent_at[1:]), NOW) == NOW


@pytest.mark.parametrize(
    ("oldest", "expected"),
    [(NOW - HOUR, NOW), (NOW - HOUR + 1, NOW + 1), (NOW, NOW + HOUR - 5 * MINUTE), (NOW + 1, NOW)],
)
def test_only_alerts_of_the_last_hour_count(oldest: int, expected: int) -> None:
    """One that is exactly an hour old does not count, nor one in the future, left by a clock that was set back."""
    sent_at = sorted([oldest, *(NOW - n * MINUTE for n in range(5, 0, -1))])

    assert send_at(AlertState(pending=pending(NOW), sent_at=sent_at), NOW) == expected


def test_a_time_too_far_ahead_belongs_to_another_clock() -> None:
    """An hour is the longest wait; a millisecond more counts as now."""
    assert send_at(AlertState(pending=pending(NOW + HOUR, attempts=7)), NOW) == NOW + HOUR
    assert send_at(AlertState(pending=pending(NOW + HOUR + 1, attempts=7)), NOW) == NOW
    assert ring_at(AlertState(pending=pending(NOW + HOUR, attempts=7)), [], NOW) == NOW + HOUR


def test_a_heartbeat_of_the_future_does_not_hold_back_the_next() -> None:
    """A clock was set back: at the very instant of the last one none is due, a millisecond before it one is."""
    state = HeartbeatState(sent_at=NOW)

    assert not heartbeat_due(state, NOW)
    assert heartbeat_due(state, NOW - 1)
    assert not heartbeat_due(state, NOW + 59_999)
    assert heartbeat_due(state, NOW + 60_000)


class Receiver:
    """Answers late, with what a test wants."""

    def __init__(self, *statuses: int, takes_s: float = 0.0) -> None:
        self.statuses = list(statuses)
        self.takes_s = takes_s
        self.posts = 0
        self.at_once = 0
        self.at_once_max = 0

    async def __call__(self, url: str, **_options: Any) -> FetchResponse:
        assert url == TARGET.url
        self.posts += 1
        self.at_once += 1
        self.at_once_max = max(self.at_once_max, self.at_once)
        await asyncio.sleep(self.takes_s)
        self.at_once -= 1
        return FetchResponse(self.statuses.pop(0) if self.statuses else 200, {}, b"")


async def failing(_context: TaskContext) -> TaskResult:
    return TaskResult({}, error="the upstream is on fire")


def job(run: Any = failing) -> Job:
    return Job("tenero", 5 * MINUTE, upstream=None, calls_per_run=0, run=run)


async def test_runs_that_end_while_an_alert_is_sent_send_no_second_one(tmp_path: Path) -> None:
    """The receiver needs nine seconds; three more failures in the meantime are the same news."""
    receiver = Receiver(500, takes_s=9)
    async with scheduler(tmp_path, job(), fetch=receiver, alert_target=TARGET, failing_after=1) as made:
        await asyncio.sleep(1)
        for _ in range(3):
            await made.client().refresh("tenero")
            await asyncio.sleep(1)
        while_sent = receiver.posts
        await asyncio.sleep(120)

    assert while_sent == 1
    assert (receiver.posts, receiver.at_once_max) == (2, 1)
    assert [line["attempts"] for line in made.log.named("alert.send_failed")] == [1]
    assert [line["attempts"] for line in made.log.named("alert.sent")] == [2]


async def test_a_change_while_an_alert_is_sent_is_sent_after_it(tmp_path: Path) -> None:
    """Never two at a time: the receiver might take the older one for the newer."""
    well = [False]

    async def work(_context: TaskContext) -> TaskResult:
        return TaskResult({}, error=None if well[0] else "the upstream is on fire")

    receiver = Receiver(takes_s=9)
    async with scheduler(tmp_path, job(work), fetch=receiver, alert_target=TARGET, failing_after=1) as made:
        await asyncio.sleep(1)
        well[0] = True
        await made.client().refresh("tenero")
        await asyncio.sleep(30)
        sent = [line["ready"] for line in made.log.named("alert.sent")]
        rung = made.runtime.metrics.alarms_rung

    assert sent == [False, True]
    assert rung <= 3  # it is due but cannot be sent yet: the alarm does not ring every millisecond
    assert (receiver.posts, receiver.at_once_max) == (2, 1)


async def test_a_scheduler_that_was_never_armed_can_be_refreshed(tmp_path: Path) -> None:
    """Even with alerts on: what was never set up is not overdue, and nothing is sent."""

    async def work(_context: TaskContext) -> TaskResult:
        return TaskResult({"succeeded": 1})

    receiver = Receiver()
    async with scheduler(tmp_path, job(work), fetch=receiver, alert_target=TARGET, arm=False) as made:
        result = await made.client().refresh("tenero")
        status = await made.client().status()

    assert (result.run.outcome, receiver.posts) == ("ok", 0)
    assert status.tasks["tenero"].overdue is False
    assert status.next_alarm_at is not None
    assert made.log.of("wait_until.failed") == []


class Process:
    """The alerts of a process whose store does not work."""

    def __init__(self, receiver: Receiver) -> None:
        self.log = CapturedLog()
        self.clock = VirtualClock()
        self.alerts = ProcessAlerts(
            TARGET, "v1", fetch=receiver, clock=self.clock, logger=self.log, mask=lambda text: text
        )

    def look(self) -> None:
        self.alerts.look(HealthSnapshot(None, "the store is gone", None))


async def test_a_broken_process_is_told_after_twenty_seconds_and_once_at_a_time() -> None:
    """Not a moment before; checks during the exchange send nothing; a failure is logged with its attempt."""
    receiver = Receiver(500, takes_s=30)
    process = Process(receiver)
    process.look()
    await asyncio.sleep(19.999)
    process.look()
    await asyncio.sleep(0)
    before = receiver.posts
    await asyncio.sleep(0.001)
    for _ in range(20):
        process.look()
        await asyncio.sleep(1)
    while_sent = receiver.posts
    await asyncio.sleep(45)
    process.look()
    await asyncio.sleep(60)

    assert (before, while_sent, receiver.posts, receiver.at_once_max) == (0, 1, 2, 1)
    assert [line["attempts"] for line in process.log.named("alert.send_failed")] == [1]
    assert [line["attempts"] for line in process.log.named("alert.sent")] == [2]
