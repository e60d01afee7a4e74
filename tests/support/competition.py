"""The competition on a simulated chain: a database, a client with a real budget, and contexts."""

import json
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from support.captured_log import CapturedLog
from support.local_store import open_competition
from support.simulated import quiet_simulator
from support.virtual_time import VirtualClock
from tocsin.bindings import JSON, KV, Clock, Database, Fetch
from tocsin.budget.budget import Quota
from tocsin.budget.budget_limiter import BudgetLimiter
from tocsin.budget.call_session import CallSession, request_session, task_session
from tocsin.competition.allowlist import built_in
from tocsin.competition.rules import Rules
from tocsin.errors import RunStopped
from tocsin.scheduler.task import Outcome
from tocsin.simulator.simulated_fetch import HIRO_URL, SimulatedFetch
from tocsin.simulator.simulator import Simulator
from tocsin.simulator.truth import TrueSwap
from tocsin.simulator.wallets import Wallet
from tocsin.tasks.sweep_competition import sweep_task
from tocsin.upstream.client import UpstreamClient
from tocsin.upstream.hiro import HiroClient, hiro_upstream
from tocsin.upstream.tenero import TeneroClient

ROOMY = Quota(second=10_000, minute=100_000, month=10_000_000)


@dataclass
class Context:
    """A `TaskContext` for one run. `stop_after` checkpoints it must end."""

    db: Database
    hiro: HiroClient
    clock: Clock
    logger: CapturedLog
    session: CallSession
    started_at: int
    slice_s: float = 600.0
    stop_after: int | None = None
    shown: list[tuple[int, int, dict[str, JSON]]] = field(default_factory=list)

    @property
    def kv(self) -> KV:
        raise NotImplementedError

    @property
    def tenero(self) -> TeneroClient:
        raise NotImplementedError

    def time_left_s(self) -> float:
        return self.slice_s - (self.clock.now() - self.started_at) / 1000

    def progress(self, done: int, total: int, /, **counters: JSON) -> None:
        self.shown.append((done, total, counters))

    def checkpoint(self) -> None:
        if self.stop_after is not None:
            if self.stop_after == 0:
                raise RunStopped("paused")
            self.stop_after -= 1
        if self.time_left_s() <= 0:
            raise RunStopped("the time slice is over")


@dataclass
class World:
    """Everything around the competition."""

    db: Database
    simulator: Simulator
    clock: Clock
    rules: Rules
    hiro: HiroClient
    gate: BudgetLimiter
    log: CapturedLog = field(default_factory=CapturedLog)

    def run(self, *, stop_after: int | None = None, slice_s: float = 600.0) -> Context:
        """A context for one run of a task."""
        return self._context(task_session(self.log), slice_s, stop_after)

    def request(self) -> Context:
        """A context for one visitor's request."""
        return self._context(request_session(self.log), 600.0, None)

    def _context(self, session: CallSession, slice_s: float, stop_after: int | None) -> Context:
        return Context(
            self.db, self.hiro, self.clock, self.log, session, self.clock.now(), slice_s, stop_after
        )

    async def rows(self) -> list[dict[str, Any]]:
        """The recorded swaps as the simulator's truth writes them."""
        found = (await self.db.prepare(_SWAPS).all()).results
        return [
            {**row, "amount_in": int(row["amount_in"]), "amount_out": int(row["amount_out"])} for row in found
        ]

    async def all(self, sql: str, *values: str | int | None) -> list[dict[str, Any]]:
        return (await self.db.prepare(sql).bind(*values).all()).results

    def calls(self, part: str = "") -> int:
        return sum(part in request.path for request in self.simulator.requests)


_SWAPS = """
SELECT txid, sender, contract_id, function_name, token_in, amount_in, token_out, amount_out, burn_block_time,
  block_height FROM swaps ORDER BY block_height, txid"""


@asynccontextmanager
async def open_world(
    directory: Path,
    simulator: Simulator | None = None,
    *,
    rules: Rules | None = None,
    plan: Quota = ROOMY,
    fetch: Callable[[Simulator], Fetch] = SimulatedFetch,
    wrap: Callable[[Database], Database] = lambda db: db,
    latency_s: float = 0.0,
) -> AsyncIterator[World]:
    """A simulated chain whose wallets are registered; without one, a quiet one of three wallets."""
    simulator = simulator or quiet_simulator(VirtualClock())
    log = CapturedLog()
    gate = BudgetLimiter.restore("hiro", plan, None, simulator.clock, Random(7).random, log, lambda _: None)
    wire = fetch(simulator)
    if isinstance(wire, SimulatedFetch):
        wire.latency_s = latency_s
    client = UpstreamClient(hiro_upstream(HIRO_URL, "key"), wire, gate, simulator.clock, Random(8).random)
    async with open_competition(directory) as db:
        await register(db, simulator.chain.wallets)
        rules = rules or Rules(built_in(), simulator.chain.campaign.start_s, simulator.chain.campaign.end_s)
        yield World(wrap(db), simulator, simulator.clock, rules, HiroClient(client), gate, log)


async def register(db: Database, wallets: Iterable[Wallet]) -> None:
    """Make wallets agents of their tier, or change the tier of those that are."""
    agents = json.dumps(
        [[w.btc_address or f"bc1{w.address}", w.address, w.erc8004_agent_id] for w in wallets]
    )
    claims = json.dumps(
        [
            [
                w.btc_address or f"bc1{w.address}",
                "verified" if w.tier in {"eligible", "genesis"} else "pending",
            ]
            for w in wallets
        ]
    )
    await db.batch([db.prepare(_AGENTS).bind(agents), db.prepare(_CLAIMS).bind(claims)])


_AGENTS = """
INSERT INTO agents (btc_address, stx_address, erc8004_agent_id)
SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]') FROM json_each(?)
WHERE true ON CONFLICT (btc_address) DO UPDATE SET erc8004_agent_id = excluded.erc8004_agent_id"""
_CLAIMS = """
INSERT INTO claims (btc_address, status)
SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(?)
WHERE true ON CONFLICT (btc_address) DO UPDATE SET status = excluded.status"""


def as_rows(truth: Iterable[TrueSwap]) -> list[dict[str, Any]]:
    """The truth as `World.rows` writes it."""
    return [{name: getattr(swap, name) for name in TrueSwap.__dataclass_fields__} for swap in truth]


async def sweep(world: World, context: Context | None = None, rules: Rules | None = None) -> Outcome:
    """One run of the task."""
    return await sweep_task(rules or world.rules).run(context or world.run())


def chain_of(wallets: int, *, all_eligible: bool = True) -> Simulator:
    """A quiet simulator with so many agents, by default all of them eligible."""
    simulator = quiet_simulator(VirtualClock(), wallets=wallets)
    if all_eligible:
        chain = simulator.chain
        chain.wallets = tuple(
            Wallet(w.address, "eligible", w.btc_address, w.display_name, number)
            for number, w in enumerate(chain.wallets, 1)
        )
    return simulator
