"""Nothing is lost or duplicated and every amount is exact after hours of faults, reorgs, floods and kills.

`TOCSIN_SEEDS=200` tries as many histories instead of the usual few.
"""

import os
from pathlib import Path
from typing import Any

import pytest

from support.competition import World, as_rows, open_world, sweep
from support.history import SLOT_S, WALLETS, History, calmed, summed, sums_of, troubled_chain
from support.killable import KillableDatabase
from tocsin.swaps import store as totals

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
