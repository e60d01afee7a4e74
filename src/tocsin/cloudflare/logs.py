"""Logs: every line on the console and, where `LOGS` is bound, in batches to the worker-logs service.

The console (`wrangler tail`, Workers Logs) has every line, no matter what the service does.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyodide.ffi import JsException

from holdfast.cloudflare import javascript
from holdfast.subrequests import spend_on_store
from holdfast.types import JSON, Clock, Level, Levels
from tocsin.errors import LogsError
from tocsin.logs import RANKS, LogEntry, Redactor, renamed

# JavaScript's classes for a value that cannot be sent or processed. The same batch would fail again.
_BATCH_ERRORS = frozenset(("DataCloneError", "RangeError", "TypeError"))
_CONSOLE: dict[Level, str] = {"DEBUG": "debug", "INFO": "log", "WARN": "warn", "ERROR": "error"}


def is_logs_rpc(binding: Any) -> bool:
    """Whether a binding is a service that takes batches of log entries."""
    return javascript.kind(binding) not in {"missing", "text"} and callable(getattr(binding, "logBatch", None))


class RpcLogs:
    """The `Logs` binding over RPC."""

    def __init__(self, binding: Any) -> None:
        self._js = binding

    async def log_batch(self, app_id: str, entries: Sequence[LogEntry]) -> None:
        batch: list[JSON] = [
            {"level": entry.level, "message": entry.message, "context": dict(entry.context)} for entry in entries
        ]
        spend_on_store()
        try:
            await self._js.logBatch(app_id, javascript.from_json(batch))
        except JsException as error:
            retryable = getattr(error, "name", None) not in _BATCH_ERRORS
            raise LogsError(f"LOGS.logBatch: {error.message}", retryable=retryable) from None


class ConsoleLogger(Levels):
    """The `Logger` binding: one JSON object per line on the console. Made by `open_logger`."""

    def __init__(
        self,
        clock: Clock,
        redact: Redactor,
        level_min: Level,
        tee: Callable[[LogEntry], None] | None,
        bound: Mapping[str, JSON] | None = None,
    ) -> None:
        self._clock = clock
        self._redact = redact
        self._level_min = level_min
        self._tee = tee
        self._bound = dict(bound or {})

    def bind(self, **fields: JSON) -> "ConsoleLogger":
        """A logger that adds these fields to each of its lines."""
        bound = {**self._bound, **renamed(fields)}
        return ConsoleLogger(self._clock, self._redact, self._level_min, self._tee, bound)

    def _line(self, level: Level, event: str, fields: dict[str, JSON]) -> None:
        if RANKS[level] < RANKS[self._level_min]:
            return
        message = self._redact.text(event)
        context = self._redact.fields({**self._bound, **renamed(fields)})
        at = self._clock.now()
        line = json.dumps({"at": at, "level": level, "event": message, **context})
        getattr(javascript.js.console, _CONSOLE[level])(line)
        if self._tee is not None:
            self._tee(LogEntry(level, message, {"at": at, **context}))


def open_logger(
    clock: Clock, redact: Redactor, *, level_min: Level = "INFO", tee: Callable[[LogEntry], None] | None = None
) -> ConsoleLogger:
    """A logger that writes to the console and passes each entry, already redacted, to `tee`."""
    return ConsoleLogger(clock, redact, level_min, tee)
