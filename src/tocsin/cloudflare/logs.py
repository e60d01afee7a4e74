"""Logs: every line on the console and, where `LOGS` is bound, in batches to the worker-logs service.

The console (`wrangler tail`, Workers Logs) has every line, no matter what the service does.
"""

from collections.abc import Callable, Sequence
from typing import Any

from pyodide.ffi import JsException

from holdfast.cloudflare import javascript
from holdfast.subrequests import spend_on_store
from holdfast.types import JSON, Clock, Level
from tocsin.errors import LogsError
from tocsin.logs import JsonLogger, LogEntry, Redactor

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


def open_logger(
    clock: Clock, redact: Redactor, *, level_min: Level = "INFO", tee: Callable[[LogEntry], None] | None = None
) -> JsonLogger:
    """A logger that writes to the console."""

    def write(level: Level, line: str) -> None:
        getattr(javascript.js.console, _CONSOLE[level])(line)

    return JsonLogger(write, clock, redact, level_min=level_min, tee=tee)
