"""The logger: one JSON object per line, on the given stream, always without secrets."""

import io
import json
from typing import Any

import pytest

from holdfast.types import Logger
from holdfast_testing.virtual_time import START_MS, VirtualClock
from tocsin.local.logs import LineLogger, open_logger
from tocsin.logs import LogEntry, Redactor


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


async def test_a_line_has_time_level_event_and_fields() -> None:
    """Each level writes its line. A field of the line overrides a bound field."""
    stream = io.StringIO()
    logger: Logger = open_logger(stream, VirtualClock(), Redactor(), level_min="DEBUG")
    run = logger.bind(task="sweep", wallet=1)
    run.debug("run.started")
    run.info("wallet.scanned", wallet=2)
    run.warn("upstream.slow", took_ms=5)
    logger.error("run.failed", error=ValueError("why"))  # type: ignore[arg-type]  # made JSON on the way out

    assert lines(stream) == [
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

    assert [line["event"] for line in lines(stream)] == ["run.started"]
    assert [entry.message for entry in offered] == ["run.started"]


async def test_secrets_are_masked_in_the_stream_and_in_the_tee() -> None:
    """In bound fields, nested fields and the event itself."""
    stream = io.StringIO()
    offered: list[LogEntry] = []
    logger = open_logger(stream, VirtualClock(), Redactor(["hunter2"]), tee=offered.append)
    logger.bind(url="https://x/?key=hunter2").warn("upstream.said hunter2", headers={"x-api-key": ["hunter2"]})

    assert "hunter2" not in stream.getvalue()
    assert "hunter2" not in repr(offered)
    assert offered == [
        LogEntry(
            "WARN",
            "upstream.said [redacted]",
            {"at": 1778700600000, "url": "https://x/?key=[redacted]", "headers": {"x-api-key": ["[redacted]"]}},
        )
    ]


@pytest.mark.parametrize("name", ["at", "level", "event", "self", "method_name"])
async def test_a_field_cannot_take_the_place_of_the_lines_own(name: str) -> None:
    """A field with such a name is written under another name."""
    stream = io.StringIO()
    open_logger(stream, VirtualClock(), Redactor()).bind(**{name: 1}).info("run.started", **{name: 2})

    assert lines(stream) == [{"at": START_MS, "level": "INFO", "event": "run.started", f"{name}_": 2}]


async def test_a_line_stays_one_line() -> None:
    """Line ends, lone surrogates and other special characters in a field are escaped."""
    stream = io.StringIO()
    open_logger(stream, VirtualClock(), Redactor()).info("page.read", body="a\nb\r\u2028\ud800\0")

    assert stream.getvalue().count("\n") == 1
    assert stream.getvalue().isascii()
    assert lines(stream)[0]["body"] == "a\nb\r\u2028\ud800\0"


class ClosedPipe(io.StringIO):
    """A stream whose reader has closed it."""

    def write(self, _text: str) -> int:
        raise BrokenPipeError


@pytest.mark.parametrize("stream", [ClosedPipe(), io.StringIO()])
async def test_a_stream_that_is_gone_does_not_stop_the_work(stream: io.StringIO) -> None:
    """Logging never raises, and the log service still gets the entry."""
    offered: list[LogEntry] = []
    logger: LineLogger = open_logger(stream, VirtualClock(), Redactor(), tee=offered.append)
    if not isinstance(stream, ClosedPipe):
        stream.close()
    logger.info("run.started")

    assert [entry.message for entry in offered] == ["run.started"]
