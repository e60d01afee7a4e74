"""The log sender: batches in the background, bounded, in order, without delaying the code that logs."""

import asyncio
import io
import json
from collections.abc import Sequence
from typing import Any

import pytest

from holdfast.types import Level
from holdfast_testing.virtual_time import VirtualClock
from tocsin.errors import LogsError
from tocsin.local.logs import LogSender, open_logger
from tocsin.logs import BATCH_MAX, QUEUE_MAX, LogEntry, Redactor


class ScriptedLogs:
    """A log service that raises the given errors, then accepts everything. `gate` blocks it."""

    def __init__(self, *failures: Exception) -> None:
        self._failures = list(failures)
        self.gate = asyncio.Event()
        self.gate.set()
        self.batches: list[list[str]] = []
        self.called_at: list[float] = []
        self.taken = asyncio.Event()

    async def log_batch(self, app_id: str, entries: Sequence[LogEntry]) -> None:
        assert app_id == "app"
        self.called_at.append(asyncio.get_running_loop().time())
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


def reported(stream: io.StringIO) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    return [{name: value for name, value in line.items() if name not in {"at", "level"}} for line in lines]


async def test_entries_of_a_second_are_sent_as_one_batch() -> None:
    """The first waits a second for others. A full batch is sent at once."""
    logs = ScriptedLogs()
    sender, _ = sender_to(logs)
    sender.offer(entry("a"))
    await asyncio.sleep(0.5)
    sender.offer(entry("b"))
    await logs.taken.wait()

    assert logs.batches == [["a", "b"]]
    assert logs.called_at == [1.0]

    for number in range(BATCH_MAX + 1):
        sender.offer(entry(str(number)))
    await asyncio.sleep(2)

    assert [len(batch) for batch in logs.batches] == [2, BATCH_MAX, 1]
    assert logs.called_at[1:] == [1.0, 2.0]
    await sender.close(1)


async def test_an_idle_sender_does_nothing() -> None:
    """Without entries it sends nothing, sets no timer and logs nothing."""
    logs = ScriptedLogs()
    sender, stream = sender_to(logs)
    await asyncio.sleep(0)
    timers = [handle for handle in asyncio.get_running_loop()._scheduled if not handle._cancelled]  # type: ignore[attr-defined]
    await sender.close(1)

    assert timers == []
    assert logs.called_at == []
    assert stream.getvalue() == ""


async def test_a_failed_batch_is_retried_with_growing_waits() -> None:
    """1 s, 2 s, 4 s … up to a minute. Each failure and the recovery are logged. The order is kept."""
    logs = ScriptedLogs(*(LogsError("down", retryable=True) for _ in range(9)))
    sender, stream = sender_to(logs)
    sender.offer(entry("a"))
    await asyncio.sleep(1.5)
    sender.offer(entry("b", "ERROR"))
    await logs.taken.wait()
    await sender.close(1)
    waits = [round(later - earlier) for earlier, later in zip(logs.called_at, logs.called_at[1:], strict=False)]

    assert logs.batches == [["a", "b"]]
    assert [wait - 1 for wait in waits] == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert reported(stream)[0] == {"event": "logs.send_failed", "waiting": 1, "failures": 1, "error": "LogsError: down"}
    assert reported(stream)[-1] == {"event": "logs.send_recovered", "failures": 9}


async def test_an_unforeseen_error_does_not_end_the_sender() -> None:
    """After any exception the entries wait and are sent again."""
    logs = ScriptedLogs(RuntimeError("a bug"))
    sender, _ = sender_to(logs)
    sender.offer(entry("a"))
    await logs.taken.wait()
    await sender.close(1)

    assert logs.batches == [["a"]]


async def test_a_refused_batch_is_dropped() -> None:
    """It is logged and does not block the batches after it."""
    logs = ScriptedLogs(LogsError("bad", retryable=False))
    sender, stream = sender_to(logs)
    sender.offer(entry("bad"))
    await asyncio.sleep(1.5)
    sender.offer(entry("good"))
    await logs.taken.wait()
    await sender.close(1)

    assert logs.batches == [["good"]]
    assert reported(stream) == [{"event": "logs.batch_refused", "count": 1, "error": "LogsError: bad"}]


async def test_close_sends_what_is_left() -> None:
    """In batches, without waiting for more entries."""
    logs = ScriptedLogs()
    sender, stream = sender_to(logs)
    for number in range(BATCH_MAX * 2 + 1):
        sender.offer(entry(str(number)))
    await sender.close(5)

    assert [len(batch) for batch in logs.batches] == [BATCH_MAX, BATCH_MAX, 1]
    assert asyncio.get_running_loop().time() == 0
    assert stream.getvalue() == ""


async def test_close_ends_at_its_deadline_and_reports_the_rest() -> None:
    """A service that hangs does not delay the process. The number includes the batch that was being sent."""
    logs = ScriptedLogs()
    logs.gate.clear()
    sender, stream = sender_to(logs)
    for number in range(BATCH_MAX + 1):
        sender.offer(entry(str(number)))
    await asyncio.sleep(0)
    await sender.close(5)

    assert asyncio.get_running_loop().time() == 5
    assert reported(stream) == [{"event": "logs.entries_left", "count": BATCH_MAX + 1}]


@pytest.mark.parametrize("waiting", [0.5, 30])
async def test_close_does_not_wait_for_a_service_that_fails(waiting: float) -> None:
    """It makes one last attempt, during the wait for more entries as well as during a back-off."""
    logs = ScriptedLogs(*(LogsError("down", retryable=True) for _ in range(99)))
    sender, stream = sender_to(logs)
    sender.offer(entry("a"))
    await asyncio.sleep(waiting)
    await sender.close(5)

    assert asyncio.get_running_loop().time() == waiting
    assert reported(stream)[-1] == {"event": "logs.entries_left", "count": 1}


async def test_a_full_queue_drops_info_first_and_the_number_is_reported() -> None:
    """While the service hangs, INFO is dropped and ERROR stays. Then stream and service get the number."""
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
    assert reported(stream) == [{"event": "logs.entries_dropped", "count": 10}]
