"""The budgets of the upstreams, as the status shows them."""

from dataclasses import dataclass

from tocsin.shapes.base import Shape


@dataclass(frozen=True, slots=True)
class QuotaStatus(Shape):
    """Calls per window, null where there is no such window, and the share that is kept for requests."""

    second: int | None
    minute: int | None
    month: int | None
    request_share: float
    is_cap: bool = False  # never more than this, whatever an upstream reports


@dataclass(frozen=True, slots=True)
class SpentCalls(Shape):
    """Calls in the current windows. `month` includes those that others made with the same key."""

    second: int
    minute: int
    month: int
    month_by_others: int


@dataclass(frozen=True, slots=True)
class CallsLeft(Shape):
    """Calls left of the month, null without a monthly limit."""

    month: int | None


@dataclass(frozen=True, slots=True)
class ReportedLimits(Shape):
    """What the upstream's newest headers reported; null where they said nothing."""

    minute_remaining: int | None
    month_remaining: int | None
    anonymous: bool | None


@dataclass(frozen=True, slots=True)
class WaitingCallers(Shape):
    """Callers that wait for a permit, by lane."""

    task: int
    request: int


@dataclass(frozen=True, slots=True)
class BudgetForecast(Shape):
    """How the month ends at the call rate of about the last day.

    `per_day` counts our own calls since `since`, and what others use of the same month. `used_at_end` is what would be
    used when the month ends. `runs_out_at` is when the limit would be reached; null when it is not.
    """

    since: int
    per_day: int
    used_at_end: int
    runs_out_at: int | None


@dataclass(frozen=True, slots=True)
class BudgetStatus(Shape):
    """One upstream's budget: `plan` as configured, `limits` as corrected by headers.

    `forecast` is null until calls were counted for an hour: a first burst says nothing about a month.
    """

    plan: QuotaStatus
    limits: QuotaStatus
    spent: SpentCalls
    left: CallsLeft
    reported: ReportedLimits
    month_ends_at: int
    closed_until: int | None
    in_flight: int
    waiting: WaitingCallers
    forecast: BudgetForecast | None = None
