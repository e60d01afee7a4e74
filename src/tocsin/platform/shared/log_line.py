"""The form of a log line on both platforms: `{"at": …, "level": …, "event": …, <fields>}`."""

from abc import ABC, abstractmethod

from tocsin.bindings import JSON, Level

RANKS: dict[Level, int] = {"DEBUG": 0, "INFO": 1, "WARN": 2, "ERROR": 3}

_TAKEN = frozenset(
    ("at", "level", "event", "method_name", "self")
)  # names that a line or structlog uses itself


def renamed(fields: dict[str, JSON]) -> dict[str, JSON]:
    """The fields, with `_` added to names that a line uses itself."""
    return {f"{name}_" if name in _TAKEN else name: value for name, value in fields.items()}


class Levels(ABC):
    """A `Logger` with its four levels; a subclass writes the line."""

    def debug(self, event: str, /, **fields: JSON) -> None:
        self._line("DEBUG", event, fields)

    def info(self, event: str, /, **fields: JSON) -> None:
        self._line("INFO", event, fields)

    def warn(self, event: str, /, **fields: JSON) -> None:
        self._line("WARN", event, fields)

    def error(self, event: str, /, **fields: JSON) -> None:
        self._line("ERROR", event, fields)

    @abstractmethod
    def _line(self, level: Level, event: str, fields: dict[str, JSON]) -> None: ...
