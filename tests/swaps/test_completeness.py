"""After hours of faults, reorgs, floods and kills, every swap is recorded once and every amount is exact.

`TOCSIN_SEEDS=200` tries as many histories instead of the usual few.
"""

import os
from pathlib import Path
from typing import Any

import pytest

from support.competition import STANDING_STILL, World, as_rows, feed, follow, open_world, sweep
from support.history import SLOT_S, WALLETS, FeedHistory, History, calmed, summed, sums_of, troubled_chain
from support.killable import KillableDatabase
from tocsin.swaps import store

SEEDS = range(int(os.environ.get("TOCSIN_SEEDS", "6")))
HOURS = 4


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
        await world.clock.sleep(SLOT_S)
        await sweep(world)
        await world.clock.sleep(SLOT_S)
        clean = await sweep(world)
        rows = await world.rows()
        truth = simulator.chain.truth(senders=history.eligible)
        drift = await store.drift(world.db)
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
        rows = await world.rows()
        truth = simulator.chain.truth(senders=history.eligible)
        drift = await store.drift(world.db)
        pairs = await world.all("SELECT * FROM pair_totals")
        await sweep(world, world.run(by_hand=True))
        late = await world.rows()

    assert (clean.error, clean.incomplete) == (None, None)
    assert rows == as_rows(truth), (history.happened, difference(rows, as_rows(truth)))
    assert drift == {}
    assert summed(pairs) == sums_of(truth)
    assert late == rows
    assert seed % 4 == 1 or history.happened["way network"] > 150
    assert sum(history.happened.values()) > 200


async def days_of_turns(world: World) -> None:
    """Every contract's list has its turn."""
    for _ in range(2 * 96):
        await world.clock.sleep(SLOT_S)
        await feed(world, settings=STANDING_STILL)
        await sweep(world)


def difference(rows: list[dict[str, Any]], truth: list[dict[str, Any]]) -> dict[str, list[str]]:
    """For a failure: what is missing, and what should not be there."""
    found, true = {row["txid"] for row in rows}, {row["txid"] for row in truth}
    return {"missing": sorted(true - found), "wrong": sorted(found - true)}
