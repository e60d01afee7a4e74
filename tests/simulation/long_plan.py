"""Weeks with a few faults a day, where the other histories have dozens.

Between two faults the service has time to recover. Months end, old runs are removed, and rounds last up to a week.
"""

from dataclasses import replace
from random import Random

from simulation.plan import Event, Plan, draw_plan, drawn_settings

EVENTS_SHARE = 0.15
ROUNDS_S = (43_200, 86_400, 7 * 86_400)


def draw_long_plan(seed: int, days: float) -> Plan:
    """Draw the long history of this seed."""
    rng, plan = Random(f"{seed}:long"), draw_plan(seed, days)
    world = replace(
        plan.world,
        settings=drawn_settings(rng, plan.world.settings, slow=True),
        slow=True,
        look_every_s=rng.choice((3_600.0, 7_200.0)),
        rounds_every_s=14_400.0,
    )
    events = tuple(_with_long_rounds(event, rng) for event in plan.events if rng.random() < EVENTS_SHARE)
    return replace(plan, world=world, events=events)


def _with_long_rounds(event: Event, rng: Random) -> Event:
    if event.kind != "round_rule":
        return event
    return replace(event, values={**event.values, "period_s": rng.choice(ROUNDS_S)})
