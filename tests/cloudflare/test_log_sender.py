"""The log sender of the Cloudflare platform, as events of the runtime begin and end."""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

from holdfast.testing.virtual_time import VirtualClock
from holdfast_testing.captured_log import CapturedLog
from tocsin.cloudflare.log_sender import LOST_AFTER_S, BackgroundLogSender
from tocsin.errors import LogsError
from tocsin.logs import BATCH_MAX, QUEUE_MAX, LogEntry


class Service:
    """A log service that accepts batches, unless a test makes it refuse, fail or hang."""

    def __init__(self) -> None:
        self.taken: list[str] = []
        self.refused: set[str] = set()  # messages that no batch may hold
        self.failing = False
        self.hangs = False

    async def log_batch(self, _app_id: str, entries: Sequence[LogEntry]) -> None:
        if self.hangs:
            await asyncio.Event().wait()
        if self.failing:
            raise LogsError("LOGS.logBatch: away", retryable=True)
        messages = [entry.message for entry in entries]
        if self.refused.intersection(messages):
            raise LogsError("LOGS.logBatch: not a log entry", retryable=False)
        self.taken += messages


class Event:
    """The background of an event: the runtime runs it, and may end it at any time."""

    def __init__(self) -> None:
        self.tasks: list[asyncio.Task[None]] = []

    def wait_until(self, work: Coroutine[Any, Any, None]) -> None:
        self.tasks.append(asyncio.get_running_loop().create_task(work))


class Rig:
    """A sender with its service, its event and its console."""

    def __init__(self) -> None:
        self.service, self.event = Service(), Event()
        self.console, self.clock = CapturedLog(), VirtualClock()
        self.sender = BackgroundLogSender(self.service, "app", self.clock, self.console, self.event.wait_until)

    def offer(self, *messages: str) -> None:
        for message in messages:
            self.sender.offer(LogEntry("INFO", message, {}))

    async def event_ends(self) -> None:
        await self.event.tasks[-1]

    def reported(self) -> list[str]:
        return [line.event for line in self.console.lines]


async def test_the_lines_of_a_second_are_sent_as_one_batch() -> None:
    """In order; a working service leaves nothing on the console."""
    rig = Rig()
    rig.offer("one", "two")
    await rig.event_ends()

    assert len(rig.event.tasks) == 1
    assert rig.service.taken == ["one", "two"]
    assert rig.console.lines == []


async def test_a_failed_batch_is_sent_again_with_the_next_lines() -> None:
    """The event retries for as long as it may last; the next event sends everything, in order, once."""
    rig = Rig()
    rig.service.failing = True
    rig.offer("one", "two")
    await rig.event_ends()
    rig.service.failing = False
    rig.offer("three")
    await rig.event_ends()

    assert len(rig.event.tasks) == 2
    assert rig.service.taken == ["one", "two", "three"]
    assert rig.reported() == ["logs.send_failed"] * 5 + ["logs.send_recovered"]


async def test_a_short_failure_is_overcome_within_the_event() -> None:
    """The object may be evicted before its next line, and its queue with it."""
    rig = Rig()
    rig.service.failing = True
    rig.offer("one")
    await rig.clock.sleep(1.5)
    rig.service.failing = False
    await rig.event_ends()

    assert rig.service.taken == ["one"]
    assert rig.reported() == ["logs.send_failed", "logs.send_recovered"]


async def test_a_refused_batch_does_not_block_the_following_ones() -> None:
    """It is dropped with a line on the console; the batches after it are sent in the same event."""
    rig = Rig()
    rig.service.refused = {"bad"}
    rig.offer("bad", *(f"first {n}" for n in range(BATCH_MAX - 1)), "second")
    await rig.event_ends()
    rig.offer("third")
    await rig.event_ends()

    assert rig.service.taken == ["second", "third"]
    assert [(line.event, line.fields["count"]) for line in rig.console.lines] == [("logs.batch_refused", BATCH_MAX)]


async def test_dropped_entries_are_reported() -> None:
    """When the queue has overflowed, console and service get the number of entries that were dropped."""
    rig = Rig()
    rig.offer(*(f"line {n}" for n in range(QUEUE_MAX + 7)))
    await rig.event_ends()

    assert rig.service.taken == [*(f"line {n}" for n in range(7, QUEUE_MAX + 7)), "logs.entries_dropped"]
    assert rig.console.named("logs.entries_dropped") == [{"count": 7}]


async def test_an_event_that_the_runtime_ended_does_not_hold_up_later_lines() -> None:
    """None of its code runs again: after a minute, the next line is sent in its own event."""
    rig = Rig()
    rig.service.hangs = True
    rig.offer("lost")
    await rig.clock.sleep(LOST_AFTER_S / 2)
    rig.offer("waits")
    assert len(rig.event.tasks) == 1
    rig.service.hangs = False
    await rig.clock.sleep(LOST_AFTER_S)
    rig.offer("later")
    await rig.event_ends()

    assert rig.service.taken == ["waits", "later"]
    rig.event.tasks[0].cancel()
