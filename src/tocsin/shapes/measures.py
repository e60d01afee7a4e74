"""Measurements: histograms of durations."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field

from tocsin.shapes.base import Shape
from tocsin.shapes.scheduler import Status


@dataclass(slots=True)
class Histogram(Shape):
    """The number of durations up to each bound (seconds); the last count has the longer ones.

    Unlike other shapes it is mutable, because counting must be cheap.
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
        """Whether it uses these bounds; a histogram that another release stored may not."""
        return self.bounds == list(bounds) and len(self.counts) == len(bounds) + 1


@dataclass(frozen=True, slots=True)
class Measures(Shape):
    """What the scheduler has measured since its first start.

    `run_seconds` has the durations of runs by task, `call_seconds` those of calls by upstream and class of answer,
    `alarm_lateness` how late the alarm rang.
    """

    run_seconds: dict[str, Histogram]
    call_seconds: dict[str, dict[str, Histogram]]
    alarm_lateness: Histogram


@dataclass(frozen=True, slots=True)
class MeasuredStatus(Shape):
    """The status and the measures of one instant, from one call to the object."""

    status: Status
    measures: Measures
