"""Keeps some of the log lines of each run, so that an operator can read them later. All lines still go to the log.

A run keeps its first lines and its newest ones: the first show how it began, the newest why it ended. They are
stored when the run ends, so an interrupted run has none.
"""

import json
from collections import deque
from collections.abc import Callable, Mapping

from tocsin.bindings import JSON, Clock, Level, Logger, write_log
from tocsin.shapes.run_detail import RunLine, RunLines

FIRST_MAX = 10
NEWEST_MAX = 20
TEXT_MAX = 300  # characters of a line's fields


class KeptLines:
    """Collects the lines of a run."""

    def __init__(self, clock: Clock, mask: Callable[[str], str]) -> None:
        self._clock = clock
        self._mask = mask
        self._first: list[RunLine] = []
        self._newest: deque[RunLine] = deque(maxlen=NEWEST_MAX)
        self._count = 0

    def add(self, level: Level, event: str, fields: Mapping[str, JSON]) -> None:
        text = self._mask(_text(fields))
        if len(text) > TEXT_MAX:
            text = f"{text[: TEXT_MAX - 1]}…"
        line = RunLine(self._clock.now(), level, event, text)
        self._count += 1
        if len(self._first) < FIRST_MAX:
            self._first.append(line)
        else:
            self._newest.append(line)

    def lines(self) -> RunLines:
        kept = [*self._first, *self._newest]
        return RunLines(kept, self._count - len(kept))


class RunLogger:
    """A `Logger` that also keeps the lines it writes, except `debug` lines."""

    def __init__(self, logger: Logger, kept: KeptLines, bound: Mapping[str, JSON] | None = None) -> None:
        self._logger = logger
        self._kept = kept
        self._bound = dict(bound or {})

    def debug(self, event: str, /, **fields: JSON) -> None:
        self._logger.debug(event, **fields)

    def info(self, event: str, /, **fields: JSON) -> None:
        self._write("INFO", event, fields)

    def warn(self, event: str, /, **fields: JSON) -> None:
        self._write("WARN", event, fields)

    def error(self, event: str, /, **fields: JSON) -> None:
        self._write("ERROR", event, fields)

    def bind(self, **fields: JSON) -> Logger:
        return RunLogger(self._logger.bind(**fields), self._kept, {**self._bound, **fields})

    def _write(self, level: Level, event: str, fields: Mapping[str, JSON]) -> None:
        write_log(self._logger, level, event, fields)
        self._kept.add(level, event, {**self._bound, **fields})


def _text(fields: Mapping[str, JSON]) -> str:
    return " ".join(f"{name}={_value(value)}" for name, value in fields.items())


def _value(value: JSON) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
