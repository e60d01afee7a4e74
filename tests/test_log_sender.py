"""The sender of log entries: when it sends them, and what becomes of them when it cannot."""

import asyncio
import math
from collections.abc import Sequence

import pytest

from holdfast.testing.virtual_time import VirtualClock
from holdfast.types import Level
from holdfast_testing.captured_log import CapturedLog
from tocsin.errors import LogsError
from tocsin.logs import BATCH_MAX, QUEUE_MAX, LogEntry, LogSender

DOWN = LogsError("down", retryable=True)


class Rig:
    """A sender, the log on which it reports, and a service that raises these errors before it accepts everything."""

    def __init__(self, *failures: Exception, lasts_s: float = math.inf) -> None:
        self._failures = list(failures)
        self.gate = asyncio.Event()  # while it is not set, the service hangs
        self.gate.set()
        self.batches: list[list[str]] = []
        self.called_at: list[float] = []

        self.log = CapturedLog()
        self.sender = LogSender(self, "app", VirtualClock(), self.log, asyncio.create_task, lasts_s)

    async def log_batch(self, app_id: str, entries: Sequence[LogEntry]) -> None:
        assert app_id == "app"
        self.called_at.append(now())
        await self.gate.wait()
        if self._failures:
            raise self._failures.pop(0)
        self.batches.append([entry.message for entry in entries])

    def offer(self, *messages: str, level: Level = "INFO") -> None:
        for message in messages:
            self.sender.offer(LogEntry(level, message, {}))

    def reported(self) -> list[tuple[str, object]]:
        """The events, and how many entries each is about."""
        return [(line.event, line.fields.get("count")) for line in self.log.lines]


def now() -> float:
    return asyncio.get_running_loop().time()


async def test_entries_are_gathered_for_a_second_and_sent_together() -> None:
    """The next ones wait for a second of their own; the rest is sent at the end. A working service leaves no line."""
    rig = Rig()
    rig.offer("a", "a")
    await asyncio.sleep(0.5)
    rig.offer("a")
    await asyncio.sleep(4.5)
    rig.offer("b")
    await asyncio.sleep(3)
    rig.offer("c")
    await rig.sender.close(10)

    assert rig.called_at == [1.0, 6.0, 8.0]
    assert rig.batches == [["a", "a", "a"], ["b"], ["c"]]
    assert rig.log.lines == []


async def test_a_batch_has_a_hundred_entries() -> None:
    """The others follow at once."""
    rig = Rig()
    rig.offer(*map(str, range(BATCH_MAX + 1)))
    await asyncio.sleep(2)

    assert [len(batch) for batch in rig.batches] == [BATCH_MAX, 1]
    assert rig.called_at == [1.0, 1.0]


async def test_an_idle_sender_does_nothing() -> None:
    """Without entries it sends nothing, starts nothing and logs nothing."""
    rig = Rig()
    await asyncio.sleep(100)
    await rig.sender.close(1)

    assert (rig.called_at, rig.log.lines, now()) == ([], [], 100)


async def test_a_failed_batch_is_retried_with_growing_waits() -> None:
    """1 s, 2 s, 4 s … up to a minute. Each failure and the recovery are logged. The order is kept."""
    rig = Rig(*[DOWN] * 9)
    rig.offer("a")
    await asyncio.sleep(1.5)
    rig.offer("b", level="ERROR")
    await asyncio.sleep(600)
    waits = [later - earlier for earlier, later in zip(rig.called_at, rig.called_at[1:], strict=False)]

    assert rig.batches == [["a", "b"]]
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert rig.log.named("logs.send_failed")[0] == {"waiting": 1, "failures": 1, "error": "LogsError: down"}
    assert rig.log.named("logs.send_recovered") == [{"failures": 9}]


@pytest.mark.parametrize(
    ("error", "batches", "event"),
    [
        (RuntimeError("a bug"), [["a"], ["b"]], "logs.send_failed"),
        (LogsError("bad", retryable=False), [["b"]], "logs.batch_refused"),
    ],
)
async def test_no_error_ends_the_sender(error: Exception, batches: list[list[str]], event: str) -> None:
    """After any exception the entries are sent again; only a batch that the service refuses for good is dropped."""
    rig = Rig(error)
    rig.offer("a")
    await asyncio.sleep(5)
    rig.offer("b")
    await asyncio.sleep(5)

    assert rig.batches == batches
    assert rig.log.lines[0].event == event


async def test_close_sends_what_is_left() -> None:
    """In batches, without waiting for more entries."""
    rig = Rig()
    rig.offer(*map(str, range(BATCH_MAX * 2 + 1)))
    await rig.sender.close(5)

    assert [len(batch) for batch in rig.batches] == [BATCH_MAX, BATCH_MAX, 1]
    assert (now(), rig.log.lines) == (0, [])


@pytest.mark.parametrize("waiting", [0.0, 2.0])
async def test_close_ends_at_its_deadline_and_reports_the_rest(waiting: float) -> None:
    """A service that hangs does not delay the process. The number includes the batch that was being sent."""
    rig = Rig()
    rig.gate.clear()
    rig.offer(*map(str, range(BATCH_MAX + 1)))
    await asyncio.sleep(waiting)
    await rig.sender.close(5)

    assert now() == waiting + 5
    assert rig.reported() == [("logs.entries_left", BATCH_MAX + 1)]


@pytest.mark.parametrize("waiting", [0.5, 30])
async def test_close_does_not_wait_for_a_service_that_fails(waiting: float) -> None:
    """It makes one last attempt, during the wait for more entries as well as during a back-off."""
    rig = Rig(*[DOWN] * 99)
    rig.offer(*"abcd")
    await asyncio.sleep(waiting)
    attempts = len(rig.called_at)
    await rig.sender.close(5)

    assert (now(), len(rig.called_at)) == (waiting, attempts + 1)
    assert rig.reported()[-1] == ("logs.entries_left", 4)


async def test_a_full_queue_drops_info_first_and_the_number_is_reported() -> None:
    """While the service hangs, INFO is dropped and ERROR stays. Then log and service get the number."""
    rig = Rig()
    rig.gate.clear()
    rig.offer("first")
    await asyncio.sleep(1.5)
    rig.offer(*(f"e{number}" for number in range(5)), level="ERROR")
    rig.offer(*(f"e{number}" for number in range(5, QUEUE_MAX + 10)))
    rig.gate.set()
    await asyncio.sleep(60)
    received = [message for batch in rig.batches for message in batch]

    assert received[:6] == ["first", "e0", "e1", "e2", "e3", "e4"]
    assert received[6:] == [f"e{number}" for number in range(15, QUEUE_MAX + 10)] + ["logs.entries_dropped"]
    assert rig.reported() == [("logs.entries_dropped", 10)]


async def test_a_queue_of_important_entries_drops_the_oldest() -> None:
    rig = Rig()
    rig.offer(*map(str, range(QUEUE_MAX + 2)), level="WARN")
    await rig.sender.close(5)

    assert [message for batch in rig.batches for message in batch][:1] == ["2"]


async def test_what_an_event_cannot_send_goes_with_the_next_lines() -> None:
    """On Cloudflare, an event retries for as long as it may last; the next event sends everything, in order, once."""
    rig = Rig(*[DOWN] * 5, lasts_s=25)
    rig.offer("one", "two")
    await asyncio.sleep(60)
    rig.offer("three")
    await asyncio.sleep(60)

    assert rig.batches == [["one", "two", "three"]]
    assert rig.called_at == [1, 2, 4, 8, 16, 61]


async def test_an_event_that_the_runtime_ended_does_not_hold_up_later_lines() -> None:
    """None of its code runs again: after a minute, the next line is sent in its own event."""
    rig = Rig(lasts_s=25)
    rig.gate.clear()
    rig.offer("lost")
    await asyncio.sleep(40)
    rig.offer("waits")
    rig.gate = asyncio.Event()  # the first call goes on waiting
    rig.gate.set()
    await asyncio.sleep(20)
    rig.offer("later")
    await asyncio.sleep(5)

    assert rig.batches == [["waits", "later"]]
