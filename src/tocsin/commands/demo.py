"""The demo: the whole service against the bundled simulator, on one port, with a key of its own.

The simulator is mounted under `/simulator` of the same server and is called over HTTP like the real upstreams. Cadences
are short, so that there is something to see; everything else is the real service. A new demo has a past, as if the
service had been running all along: prices and the board for every hour, and prices every five minutes before the end of
a round.

Its console can crash it: the process is replaced at once, as with `kill -9` and a restart. Nothing is flushed, closed
or reported. The new process has the same id, so it stays attached to the terminal. It uses the previous one's data
directory, key and chain: a chain depends only on its seed and its start time.
"""

import asyncio
import json
import os
import sqlite3
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route

from holdfast.types import Clock
from stacks_simulator.faults import BadTimes
from stacks_simulator.http_app import refusal, simulator_app
from stacks_simulator.serve import SimulatorOptions, build_simulator
from stacks_simulator.simulator import Simulator
from stacks_simulator.tokens import TOKENS_BY_ID, TRADED_TOKENS, walk
from stacks_simulator.traffic import EVERYDAY_KINDS, Traffic
from stacks_simulator.truth import TrueSwap
from stacks_simulator.wallets import import_lines
from tocsin.commands.files import command_logger, opened_demo, tell_commands
from tocsin.commands.rows import import_rows
from tocsin.prices.price import floors_of
from tocsin.prices.store import peg_of
from tocsin.rounds.actions import round_at
from tocsin.rounds.round import RoundRule
from tocsin.rounds.store import SQL as ROUNDS
from tocsin.rounds.store import added_values, compact, iso_time
from tocsin.settings import AccessKey, Settings, matching_key
from tocsin.swaps.agents import lines_of
from tocsin.text import decimal_of_float, decimal_text

PATH = "/simulator"
WALLETS = 60
HISTORY_HOURS = 12 * 24
DAY_S = 86_400
TRAFFIC = Traffic(
    swaps=12.0, strangers=1.0, transfers=1.0, floods=0.01, reorgs=0.01, kinds=EVERYDAY_KINDS, with_styles=True
)
BAD_TIMES = BadTimes(seed=1, every_s=60.0, lasting_s=20.0, share=0.8)
MINUTE_MS = 60_000
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
LIQUIDITY_USD, VOLUME_USD = "250000", "18000"
PRICED = {token.id for token in TRADED_TOKENS if token.quoting in {"number", "text", "unlisted"}}

_ADD = "INSERT INTO price_tokens (token) VALUES (?) ON CONFLICT (token) DO NOTHING"
_POINT = """
INSERT INTO price_points (token, at, price_usd, decimals, source, liquidity_usd, volume_usd)
SELECT id, ?, ?, ?, 'tenero', ?, ? FROM price_tokens WHERE token = ? ON CONFLICT (token, at) DO NOTHING"""
_DAY = """
INSERT INTO agent_days (day, agent_id, last_hour, last_point, points) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (day, agent_id) DO NOTHING"""


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
    tell_commands(Path(data_dir), port, settings)
    kill = crash_route(settings.admin_key, lambda: crash(port))
    routes = [kill, mount(simulator, settings.admin_key)]
    return Demo(settings, lambda changed: demo_settings(changed, url, data_dir, begun.key), routes)


def demo_settings(settings: Settings, url: str, data_dir: str, key: str) -> Settings:
    """The settings pointed at the simulator, with the shortest cadences that the plans of both upstreams pay for."""
    return replace(
        settings,
        admin_key=settings.admin_key or (AccessKey("admin", "operator", key),),
        hiro_api_url=f"{url}{PATH}/hiro",
        tenero_api_url=f"{url}{PATH}/tenero",
        hiro_api_key=settings.hiro_api_key or "demo-key",
        data_dir=data_dir,
        tenero_cadence=60_000,
        tenero_slice=50_000,
        feed_cadence=30_000,
        sweep_cadence=300_000,
        sweep_slice=250_000,
        hiro_plan_minute=500,
        heartbeat_url=None,  # a demo must not call anybody outside
        alert_url=None,
        chainhook_id=None,
    )


def build(clock: Clock, began_at: int, *, bad_times: bool = False) -> Simulator:
    """A chain and a market with twelve days of history; with bad times, upstreams that fail."""
    options = SimulatorOptions(seed=1, wallets=WALLETS, history_hours=HISTORY_HOURS, traffic=TRAFFIC, began_at=began_at)
    simulator = build_simulator(options, clock)
    if bad_times:
        simulator.faults.schedule = BAD_TIMES
    return simulator


def mount(simulator: Simulator, control_keys: tuple[AccessKey, ...]) -> Mount:
    """The simulator's routes; controlling it requires the demo's own key."""
    return Mount(PATH, simulator_app(simulator, asyncio.Event(), partial(is_one_of, control_keys)))


def add_past(connection: sqlite3.Connection, settings: Settings, simulator: Simulator, now: int) -> None:
    """Add weekly rounds, one that has ended and one that is running, and the history that they are computed from."""
    starts_at = now // 1000 - 11 * DAY_S
    prizes = {"overall_pnl": 50_000, "volume": 25_000, "return": 25_000}
    rule = RoundRule(starts_at - starts_at % DAY_S, rewards=prizes)
    last_week = round_at(rule, 0, floors_of(settings))
    with connection:
        connection.execute(ROUNDS["add_round"], added_values(last_week, now))
        connection.execute(ROUNDS["set_rule"], (compact(rule.to_json()), "demo", iso_time(now)))
    seed_history(connection, simulator, [last_week.ends_at], now)


def register_agents(connection: sqlite3.Connection, simulator: Simulator) -> None:
    """Register the chain's wallets as agents."""
    report = import_rows(connection, lines_of(import_lines(simulator.chain.wallets).splitlines()))
    assert not report.refused, report.refused


def crash(port: int) -> None:
    """Replace this process with a new one on the same port. Does not return."""
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:], f"--port={port}"])  # noqa: S606 - our own command


def is_one_of(keys: Sequence[AccessKey], sent: str) -> bool:
    return matching_key(sent, keys) is not None


def crash_route(keys: tuple[AccessKey, ...], crash: Callable[[], object]) -> Route:
    """`POST /_control/kill`: for callers that may control the simulator."""

    async def kill(request: Request) -> Response:
        refused = refusal(request, partial(is_one_of, keys))
        if refused is None:
            crash()
        return refused or Response()  # without a refusal, in a test only

    return Route(f"{PATH}/_control/kill", kill, methods=["POST"])


def seed_history(connection: sqlite3.Connection, simulator: Simulator, ends: Sequence[int], now: int) -> None:
    """Write the history before the first sweep, which finds the same swaps. `ends` are the ends of rounds (seconds)."""
    chain = simulator.chain
    with connection:
        connection.executemany(_ADD, [(token,) for token in sorted(PRICED)])
        connection.executemany(_POINT, _points(chain.start_ms, ends, now))
        connection.executemany(_DAY, _days(simulator, chain.start_ms, now))


def _points(start_ms: int, ends: Sequence[int], now: int) -> Iterator[tuple[int, str, int, str, str, str]]:
    times = set(range(start_ms - start_ms % HOUR_MS, now - HOUR_MS, HOUR_MS))
    for end in ends:
        times |= {end * 1000 - minutes * MINUTE_MS for minutes in range(0, 65, 5)}
    for token_id in sorted(PRICED):
        token = TOKENS_BY_ID[token_id]
        for at in sorted(at for at in times if at < now):
            price = decimal_text(decimal_of_float(walk(token, at)))
            yield at, price, token.decimals, LIQUIDITY_USD, VOLUME_USD, token_id


def _days(simulator: Simulator, start_ms: int, now: int) -> Iterator[tuple[int, int, int, str, str]]:
    """The board at each time, as rows of `agent_days`."""
    agent_of = {
        wallet.address: wallet.erc8004_agent_id for wallet in simulator.chain.wallets if wallet.tier == "eligible"
    }
    swaps = sorted(simulator.truth(), key=lambda swap: swap.burn_block_time)
    rows: dict[tuple[int, int], list[str]] = {}
    hours: dict[tuple[int, int], int] = {}
    positions: dict[int, _Position] = {}
    done = 0
    first = start_ms - start_ms % HOUR_MS + HOUR_MS
    for at in range(first, now - HOUR_MS, HOUR_MS):
        while done < len(swaps) and swaps[done].burn_block_time * 1000 < at:
            agent_id = agent_of[swaps[done].sender]
            assert agent_id is not None
            positions.setdefault(agent_id, _Position()).add(swaps[done])
            done += 1
        values = {agent_id: position.values(at) for agent_id, position in positions.items()}
        ranked = sorted(values, key=lambda agent_id: (-values[agent_id][1], agent_id))
        for rank, agent_id in enumerate(ranked, 1):
            volume, pnl = values[agent_id]
            position = positions[agent_id]
            point = [at % DAY_MS // MINUTE_MS, rank, position.trades, volume, pnl, None, position.uncounted]
            key = (at // DAY_MS, agent_id)
            rows.setdefault(key, []).append(json.dumps(point, separators=(",", ":")))
            hours[key] = at % DAY_MS // HOUR_MS
    for (day, agent_id), points in rows.items():
        yield day, agent_id, hours[day, agent_id], points[-1], ",".join(points)


class _Position:
    """The tokens with a price that an agent has given and received so far."""

    def __init__(self) -> None:
        self.trades = 0
        self.uncounted = 0
        self._given: dict[str, int] = {}
        self._received: dict[str, int] = {}

    def add(self, swap: TrueSwap) -> None:
        self.trades += 1
        if _has_price(swap.token_in) and _has_price(swap.token_out):
            self._given[swap.token_in] = self._given.get(swap.token_in, 0) + swap.amount_in
            self._received[swap.token_out] = self._received.get(swap.token_out, 0) + swap.amount_out
        else:
            self.uncounted += 1

    def values(self, at: int) -> tuple[int, int]:
        """Volume and P&L in cents, at the prices of that time."""
        given = sum(_usd(token, amount, at) for token, amount in self._given.items())
        received = sum(_usd(token, amount, at) for token, amount in self._received.items())
        return round(given * 100), round((received - given) * 100)


def _has_price(token_id: str) -> bool:
    return token_id in PRICED or peg_of(token_id) is not None


def _usd(token_id: str, amount: int, at: int) -> float:
    token, peg = TOKENS_BY_ID[token_id], peg_of(token_id)
    return float(amount / 10**token.decimals * (walk(token, at) if peg is None else peg.price_usd))
