"""Calculates how often tasks can afford to run, and why. Pure.

All tasks of an upstream are stretched by the same factor, so none pays for another's demand.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil

from tocsin.upstream.budget import Budget, Quota
from tocsin.upstream.moments import DAY_MS, MINUTE_MS, Moment
from tocsin.upstream.windows import PROBE_MS, Lane, lane_max

MONTH_MS = 30.44 * DAY_MS


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
