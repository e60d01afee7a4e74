"""More to read than one run can: after days of downtime, and with a single call a minute."""

from pathlib import Path

import pytest

from holdfast_testing.virtual_time import VirtualClock
from stacks_simulator.traffic import Traffic, start_traffic
from support.competition import World, as_rows, chain_of, feed, number, open_world, started
from support.history import frozen
from support.simulated_fetch import SimulatedFetch
from support.whole_service import Throttle
from tocsin.errors import RunStopped
from tocsin.swaps.feed_state import load_state

NETWORK_LIST = "/extended/v3/transactions"


async def state_size(world: World) -> int:
    (row,) = await world.all("SELECT value FROM competition_state WHERE key = 'competition_feed'")
    return len(row["value"])


@pytest.mark.slow
async def test_twenty_thousand_transactions_after_a_downtime(tmp_path: Path) -> None:
    """Forty pages a run, the newest first; after eleven runs everything is read, and the state stayed small."""
    async with open_world(tmp_path, chain_of(5)) as world:
        chain = world.simulator.chain
        await started(world)
        early = chain.swap(chain.wallets[0])
        for _ in range(40):
            chain.dust(chain.strangers[1], 500)
            chain.mine()
            await world.clock.sleep(2 * 3_600)
            world.simulator.advance()
        late = chain.swap(chain.wallets[1])
        chain.mine()
        results, found, sizes = [], [], []
        for _ in range(14):
            results.append(await feed(world))
            found.append([row["txid"] for row in await world.rows()])
            sizes.append(await state_size(world))
            if results[-1].incomplete is None:
                break
            chain.dust(chain.strangers[2], 20)
            chain.mine()
            await world.clock.sleep(60)
        rows = await world.rows()

    behind = [number(result.counters, "blocksBehind") for result in results]
    claims = [number(result.counters, "completeUntilBlock") for result in results]
    pages = [number(result.counters, "pages") for result in results]
    assert max(pages) == 40
    assert 10 <= len(results) <= 13
    assert found[0] == [late.tx_id]
    assert found[-1] == [early.tx_id, late.tx_id]
    assert rows == as_rows(chain.truth())
    assert all(result.incomplete and "blocks behind" in result.incomplete for result in results[:-1])
    assert len(set(claims[:-1])) == 1  # nothing above the old head is called complete before all of it was read
    assert claims[-1] == chain.blocks[-1].height
    assert (min(behind[:-1]) > 0, behind[-1]) == (True, 0)
    assert max(sizes) < 20_000


@pytest.mark.slow
async def test_one_call_a_minute_for_hours(tmp_path: Path) -> None:
    """The list grows by more than a page a minute: the newest swaps are on record, and later all of them."""
    simulator = chain_of(4)
    clock = simulator.clock
    assert isinstance(clock, VirtualClock)
    throttle = Throttle(SimulatedFetch(simulator), clock, calls=1_000, window_s=60)
    async with open_world(tmp_path, simulator, fetch=lambda _: throttle) as world:
        chain = simulator.chain
        await started(world)
        throttle.calls = 1
        traffic = Traffic(swaps=12, strangers=10, transfers=10, floods=0, reorgs=0, network=3_600)
        start_traffic(chain, traffic)
        reached, claims, delays, counts, sizes = [], [], [], [], []
        for _ in range(180):
            await world.clock.sleep(60)
            result = await feed(world)
            claims.append(number(result.counters, "completeUntilBlock"))
            reached.append((await load_state(world.db)).mark.complete_block or 0)
            counts.append(len(await world.rows()))
            sizes.append(await state_size(world))
            delays.append(number(result.counters, "blocksBehind"))
            if result.incomplete is None:
                assert result.counters["blocksBehind"] == 0
        frozen(simulator)
        recorded = len(await world.rows())
        throttle.calls = 10_000
        await world.clock.sleep(120)
        last = await feed(world)
        for _ in range(20):
            if last.incomplete is None:
                break
            await world.clock.sleep(60)
            last = await feed(world)
        rows = await world.rows()

    truth = chain.truth()
    assert len(truth) > 20
    assert reached == sorted(reached)
    assert all(claim <= block for claim, block in zip(claims, reached, strict=True))
    assert counts == sorted(counts)
    assert recorded > 0
    assert max(delays) > 0
    assert max(sizes) < 20_000
    assert last.incomplete is None
    assert last.counters["completeUntilBlock"] == chain.blocks[-1].height
    assert rows == as_rows(truth)


@pytest.mark.slow
async def test_one_call_a_minute_is_enough_for_a_calm_network(tmp_path: Path) -> None:
    """With a few transactions a minute nothing falls behind, and every swap is on record some minutes later."""
    simulator = chain_of(4)
    clock = simulator.clock
    assert isinstance(clock, VirtualClock)
    throttle = Throttle(SimulatedFetch(simulator), clock, calls=1_000, window_s=60)
    async with open_world(tmp_path, simulator, fetch=lambda _: throttle) as world:
        chain = simulator.chain
        await started(world)
        throttle.calls = 1
        traffic = Traffic(swaps=6, strangers=10, transfers=10, floods=0, reorgs=0, network=300)
        start_traffic(chain, traffic)
        for _ in range(120):
            await world.clock.sleep(60)
            result = await feed(world)
            assert number(result.counters, "blocksBehind") <= 60
        old = [swap.txid for swap in chain.truth() if swap.block_height < chain.tip_height - 60]
        found = {row["txid"] for row in await world.rows()}

    assert len(old) > 4
    assert found >= set(old)


async def test_calls_run_out_and_the_next_run_goes_on(tmp_path: Path) -> None:
    """Nothing is called complete while something is unread, and the result states when to continue."""
    simulator = chain_of(2)
    clock = simulator.clock
    assert isinstance(clock, VirtualClock)
    throttle = Throttle(SimulatedFetch(simulator), clock, calls=1_000, window_s=60)
    async with open_world(tmp_path, simulator, fetch=lambda _: throttle) as world:
        chain = simulator.chain
        await started(world)
        throttle.calls = 3
        sent = chain.swap(chain.wallets[0])
        chain.dust(chain.strangers[1], 700)
        chain.mine()
        results = []
        for _ in range(30):
            results.append(await feed(world))
            if results[-1].incomplete is None:
                break
            await world.clock.sleep(60)
        rows = await world.rows()

    assert 3 < len(results) < 12
    assert all(result.counters["blocksBehind"] for result in results[:-2])
    assert all(result.limited_until is not None for result in results[:-2])
    assert all(result.progressed for result in results[:-1])
    assert [row["txid"] for row in rows] == [sent.tx_id]


async def test_a_run_that_is_cut_off_goes_on_where_it_stopped(tmp_path: Path) -> None:
    """At every checkpoint, no page is read twice except the head."""
    async with open_world(tmp_path, chain_of(2)) as world:
        chain = world.simulator.chain
        await started(world)
        chain.swap(chain.wallets[0])
        chain.dust(chain.strangers[1], 500)
        chain.mine()
        before = world.calls()
        stops = 0
        for _ in range(20):
            try:
                await feed(world, world.run(stop_after=3))
            except RunStopped:
                stops += 1
            await world.clock.sleep(60)
        reads = world.paths(before).count(NETWORK_LIST)
        rows = await world.rows()

    assert stops >= 3
    assert reads <= 11 + 20
    assert rows == as_rows(chain.truth())
    assert len(rows) == 1
