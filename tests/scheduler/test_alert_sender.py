"""The object sends alerts when its readiness changes and heartbeats while it is ready. In virtual time."""

import asyncio
import json
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from holdfast.testing.virtual_time import VirtualClock
from support.loopback import Request, http, serving
from support.scheduler import MINUTE, Job, Scheduler, doing, prices, scheduler, store_entries
from tocsin.errors import FetchFailed, FetchTimeout
from tocsin.fetch import FetchResponse
from tocsin.local.fetch import HttpFetch
from tocsin.scheduler.alerts import exchange
from tocsin.scheduler.task import TaskContext, TaskResult

HOUR_S = 3_600
ALERT_URL, HEARTBEAT_URL = "https://alerts.test/T0/s3cret", "https://beats.test/s3cret"


@dataclass
class Receiver:
    """What arrived, and when. It answers with `statuses` first; then `answer` gives a status, or raises."""

    clock: VirtualClock = field(default_factory=VirtualClock)
    answer: Callable[[], int] = lambda: 200
    statuses: list[int] = field(default_factory=list)
    alerts: list[dict[str, Any]] = field(default_factory=list)
    alerts_at: list[int] = field(default_factory=list)
    beats_at: list[int] = field(default_factory=list)
    takes_s: float = 0.0
    at_once: int = 0
    at_once_max: int = 0

    async def __call__(
        self,
        url: str,
        *,
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        timeout_s: float = 8.0,
        body_max: int = 8 * 1024 * 1024,
    ) -> FetchResponse:
        assert (timeout_s, body_max) == (10.0, 64 * 1024)
        if url == HEARTBEAT_URL:
            assert (method, headers, body) == ("GET", None, None)
            self.beats_at.append(self.clock.now())
        else:
            assert (method, url) == ("POST", ALERT_URL)
            self.alerts.append(json.loads(body or b""))
            self.alerts_at.append(self.clock.now())
        self.at_once += 1
        self.at_once_max = max(self.at_once_max, self.at_once)
        await asyncio.sleep(self.takes_s)
        self.at_once -= 1
        return FetchResponse(self.statuses.pop(0) if self.statuses else self.answer(), {}, b"")

    def events(self) -> list[str]:
        return [alert["event"] for alert in self.alerts]


@dataclass
class Health:
    """Whether the runs of a job succeed."""

    well: bool = True

    async def run(self, _context: TaskContext) -> TaskResult:
        return TaskResult({}, error=None if self.well else "the upstream is on fire")


def job(health: Health, **options: Any) -> Job:
    return prices(upstream=None, calls_per_run=0, run=health.run, **options)


def alerting(directory: Path, receiver: Receiver, *jobs: Job, **options: Any) -> AbstractAsyncContextManager[Scheduler]:
    """A scheduler that sends its alerts to this receiver."""
    return scheduler(directory, *jobs, clock=receiver.clock, fetch=receiver, **{"alert_url": ALERT_URL, **options})


@pytest.fixture
def failing_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task counts as failing after one failure."""
    monkeypatch.setattr("tocsin.scheduler.health.FAILING_AFTER", 1)


async def until(scheduler: Scheduler, condition: Callable[[], bool], seconds: float = 6 * HOUR_S) -> None:
    """Let virtual time pass until it holds."""
    ends = scheduler.clock.monotonic() + seconds
    while not condition():
        assert scheduler.clock.monotonic() < ends, "it did not happen in time"
        await asyncio.sleep(1)


async def test_each_change_of_readiness_is_sent_once(tmp_path: Path) -> None:
    """Not ready with its reasons when the third run in a row failed, ready at the first that works; no repeats."""
    health, receiver = Health(well=False), Receiver()
    work = job(health)
    async with alerting(tmp_path, receiver, work) as made:
        await asyncio.sleep(HOUR_S)
        assert receiver.events() == ["not_ready"]
        health.well = True
        await asyncio.sleep(HOUR_S)

    assert receiver.events() == ["not_ready", "ready"]
    first, second = receiver.alerts
    assert (first["state"], first["instance"]) == ("failing", "v1")
    assert first["reasons"] == ["Tenero failed 3 times: the upstream is on fire; next run 19:45 UTC"]
    assert (second["state"], second["reasons"]) == ("ready", [])
    assert 0 <= receiver.alerts_at[0] - work.started[2] < 1_000
    assert [line.fields["ready"] for line in made.log.of("alert.sent")] == [False, True]


async def test_an_alert_comes_within_a_cadence_of_the_run_that_makes_it_overdue(tmp_path: Path) -> None:
    """Runs that are not complete: overdue is two cadences after the last complete one, to the second."""
    complete_at, receiver = [0], Receiver()

    async def incomplete(context: TaskContext) -> TaskResult:
        if not complete_at[0]:
            complete_at[0] = context.clock.now()
            return TaskResult({})
        return TaskResult({}, incomplete="a list had no answer")

    work = Job("sweep", 5 * MINUTE, upstream=None, calls_per_run=0, run=incomplete)
    async with alerting(tmp_path, receiver, work) as made:
        await until(made, lambda: bool(receiver.alerts))

    assert receiver.alerts[0]["state"] == "overdue"
    assert 0 < receiver.alerts_at[0] - complete_at[0] - 10 * MINUTE < 1_000


@pytest.mark.slow
@pytest.mark.parametrize("cadence", [5 * MINUTE, 2 * HOUR_S * 1000])
async def test_a_paused_scheduler_sends_an_alert_when_it_becomes_overdue(tmp_path: Path, cadence: int) -> None:
    """Nothing runs, but the alarm rings at that moment; also for a cadence that is longer than an alarm's wait."""
    clock = VirtualClock()
    receiver, work = Receiver(), Job("sweep", cadence, upstream=None, calls_per_run=0)
    async with alerting(tmp_path, receiver, work) as made:
        await asyncio.sleep(10)
        paused_at = clock.now()
        await made.client().pause_until(paused_at + 24 * HOUR_S * 1000)
        await until(made, lambda: bool(receiver.alerts))
        rung = made.runtime.metrics.alarms_rung

    assert 2 * cadence - 11_000 <= receiver.alerts_at[0] - paused_at <= 2 * cadence
    assert ": it is paused; next run " in receiver.alerts[0]["reasons"][0]
    assert rung <= 3 + 2 * cadence // (14 * MINUTE)


@pytest.mark.parametrize("complete", [True, False])
async def test_an_overdue_task_that_is_running_is_judged_after_its_run(tmp_path: Path, *, complete: bool) -> None:
    """After a downtime of an hour nothing is sent before the first run ends, and then only if it is not complete."""
    receiver, runs = Receiver(), list[int]()

    async def slow(context: TaskContext) -> TaskResult:
        runs.append(context.clock.now())
        await context.clock.sleep(100)
        return TaskResult({}, incomplete=None if complete or len(runs) == 1 else "no answer")

    work = Job("sweep", 5 * MINUTE, upstream=None, calls_per_run=0, run=slow)
    async with alerting(tmp_path, receiver, work):
        await asyncio.sleep(101)
    await asyncio.sleep(HOUR_S)
    async with alerting(tmp_path, receiver, work):
        await asyncio.sleep(250)

    assert receiver.events() == ([] if complete else ["not_ready"])
    assert [at - runs[1] for at in receiver.alerts_at] == ([] if complete else [100_000])


async def test_a_restart_neither_repeats_nor_loses_an_alert(tmp_path: Path) -> None:
    """Sent alerts are stored, and so are those that the receiver did not accept."""
    health, down = Health(well=False), [True]

    def answer() -> int:
        if down[0]:
            raise FetchFailed("POST https://alerts.test/T0/s3cret: ClientConnectorError, Connection refused")
        return 202

    receiver = Receiver(answer=answer)
    async with alerting(tmp_path, receiver, job(health)) as made:
        await until(made, lambda: bool(receiver.alerts))
        await asyncio.sleep(1)
        assert made.entries()["scheduler"]["alert"]["pending"]["attempts"] == 1
        assert made.log.named("alert.send_failed")[0]["reason"] == (
            "FetchFailed: ClientConnectorError, Connection refused"
        )
    down[0] = False
    async with alerting(tmp_path, receiver, job(health)) as made:
        await until(made, lambda: len(receiver.alerts) == 2, 120)
        assert receiver.alerts[0]["id"] == receiver.alerts[1]["id"]
        await asyncio.sleep(HOUR_S)
        made.reset()
        await asyncio.sleep(HOUR_S)
    async with alerting(tmp_path, receiver, job(health)) as made:
        await asyncio.sleep(HOUR_S)
        stored = made.entries()["scheduler"]["alert"]

    assert receiver.events() == ["not_ready", "not_ready"]
    assert (stored["sentReady"], stored["pending"]) == (False, None)


@pytest.mark.slow
async def test_an_alert_is_retried_with_back_off_and_then_dropped(tmp_path: Path) -> None:
    """About thirty attempts in a day, one warning and one error; the next change is sent as usual."""
    health, status = Health(well=False), [500]
    receiver = Receiver(answer=lambda: status[0])
    async with alerting(tmp_path, receiver, job(health)) as made:
        await asyncio.sleep(30 * HOUR_S)
        gaps = [round((later - one) / MINUTE) for one, later in pairwise(receiver.alerts_at)]
        status[0], health.well = 200, True
        await asyncio.sleep(HOUR_S)

    assert gaps[:7] == [1, 2, 4, 8, 16, 32, 60]
    assert receiver.events() == ["not_ready"] * 30 + ["ready"]
    lines = [*made.log.named("alert.send_failed"), *made.log.named("alert.abandoned")]
    assert [line["attempts"] for line in lines] == [1, 30]
    assert "s3cret" not in str(made.log.lines)


@pytest.mark.slow
@pytest.mark.usefixtures("failing_at_once")
async def test_flapping_is_damped(tmp_path: Path) -> None:
    """At most six in an hour, however often it changes; the last one is the truth."""
    well, receiver = [False], Receiver()

    async def flap(_context: TaskContext) -> TaskResult:
        well[0] = not well[0]
        return TaskResult({}, error=None if well[0] else "now and then")

    work = Job("tenero", MINUTE, 30_000, upstream=None, calls_per_run=0, run=flap)
    async with alerting(tmp_path, receiver, work) as made:
        await asyncio.sleep(5 * HOUR_S)
        work.run = Health().run
        await asyncio.sleep(2 * HOUR_S)
        assert (await made.status()).tasks["tenero"].problem is None

    assert 6 < len(receiver.alerts) <= 6 * 7
    for first, seventh in zip(receiver.alerts_at, receiver.alerts_at[6:], strict=False):
        assert seventh - first >= HOUR_S * 1000
    assert receiver.events()[-1] == "ready"
    assert all(one != other for one, other in pairwise(receiver.events()))


@pytest.mark.usefixtures("failing_at_once")
async def test_a_slow_receiver_delays_no_run(tmp_path: Path) -> None:
    """It is sent in the background: the slots keep their times."""
    health, receiver = Health(well=False), Receiver(takes_s=9.9)
    work = job(health)
    async with alerting(tmp_path, receiver, work, heartbeat_url=HEARTBEAT_URL):
        await asyncio.sleep(HOUR_S)
        health.well = True
        await asyncio.sleep(HOUR_S)

    assert max(at % work.cadence_ms for at in work.started[1:]) < 10
    assert receiver.events() == ["not_ready", "ready"]


@pytest.mark.slow
async def test_heartbeats_end_when_it_is_not_ready(tmp_path: Path) -> None:
    """One after each ring while the service is ready, never two within a minute; a restart does not change that."""
    health, receiver = Health(), Receiver()
    fast = Job("fast", 10_000, 5_000, upstream=None, calls_per_run=0)
    for _ in range(2):
        async with alerting(tmp_path, receiver, job(health), fast, alert_url=None, heartbeat_url=HEARTBEAT_URL):
            await asyncio.sleep(HOUR_S / 2)
    beats = len(receiver.beats_at)
    health.well = False
    async with alerting(tmp_path, receiver, job(health), alert_url=None, heartbeat_url=HEARTBEAT_URL) as made:
        await asyncio.sleep(HOUR_S)

    assert 55 <= beats <= 60
    assert min(b - a for a, b in pairwise(receiver.beats_at)) >= MINUTE
    assert len(receiver.beats_at) <= beats + 3  # until the third failure
    assert receiver.alerts == []
    assert made.log.of("heartbeat.failed") == []


async def test_a_failed_heartbeat_is_logged_once_and_harms_nothing(tmp_path: Path) -> None:
    """Once when it begins to fail, once when it works again, although the object is reset in between."""
    down = [True]

    def answer() -> int:
        if down[0]:
            raise FetchTimeout("GET https://beats.test/s3cret: no complete response within 10 s")
        return 200

    receiver, work = Receiver(answer=answer), job(Health())
    async with alerting(tmp_path, receiver, work, alert_url=None, heartbeat_url=HEARTBEAT_URL) as made:
        await asyncio.sleep(HOUR_S / 2)
        made.reset()
        await asyncio.sleep(HOUR_S / 2)
        down[0] = False
        await asyncio.sleep(HOUR_S - 1)
        runs = await made.runs(limit=500)

    assert {run.outcome for run in runs} == {"ok"}
    assert [line["reason"] for line in made.log.named("heartbeat.failed")] == [
        "FetchTimeout: no complete response within 10 s"
    ]
    assert len(made.log.of("heartbeat.recovered")) == 1
    assert made.runtime.metrics.alarms_failed == 0


async def test_without_the_settings_nothing_is_sent_and_nothing_is_stored(tmp_path: Path) -> None:
    """The alarm rings when a task is due, as before."""
    async with scheduler(tmp_path, job(Health(well=False))) as made:  # its wire refuses every call
        await asyncio.sleep(HOUR_S)
        entries = made.entries()

    record = entries["scheduler"]
    assert record["alert"] == {"sentReady": True, "pending": None, "sentAt": []}
    assert record["heartbeat"] == {"sentAt": None, "failed": False}
    assert made.log.of("wait_until.failed") == []


async def test_a_stored_alert_that_cannot_be_read_is_put_aside(tmp_path: Path) -> None:
    """The scheduler starts, and sends what it does not know to have been sent."""
    clock, health = VirtualClock(), Health(well=False)
    receiver = Receiver()
    await store_entries(tmp_path, clock, {"scheduler": {"alert": {"pending": 7}, "heartbeat": []}})
    async with alerting(tmp_path, receiver, job(health)) as made:
        await asyncio.sleep(HOUR_S)

    assert [line["key"] for line in made.log.named("state.entry_unreadable")] == ["scheduler"]
    assert receiver.events() == ["not_ready"]


async def test_a_secret_in_a_reason_is_masked(tmp_path: Path) -> None:
    """A task's error may quote anything."""
    receiver = Receiver()
    work = prices(upstream=None, calls_per_run=0, run=doing(ValueError("refused key-1234")))
    async with alerting(tmp_path, receiver, work) as made:
        made.env.mask = lambda text: text.replace("key-1234", "[redacted]")
        await until(made, lambda: bool(receiver.alerts))

    assert "refused [redacted]" in receiver.alerts[0]["reasons"][0]


@pytest.mark.slow
async def test_a_real_receiver_gets_the_post_without_redirects(tmp_path: Path) -> None:
    """Over a socket: the method, the headers and the body, once."""
    health, fetch = Health(well=False), HttpFetch()

    async def respond(request: Request, writer: asyncio.StreamWriter) -> None:
        moved = request.line.startswith("GET /beat")
        writer.write(http(307, b"", "Location: /elsewhere") if moved else http(202, b"{}"))

    async with serving(respond) as server:
        settings: Any = {
            "alert_url": f"{server.url}/hook",
            "alert_key": "s3cret",
            "heartbeat_url": f"{server.url}/beat",
        }
        async with scheduler(tmp_path, job(health), fetch=fetch, **settings) as made:
            await until(made, lambda: bool(made.log.of("alert.sent")))
        await fetch.aclose()

    beat, *_, post = server.requests
    assert beat.line == "GET /beat HTTP/1.1"
    assert [each.line for each in server.requests if each.line.startswith("POST")] == ["POST /hook HTTP/1.1"]
    assert post.headers["authorization"] == "Bearer s3cret"
    assert post.headers["content-type"] == "application/json"
    assert json.loads(post.body)["event"] == "not_ready"
    assert made.log.named("heartbeat.failed")[0]["reason"] == "the receiver answered 307"


@pytest.mark.parametrize(
    ("status", "taken"), [(199, False), (200, True), (204, True), (299, True), (300, False), (500, False)]
)
async def test_an_alert_is_accepted_by_any_2xx_answer(status: int, *, taken: bool) -> None:
    """A redirect is none of them: nobody has read the alert."""

    async def fetch(url: str, **_options: Any) -> FetchResponse:
        return FetchResponse(status, {}, b"")

    problem = await exchange(fetch, "https://alerts.test")

    assert problem == (None if taken else f"the receiver answered {status}")


@pytest.mark.usefixtures("failing_at_once")
async def test_runs_that_end_while_an_alert_is_sent_send_no_second_one(tmp_path: Path) -> None:
    """The receiver needs nine seconds; three more failures in the meantime are the same news."""
    receiver, work = Receiver(statuses=[500], takes_s=9), job(Health(well=False))
    async with alerting(tmp_path, receiver, work) as made:
        await asyncio.sleep(1)
        for _ in range(3):
            await made.client().refresh("tenero")
            await asyncio.sleep(1)
        while_sent = len(receiver.alerts)
        await asyncio.sleep(120)

    assert while_sent == 1
    assert (len(receiver.alerts), receiver.at_once_max) == (2, 1)
    assert [line["attempts"] for line in made.log.named("alert.send_failed")] == [1]
    assert [line["attempts"] for line in made.log.named("alert.sent")] == [2]


@pytest.mark.usefixtures("failing_at_once")
async def test_a_change_while_an_alert_is_sent_is_sent_after_it(tmp_path: Path) -> None:
    """Never two at a time: the receiver might take the older one for the newer."""
    receiver, health = Receiver(takes_s=9), Health(well=False)
    async with alerting(tmp_path, receiver, job(health)) as made:
        await asyncio.sleep(1)
        health.well = True
        await made.client().refresh("tenero")
        await asyncio.sleep(30)
        sent = [line["ready"] for line in made.log.named("alert.sent")]
        rung = made.runtime.metrics.alarms_rung

    assert sent == [False, True]
    assert rung <= 3  # it is due but cannot be sent yet: the alarm does not ring every millisecond
    assert (len(receiver.alerts), receiver.at_once_max) == (2, 1)
    assert receiver.alerts_at[1] - receiver.alerts_at[0] < 10_000


async def test_a_scheduler_that_was_never_armed_can_be_refreshed(tmp_path: Path) -> None:
    """Even with alerts on: what was never set up is not overdue, and nothing is sent."""
    receiver = Receiver()
    async with scheduler(tmp_path, job(Health()), fetch=receiver, alert_url=ALERT_URL, arm=False) as made:
        result = await made.client().refresh("tenero")
        status = await made.status()

    assert (result.run.outcome, len(receiver.alerts)) == ("ok", 0)
    assert status.tasks["tenero"].overdue is False
    assert status.next_alarm_at is not None
    assert made.log.of("wait_until.failed") == []
