"""The feed: what a look at the network's list costs, what it finds, and what it does in trouble."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from holdfast.testing.virtual_time import VirtualClock
from stacks_simulator.calls import MULTIHOP_ROUTER
from stacks_simulator.chain import SPONSOR, Chain
from stacks_simulator.chain_records import ChainTransaction
from stacks_simulator.faults import SimulatedFault
from stacks_simulator.traffic import Traffic, start_traffic
from stacks_simulator.wallets import Wallet
from support.competition import (
    World,
    as_rows,
    chain_of,
    feed,
    follow,
    followed,
    frozen,
    listing,
    number,
    open_world,
    register,
    started,
    sweep,
    trading,
    transaction,
)
from support.simulated_fetch import SimulatedFetch
from support.whole_service import Throttle
from tocsin.errors import RunStopped
from tocsin.fetch import FetchResponse
from tocsin.scheduler.types import Completeness
from tocsin.settings import Settings
from tocsin.swaps import proof as nonces
from tocsin.swaps.feed import EMPTY_RESULT, FeedCounts
from tocsin.swaps.lists import PageRead
from tocsin.swaps.position import Anchor, FeedState, Gap, MeasuredTraffic, Position, load_state, save_state
from tocsin.swaps.proof import completeness
from tocsin.swaps.rules import Code, built_in
from tocsin.swaps.store import Refusal
from tocsin.swaps.sweep import Sweep
from tocsin.swaps.verify import Tally
from tocsin.text import utc_time
from tocsin.upstream.answer import Failure, Gone, Limited, Unauthorised, Unavailable

CONTRACTS = len(built_in().contracts)
NETWORK_LIST = "/extended/v3/transactions"
MULTIPLE = "/extended/v1/tx/multiple"
TABLES = ("swaps", "refusals", "candidates", "marks", "nonces", "funders", "pair_totals")
SWAPS = Traffic(
    swaps=300, strangers=20, transfers=20, floods=0, reorgs=0, network=60, kinds={"simple": 1, "sponsored": 1}
)
EMPTY = b'{"limit":50,"total":0,"results":[],"cursor":{"next":null,"previous":null,"current":null}}'
NOW = 1_778_700_600_000
MINUTE = 60_000
TALLY = Tally(1, 2, 3, 4, 5, Counter({Code.TX_FAILED: 2, Code.INCOMPLETE_EVENTS: 1}))
LIMITED = Limited(NOW + MINUTE, "calls are refused", by_budget=True)


def many(world: World, count: int = 130) -> None:
    """Mine what waits, and transactions of strangers, by default more than a page of the list holds."""
    world.simulator.chain.dust(world.simulator.chain.strangers[1], count)
    world.simulator.chain.mine()


async def test_the_first_look_begins_at_the_head(tmp_path: Path) -> None:
    """It costs one call, whatever the length of the list; the sweep then reads every contract's list once."""
    async with trading(tmp_path, 2) as (world, chain):
        chain.swap(chain.wallets[0])
        many(world)
        world.trade(chain.wallets[1])
        first = await feed(world)
        paths, found = world.paths(), await world.rows()
        swept = await sweep(world)
        rows = await world.rows()
        again = await sweep(world, after_s=900)
        second = await feed(world)

    truth = as_rows(chain.truth())
    assert paths == [NETWORK_LIST, MULTIPLE]
    assert found == truth[1:]
    assert (first.counters["inserted"], first.counters["completeUntilBlock"]) == (1, None)
    assert (swept.counters["way"], swept.counters["contractsScanned"]) == ("network", CONTRACTS)
    assert rows == truth
    assert number(again.counters, "contractsScanned") <= 1
    assert second.counters["completeUntilBlock"] == chain.index.all[-1].position[0]


async def test_a_second_look_costs_one_call_and_finds_a_swap_of_the_last_minute(tmp_path: Path) -> None:
    """New transactions of others cost nothing more; a swap costs the call that verifies it, in the same run."""
    async with followed(tmp_path, 2) as (world, chain):
        chain.mine(*chain.dust(chain.strangers[1], 30))
        before = world.calls()
        quiet = await feed(world)
        paths = world.paths(before)
        await world.clock.sleep(120)
        chain.mine(chain.swap(chain.wallets[0], "multihop"))
        before = world.calls()
        found = await feed(world)
        await world.check(1)

    assert paths == [NETWORK_LIST]
    assert (quiet.counters["pages"], quiet.counters["transactions"], quiet.counters["found"]) == (1, 30, 0)
    assert world.paths(before) == [NETWORK_LIST, MULTIPLE]
    assert (found.counters["found"], found.counters["inserted"]) == (1, 1)
    assert (found.error, found.incomplete) == (None, None)


async def test_an_unchanged_list_changes_nothing(tmp_path: Path) -> None:
    """One call, and only the state of the feed is written."""
    async with trading(tmp_path, 2) as (world, chain):
        chain.swap(chain.wallets[0])
        await started(world)
        await feed(world)
        await world.clock.sleep(120)
        before = [await world.all(f"SELECT * FROM {table}") for table in TABLES]
        state = await world.all("SELECT key FROM competition_state ORDER BY key")
        world.simulator.requests.clear()
        result = await feed(world)
        after = [await world.all(f"SELECT * FROM {table}") for table in TABLES]
        keys = await world.all("SELECT key FROM competition_state ORDER BY key")

    assert [request.status for request in world.simulator.requests] == [200]
    assert (result.counters["pages"], result.counters["transactions"]) == (1, 0)
    assert number(result.counters, "completeUntilBlock") > 7_900_000
    assert (before, state) == (after, keys)


@pytest.mark.parametrize("cadence_s", [1, 10, 60, 900])
async def test_every_run_looks(cadence_s: int, tmp_path: Path) -> None:
    """At every cadence, whether anybody trades or not: a swap is found by the first run after its block."""
    async with followed(tmp_path, 2) as (world, chain):
        settings = Settings(feed_cadence=cadence_s * 1000)
        found, before = [], world.calls(NETWORK_LIST)
        for number_of_run in range(6):
            chain.swap(chain.wallets[0]) if number_of_run == 4 else None
            chain.mine()
            found.append((await feed(world, settings=settings)).counters["inserted"])
            await world.clock.sleep(cadence_s)

    assert world.calls(NETWORK_LIST) - before == 6
    assert found == [0, 0, 0, 0, 1, 0]


async def test_calls_that_do_not_count_are_stored_and_reported(tmp_path: Path) -> None:
    """A failed call, one of an agent without an identity, and a call to a contract that is not listed."""
    async with followed(tmp_path, chain_of(11, all_eligible=False)) as (world, chain):
        failed = chain.swap(chain.wallets[0], "abort_by_response")
        genesis = chain.swap(chain.wallets[9])
        unlisted = chain.swap(chain.wallets[1], "off_list_contract")
        world.trade(chain.strangers[0], kind="off_list_contract")
        before = world.calls()
        result = await feed(world)
        paths = world.paths(before)
        codes = {row["txid"]: row["code"] for row in await world.all("SELECT txid, code FROM refusals")}

    assert paths == [NETWORK_LIST]
    assert codes == {
        failed.tx_id: "tx_failed",
        genesis.tx_id: "sender_not_registered",
        unlisted.tx_id: "contract_not_allowlisted",
    }
    assert [line.fields["txid"] for line in world.log.of("contract.unlisted")] == [unlisted.tx_id]
    assert result.counters["rejectionReasons"] == {"tx_failed": 1, "sender_not_registered": 1}
    assert (result.counters["found"], result.counters["inserted"]) == (2, 0)


async def test_refusals_of_the_feed_are_reopened(tmp_path: Path) -> None:
    """When the wallet becomes eligible, or the list has the contract, the next sweep records the swap."""
    async with followed(tmp_path, chain_of(11, all_eligible=False)) as (world, chain):
        half = chain.wallets[9]
        chain.swap(half)
        [sent] = world.trade(chain.wallets[0], kind="off_list_contract")
        await feed(world)
        assert await world.rows() == []
        await register(world.db, [Wallet(half.address, "eligible", half.btc_address, erc8004_agent_id=99)])
        eligible = {wallet.address for wallet in chain.wallets if wallet.tier == "eligible"} | {half.address}
        await sweep(world, after_s=900)
        await world.check(senders=eligible)
        grown = listing(world, sent)
        await sweep(world, rules=grown)
        await world.check(2, senders=eligible, allowlist=grown.allowlist.contracts)


@pytest.mark.slow
@pytest.mark.parametrize("new", ["contract", "function"])
async def test_nothing_is_called_complete_before_new_rules_were_applied(new: str, tmp_path: Path) -> None:
    """Until the list of a new contract, or one with a new function, was read from the start."""
    async with trading(tmp_path, 2) as (world, chain):
        sent = chain.swap(chain.wallets[0], f"off_list_{new}")
        await started(world)
        before = await feed(world)
        grown = listing(world, sent)
        unread = await feed(world, rules=grown, after_s=120)
        await sweep(world, rules=grown)
        read = await feed(world, rules=grown, after_s=120)
        rows = await world.rows()

    assert before.counters["completeUntilBlock"] is not None
    assert unread.counters["completeUntilBlock"] is None
    assert read.counters["completeUntilBlock"] is not None
    assert len(rows) == 1


async def test_a_wallet_that_registers_later_is_read_by_the_sweep(tmp_path: Path) -> None:
    """The feed skipped its swaps while it was unregistered; its own list has them."""
    async with followed(tmp_path, 2) as (world, chain):
        stranger = chain.strangers[0]
        chain.burst(stranger, 3)
        chain.mine()
        await feed(world)
        assert await world.rows() == []
        await register(world.db, [Wallet(stranger.address, "eligible", "bc1qnew", erc8004_agent_id=9)])
        unread = await feed(world, after_s=120)
        await sweep(world)
        await world.check(3, senders={stranger.address})
        read = await feed(world, after_s=120)

    assert unread.counters["completeUntilBlock"] is None
    assert read.counters["completeUntilBlock"] is not None


async def test_what_a_wallet_sponsors_uses_its_nonces_too(tmp_path: Path) -> None:
    """An agent that pays for others' transactions lacks nothing, although it sent only a few of its own."""
    simulator = chain_of(2)
    chain = simulator.chain
    sponsor = Wallet(SPONSOR, "eligible", "bc1qsponsor", erc8004_agent_id=77)
    chain.wallets = (*chain.wallets, sponsor)
    async with followed(tmp_path, simulator) as (world, _):
        for wallet in (sponsor, chain.wallets[0], sponsor, chain.wallets[1], sponsor):
            chain.swap(wallet, "simple" if wallet is sponsor else "sponsored")
            chain.mine()
        result = await feed(world)
        ranges = await world.all("SELECT ranges_json FROM nonces WHERE wallet = ?", SPONSOR)
        await world.check(5)

    height = chain.blocks[-1].height
    assert (result.counters["missingNonces"], result.counters["visited"]) == (0, 0)
    assert ranges == [{"ranges_json": f"[[0, 4, {height}]]"}]


@pytest.mark.slow
async def test_runs_of_feed_and_sweep_verify_a_swap_once(tmp_path: Path) -> None:
    """An hour of trades with both tasks: every swap is asked for once, and all are recorded."""
    async with followed(tmp_path, 5) as (world, _):
        for _ in range(4):
            world.trade()
            await follow(world, 15)
        await world.check(20)

    assert world.calls(MULTIPLE) == 4


# Feed and sweep at the same time


async def test_feed_and_sweep_at_the_same_time_do_not_verify_the_same(tmp_path: Path) -> None:
    """Each run leaves alone what the other is verifying: each swap is requested once."""
    async with followed(tmp_path, 6, latency_s=0.2) as (world, chain):
        for wallet in chain.wallets:
            chain.burst(wallet, 10)
        chain.mine()
        before = len(world.simulator.requests)
        both = await asyncio.gather(feed(world), sweep(world, world.run(by_hand=True)))
        asked = "".join(request.query for request in list(world.simulator.requests)[before:])
        await world.check()

    assert all(asked.count(swap.txid) == 1 for swap in chain.truth())
    assert sum(number(result.counters, "inserted") for result in both) == 60


@pytest.mark.slow
async def test_a_list_counts_as_read_from_when_its_walk_began(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The feed begins while a contract's list is read: the swaps between its first page and the feed are found."""
    async with trading(tmp_path, 2) as (world, chain):
        chain.mine(*chain.burst(chain.wallets[0], 120, "multihop"))
        whole = world.hiro.principal_transactions
        begun = False

        async def beginning(principal: str, session: Any, cursor: str | None = None) -> Any:
            nonlocal begun
            if principal == MULTIHOP_ROUTER and cursor is not None and not begun:
                begun = True
                await world.wait(5)
                chain.mine(chain.swap(chain.wallets[1], "multihop"))
                many(world, 130)
                await feed(world)
                await world.clock.sleep(5)
            return await whole(principal, session, cursor)

        monkeypatch.setattr(world.hiro, "principal_transactions", beginning)
        await sweep(world)
        early = len(await world.rows())
        unproven = await feed(world, after_s=120)
        await sweep(world, after_s=780)
        await world.check(121)
        proven = await feed(world, after_s=120)

    assert early == 120
    assert unproven.counters["completeUntilBlock"] is None
    assert proven.counters["completeUntilBlock"] == chain.blocks[-1].height


async def test_a_sweep_asks_for_another_if_the_first_look_came_later(tmp_path: Path) -> None:
    """Lists that were read before the feed's first look prove nothing. Without a look, only the first sweep asks."""
    async with open_world(tmp_path, chain_of(2)) as world:
        now = world.clock.now
        without_look = [(await sweep(world)).wake_at, now() + 60_000]
        second = (await sweep(world)).wake_at
        await feed(world, after_s=1)
        made = Sweep(world.run(), world.rules, cadence_ms=900_000, feed_ms=60_000)
        await made.prepare()
        needed = [await made.needed_again_at(), now() + 60_000]
        await save_state(world.db, replace(await load_state(world.db), started_at=now() + 1), now()).run()
        ahead = await made.needed_again_at()
        await save_state(world.db, replace(await load_state(world.db), started_at=now()), now()).run()
        proving = await sweep(world)
        alone = Sweep(world.run(), world.rules, cadence_ms=900_000)
        await alone.prepare()
        switched_off = await alone.needed_again_at()
        await save_state(world.db, FeedState(source="contracts", started_at=now()), now()).run()
        other_way = await made.needed_again_at()

    assert without_look[0] == without_look[1]
    assert needed[0] == needed[1]
    assert (second, ahead, switched_off, other_way) == (None, None, None, None)
    assert (proving.counters["contractsRead"], proving.wake_at) == (40, None)


async def test_a_sweep_vouches_for_the_time_at_which_it_began(tmp_path: Path) -> None:
    """It took minutes, and a list that was read first may lack what was mined since."""
    async with open_world(tmp_path, chain_of(2), latency_s=7.0) as world:
        began_at = world.clock.now()
        result = await sweep(world)
        took_ms = world.clock.now() - began_at
        swept_at = await world.all("SELECT value FROM competition_state WHERE key = 'competition_swept_at'")

    assert (result.error, result.incomplete) == (None, None)
    assert took_ms > 40_000
    assert swept_at == [{"value": str(began_at)}]


# More to read than one run can


async def state_size(world: World) -> int:
    (row,) = await world.all("SELECT value FROM competition_state WHERE key = 'competition_feed'")
    return len(row["value"])


@pytest.mark.slow
async def test_twenty_thousand_transactions_after_a_downtime(tmp_path: Path) -> None:
    """Forty pages a run, the newest first; after eleven runs everything is read, and the state stayed small."""
    async with followed(tmp_path, 5) as (world, chain):
        early = chain.swap(chain.wallets[0])
        for _ in range(40):
            many(world, 500)
            await world.wait(2 * 3_600)
        [late] = world.trade(chain.wallets[1])
        results, found, sizes = [], [], []
        for _ in range(14):
            results.append(await feed(world))
            found.append([row["txid"] for row in await world.rows()])
            sizes.append(await state_size(world))
            if results[-1].incomplete is None:
                break
            many(world, 20)
            await world.clock.sleep(60)
        await world.check()

    behind = [number(result.counters, "blocksBehind") for result in results]
    claims = [number(result.counters, "completeUntilBlock") for result in results]
    pages = [number(result.counters, "pages") for result in results]
    assert max(pages) == 40
    assert 10 <= len(results) <= 13
    assert found[0] == [late.tx_id]
    assert found[-1] == [early.tx_id, late.tx_id]
    assert all(result.incomplete and "blocks behind" in result.incomplete for result in results[:-1])
    assert len(set(claims[:-1])) == 1  # nothing above the old head is called complete before all of it was read
    assert claims[-1] == chain.blocks[-1].height
    assert (min(behind[:-1]) > 0, behind[-1]) == (True, 0)
    assert max(sizes) < 20_000


@asynccontextmanager
async def throttled(directory: Path, wallets: int, calls: int) -> AsyncIterator[tuple[World, Chain, Throttle]]:
    """Follow the list of a chain, from now on with so many calls a minute."""
    simulator = chain_of(wallets)
    clock = simulator.clock
    assert isinstance(clock, VirtualClock)
    throttle = Throttle(SimulatedFetch(simulator), clock, calls=1_000, window_s=60)
    async with followed(directory, simulator, fetch=lambda _: throttle) as (world, chain):
        throttle.calls = calls
        yield world, chain, throttle


@pytest.mark.slow
async def test_one_call_a_minute_for_hours(tmp_path: Path) -> None:
    """The list grows by more than a page a minute: the newest swaps are on record, and later all of them."""
    async with throttled(tmp_path, 4, 1) as (world, chain, throttle):
        traffic = Traffic(swaps=12, strangers=10, transfers=10, floods=0, reorgs=0, network=3_600)
        start_traffic(chain, traffic)
        reached, claims, delays, counts, sizes = [], [], [], [], []
        for _ in range(180):
            result = await feed(world, after_s=60)
            claims.append(number(result.counters, "completeUntilBlock"))
            reached.append((await load_state(world.db)).position.complete_block or 0)
            counts.append(len(await world.rows()))
            sizes.append(await state_size(world))
            delays.append(number(result.counters, "blocksBehind"))
            if result.incomplete is None:
                assert result.counters["blocksBehind"] == 0
        frozen(world.simulator)
        recorded = len(await world.rows())
        throttle.calls = 10_000
        last = await feed(world, after_s=120)
        for _ in range(20):
            if last.incomplete is None:
                break
            last = await feed(world, after_s=60)
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
    async with throttled(tmp_path, 4, 1) as (world, chain, _):
        traffic = Traffic(swaps=6, strangers=10, transfers=10, floods=0, reorgs=0, network=300)
        start_traffic(chain, traffic)
        for _ in range(120):
            result = await feed(world, after_s=60)
            assert number(result.counters, "blocksBehind") <= 60
        old = [swap.txid for swap in chain.truth() if swap.block_height < chain.tip_height - 60]
        found = {row["txid"] for row in await world.rows()}

    assert len(old) > 4
    assert found >= set(old)


async def test_calls_run_out_and_the_next_run_goes_on(tmp_path: Path) -> None:
    """Nothing is called complete while something is unread, and the result states when to continue."""
    async with throttled(tmp_path, 2, 3) as (world, chain, _):
        sent = chain.swap(chain.wallets[0])
        many(world, 700)
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
    async with followed(tmp_path, 2) as (world, chain):
        chain.swap(chain.wallets[0])
        many(world, 500)
        before = world.calls()
        stops = 0
        for _ in range(20):
            try:
                await feed(world, world.run(stop_after=3))
            except RunStopped:
                stops += 1
            await world.clock.sleep(60)
        reads = world.paths(before).count(NETWORK_LIST)
        await world.check(1)

    assert stops >= 3
    assert reads <= 11 + 20


# Transactions that the list does not show


@asynccontextmanager
async def all_traded(directory: Path, wallets: int) -> AsyncIterator[tuple[World, Chain]]:
    """Follow a chain on which every wallet has made a transaction; the sweep has read everything once."""
    async with trading(directory, wallets) as (world, chain):
        for wallet in chain.wallets:
            chain.transfer(wallet, chain.strangers[0], 5)
        chain.mine()
        await feed(world)
        while number((await sweep(world)).counters, "scanned"):
            await world.clock.sleep(60)
        await world.wait(60)
        yield world, chain


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
    """In every minute of an hour; the rest is found when the contracts' lists are read."""
    async with all_traded(tmp_path, 20) as (world, chain):
        simulator = world.simulator
        simulator.hiro.omitted_share = share
        start_traffic(chain, SWAPS)
        visits = looks = 0
        before = len(simulator.requests)
        for minute in range(1, 61):
            await world.wait(60)
            expected = betrayed(world)
            result = await feed(world)
            looks += 1
            visits += number(result.counters, "visited")
            true = {swap.txid for swap in chain.truth()}
            assert result.counters["blocksBehind"] == 0
            assert expected & true <= await recorded(world)
            if minute % 15 == 0:
                await sweep(world)
        paths = world.paths(before)
        frozen(simulator)
        await feed(world, world.run(by_hand=True))
        hidden = {tx.tx_id for tx in omitted(world)} & {swap.txid for swap in chain.truth()}
        unseen = hidden - await recorded(world)
        await sweep(world, context=world.run(by_hand=True))
        rows = await world.rows()

    truth = chain.truth()
    assert len(truth) > 70
    assert len(hidden) > (0 if share < 0.1 else 10)
    assert len(unseen) < len(hidden)
    assert rows == as_rows(truth)
    assert visits <= len(hidden) + 1
    assert paths.count(NETWORK_LIST) <= looks + 2
    assert len(paths) <= looks + visits + len(truth) + 20  # what the sweep reads in turn


async def test_nothing_is_called_complete_above_a_missing_nonce(tmp_path: Path) -> None:
    """While the wallet's list fails, the block is below the missing transaction; then it is the head's again."""
    async with all_traded(tmp_path, 3) as (world, chain):
        wallet = chain.wallets[1]
        hidden, shown = await hidden_and_shown(world)
        world.simulator.faults.add(SimulatedFault(kind="wrong_json", path=wallet.address))
        claims = []
        for _ in range(12):
            result = await feed(world)
            claims.append(number(result.counters, "completeUntilBlock"))
            assert result.counters["missingNonces"] == 1
            assert chain.transactions[hidden].tx_id not in await recorded(world)
            await world.clock.sleep(60)
        tries = sum(wallet.address in path for path in world.paths())
        world.simulator.faults.clear()
        last = await feed(world, after_s=3_600)
        rows = await world.rows()

    block = chain.transactions[hidden].block
    assert block is not None
    assert max(claims) < block.height
    assert tries <= 8  # after five it is tried once an hour
    assert rows == as_rows(chain.truth())
    assert {row["txid"] for row in rows} == {hidden, shown}
    assert (last.counters["missingNonces"], last.counters["completeUntilBlock"]) == (0, chain.blocks[-1].height)


def hide(world: World, *hidden: ChainTransaction) -> None:
    """Leave these transactions out of the network's list."""
    world.simulator.hiro._is_listed = lambda tx: tx not in hidden  # type: ignore[method-assign]  # of our choice


async def hidden_and_shown(world: World) -> tuple[str, str]:
    """Two swaps of one wallet, the first of which the list does not show; both in the block of an earlier one."""
    chain = world.simulator.chain
    first = chain.transfer(chain.wallets[1], chain.strangers[0], 5)
    hidden, shown = chain.burst(chain.wallets[1], 2)
    chain.mine(first, hidden, shown)
    hide(world, hidden)
    return hidden.tx_id, shown.tx_id


@asynccontextmanager
async def hiding_world(directory: Path) -> AsyncIterator[tuple[World, set[str]]]:
    """A world that has started, and a set of transactions that the second wallet's own list does not show."""
    hiding: set[str] = set()

    def without_hidden(_url: str, body: dict[str, Any]) -> None:
        body["results"] = [row for row in body["results"] if row.get("transaction", row)["tx_id"] not in hiding]

    async with all_traded(directory, 3) as (world, chain):
        with world.changing(f"/{chain.wallets[1].address}/transactions", without_hidden):
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
        await world.check(2)

    assert visited == [1] + [0] * 9
    assert early == {shown}


async def test_a_wallets_list_that_lags_is_read_five_times_and_then_rarely(tmp_path: Path) -> None:
    """It does not show the later transaction either, so it may show both soon; when it does, nothing is missing."""
    async with hiding_world(tmp_path) as (world, hiding):
        hiding |= {*await hidden_and_shown(world)}
        visited = await visits(world, 10)
        hiding.clear()
        later = await visits(world, 70)
        await world.check(2)

    assert visited == [1] * 5 + [0] * 5
    assert sum(later) == 1


async def test_lists_that_lag_take_no_visit_from_other_wallets(tmp_path: Path) -> None:
    """Five wallets whose lists show nothing new, and a sixth whose missing transaction is a block later."""
    async with all_traded(tmp_path, 6) as (world, chain):
        lagging = [f"/{wallet.address}/transactions" for wallet in chain.wallets[:5]]
        hidden = []
        for wallets in (chain.wallets[:5], chain.wallets[5:]):
            hidden += [chain.swap(wallet) for wallet in wallets]
            chain.mine()
        world.trade()
        hide(world, *hidden)

        def without_new(url: str, body: dict[str, Any]) -> None:
            if any(part in url for part in lagging):
                body["results"] = []

        with world.changing("/transactions", without_new):
            visited = await visits(world, 8)
        found = await recorded(world)

    assert hidden[5].tx_id in found
    assert visited == [5] * 5 + [1, 0, 0]


async def test_many_wallets_are_visited_a_few_in_each_run(tmp_path: Path) -> None:
    """Twelve wallets lack a nonce at once: five, five and two are visited."""
    async with all_traded(tmp_path, 12) as (world, chain):
        hidden = [chain.swap(wallet) for wallet in chain.wallets]
        chain.mine()
        world.trade()
        hide(world, *hidden)
        visited = await visits(world, 4)
        await world.check(24)

    assert visited == [5, 5, 2, 0]
    assert len(world.log.of("wallet.nonce_missing")) == 12


async def test_a_visit_that_fails_counts_once(tmp_path: Path) -> None:
    """Five such visits, and no fewer, make a wallet's list one that keeps failing."""
    async with all_traded(tmp_path, 2) as (world, chain):
        wallet = chain.wallets[0].address
        await world.db.batch(await nonces.record_seen(world.db, {wallet: [(7, 1), (9, 2)]}))
        world.simulator.faults.add(SimulatedFault(kind="status", status=500, path=f"{wallet}/transactions"))
        result = await feed(world)
        marks = await world.all("SELECT failures FROM marks WHERE principal = ?", wallet)

    assert result.counters["visited"] == 1
    assert marks == [{"failures": 1}]


# Reorgs, refused cursors, and pages that break Hiro's contract


@pytest.mark.slow
@pytest.mark.parametrize("fate", ["dropped", "forked", "vanished"])
async def test_the_feed_alone_withdraws_a_swap_that_a_reorg_removed(fate: Any, tmp_path: Path) -> None:
    """It is no longer in the list, and the lookup confirms it; mined again, it is back."""
    async with followed(tmp_path, 2) as (world, chain):
        sent = world.trade()
        await feed(world)
        before = await world.rows()
        chain.reorg(3, fate)
        many(world, 3)
        result = await feed(world, after_s=60)
        await world.check(0)
        for tx in sent:
            chain.rebroadcast(tx)
        chain.mine()
        await feed(world, after_s=120)
        await world.check(2)

    assert len(before) == 2
    assert result.counters["withdrawn"] == 2


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["simple", "sponsored"])
async def test_a_swap_that_is_mined_in_another_block_is_moved(kind: str, tmp_path: Path) -> None:
    """Its block is the new one, and it is not counted twice."""
    async with followed(tmp_path, 2) as (world, chain):
        tx = chain.swap(chain.wallets[0], kind)
        first = chain.mine()
        await feed(world)
        chain.reorg(5, "dropped")
        many(world, 3)
        await world.clock.sleep(60)
        chain.rebroadcast(tx)
        second = chain.mine()
        result = await feed(world)
        blocks = await world.all("SELECT block_height, block_hash FROM swaps")
        await world.check()

    assert first.hash != second.hash
    assert blocks == [{"block_height": second.height, "block_hash": second.hash}]
    assert result.counters["missingNonces"] == 0


async def test_a_reorg_deeper_than_everything_read_restarts_the_feed(tmp_path: Path) -> None:
    """It is logged, and the sweep reads all contracts' lists again: the swaps that the new chain has below the head."""
    async with trading(tmp_path, 3) as (world, chain):
        many(world, 200)
        await world.wait(60)
        await started(world)
        world.trade()
        await feed(world)
        gone = await world.rows()
        chain.reorg(chain.tip_height - chain.blocks[0].height, "vanished")
        world.trade(chain.wallets[0])
        many(world)
        await world.clock.sleep(60)
        known = await world.all("SELECT wallet FROM nonces")
        first = await feed(world)
        forgotten = await world.all("SELECT wallet FROM nonces")
        swept = await sweep(world)
        await world.check(1)
        second = await feed(world, after_s=60)

    assert len(gone) == 3
    assert (len(known), forgotten) == (3, [])  # those seen before the unread stretch prove nothing
    assert len(world.log.of("feed.restarted")) == 1
    assert (first.counters["pages"], first.counters["completeUntilBlock"]) == (3, None)
    assert swept.counters["contractsScanned"] == CONTRACTS
    assert second.counters["completeUntilBlock"] == chain.blocks[-1].height


@pytest.mark.slow
@pytest.mark.parametrize("status", [404, 400])
async def test_a_cursor_that_is_not_accepted_is_given_up(status: int, tmp_path: Path) -> None:
    """The run says so and is not complete; the next one reads from the head again and misses nothing."""
    async with followed(tmp_path, 2) as (world, chain):
        chain.swap(chain.wallets[0])
        many(world)
        refusal = FetchResponse(status, {}, b'{"statusCode":404,"message":"Cursor not found"}')
        with world.answering(lambda url: refusal if NETWORK_LIST in url and "cursor" in url else None):
            first = await feed(world)
        early = await world.rows()
        second = await feed(world, after_s=60)
        await world.check(1)

    assert early == []
    assert first.incomplete is not None
    assert "does not accept its own cursor" in first.incomplete
    assert (first.error, second.error, second.incomplete) == (None, None, None)


def poison_cursor(_: str, body: dict[str, Any]) -> None:
    """Make a page's cursor lead to the page itself."""
    body["cursor"]["next"] = body["cursor"]["current"]


def empty_page(url: str, body: dict[str, Any], *, head: bool = False) -> None:
    """Empty all pages but the first, or only the first."""
    if ("cursor=" in url) != head:
        body |= json.loads(EMPTY)


@pytest.mark.parametrize("wrong", [poison_cursor, empty_page])
async def test_one_wrong_page_does_not_stop_the_feed(wrong: Any, tmp_path: Path) -> None:
    """It was wrong once: its gap is dropped, and the next run reads everything from the head."""
    async with followed(tmp_path, 2) as (world, chain):
        chain.swap(chain.wallets[0])
        many(world)
        with world.changing(NETWORK_LIST + "?", wrong):
            first = await feed(world)
        proof = await completeness(world.db, world.rules, feed_runs=True)
        await world.clock.sleep(60)
        chain.mine(chain.swap(chain.wallets[1]))
        second = await feed(world)
        await world.check()

    assert first.incomplete is not None
    assert first.incomplete.endswith("the list is read from its head again")
    assert proof.obstacle == "a part of the network's list is unread"
    (line,) = world.log.of("feed.gap_dropped")
    assert line.fields["block"] == chain.blocks[-2].height
    assert (second.incomplete, second.counters["inserted"]) == (None, 2)


@pytest.mark.parametrize("wrong", ["fails", "repeats the head", "is empty"])
async def test_a_gap_that_cannot_be_read_does_not_prevent_the_look(wrong: str, tmp_path: Path) -> None:
    """A swap at the head is found by the run whose gap fails, and the right answer then fills the gap."""
    async with followed(tmp_path, 2) as (world, chain):
        chain.swap(chain.wallets[0])
        many(world)
        answer, pages_of_gaps = "fails", list[str]()

        def changed(url: str) -> FetchResponse | str | None:
            if f"{NETWORK_LIST}?" not in url or "cursor=" not in url:
                return None
            pages_of_gaps.append(answer)
            if answer == "repeats the head":
                return url.split("&cursor", maxsplit=1)[0]
            return FetchResponse(200, {}, EMPTY) if answer == "is empty" else FetchResponse(503, {}, b"{}")

        with world.answering(changed):
            await feed(world)
            left = (await load_state(world.db)).position.gaps
            answer = wrong
            await world.wait(60)
            [later] = world.trade(chain.wallets[1])
            failed = await feed(world)
        early = await world.rows()
        healed = await feed(world, after_s=60)
        rows, state = await world.rows(), await load_state(world.db)

    assert len(left) == 1
    assert state.newest_s == chain.blocks[-1].time_s  # of the head, not of the page that was read last
    assert failed.incomplete is not None
    assert wrong == "fails" or pages_of_gaps.count(wrong) == 1  # it is not tried twice in a run
    assert [row["txid"] for row in early] == [later.tx_id]
    assert (healed.incomplete, healed.counters["inserted"]) == (None, 1)
    assert rows == as_rows(chain.truth())


@pytest.mark.parametrize(("ahead_ms", "is_kept"), [(0, True), (1, False)])
async def test_a_time_of_a_clock_that_was_ahead_is_not_kept(ahead_ms: int, is_kept: bool, tmp_path: Path) -> None:
    """A look that leaves a gap does not count as complete; the last complete one was not in the future."""
    async with followed(tmp_path, 1) as (world, _):
        many(world)
        now, state = world.clock.now(), await load_state(world.db)
        complete_at = now + ahead_ms
        await save_state(world.db, replace(state, complete_at=complete_at), now).run()
        world.simulator.faults.add(SimulatedFault(kind="empty_page", path=NETWORK_LIST))
        await feed(world)
        kept = (await load_state(world.db)).complete_at

    assert kept == (complete_at if is_kept else None)


@pytest.mark.parametrize(("ago_ms", "gap_first"), [(0, True), (299_999, True), (300_000, False), (-1, False)])
async def test_for_five_minutes_a_page_of_the_gap_comes_before_the_look(
    ago_ms: int, gap_first: bool, tmp_path: Path
) -> None:
    """Then the head has its turn; also if the clock was set back since the last look."""
    async with followed(tmp_path, 1) as (world, _):
        many(world, 260)
        with world.answering(lambda url: FetchResponse(503, {}, b"{}") if "cursor=" in url else None):
            await feed(world)
        now, state = world.clock.now(), await load_state(world.db)
        await save_state(world.db, replace(state, looked_at=now - ago_ms), now).run()
        before = len(world.simulator.requests)
        result = await feed(world)

    assert len(state.position.gaps) == 1
    queries = [request.query for request in list(world.simulator.requests)[before:]]
    assert ["cursor=" in query for query in queries[:2]] == [gap_first, not gap_first]
    assert result.incomplete is None


def cut(_: str, body: dict[str, Any]) -> None:
    """Show two rows and no cursor."""
    body["results"] = body["results"][:2]
    body["cursor"]["next"] = None


@pytest.mark.parametrize("wrong", [cut, partial(empty_page, head=True)])
async def test_a_list_that_ends_early_is_refused(wrong: Any, tmp_path: Path) -> None:
    """We know of older rows: nothing below is taken for gone."""
    async with followed(tmp_path, 2) as (world, chain):
        many(world, 10)
        chain.mine(chain.swap(chain.wallets[0]))
        before = world.calls()
        with world.changing(NETWORK_LIST + "?", wrong):
            first = await feed(world)
        made = world.calls() - before
        second = await feed(world, world.run(by_hand=True))
        await world.check()

    assert made == 1
    assert first.incomplete is not None
    assert "the list of all transactions ends too early" in first.incomplete
    assert (second.incomplete, second.counters["withdrawn"]) == (None, 0)


@pytest.mark.slow
async def test_a_row_that_cannot_be_read_is_looked_up(tmp_path: Path) -> None:
    """It may be a swap: its transaction is queued, and recorded from the lookup. The others are read."""
    async with followed(tmp_path, 3) as (world, _):
        sent = world.trade()

        def spoilt(_: str, body: dict[str, Any]) -> None:
            for row in body["results"]:
                if row["tx_id"] == sent[1].tx_id:
                    row["block"] = "none"

        with world.changing(NETWORK_LIST + "?", spoilt):
            result = await feed(world)
        await world.check(3)

    assert result.incomplete is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (SimulatedFault(kind="wrong_json", path=NETWORK_LIST), "not JSON"),
        (SimulatedFault(kind="truncated", path=NETWORK_LIST), "not JSON"),
        (SimulatedFault(kind="status", status=503, path=NETWORK_LIST), "answered 503"),
        (SimulatedFault(kind="hang", path=NETWORK_LIST), "gave no answer"),
        (SimulatedFault(kind="limited", retry_after=600, path=NETWORK_LIST), ""),
    ],
)
async def test_a_list_that_cannot_be_read_says_why_and_loses_nothing(
    fault: SimulatedFault, words: str, tmp_path: Path
) -> None:
    """The run is not complete, the way stays the network's, and the next good look has everything."""
    async with followed(tmp_path, 2) as (world, chain):
        chain.swap(chain.wallets[0])
        many(world)
        world.simulator.faults.add(fault)
        first = await feed(world)
        world.simulator.faults.clear()
        second = await feed(world, after_s=900)
        await world.check()

    assert (first.limited_until is not None) == (fault.kind == "limited")
    assert first.incomplete is not None
    assert words in first.incomplete
    assert (first.counters["pages"], first.counters["way"]) == (0, "network")
    assert (second.error, second.incomplete) == (None, None)
    assert number(second.counters, "inserted") == 1


async def test_a_refused_key_is_a_failure(tmp_path: Path) -> None:
    async with open_world(tmp_path, chain_of(1)) as world:
        world.simulator.faults.add(SimulatedFault(kind="status", status=403))
        result = await feed(world)

    assert result.error_kind == "Unauthorised"
    assert result.error is not None


async def test_an_old_block_makes_a_run_incomplete(tmp_path: Path) -> None:
    """Hiro answers at once, but has stopped: half an hour is allowed, a second more is told, and proves nothing."""
    async with followed(tmp_path, 2) as (world, chain):
        block = chain.mine(chain.swap(chain.wallets[0]))
        ended = []
        for age_s in (1_800, 1_801, 2_820):
            result = await feed(world, after_s=block.time_s + age_s - world.clock.now() / 1000)
            proof = await completeness(world.db, world.rules, feed_runs=True)
            ended.append((result.incomplete, proof.as_of, proof.obstacle))
        longer = await feed(world, settings=Settings(block_age_max=3_600_000))
        begun_again = chain.mine(chain.swap(chain.wallets[1]))
        healed = await feed(world)
        proof = await completeness(world.db, world.rules, feed_runs=True)
        await world.check()

    complete_at = (block.time_s + 1_800) * 1000
    old = f"the newest block that Hiro lists is of {utc_time(block.time_s * 1000)}"
    assert ended == [
        (None, complete_at, None),
        ("Hiro's newest block is 30m 1s old", complete_at, old),
        ("Hiro's newest block is 47m old", complete_at, old),
    ]
    assert (longer.incomplete, healed.incomplete) == (None, None)
    assert (proof.until_block, proof.obstacle) == (begun_again.height, None)


async def test_a_list_whose_etag_is_stuck_hides_nothing(tmp_path: Path) -> None:
    """Whoever sends that ETag gets a 304 although new blocks have come; the feed does not."""
    async with followed(tmp_path, 2) as (world, chain):
        await feed(world)
        world.simulator.hiro.etag_stuck = True
        found = []
        for _ in range(3):
            await world.clock.sleep(60)
            chain.mine(chain.swap(chain.wallets[0]))
            found.append((await feed(world)).counters["inserted"])

    assert found == [1, 1, 1]


# The report of a run


READ = Position(tuple(Anchor(f"0x{height}", f"0xb{height}", height, 0) for height in (100, 90)))
BEHIND = replace(READ, gaps=(Gap("cursor", (95, 0)),))


def refusal(txid: str, code: Code) -> Refusal:
    return Refusal(transaction(txid, "S"), code, "why", "cron")


def test_the_counters_of_a_look() -> None:
    """Each in its own field; contracts that are not listed are no refusals of the competition."""
    complete = Completeness(90, None, 10, None)
    counts = FeedCounts(replace(TALLY), pages=6, transactions=7, found=8, visited=9, complete=complete)
    counts.tally.reasons = Counter(TALLY.reasons)
    counts.count(PageRead(refusals=[refusal("0x1", Code.TX_FAILED), refusal("0x2", Code.CONTRACT_NOT_ALLOWLISTED)]))
    for _ in range(2):  # two lists show it
        counts.count(PageRead(refusals=[refusal("0x3", Code.BEFORE_COMP_START)]))
    state = FeedState(reason="why", position=BEHIND, traffic=MeasuredTraffic(NOW, 5, 4_000))

    assert counts.counters(state, 2) == {
        "way": "network",
        "reason": "why",
        "pages": 6,
        "transactions": 7,
        "found": 8,
        "inserted": 1,
        "alreadyKnown": 2,
        "pending": 3,
        "withdrawn": 4,
        "rejected": 7,
        "rejectionReasons": {"before_comp_start": 1, "incomplete_events": 1, "tx_failed": 3, "verify_threw": 2},
        "failed": 5,
        "visited": 9,
        "missingNonces": 10,
        "completeUntilBlock": 90,
        "blocksBehind": 10,
        "transactionsPerDay": 4_000,
    }


def test_a_look_that_did_nothing_counts_nothing() -> None:
    """As the result of a run that was cut off before it began."""
    nothing = dict.fromkeys(EMPTY_RESULT, 0) | {"way": "network", "reason": "", "rejectionReasons": {}}

    assert nothing | {"completeUntilBlock": None, "transactionsPerDay": None} == EMPTY_RESULT


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (FeedState(position=BEHIND), 10),
        (FeedState(position=READ), 0),
        (FeedState(position=BEHIND, source="contracts"), 0),
        (FeedState(), 0),
        (FeedState(position=replace(BEHIND, anchors=READ.anchors[:1])), 0),
    ],
)
def test_how_many_blocks_a_list_is_behind(state: FeedState, expected: int) -> None:
    """None where it is not followed, or nothing is known to be complete."""
    assert state.blocks_behind == expected


def ended(
    counts: FeedCounts | None = None, position: Position = READ, stop: Failure | None = None, failure: str | None = None
) -> Any:
    return (counts or FeedCounts()).result({"a": 1}, FeedState(position=position), stop, failure)


def test_a_look_that_read_everything_is_complete() -> None:
    """With its counters; a failure of one unit makes it incomplete."""
    done, failed = ended(), ended(failure="no answer for one")

    assert (done.counters, done.incomplete, done.error, done.limited_until) == ({"a": 1}, None, None, None)
    assert (failed.incomplete, failed.error) == ("no answer for one", None)


@pytest.mark.parametrize("kind", [Unauthorised, Gone])
def test_an_answer_that_will_not_change_fails_a_look(kind: Any) -> None:
    """Others only stop it."""
    lasting = ended(stop=kind("the key is refused"))
    passing = ended(stop=Unavailable("no answer"))

    assert (lasting.error, lasting.error_kind) == ("the key is refused", kind.__name__)
    assert (passing.error, passing.incomplete) == (None, "no answer")


def test_what_a_look_left_is_said() -> None:
    """How far behind, which wallets, how many transactions, and why."""
    counts = FeedCounts(pages=1, failed_visits=2, unverified=3)
    result = ended(counts, BEHIND, LIMITED)

    assert result.incomplete == (
        "calls are refused (the network's list is read up to block 90, 10 blocks behind,"
        " wallets whose list could not be read: 2, transactions that could not be verified: 3)"
    )
    assert (result.limited_until, result.by_budget, result.progressed) == (NOW + MINUTE, True, True)


@pytest.mark.parametrize(
    ("counts", "progressed"),
    [
        (FeedCounts(unverified=1), False),
        (FeedCounts(unverified=1, pages=1), True),
        (FeedCounts(Tally(pending=1), unverified=1), True),
    ],
)
def test_a_look_has_come_further_if_it_did_anything(counts: FeedCounts, *, progressed: bool) -> None:
    """A page or a verified transaction; only then is a limit not a failure."""
    result = ended(counts)

    assert (result.progressed, result.by_budget, result.limited_until) == (progressed, False, None)
