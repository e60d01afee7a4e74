"""What is measured: durations, counted by how long they were."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field

from tocsin.shapes.base import Shape
from tocsin.shapes.scheduler import Status


@dataclass(slots=True)
class Histogram(Shape):
    """How many durations were at most as long as each bound (seconds), and how many were longer, in the last count.

    Unlike other shapes it changes: counting must cost next to nothing.
    """

    bounds: list[float]
    counts: list[int] = field(default_factory=list)
    sum: float = 0.0

    def __post_init__(self) -> None:
        self.counts = self.counts or [0] * (len(self.bounds) + 1)

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(self.bounds, seconds)] += 1
        self.sum += seconds

    def has(self, bounds: Sequence[float]) -> bool:
        """Whether it counts by these bounds; one that another release stored may not."""
        return self.bounds == list(bounds) and len(self.counts) == len(bounds) + 1


@dataclass(frozen=True, slots=True)
class Measures(Shape):
    """What the scheduler measured since its first start.

    `run_seconds` are durations of runs by task, `call_seconds` of calls by upstream and class of answer,
    `alarm_lateness` is how late the alarm rang.
    """

    run_seconds: dict[str, Histogram]
    call_seconds: dict[str, dict[str, Histogram]]
    alarm_lateness: Histogram


@dataclass(frozen=True, slots=True)
class MeasuredStatus(Shape):
    """The status and the measures of one instant, for one call to the object."""

    status: Status
    measures: Measures
