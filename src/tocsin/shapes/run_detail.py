"""One run with its log lines."""

from dataclasses import dataclass, field

from tocsin.bindings import Level
from tocsin.shapes.base import Shape
from tocsin.shapes.scheduler import Progress, RunRecord


@dataclass(frozen=True, slots=True)
class RunLine(Shape):
    """A log line of a run: its event and its fields as text, without secrets."""

    at: int
    level: Level
    event: str
    text: str


@dataclass(frozen=True, slots=True)
class RunLines(Shape):
    """The first and the last lines of a run; `left_out` is the number of lines in between."""

    lines: list[RunLine] = field(default_factory=list)
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class RunDetail(Shape):
    """A run and its lines. `progress` is null unless it is running. `name` is the scheduler instance."""

    name: str | None
    run: RunRecord
    progress: Progress | None
    log: RunLines
