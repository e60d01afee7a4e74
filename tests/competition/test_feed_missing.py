"""Transactions that the network's list does not show: nonces reveal that they are missing, other lists have them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from stacks_simulator.chain_records import ChainTransaction
from stacks_simulator.faults import SimulatedFault
from stacks_simulator.traffic import Traffic, start_traffic
from support.changed_fetch import ChangedFetch
from support.competition import World, as_rows, chain_of, feed, number, open_world, sweep
from support.history import frozen
from tocsin.swaps import lists as nonces

NETWORK_LIST = "/extended/v3/transactions"
SWAPS = Traffic(
    swaps=300, strangers=20, transfers=20, floods=0, reorgs=0, network=60, kinds={"simple": 1, "sponsored": 1}
)


async def started(world: World) -> None:
    """Every wallet has made a transaction; the feed has begun, and the sweep has read everything once."""
    chain = world.simulator.chain
    for wallet in chain.wallets:
        chain.transfer(wallet, chain.strangers[0], 5)
    chain.mine()
    await feed(world)
    while number((await sweep(world)).counters, "scanned"):
        await world.clock.sleep(60)


def omitted(world: World) -> list[ChainTransaction]:
    """The mined transactions that the list does not show."""
    return [tx for tx in world.simulator.chain.index.all if not world.simulator.hiro._is_listed(tx)]


def betrayed(world: World) -> set[str]:
    """Return those whose wallet has made a later transaction that the list shows."""
    last: dict[str, ChainTransaction] = {}
    for tx in world.simulator.chain.index.all:
        if world.simulator.hiro._is_listed(tx):
            last[tx.sender] = tx
    return {tx.tx_id for tx in omitted(world) if tx.sender in last and last[tx.sender].nonce > tx.nonce}


async def recorded(world: World) -> set[str]:
    return {row["txid"] for row in await world.all("SELECT txid FROM swaps")}


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.01, 0.2])
async def test_the_next_look_finds_what_a_later_nonce_betrays(share: float, tmp_path: Path) -> None:
    """In every minute of two hours; the rest is found when the contracts' lists have their turn."""
    simulator = chain_of(40)
    async with open_world(tmp_path, simulator) as world:
        await started(world)
        simulator.hiro.omitted_share = share
        start_traffic(simulator.chain, SWAPS)
        visits = looks = 0
        before = len(simulator.requests)
        for minute in range(1, 121):
            await world.clock.sleep(60)
            simulator.advance()
            expected = betrayed(world)
            result = await feed(world)
            looks += 1
            visits += number(result.counters, "visited")
            true = {swap.txid for swap in simulator.chain.truth()}
            assert result.counters["blocksBehind"] == 0
            assert expected & true <= await recorded(world)
            if minute % 15 == 0:
                await sweep(world)
        paths = world.paths(before)
        frozen(simulator)
        await feed(world, world.run(by_hand=True))
        hidden = {tx.tx_id for tx in omitted(world)} & {swap.txid for swap in simulator.chain.truth()}
        unseen = hidden - await recorded(world)
        for _ in range(2 * 96):
            await world.clock.sleep(900)
            await feed(world)
            await sweep(world)
        rows = await world.rows()

    truth = simulator.chain.truth()
    assert len(truth) > 140
    assert len(hidden) > (0 if share < 0.1 else 20)
    assert len(unseen) < len(hidden)
    assert rows == as_rows(truth)
    assert visits <= len(hidden) + 1
    assert paths.count(NETWORK_LIST) <= looks + 2
    assert len(paths) <= looks + visits + len(truth) + 20  # what the sweep reads in turn


async def test_nothing_is_called_complete_above_a_missing_nonce(tmp_path: Path) -> None:
    """While the wallet's list fails, the block is below the missing transaction; then it is the head's again."""
    simulator = chain_of(3)
    async with open_world(tmp_path, simulator) as world:
        chain = simulator.chain
        await started(world)
        await world.clock.sleep(60)
        simulator.advance()
        wallet = chain.wallets[1]
        hidden, shown = await hidden_and_shown(world)
        simulator.faults.add(SimulatedFault(kind="wrong_json", path=wallet.address))
        claims = []
        for _ in range(12):
            result = await feed(world)
            claims.append(number(result.counters, "completeUntilBlock"))
            assert result.counters["missingNonces"] == 1
            assert chain.transactions[hidden].tx_id not in await recorded(world)
            await world.clock.sleep(60)
        tries = sum(wallet.address in path for path in world.paths())
        simulator.faults.clear()
        await world.clock.sleep(3_600)
        last = await feed(world)
        rows = await world.rows()

    block = chain.transactions[hidden].block
    assert block is not None
    assert max(claims) < block.height
    assert tries <= 8  # after five it is tried once an hour
    assert rows == as_rows(chain.truth())
    assert {row["txid"] for row in rows} == {hidden, shown}
    assert (last.counters["missingNonces"], last.counters["completeUntilBlock"]) == (0, chain.blocks[-1].height)


async def hidden_and_shown(world: World) -> tuple[str, str]:
    """Two swaps of one wallet, the first of which the list does not show; both in the block of an earlier one."""
    chain, hiro = world.simulator.chain, world.simulator.hiro
    first = chain.transfer(chain.wallets[1], chain.strangers[0], 5)
    hidden = chain.swap(chain.wallets[1])
    shown = chain.swap(chain.wallets[1])
    chain.mine(first, hidden, shown)

    def is_listed(tx: ChainTransaction) -> bool:
        return tx is not hidden

    hiro._is_listed = is_listed  # type: ignore[method-assign]  # one transaction of our choice
    return hidden.tx_id, shown.tx_id


@asynccontextmanager
async def hiding_world(directory: Path) -> AsyncIterator[tuple[World, set[str]]]:
    """A world that has started, and a set of transactions that the second wallet's own list does not show."""
    simulator = chain_of(3)
    hiding: set[str] = set()
    fetch = ChangedFetch(simulator, f"/{simulator.chain.wallets[1].address}/transactions")

    def without_hidden(_url: str, body: dict[str, Any]) -> None:
        body["results"] = [row for row in body["results"] if row.get("transaction", row)["tx_id"] not in hiding]

    fetch.change = without_hidden
    async with open_world(directory, simulator, fetch=lambda _: fetch) as world:
        await started(world)
        await world.clock.sleep(60)
        simulator.advance()
        yield world, hiding


async def visits(world: World, minutes: int) -> list[int]:
    """How many wallets' lists each run of the feed read."""
    visited = []
    for _ in range(minutes):
        visited.append(number((await feed(world)).counters, "visited"))
        await world.clock.sleep(60)
    return visited


async def test_a_wallets_list_that_does_not_show_it_either_is_read_once(tmp_path: Path) -> None:
    """Nothing more can be learned from it; the contract's list has its turn."""
    async with hiding_world(tmp_path) as (world, hiding):
        hidden, shown = await hidden_and_shown(world)
        hiding.add(hidden)
        visited = await visits(world, 10)
        early = await recorded(world)
        await sweep(world, world.run(by_hand=True))
        rows = await world.rows()

    assert visited == [1] + [0] * 9
    assert early == {shown}
    assert rows == as_rows(world.simulator.chain.truth())
    assert len(rows) == 2


async def test_a_wallets_list_that_lags_is_read_five_times_and_then_rarely(tmp_path: Path) -> None:
    """It does not show the later transaction either, so it may show both soon; when it does, nothing is missing."""
    async with hiding_world(tmp_path) as (world, hiding):
        hiding |= {*await hidden_and_shown(world)}
        visited = await visits(world, 10)
        hiding.clear()
        later = await visits(world, 70)
        rows = await world.rows()

    assert visited == [1] * 5 + [0] * 5
    assert sum(later) == 1
    assert rows == as_rows(world.simulator.chain.truth())
    assert len(rows) == 2


async def test_lists_that_lag_take_no_visit_from_other_wallets(tmp_path: Path) -> None:
    """Five wallets whose lists show nothing new, and a sixth whose missing transaction is a block later."""
    simulator = chain_of(6)
    chain = simulator.chain
    fetch = ChangedFetch(simulator, "/transactions")
    lagging = {f"/{wallet.address}/transactions" for wallet in chain.wallets[:5]}

    def without_new(url: str, body: dict[str, Any]) -> None:
        if any(part in url for part in lagging):
            body["results"] = []

    async with open_world(tmp_path, simulator, fetch=lambda _: fetch) as world:
        await started(world)
        await world.clock.sleep(60)
        simulator.advance()
        hidden = []
        for wallets in (chain.wallets[:5], chain.wallets[5:]):
            hidden += [chain.swap(wallet) for wallet in wallets]
            chain.mine()
        for wallet in chain.wallets:
            chain.swap(wallet)
        chain.mine()
        simulator.hiro._is_listed = lambda tx: tx not in hidden  # type: ignore[method-assign]  # of our choice
        fetch.change = without_new
        visited = await visits(world, 8)
        found = await recorded(world)

    assert hidden[5].tx_id in found
    assert visited == [5] * 5 + [1, 0, 0]


async def test_many_wallets_are_visited_a_few_in_each_run(tmp_path: Path) -> None:
    """Twelve wallets lack a nonce at once: five, five and two are visited."""
    simulator = chain_of(12)
    async with open_world(tmp_path, simulator) as world:
        chain = simulator.chain
        await started(world)
        await world.clock.sleep(60)
        simulator.advance()
        hidden = [chain.swap(wallet) for wallet in chain.wallets]
        chain.mine()
        for wallet in chain.wallets:
            chain.swap(wallet)
        chain.mine()
        simulator.hiro._is_listed = lambda tx: tx not in hidden  # type: ignore[method-assign]  # of our choice
        visited = []
        for _ in range(4):
            visited.append(number((await feed(world)).counters, "visited"))
            await world.clock.sleep(60)
        rows = await world.rows()

    assert visited == [5, 5, 2, 0]
    assert rows == as_rows(chain.truth())
    assert len(rows) == 24
    assert len(world.log.of("wallet.nonce_missing")) == 12


async def test_a_visit_that_fails_counts_once(tmp_path: Path) -> None:
    """Five such visits, and no fewer, make a wallet's list one that keeps failing."""
    async with open_world(tmp_path, chain_of(2)) as world:
        await started(world)
        wallet = world.simulator.chain.wallets[0].address
        await world.db.batch(await nonces.record_seen(world.db, {wallet: [(7, 1), (9, 2)]}))
        world.simulator.faults.add(SimulatedFault(kind="status", status=500, path=f"{wallet}/transactions"))
        result = await feed(world)
        marks = await world.all("SELECT failures FROM marks WHERE principal = ?", wallet)

    assert result.counters["visited"] == 1
    assert marks == [{"failures": 1}]
