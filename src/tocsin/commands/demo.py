"""The demo: the whole service against the bundled simulator, on one port, with a key of its own.

The simulator is mounted under `/simulator` of the same server and is called over HTTP like the real upstreams. Cadences
are short, so that there is something to see; everything else is the real service.
"""

import asyncio
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from starlette.routing import BaseRoute, Mount, Route

from tocsin.access_keys import AccessKey
from tocsin.bindings import Clock
from tocsin.commands.data_files import command_logger
from tocsin.commands.demo_crash import CrashRoute, crash
from tocsin.commands.demo_directory import opened_demo
from tocsin.commands.demo_history import seed_history
from tocsin.commands.import_agents import import_rows
from tocsin.competition.agent_rows import lines_of
from tocsin.competition.rules import floors_of
from tocsin.rounds.recurring import round_at
from tocsin.rounds.round_store import ADD, SET_RULE, added_values, compact, iso_time
from tocsin.settings import Settings
from tocsin.shapes.round_views import RoundRule
from tocsin.simulator.faults import BadTimes
from tocsin.simulator.http_app import simulator_app
from tocsin.simulator.serve import SimulatorOptions, build_simulator
from tocsin.simulator.simulator import Simulator
from tocsin.simulator.traffic import EVERYDAY_KINDS, Traffic
from tocsin.simulator.wallets import import_lines

PATH = "/simulator"
WALLETS = 60
HISTORY_HOURS = 21 * 24
DAY_S = 86_400
PAST = Traffic(swaps=3.0, strangers=1.0, transfers=1.0, floods=0.01, reorgs=0.01, kinds=EVERYDAY_KINDS)
PRESENT = Traffic(swaps=1500.0, kinds=EVERYDAY_KINDS)
BAD_TIMES = BadTimes(seed=1, every_s=60.0, lasting_s=20.0, share=0.8)


@dataclass(frozen=True, slots=True)
class Demo:
    """Everything that turns the service into a demo."""

    settings: Settings
    adjusted: Callable[[Settings], Settings]  # what a reload makes of the settings
    routes: list[BaseRoute]


def prepare(settings: Settings, url: str, port: int, data_dir: str, *, bad_times: bool, clock: Clock) -> Demo:
    """A new demo in this directory, or the one that crashed there. Raises `StartError` if it must not be used."""
    opened = opened_demo(Path(data_dir), now=clock.now(), logger=command_logger(settings))
    with opened as (begun, connection):
        simulator = build(clock, begun.began_at, bad_times=bad_times)
        settings = demo_settings(settings, url, data_dir, begun.key)
        if begun.is_new:  # before the first sweep
            register_agents(connection, simulator)
            add_past(connection, settings, simulator, begun.began_at)
    kill = CrashRoute(settings.admin_key, lambda: crash(data_dir, port)).kill
    routes = [Route(f"{PATH}/_control/kill", kill, methods=["POST"]), mount(simulator, settings.admin_key)]
    return Demo(settings, lambda changed: demo_settings(changed, url, data_dir, begun.key), routes)


def demo_settings(settings: Settings, url: str, data_dir: str, key: str) -> Settings:
    """The settings with short cadences, pointed at the simulator, with the free plans of both upstreams.

    The plans do not pay for these cadences, so the demo shows how they are stretched.
    """
    return replace(
        settings,
        admin_key=settings.admin_key or (AccessKey("admin", "operator", key),),
        hiro_api_url=f"{url}{PATH}/hiro",
        tenero_api_url=f"{url}{PATH}/tenero",
        hiro_api_key=settings.hiro_api_key or "demo-key",
        data_dir=data_dir,
        tenero_cadence=10_000,
        tenero_slice=8_000,
        feed_cadence=10_000,
        sweep_cadence=60_000,
        sweep_slice=50_000,
        heartbeat_url=None,  # a demo must not call anybody outside
        alert_url=None,
        chainhook_id=None,
    )


def build(clock: Clock, began_at: int, *, bad_times: bool = False) -> Simulator:
    """A chain and a market: quiet for three weeks before the demo began, then busy; with bad times also unreliable."""
    options = SimulatorOptions(
        seed=1,
        wallets=WALLETS,
        history_hours=HISTORY_HOURS,
        traffic=PAST,
        more_traffic=PRESENT,
        began_at=began_at,
    )
    simulator = build_simulator(options, clock)
    if bad_times:
        simulator.faults.schedule = BAD_TIMES
    return simulator


def mount(simulator: Simulator, control_keys: tuple[AccessKey, ...]) -> Mount:
    """The simulator's routes; controlling it requires the demo's own key."""
    return Mount(PATH, simulator_app(simulator, asyncio.Event(), control_keys))


def add_past(connection: sqlite3.Connection, settings: Settings, simulator: Simulator, now: int) -> None:
    """Add weekly rounds, one that has ended and one that is running, and the history that they are computed from."""
    starts_at = now // 1000 - 12 * DAY_S
    prizes = {"overall_pnl": 50_000, "volume": 25_000, "return": 25_000}
    rule = RoundRule(starts_at - starts_at % DAY_S, rewards=prizes)
    last_week = round_at(rule, 0, floors_of(settings))
    with connection:
        connection.execute(ADD, added_values(last_week, now))
        connection.execute(SET_RULE, (compact(rule.to_json()), "demo", iso_time(now)))
    seed_history(connection, simulator, [last_week.ends_at], now)


def register_agents(connection: sqlite3.Connection, simulator: Simulator) -> None:
    """Register the chain's wallets as agents."""
    report = import_rows(connection, lines_of(import_lines(simulator.chain.wallets).splitlines()))
    assert not report.refused, report.refused
