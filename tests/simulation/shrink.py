"""Histories cut down: to the events that break a promise, or to one storage call that fails."""

from collections.abc import Callable, Iterable
from dataclasses import replace

from simulation.history import Report, run_history
from simulation.machine import CallFault
from simulation.plan import Event, Plan, draw_plan
from tocsin.settings import Settings

TRIES_MAX = 80
MINUTE_MS = 60_000
FAULTS: tuple[CallFault, ...] = ("fails", "killed before", "killed after")


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


def short_plan() -> Plan:
    """Return a plan of fourteen minutes: tasks run, swaps are made, submitted and pushed, and an operator pauses.

    A round ends in the sixth minute, at a price that an operator sets: the price series is shorter than an hour.
    """
    plan = draw_plan(1, 0.24 / 24)
    settings = replace(
        Settings(),
        hiro_api_key="a-key-for-hiro",
        feed_cadence=3 * MINUTE_MS,
        tenero_slice=4 * MINUTE_MS,
        tenero_cadence=5 * MINUTE_MS,
        sweep_cadence=10 * MINUTE_MS,
        sweep_slice=9 * MINUTE_MS,
    )
    world = replace(
        plan.world,
        wallets=3,
        swaps_per_hour=40.0,
        network_per_hour=0.0,
        settings=settings,
        calm_s=900.0,  # each task runs at least once more, the feed five times
        rounds_every_s=300.0,
    )
    events = (
        Event(20.0, "round_add", 7, {"starts_in_s": -7_200, "length_s": 7_500, "grace_s": 30}),
        Event(40.0, "round_act", 8, {"action": "price", "dry_run": False}),
        Event(200.0, "submit", 1, {"count": 2}),
        Event(230.0, "push", 2, {"count": 3, "again": True, "rollback": False}),
        Event(300.0, "pause", 3, {"for_s": 60}),
        Event(380.0, "reorg", 4, {"depth": 6}),
        Event(450.0, "refresh", 5, {"task": "feed", "times": 1}),
        Event(520.0, "resume", 6),
    )
    return replace(plan, world=world, events=events)


def broken_by(fault: CallFault, numbers: Iterable[int]) -> dict[int, str]:
    """Return what breaks when each numbered call has this fault; empty if nothing does."""
    broken = {}
    for number in numbers:
        report = run_history(short_plan(), {number: fault})
        if report.violations:
            broken[number] = str(report.violations[0])
    return broken
