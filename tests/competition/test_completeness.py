"""Nothing lost, nothing twice, every amount exact: hours of faults, reorgs, floods and kills, then the truth.

`TOCSIN_SEEDS=200` tries as many histories instead of the usual few.
"""

import os
from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from support.competition import World, as_rows, open_world, register, sweep
from support.killable import KillableDatabase, Killed
from support.virtual_time import VirtualClock
from tocsin.competition import totals
from tocsin.competition.submit import submit
from tocsin.errors import RunStopped
from tocsin.simulator.chain import Chain
from tocsin.simulator.faults import BadTimes, SimulatedFault
from tocsin.simulator.rate_limits import UNLIMITED, HiroRateLimit
from tocsin.simulator.simulator import Simulator
from tocsin.simulator.traffic import Traffic, start_traffic
from tocsin.simulator.wallets import Wallet

SEEDS = range(int(os.environ.get("TOCSIN_SEEDS", "12")))
SLOT_S = 900
HOURS = 4
WALLETS = 16


class History:
    """One seeded history of a troubled upstream and a process that keeps dying."""

    def __init__(self, seed: int, world: World) -> None:
        self._rng = Random(f"{seed}:history")
        self._world = world
        self._chain = world.simulator.chain
        self.eligible = {wallet.address for wallet in self._chain.wallets if wallet.tier == "eligible"}
        self.happened: Counter[str] = Counter()

    async def slot(self) -> None:
        """A quarter of an hour: something goes wrong, agents trade, a sweep runs and may be cut off or killed."""
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
        await self._sweep()

    async def _sweep(self) -> None:
        db = self._world.db
        assert isinstance(db, KillableDatabase)
        if self._rng.random() < 0.4:
            db.fuse, db.commits = self._rng.randrange(150), self._rng.random() < 0.5
        try:
            await sweep(self._world, self._world.run(slice_s=self._rng.choice((1.0, 600.0, 600.0))))
        except Killed:
            self.happened["kill"] += 1
        except RunStopped:
            self.happened["partial"] += 1
        db.fuse = None

    async def _outage(self) -> None:
        kind = self._rng.choice(("status", "hang", "cut", "cut_body", "truncated", "wrong_types"))
        self._fault(SimulatedFault(kind=kind, share=self._rng.choice((0.3, 1.0))))  # type: ignore[arg-type]  # words of the table

    async def _storm(self) -> None:
        self._fault(
            SimulatedFault(kind="limited", retry_after=self._rng.choice((None, 1, 60, 600)), share=0.8)
        )

    def _fault(self, fault: SimulatedFault) -> None:
        now = self._world.clock.now()
        lasting_ms = self._rng.randrange(30_000, 1_200_000)
        part = self._rng.choice(("", "/transactions", "balance-changes", "tx/multiple"))
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
        """Somebody becomes eligible, from any tier."""
        others = [w for w in (*self._chain.wallets, *self._chain.strangers) if w.address not in self.eligible]
        wallet = self._rng.choice(others)
        btc_address = wallet.btc_address or f"bc1{wallet.address}"
        agent_id = 1000 + len(self.eligible)
        await register(
            self._world.db, [Wallet(wallet.address, "eligible", btc_address, erc8004_agent_id=agent_id)]
        )
        self.eligible.add(wallet.address)

    async def _submissions(self) -> None:
        self._world.simulator.advance()
        recent = list(self._chain.transactions.values())[-40:]
        for tx in self._rng.sample(recent, min(3, len(recent))):
            await submit(self._world.request(), self._world.rules, {"txid": tx.tx_id})


def frozen(simulator: Simulator) -> None:
    """From now on the chain stands still, so that there is one truth to compare with."""
    simulator.advance()
    simulator._chain_origin_ms = simulator.chain.now_ms
    simulator.speed = 0.0


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
    """Two clean sweeps after hours of trouble, every true swap is there once, and the totals are its sums."""
    simulator = troubled_chain(seed)
    async with open_world(tmp_path, simulator, latency_s=0.06, wrap=KillableDatabase) as world:
        history = History(seed, world)
        for slot in range(1, HOURS * 4 + 1):
            await history.slot()
            await world.clock.sleep(max(0.0, slot * SLOT_S - world.clock.monotonic()))
        simulator.faults.clear()
        simulator.hiro.index_lag_ms = 0
        frozen(simulator)
        await world.clock.sleep(SLOT_S)
        await sweep(world)
        await world.clock.sleep(SLOT_S)
        clean = await sweep(world)
        rows = await world.rows()
        truth = simulator.chain.truth(senders=history.eligible)
        drift = await totals.drift(world.db)
        pairs = await world.all("SELECT * FROM pair_totals")
        late = await after_a_pass(world)

    assert clean.error is None
    assert rows == as_rows(truth), history.happened
    assert drift == {}
    assert summed(pairs) == sums_of(truth)
    assert late == rows
    assert sum(history.happened.values()) > 10


async def after_a_pass(world: World) -> list[dict[str, Any]]:
    """What is recorded when every wallet's own list has been read as well."""
    for _ in range(2 * WALLETS):
        await world.clock.sleep(SLOT_S)
        if (await sweep(world)).counters["cursor"] is None:
            break
    return await world.rows()


def summed(pairs: list[dict[str, Any]]) -> dict[tuple[str, str, str], tuple[int, int, int]]:
    return {
        (row["sender"], row["token_in"], row["token_out"]): (
            row["trades"],
            totals.amount(row, "in"),
            totals.amount(row, "out"),
        )
        for row in pairs
    }


def sums_of(truth: list[Any]) -> dict[tuple[str, str, str], tuple[int, int, int]]:
    sums: dict[tuple[str, str, str], tuple[int, int, int]] = {}
    for swap in truth:
        key = (swap.sender, swap.token_in, swap.token_out)
        trades, sum_in, sum_out = sums.get(key, (0, 0, 0))
        sums[key] = (trades + 1, sum_in + swap.amount_in, sum_out + swap.amount_out)
    return sums
