"""The rate of the calls to an upstream, and a forecast of the month at that rate. Pure.

The rate is that of our own calls since a mark. A new mark is set every 12 hours, two are kept, and the older one
counts. It is 12 to 24 hours old once the service has run for that long; before that, it is at the first call. After a
day without calls the marks start again, so days on which the service did not run do not count.
"""

from dataclasses import dataclass
from typing import NamedTuple

from tocsin.budget.month import DAY_MS, Month
from tocsin.shapes.budgets import BudgetForecast

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
        if (
            newest is None or not 0 <= now - newest <= DAY_MS
        ):  # the first call, a long silence, or a clock set back
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
