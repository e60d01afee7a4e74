"""After hours of faults, reorgs, floods and kills, every swap is recorded once and every amount is exact.

`TOCSIN_SEEDS=200` tries as many histories instead of the usual few.
"""

import asyncio
import os
from collections import Counter
from collections.abc import Awaitable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from holdfast.testing.virtual_time import VirtualClock
from holdfast.types import Database
from stacks_simulator.chain import Chain
from stacks_simulator.faults import BadTimes, SimulatedFault
from stacks_simulator.rate_limits import UNLIMITED, HiroRateLimit
from stacks_simulator.simulator import Simulator
from stacks_simulator.traffic import Traffic, start_traffic
from stacks_simulator.wallets import Wallet
from support.competition import (
    STANDING_STILL,
    World,
    as_rows,
    feed,
    follow,
    frozen,
    open_world,
    register,
    summed,
    sums_of,
    sweep,
)
from support.watched_database import Killed, Moment, WatchedDatabase
from tocsin.errors import RunStopped
from tocsin.swaps import store
from tocsin.swaps.submit import SubmissionLane, submit

SEEDS = range(int(os.environ.get("TOCSIN_SEEDS", "6")))
HOURS = 4
SLOT_S = 900
WALLETS = 16
LISTS = ("", "/transactions", "balance-changes", "tx/multiple")


class KillableDatabase(WatchedDatabase):
    """A database whose process is killed when `fuse`, the number of calls left, is used up; None means no kill."""

    def __init__(self, db: Database) -> None:
        super().__init__(db, self._burn)
        self.fuse: int | None = None
        self.commits = True  # whether the last call still takes effect
        self._last = 0

    async def _burn(self, number: int, moment: Moment) -> None:
        if moment == "after":
            if number == self._last:
                raise Killed
        elif self.fuse is not None:
            if self.fuse < 0 or (self.fuse == 0 and not self.commits):
                self.fuse = -1
                raise Killed
            self._last = number if self.fuse == 0 else 0
            self.fuse -= 1


class History:
    """One seeded history: sweeps only, as without the feed."""

    def __init__(self, seed: int, world: World) -> None:
        self._rng = Random(f"{seed}:history")
        self._world = world
        self._chain = world.simulator.chain
        self.eligible = {wallet.address for wallet in self._chain.wallets if wallet.tier == "eligible"}
        self.happened: Counter[str] = Counter()
        self._lane = SubmissionLane()

    async def slot(self) -> None:
        """Simulate a quarter of an hour: faults occur, agents trade, tasks run and may be cut off or killed."""
        began = self._world.clock.monotonic()
        for chance, happening in (
            (0.25, self._outage),
            (0.25, self._storm),
            (0.2, self._deep_reorg),
            (0.2, self._burst),
            (0.2, self._flood),
            (0.3, self._lag),
            (0.2, self._promotion),
            (0.7, self._submissions),
        ):
            if self._rng.random() < chance:
                await happening()
                self.happened[happening.__name__] += 1
        await self._work()
        await self._world.clock.sleep(max(0.0, began + SLOT_S - self._world.clock.monotonic()))

    async def _work(self) -> None:
        await self._run(self._sweep(), kill=0.4, calls=150)

    async def _sweep(self) -> object:
        return await sweep(self._world, self._world.run(slice_s=self._rng.choice((1.0, 600.0, 600.0))))

    async def _run(self, *runs: Awaitable[object], kill: float, calls: int) -> None:
        """Run tasks concurrently; the process may be killed at one of the first `calls` calls of the database."""
        db = self._world.db
        assert isinstance(db, KillableDatabase)
        if self._rng.random() < kill:
            db.fuse, db.commits = self._rng.randrange(calls), self._rng.random() < 0.5
        for ended in await asyncio.gather(*runs, return_exceptions=True):
            if isinstance(ended, Killed):
                self.happened["kill"] += 1
            elif isinstance(ended, RunStopped):
                self.happened["partial"] += 1
            elif isinstance(ended, BaseException):
                raise ended
        db.fuse = None
        self._world.in_progress.clear()

    async def _outage(self) -> None:
        kind = self._rng.choice(("status", "hang", "cut", "cut_body", "truncated", "wrong_types"))
        self._fault(SimulatedFault(kind=kind, share=self._rng.choice((0.3, 1.0))))  # type: ignore[arg-type]  # words of the table

    async def _storm(self) -> None:
        self._fault(SimulatedFault(kind="limited", retry_after=self._rng.choice((None, 1, 60, 600)), share=0.8))

    def _fault(self, fault: SimulatedFault) -> None:
        now = self._world.clock.now()
        lasting_ms = self._rng.randrange(30_000, 1_200_000)
        part = self._rng.choice(LISTS)
        self._world.simulator.faults.add(replace(fault, path=part, from_ms=now, until_ms=now + lasting_ms))

    async def _deep_reorg(self) -> None:
        self._world.simulator.advance()
        self._chain.reorg(self._rng.choice((2, 10, 90, 150, 400)), "mixed", self._rng)

    async def _burst(self) -> None:
        self._world.simulator.advance()
        self._chain.burst(self._rng.choice(self._chain.wallets), self._rng.choice((30, 60, 110)))

    async def _flood(self) -> None:
        self._world.simulator.advance()
        self._chain.dust(self._rng.choice(self._chain.wallets), self._rng.choice((30, 300, 600)))

    async def _lag(self) -> None:
        self._world.simulator.hiro.index_lag_ms = self._rng.choice((0, 30_000, 300_000))

    async def _promotion(self) -> None:
        """Make a wallet of any tier eligible."""
        others = [w for w in (*self._chain.wallets, *self._chain.strangers) if w.address not in self.eligible]
        wallet = self._rng.choice(others)
        btc_address = wallet.btc_address or f"bc1{wallet.address}"
        agent_id = 1000 + len(self.eligible)
        await register(self._world.db, [Wallet(wallet.address, "eligible", btc_address, erc8004_agent_id=agent_id)])
        self.eligible.add(wallet.address)

    async def _submissions(self) -> None:
        self._world.simulator.advance()
        recent = list(self._chain.transactions.values())[-40:]
        for tx in self._rng.sample(recent, min(3, len(recent))):
            await submit(self._world.request(), self._world.rules, {"txid": tx.tx_id}, self._lane)


class FeedHistory(History):
    """The same with the feed every minute; in the first minute of a slot it runs together with the sweep.

    In every fourth history the network's list is available only some of the time.
    """

    def __init__(self, seed: int, world: World) -> None:
        super().__init__(seed, world)
        self._list_goes = seed % 4 == 1

    async def _work(self) -> None:
        for minute in range(15):
            if minute == 0:
                await self._run(self._feed(), self._sweep(), kill=0.4, calls=150)
            else:
                await self._run(self._feed(), kill=0.05, calls=25)
            await self._world.clock.sleep(60 - self._world.clock.monotonic() % 60)

    async def _feed(self) -> object:
        result = await feed(self._world, self._world.run(slice_s=self._rng.choice((1.0, 50.0, 50.0, 50.0))))
        self.happened[f"way {result.counters['way']}"] += 1
        self.happened["gap"] += bool(result.counters["blocksBehind"])
        return result

    async def _lag(self) -> None:
        await super()._lag()
        hiro = self._world.simulator.hiro
        hiro.list_lag_ms = self._rng.choice((0, 0, 20_000, 200_000))
        if self._list_goes:
            hiro.network_list = self._rng.choice(("served", "absent", "gone"))


def calmed(simulator: Simulator) -> None:
    """End all faults and stop the chain."""
    simulator.faults.clear()
    simulator.hiro.index_lag_ms = simulator.hiro.list_lag_ms = 0
    simulator.hiro.network_list = "served"
    frozen(simulator)


def troubled_chain(seed: int) -> Simulator:
    clock = VirtualClock()
    chain = Chain(seed=seed, start_ms=clock.now(), wallets=WALLETS)
    start_traffic(chain, Traffic(swaps=90, strangers=40, transfers=30, floods=0.5, reorgs=4))
    simulator = Simulator(chain, clock, hiro_rate_limit=HiroRateLimit(UNLIMITED, UNLIMITED))
    simulator.faults.schedule = BadTimes(seed=seed, every_s=1_200, lasting_s=300)
    return simulator


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
async def test_after_the_faults_the_database_is_the_truth(seed: int, tmp_path: Path) -> None:
    """Two clean sweeps after hours of faults, every true swap is recorded once, and the totals are the sums."""
    simulator = troubled_chain(seed)
    async with open_world(tmp_path, simulator, latency_s=0.06, wrap=KillableDatabase) as world:
        history = History(seed, world)
        for _ in range(HOURS * 4):
            await history.slot()
        calmed(simulator)
        await sweep(world, after_s=SLOT_S)
        clean = await sweep(world, after_s=SLOT_S)
        await check_truth(world, history)
        for _ in range(WALLETS):  # until every wallet's own list has been read as well
            await sweep(world, after_s=SLOT_S)
        await check_truth(world, history)

    assert clean.error is None
    assert sum(history.happened.values()) > 10


async def check_truth(world: World, history: History) -> None:
    rows, truth = await world.rows(), world.simulator.chain.truth(senders=history.eligible)
    assert rows == as_rows(truth), (history.happened, difference(rows, as_rows(truth)))
    assert await store.drift(world.db) == {}
    assert summed(await world.all("SELECT * FROM pair_totals")) == sums_of(truth)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
async def test_after_the_faults_the_feed_has_recorded_the_truth(seed: int, tmp_path: Path) -> None:
    """Every true swap is recorded once, and the totals are the sums. In some histories the list omits transactions."""
    simulator = troubled_chain(seed)
    omits = seed % 4 == 3
    simulator.hiro.omitted_share = 0.02 if omits else 0.0
    async with open_world(tmp_path, simulator, latency_s=0.06, wrap=KillableDatabase) as world:
        history = FeedHistory(seed, world)
        await world.clock.sleep(3_600)  # no reorg is as deep as the chain
        for _ in range(HOURS * 4):
            await history.slot()
        calmed(simulator)
        await follow(world, 31, STANDING_STILL)
        if omits:
            await days_of_turns(world)
        clean = await feed(world, settings=STANDING_STILL)
        await check_truth(world, history)
        await sweep(world, world.run(by_hand=True))
        await check_truth(world, history)

    assert (clean.error, clean.incomplete) == (None, None)
    assert seed % 4 == 1 or history.happened["way network"] > 150
    assert sum(history.happened.values()) > 200


async def days_of_turns(world: World) -> None:
    """Every contract's list has its turn."""
    for _ in range(2 * 96):
        await feed(world, settings=STANDING_STILL, after_s=SLOT_S)
        await sweep(world)


def difference(rows: list[dict[str, Any]], truth: list[dict[str, Any]]) -> dict[str, list[str]]:
    """For a failure: what is missing, and what should not be there."""
    found, true = {row["txid"] for row in rows}, {row["txid"] for row in truth}
    return {"missing": sorted(true - found), "wrong": sorted(found - true)}
