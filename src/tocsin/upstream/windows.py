"""How the calls of a second, a minute and a month are counted, by lane. Pure.

**Sliding windows** (second, minute): at most `limit` calls in any period of their length, whenever the period begins.
Calls are counted in buckets, each a fraction of the window long. A bucket counts for as long as any part of it lies in
the window. So the count may be too high by up to one bucket, and is never too low.

**The month**: a hard limit, and a token bucket per lane that makes it last.

Our own calls are counted per calendar month (UTC). The count of a month is kept after the month has ended, so a clock
that jumps over the end of a month and back finds its count again. If the upstream reports more calls as used than we
counted, others made the difference. The newest header counts, and our own count is never reduced.

Months start with the UTC calendar until the upstream shows a different day: its remaining calls rise by a tenth of the
limit while it counts far fewer calls than we made. From then on, months start at that offset. At most one such rollover
is accepted in 27 days.

A call takes one token from the bucket of its lane. Tokens for all calls left in the month come back evenly over the
remaining time. The request bucket holds at most the request share of the calls left; the excess goes to the task
bucket, so nothing is held back at the end of the month. Unused tokens stay in the task bucket, so the calls of a quiet
week can be made later. Both buckets and the unallocated rest add up to exactly the calls left: the quota lasts the
month by construction, and heavy demand uses all of it. A month begins with a day's worth of tokens, for bursts. If the
request share would be less than two calls, both lanes use the task bucket.

If only the upstream reports the month as used up (others used it, or its limit is lower than the plan's), one call an
hour still goes out to check whether that has changed. If we used up our plan ourselves, no call goes out before the
rollover.

Times are wall-clock times. `ClockSteps` notices when the clock is set; whoever keeps windows or back-offs then moves
them with it (`moved`), so that they keep their length. Setting the clock affects months only.
"""

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from math import ceil
from typing import NamedTuple, TypeAlias

from holdfast.types import JSON, Clock
from tocsin.shape import Shape

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
ROLLOVER_EVERY_MIN_MS = 27 * DAY_MS
PROBE_MS = HOUR_MS
DRIFT_MAX_MS = 2_000  # the two clocks drift apart by less than this unless one is set
BACKWARDS_MS = 60_000  # a smaller step back is not treated as a jump
PAST_MONTHS_MAX = 24
OFFSET_MAX_MS = 31 * DAY_MS
NUMBER_MAX = 10**15
WALL_MAX_MS = 4_102_444_800_000  # the year 2100: a clock beyond it is broken, and must not break us
Bucket: TypeAlias = tuple[int, int, int, int]  # number, calls by tasks, by requests, by others


class ClockSteps:
    """Notices that the wall clock was set, by the monotonic one."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ahead_ms = self._ahead()

    def newest(self) -> int:
        """By how many ms the clock was set since the last call; 0 for a drift."""
        step_ms = self._ahead() - self._ahead_ms
        if abs(step_ms) <= DRIFT_MAX_MS:
            return 0
        self._ahead_ms += step_ms
        return step_ms

    def _ahead(self) -> int:
        return self._clock.now() - int(self._clock.monotonic() * 1000)


class Lane(StrEnum):
    """On whose behalf a call is made. Requests have a reserved share, so no task can starve them."""

    TASK = "task"
    REQUEST = "request"


class LaneCounts(NamedTuple):
    """Calls in a window: by tasks, by requests, and by others if the upstream reported them."""

    tasks: int
    requests: int
    others: int


@dataclass(frozen=True, slots=True)
class SlidingWindow(Shape):
    """The calls of the last `length_ms`, oldest bucket first."""

    length_ms: int
    bucket_ms: int
    buckets: tuple[Bucket, ...] = ()

    def counts(self, now: int) -> LaneCounts:
        tasks = requests = others = 0
        for _, by_tasks, by_requests, by_others in self._live(now):
            tasks += by_tasks
            requests += by_requests
            others += by_others
        return LaneCounts(tasks, requests, others)

    def plus(self, now: int, tasks: int = 0, requests: int = 0, others: int = 0) -> "SlidingWindow":
        """Count calls made now."""
        live = self._live(now)
        number = now // self.bucket_ms
        if live and live[-1][0] >= number:
            number, by_tasks, by_requests, by_others = live[-1]
            live = live[:-1]
            tasks, requests, others = tasks + by_tasks, requests + by_requests, others + by_others
        return replace(self, buckets=(*live, (number, tasks, requests, others)))

    def wait_ms(self, lane: Lane, limit: int, lane_max: int, now: int) -> int:
        """How long until a call of this lane fits into the limit and into the lane's part of it."""
        column = 1 if lane is Lane.TASK else 2
        live = self._live(now)
        of_lane = sum(bucket[column] for bucket in live)
        total = sum(bucket[1] + bucket[2] + bucket[3] for bucket in live)
        wait_ms = 0
        for bucket in live:
            if total < limit and of_lane < lane_max:
                break
            of_lane -= bucket[column]
            total -= bucket[1] + bucket[2] + bucket[3]
            wait_ms = (bucket[0] + 1) * self.bucket_ms + self.length_ms - now
        return wait_ms

    def reconcile(self, limit: int, remaining: int, now: int) -> "SlidingWindow":
        """Apply the remaining calls that the upstream reports. If more were used than we counted, others made them."""
        unknown = limit - remaining - sum(self.counts(now))
        return self.plus(now, others=unknown) if unknown > 0 else self

    def moved(self, by_ms: int) -> "SlidingWindow":
        """The window after the clock was set."""
        by = ceil(by_ms / self.bucket_ms)
        return replace(self, buckets=tuple((max(0, bucket[0] + by), *bucket[1:]) for bucket in self.buckets))

    def not_after(self, now: int) -> "SlidingWindow":
        """The window for another process: what was called in the future counts as called just now."""
        number = now // self.bucket_ms
        past = tuple(bucket for bucket in self.buckets if bucket[0] <= number)
        later = [bucket for bucket in self.buckets if bucket[0] > number]
        window = replace(self, buckets=past)
        return window.plus(now, *(sum(bucket[n] for bucket in later) for n in (1, 2, 3))) if later else window

    def _live(self, now: int) -> tuple[Bucket, ...]:
        oldest = (now - self.length_ms) // self.bucket_ms  # the first with a part in the window
        if not self.buckets or self.buckets[0][0] >= oldest:
            return self.buckets
        return tuple(bucket for bucket in self.buckets if bucket[0] >= oldest)


def reserve_of(limit: int, share: float) -> int:
    """How many of `limit` calls are reserved for requests: at least one if the limit is two or more, at most half."""
    return min(limit // 2, max(1, int(limit * share))) if share > 0 else 0


def lane_max(lane: Lane, limit: int, share: float) -> int:
    """How many of `limit` calls a lane may make: tasks all but the reserve, requests half of the limit, rounded up."""
    return limit - reserve_of(limit, share) if lane is Lane.TASK else limit - limit // 2


def check_plausible(*values: JSON) -> None:
    """Raise unless every number in these values, at any depth, is a count or a time that Tocsin may have stored."""
    for value in values:
        if isinstance(value, dict):
            check_plausible(*value.values())
        elif isinstance(value, list):
            check_plausible(*value)
        elif isinstance(value, int | float) and not 0 <= value <= NUMBER_MAX:
            raise ValueError(f"{value!r:.40} is not a count or a time")


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
class Month(Shape):
    """The calls of the current month, and the tokens for the calls left as of `seen_at`."""

    span: Span
    seen_at: int
    spent: int = 0
    used_by_others: int = 0
    task_tokens: float = 0.0
    request_tokens: float = 0.0
    reported: int | None = None  # remaining calls according to the newest header
    granted_at: int | None = None
    offset_ms: int = 0
    rolled_over_at: int | None = None
    past: dict[str, int] = field(default_factory=dict)  # our own calls of other months, by label

    @classmethod
    def __post_deserialize__(cls, month: "Month") -> "Month":
        if month.offset_ms > OFFSET_MAX_MS or month.span != span_of(month.span.starts_at, month.offset_ms):
            raise ValueError("a month begins with the calendar's, or at most 31 days later")
        return month

    @classmethod
    def begin(cls, now: int, limit: int, share: float) -> "Month":
        """A first month; nothing is known about its earlier calls."""
        return cls(span_of(now), now).primed(now, limit, share)

    def at(self, now: int, limit: int, share: float) -> "Month":
        """The month as of now: rolled over if it has ended, its buckets refilled up to now."""
        if not self._is_at(now):
            return self._rolled_over(now).primed(now, limit, share)
        if now < self.seen_at - BACKWARDS_MS:
            return self.primed(now, limit, share)
        return self._refilled(now, limit, share)

    def primed(self, now: int, limit: int, share: float) -> "Month":
        """A day's worth of tokens in the buckets, at least one in each; the rest unallocated."""
        calls_left = self.calls_left(limit)
        share = _effective(share, calls_left)
        day = calls_left * min(1.0, DAY_MS / max(1, self.span.ends_at - now))
        request_tokens = max(1.0, day * share) if share else 0.0
        task_tokens = min(calls_left - request_tokens, max(1.0, day * (1 - share)))
        return replace(self, seen_at=now, task_tokens=task_tokens, request_tokens=request_tokens)

    def calls_left(self, limit: int) -> int:
        return max(0, limit - self.spent - self.used_by_others)

    def wait_ms(self, lane: Lane, limit: int, share: float, *, probing: bool) -> int:
        """How long after `seen_at` a call of this lane may go out."""
        to_rollover_ms = max(1, self.span.ends_at - self.seen_at)
        calls_left = self.calls_left(limit)
        if calls_left == 0:
            return self._probe_wait_ms() if probing else to_rollover_ms
        share = _effective(share, calls_left)
        unallocated = calls_left - self.task_tokens - self.request_tokens
        if lane is Lane.REQUEST and share:
            return _token_in_ms(self.request_tokens, unallocated * share, to_rollover_ms)
        return _token_in_ms(self.task_tokens, unallocated * (1 - share), to_rollover_ms)

    def without(self, calls: int) -> "Month":
        """The month as if these calls were already made: what is left must be enough for one more."""
        if not calls:
            return self
        task_tokens, request_tokens = self.task_tokens - calls, self.request_tokens - calls
        return replace(self, spent=self.spent + calls, task_tokens=task_tokens, request_tokens=request_tokens)

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
            granted_at=self.seen_at,
            request_tokens=max(0.0, self.request_tokens - from_requests),
            task_tokens=max(0.0, self.task_tokens - (not from_requests)),
        )

    def reconcile(self, remaining: int, limit: int, share: float) -> "Month":
        """Apply the number of calls that the upstream reports as remaining in this month."""
        used = max(0, limit - remaining)
        month = replace(self, reported=remaining, used_by_others=max(0, used - self.spent))
        if not self._shows_rollover(remaining, used, limit):
            was_empty = self.calls_left(limit) == 0 and month.calls_left(limit) > 0
            return month.primed(self.seen_at, limit, share) if was_empty else month
        wall_ms = self.seen_at
        offset_ms = wall_ms - span_of(wall_ms).starts_at
        return replace(
            month, span=span_of(wall_ms, offset_ms), offset_ms=offset_ms, rolled_over_at=wall_ms, spent=used
        ).primed(self.seen_at, limit, share)

    def time_left_ratio(self) -> float:
        """How much of the month's time is left, from 0 to 1."""
        return (self.span.ends_at - self.seen_at) / (self.span.ends_at - self.span.starts_at)

    def for_tasks(self, limit: int, share: float) -> float:
        """How many calls tasks can count on until the rollover."""
        unallocated = max(0.0, self.calls_left(limit) - self.task_tokens - self.request_tokens)
        return self.task_tokens + unallocated * (1 - share)

    def moved(self, by_ms: int) -> "Month":
        """The month after the clock was set: its buckets do not refill by that."""
        return replace(self, seen_at=max(0, self.seen_at + by_ms))

    def _probe_wait_ms(self) -> int:
        since_ms = PROBE_MS if self.granted_at is None else self.seen_at - self.granted_at
        return PROBE_MS - since_ms if 0 <= since_ms < PROBE_MS else 0

    def _shows_rollover(self, remaining: int, used: int, limit: int) -> bool:
        leap = max(10, limit // 10)
        if self.reported is None or remaining < self.reported + leap or used > self.spent - leap:
            return False
        if self.rolled_over_at is None:
            return True
        return not 0 <= self.seen_at - self.rolled_over_at < ROLLOVER_EVERY_MIN_MS

    def _is_at(self, now: int) -> bool:
        return self.span.starts_at <= now < self.span.ends_at

    def _rolled_over(self, now: int) -> "Month":
        past = {**self.past, self.span.label: self.spent}
        span = span_of(now, self.offset_ms)
        spent = past.pop(span.label, 0)
        kept = dict(sorted(past.items())[-PAST_MONTHS_MAX:])
        return replace(self, span=span, seen_at=now, spent=spent, used_by_others=0, past=kept)

    def _refilled(self, now: int, limit: int, share: float) -> "Month":
        calls_left = self.calls_left(limit)
        share = _effective(share, calls_left)
        request_tokens = min(self.request_tokens, calls_left)
        task_tokens = min(self.task_tokens, calls_left - request_tokens)
        elapsed_ms = max(0, now - self.seen_at)
        left_ms = max(1, self.span.ends_at - self.seen_at)
        refill = (calls_left - task_tokens - request_tokens) * min(1.0, elapsed_ms / left_ms)
        request_tokens += refill * share
        overflow = max(0.0, request_tokens - calls_left * share)
        return replace(
            self,
            seen_at=now,
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
