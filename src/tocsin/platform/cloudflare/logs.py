"""Logs: every line on the console, and in batches to the worker-logs service where `LOGS` is bound.

The console has every line whatever the service does (`wrangler tail`, Workers Logs). A batch goes out a
second after its first line, in the background of the event that wrote it. One that fails is kept, up to a
bound, and goes with the next lines; its failure is a line on the console.
"""

import json
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from tocsin.bindings import JSON, Clock, Level, LogEntry, Logs
from tocsin.errors import LogsError
from tocsin.platform.cloudflare import javascript
from tocsin.platform.cloudflare.javascript import JsException
from tocsin.platform.cloudflare.subrequests import spend_on_store
from tocsin.platform.log_line import RANKS, renamed
from tocsin.platform.log_queue import BATCH_MAX, GATHER_S, QUEUE_MAX, LogQueue
from tocsin.platform.redaction import Redactor

_CONSOLE: dict[Level, str] = {"DEBUG": "debug", "INFO": "log", "WARN": "warn", "ERROR": "error"}


def is_logs_rpc(binding: Any) -> bool:
    """Whether a binding is a service that takes batches of log entries."""
    return javascript.kind(binding) not in {"missing", "text"} and callable(
        getattr(binding, "logBatch", None)
    )


class RpcLogs:
    """The `Logs` binding over RPC."""

    def __init__(self, binding: Any) -> None:
        self._js = binding

    async def log_batch(self, app_id: str, entries: Sequence[LogEntry]) -> None:
        batch = [
            {"level": entry.level, "message": entry.message, "context": dict(entry.context)}
            for entry in entries
        ]
        spend_on_store()
        try:
            await self._js.logBatch(app_id, javascript.from_json(batch))
        except JsException as error:
            raise LogsError(f"LOGS.logBatch: {error.message}", retryable=True) from None


class ConsoleLogger:
    """The `Logger`: one JSON object per line; `tee` gets each entry, already redacted."""

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

    def debug(self, event: str, /, **fields: JSON) -> None:
        self._line("DEBUG", event, fields)

    def info(self, event: str, /, **fields: JSON) -> None:
        self._line("INFO", event, fields)

    def warn(self, event: str, /, **fields: JSON) -> None:
        self._line("WARN", event, fields)

    def error(self, event: str, /, **fields: JSON) -> None:
        self._line("ERROR", event, fields)

    def bind(self, **fields: JSON) -> "ConsoleLogger":
        bound = {**self._bound, **renamed(fields)}
        return ConsoleLogger(self._clock, self._redact, self._level_min, self._tee, bound)

    def _line(self, level: Level, event: str, fields: dict[str, JSON]) -> None:
        if RANKS[level] < RANKS[self._level_min]:
            return
        said = self._redact.text(event)
        context = self._redact({**self._bound, **renamed(fields)})
        line = json.dumps({"at": self._clock.now(), "level": level, "event": said, **context})
        getattr(javascript.js.console, _CONSOLE[level])(line)
        if self._tee is not None:
            self._tee(LogEntry(level, said, context))


class LogShipper:
    """Carries entries to the service. `wait_until` keeps the event alive until they are gone."""

    def __init__(
        self,
        logs: Logs,
        app_id: str,
        clock: Clock,
        console: ConsoleLogger,
        wait_until: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        """`console` tells what happens here: it must not lead back to this shipper."""
        self._logs = logs
        self._app_id = app_id
        self._clock = clock
        self._console = console
        self._wait_until = wait_until
        self._queue = LogQueue(QUEUE_MAX)
        self._under_way = False

    def offer(self, entry: LogEntry) -> None:
        """Queue an entry. Returns at once, never raises."""
        self._queue.put(entry)
        if not self._under_way:
            self._under_way = True
            self._wait_until(self._ship())

    async def _ship(self) -> None:
        try:
            await self._clock.sleep(GATHER_S)
            while batch := self._queue.take(BATCH_MAX):
                try:
                    await self._logs.log_batch(self._app_id, [entry for _, entry in batch])
                except Exception as error:  # noqa: BLE001 - whatever it is, the console says so
                    self._queue.put_back(batch)
                    self._console.warn("logs.send_failed", waiting=len(self._queue), error=error)
                    return
        finally:
            self._under_way = False
