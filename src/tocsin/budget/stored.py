"""A budget as the object stores it. Times are wall-clock; windows are monotonic and valid within one boot.

Reading rejects values that Tocsin cannot have stored, because calculations with them would fail later.
"""

from dataclasses import dataclass, field

from tocsin.shapes.base import Shape
from tocsin.shapes.budgets import QuotaStatus

NUMBER_MAX = 10**15
OFFSET_MAX_MS = 31 * 86_400_000


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

    @classmethod
    def __post_deserialize__(cls, month: "StoredMonth") -> "StoredMonth":
        _check_plausible(month.offset_ms, month.spent, month.used_by_others, month.seen_at)
        _check_plausible(month.granted_at or 0, month.task_tokens, month.request_tokens, *month.past.values())
        if month.offset_ms > OFFSET_MAX_MS:
            raise ValueError("a month begins at most 31 days after the calendar's")
        return month


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
    saved_monotonic_ms: int = 0
    boot_id: str = ""  # the boot in which the buckets' numbers and `saved_monotonic_ms` are valid
    call_rate: list[list[int]] = field(default_factory=list)  # marks: `[at, calls since]`

    @classmethod
    def __post_deserialize__(cls, budget: "StoredBudget") -> "StoredBudget":
        for bucket in (*budget.second, *budget.minute):
            if len(bucket) != 4:
                raise ValueError("a bucket has four numbers")
            _check_plausible(*bucket)
        for mark in budget.call_rate:
            if len(mark) != 2:
                raise ValueError("a mark has two numbers")
            _check_plausible(*mark)
        for quota in (budget.plan, budget.limits):
            for limit in (quota.second, quota.minute, quota.month):
                if limit is not None and not 1 <= limit <= NUMBER_MAX:
                    raise ValueError(f"{limit!r:.40} is not a limit")
        _check_plausible(budget.closed_until or 0, budget.saved_at, budget.limited_in_a_row)
        _check_plausible(budget.saved_monotonic_ms)
        return budget


def _check_plausible(*numbers: float) -> None:
    for number in numbers:
        if not 0 <= number <= NUMBER_MAX:
            raise ValueError(f"{number!r:.40} is not a count or a time")
