"""Seeded histories with a failing upstream and a process that keeps dying, and the sums to compare the end with."""

import asyncio
from collections import Counter
from collections.abc import Awaitable
from dataclasses import replace
from random import Random
from typing import Any

from holdfast.testing.virtual_time import VirtualClock
from stacks_simulator.chain import Chain
from stacks_simulator.faults import BadTimes, SimulatedFault
from stacks_simulator.rate_limits import UNLIMITED, HiroRateLimit
from stacks_simulator.simulator import Simulator
from stacks_simulator.traffic import Traffic, start_traffic
from stacks_simulator.wallets import Wallet
from support.competition import World, feed, register, sweep
from support.killable import KillableDatabase, Killed
from tocsin.errors import RunStopped
from tocsin.swaps import store as totals
from tocsin.swaps.submit import SubmissionLane, submit

SLOT_S = 900
WALLETS = 16
LISTS = ("", "/transactions", "balance-changes", "tx/multiple")


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
            hiro.set_network_list(self._rng.choice(("served", "absent", "gone")))


def frozen(simulator: Simulator) -> None:
    """Stop the chain, so that there is one truth to compare with."""
    simulator.advance()
    simulator._chain_origin_ms = simulator.chain.now_ms
    simulator.speed = 0.0


def calmed(simulator: Simulator) -> None:
    """End all faults and stop the chain."""
    simulator.faults.clear()
    simulator.hiro.index_lag_ms = simulator.hiro.list_lag_ms = 0
    simulator.hiro.set_network_list("served")
    frozen(simulator)


def troubled_chain(seed: int) -> Simulator:
    clock = VirtualClock()
    chain = Chain(seed=seed, start_ms=clock.now(), wallets=WALLETS)
    start_traffic(chain, Traffic(swaps=90, strangers=40, transfers=30, floods=0.5, reorgs=4))
    simulator = Simulator(chain, clock, hiro_rate_limit=HiroRateLimit(UNLIMITED, UNLIMITED))
    simulator.faults.schedule = BadTimes(seed=seed, every_s=1_200, lasting_s=300)
    return simulator


def summed(pairs: list[dict[str, Any]]) -> dict[tuple[str, str, str], tuple[int, int, int]]:
    """The stored totals of each pair, as `sums_of` writes them."""
    return {
        (row["sender"], row["token_in"], row["token_out"]): (
            row["trades"],
            totals.amount(row, "in"),
            totals.amount(row, "out"),
        )
        for row in pairs
    }


def sums_of(truth: list[Any]) -> dict[tuple[str, str, str], tuple[int, int, int]]:
    """Trades and amounts of each pair."""
    sums: dict[tuple[str, str, str], tuple[int, int, int]] = {}
    for swap in truth:
        key = (swap.sender, swap.token_in, swap.token_out)
        trades, sum_in, sum_out = sums.get(key, (0, 0, 0))
        sums[key] = (trades + 1, sum_in + swap.amount_in, sum_out + swap.amount_out)
    return sums
