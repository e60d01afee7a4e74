"""A budget as the object stores it. Times are wall-clock: a monotonic clock means nothing to another process."""

from dataclasses import dataclass

from tocsin.shapes.base import Shape
from tocsin.shapes.scheduler import QuotaStatus


@dataclass(frozen=True, slots=True)
class StoredMonth(Shape):
    """The month's counts and its two token buckets, as of `seen_at`."""

    offset_ms: int
    spent: int
    used_by_others: int
    task_tokens: float
    request_tokens: float
    reported: int | None
    seen_at: int
    granted_at: int | None
    rolled_over_at: int | None
    past: dict[str, int]  # our own calls of other months, by label


@dataclass(frozen=True, slots=True)
class StoredBudget(Shape):
    """One upstream's budget. `second` and `minute` are buckets of `[number, tasks, requests, others]`."""

    plan: QuotaStatus
    limits: QuotaStatus
    month: StoredMonth
    second: list[list[int]]
    minute: list[list[int]]
    closed_until: int | None
    saved_at: int
    limited_in_a_row: int
    low_in: str | None

    def __post_init__(self) -> None:
        if any(len(bucket) != 4 for bucket in (*self.second, *self.minute)):
            raise ValueError("a bucket has four numbers")
