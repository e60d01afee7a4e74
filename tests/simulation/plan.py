"""The plan of what goes wrong and when: a list of events, drawn from a seed before anything runs.

Because the list is fixed, parts of it can be left out to see which events a failure needs. A long plan has weeks with
a few faults a day, where the others have dozens: between two faults the service has time to recover, months end, old
runs are removed, and rounds last up to a week.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Literal

from simulation.answers import with_receivers
from simulation.jobs import MODES, drawn_job
from simulation.machine import START_MS
from stacks_simulator.faults import ANY_REPLY_FAULTS, PAGE_FAULTS, SimulatedFault
from tocsin.settings import Settings

DAY_S = 86_400.0
MINUTE_MS = 60_000
RULED_SHARE, RULED_FROM_S = 0.7, 900.0  # of histories that have rounds from their start
TIGHT_SHARE, MONTH_END_SHARE = 0.4, 0.25  # with few calls a month, at the end of a month
SMALL_MONTHS = (600, 1_500)  # calls that an upstream grants, whatever the plan says
UNUSUAL_PLAN_SHARE = 0.15
USUAL_SHARE = 0.02  # of histories with the default cadences, which cost as much as all others
# Minutes between two runs of the tasks `feed`, `tenero` and `sweep`.
CADENCES = ((30, 120, 240), (60, 240, 360), (120, 480, 720))
SLOW_CADENCES = ((120, 240), (240, 360), (480, 720))
# How often each kind of event happens on a usual day.
RATES: Mapping[str, float] = {
    "upstream": 6.0,
    "kill": 2.0,
    "kill_at_commit": 1.5,
    "stop": 0.5,
    "reboot": 0.3,
    "jump": 0.5,
    "disk_full": 0.7,
    "disk_slow": 0.5,
    "sync_fails": 0.3,
    "pause": 0.7,
    "resume": 0.4,
    "refresh": 2.0,
    "reset": 0.3,
    "submit": 6.0,
    "push": 4.0,
    "reorg": 2.0,
    "burst": 0.7,
    "dust": 0.4,
    "lag": 1.5,
    "network_list": 0.3,
    "promote": 0.7,
    "settings": 0.4,
    "second_process": 0.2,
    "strange_answer": 1.5,
    "visit": 4.0,
}
# Drawn separately, so that the rest of a seed's history does not depend on them.
ROUND_RATES: Mapping[str, float] = {
    "round_rule": 0.7,
    "round_add": 1.2,
    "round_act": 5.0,
    "round_care": 1.5,
    "demote": 0.4,
    "market": 1.5,
}
OTHER_RATES: Mapping[str, float] = {
    "read": 8.0,
    "odd_request": 1.0,
    "odd_push": 1.0,
    "spoilt": 1.5,
    "recheck": 1.0,
    "receiver": 1.0,
    "hook": 1.0,
}
COMMAND_RATES: Mapping[str, float] = {"rehearse": 0.5, "explain": 2.0, "follow": 2.0, "omit": 0.7, "odd_push": 2.0}
TROUBLE_RATES: Mapping[str, float] = {"damage": 0.6, "account": 1.5, "hook_fault": 1.0, "crowd": 3.0, "confused": 3.0}
# What is wrong with the network's list: while its ETag is stuck or the list stands still, everything seems fine.
LIST_RATES: Mapping[str, float] = {"stuck_etag": 0.3, "stopped_list": 0.3, "wrong_page": 0.7}
JOB_RATES: Mapping[str, float] = {"job": 6.0, "site": 4.0}
JOBS_SHARE = 0.5  # of histories that have any
MONTH_ENDS_MS = 1_780_099_200_000  # a midnight, two days before a month ends
EVENTS_SHARE = 0.15
ROUNDS_S = (43_200, 86_400, 7 * 86_400)


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happens at a time of the history. `draw` seeds the decisions made only then."""

    at_s: float
    kind: str
    draw: int
    values: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __str__(self) -> str:
        shown = ", ".join(f"{name}={value}" for name, value in self.values.items())
        return f"{self.at_s:>10.1f} s  {self.kind}{f'  {shown}' if shown else ''}"


@dataclass(frozen=True, slots=True)
class World:
    """The initial state of a history."""

    wallets: int
    swaps_per_hour: float
    network_per_hour: float
    settings: Settings
    look_every_s: float
    calm_s: float  # at the end
    rounds_every_s: float = 3_600.0  # how often the service checks rounds, in addition to their ends
    start_ms: int = START_MS
    hiro_month: int | None = None  # how many calls the upstream really grants, if not the usual number
    tenero_month: int | None = None
    earlier_service: Literal["none", "today"] = "none"
    slow: bool = False  # only slow cadences, even when the settings change


@dataclass(frozen=True, slots=True)
class Plan:
    """A whole history."""

    seed: int
    days: float
    world: World
    events: tuple[Event, ...]

    def without(self, events: set[Event]) -> "Plan":
        return replace(self, events=tuple(event for event in self.events if event not in events))


def draw_plan(seed: int, days: float) -> Plan:
    """Draw the history of this seed."""
    rng = Random(f"{seed}:plan")
    world = World(
        wallets=rng.randrange(3, 8),
        swaps_per_hour=rng.choice((0.3, 1.0, 3.0)),
        network_per_hour=rng.choice((0.0, 2.0, 10.0)),
        settings=drawn_settings(rng, Settings()),
        look_every_s=rng.choice((900.0, 3_600.0)),
        calm_s=30 * 3_600.0,
    )
    rng.random()  # an earlier draw: without it, the histories of known seeds would change
    # Some days are quiet and some are terrible.
    scale = {kind: rate * rng.choice((0.0, 0.5, 1.0, 1.0, 2.0)) for kind, rate in RATES.items()}
    events = _drawn_events(rng, scale, days)
    rng = Random(f"{seed}:rounds")
    scale = {kind: rate * rng.choice((0.0, 1.0, 1.0, 2.0)) for kind, rate in ROUND_RATES.items()}
    events += _drawn_events(rng, scale, days)
    if days >= 1 and rng.random() < RULED_SHARE:
        events.append(Event(RULED_FROM_S, "round_rule", 0, _values("round_rule", rng)))
    rng = Random(f"{seed}:others")
    events += _drawn_events(rng, OTHER_RATES, days)
    settings = with_receivers(rng, world.settings)
    if rng.random() < TIGHT_SHARE:
        settings = replace(settings, hiro_plan_month=rng.choice((1_500, 6_000)))
    if rng.random() < TIGHT_SHARE:
        settings = replace(settings, tenero_plan_month=rng.choice((500, 3_000)))
    events += _drawn_events(Random(f"{seed}:commands"), COMMAND_RATES, days)
    settings = _with_other_plans(Random(f"{seed}:plans"), settings)
    start_ms = MONTH_ENDS_MS if rng.random() < MONTH_END_SHARE else START_MS
    rng = Random(f"{seed}:trouble")
    events += _drawn_events(rng, TROUBLE_RATES, days)
    events += _drawn_events(Random(f"{seed}:list"), LIST_RATES, days)
    if (jobs := Random(f"{seed}:jobs")).random() < JOBS_SHARE:
        events += _drawn_events(jobs, JOB_RATES, days)
    world = replace(
        world,
        settings=settings,
        start_ms=start_ms,
        hiro_month=rng.choice((None, None, None, *SMALL_MONTHS)),
        tenero_month=rng.choice((None, None, None, *SMALL_MONTHS)),
        earlier_service=rng.choice(("none", "none", "none", "today", "today")) if days >= 1 else "none",
    )
    return Plan(seed, days, world, tuple(sorted(events, key=lambda event: event.at_s)))


def _with_other_plans(rng: Random, settings: Settings) -> Settings:
    """Draw plans: some have no monthly limit, and some keys are shared with others."""
    draws = [rng.random() < UNUSUAL_PLAN_SHARE for _ in range(4)]
    return replace(
        settings,
        hiro_plan_month=None if draws[0] else settings.hiro_plan_month,
        tenero_plan_month=None if draws[1] else settings.tenero_plan_month,
        hiro_plan_cap=draws[2],
        tenero_plan_cap=draws[3],
    )


def _drawn_events(rng: Random, scale: Mapping[str, float], days: float) -> list[Event]:
    return [
        Event(at_s, kind, rng.randrange(2**32), _values(kind, rng))
        for kind, rate in scale.items()
        for at_s in _arrivals(rng, rate, days)
    ]


def _arrivals(rng: Random, per_day: float, days: float) -> list[float]:
    times, at_s = [], 600.0
    while per_day > 0:
        at_s += rng.expovariate(per_day / DAY_S)
        if at_s >= days * DAY_S:
            break
        times.append(round(at_s, 3))
    return times


def drawn_settings(rng: Random, now: Settings, *, slow: bool = False) -> Settings:
    """Draw other cadences, plans and slices. Slow ones are drawn more often, so that days are cheap to simulate."""
    if not slow and rng.random() < USUAL_SHARE:
        feed, prices, sweep = MINUTE_MS, 5 * MINUTE_MS, 15 * MINUTE_MS
    else:
        choices = SLOW_CADENCES if slow else CADENCES
        feed, prices, sweep = (rng.choice(each) * MINUTE_MS for each in choices)
    feed_enabled, key = rng.random() < 0.85, "a-key-for-hiro" if rng.random() < 0.8 else None
    return replace(
        now,
        feed_enabled=feed_enabled,
        feed_cadence=feed,
        tenero_cadence=prices,
        tenero_slice=min(prices * 4 // 5, 4 * MINUTE_MS),
        sweep_cadence=sweep,
        sweep_slice=min(sweep * 9 // 10, 14 * MINUTE_MS),
        hiro_api_key=key,
        hiro_plan_minute=rng.choice((50, 500, 500)),
        breaker_failures=rng.choice((0, 2, 6)),
        chainhook_id=now.chainhook_id if key else None,  # Hiro shows a hook only to its owner
        chainhook_reenable=now.chainhook_reenable and key is not None,
    )


def _values(kind: str, rng: Random) -> dict[str, Any]:
    make = _DRAWN.get(kind)
    return {} if make is None else make(rng)


def _down_s(rng: Random) -> float:
    """Draw how long the process is down: usually a supervisor restarts it at once, sometimes it takes hours."""
    return round(rng.choice((0.1, 1.0, 5.0, 60.0, rng.uniform(60, 1800), rng.uniform(1800, 30_000))), 1)


def _upstream(rng: Random) -> dict[str, Any]:
    return {
        "fault": rng.choice(ANY_REPLY_FAULTS),
        "upstream": rng.choice(("hiro", "hiro", "tenero", None)),
        "path": rng.choice(("", "", "/transactions", "tx/multiple", "/nonces")),
        "share": rng.choice((0.2, 0.7, 1.0)),
        "for_s": round(rng.choice((30.0, 300.0, rng.uniform(300, 7_200))), 1),
        "status": rng.choice((500, 502, 503, 401, 404, 302)),
        "retry_after": rng.choice((None, 1, 30, 300, 3_000)),
        "as_date": rng.random() < 0.3,
    }


def upstream_fault(values: Mapping[str, Any], now_ms: int) -> SimulatedFault:
    return SimulatedFault(
        kind=values["fault"],
        upstream=values["upstream"],
        path=values["path"],
        share=values["share"],
        from_ms=now_ms,
        until_ms=now_ms + int(values["for_s"] * 1000),
        status=values["status"],
        retry_after=values["retry_after"],
        as_date=values["as_date"],
    )


def _confused(who: tuple[str, str], rng: Random) -> dict[str, Any]:
    return {
        "upstream": who[0],
        "task": who[1],
        "only": rng.choice(("contradiction", "contradiction", "contradiction", "value", "moved")),
        "share": rng.choice((0.4, 1.0)),
        "for_s": round(rng.uniform(300, 1_800), 1),
        "tries": rng.choice((2, 4)),
    }


_DRAWN: Mapping[str, Callable[[Random], dict[str, Any]]] = {
    "upstream": _upstream,
    "strange_answer": lambda rng: {
        "fault": rng.choice(("wrong_types", "truncated", "wrong_json", "huge")),
        "upstream": rng.choice(("hiro", "tenero")),
        "path": "",
        "share": rng.choice((0.1, 0.5)),
        "for_s": round(rng.uniform(60, 1_200), 1),
        "status": 503,
        "retry_after": None,
        "as_date": False,
    },
    "kill": lambda rng: {"callbacks": rng.randrange(400), "down_s": _down_s(rng)},
    "kill_at_commit": lambda rng: {
        "storage_calls": rng.randrange(60),
        "after": rng.random() < 0.5,
        "down_s": _down_s(rng),
    },
    "stop": lambda rng: {"down_s": _down_s(rng)},
    "reboot": lambda rng: {"down_s": round(rng.uniform(20, 3_000), 1)},
    "jump": lambda rng: {"by_s": rng.choice((-1, 1)) * rng.choice((2, 70, 400, rng.randrange(400, 7_200), 100_000))},
    "disk_full": lambda rng: {
        "for_s": round(rng.choice((5.0, 90.0, rng.uniform(90, 4_000))), 1),
        "share": rng.choice((0.3, 1.0, 1.0)),
    },
    "disk_slow": lambda rng: {"for_s": round(rng.uniform(60, 2_000), 1), "slow_s": rng.choice((0.05, 0.8))},
    "sync_fails": lambda rng: {"down_s": _down_s(rng)},
    "pause": lambda rng: {"for_s": rng.choice((60, 900, 5_000, 40_000))},
    "refresh": lambda rng: {"task": rng.choice(("all", "tenero", "feed", "sweep")), "times": rng.choice((1, 1, 3))},
    "submit": lambda rng: {"count": rng.choice((1, 1, 2, 5))},
    "push": lambda rng: {"count": rng.choice((1, 3, 12)), "again": rng.random() < 0.4, "rollback": rng.random() < 0.3},
    "reorg": lambda rng: {"depth": rng.choice((1, 2, 6, 20, 90, 400))},
    "burst": lambda rng: {"count": rng.choice((10, 60, 110))},
    "dust": lambda rng: {"count": rng.choice((30, 120, 300))},
    "lag": lambda rng: {"index_s": rng.choice((0, 30, 300)), "list_s": rng.choice((0, 0, 20, 200))},
    "network_list": lambda rng: {"mode": rng.choice(("served", "served", "absent", "gone"))},
    "round_rule": lambda rng: {
        "period_s": rng.choice((14_400, 43_200, 86_400)),
        "grace_s": rng.choice((0, 900, 3_600)),
        "begun": round(rng.random(), 3),
        "prefix": rng.choice(("week", "day")),
    },
    "round_add": lambda rng: {
        "starts_in_s": rng.choice((-30_000, -7_200, 0, 1_800)),
        "length_s": rng.choice((3_600, 7_000, 20_000, 60_000)),
        "grace_s": rng.choice((0, 60, 900, 3_600)),
    },
    "round_act": lambda rng: {
        "action": rng.choice(
            ("close", "snapshot", "finalize", "reopen", "reopen", "price", "price", "flag", "pay", "void")
        ),
        "dry_run": rng.random() < 0.25,
    },
    "spoilt": lambda rng: {
        "upstream": rng.choice(("hiro", "hiro", "tenero")),
        "share": rng.choice((0.05, 0.3, 1.0)),
        "for_s": round(rng.uniform(60, 7_200), 1),
    },
    "receiver": lambda rng: {"mode": rng.choice(("takes", "takes", "refuses", "silent", "cut"))},
    "hook": lambda rng: {
        "state": rng.choice(("streaming", "streaming", "interrupted", "interrupted", "expired", "disabled", "deleted"))
    },
    "hook_fault": lambda rng: {
        "fault": rng.choice(("status", "status", "limited", "hang")),
        "upstream": "hiro",
        "path": rng.choice(("/chainhooks", "/enabled", "/enabled")),
        "share": 1.0,
        "for_s": round(rng.uniform(3_600, 20_000), 1),
        "status": rng.choice((404, 503, 302)),
        "retry_after": rng.choice((30, 3_000)),
        "as_date": False,
    },
    "account": lambda rng: {
        "upstream": rng.choice(("hiro", "hiro", "tenero")),
        "what": rng.choice(("others", "others", "new_month", "new_month", "key_ignored")),
        "share": rng.choice((0.3, 0.9, 1.0)),
    },
    "crowd": lambda rng: {
        "then": rng.choice(("reset", "leave", "probe", "probe", "look")),
        "count": rng.choice((2, 6, 12)),
        "share": rng.choice((0.3, 0.6, 1.0)),
    },
    "confused": lambda rng: _confused(rng.choice((("hiro", "feed"), ("hiro", "sweep"), ("tenero", "tenero"))), rng),
    "damage": lambda rng: {
        "what": rng.choice(("state", "state", "state", "run", "run-log", "day", "audit", "prices")),
        "count": rng.choice((1, 3)),
        "whole": rng.random() < 0.5,
        "down_s": _down_s(rng),
    },
    "job": drawn_job,
    "site": lambda rng: {"mode": rng.choice(MODES)},
    "rehearse": lambda rng: {"form": rng.choice(("lines", "results")), "mistakes": rng.choice((1, 5))},
    "explain": lambda rng: {"saved": rng.random() < 0.5, "odd": rng.random() < 0.4},
    "follow": lambda rng: {"what": rng.choice(("news", "events", "pages", "pages", "allowlist", "instance"))},
    "stuck_etag": lambda rng: {"for_s": round(rng.uniform(3_600, 80_000), 1)},
    "stopped_list": lambda rng: {"for_s": round(rng.uniform(600, 40_000), 1)},
    "wrong_page": lambda rng: {
        "fault": rng.choice(PAGE_FAULTS),
        "times": rng.choice((1, 1, 3)),
        "transactions": rng.choice((60, 130, 250)),
    },
    "omit": lambda rng: {"share": rng.choice((0.0, 0.05, 0.3))},
    "market": lambda rng: {"what": rng.choice(("thin", "untold", "spike", "crash", "usual", "usual"))},
    "settings": lambda rng: {
        "restart": rng.random() < 0.5,
        "earlier_start": rng.random() < 0.2,
        "longer_list": rng.random() < 0.2,
    },
}


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
