"""Removes events from a plan as long as it still breaks the same promise."""

from collections.abc import Callable

from simulation.history import Report, run_history
from simulation.plan import Event, Plan

TRIES_MAX = 80


def shrunk(
    plan: Plan, broken: str, run: Callable[[Plan], Report] = run_history, tries_max: int = TRIES_MAX
) -> tuple[Plan, Report]:
    """Return the smallest plan found within this many tries, and how its history went.

    First the plan is cut off shortly after the violation. Then smaller and smaller parts of its events are left out.
    """
    report = run(plan)
    tries = 1

    def still_broken(candidate: Plan) -> Report | None:
        nonlocal tries
        if tries >= tries_max:
            return None
        tries += 1
        found = run(candidate)
        return found if any(each.name == broken for each in found.violations) else None

    at_s = next(each.at_s for each in report.violations if each.name == broken)
    later = {event for event in plan.events if event.at_s > at_s}
    if (found := still_broken(plan.without(later))) is not None:
        plan, report = plan.without(later), found
    part = max(1, len(plan.events) // 2)
    while tries < tries_max and plan.events:
        events, left_out = list(plan.events), False
        for start in range(0, len(events), part):
            chosen: set[Event] = set(events[start : start + part])
            if (found := still_broken(plan.without(chosen))) is not None:
                plan, report, left_out = plan.without(chosen), found, True
        if part == 1 and not left_out:
            break
        part = max(1, part // 2)
    return plan, report
