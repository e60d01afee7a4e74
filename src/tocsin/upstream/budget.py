"""One upstream's budget: may this lane call now, and if not, when; and how often tasks can afford to run. Pure.

**Windows.** Second and minute slide, the month is paced (`windows.py`). A call is counted when its permit is granted,
before it is made, so it stays counted if the process dies in between. Retries count too.

**Lanes.** Tasks and requests spend the same budget. Of the calls of every second and minute, a share is reserved for
requests and half for tasks; each lane has its own token bucket for the month. Requests go first while they are within
their share; beyond it, calls go in order of arrival. So neither lane can starve the other.

**Time.** Times are wall-clock times. When the clock is set, windows, buckets and back-offs move with it; months follow
the clock. Between two processes this is not noticed: then a window may be wrong once, and a back-off within its bound.

**Forecast.** The rate is that of our own calls since a mark. A new mark is set every 12 hours, two are kept, and the
older one counts. It is 12 to 24 hours old once the service has run for that long; before that, it is at the first call.
After a day without calls the marks start again, so days on which the service did not run do not count.

**Storage.** A budget is stored as it is. Reading rejects values that Tocsin cannot have stored, because calculations
with them would fail later.

**Cadences.** All tasks of an upstream are stretched by the same factor, so none pays for another's demand.

`limiter.py` grants a budget's permits, and applies answers to it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, inf
from typing import NamedTuple

from holdfast.errors import UsageError
from holdfast.types import JSON
from tocsin.shape import Shape
from tocsin.text import utc_time
from tocsin.upstream.windows import (
    DAY_MS,
    HOUR_MS,
    MINUTE_MS,
    PROBE_MS,
    Lane,
    Month,
    SlidingWindow,
    check_plausible,
    lane_max,
    reserve_of,
)

CLOSED_MAX_MS = HOUR_MS
PROBE_RECHECK_MS = 1_000
MINUTES_A_DAY = 1_440
MARK_EVERY_MS = 12 * HOUR_MS
_SECOND = SlidingWindow(length_ms=1_000, bucket_ms=100)
_MINUTE = SlidingWindow(length_ms=60_000, bucket_ms=5_000)
MONTH_MS = 30.44 * DAY_MS
REQUEST_SHARE = 0.1  # without the look-ups of other programs


@dataclass(frozen=True, slots=True)
class Quota(Shape):
    """Calls per window, null for a window without a limit, and the share that is reserved for requests.

    `is_cap`: never exceeded, whatever the upstream reports. For a key that others use too.
    """

    second: int | None = None
    minute: int | None = None
    month: int | None = None
    request_share: float = REQUEST_SHARE
    is_cap: bool = False

    def __post_init__(self) -> None:
        for name in ("second", "minute", "month"):
            limit = getattr(self, name)
            if limit is not None and limit < 1:
                raise UsageError(f"A limit per {name} is 1 or more, or none at all; not {limit}.")
        if not 0 <= self.request_share <= 0.9:
            raise UsageError(f"The share kept for requests is 0 to 0.9, not {self.request_share}.")


@dataclass(frozen=True, slots=True)
class SpentCalls(Shape):
    """Calls in the current windows. `month` includes calls that others made with the same key."""

    second: int
    minute: int
    month: int
    month_by_others: int


@dataclass(frozen=True, slots=True)
class CallsLeft(Shape):
    """Calls left in the `month`, those kept for requests included, and `for_tasks`; null without a monthly limit."""

    month: int | None = None
    for_tasks: int | None = None


@dataclass(frozen=True, slots=True)
class ReportedLimits(Shape):
    """The limits in the upstream's newest headers; null for those that they did not report."""

    minute_remaining: int | None
    month_remaining: int | None
    anonymous: bool | None


@dataclass(frozen=True, slots=True)
class WaitingCallers(Shape):
    """The number of callers that are waiting for a permit: those of a `task`, and those of a visitor's `request`."""

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

    plan: Quota
    limits: Quota
    spent: SpentCalls
    left: CallsLeft
    reported: ReportedLimits
    month_ends_at: int
    closed_until: int | None
    in_flight: int
    waiting: WaitingCallers
    forecast: BudgetForecast | None = None


@dataclass(frozen=True, slots=True)
class WindowReading:
    """What one answer's headers report about one window; None for what they do not report."""

    limit: int | None = None
    remaining: int | None = None


NOT_REPORTED = WindowReading()


@dataclass(frozen=True, slots=True)
class LimitReading:
    """What one answer's headers report about our limits."""

    second: WindowReading = NOT_REPORTED
    minute: WindowReading = NOT_REPORTED
    month: WindowReading = NOT_REPORTED
    anonymous: bool | None = None  # the upstream treats us as a client without a key
    cost: int = 1  # how many calls the upstream counted


@dataclass(frozen=True, slots=True)
class Denial:
    """No permit now. `until` is the wall-clock time (unix ms) after `wait_ms` have passed.

    `by_budget`: our own budget denied it, not an upstream that asked us to slow down.
    """

    wait_ms: int
    until: int
    reason: str
    by_budget: bool = True


class RateMark(NamedTuple):
    """The number of calls since a time (unix ms)."""

    at: int
    calls: int


@dataclass(frozen=True, slots=True)
class CallRate(Shape):
    """The marks, the older one first."""

    marks: tuple[RateMark, ...] = ()

    def counted(self, now: int) -> "CallRate":
        """The rate with one more call."""
        newest = self.marks[-1].at if self.marks else None
        kept = self.marks
        if newest is None or not 0 <= now - newest <= DAY_MS:  # the first call, a long silence, or a clock set back
            kept = (RateMark(now, 0),)
        elif now - newest >= MARK_EVERY_MS:
            kept = (self.marks[-1], RateMark(now, 0))
        return CallRate(tuple(RateMark(at, calls + 1) for at, calls in kept))

    def forecast(self, month: Month, limit: int | None, now: int) -> BudgetForecast | None:
        """How the month will end; None until calls have been counted for an hour."""
        if not self.marks or now - self.marks[0].at < HOUR_MS:
            return None
        since, calls = self.marks[0]
        # The upstream counts the calls of others from the start of the month.
        by_others = month.used_by_others / max(DAY_MS, now - month.span.starts_at)
        per_ms = calls / (now - since) + by_others
        used, left_ms = month.spent + month.used_by_others, max(0, month.span.ends_at - now)
        at_end = used + round(per_ms * left_ms)
        runs_out_at = None
        if limit is not None and at_end > limit:
            runs_out_at = now + round(max(0, limit - used) / per_ms)
        return BudgetForecast(since, round(per_ms * DAY_MS), at_end, runs_out_at)


_NOTHING_REPORTED = LimitReading()
_NO_CALLS = CallRate()


@dataclass(frozen=True, slots=True)
class Budget(Shape):
    """What was spent and what may be spent. Immutable: every change returns a new budget."""

    plan: Quota
    limits: Quota  # the plan, corrected by headers
    month: Month
    second: SlidingWindow = _SECOND
    minute: SlidingWindow = _MINUTE
    closed_until: int = 0
    limited_in_a_row: int = 0  # 429s
    in_flight: int = 0
    reported: LimitReading = _NOTHING_REPORTED
    low_in: str | None = None  # the month for which the low quota was reported
    contradicted: bool = False
    probing: bool = False  # one call is under way through the closed limiter
    call_rate: CallRate = _NO_CALLS

    @classmethod
    def begin(cls, plan: Quota, now: int) -> "Budget":
        return cls(plan, plan, Month.begin(now, plan.month or 0, plan.request_share))

    @classmethod
    def __pre_deserialize__(cls, stored: dict[str, JSON]) -> dict[str, JSON]:
        check_plausible(stored)
        return stored

    @classmethod
    def __post_deserialize__(cls, budget: "Budget") -> "Budget":
        for window, usual in ((budget.second, _SECOND), (budget.minute, _MINUTE)):
            if (window.length_ms, window.bucket_ms) != (usual.length_ms, usual.bucket_ms):
                raise ValueError("the windows are a second and a minute")
        return budget

    def continued(self, plan: Quota, now: int) -> "Budget":
        """The stored budget, for this process. A changed plan discards the corrected limits, never the counts."""
        return replace(
            self,
            plan=plan,
            limits=self.limits if self.plan == plan else plan,
            second=self.second.not_after(now),
            minute=self.minute.not_after(now),
            closed_until=min(self.closed_until, now + CLOSED_MAX_MS),
            in_flight=0,
            probing=False,
        )

    def moved(self, by_ms: int) -> "Budget":
        """The budget after the clock was set by this much."""
        return replace(
            self,
            month=self.month.moved(by_ms),
            second=self.second.moved(by_ms),
            minute=self.minute.moved(by_ms),
            closed_until=max(0, self.closed_until + by_ms),
        )

    def ask(self, lane: Lane, now: int, cost: int = 1) -> Denial | None:
        """Whether this lane may call now: None means yes; a denial states why not and when to ask again.

        `cost`: as how many calls the upstream counts it.
        """
        more = cost - 1
        wait_ms, reason = self._closed(now)
        by_budget = False
        for name, window in (("second", self.second), ("minute", self.minute)):
            limit = getattr(self.limits, name)
            if limit is None:
                continue
            of_lane = lane_max(lane, limit, self.limits.request_share)
            full_ms = window.wait_ms(lane, limit - more, of_lane - more, now)
            if full_ms > wait_ms:
                wait_ms, reason, by_budget = (full_ms, f"the limit of {limit} calls per {name} is reached", True)
        limit = self.limits.month
        if limit is not None:
            month = self.month_at(now).without(more)
            paced_ms = month.wait_ms(lane, limit, self.limits.request_share, probing=self.probes(month))
            if paced_ms > wait_ms:
                wait_ms, reason, by_budget = paced_ms, self._month_reason(month, limit), True
        return Denial(wait_ms, now + wait_ms, reason, by_budget) if wait_ms > 0 else None

    def may_probe(self, lane: Lane, now: int) -> bool:
        """Whether one call may go out although a 429 closed the limiter: the rest of the budget allows it."""
        if now >= self.closed_until or self.in_flight or self.probing:
            return False
        return replace(self, closed_until=0, limited_in_a_row=0).ask(lane, now) is None

    def granted(self, lane: Lane, now: int, cost: int = 1) -> "Budget":
        """Spend a call. Call this only after `ask` returned None."""
        by_task, by_request = cost * (lane is Lane.TASK), cost * (lane is Lane.REQUEST)
        month, call_rate = self.month_at(now), self.call_rate
        for _ in range(cost):
            month = month.spend(lane, self.limits.month or 0, self.limits.request_share)
            call_rate = call_rate.counted(now)
        return replace(
            self,
            second=self.second.plus(now, by_task, by_request),
            minute=self.minute.plus(now, by_task, by_request),
            month=month,
            in_flight=self.in_flight + 1,
            call_rate=call_rate,
        )

    def request_first(self, now: int) -> bool:
        """Whether requests are within their share, and therefore go before tasks that came earlier."""
        return all(
            window.counts(now).requests < reserve_of(limit, self.limits.request_share)
            for window, limit in ((self.second, self.limits.second), (self.minute, self.limits.minute))
            if limit is not None
        )

    def month_at(self, now: int) -> Month:
        return self.month.at(now, self.limits.month or 0, self.limits.request_share)

    def probes(self, month: Month) -> bool:
        """Whether to keep probing a month with no calls left: others used it up, not our own calls."""
        return self.plan.month is None or month.spent < self.plan.month

    def calls_left(self, lane: Lane, now: int) -> float:
        """How many calls this lane could make in a row at the month's pace; without a monthly limit, in a day."""
        limits = self.limits
        if limits.month is not None:
            return self.month_at(now).tokens(lane, limits.month, limits.request_share)
        if limits.minute is None:
            return inf
        return reserve_of(limits.minute, limits.request_share) * MINUTES_A_DAY

    def _closed(self, now: int) -> tuple[int, str]:
        if self.probing:
            return PROBE_RECHECK_MS, "after a 429, one call at a time"
        if now < self.closed_until:
            return self.closed_until - now, "calls wait after a 429"
        if self.limited_in_a_row and self.in_flight:
            return PROBE_RECHECK_MS, "after a 429, one call at a time"
        return 0, ""

    def _month_reason(self, month: Month, limit: int) -> str:
        until = utc_time(month.span.ends_at)
        calls_left = month.calls_left(limit)
        if calls_left > 0:
            return f"paced: {calls_left} of {limit} calls are left until {until}"
        return f"all {limit} calls of the month until {until} are used, {month.used_by_others} of them by others"

    def status(self, now: int, waiting: WaitingCallers) -> BudgetStatus:
        month, limit = self.month_at(now), self.limits.month
        return BudgetStatus(
            plan=self.plan,
            limits=self.limits,
            spent=SpentCalls(
                second=sum(self.second.counts(now)),
                minute=sum(self.minute.counts(now)),
                month=month.spent + month.used_by_others,
                month_by_others=month.used_by_others,
            ),
            left=CallsLeft()
            if limit is None
            else CallsLeft(month.calls_left(limit), int(month.for_tasks(limit, self.limits.request_share))),
            reported=ReportedLimits(
                minute_remaining=self.reported.minute.remaining,
                month_remaining=self.reported.month.remaining,
                anonymous=self.reported.anonymous,
            ),
            month_ends_at=month.span.ends_at,
            closed_until=self.closed_until if self.closed_until > now else None,
            in_flight=self.in_flight,
            waiting=waiting,
            forecast=self.call_rate.forecast(month, limit, now),
        )


@dataclass(frozen=True, slots=True)
class Demand:
    """A task's demand: a run every `cadence_ms`, with this many calls on average."""

    cadence_ms: int
    calls_per_run: float

    @property
    def calls_per_ms(self) -> float:
        return self.calls_per_run / self.cadence_ms


@dataclass(frozen=True, slots=True)
class Cadence:
    """A task's effective cadence, and the reason as a sentence."""

    effective_ms: int
    reason: str


def usual_calls(estimate: float, most: float | None, recent: Sequence[int]) -> float:
    """Calls per run: the task's estimate, or, if `most` is given, the average of its newest runs.

    The most expensive run is left out: one long run after a start or a change does not predict the next ones.
    """
    if most is None or not recent:
        return estimate
    usual: Sequence[float] = sorted(recent)[:-1] or [estimate]
    return min(most, max(estimate, sum(usual) / len(usual)))


def cadences(budget: Budget, demands: Mapping[str, Demand], now: int) -> dict[str, Cadence]:
    """The cadence of every task of this upstream, for the rest of the month."""
    wanted = sum(demand.calls_per_ms for demand in demands.values())
    factor, reason = 1.0, "as configured: the plan allows it"
    minute = budget.limits.minute
    if minute is not None:
        per_minute = lane_max(Lane.TASK, minute, budget.limits.request_share)
        if wanted * MINUTE_MS > per_minute:
            factor = wanted * MINUTE_MS / per_minute
            reason = f"stretched: tasks may make {per_minute} calls a minute"
    month_limit = budget.limits.month
    to_rollover_ms: int | None = None
    if month_limit is not None:
        month = budget.month.at(now, month_limit, budget.limits.request_share)
        to_rollover_ms = max(1, month.span.ends_at - now)
        left = month.for_tasks(month_limit, budget.limits.request_share)
        if wanted * to_rollover_ms > left * factor:
            factor = wanted * to_rollover_ms / max(left, 1e-9)
            reason = (
                f"stretched: tasks may still use {int(left):,} of {month_limit:,} calls,"
                f" for {to_rollover_ms / DAY_MS:.1f} days"
            )
        if month.calls_left(month_limit) == 0 and budget.probes(month):
            # Somebody must make the call that shows whether the upstream allows calls again.
            to_rollover_ms = min(to_rollover_ms, PROBE_MS)
    return {name: _stretched(demand, factor, reason, to_rollover_ms) for name, demand in demands.items()}


def overdraft(plan: Quota, demands: Mapping[str, Demand]) -> str | None:
    """A sentence if the tasks need more calls than the plan has without those for look-ups; None if they fit."""
    wanted = sum(demand.calls_per_ms for demand in demands.values())
    of_lookups = max(0.0, plan.request_share - REQUEST_SHARE)
    month = None if plan.month is None else int(plan.month * (1 - of_lookups))
    for limit, window, length_ms in ((plan.minute, "minute", MINUTE_MS), (month, "month", MONTH_MS)):
        if limit is not None and wanted * length_ms > limit:
            names = " and ".join(sorted(demands))
            return (
                f"{names} would make {ceil(wanted * length_ms)} calls per {window}, the plan has {limit}:"
                " they will run less often; choose longer cadences or a larger plan"
            )
    return None


def _stretched(demand: Demand, factor: float, reason: str, to_rollover_ms: int | None) -> Cadence:
    effective_ms = ceil(demand.cadence_ms * factor)
    if to_rollover_ms is not None and effective_ms > to_rollover_ms:
        effective_ms = max(demand.cadence_ms, to_rollover_ms)  # by then calls may be available again
    return Cadence(effective_ms, reason)
