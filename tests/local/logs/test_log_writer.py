"""Lines pass through a thread: nobody waits for a reader, and what is dropped is counted."""

import io
import json
import logging
import os
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from holdfast.local.clock import SystemClock
from holdfast_testing.captured_log import CapturedLog
from tocsin.local.logs import LogWriter, library_logs, open_logger
from tocsin.logs import Redactor

WAIT_S = 30.0
QUEUE = 20_000


class Pipe:
    """A pipe and its writer. A full one has no space for a single line; what fills it are empty lines."""

    def __init__(self, *, full: bool) -> None:
        self.read_fd, self.write_fd = os.pipe()
        os.set_blocking(self.write_fd, False)
        with suppress(BlockingIOError):
            while full:
                os.write(self.write_fd, b"\n" * 4096)
        os.set_blocking(self.write_fd, True)
        with os.fdopen(self.write_fd, "w", closefd=False) as stream:
            self.writer = LogWriter(stream, SystemClock(), bytes_max=QUEUE)

    def rest(self) -> list[dict[str, Any]]:
        """Close the writer, and read everything that arrives until then."""
        text = b""
        while True:
            self.writer.close(0.001)
            os.set_blocking(self.read_fd, False)
            with suppress(BlockingIOError):
                text += os.read(self.read_fd, 1_000_000)
                continue
            if not self.writer._thread.is_alive():
                return [json.loads(line) for line in text.splitlines() if line]

    def read(self) -> dict[str, Any]:
        """One line, as soon as it is there."""
        os.set_blocking(self.read_fd, True)
        text = b""
        while not text.strip() or not text.endswith(b"\n"):
            text += os.read(self.read_fd, 1)
        line: dict[str, Any] = json.loads(text)
        return line


@contextmanager
def piped(*, full: bool = False) -> Iterator[Pipe]:
    made = Pipe(full=full)
    try:
        yield made
    finally:
        os.close(made.read_fd)
        made.writer.close(WAIT_S)  # a write to a pipe without a reader fails at once
        os.close(made.write_fd)


def number(n: int) -> str:
    return json.dumps({"n": n, "text": "x" * 100}) + "\n"


def test_lines_keep_their_order() -> None:
    """All of them arrive, each as one line."""
    with piped() as made:
        for n in range(100):
            made.writer.write(number(n))
        lines = made.rest()

    assert [line["n"] for line in lines] == list(range(100))
    assert made.writer.dropped == 0


@pytest.mark.slow
def test_a_reader_that_hangs_stops_nobody() -> None:
    """Lines beyond the queue are dropped. When the reader continues, a line in their place states how many."""
    written = 10 * QUEUE // len(number(0))
    with piped(full=True) as made:
        for n in range(written):
            made.writer.write(number(n))  # a write that waited would never return
        dropped = made.writer.dropped
        head = [made.read()["n"] for _ in range((written - dropped) * 9 // 10)]
        made.writer.write(number(written))
        tail = made.rest()

    numbers = head + [line["n"] for line in tail if "n" in line]
    (place,) = [place for place, line in enumerate(tail) if "n" not in line]
    assert dropped > 0
    assert numbers == [*range(written - dropped), written]
    assert tail[place]["event"] == "logs.lines_dropped"
    assert tail[place]["count"] == dropped
    assert tail[place]["message"] == f"{dropped} log lines were dropped"
    assert tail[place + 1 :] == [json.loads(number(written))]


def test_dropped_lines_are_reported_without_another_line() -> None:
    """As soon as the reader has read the queue."""
    with piped(full=True) as made:
        for n in range(5_000):
            made.writer.write(number(n))
        lines = made.rest()

    assert made.writer.dropped > 0
    assert lines[-1]["count"] == made.writer.dropped
    assert len(lines) - 1 == 5_000 - made.writer.dropped


def test_the_end_does_not_wait_for_a_reader_that_hangs() -> None:
    """It tries for a bounded time."""
    with piped(full=True) as made:
        made.writer.write(number(0))
        made.writer.close(0.01)

        assert made.writer._thread.is_alive()
        assert made.writer._thread.daemon


def test_a_stream_that_cannot_be_written_is_survived_and_counted(tmp_path: Path) -> None:
    """The first line that can be written is followed by the number of those that could not."""
    read_fd, write_fd = os.pipe()
    os.close(read_fd)
    with os.fdopen(write_fd, "w") as stream, (tmp_path / "log").open("w+") as file:
        writer = LogWriter(stream, SystemClock())
        for n in range(3):
            writer.write(number(n))
        while writer.dropped < 3:
            time.sleep(0.001)  # the thread is real
        os.dup2(file.fileno(), write_fd)  # the disk has space again
        writer.write(number(3))
        writer.close(WAIT_S)
    first, second = map(json.loads, (tmp_path / "log").read_text().splitlines())

    assert first["n"] == 3
    assert (second["event"], second["count"]) == ("logs.lines_dropped", 3)


def test_a_line_that_a_full_disk_has_cut_is_completed(tmp_path: Path) -> None:
    """Every line is one JSON object, even the one at which the disk was full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with (tmp_path / "log").open("w") as file:
        writer = LogWriter(file, SystemClock())
        resource.setrlimit(resource.RLIMIT_FSIZE, (150, hard))
        try:
            for n in range(3):
                writer.write(number(n))
            while not writer.dropped:
                time.sleep(0.001)  # the thread is real
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        writer.write(number(3))
        writer.close(WAIT_S)
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]

    assert [line.get("n") for line in lines] == [0, 1, 3, None]
    assert lines[-1]["count"] == 1


def test_what_libraries_report_is_a_line_of_the_log() -> None:
    """With its level and its traceback, and only within the block."""
    log, library = CapturedLog(), logging.getLogger("some.library")
    with library_logs(log):
        library.info("not worth a line")
        library.warning("there are %d of them", 7)
        library.error("it failed", exc_info=ValueError("why"))
    with library_logs(CapturedLog()):
        library.warning("later")

    first, second = log.of("library.reported")
    assert (first.level, first.fields) == ("WARN", {"library": "some.library", "message": "there are 7 of them"})
    assert (second.level, second.fields["message"]) == ("ERROR", "it failed")
    assert "ValueError: why" in second.fields["traceback"]


def test_a_mistake_in_a_librarys_call_is_not_an_error_of_its_caller() -> None:
    """The text is reported as it is, without its arguments."""
    log = CapturedLog()
    with library_logs(log):  # not through a logger: the handlers of pytest raise
        handler = logging.getLogger().handlers[-1]
        handler.emit(logging.makeLogRecord({"msg": "%d and %d", "args": (2,), "levelno": logging.WARNING}))

    assert [line.fields["message"] for line in log.of("library.reported")] == ["%d and %d"]


def test_a_logger_writes_through_it() -> None:
    """The lines are those that the logger would write to the stream itself."""
    direct = io.StringIO()
    with piped() as made:
        for stream in (direct, made.writer):
            open_logger(stream, SystemClock(), Redactor()).info("run.started", task="sweep")
        (line,) = made.rest()

    assert {**line, "at": 0} == {**json.loads(direct.getvalue()), "at": 0}
