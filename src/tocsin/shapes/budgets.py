"""The budgets of the upstreams, as the status shows them."""

from dataclasses import dataclass

from tocsin.shapes.base import Shape


@dataclass(frozen=True, slots=True)
class QuotaStatus(Shape):
    """Calls per window, null for a window without a limit, and the share that is reserved for requests."""

    second: int | None
    minute: int | None
    month: int | None
    request_share: float
    is_cap: bool = False  # never exceeded, whatever the upstream reports


@dataclass(frozen=True, slots=True)
class SpentCalls(Shape):
    """Calls in the current windows. `month` includes calls that others made with the same key."""

    second: int
    minute: int
    month: int
    month_by_others: int


@dataclass(frozen=True, slots=True)
class CallsLeft(Shape):
    """Calls left in the month; null without a monthly limit."""

    month: int | None


@dataclass(frozen=True, slots=True)
class ReportedLimits(Shape):
    """The limits in the upstream's newest headers; null for those that they did not report."""

    minute_remaining: int | None
    month_remaining: int | None
    anonymous: bool | None


@dataclass(frozen=True, slots=True)
class WaitingCallers(Shape):
    """The number of callers that are waiting for a permit, by lane."""

    task: int
    request: int


@dataclass(frozen=True, slots=True)
class BudgetForecast(Shape):
    """How the month will end at the call rate of about the last day.

    `per_day` includes our own calls since `since`, and the calls of others in the same month. `used_at_end` is the
    expected use at the end of the month. `runs_out_at` is when the limit would be reached; null if it is not.
    """

    since: int
    per_day: int
    used_at_end: int
    runs_out_at: int | None


@dataclass(frozen=True, slots=True)
class BudgetStatus(Shape):
    """One upstream's budget: `plan` as configured, `limits` as corrected by headers.

    `forecast` is null until calls have been counted for an hour: a first burst does not predict a month.
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
