"""A process whose store, files or alarm do not work sends the alert itself, because its object cannot."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from holdfast.errors import StoreUnavailable
from holdfast_testing.captured_log import CapturedLog
from holdfast_testing.virtual_time import VirtualClock
from support.statuses import scheduler_status
from tocsin.errors import FetchFailed
from tocsin.fetch import FetchResponse
from tocsin.scheduler.client import SchedulerClient
from tocsin.scheduler.config import AlertTarget
from tocsin.scheduler.watch import HealthWatch, ProcessAlerts

URL = "https://alerts.test/T0/s3cret"


@dataclass(frozen=True)
class LostFile:
    """A file that was deleted under the process."""

    sentence: str = "kv.sqlite was deleted or replaced while Tocsin was running"
    loses_writes: bool = True


@dataclass
class Process:
    """A process with a store, an alarm and a receiver that tests break and repair."""

    clock: VirtualClock
    log: CapturedLog = field(default_factory=CapturedLog)
    store_error: str | None = None
    lost: "LostFile | None" = None
    alarm_late_ms: int = 0
    overdue: bool = False
    receiver_down: bool = False
    told: list[dict[str, Any]] = field(default_factory=list)
    told_at: list[float] = field(default_factory=list)

    async def put(self, _key: str, _value: str, **_options: Any) -> None:
        if self.store_error is not None:
            raise StoreUnavailable(self.store_error)

    async def status(self) -> dict[str, Any]:
        status = scheduler_status()
        tasks = status.tasks
        if self.overdue:
            tasks = {**tasks, "sweep": replace(tasks["sweep"], condition="overdue", problem="sweep is overdue")}
        late = self.clock.now() - self.alarm_late_ms
        return replace(status, tasks=tasks, next_alarm_at=late if self.alarm_late_ms else self.clock.now()).to_json()

    async def arm(self) -> int | None:
        return None

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


@asynccontextmanager
async def process() -> AsyncIterator[Process]:
    clock = VirtualClock()
    made = Process(clock)
    sender = ProcessAlerts(
        AlertTarget(URL),
        "v1",
        fetch=made.fetch,
        clock=clock,
        logger=made.log,
        mask=lambda text: text.replace("hunter2", "***"),
    )
    client = SchedulerClient(made)
    watch = HealthWatch(lambda: client, made, clock, lambda: made.lost, sender.look)  # type: ignore[arg-type]  # and of a store
    watching = asyncio.create_task(watch.watch())
    try:
        yield made
    finally:
        watching.cancel()


@pytest.mark.slow
async def test_a_store_that_cannot_be_written_is_told_within_a_minute() -> None:
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


async def test_a_lost_file_is_told() -> None:
    """With its name, and that it is back."""
    async with process() as made:
        made.lost = LostFile()
        await asyncio.sleep(60)
        made.lost = None
        await asyncio.sleep(60)

    assert made.events == ["not_ready", "ready"]
    assert "kv.sqlite was deleted or replaced" in made.told[0]["reasons"][0]


async def test_an_alarm_that_does_not_ring_is_told() -> None:
    """This is for a silent death: a scheduler that answers but does nothing."""
    async with process() as made:
        made.alarm_late_ms = 120_000
        await asyncio.sleep(60)

    assert made.events == ["not_ready"]
    assert made.told[0]["reasons"] == ["the alarm is 120 s late"]


async def test_a_problem_that_passes_is_not_told() -> None:
    """A second or two without a store is no news."""
    async with process() as made:
        for _ in range(20):
            made.store_error = "database is locked"
            await asyncio.sleep(10)
            made.store_error = None
            await asyncio.sleep(10)

    assert made.told == []


@pytest.mark.slow
async def test_the_object_tells_what_is_wrong_with_its_tasks() -> None:
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
