"""One upstream's budget: may this lane call now, and if not, when. Pure.

**Windows.** Second and minute slide (`windows.py`), the month is paced (`month.py`). A call is counted when its
permit is granted, before it is made, so it stays counted if the process dies in between. Retries count too.

**Lanes.** Tasks and requests spend the same budget. Of the calls of every second and minute, a share is reserved for
requests and half for tasks; each lane has its own token bucket for the month. Requests go first while they are within
their share; beyond it, calls go in order of arrival. So neither lane can starve the other.

**Time.** There are two clocks (`Moment`). Setting the wall clock affects months only. After a restart of the process,
windows and back-offs continue exactly. After a reboot the elapsed time is unknown: the calls of the second and the
minute count as just made, and a back-off continues for its remaining time by the wall clock.

`feedback.py` applies answers to a budget. `stored.py` defines its stored form.

A sliding window: at most `limit` calls in any period of its length, whenever the period begins.

Calls are counted in buckets, each a fraction of the window long. A bucket counts for as long as any part of it lies in
the window. So the count may be too high by up to one bucket, and is never too low.

The month: a hard limit, and a token bucket per lane that makes it last.

**Counting.** Our own calls are counted per calendar month (UTC). The count of a month is kept after the month has
ended, so a clock that jumps over the end of a month and back finds its count again. If the upstream reports more calls
as used than we counted, others made the difference. The newest header counts, and our own count is never reduced.

**Rollover.** Months start with the UTC calendar until the upstream shows a different day: its remaining calls rise by
a tenth of the limit while it counts far fewer calls than we made. From then on, months start at that offset. At most
one such rollover is accepted in 27 days.

**Pace.** There is one token bucket for tasks and one for requests. A call takes one token from the bucket of its lane.
Tokens for all calls left in the month come back evenly over the remaining time. The request bucket holds at most the
request share of the calls left; the excess goes to the task bucket, so nothing is held back at the end of the month.
Unused tokens stay in the task bucket, so the calls of a quiet week can be made later. Both buckets and the unallocated
rest add up to exactly the calls left: the quota lasts the month by construction, and heavy demand uses all of it. A
month begins with a day's worth of tokens, for bursts. If the request share would be less than two calls, both lanes
use the task bucket.

**Reported as empty.** If only the upstream reports the month as used up (others used it, or its limit is lower than
the plan's), one call an hour still goes out to check whether that has changed. If we used up our plan ourselves, no
call goes out before the rollover.

The rate of the calls to an upstream, and a forecast of the month at that rate. Pure.

The rate is that of our own calls since a mark. A new mark is set every 12 hours, two are kept, and the older one
counts. It is 12 to 24 hours old once the service has run for that long; before that, it is at the first call. After a
day without calls the marks start again, so days on which the service did not run do not count.

A budget as the object stores it. Times are wall-clock; windows are monotonic and valid within one boot.

Reading rejects values that Tocsin cannot have stored, because calculations with them would fail later.

The limiter as its callers see it. `budget_limiter.py` implements it.

A client acquires a permit before every attempt, and releases it with the limits that the answer reports.

The budgets of the upstreams, as the status shows them.

The current time on two clocks, and the time between two moments. Pure, except for `moment_of`.

The wall clock may be set at any time. The monotonic clock only runs forward, and the processes of one machine share
it until the next reboot; `boot_id` identifies that period. So a duration between two processes is exact within a boot,
whatever happens to the wall clock.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from math import ceil, inf
from typing import NamedTuple, Protocol, TypeAlias

from holdfast.errors import UsageError
from holdfast.types import Clock
from tocsin.shape import Shape
from tocsin.text import utc_time


class Lane(StrEnum):
    """On whose behalf a call is made. Requests have a reserved share, so no task can starve them."""

    TASK = "task"
    REQUEST = "request"


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


@dataclass(frozen=True, slots=True)
class Denial:
    """No permit now. `until` is the wall-clock time (unix ms) after `wait_ms` have passed.

    `by_budget`: our own budget denied it, not an upstream that asked us to slow down.
    """

    wait_ms: int
    until: int
    reason: str
    by_budget: bool = True


class Limiter(Protocol):
    """Grants permits out of one upstream's budget."""

    async def acquire(self, lane: Lane, patience_s: float) -> Denial | None:
        """Wait in line for a permit, for `patience_s` at most. None means a permit, which is already spent."""

    def calls_left(self, lane: Lane) -> float:
        """How many calls this lane could make in a row at the month's pace; without a monthly limit, in a day."""

    def probe(self, lane: Lane) -> bool:
        """Spend a permit for one call through a limiter that a 429 closed; False if no probe is possible now."""

    def release(
        self, reading: LimitReading | None, *, limited: bool, retry_after_ms: int | None, probing: bool = False
    ) -> int:
        """Call this once after every permit, with the limits that the answer reported; None if there was no answer.

        `probing`: the permit was for a probe. If the upstream did not limit that call, the limiter opens.
        Returns until when the limiter is closed to all callers (unix ms); a past time if it is open.
        """


class LaneCounts(NamedTuple):
    """Calls in a window: by tasks, by requests, and by others if the upstream reported them."""

    tasks: int
    requests: int
    others: int


Bucket: TypeAlias = tuple[int, int, int, int]  # number, calls by tasks, by requests, by others


@dataclass(frozen=True, slots=True)
class SlidingWindow:
    """The calls of the last `length_ms`, oldest bucket first."""

    length_ms: int
    bucket_ms: int
    buckets: tuple[Bucket, ...] = ()

    def counts(self, monotonic_ms: int) -> LaneCounts:
        tasks = requests = others = 0
        for _, by_tasks, by_requests, by_others in self._live(monotonic_ms):
            tasks += by_tasks
            requests += by_requests
            others += by_others
        return LaneCounts(tasks, requests, others)

    def plus(self, monotonic_ms: int, tasks: int = 0, requests: int = 0, others: int = 0) -> "SlidingWindow":
        """Count calls made now."""
        live = self._live(monotonic_ms)
        number = monotonic_ms // self.bucket_ms
        if live and live[-1][0] >= number:
            number, by_tasks, by_requests, by_others = live[-1]
            live = live[:-1]
            tasks, requests, others = tasks + by_tasks, requests + by_requests, others + by_others
        return replace(self, buckets=(*live, (number, tasks, requests, others)))

    def wait_ms(self, lane: Lane, limit: int, lane_max: int, monotonic_ms: int) -> int:
        """How long until a call of this lane fits into the limit and into the lane's part of it."""
        column = 1 if lane is Lane.TASK else 2
        live = self._live(monotonic_ms)
        of_lane = sum(bucket[column] for bucket in live)
        total = sum(bucket[1] + bucket[2] + bucket[3] for bucket in live)
        wait_ms = 0
        for bucket in live:
            if total < limit and of_lane < lane_max:
                break
            of_lane -= bucket[column]
            total -= bucket[1] + bucket[2] + bucket[3]
            wait_ms = (bucket[0] + 1) * self.bucket_ms + self.length_ms - monotonic_ms
        return wait_ms

    def reconcile(self, limit: int, remaining: int, monotonic_ms: int) -> "SlidingWindow":
        """Apply the remaining calls that the upstream reports. If more were used than we counted, others made them."""
        unknown = limit - remaining - sum(self.counts(monotonic_ms))
        return self.plus(monotonic_ms, others=unknown) if unknown > 0 else self

    def restarted(self, monotonic_ms: int) -> "SlidingWindow":
        """The window after a reboot: the elapsed time is unknown, so every call counts as just made."""
        tasks = sum(bucket[1] for bucket in self.buckets)
        requests = sum(bucket[2] for bucket in self.buckets)
        others = sum(bucket[3] for bucket in self.buckets)
        return replace(self, buckets=()).plus(monotonic_ms, tasks, requests, others)

    def _live(self, monotonic_ms: int) -> tuple[Bucket, ...]:
        oldest = (monotonic_ms - self.length_ms) // self.bucket_ms  # the first with a part in the window
        if not self.buckets or self.buckets[0][0] >= oldest:
            return self.buckets
        return tuple(bucket for bucket in self.buckets if bucket[0] >= oldest)


def reserve_of(limit: int, share: float) -> int:
    """How many of `limit` calls are reserved for requests: at least one if the limit is two or more, never all."""
    return min(limit - 1, max(1, int(limit * share))) if share > 0 else 0


def lane_max(lane: Lane, limit: int, share: float) -> int:
    """How many of `limit` calls a lane may make: tasks all but the reserve, requests half of the limit, rounded up."""
    return limit - reserve_of(limit, share) if lane is Lane.TASK else limit - limit // 2


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


class Moment(NamedTuple):
    """A moment: the wall clock for months and for people, the monotonic clock for everything else.

    `boot_id` is empty if it is unknown: then moments of another process can be compared only by the wall clock.
    """

    wall_ms: int
    monotonic_ms: int
    boot_id: str = ""

    def same_boot(self, earlier: "Moment") -> bool:
        """Whether the monotonic times of the two moments can be compared."""
        return bool(self.boot_id) and (self.boot_id == earlier.boot_id and self.monotonic_ms >= earlier.monotonic_ms)

    def since(self, earlier: "Moment") -> int:
        """Milliseconds since a moment of another process: exact within a boot, otherwise by the wall clock."""
        if self.same_boot(earlier):
            return self.monotonic_ms - earlier.monotonic_ms
        return max(0, self.wall_ms - earlier.wall_ms)


def moment_of(clock: Clock) -> Moment:
    return Moment(clock.now(), int(clock.monotonic() * 1000), clock.boot_id)


DAY_MS = 86_400_000
ROLLOVER_EVERY_MIN_MS = 27 * DAY_MS
PROBE_MS = 3_600_000
BACKWARDS_MS = 60_000  # a smaller step back is not treated as a jump
PAST_MONTHS_MAX = 24
WALL_MAX_MS = 4_102_444_800_000  # the year 2100: a clock beyond it is broken, and must not break us


class Span(NamedTuple):
    """A month: its label, its first instant and the first instant of the next one."""

    label: str
    starts_at: int
    ends_at: int


def span_of(wall_ms: int, offset_ms: int = 0) -> Span:
    """The month that contains an instant, if months start `offset_ms` after those of the calendar."""
    at = datetime.fromtimestamp(max(0, min(WALL_MAX_MS, wall_ms) - offset_ms) / 1000, UTC)
    start = datetime(at.year, at.month, 1, tzinfo=UTC)
    following = datetime(at.year + at.month // 12, at.month % 12 + 1, 1, tzinfo=UTC)
    return Span(
        f"{at.year:04}-{at.month:02}",
        int(start.timestamp()) * 1000 + offset_ms,
        int(following.timestamp()) * 1000 + offset_ms,
    )


@dataclass(frozen=True, slots=True)
class Month:
    """The calls of the current month, and the tokens for the calls left."""

    span: Span
    seen: Moment
    spent: int = 0
    used_by_others: int = 0
    task_tokens: float = 0.0
    request_tokens: float = 0.0
    reported: int | None = None  # remaining calls according to the newest header
    granted_at: int | None = None
    offset_ms: int = 0
    rolled_over_at: int | None = None
    past: Mapping[str, int] | None = None  # our own calls of other months

    @classmethod
    def begin(cls, moment: Moment, limit: int, share: float) -> "Month":
        """A first month; nothing is known about its earlier calls."""
        return cls(span_of(moment.wall_ms), moment).primed(moment, limit, share)

    def counted(self, moment: Moment) -> "Month":
        """The month as of now, with correct counts; its buckets are not updated."""
        return self if self._is_at(moment) else self._rolled_over(moment)

    def at(self, moment: Moment, limit: int, share: float) -> "Month":
        """The month as of now: rolled over if it has ended, its buckets refilled up to this moment."""
        if not self._is_at(moment):
            return self._rolled_over(moment).primed(moment, limit, share)
        if moment.wall_ms < self.seen.wall_ms - BACKWARDS_MS:
            return self.primed(moment, limit, share)
        return self._refilled(moment, limit, share)

    def primed(self, moment: Moment, limit: int, share: float) -> "Month":
        """A day's worth of tokens in the buckets, at least one in each; the rest unallocated."""
        calls_left = self.calls_left(limit)
        share = _effective(share, calls_left)
        day = calls_left * min(1.0, DAY_MS / max(1, self.span.ends_at - moment.wall_ms))
        request_tokens = max(1.0, day * share) if share else 0.0
        task_tokens = min(calls_left - request_tokens, max(1.0, day * (1 - share)))
        return replace(self, seen=moment, task_tokens=task_tokens, request_tokens=request_tokens)

    def calls_left(self, limit: int) -> int:
        return max(0, limit - self.spent - self.used_by_others)

    def wait_ms(self, lane: Lane, limit: int, share: float, *, probing: bool) -> int:
        """How long after `seen` a call of this lane may go out."""
        to_rollover_ms = max(1, self.span.ends_at - self.seen.wall_ms)
        calls_left = self.calls_left(limit)
        if calls_left == 0:
            return self._probe_wait_ms() if probing else to_rollover_ms
        share = _effective(share, calls_left)
        unallocated = calls_left - self.task_tokens - self.request_tokens
        if lane is Lane.REQUEST and share:
            return _token_in_ms(self.request_tokens, unallocated * share, to_rollover_ms)
        return _token_in_ms(self.task_tokens, unallocated * (1 - share), to_rollover_ms)

    def tokens(self, lane: Lane, limit: int, share: float) -> float:
        """The tokens in the bucket of this lane."""
        of_requests = lane is Lane.REQUEST and _effective(share, self.calls_left(limit)) > 0
        return self.request_tokens if of_requests else self.task_tokens

    def spend(self, lane: Lane, limit: int, share: float) -> "Month":
        """Count one of our own calls, and take its token."""
        from_requests = lane is Lane.REQUEST and _effective(share, self.calls_left(limit)) > 0
        return replace(
            self,
            spent=self.spent + 1,
            granted_at=self.seen.wall_ms,
            request_tokens=max(0.0, self.request_tokens - from_requests),
            task_tokens=max(0.0, self.task_tokens - (not from_requests)),
        )

    def reconcile(self, remaining: int, limit: int, share: float) -> "Month":
        """Apply the number of calls that the upstream reports as remaining in this month."""
        used = max(0, limit - remaining)
        month = replace(self, reported=remaining, used_by_others=max(0, used - self.spent))
        if not self._shows_rollover(remaining, used, limit):
            was_empty = self.calls_left(limit) == 0 and month.calls_left(limit) > 0
            return month.primed(self.seen, limit, share) if was_empty else month
        wall_ms = self.seen.wall_ms
        offset_ms = wall_ms - span_of(wall_ms).starts_at
        return replace(
            month, span=span_of(wall_ms, offset_ms), offset_ms=offset_ms, rolled_over_at=wall_ms, spent=used
        ).primed(self.seen, limit, share)

    def time_left_ratio(self) -> float:
        """How much of the month's time is left, from 0 to 1."""
        return (self.span.ends_at - self.seen.wall_ms) / (self.span.ends_at - self.span.starts_at)

    def for_tasks(self, limit: int, share: float) -> float:
        """How many calls tasks can count on until the rollover."""
        unallocated = max(0.0, self.calls_left(limit) - self.task_tokens - self.request_tokens)
        return self.task_tokens + unallocated * (1 - share)

    def to_stored(self) -> StoredMonth:
        return StoredMonth(
            offset_ms=self.offset_ms,
            spent=self.spent,
            used_by_others=self.used_by_others,
            task_tokens=self.task_tokens,
            request_tokens=self.request_tokens,
            reported=self.reported,
            seen_at=self.seen.wall_ms,
            granted_at=self.granted_at,
            rolled_over_at=self.rolled_over_at,
            past=dict(self.past or {}),
        )

    @classmethod
    def from_stored(cls, stored: StoredMonth, moment: Moment) -> "Month":
        """The stored month; the time since then is measured by the wall clock.

        An object that is rebuilt for every run must find its buckets refilled. However far the clock jumped, the
        buckets cannot get more tokens than there are calls left in the month.
        """
        passed_ms = max(0, moment.wall_ms - stored.seen_at)
        return cls(
            span_of(stored.seen_at, stored.offset_ms),
            Moment(stored.seen_at, moment.monotonic_ms - passed_ms),
            spent=stored.spent,
            used_by_others=stored.used_by_others,
            task_tokens=stored.task_tokens,
            request_tokens=stored.request_tokens,
            reported=stored.reported,
            granted_at=stored.granted_at,
            offset_ms=stored.offset_ms,
            rolled_over_at=stored.rolled_over_at,
            past=stored.past,
        )

    def _probe_wait_ms(self) -> int:
        since_ms = PROBE_MS if self.granted_at is None else self.seen.wall_ms - self.granted_at
        return PROBE_MS - since_ms if 0 <= since_ms < PROBE_MS else 0

    def _shows_rollover(self, remaining: int, used: int, limit: int) -> bool:
        leap = max(10, limit // 10)
        if self.reported is None or remaining < self.reported + leap or used > self.spent - leap:
            return False
        if self.rolled_over_at is None:
            return True
        return not 0 <= self.seen.wall_ms - self.rolled_over_at < ROLLOVER_EVERY_MIN_MS

    def _is_at(self, moment: Moment) -> bool:
        return self.span.starts_at <= moment.wall_ms < self.span.ends_at

    def _rolled_over(self, moment: Moment) -> "Month":
        past = {**(self.past or {}), self.span.label: self.spent}
        span = span_of(moment.wall_ms, self.offset_ms)
        spent = past.pop(span.label, 0)
        kept = dict(sorted(past.items())[-PAST_MONTHS_MAX:])
        return replace(self, span=span, seen=moment, spent=spent, used_by_others=0, past=kept)

    def _refilled(self, moment: Moment, limit: int, share: float) -> "Month":
        calls_left = self.calls_left(limit)
        share = _effective(share, calls_left)
        request_tokens = min(self.request_tokens, calls_left)
        task_tokens = min(self.task_tokens, calls_left - request_tokens)
        elapsed_ms = max(0, moment.monotonic_ms - self.seen.monotonic_ms)
        left_ms = max(1, self.span.ends_at - self.seen.wall_ms)
        refill = (calls_left - task_tokens - request_tokens) * min(1.0, elapsed_ms / left_ms)
        request_tokens += refill * share
        overflow = max(0.0, request_tokens - calls_left * share)
        return replace(
            self,
            seen=moment,
            request_tokens=request_tokens - overflow,
            task_tokens=task_tokens + refill * (1 - share) + overflow,
        )


def _effective(share: float, calls_left: int) -> float:
    """The requests' share of the calls left; 0 if that would be less than two calls."""
    return share if calls_left * share >= 2 else 0.0


def _token_in_ms(tokens: float, unallocated: float, to_rollover_ms: int) -> int:
    """How long until a bucket holds a token, if its part of the unallocated ones arrives evenly."""
    if tokens >= 1:
        return 0
    if unallocated <= 1 - tokens:
        return to_rollover_ms
    return min(to_rollover_ms, ceil((1 - tokens) * to_rollover_ms / unallocated) + 1)


HOUR_MS = 3_600_000
MARK_EVERY_MS = 12 * HOUR_MS


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


def stored_call_rate(rate: CallRate) -> list[list[int]]:
    return [[at, calls] for at, calls in rate.marks]


def call_rate_of(stored: list[list[int]]) -> CallRate:
    return CallRate(tuple(RateMark(at, calls) for at, calls in stored))


CLOSED_MAX_MS = 3_600_000
PROBE_RECHECK_MS = 1_000
MINUTES_A_DAY = 1_440

_SECOND = SlidingWindow(length_ms=1_000, bucket_ms=100)
_MINUTE = SlidingWindow(length_ms=60_000, bucket_ms=5_000)
_NOTHING_REPORTED = LimitReading()
_NO_CALLS = CallRate()


@dataclass(frozen=True, slots=True)
class Quota:
    """Calls per window; None for a window without a limit. `request_share` is reserved for requests.

    `is_cap`: never exceed the quota, whatever the upstream reports. For a key that others use too.
    """

    second: int | None = None
    minute: int | None = None
    month: int | None = None
    request_share: float = 0.1
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

    def ask(self, lane: Lane, moment: Moment) -> Denial | None:
        """Whether this lane may call now: None means yes; a denial states why not and when to ask again."""
        wait_ms, reason = self._closed(moment)
        by_budget = False
        for name, window in (("second", self.second), ("minute", self.minute)):
            limit = getattr(self.limits, name)
            if limit is None:
                continue
            of_lane = lane_max(lane, limit, self.limits.request_share)
            full_ms = window.wait_ms(lane, limit, of_lane, moment.monotonic_ms)
            if full_ms > wait_ms:
                wait_ms, reason, by_budget = (full_ms, f"the limit of {limit} calls per {name} is reached", True)
        limit = self.limits.month
        if limit is not None:
            month = self.month_at(moment)
            paced_ms = month.wait_ms(lane, limit, self.limits.request_share, probing=self.probes(month))
            if paced_ms > wait_ms:
                wait_ms, reason, by_budget = paced_ms, self._month_reason(month, limit), True
        return Denial(wait_ms, moment.wall_ms + wait_ms, reason, by_budget) if wait_ms > 0 else None

    def may_probe(self, lane: Lane, moment: Moment) -> bool:
        """Whether one call may go out although a 429 closed the limiter: the rest of the budget allows it."""
        if moment.monotonic_ms >= self.closed_until or self.in_flight or self.probing:
            return False
        return replace(self, closed_until=0, limited_in_a_row=0).ask(lane, moment) is None

    def granted(self, lane: Lane, moment: Moment) -> "Budget":
        """Spend one call. Call this only after `ask` returned None."""
        by_task, by_request = int(lane is Lane.TASK), int(lane is Lane.REQUEST)
        return replace(
            self,
            second=self.second.plus(moment.monotonic_ms, by_task, by_request),
            minute=self.minute.plus(moment.monotonic_ms, by_task, by_request),
            month=self.month_at(moment).spend(lane, self.limits.month or 0, self.limits.request_share),
            in_flight=self.in_flight + 1,
            call_rate=self.call_rate.counted(moment.wall_ms),
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
            call_rate=stored_call_rate(self.call_rate),
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
            call_rate=call_rate_of(stored.call_rate),
        )

    def closed_until_wall(self, moment: Moment) -> int | None:
        closed_ms = self.closed_until - moment.monotonic_ms
        return moment.wall_ms + closed_ms if closed_ms > 0 else None


def _buckets(stored: list[list[int]]) -> tuple[Bucket, ...]:
    return tuple((number, tasks, requests, others) for number, tasks, requests, others in stored)
