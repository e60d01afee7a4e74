"""Logs of one machine: one JSON object per line on a stream, lines for people on a terminal, batches to a log service.

    {"at": 1778700600000, "level": "INFO", "event": "run.recorded", "task": "sweep"}

The stream has every line, no matter what the log service does. A thread writes them: a pipe whose reader hangs blocks
`write`, which on the event loop would stop alarms, requests and signals. Meanwhile lines collect in a queue. When it is
full, new lines are dropped until half of it is written; then `logs.lines_dropped` takes their place.

Emits `library.reported` for what libraries report through Python's `logging`, which would otherwise write plain text to
stderr.
"""

import json
import logging
import os
import select
import shutil
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from threading import Condition, Thread
from typing import Protocol, TextIO

from holdfast.types import JSON, Clock, Level, Logger
from tocsin.errors import FetchError, LogsError
from tocsin.fetch import Fetch
from tocsin.logs import JsonLogger, LogEntry, Redactor

QUEUE_BYTES_MAX = 4 * 1024 * 1024
TEXT_MAX = 4_000  # of a library's report
TIMEOUT_S = 5.0
RESPONSE_BYTES_MAX = 1024 * 1024

COLORS = {"WARN": "\x1b[33m", "ERROR": "\x1b[31m"}
PLAIN, DIM, CLEAR = "\x1b[0m", "\x1b[2m", "\r\x1b[2K"
ROUTINE = {"run.started", "run.ended", "prices.refreshed"}
LEFT_OUT = {"at", "level", "event", "run", "trigger"}
FIRST = ("status", "reason", "error")  # on a line of a terminal

_REFUSALS = frozenset((400, 413, 422))  # the batch itself is wrong; the same batch would fail again


class LineStream(Protocol):
    """Where lines go: a `LogWriter`, or a text stream that writes each line at once, as stderr does."""

    def write(self, text: str, /) -> object: ...


def open_logger(
    stream: LineStream,
    clock: Clock,
    redact: Redactor,
    *,
    level_min: Level = "INFO",
    tee: Callable[[LogEntry], None] | None = None,
) -> JsonLogger:
    """A logger that writes to this stream. A stream that is gone does not stop the code that logs."""

    def write(_level: Level, line: str) -> None:
        with suppress(OSError, ValueError):  # a broken pipe, a closed file
            stream.write(f"{line}\n")

    return JsonLogger(write, clock, redact, level_min=level_min, tee=tee)


class LogWriter:
    """A stream for `open_logger`: `write` never waits and never raises. Lines keep their order."""

    def __init__(self, stream: TextIO, clock: Clock, *, bytes_max: int = QUEUE_BYTES_MAX) -> None:
        # Not through the stream's own buffer: a thread waiting in it would block the end of the process.
        self._fd = stream.fileno()
        self._clock = clock
        self._bytes_max = bytes_max
        self.dropped = 0  # lines, since the start
        self._changed = Condition()
        self._lines: deque[bytes] = deque()
        self._bytes = 0  # in `_lines`
        self._full = False
        self._skipped = 0  # lines that did not fit since the last notice
        self._failed = 0  # lines that could not be written since the last notice; only the thread uses it
        self._rest = b""  # of a partly written line, as on a full disk; only the thread uses it
        self._closing = False
        self._thread = Thread(target=self._run, name="tocsin-log", daemon=True)
        self._thread.start()

    def write(self, text: str) -> None:
        line = text.encode()
        with self._changed:
            self._full = self._bytes + len(line) > (self._bytes_max // 2 if self._full else self._bytes_max)
            if self._full:
                self._skipped += 1
                self.dropped += 1
                return
            if self._skipped:
                self._append(self._take_notice())
            self._append(line)
            self._changed.notify()

    def close(self, wait_s: float) -> None:
        """Write the remaining lines, for at most this long."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(wait_s)

    def _append(self, line: bytes) -> None:
        self._lines.append(line)
        self._bytes += len(line)

    def _take_notice(self) -> bytes:
        count, self._skipped = self._skipped, 0
        return self._notice(count)

    def _notice(self, count: int) -> bytes:
        line = {"at": self._clock.now(), "level": "WARN", "event": "logs.lines_dropped", "count": count}
        return json.dumps({**line, "message": f"{count} log lines were dropped"}).encode() + b"\n"

    # In the thread

    def _run(self) -> None:
        while (line := self._next()) is not None:
            if not self._put(line):
                self._failed += 1
                self.dropped += 1
            elif self._failed and self._put(self._notice(self._failed)):
                self._failed = 0

    def _next(self) -> bytes | None:
        """The next line, as soon as there is one; None at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._lines or self._skipped or self._closing)
            if self._lines:
                line = self._lines.popleft()
                self._bytes -= len(line)
                return line
            return self._take_notice() if self._skipped else None

    def _put(self, line: bytes) -> bool:
        """Write a line. False if nothing of it was written; the rest of a partly written line comes before the next."""
        pending = self._rest + line
        while pending:
            try:
                pending = pending[os.write(self._fd, pending) :]
            except BlockingIOError:  # somebody has made the pipe non-blocking
                select.select([], [self._fd], [])
            except OSError:
                untouched = len(pending) >= len(line)
                self._rest = pending[: -len(line)] if untouched else pending
                return not untouched
        self._rest = b""
        return True


class TerminalLines:
    """A stream for `open_logger` over another one: JSON lines in, lines for people out.

    Successful runs share one line at the bottom, which is rewritten each time, so that the important lines stay
    visible: those of the start, warnings and errors.
    """

    def __init__(self, stream: LineStream, columns: Callable[[], int] | None = None) -> None:
        self._stream = stream
        self._columns = columns or (lambda: shutil.get_terminal_size().columns)
        self._outcomes: dict[str, str] = {}  # how each task's last run ended
        self._shown = ""  # the line at the bottom

    def write(self, text: str, /) -> None:
        """Write a line of JSON, or any other text, which is shown unchanged."""
        try:
            line = json.loads(text)
        except ValueError:
            line = None
        if not isinstance(line, dict):
            self._print(text.rstrip("\n"))
        elif line.get("level") == "INFO" and line.get("event") in ROUTINE:
            self._note(line)
        else:
            self._print(self._shown_line(line))

    def _print(self, text: str) -> None:
        """Print a permanent line above the one at the bottom."""
        self._stream.write(f"{CLEAR}{text}\n{self._shown}")

    def _note(self, line: dict[str, JSON]) -> None:
        """Rewrite the line at the bottom."""
        if line["event"] == "run.ended":
            self._outcomes[str(line.get("task"))] = f"{line.get('outcome')} in {line.get('durationMs')} ms"
            tasks = " · ".join(f"{task} {outcome}" for task, outcome in sorted(self._outcomes.items()))
            self._shown = f"{DIM}{_cut(f'{_time(line)} {tasks}', self._columns())}{PLAIN}"
            self._stream.write(f"{CLEAR}{self._shown}")

    def _shown_line(self, line: dict[str, JSON]) -> str:
        level = str(line.get("level"))
        in_order = sorted(line.items(), key=lambda field: field[0] not in FIRST)  # the rest may be cut off
        fields = " ".join(
            f"{name}={_value(value)}" for name, value in in_order if name not in LEFT_OUT and value is not None
        )
        text = _cut(f"{_time(line)} {level:5} {line.get('event')} {fields}", self._columns())
        return f"{COLORS[level]}{text}{PLAIN}" if level in COLORS else text


def _time(line: dict[str, JSON]) -> str:
    at = line.get("at")
    return datetime.fromtimestamp(at / 1000).astimezone().strftime("%H:%M:%S") if isinstance(at, int) else ""


def _value(value: JSON) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return "".join(char if char.isprintable() else "?" for char in text)


def _cut(text: str, columns: int) -> str:
    return text if len(text) < columns else f"{text[: max(1, columns - 2)]}…"


class _Handler(logging.Handler):
    def __init__(self, logger: Logger) -> None:
        super().__init__(logging.WARNING)
        self._logger = logger

    def emit(self, record: logging.LogRecord) -> None:
        fields: dict[str, JSON] = {"library": record.name, "message": _text(record).strip()[:TEXT_MAX]}
        if record.exc_info:
            fields["traceback"] = "".join(traceback.format_exception(*record.exc_info))[-TEXT_MAX:]
        write = self._logger.error if record.levelno >= logging.ERROR else self._logger.warning
        write("library.reported", **fields)


def _text(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:  # noqa: BLE001 - a mistake in a library's call must not become an error of its caller
        return str(record.msg)


@contextmanager
def library_logs(logger: Logger) -> Iterator[None]:
    """Within the block, warnings and errors of libraries are lines of this logger. Any thread may report."""
    handler, root = _Handler(logger), logging.getLogger()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)


class WorkerLogs:
    """The `Logs` binding over HTTP: sends one batch per call, or raises `LogsError`.

    The service responds with 200 even after a failure; only `ok` in the body shows it.
    """

    def __init__(self, fetch: Fetch, url: str, api_key: str, redact: Redactor) -> None:
        self._fetch = fetch
        self._url = f"{url.rstrip('/')}/logs"
        self._api_key = api_key
        self._redact = redact

    async def log_batch(self, app_id: str, entries: Sequence[LogEntry]) -> None:
        logs = [
            {"level": entry.level, "message": self._redact.text(entry.message), "context": self._redact(entry.context)}
            for entry in entries
        ]
        try:
            response = await self._fetch(
                self._url,
                method="POST",
                headers={"Content-Type": "application/json", "X-App-ID": app_id, "X-Api-Key": self._api_key},
                body=json.dumps({"logs": logs}).encode(),
                timeout_s=TIMEOUT_S,
                body_max=RESPONSE_BYTES_MAX,
            )
        except FetchError as error:
            raise LogsError(str(error), retryable=True) from error
        if not (response.status == 200 and _is_ok(response.body)):
            text = self._redact.text(response.body.decode(errors="replace"))[:200]
            raise LogsError(
                f"the log service responded with {response.status}: {text}", retryable=response.status not in _REFUSALS
            )


def _is_ok(body: bytes) -> bool:
    try:
        reply = json.loads(body)
    except ValueError:
        return False
    return isinstance(reply, dict) and reply.get("ok") is True
