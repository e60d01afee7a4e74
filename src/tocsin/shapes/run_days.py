"""The runs of a day, added up."""

from dataclasses import dataclass, field

from tocsin.shapes.base import Shape


@dataclass(frozen=True, slots=True)
class TaskTotals(Shape):
    """One task's runs of a day. `items` is the number of finished units of work, as the runs reported them."""

    runs: int = 0
    outcomes: dict[str, int] = field(default_factory=dict)
    calls: int = 0
    items: int = 0
    duration_ms: int = 0
    duration_max_ms: int = 0


@dataclass(frozen=True, slots=True)
class DayTotals(Shape):
    """A day in UTC, such as 2026-11-16; a run belongs to the day on which it started."""

    day: str
    tasks: dict[str, TaskTotals] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DayList(Shape):
    """Days, newest first. `name` is the scheduler instance."""

    name: str | None
    days: list[DayTotals]
