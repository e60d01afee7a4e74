"""The month's window: a hard limit, and a pace that makes it last.

**Counting.** Our own calls are counted per calendar month (UTC), and a month is remembered after the clock
has left it, so a clock that jumps over the turn and back finds its count again. What the upstream says to
be used beyond that was used by `others`; the newest header is believed, our own count is never reduced.

**The turn.** Months turn with the UTC calendar until the upstream shows another day: its remaining calls
rise by a tenth of the limit while it counts far fewer calls than we made. From then on months turn at that
offset. At most one such turn is believed in 27 days.

**The pace.** What is left of the month is poured, evenly over the time that is left, into two cups: one for
requests, one for tasks. A call takes one drop of its lane's cup. The request cup holds at most the request
share of the rest; what it cannot hold runs over into the task cup, so that at the month's end nothing is
kept back. Unused drops stay in the task cup, so a quiet week may be made up for. Cups and the unallocated part
together are exactly the rest: the plan lasts by construction, and heavy demand uses all of it. A month
begins with a day's worth in the cups, for bursts. A share of less than two calls is none: then both lanes
drink from the task cup.

**Told to be empty.** When the month is used up only by the upstream's word (by others, or by a lower limit
than the plan's), one call an hour still goes out to hear whether that is still so. When we used up our plan,
nobody calls before the turn.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from math import ceil
from typing import NamedTuple

from tocsin.bindings import JSON
from tocsin.budget.limiter import Lane
from tocsin.budget.windows import Moment

DAY_MS = 86_400_000
ROLLOVER_EVERY_MIN_MS = 27 * DAY_MS
PROBE_MS = 3_600_000
BACKWARDS_MS = 60_000  # a smaller step back is no jump
PAST_MONTHS_MAX = 24
WALL_MAX_MS = 4_102_444_800_000  # the year 2100: a clock beyond it is broken, and must not break us


class Span(NamedTuple):
    """A month: its name, its first instant and the next one's."""

    label: str
    starts_at: int
    ends_at: int


def span_of(wall_ms: int, offset_ms: int = 0) -> Span:
    """The month around an instant, months turning `offset_ms` after the calendar's."""
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
    """Calls of the current month and what may still be called."""

    span: Span
    seen: Moment
    spent: int = 0
    others: int = 0
    task_tokens: float = 0.0
    request_tokens: float = 0.0
    told: int | None = None  # remaining, by the newest header
    granted_at: int | None = None
    offset_ms: int = 0
    rolled_over_at: int | None = None
    past: Mapping[str, int] | None = None  # our own calls of other months

    @classmethod
    def begin(cls, moment: Moment, limit: int, share: float) -> "Month":
        """A first month, of whose earlier calls we know nothing yet."""
        return cls(span_of(moment.wall_ms), moment).primed(moment, limit, share)

    def at(self, moment: Moment, limit: int, share: float) -> "Month":
        """As it stands now: turned if it is over, poured up to this moment."""
        if not self.span.starts_at <= moment.wall_ms < self.span.ends_at:
            return self._rolled_over(moment).primed(moment, limit, share)
        if moment.wall_ms < self.seen.wall_ms - BACKWARDS_MS:
            return self.primed(moment, limit, share)
        return self._refilled(moment, limit, share)

    def primed(self, moment: Moment, limit: int, share: float) -> "Month":
        """A day's worth in the cups, a call at least in each; the rest unallocated."""
        rest = self.rest(limit)
        share = _effective(share, rest)
        day = rest * min(1.0, DAY_MS / max(1, self.span.ends_at - moment.wall_ms))
        request_tokens = max(1.0, day * share) if share else 0.0
        task_tokens = min(rest - request_tokens, max(1.0, day * (1 - share)))
        return replace(self, seen=moment, task_tokens=task_tokens, request_tokens=request_tokens)

    def rest(self, limit: int) -> int:
        return max(0, limit - self.spent - self.others)

    def wait_ms(self, lane: Lane, limit: int, share: float, *, probing: bool) -> int:
        """How long until a call of this lane may go out, seen from `seen`."""
        to_rollover_ms = max(1, self.span.ends_at - self.seen.wall_ms)
        rest = self.rest(limit)
        if rest == 0:
            return self._probe_wait_ms() if probing else to_rollover_ms
        share = _effective(share, rest)
        unallocated = rest - self.task_tokens - self.request_tokens
        if lane is Lane.REQUEST and share:
            return _filled_in_ms(self.request_tokens, unallocated * share, to_rollover_ms)
        return _filled_in_ms(self.task_tokens, unallocated * (1 - share), to_rollover_ms)

    def spend(self, lane: Lane, limit: int, share: float) -> "Month":
        """Count one call of ours, and take its drop."""
        from_request_cup = lane is Lane.REQUEST and _effective(share, self.rest(limit)) > 0
        return replace(
            self,
            spent=self.spent + 1,
            granted_at=self.seen.wall_ms,
            request_tokens=max(0.0, self.request_tokens - from_request_cup),
            task_tokens=max(0.0, self.task_tokens - (not from_request_cup)),
        )

    def reconcile(self, remaining: int, limit: int, share: float) -> "Month":
        """The upstream says how many calls remain of this month."""
        used = max(0, limit - remaining)
        month = replace(self, told=remaining, others=max(0, used - self.spent))
        if not self._shows_rollover(remaining, used, limit):
            found_empty = self.rest(limit) == 0 and month.rest(limit) > 0
            return month.primed(self.seen, limit, share) if found_empty else month
        wall_ms = self.seen.wall_ms
        offset_ms = wall_ms - span_of(wall_ms).starts_at
        return replace(
            month, span=span_of(wall_ms, offset_ms), offset_ms=offset_ms, rolled_over_at=wall_ms, spent=used
        ).primed(self.seen, limit, share)

    def left_ratio(self) -> float:
        """How much of the month's time is left, as a part of 1."""
        return (self.span.ends_at - self.seen.wall_ms) / (self.span.ends_at - self.span.starts_at)

    def for_tasks(self, limit: int, share: float) -> float:
        """How many calls tasks may count on until the turn."""
        unallocated = max(0.0, self.rest(limit) - self.task_tokens - self.request_tokens)
        return self.task_tokens + unallocated * (1 - share)

    def to_json(self) -> JSON:
        return {
            "offsetMs": self.offset_ms,
            "spent": self.spent,
            "others": self.others,
            "taskCup": self.task_tokens,
            "requestCup": self.request_tokens,
            "told": self.told,
            "seenAt": self.seen.wall_ms,
            "grantedAt": self.granted_at,
            "turnedAt": self.rolled_over_at,
            "past": dict(self.past or {}),
        }

    @classmethod
    def from_json(cls, stored: JSON, moment: Moment) -> "Month":
        """As stored, with the time between poured by the wall clock.

        An object that is built anew for every run must find its cups filled. However far that clock may
        have jumped, the rest of the month is all there is to pour.
        """
        passed_ms = max(0, moment.wall_ms - stored["seenAt"])
        return cls(
            span_of(stored["seenAt"], stored["offsetMs"]),
            Moment(stored["seenAt"], moment.monotonic_ms - passed_ms),
            spent=stored["spent"],
            others=stored["others"],
            task_tokens=stored["taskCup"],
            request_tokens=stored["requestCup"],
            told=stored["told"],
            granted_at=stored["grantedAt"],
            offset_ms=stored["offsetMs"],
            rolled_over_at=stored["turnedAt"],
            past=dict(stored["past"]),
        )

    def _probe_wait_ms(self) -> int:
        since_ms = PROBE_MS if self.granted_at is None else self.seen.wall_ms - self.granted_at
        return PROBE_MS - since_ms if 0 <= since_ms < PROBE_MS else 0

    def _shows_rollover(self, remaining: int, used: int, limit: int) -> bool:
        leap = max(10, limit // 10)
        if self.told is None or remaining < self.told + leap or used > self.spent - leap:
            return False
        return (
            self.rolled_over_at is None
            or not 0 <= self.seen.wall_ms - self.rolled_over_at < ROLLOVER_EVERY_MIN_MS
        )

    def _rolled_over(self, moment: Moment) -> "Month":
        past = {**(self.past or {}), self.span.label: self.spent}
        span = span_of(moment.wall_ms, self.offset_ms)
        spent = past.pop(span.label, 0)
        kept = dict(sorted(past.items())[-PAST_MONTHS_MAX:])
        return replace(self, span=span, seen=moment, spent=spent, others=0, past=kept)

    def _refilled(self, moment: Moment, limit: int, share: float) -> "Month":
        rest = self.rest(limit)
        share = _effective(share, rest)
        request_tokens = min(self.request_tokens, rest)
        task_tokens = min(self.task_tokens, rest - request_tokens)
        elapsed_ms = max(0, moment.monotonic_ms - self.seen.monotonic_ms)
        left_ms = max(1, self.span.ends_at - self.seen.wall_ms)
        poured = (rest - task_tokens - request_tokens) * min(1.0, elapsed_ms / left_ms)
        request_tokens += poured * share
        run_over = max(0.0, request_tokens - rest * share)
        return replace(
            self,
            seen=moment,
            request_tokens=request_tokens - run_over,
            task_tokens=task_tokens + poured * (1 - share) + run_over,
        )


def _effective(share: float, rest: int) -> float:
    """The requests' share of the rest; none when that would be less than two calls."""
    return share if rest * share >= 2 else 0.0


def _filled_in_ms(cup: float, unallocated: float, to_rollover_ms: int) -> int:
    """How long until a cup holds a drop, if its part of the unallocated comes evenly until the turn."""
    if cup >= 1:
        return 0
    if unallocated <= 1 - cup:
        return to_rollover_ms
    return min(to_rollover_ms, ceil((1 - cup) * to_rollover_ms / unallocated) + 1)
