"""Logs at their limits: how much waits for a reader, how long a report is, what the log service is sent."""

import asyncio
import json
import logging
import os
import select
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from holdfast.local.clock import SystemClock
from holdfast_testing.captured_log import CapturedLog
from tocsin.errors import LogsError
from tocsin.fetch import FetchResponse
from tocsin.local.logs import LogSender, LogWriter, TerminalLines, WorkerLogs, library_logs
from tocsin.logs import LogEntry, Redactor

WAIT_S = 20.0


class Pipe:
    """A pipe that nobody reads, optionally full, and its writer."""

    def __init__(self, *, full: bool, **options: int) -> None:
        self.read_fd, self.write_fd = os.pipe()
        os.set_blocking(self.write_fd, False)
        with suppress(BlockingIOError):
            while full:
                os.write(self.write_fd, b"\n" * 4096)
        os.set_blocking(self.write_fd, True)
        with os.fdopen(self.write_fd, "w", closefd=False) as stream:
            self.writer = LogWriter(stream, SystemClock(), **options)

    def wait_until_stuck(self) -> None:
        """Wait until the thread has taken the first line and waits for the reader."""
        ends_at = time.monotonic() + WAIT_S
        while self.writer._lines and time.monotonic() < ends_at:
            time.sleep(0.001)


@contextmanager
def piped(*, full: bool = False, **options: int) -> Iterator[Pipe]:
    made = Pipe(full=full, **options)
    try:
        yield made
    finally:
        os.close(made.read_fd)
        made.writer.close(WAIT_S)
        os.close(made.write_fd)


def test_a_line_is_written_at_once() -> None:
    """Nobody waits for a second line, or for the end."""
    with piped() as made:
        time.sleep(0.05)  # the thread waits for a line
        made.writer.write("one\n")
        ready, _, _ = select.select([made.read_fd], [], [], WAIT_S)

        assert ready == [made.read_fd]
        assert os.read(made.read_fd, 100) == b"one\n"


def test_the_queue_takes_as_much_as_it_may_and_not_a_byte_more() -> None:
    """Then it is full until half of it was written."""
    with piped(full=True, bytes_max=1_000) as made:
        made.writer.write("x" * 10)
        made.wait_until_stuck()  # this line is no longer in the queue
        for _ in range(9):
            made.writer.write("y" * 100)
        made.writer.write("z" * 101)
        too_long = made.writer.dropped
        made.writer.write("w")  # still full: more than half of it waits

        assert (too_long, made.writer.dropped) == (1, 2)
        assert sum(map(len, made.writer._lines)) == 900
    with piped(full=True, bytes_max=1_000) as made:
        made.writer.write("x" * 10)
        made.wait_until_stuck()
        for _ in range(10):
            made.writer.write("y" * 100)

        assert made.writer.dropped == 0


def test_four_mebibytes_wait_for_a_reader_that_hangs() -> None:
    """As docs say; after that lines are dropped."""
    with piped(full=True) as made:
        made.writer.write("x")
        made.wait_until_stuck()
        line = "y" * 65_536
        for _ in range(64):
            made.writer.write(line)
        fits = made.writer.dropped
        made.writer.write("z")

        assert (fits, made.writer.dropped) == (0, 1)


def test_a_report_of_a_library_has_four_thousand_characters_at_most() -> None:
    """The first of a message, the last of a traceback; warnings are warnings and errors are errors."""
    log = CapturedLog()
    with library_logs(log):
        logger = logging.getLogger("some.library")
        logger.info("not for us")
        logger.warning("%s", "w" * 5_000)
        logger.error("broken", exc_info=ValueError("v" * 5_000))
        logger.critical("worse")
    logging.getLogger("some.library").debug("outside")
    warned, broken, worse = log.of("library.reported")

    assert (warned.level, len(warned.fields["message"]), "traceback" in warned.fields) == ("WARN", 4_000, False)
    assert (broken.level, broken.fields["library"], broken.fields["message"]) == ("ERROR", "some.library", "broken")
    assert len(broken.fields["traceback"]) == 4_000
    assert broken.fields["traceback"].endswith("v\n")
    assert worse.level == "ERROR"


async def test_the_log_service_has_five_seconds_and_a_mebibyte() -> None:
    """A 422 is the batch's own fault; the text of an answer is shown up to 200 characters."""
    asked: list[dict[str, Any]] = []

    async def fetch(url: str, **options: Any) -> FetchResponse:
        asked.append(options)
        return FetchResponse(422, {}, b"t" * 300)

    logs = WorkerLogs(fetch, "https://logs.test", "key", Redactor())
    with pytest.raises(LogsError) as refused:
        await logs.log_batch("app", [LogEntry("INFO", "a", {})])

    assert (asked[0]["timeout_s"], asked[0]["body_max"]) == (5.0, 1_048_576)
    assert str(refused.value) == "the log service responded with 422: " + "t" * 200
    assert not refused.value.retryable


class Service:
    """Accepts batches, or fails for as long as a test wants."""

    def __init__(self) -> None:
        self.down = False
        self.taken: list[tuple[float, int]] = []

    async def log_batch(self, _app_id: str, entries: Any) -> None:
        if self.down:
            raise LogsError("down", retryable=True)
        self.taken.append((asyncio.get_running_loop().time(), len(entries)))


async def test_entries_are_gathered_for_a_second_and_sent_together() -> None:
    """The next ones wait for a second of their own; what is left is sent at the end."""
    service, log = Service(), CapturedLog()
    sender = LogSender(service, "app", log)
    sender.start()
    for _ in range(3):
        sender.offer(LogEntry("INFO", "a", {}))
    await asyncio.sleep(5)
    sender.offer(LogEntry("INFO", "b", {}))
    await asyncio.sleep(3)
    sender.offer(LogEntry("INFO", "c", {}))
    await sender.close(10)

    assert service.taken == [(1.0, 3), (6.0, 1), (8.0, 1)]
    assert log.lines == []


async def test_entries_that_cannot_be_sent_by_the_end_are_counted() -> None:
    """Within the time that the end has."""
    service, log = Service(), CapturedLog()
    service.down = True
    sender = LogSender(service, "app", log)
    sender.start()
    for _ in range(4):
        sender.offer(LogEntry("INFO", "a", {}))
    await asyncio.sleep(30)
    began = asyncio.get_running_loop().time()
    await sender.close(10)

    assert asyncio.get_running_loop().time() - began <= 10
    assert [line["count"] for line in log.named("logs.entries_left")] == [4]


class Screen:
    """What was written to a terminal."""

    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str, /) -> None:
        self.text += text

    def flush(self) -> None: ...


@pytest.mark.parametrize(("columns", "shown"), [(200, None), (30, 29), (3, 2), (1, 2)])
def test_a_line_is_cut_so_that_it_does_not_wrap(columns: int, shown: int | None) -> None:
    """One column is left free, because some terminals wrap when the last one is used."""
    screen = Screen()
    lines = TerminalLines(screen, lambda: columns)
    lines.write(json.dumps({"level": "INFO", "event": "service.started", "port": 8787, "reason": None, "run": 7}))
    whole = " INFO  service.started port=8787"

    text = screen.text.removeprefix("\r\x1b[2K").removesuffix("\n")
    assert text == (whole if shown is None else f"{whole[: shown - 1]}…")


def test_text_that_is_no_line_of_ours_is_shown_as_it_is() -> None:
    """Numbers and lists are also JSON, but not log lines."""
    screen = Screen()
    lines = TerminalLines(screen, lambda: 80)
    for text in ("plain\n", "7\n", "[1]\n"):
        lines.write(text)

    assert screen.text == "".join(f"\r\x1b[2K{text}\n" for text in ("plain", "7", "[1]"))
