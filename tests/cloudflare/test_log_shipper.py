"""Log entries on their way to the service, as events of the runtime come and go."""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

from support.captured_log import CapturedLog
from support.virtual_time import VirtualClock
from tocsin.bindings import LogEntry
from tocsin.errors import LogsError
from tocsin.platform.cloudflare.log_sender import LOST_AFTER_S, BackgroundLogSender


class Service:
    """Takes batches, unless a test says otherwise."""

    def __init__(self) -> None:
        self.taken: list[str] = []
        self.failing = False
        self.hangs = False

    async def log_batch(self, _app_id: str, entries: Sequence[LogEntry]) -> None:
        if self.hangs:
            await asyncio.Event().wait()
        if self.failing:
            raise LogsError("LOGS.logBatch: away", retryable=True)
        self.taken += [entry.message for entry in entries]


class Event:
    """What the runtime does with the background of an event: run it, and end it when it likes."""

    def __init__(self) -> None:
        self.tasks: list[asyncio.Task[None]] = []

    def wait_until(self, work: Coroutine[Any, Any, None]) -> None:
        self.tasks.append(asyncio.get_running_loop().create_task(work))


def entry(message: str) -> LogEntry:
    return LogEntry("INFO", message, {})


async def test_lines_of_a_second_go_together_and_a_failed_batch_goes_with_the_next() -> None:
    """In order, none twice; the failure is on the console."""
    service, event, console, clock = Service(), Event(), CapturedLog(), VirtualClock()
    shipper = BackgroundLogSender(service, "app", clock, console, event.wait_until)
    service.failing = True
    shipper.offer(entry("one"))
    shipper.offer(entry("two"))
    await event.tasks[-1]
    service.failing = False
    shipper.offer(entry("three"))
    await event.tasks[-1]
    assert len(event.tasks) == 2
    assert service.taken == ["one", "two", "three"]
    assert [line.event for line in console.lines] == ["logs.send_failed"]


async def test_a_shipment_that_the_runtime_has_ended_does_not_hold_up_later_lines() -> None:
    """Its event is over and nothing of it ever runs again: after a minute the next line begins a new one."""
    service, event, clock = Service(), Event(), VirtualClock()
    shipper = BackgroundLogSender(service, "app", clock, CapturedLog(), event.wait_until)
    service.hangs = True
    shipper.offer(entry("lost"))
    await clock.sleep(LOST_AFTER_S / 2)
    shipper.offer(entry("waits"))
    assert len(event.tasks) == 1
    service.hangs = False
    await clock.sleep(LOST_AFTER_S)
    shipper.offer(entry("later"))
    await event.tasks[-1]
    assert service.taken == ["waits", "later"]
    event.tasks[0].cancel()
