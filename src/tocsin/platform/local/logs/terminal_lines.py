"""Log lines for people, which a terminal shows instead of JSON.

Successful runs share one line at the bottom, which is rewritten each time, so that the important lines stay visible:
those of the start, warnings and errors.
"""

import json
import shutil
from collections.abc import Callable
from datetime import datetime

from tocsin.bindings import JSON
from tocsin.platform.local.logs.logs import LineStream

COLOURS = {"WARN": "\x1b[33m", "ERROR": "\x1b[31m"}
PLAIN, DIM, CLEAR = "\x1b[0m", "\x1b[2m", "\r\x1b[2K"
ROUTINE = {"run.started", "run.ended", "prices.refreshed"}
LEFT_OUT = {"at", "level", "event", "run", "trigger"}


def _columns() -> int:
    return shutil.get_terminal_size().columns


class TerminalLines:
    """A stream for `open_logger` over another one: JSON lines in, lines for people out."""

    def __init__(self, stream: LineStream, columns: Callable[[], int] = _columns) -> None:
        self._stream = stream
        self._columns = columns
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
        elif _is_routine(line):
            self._note(line)
        else:
            self._print(self._shown_line(line))

    def flush(self) -> None:
        self._stream.flush()

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
        fields = " ".join(
            f"{name}={_value(value)}"
            for name, value in line.items()
            if name not in LEFT_OUT and value is not None
        )
        text = _cut(f"{_time(line)} {level:5} {line.get('event')} {fields}", self._columns())
        return f"{COLOURS[level]}{text}{PLAIN}" if level in COLOURS else text


def _is_routine(line: dict[str, JSON]) -> bool:
    return line.get("level") == "INFO" and line.get("event") in ROUTINE


def _time(line: dict[str, JSON]) -> str:
    at = line.get("at")
    return datetime.fromtimestamp(at / 1000).astimezone().strftime("%H:%M:%S") if isinstance(at, int) else ""


def _value(value: JSON) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return "".join(char if char.isprintable() else "?" for char in text)


def _cut(text: str, columns: int) -> str:
    return text if len(text) < columns else f"{text[: max(1, columns - 2)]}…"
