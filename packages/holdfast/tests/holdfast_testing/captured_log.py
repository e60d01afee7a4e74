"""A `Logger` that keeps its lines."""

from dataclasses import dataclass, field
from typing import Any

from holdfast.types import JSON, Level, Levels


@dataclass(frozen=True, slots=True)
class Line:
    """One log line."""

    level: str
    event: str
    fields: dict[str, Any]  # a test knows what is in them


@dataclass
class CapturedLog(Levels):
    """Collects the lines of itself and of everything bound from it."""

    lines: list[Line] = field(default_factory=list)

    def of(self, event: str) -> list[Line]:
        return [line for line in self.lines if line.event == event]

    def named(self, event: str) -> list[dict[str, Any]]:
        """The fields of all lines of this event."""
        return [line.fields for line in self.of(event)]

    def _line(self, level: Level, event: str, fields: dict[str, JSON]) -> None:
        self.lines.append(Line(level, event, fields))
