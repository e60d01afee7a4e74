"""A short history in which one storage call fails or is the last of its process."""

from collections.abc import Iterable
from dataclasses import replace

from simulation.disk import CallFault
from simulation.history import run_history
from simulation.plan import Event, Plan, draw_plan
from tocsin.settings import Settings

MINUTE_MS = 60_000
FAULTS: tuple[CallFault, ...] = ("fails", "killed before", "killed after")


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
        idle_s=1e9,
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
