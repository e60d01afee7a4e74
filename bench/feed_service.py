"""The service on a simulated network in virtual time, for measure_feed.py: the real scheduler with `feed` and `sweep`.

Several services may follow one chain at the same time. Each has its own Hiro, with its own limits and calls.
"""

from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from shutil import copytree
from tempfile import TemporaryDirectory
from typing import TypeAlias

from null_logger import NullLogger

from holdfast.local.runtime import Runtime
from holdfast.testing.virtual_time import VirtualClock
from holdfast.types import Database
from holdfast_testing.stores import make_objects_file, open_kv
from stacks_simulator.chain import Chain
from stacks_simulator.chain_records import ChainTransaction
from stacks_simulator.simulator import RecordedRequest, Simulator
from stacks_simulator.traffic import Traffic, start_traffic
from support.competition import register
from support.local_store import open_competition
from support.simulated_fetch import HIRO_URL, SimulatedFetch
from tocsin.app import Parts, Platform, build
from tocsin.fetch import Fetch
from tocsin.scheduler.client import SchedulerClient
from tocsin.scheduler.scheduler_do import SchedulerDO
from tocsin.scheduler.types import RunFilter, RunRecord
from tocsin.settings import Settings
from tocsin.swaps.feed import follow_network_tasks
from tocsin.swaps.rules import Rules, built_in
from tocsin.swaps.sweep import sweep_task
from tocsin.upstream.budget import Quota
from tocsin.upstream.hiro import hiro_upstream

LATENCY_S = 0.06
HIRO_PLAN = Quota(second=20, minute=500, month=150_000)
NETWORK_AN_HOUR = 620  # 20,000 transactions a day with the traffic around the competition
LATE_MS = 20 * 60_000  # a swap may be found up to this late, whatever the way
KINDS = ("network's list", "verifying", "contracts' lists", "wallets' lists", "balance changes", "other")

Wrap: TypeAlias = Callable[[Fetch], Fetch]


def competition_traffic(swaps: float = 60) -> Traffic:
    """The traffic around the competition, as in measure_sweep.py."""
    return Traffic(swaps=swaps, strangers=60, transfers=90, floods=0.2, reorgs=0.25)


def network_traffic(hourly: float = NETWORK_AN_HOUR) -> Traffic:
    """The traffic of the rest of the network alone."""
    return Traffic(swaps=0, strangers=0, transfers=0, floods=0, reorgs=0, network=hourly)


def new_chain(clock: VirtualClock, wallets: int) -> Chain:
    chain = Chain(seed=1, start_ms=clock.now(), wallets=wallets)
    start_traffic(chain, competition_traffic())
    return chain


def join_network(chain: Chain, clock: VirtualClock) -> None:
    """Start the traffic of the rest of the network."""
    chain.advance(clock.now())
    start_traffic(chain, network_traffic(), "network")


def kind_of(request: RecordedRequest) -> str:
    path = request.path
    if path.endswith("/v3/transactions"):
        return KINDS[0]
    if "/tx/multiple" in path:
        return KINDS[1]
    if path.endswith("/balance-changes"):
        return KINDS[4]
    if "/principals/" in path:
        return KINDS[2] if "." in path.split("/")[4] else KINDS[3]
    return KINDS[5]


@dataclass
class Costs:
    """The measurements between two times."""

    hours: float
    kinds: Counter[str]
    network: int  # transactions on the whole network
    delays_s: list[float]
    missing: int
    wrong: int

    @property
    def calls(self) -> int:
        return self.kinds.total()

    @property
    def monthly(self) -> int:
        """In 30 days."""
        return round(self.calls / self.hours * 24 * 30)

    def monthly_of(self, kind: str) -> int:
        return round(self.kinds[kind] / self.hours * 24 * 30)


@dataclass
class Service:
    """One service. `begin` starts the measurement, `costs` returns the result so far."""

    simulator: Simulator
    clock: VirtualClock
    db: Database
    stub: Callable[[], SchedulerClient]
    since_ms: int = 0
    _first_call: int = 0
    _last_run: int = 0

    def begin(self) -> None:
        self.since_ms, self._first_call = self.clock.now(), len(self.simulator.requests)

    async def costs(self) -> Costs:
        simulator, chain = self.simulator, self.simulator.chain
        simulator.advance()
        now = self.clock.now()
        calls = list(simulator.requests)[self._first_call :]
        blocks = [block for block in chain.blocks if block.time_s * 1000 >= self.since_ms]
        recorded = await self.recorded()
        true = [chain.transactions[swap.txid] for swap in chain.truth()]
        return Costs(
            hours=(now - self.since_ms) / 3_600_000,
            kinds=Counter(map(kind_of, calls)),
            network=sum(len(block.transactions) for block in blocks),
            delays_s=[
                delay
                for txid, at in recorded.items()
                if at >= self.since_ms and (delay := _delay_s(chain.transactions[txid], at)) is not None
            ],
            missing=sum(tx.tx_id not in recorded and mined_ms(tx) < now - LATE_MS for tx in true),
            wrong=len(recorded.keys() - {tx.tx_id for tx in true}),
        )

    async def recorded(self) -> dict[str, int]:
        """When each swap was recorded."""
        rows = (await self.db.prepare("SELECT txid, recorded_at FROM swaps").all()).results
        return {row["txid"]: row["recorded_at"] for row in rows}

    async def new_runs(self, task: str) -> list[RunRecord]:
        """The runs that have ended since the last call, oldest first; a hundred at most."""
        runs = (await self.stub().runs(RunFilter(task, 100))).runs
        new = [run for run in reversed(runs) if run.outcome != "running" and run.id > self._last_run]
        self._last_run = max((run.id for run in new), default=self._last_run)
        return new

    async def unread_wallets(self) -> int:
        sql = """
            SELECT count(*) AS n FROM agent_tiers t LEFT JOIN marks m ON m.principal = t.stx_address
            WHERE t.tier = 'eligible' AND m.walked_at IS NULL"""
        [row] = (await self.db.prepare(sql).all()).results
        count: int = row["n"]
        return count


def mined_ms(tx: ChainTransaction) -> int:
    assert tx.block is not None, "a swap that counts is mined"
    return tx.block.time_s * 1000


def _delay_s(tx: ChainTransaction, recorded_at: int) -> float | None:
    """The time from the block to the record; None if a reorg has moved the swap to another block since."""
    if tx.block is None or recorded_at < mined_ms(tx):
        return None
    return (recorded_at - mined_ms(tx)) / 1000


@asynccontextmanager
async def serving(
    chain: Chain,
    settings: Settings,
    *,
    omitted_share: float = 0.0,
    wrap: Wrap = lambda fetch: fetch,
    directory: Path | None = None,
    warm: Path | None = None,
) -> AsyncIterator[Service]:
    """Run a service that follows the chain from now on, in its own directory or in this one.

    `warm` is the directory of another service, whose data it starts with; `wrap` wraps its calls to Hiro.
    """
    clock = VirtualClock()  # a clock rings for one runtime only; all clocks show the same time
    chain.advance(clock.now())
    simulator = Simulator(chain, clock)
    simulator.hiro.omitted_share = omitted_share
    rules = Rules(built_in(), chain.campaign.start_s, chain.campaign.end_s)
    with TemporaryDirectory() as scratch:
        place, logger = directory or Path(scratch), NullLogger()
        if warm is not None:
            copytree(warm, place, dirs_exist_ok=True)
        async with open_competition(place) as db, open_kv(place, clock) as kv:
            await register(db, chain.wallets)
            platform = Platform(
                clock=clock,
                fetch=wrap(SimulatedFetch(simulator, latency_s=LATENCY_S)),
                logger=logger,
                db=db,
                kv=kv,
                stub=lambda name: namespace.get_by_name(name),  # noqa: PLW0108 - it is made below
                random=Random(3).random,
            )
            tasks = (*follow_network_tasks(settings, rules), sweep_task(settings, rules))
            upstreams = {"hiro": hiro_upstream(HIRO_URL, "key", HIRO_PLAN)}
            env = build(platform, settings, Parts(lambda _: tasks, lambda _: {}, lambda _: upstreams)).env
            runtime = Runtime(make_objects_file(place), clock=clock, logger=logger, env=env)
            namespace = runtime.namespace("SCHEDULER", SchedulerDO)
            await runtime.open()
            try:
                await namespace.get_by_name("v1").arm()
                yield Service(simulator, clock, db, lambda: SchedulerClient(namespace.get_by_name("v1")))
            finally:
                await runtime.close()


async def warm_up(chain: Chain, clock: VirtualClock, hours: float, directory: Path) -> None:
    """Read all lists once, and then only the network's: after a day, the contracts' lists have their turns.

    Looks every 15 minutes leave the same database as looks every minute, for a tenth of the work.
    """
    async with serving(chain, every(900), directory=directory) as service:
        await clock.sleep(hours * 3_600)
        assert not await service.unread_wallets(), "the warm-up is too short"


def every(seconds: int) -> Settings:
    """Settings with the feed at this cadence."""
    return Settings(feed_cadence=seconds * 1000)


WITHOUT_FEED = Settings(feed_enabled=False)
