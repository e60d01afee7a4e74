"""Logs of one machine: JSON lines on a stream, lines for people on a terminal, batches to a log service."""

import asyncio
import io
import json
import logging
import os
import re
import resource
import select
import time
from collections.abc import Iterator
from contextlib import aclosing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from holdfast.local.clock import SystemClock
from holdfast.testing.virtual_time import START_MS, VirtualClock
from holdfast.types import Logger
from holdfast_testing.captured_log import CapturedLog
from support.loopback import Request, http, serving
from tocsin.errors import LogsError
from tocsin.fetch import FetchResponse
from tocsin.local.fetch import HttpFetch
from tocsin.local.logs import LogWriter, TerminalLines, WorkerLogs, library_logs, open_logger
from tocsin.logs import LogEntry, Logs, Redactor


def logged(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


async def test_a_line_has_time_level_event_and_fields() -> None:
    """Each level writes its line. A field of the line overrides a bound field."""
    stream = io.StringIO()
    logger: Logger = open_logger(stream, VirtualClock(), Redactor(), level_min="DEBUG")
    run = logger.bind(task="sweep", wallet=1)
    run.debug("run.started")
    run.info("wallet.scanned", wallet=2)
    run.warning("upstream.slow", took_ms=5)
    logger.error("run.failed", error=ValueError("why"))  # type: ignore[arg-type]  # made JSON on the way out

    assert logged(stream) == [
        {"at": START_MS, "level": "DEBUG", "event": "run.started", "task": "sweep", "wallet": 1},
        {"at": START_MS, "level": "INFO", "event": "wallet.scanned", "task": "sweep", "wallet": 2},
        {"at": START_MS, "level": "WARN", "event": "upstream.slow", "task": "sweep", "wallet": 1, "took_ms": 5},
        {"at": START_MS, "level": "ERROR", "event": "run.failed", "error": "ValueError: why"},
    ]


async def test_levels_below_the_least_are_not_written() -> None:
    """DEBUG is off by default."""
    stream = io.StringIO()
    offered: list[LogEntry] = []
    logger = open_logger(stream, VirtualClock(), Redactor(), tee=offered.append)
    logger.debug("detail.seen")
    logger.info("run.started")

    assert [line["event"] for line in logged(stream)] == ["run.started"]
    assert [entry.message for entry in offered] == ["run.started"]


async def test_secrets_are_masked_in_the_stream_and_in_the_tee() -> None:
    """In bound fields, nested fields and the event itself."""
    stream = io.StringIO()
    offered: list[LogEntry] = []
    logger = open_logger(stream, VirtualClock(), Redactor(["hunter2"]), tee=offered.append)
    logger.bind(url="https://x/?key=hunter2").warning("upstream.said hunter2", headers={"x-api-key": ["hunter2"]})

    assert "hunter2" not in stream.getvalue()
    assert "hunter2" not in repr(offered)
    assert offered == [
        LogEntry(
            "WARN",
            "upstream.said [redacted]",
            {"at": 1778700600000, "url": "https://x/?key=[redacted]", "headers": {"x-api-key": ["[redacted]"]}},
        )
    ]


@pytest.mark.parametrize("name", ["at", "level", "event"])
async def test_a_field_cannot_take_the_place_of_the_lines_own(name: str) -> None:
    """A field with such a name is written under another name."""
    stream = io.StringIO()
    open_logger(stream, VirtualClock(), Redactor()).bind(**{name: 1}).info("run.started", **{name: 2})

    assert logged(stream) == [{"at": START_MS, "level": "INFO", "event": "run.started", f"{name}_": 2}]


async def test_a_field_may_be_named_self() -> None:
    """The methods of a logger have no names of their own."""
    stream = io.StringIO()
    open_logger(stream, VirtualClock(), Redactor()).bind(self=1).info("run.started", method_name=2)

    assert logged(stream)[0]["self"] == 1
    assert logged(stream)[0]["method_name"] == 2


async def test_a_line_stays_one_line() -> None:
    """Line ends, lone surrogates and other special characters in a field are escaped."""
    stream = io.StringIO()
    open_logger(stream, VirtualClock(), Redactor()).info("page.read", body="a\nb\r\u2028\ud800\0")

    assert stream.getvalue().count("\n") == 1
    assert stream.getvalue().isascii()
    assert logged(stream)[0]["body"] == "a\nb\r\u2028\ud800\0"


class ClosedPipe(io.StringIO):
    """A stream whose reader has closed it."""

    def write(self, _text: str) -> int:
        raise BrokenPipeError


@pytest.mark.parametrize("stream", [ClosedPipe(), io.StringIO()])
async def test_a_stream_that_is_gone_does_not_stop_the_work(stream: io.StringIO) -> None:
    """Logging never raises, and the log service still gets the entry."""
    offered: list[LogEntry] = []
    logger = open_logger(stream, VirtualClock(), Redactor(), tee=offered.append)
    if not isinstance(stream, ClosedPipe):
        stream.close()
    logger.info("run.started")

    assert [entry.message for entry in offered] == ["run.started"]


WAIT_S = 30.0
QUEUE = 20_000


class Pipe:
    """A pipe and its writer. A full one has no space for a single line; what fills it are empty lines."""

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
def piped(*, full: bool = False, **options: int) -> Iterator[Pipe]:
    made = Pipe(full=full, **options)
    try:
        yield made
    finally:
        os.close(made.read_fd)
        made.writer.close(WAIT_S)  # a write to a pipe without a reader fails at once
        os.close(made.write_fd)


def numbered(n: int) -> str:
    return json.dumps({"n": n, "text": "x" * 100}) + "\n"


def test_lines_keep_their_order() -> None:
    """All of them arrive, each as one line."""
    with piped(bytes_max=QUEUE) as made:
        for n in range(100):
            made.writer.write(numbered(n))
        lines = made.rest()

    assert [line["n"] for line in lines] == list(range(100))
    assert made.writer.dropped == 0


@pytest.mark.slow
def test_a_reader_that_hangs_stops_nobody() -> None:
    """Lines beyond the queue are dropped. When the reader continues, a line in their place states how many."""
    written = 10 * QUEUE // len(numbered(0))
    with piped(full=True, bytes_max=QUEUE) as made:
        for n in range(written):
            made.writer.write(numbered(n))  # a write that waited would never return
        dropped = made.writer.dropped
        head = [made.read()["n"] for _ in range((written - dropped) * 9 // 10)]
        made.writer.write(numbered(written))
        tail = made.rest()

    numbers = head + [line["n"] for line in tail if "n" in line]
    (place,) = [place for place, line in enumerate(tail) if "n" not in line]
    assert dropped > 0
    assert numbers == [*range(written - dropped), written]
    assert tail[place]["event"] == "logs.lines_dropped"
    assert tail[place]["count"] == dropped
    assert tail[place]["message"] == f"{dropped} log lines were dropped"
    assert tail[place + 1 :] == [json.loads(numbered(written))]


def test_dropped_lines_are_reported_without_another_line() -> None:
    """As soon as the reader has read the queue."""
    with piped(full=True, bytes_max=QUEUE) as made:
        for n in range(5_000):
            made.writer.write(numbered(n))
        lines = made.rest()

    assert made.writer.dropped > 0
    assert lines[-1]["count"] == made.writer.dropped
    assert len(lines) - 1 == 5_000 - made.writer.dropped


def test_the_end_does_not_wait_for_a_reader_that_hangs() -> None:
    """It tries for a bounded time."""
    with piped(full=True, bytes_max=QUEUE) as made:
        made.writer.write(numbered(0))
        made.writer.close(0.01)

        assert made.writer._thread.is_alive()
        assert made.writer._thread.daemon


def test_a_stream_that_cannot_be_written_is_survived_and_counted(tmp_path: Path) -> None:
    """The first line that can be written is followed by the numbered of those that could not."""
    read_fd, write_fd = os.pipe()
    os.close(read_fd)
    with os.fdopen(write_fd, "w") as stream, (tmp_path / "log").open("w+") as file:
        writer = LogWriter(stream, SystemClock())
        for n in range(3):
            writer.write(numbered(n))
        while writer.dropped < 3:
            time.sleep(0.001)  # the thread is real
        os.dup2(file.fileno(), write_fd)  # the disk has space again
        writer.write(numbered(3))
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
                writer.write(numbered(n))
            while not writer.dropped:
                time.sleep(0.001)  # the thread is real
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        writer.write(numbered(3))
        writer.close(WAIT_S)
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]

    assert [line.get("n") for line in lines] == [0, 1, 3, None]
    assert lines[-1]["count"] == 1


def test_what_libraries_report_is_a_line_of_the_log() -> None:
    """With its level, and only within the block: the first 4,000 characters of a message, the last of a traceback."""
    log, library = CapturedLog(), logging.getLogger("some.library")
    with library_logs(log):
        library.info("not worth a line")
        library.warning("there are %d of them", 7)
        library.warning("%s", "w" * 5_000)
        library.error("it failed", exc_info=ValueError("why"))
        library.error("broken", exc_info=ValueError("v" * 5_000))
        library.critical("worse")
    with library_logs(CapturedLog()):
        library.warning("later")

    first, long, failed, broken, worse = log.of("library.reported")
    assert (first.level, first.fields) == ("WARN", {"library": "some.library", "message": "there are 7 of them"})
    assert (long.level, len(long.fields["message"])) == ("WARN", 4_000)
    assert (failed.level, failed.fields["message"]) == ("ERROR", "it failed")
    assert "ValueError: why" in failed.fields["traceback"]
    assert len(broken.fields["traceback"]) == 4_000
    assert broken.fields["traceback"].endswith("v\n")
    assert worse.level == "ERROR"


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
    with piped(bytes_max=QUEUE) as made:
        for stream in (direct, made.writer):
            open_logger(stream, SystemClock(), Redactor()).info("run.started", task="sweep")
        (line,) = made.rest()

    assert {**line, "at": 0} == {**json.loads(direct.getvalue()), "at": 0}


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


@pytest.mark.parametrize(("columns", "shown"), [(200, None), (30, 29), (3, 2), (1, 2)])
def test_a_line_is_cut_so_that_it_does_not_wrap(columns: int, shown: int | None) -> None:
    """One column is left free, because some terminals wrap when the last one is used."""
    screen = io.StringIO()
    lines = TerminalLines(screen, lambda: columns)
    lines.write(json.dumps({"level": "INFO", "event": "service.started", "port": 8787, "reason": None, "run": 7}))
    whole = " INFO  service.started port=8787"

    text = screen.getvalue().removeprefix("\r\x1b[2K").removesuffix("\n")
    assert text == (whole if shown is None else f"{whole[: shown - 1]}…")


def test_text_that_is_no_line_of_ours_is_shown_as_it_is() -> None:
    """Numbers and lists are also JSON, but not log lines."""
    screen = io.StringIO()
    lines = TerminalLines(screen, lambda: 80)
    for text in ("plain\n", "7\n", "[1]\n"):
        lines.write(text)

    assert screen.getvalue() == "".join(f"\r\x1b[2K{text}\n" for text in ("plain", "7", "[1]"))


AT = 1_778_700_600_000


def json_line(event: str, level: str = "INFO", **fields: object) -> str:
    return json.dumps({"at": AT, "level": level, "event": event, **fields}) + "\n"


def ended(task: str, outcome: str = "ok", level: str = "INFO") -> str:
    return json_line("run.ended", level, task=task, run=3, outcome=outcome, durationMs=28)


def shown(*lines: str, columns: int = 100) -> tuple[list[str], str]:
    """Return the lines that stay, without colors and times, and the bottom line, as a terminal finally shows them."""
    stream = io.StringIO()
    terminal = TerminalLines(stream, lambda: columns)
    for line in lines:
        terminal.write(line)
    rows = [row.rpartition("\r\x1b[2K")[2] for row in stream.getvalue().split("\n")]
    *stay, bottom = [re.sub(r"\x1b\[[0-9]*m|[0-9]{2}:[0-9]{2}:[0-9]{2} ", "", row) for row in rows]
    return stay, bottom


def test_runs_that_end_well_share_the_line_at_the_bottom() -> None:
    """Nothing scrolls while nothing happens."""
    stay, bottom = shown(json_line("run.started", task="feed"), ended("feed"), ended("tenero"), ended("feed"))

    assert stay == []
    assert bottom == "feed ok in 28 ms · tenero ok in 28 ms"


def test_a_warning_stays_above_it() -> None:
    """With its fields, except those without information."""
    stay, bottom = shown(
        "Tocsin is running.\n",
        ended("feed"),
        json_line("contract.unlisted", "WARN", task="feed", run=3, contract="SP1.pool", note=None, count=2),
        ended("sweep", "partial", "WARN"),
        json_line("service.started", url="http://127.0.0.1:1"),
    )

    assert stay == [
        "Tocsin is running.",
        "WARN  contract.unlisted task=feed contract=SP1.pool count=2",
        "WARN  run.ended task=sweep outcome=partial durationMs=28",
        "INFO  service.started url=http://127.0.0.1:1",
    ]
    assert bottom == "feed ok in 28 ms"


def test_status_and_reason_are_not_cut_off() -> None:
    """They tell what is wrong, and paths are long."""
    path = "/extended/v3/principals/" + "SP" * 30
    stay, _ = shown(json_line("upstream.attempt_failed", "WARN", path=path, status=429, reason="too many"), columns=80)

    assert "upstream.attempt_failed status=429 reason=too many path=/" in stay[0]


def test_a_line_is_cut_at_the_edge_and_cannot_control_the_terminal() -> None:
    """Text from outside has no escape sequences and no line breaks when it is shown."""
    stay, _ = shown(json_line("x.y", "ERROR", text="a\x1b[2Jb\nc" + "d" * 200), columns=40)

    assert len(stay) == 1
    assert len(stay[0]) <= 40
    assert "a?[2Jb?c" in stay[0]
    assert stay[0].endswith("…")


ENTRY = LogEntry("WARN", "upstream.failed", {"status": 429, "key": "hunter2"})


async def send_to(response: bytes) -> list[Request]:
    async def write(_request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(response)

    async with serving(write) as server, aclosing(HttpFetch()) as fetch:
        logs: Logs = WorkerLogs(fetch, f"{server.url}/", "api-key", Redactor(["hunter2"]))
        await logs.log_batch("aibtc-landing", [ENTRY, ENTRY])
        return server.requests


async def test_a_batch_is_one_request_with_the_apps_id_and_key() -> None:
    """In the service's format: level, message, context. Secrets are masked here too."""
    (request,) = await send_to(http(200, b'{"ok": true, "data": []}'))
    masked = {"level": "WARN", "message": "upstream.failed", "context": {"status": 429, "key": "[redacted]"}}

    assert request.line == "POST /logs HTTP/1.1"
    assert request.headers["x-app-id"] == "aibtc-landing"
    assert request.headers["x-api-key"] == "api-key"
    assert json.loads(request.body) == {"logs": [masked, masked]}


@pytest.mark.parametrize(
    ("status", "body", "retryable"),
    [
        (200, b'{"ok": false, "error": {"code": "INTERNAL_ERROR"}}', True),
        (200, b"<html>not the service</html>", True),
        (200, b"[]", True),
        (302, b"", True),
        (401, b'{"ok": false}', True),
        (503, b'{"ok": false}', True),
        (400, b'{"ok": false, "error": {"code": "BAD_REQUEST", "message": "hunter2"}}', False),
        (413, b"", False),
    ],
)
async def test_a_response_without_ok_is_a_failure(status: int, body: bytes, *, retryable: bool) -> None:
    """A 200 with `ok: false` is one too. Only a batch that the service can never accept is not retryable."""
    with pytest.raises(LogsError, match=f"responded with {status}") as caught:
        await send_to(http(status, body))

    assert caught.value.retryable is retryable
    assert "hunter2" not in str(caught.value)


async def test_a_secret_across_the_cut_shows_no_part_of_itself() -> None:
    """The sentence has at most 200 characters of the response; they are masked before they are cut."""
    with pytest.raises(LogsError) as caught:
        await send_to(http(400, b"." * 196 + b"hunter2"))

    assert str(caught.value).endswith("responded with 400: " + "." * 196 + "[red")


async def test_a_missing_response_is_retryable() -> None:
    """The request to a service that hangs ends after its timeout."""

    async def hang(_request: Request, _writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    async with serving(hang) as server, aclosing(HttpFetch()) as fetch:
        with pytest.raises(LogsError, match="no complete response") as caught:
            await WorkerLogs(fetch, server.url, "k", Redactor()).log_batch("app", [ENTRY])

    assert caught.value.retryable
