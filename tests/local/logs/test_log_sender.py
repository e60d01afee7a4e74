"""The log sender: batches in the background, bounded, in order, and never in the way."""

import asyncio
import io
import json
from collections.abc import Sequence
from typing import Any

import pytest

from support.virtual_time import VirtualClock
from tocsin.bindings import Level, LogEntry
from tocsin.errors import LogsError
from tocsin.platform.local.logs.log_sender import LogSender
from tocsin.platform.local.logs.logs import open_logger
from tocsin.platform.shared.log_delivery import BATCH_MAX
from tocsin.platform.shared.log_queue import QUEUE_MAX
from tocsin.platform.shared.redaction import Redactor


class ScriptedLogs:
    """A log service that fails as told, then takes everything; `gate` holds it up."""

    def __init__(self, *failures: Exception) -> None:
        self._failures = list(failures)
        self.gate = asyncio.Event()
        self.gate.set()
        self.batches: list[list[str]] = []
        self.asked_at: list[float] = []
        self.taken = asyncio.Event()

    async def log_batch(self, app_id: str, entries: Sequence[LogEntry]) -> None:
        assert app_id == "app"
        self.asked_at.append(asyncio.get_running_loop().time())
        await self.gate.wait()
        if self._failures:
            raise self._failures.pop(0)
        self.batches.append([entry.message for entry in entries])
        self.taken.set()


def entry(message: str, level: Level = "INFO") -> LogEntry:
    return LogEntry(level, message, {})


def sender_to(logs: ScriptedLogs) -> tuple[LogSender, io.StringIO]:
    stream = io.StringIO()
    sender = LogSender(logs, "app", open_logger(stream, VirtualClock(), Redactor()))
    sender.start()
    return sender, stream


def told(stream: io.StringIO) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    return [{name: value for name, value in line.items() if name not in {"at", "level"}} for line in lines]


async def test_entries_of_a_moment_travel_together() -> None:
    """The first waits a second for others; a full batch goes at once."""
    logs = ScriptedLogs()
    sender, _ = sender_to(logs)
    sender.offer(entry("a"))
    await asyncio.sleep(0.5)
    sender.offer(entry("b"))
    await logs.taken.wait()

    assert logs.batches == [["a", "b"]]
    assert logs.asked_at == [1.0]

    for number in range(BATCH_MAX + 1):
        sender.offer(entry(str(number)))
    await asyncio.sleep(2)

    assert [len(batch) for batch in logs.batches] == [2, BATCH_MAX, 1]
    assert logs.asked_at[1:] == [1.0, 2.0]
    await sender.close(1)


async def test_an_idle_sender_sleeps_and_closes_without_a_word() -> None:
    """Nothing offered, nothing sent, no timer running."""
    logs = ScriptedLogs()
    sender, stream = sender_to(logs)
    await asyncio.sleep(0)
    timers = [handle for handle in asyncio.get_running_loop()._scheduled if not handle._cancelled]  # type: ignore[attr-defined]
    await sender.close(1)

    assert timers == []
    assert logs.asked_at == []
    assert stream.getvalue() == ""


async def test_a_failed_batch_is_sent_again_later_and_later() -> None:
    """1 s, 2 s, 4 s … up to a minute; each failure and the recovery leave a line; order is kept."""
    logs = ScriptedLogs(*(LogsError("down", retryable=True) for _ in range(9)))
    sender, stream = sender_to(logs)
    sender.offer(entry("a"))
    await asyncio.sleep(1.5)
    sender.offer(entry("b", "ERROR"))
    await logs.taken.wait()
    await sender.close(1)
    waits = [round(later - earlier) for earlier, later in zip(logs.asked_at, logs.asked_at[1:], strict=False)]

    assert logs.batches == [["a", "b"]]
    assert [wait - 1 for wait in waits] == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert told(stream)[0] == {
        "event": "logs.send_failed",
        "waiting": 1,
        "failures": 1,
        "error": "LogsError: down",
    }
    assert told(stream)[-1] == {"event": "logs.send_recovered", "failures": 9}


async def test_an_unforeseen_error_does_not_end_the_sender() -> None:
    """Whatever the service's client raises, the entries wait and are sent."""
    logs = ScriptedLogs(RuntimeError("a bug"))
    sender, _ = sender_to(logs)
    sender.offer(entry("a"))
    await logs.taken.wait()
    await sender.close(1)

    assert logs.batches == [["a"]]


async def test_a_batch_that_can_never_be_taken_is_left_out() -> None:
    """It is told of and does not block what comes after it."""
    logs = ScriptedLogs(LogsError("bad", retryable=False))
    sender, stream = sender_to(logs)
    sender.offer(entry("bad"))
    await asyncio.sleep(1.5)
    sender.offer(entry("good"))
    await logs.taken.wait()
    await sender.close(1)

    assert logs.batches == [["good"]]
    assert told(stream) == [{"event": "logs.batch_refused", "count": 1, "error": "LogsError: bad"}]


async def test_close_sends_what_is_left() -> None:
    """All of it, in batches, without waiting for more."""
    logs = ScriptedLogs()
    sender, stream = sender_to(logs)
    for number in range(BATCH_MAX * 2 + 1):
        sender.offer(entry(str(number)))
    await sender.close(5)

    assert [len(batch) for batch in logs.batches] == [BATCH_MAX, BATCH_MAX, 1]
    assert asyncio.get_running_loop().time() == 0
    assert stream.getvalue() == ""


async def test_close_gives_up_at_its_deadline_and_tells() -> None:
    """A service that hangs does not hold the process; the number left is told, that under way included."""
    logs = ScriptedLogs()
    logs.gate.clear()
    sender, stream = sender_to(logs)
    for number in range(BATCH_MAX + 1):
        sender.offer(entry(str(number)))
    await asyncio.sleep(0)
    await sender.close(5)

    assert asyncio.get_running_loop().time() == 5
    assert told(stream) == [{"event": "logs.entries_left", "count": BATCH_MAX + 1}]


@pytest.mark.parametrize("waiting", [0.5, 30])
async def test_close_does_not_wait_for_a_service_that_fails(waiting: float) -> None:
    """One last attempt, whether it was gathering or backing off."""
    logs = ScriptedLogs(*(LogsError("down", retryable=True) for _ in range(99)))
    sender, stream = sender_to(logs)
    sender.offer(entry("a"))
    await asyncio.sleep(waiting)
    await sender.close(5)

    assert asyncio.get_running_loop().time() == waiting
    assert told(stream)[-1] == {"event": "logs.entries_left", "count": 1}


async def test_too_many_entries_drop_the_routine_first_and_are_counted() -> None:
    """While the service hangs, INFO goes and ERROR stays; then stream and service learn how many went."""
    logs = ScriptedLogs()
    logs.gate.clear()
    sender, stream = sender_to(logs)
    sender.offer(entry("first"))
    await asyncio.sleep(1.5)
    for number in range(QUEUE_MAX + 10):
        sender.offer(entry(f"e{number}", "ERROR" if number < 5 else "INFO"))
    logs.gate.set()
    await sender.close(60)
    received = [message for batch in logs.batches for message in batch]

    assert received[:6] == ["first", "e0", "e1", "e2", "e3", "e4"]
    assert received[6:] == [f"e{number}" for number in range(15, QUEUE_MAX + 10)] + ["logs.entries_dropped"]
    assert told(stream) == [{"event": "logs.entries_dropped", "count": 10}]
