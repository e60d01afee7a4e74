"""One upstream's budget: may this lane call now, and if not, when. Pure.

**Windows.** Second and minute slide, the month is paced (`windows.py`). A call is counted when its permit is granted,
before it is made, so it stays counted if the process dies in between. Retries count too.

**Lanes.** Tasks and requests spend the same budget. Of the calls of every second and minute, a share is reserved for
requests and half for tasks; each lane has its own token bucket for the month. Requests go first while they are within
their share; beyond it, calls go in order of arrival. So neither lane can starve the other.

**Time.** There are two clocks (`Moment`). Setting the wall clock affects months only. After a restart of the process,
windows and back-offs continue exactly. After a reboot the elapsed time is unknown: the calls of the second and the
minute count as just made, and a back-off continues for its remaining time by the wall clock.

**Forecast.** The rate is that of our own calls since a mark. A new mark is set every 12 hours, two are kept, and the
older one counts. It is 12 to 24 hours old once the service has run for that long; before that, it is at the first call.
After a day without calls the marks start again, so days on which the service did not run do not count.

**Storage.** In a stored budget, times are wall-clock; windows are monotonic and valid within one boot. Reading rejects
values that Tocsin cannot have stored, because calculations with them would fail later.

`limiter.py` grants a budget's permits, and applies answers to it.

Calculates how often tasks can afford to run, and why. Pure.

All tasks of an upstream are stretched by the same factor, so none pays for another's demand.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, inf
from typing import NamedTuple

from holdfast.errors import UsageError
from tocsin.shape import Shape
from tocsin.text import utc_time
from tocsin.upstream.windows import (
    DAY_MS,
    HOUR_MS,
    MINUTE_MS,
    NUMBER_MAX,
    PROBE_MS,
    Bucket,
    Lane,
    Moment,
    Month,
    SlidingWindow,
    StoredMonth,
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
    """Calls left in the `month`; null without a monthly limit."""

    month: int | None


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
            check_plausible(*bucket)
        for mark in budget.call_rate:
            if len(mark) != 2:
                raise ValueError("a mark has two numbers")
            check_plausible(*mark)
        for quota in (budget.plan, budget.limits):
            for limit in (quota.second, quota.minute, quota.month):
                if limit is not None and not 1 <= limit <= NUMBER_MAX:
                    raise ValueError(f"{limit!r:.40} is not a limit")
        check_plausible(budget.closed_until or 0, budget.saved_at, budget.limited_in_a_row)
        check_plausible(budget.saved_monotonic_ms)
        return budget


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


@dataclass(frozen=True, slots=True)
class Quota:
    """Calls per window; None for a window without a limit. `request_share` is reserved for requests.

    `is_cap`: never exceed the quota, whatever the upstream reports. For a key that others use too.
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

    def status(self) -> QuotaStatus:
        return QuotaStatus(self.second, self.minute, self.month, self.request_share, self.is_cap)


class RateMark(NamedTuple):
    """The number of calls since a time (unix ms)."""

    at: int
    calls: int


@dataclass(frozen=True, slots=True)
class CallRate:
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
class Budget:
    """What was spent and what may be spent. Immutable: every change returns a new budget."""

    plan: Quota
    limits: Quota  # the plan, corrected by headers
    month: Month
    second: SlidingWindow = _SECOND
    minute: SlidingWindow = _MINUTE
    closed_until: int = 0  # monotonic
    limited_in_a_row: int = 0  # 429s
    in_flight: int = 0
    reported: LimitReading = _NOTHING_REPORTED
    low_in: str | None = None  # the month for which the low quota was reported
    contradicted: bool = False
    probing: bool = False  # one call is under way through the closed limiter
    call_rate: CallRate = _NO_CALLS

    @classmethod
    def begin(cls, plan: Quota, moment: Moment) -> "Budget":
        return cls(plan, plan, Month.begin(moment, plan.month or 0, plan.request_share))

    def ask(self, lane: Lane, moment: Moment, cost: int = 1) -> Denial | None:
        """Whether this lane may call now: None means yes; a denial states why not and when to ask again.

        `cost`: as how many calls the upstream counts it.
        """
        more = cost - 1
        wait_ms, reason = self._closed(moment)
        by_budget = False
        for name, window in (("second", self.second), ("minute", self.minute)):
            limit = getattr(self.limits, name)
            if limit is None:
                continue
            of_lane = lane_max(lane, limit, self.limits.request_share)
            full_ms = window.wait_ms(lane, limit - more, of_lane - more, moment.monotonic_ms)
            if full_ms > wait_ms:
                wait_ms, reason, by_budget = (full_ms, f"the limit of {limit} calls per {name} is reached", True)
        limit = self.limits.month
        if limit is not None:
            month = self.month_at(moment).without(more)
            paced_ms = month.wait_ms(lane, limit, self.limits.request_share, probing=self.probes(month))
            if paced_ms > wait_ms:
                wait_ms, reason, by_budget = paced_ms, self._month_reason(month, limit), True
        return Denial(wait_ms, moment.wall_ms + wait_ms, reason, by_budget) if wait_ms > 0 else None

    def may_probe(self, lane: Lane, moment: Moment) -> bool:
        """Whether one call may go out although a 429 closed the limiter: the rest of the budget allows it."""
        if moment.monotonic_ms >= self.closed_until or self.in_flight or self.probing:
            return False
        return replace(self, closed_until=0, limited_in_a_row=0).ask(lane, moment) is None

    def granted(self, lane: Lane, moment: Moment, cost: int = 1) -> "Budget":
        """Spend a call. Call this only after `ask` returned None."""
        by_task, by_request = cost * (lane is Lane.TASK), cost * (lane is Lane.REQUEST)
        month, call_rate = self.month_at(moment), self.call_rate
        for _ in range(cost):
            month = month.spend(lane, self.limits.month or 0, self.limits.request_share)
            call_rate = call_rate.counted(moment.wall_ms)
        return replace(
            self,
            second=self.second.plus(moment.monotonic_ms, by_task, by_request),
            minute=self.minute.plus(moment.monotonic_ms, by_task, by_request),
            month=month,
            in_flight=self.in_flight + 1,
            call_rate=call_rate,
        )

    def request_first(self, moment: Moment) -> bool:
        """Whether requests are within their share, and therefore go before tasks that came earlier."""
        return all(
            window.counts(moment.monotonic_ms).requests < reserve_of(limit, self.limits.request_share)
            for window, limit in ((self.second, self.limits.second), (self.minute, self.limits.minute))
            if limit is not None
        )

    def month_at(self, moment: Moment) -> Month:
        return self.month.at(moment, self.limits.month or 0, self.limits.request_share)

    def probes(self, month: Month) -> bool:
        """Whether to keep probing a month with no calls left: others used it up, not our own calls."""
        return self.plan.month is None or month.spent < self.plan.month

    def calls_left(self, lane: Lane, moment: Moment) -> float:
        """How many calls this lane could make in a row at the month's pace; without a monthly limit, in a day."""
        limits = self.limits
        if limits.month is not None:
            return self.month_at(moment).tokens(lane, limits.month, limits.request_share)
        if limits.minute is None:
            return inf
        return reserve_of(limits.minute, limits.request_share) * MINUTES_A_DAY

    def _closed(self, moment: Moment) -> tuple[int, str]:
        if self.probing:
            return PROBE_RECHECK_MS, "after a 429, one call at a time"
        if moment.monotonic_ms < self.closed_until:
            return self.closed_until - moment.monotonic_ms, "all callers wait after a 429"
        if self.limited_in_a_row and self.in_flight:
            return PROBE_RECHECK_MS, "after a 429, one call at a time"
        return 0, ""

    def _month_reason(self, month: Month, limit: int) -> str:
        until = utc_time(month.span.ends_at)
        calls_left = month.calls_left(limit)
        if calls_left > 0:
            return f"paced: {calls_left} of {limit} calls are left until {until}"
        return f"all {limit} calls of the month until {until} are used, {month.used_by_others} of them by others"

    def status(self, moment: Moment, waiting: WaitingCallers) -> BudgetStatus:
        month = self.month.counted(moment)
        limit = self.limits.month
        return BudgetStatus(
            plan=self.plan.status(),
            limits=self.limits.status(),
            spent=SpentCalls(
                second=sum(self.second.counts(moment.monotonic_ms)),
                minute=sum(self.minute.counts(moment.monotonic_ms)),
                month=month.spent + month.used_by_others,
                month_by_others=month.used_by_others,
            ),
            left=CallsLeft(None if limit is None else month.calls_left(limit)),
            reported=ReportedLimits(
                minute_remaining=self.reported.minute.remaining,
                month_remaining=self.reported.month.remaining,
                anonymous=self.reported.anonymous,
            ),
            month_ends_at=month.span.ends_at,
            closed_until=self.closed_until_wall(moment),
            in_flight=self.in_flight,
            waiting=waiting,
            forecast=self.call_rate.forecast(month, limit, moment.wall_ms),
        )

    def to_stored(self, moment: Moment) -> StoredBudget:
        return StoredBudget(
            plan=self.plan.status(),
            limits=self.limits.status(),
            month=self.month.to_stored(),
            second=[list(bucket) for bucket in self.second.buckets],
            minute=[list(bucket) for bucket in self.minute.buckets],
            closed_until=self.closed_until_wall(moment),
            saved_at=moment.wall_ms,
            saved_monotonic_ms=moment.monotonic_ms,
            boot_id=moment.boot_id,
            limited_in_a_row=self.limited_in_a_row,
            low_in=self.low_in,
            call_rate=[[at, calls] for at, calls in self.call_rate.marks],
        )

    @classmethod
    def from_stored(cls, plan: Quota, stored: StoredBudget, moment: Moment) -> "Budget":
        """The stored budget, for this process. A changed plan discards the corrected limits, never the counts."""
        limits = plan
        if stored.plan == plan.status():
            corrected = stored.limits
            limits = replace(plan, second=corrected.second, minute=corrected.minute, month=corrected.month)
        saved = Moment(stored.saved_at, stored.saved_monotonic_ms, stored.boot_id)
        second = replace(_SECOND, buckets=_buckets(stored.second))
        minute = replace(_MINUTE, buckets=_buckets(stored.minute))
        if not moment.same_boot(saved):
            second, minute = second.restarted(moment.monotonic_ms), minute.restarted(moment.monotonic_ms)
        closed_ms = 0
        if stored.closed_until is not None:
            closed_ms = stored.closed_until - stored.saved_at - moment.since(saved)
        return cls(
            plan,
            limits,
            Month.from_stored(stored.month, moment),
            second=second,
            minute=minute,
            closed_until=moment.monotonic_ms + max(0, min(CLOSED_MAX_MS, closed_ms)),
            limited_in_a_row=stored.limited_in_a_row,
            low_in=stored.low_in,
            call_rate=CallRate(tuple(RateMark(at, calls) for at, calls in stored.call_rate)),
        )

    def closed_until_wall(self, moment: Moment) -> int | None:
        closed_ms = self.closed_until - moment.monotonic_ms
        return moment.wall_ms + closed_ms if closed_ms > 0 else None


def _buckets(stored: list[list[int]]) -> tuple[Bucket, ...]:
    return tuple((number, tasks, requests, others) for number, tasks, requests, others in stored)


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


def cadences(budget: Budget, demands: Mapping[str, Demand], moment: Moment) -> dict[str, Cadence]:
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
        month = budget.month.at(moment, month_limit, budget.limits.request_share)
        to_rollover_ms = max(1, month.span.ends_at - moment.wall_ms)
        left = month.for_tasks(month_limit, budget.limits.request_share)
        if wanted * to_rollover_ms > left * factor:
            factor = wanted * to_rollover_ms / max(left, 1e-9)
            reason = (
                f"stretched: tasks have {int(left)} of {month_limit} calls left for {to_rollover_ms / DAY_MS:.1f} days"
            )
        if month.calls_left(month_limit) == 0 and budget.probes(month):
            # Somebody must make the call that shows whether the upstream allows calls again.
            to_rollover_ms = min(to_rollover_ms, PROBE_MS)
    return {name: _stretched(demand, factor, reason, to_rollover_ms) for name, demand in demands.items()}


def overdraft(plan: Quota, demands: Mapping[str, Demand]) -> str | None:
    """A sentence if the tasks need more calls than the whole plan has; None if they fit."""
    wanted = sum(demand.calls_per_ms for demand in demands.values())
    for limit, window, length_ms in ((plan.minute, "minute", MINUTE_MS), (plan.month, "month", MONTH_MS)):
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
