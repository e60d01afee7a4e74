"""The `Logger` binding on structlog: one JSON object per line, on the stream given and nowhere else.

    {"at": 1778700600000, "level": "INFO", "event": "run.recorded", "task": "sweep"}

`tee` hands the same entry, already redacted, to a log service. The stream gets every line either way, so it
is complete whatever the service does.
"""

import json
from collections.abc import Callable, MutableMapping
from contextlib import suppress
from typing import Any, TextIO

import structlog

from tocsin.bindings import JSON, Clock, Level, LogEntry
from tocsin.platform.shared.log_line import RANKS, Levels, renamed
from tocsin.platform.shared.redaction import Redactor


class LineLogger(Levels, structlog.BoundLoggerBase):
    """Writes lines. `bind` answers a logger that adds the fields given to each of its lines."""

    def bind(self, /, **fields: JSON) -> "LineLogger":
        bound = super().bind(**renamed(fields))
        assert isinstance(bound, LineLogger)
        return bound

    def _line(self, level: Level, event: str, fields: dict[str, JSON]) -> None:
        # A stream that is gone (a closed pipe) is no reason to stop the work that was logged.
        with suppress(OSError, ValueError):
            self._proxy_to_logger("msg", event, level=level, **renamed(fields))


def open_logger(
    stream: TextIO,
    clock: Clock,
    redact: Redactor,
    *,
    level_min: Level = "INFO",
    tee: Callable[[LogEntry], None] | None = None,
) -> LineLogger:
    """A logger that writes to this stream, and offers each entry to `tee`."""

    def drop_below(_logger: Any, _name: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        if RANKS[line["level"]] < RANKS[level_min]:
            raise structlog.DropEvent
        return line

    def render(_logger: Any, _name: str, line: MutableMapping[str, Any]) -> str:
        level: Level = line.pop("level")
        event = redact.text(line.pop("event"))
        fields = redact.fields(line)
        if tee is not None:
            tee(LogEntry(level, event, fields))
        return json.dumps({"at": clock.now(), "level": level, "event": event, **fields})

    return LineLogger(structlog.WriteLogger(stream), processors=[drop_below, render], context={})
