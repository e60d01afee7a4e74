"""Applies an upstream's answer to its budget: limits, counts, back-off. Pure.

**Headers.** A reported limit replaces the known one, whether higher or lower, and an event reports it. Only a plan
that is a cap is never exceeded. If fewer calls remain than we counted, others made the difference. If more remain, our
own count stands. If more remain than the limit we know, and the upstream reports no limit, an event reports it and the
plan stands.

**Back-off.** A 429 closes the limiter for all callers. It stays closed for `Retry-After` (an hour at most), or for a
random part of a span that doubles with every new 429, whichever is longer; a first `Retry-After` is used as it is. A
429 to a call that was under way when the limiter closed does not lengthen the span. Afterwards, one call at a time
goes out until one is not limited, so the limiter cannot stay closed. A probe is one call through a closed limiter, at
an operator's request: if it is not limited, the limiter opens.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from tocsin.bindings import JSON, Level
from tocsin.budget.budget import CLOSED_MAX_MS, Budget, Quota
from tocsin.budget.limiter import LimitReading, WindowReading
from tocsin.moments import Moment

BACK_OFF_MS = 1_000  # the first 429 already doubles it
BACK_OFF_MAX_MS = 300_000
LOW_RATIO = 0.2  # of the month's limit: below it the operator is notified

WindowName: TypeAlias = Literal["second", "minute", "month"]

_WINDOWS: tuple[WindowName, ...] = ("second", "minute", "month")


@dataclass(frozen=True, slots=True)
class BudgetEvent:
    """A change of a budget, for the log and for the event stream."""

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
    probing: bool = False,
) -> tuple[Budget, list[BudgetEvent]]:
    """The budget after a call has ended. `reading` holds the limits in its answer; None if there was no answer."""
    events: list[BudgetEvent] = []
    budget = replace(budget, in_flight=max(0, budget.in_flight - 1), probing=budget.probing and not probing)
    if reading is None:
        return budget, events
    budget = replace(budget, reported=reading)
    for name in _WINDOWS:
        budget = _apply_window(budget, name, getattr(reading, name), moment, events)
    if limited:
        return _close(budget, retry_after_ms, moment, jitter, events), events
    if budget.limited_in_a_row and (probing or moment.monotonic_ms >= budget.closed_until):
        fields = {"limited_in_a_row": budget.limited_in_a_row}
        events.append(BudgetEvent("INFO", "budget.limiter_opened", fields))
        budget = replace(
            budget, limited_in_a_row=0, closed_until=min(budget.closed_until, moment.monotonic_ms)
        )
    return budget, events


def _apply_window(
    budget: Budget, name: WindowName, reading: WindowReading, moment: Moment, events: list[BudgetEvent]
) -> Budget:
    """Apply one window's limit and remaining calls."""
    reported = _capped(budget.plan, name, reading.limit)
    if reported is not None and reported != getattr(budget.limits, name):
        budget = _correct_limit(budget, name, reported, moment, events)
    limit: int | None = getattr(budget.limits, name)
    if limit is None or reading.remaining is None:
        return budget
    if reading.remaining > limit and not budget.contradicted:
        fields: dict[str, JSON] = {"window": name, "limit": limit, "remaining": reading.remaining}
        events.append(BudgetEvent("WARN", "budget.plan_contradicted", fields))
        budget = replace(budget, contradicted=True)
    if name == "second":
        second = budget.second.reconcile(limit, reading.remaining, moment.monotonic_ms)
        return replace(budget, second=second)
    if name == "minute":
        minute = budget.minute.reconcile(limit, reading.remaining, moment.monotonic_ms)
        return replace(budget, minute=minute)
    return _apply_month(budget, reading.remaining, limit, moment, events)


def _capped(plan: Quota, name: WindowName, reported: int | None) -> int | None:
    """A reported limit; if the plan is a cap, at most that."""
    planned: int | None = getattr(plan, name)
    return (
        min(reported, planned) if plan.is_cap and planned is not None and reported is not None else reported
    )


def _correct_limit(
    budget: Budget, name: WindowName, reported: int, moment: Moment, events: list[BudgetEvent]
) -> Budget:
    known: int | None = getattr(budget.limits, name)
    fields: dict[str, JSON] = {
        "window": name,
        "was": known,
        "reported": reported,
        "plan": getattr(budget.plan, name),
    }
    events.append(BudgetEvent("WARN", "budget.limit_corrected", fields))
    month = budget.month
    if name == "month":
        month = replace(budget.month_at(moment), reported=None)  # of another limit, so no sign of a rollover
        if known is None:
            month = month.primed(moment, reported, budget.limits.request_share)
    changed: dict[str, Any] = {name: reported}
    return replace(budget, limits=replace(budget.limits, **changed), month=month)


def _apply_month(
    budget: Budget, remaining: int, limit: int, moment: Moment, events: list[BudgetEvent]
) -> Budget:
    before = budget.month_at(moment)
    month = before.reconcile(remaining, limit, budget.limits.request_share)
    fields: dict[str, JSON] = {"remaining": remaining, "limit": limit}
    if month.rolled_over_at != before.rolled_over_at:
        events.append(BudgetEvent("INFO", "budget.month_rolled_over", fields))
    low_in = budget.low_in
    if low_in != month.span.label and _is_low(remaining / limit, month.time_left_ratio()):
        low_in = month.span.label
        fields = {**fields, "month_ends_at": month.span.ends_at}
        events.append(BudgetEvent("WARN", "budget.quota_low", fields))
    return replace(budget, month=month, low_in=low_in)


def _is_low(calls_left: float, time_left: float) -> bool:
    """Whether less than a fifth of the limit is left, and not merely because the month is nearly over."""
    return calls_left < LOW_RATIO and calls_left < time_left / 2


def _close(
    budget: Budget, retry_after_ms: int | None, moment: Moment, jitter: float, events: list[BudgetEvent]
) -> Budget:
    """Close the limiter after a 429."""
    was_open = moment.monotonic_ms >= budget.closed_until
    limited_in_a_row = budget.limited_in_a_row + was_open
    pause_ms = min(CLOSED_MAX_MS, retry_after_ms or 0)
    if was_open and (retry_after_ms is None or limited_in_a_row > 1):
        ceiling_ms = min(BACK_OFF_MAX_MS, BACK_OFF_MS * 2 ** min(limited_in_a_row, 20))
        pause_ms = max(pause_ms, int(jitter * ceiling_ms))
    closed_until = max(budget.closed_until, moment.monotonic_ms + pause_ms)
    fields: dict[str, JSON] = {
        "for_ms": closed_until - moment.monotonic_ms,
        "limited_in_a_row": limited_in_a_row,
        "retry_after_ms": retry_after_ms,
    }
    events.append(BudgetEvent("WARN", "budget.limiter_closed", fields))
    return replace(budget, limited_in_a_row=limited_in_a_row, closed_until=closed_until)
