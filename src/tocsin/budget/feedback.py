"""What an answer changes in a budget: limits, counts, back-off. Pure.

**Headers.** A told limit replaces the one we know, in either direction, and is reported. Fewer calls
remaining than by our count: believed, others made them. More: our own count stands. More than the limit we
know, from an upstream that tells no limit: reported, and the plan stands.

**Back-off.** A 429 closes the gate for all: for its `Retry-After`, an hour at most, or for a random part of
a span that doubles with every new 429, whichever is longer; a first `Retry-After` is taken at its word. A 429
to a call that was under way when the gate closed does not lengthen the span. After it one call at a time
goes out until one is not limited. So it cannot latch.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tocsin.bindings import JSON, Level
from tocsin.budget.budget import CLOSED_MAX_MS, Budget
from tocsin.budget.limiter import LimitReading, WindowReading
from tocsin.budget.windows import Moment

BACK_OFF_MS = 1_000  # doubled by the first 429 already
BACK_OFF_MAX_MS = 300_000
LOW_RATIO = 0.2  # of the month's limit: below it somebody should know


@dataclass(frozen=True, slots=True)
class BudgetEvent:
    """Something that the log should tell, and those who watch: a budget has changed."""

    level: Level
    event: str
    fields: Mapping[str, JSON]


def apply_answer(
    budget: Budget,
    reading: LimitReading | None,
    *,
    limited: bool,
    retry_after_ms: int | None,
    moment: Moment,
    jitter: float,
) -> tuple[Budget, list[BudgetEvent]]:
    """A call has ended: `reading` is what its answer said, None when there was no answer."""
    notes: list[BudgetEvent] = []
    budget = replace(budget, in_flight=max(0, budget.in_flight - 1))
    if reading is None:
        return budget, notes
    budget = replace(budget, told=reading)
    for name in ("second", "minute", "month"):
        budget = _apply_window(budget, name, getattr(reading, name), moment, notes)
    if limited:
        return _close(budget, retry_after_ms, moment, jitter, notes), notes
    if budget.limited_in_a_row and moment.monotonic_ms >= budget.closed_until:
        notes.append(BudgetEvent("INFO", "budget.gate_opened", {"limited_in_a_row": budget.limited_in_a_row}))
        budget = replace(budget, limited_in_a_row=0)
    return budget, notes


def _apply_window(
    budget: Budget, name: str, told: WindowReading, moment: Moment, notes: list[BudgetEvent]
) -> Budget:
    """One window's limit and remaining calls."""
    if told.limit is not None and told.limit != getattr(budget.limits, name):
        budget = _correct_limit(budget, name, told.limit, moment, notes)
    limit = getattr(budget.limits, name)
    if limit is None or told.remaining is None:
        return budget
    if told.remaining > limit and not budget.contradicted:
        fields = {"window": name, "limit": limit, "remaining": told.remaining}
        notes.append(BudgetEvent("WARN", "budget.plan_contradicted", fields))
        budget = replace(budget, contradicted=True)
    if name == "second":
        return replace(budget, second=budget.second.reconcile(limit, told.remaining, moment.monotonic_ms))
    if name == "minute":
        return replace(budget, minute=budget.minute.reconcile(limit, told.remaining, moment.monotonic_ms))
    return _apply_month(budget, told.remaining, limit, moment, notes)


def _correct_limit(budget: Budget, name: str, told: int, moment: Moment, notes: list[BudgetEvent]) -> Budget:
    known = getattr(budget.limits, name)
    fields = {"window": name, "was": known, "told": told, "plan": getattr(budget.plan, name)}
    notes.append(BudgetEvent("WARN", "budget.limit_corrected", fields))
    month = budget.month
    if name == "month":
        month = replace(budget.month_at(moment), told=None)  # calls left of another limit show no turn
        if known is None:
            month = month.primed(moment, told, budget.limits.request_share)
    return replace(budget, limits=replace(budget.limits, **{name: told}), month=month)


def _apply_month(
    budget: Budget, remaining: int, limit: int, moment: Moment, notes: list[BudgetEvent]
) -> Budget:
    before = budget.month_at(moment)
    month = before.reconcile(remaining, limit, budget.limits.request_share)
    if month.rolled_over_at != before.rolled_over_at:
        notes.append(BudgetEvent("INFO", "budget.month_turned", {"remaining": remaining, "limit": limit}))
    low_in = budget.low_in
    if low_in != month.span.label and _is_low(remaining / limit, month.left_ratio()):
        low_in = month.span.label
        fields = {"remaining": remaining, "limit": limit, "month_ends_at": month.span.ends_at}
        notes.append(BudgetEvent("WARN", "budget.quota_low", fields))
    return replace(budget, month=month, low_in=low_in)


def _is_low(calls_left: float, time_left: float) -> bool:
    """Under a fifth of the limit, and not merely because the month is nearly over."""
    return calls_left < LOW_RATIO and calls_left < time_left / 2


def _close(
    budget: Budget, retry_after_ms: int | None, moment: Moment, jitter: float, notes: list[BudgetEvent]
) -> Budget:
    """After a 429."""
    was_open = moment.monotonic_ms >= budget.closed_until
    limited_in_a_row = budget.limited_in_a_row + was_open
    pause_ms = min(CLOSED_MAX_MS, retry_after_ms or 0)
    if was_open and (retry_after_ms is None or limited_in_a_row > 1):
        ceiling_ms = min(BACK_OFF_MAX_MS, BACK_OFF_MS * 2 ** min(limited_in_a_row, 20))
        pause_ms = max(pause_ms, int(jitter * ceiling_ms))
    closed_until = max(budget.closed_until, moment.monotonic_ms + pause_ms)
    fields = {
        "for_ms": closed_until - moment.monotonic_ms,
        "limited_in_a_row": limited_in_a_row,
        "retry_after_ms": retry_after_ms,
    }
    notes.append(BudgetEvent("WARN", "budget.gate_closed", fields))
    return replace(budget, limited_in_a_row=limited_in_a_row, closed_until=closed_until)
