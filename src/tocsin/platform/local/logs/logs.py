"""The `Logger` binding on structlog: one JSON object per line, on the given stream and nowhere else.

    {"at": 1778700600000, "level": "INFO", "event": "run.recorded", "task": "sweep"}

`tee` gets the same entry, already redacted, for a log service. The stream has every line, no matter what the
service does.
"""

import json
from collections.abc import Callable, MutableMapping
from contextlib import suppress
from typing import Any, Protocol, TextIO, cast

import structlog

from tocsin.bindings import JSON, Clock, Level, LogEntry
from tocsin.platform.shared.log_line import RANKS, Levels, renamed
from tocsin.platform.shared.redaction import Redactor


class LineStream(Protocol):
    """Where lines go: a text stream, or a `LogWriter`."""

    def write(self, text: str, /) -> object: ...
    def flush(self) -> None: ...


class LineLogger(Levels, structlog.BoundLoggerBase):
    """The `Logger` binding. Made by `open_logger`."""

    def bind(self, /, **fields: JSON) -> "LineLogger":
        """A logger that adds these fields to each of its lines."""
        bound = super().bind(**renamed(fields))
        assert isinstance(bound, LineLogger)
        return bound

    def _line(self, level: Level, event: str, fields: dict[str, JSON]) -> None:
        # A closed stream (a broken pipe) must not stop the code that logs.
        with suppress(OSError, ValueError):
            self._proxy_to_logger("msg", event, level=level, **renamed(fields))


def open_logger(
    stream: LineStream,
    clock: Clock,
    redact: Redactor,
    *,
    level_min: Level = "INFO",
    tee: Callable[[LogEntry], None] | None = None,
) -> LineLogger:
    """A logger that writes to this stream and passes each entry, already redacted, to `tee`."""

    def drop_below(_logger: object, _name: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        if RANKS[line["level"]] < RANKS[level_min]:
            raise structlog.DropEvent
        return line

    def render(_logger: object, _name: str, line: MutableMapping[str, Any]) -> str:
        level: Level = line.pop("level")
        event = redact.text(line.pop("event"))
        fields = redact.fields(line)
        at = clock.now()
        if tee is not None:
            tee(LogEntry(level, event, {"at": at, **fields}))
        return json.dumps({"at": at, "level": level, "event": event, **fields})

    return LineLogger(
        structlog.WriteLogger(cast("TextIO", stream)), processors=[drop_below, render], context={}
    )
