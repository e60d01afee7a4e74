"""The feed: what one look at the network's list costs, what it finds, and what it leaves to the sweep."""

from pathlib import Path

import pytest

from stacks_simulator.chain import SPONSOR
from stacks_simulator.wallets import Wallet
from support.competition import World, as_rows, chain_of, feed, follow, number, open_world, register, sweep
from tocsin.settings import Settings
from tocsin.swaps.rules import AllowList, Rules, built_in

CONTRACTS = len(built_in().contracts)
NETWORK_LIST = "/extended/v3/transactions"
MULTIPLE = "/extended/v1/tx/multiple"


def fill_list(world: World, transactions: int = 120) -> None:
    """Older transactions of the network, so that its list has several pages."""
    world.simulator.chain.dust(world.simulator.chain.strangers[0], transactions)
    world.simulator.chain.mine()


async def started(world: World) -> None:
    """The feed has begun, and the sweep has read everything once."""
    fill_list(world)
    await feed(world)
    await sweep(world)
    await world.clock.sleep(120)
    world.simulator.advance()


async def test_the_first_look_begins_at_the_head(tmp_path: Path) -> None:
    """It costs one call, whatever the length of the list; the sweep then reads every contract's list once."""
    async with open_world(tmp_path, chain_of(2)) as world:
        chain = world.simulator.chain
        chain.swap(chain.wallets[0])
        fill_list(world)
        chain.swap(chain.wallets[1])
        chain.mine()
        first = await feed(world)
        paths, found = world.paths(), await world.rows()
        swept = await sweep(world)
        rows = await world.rows()
        await world.clock.sleep(900)
        again = await sweep(world)
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
    async with open_world(tmp_path, chain_of(2)) as world:
        chain = world.simulator.chain
        await started(world)
        chain.dust(chain.strangers[1], 30)
        chain.mine()
        before = world.calls()
        quiet = await feed(world)
        paths = world.paths(before)
        await world.clock.sleep(120)
        chain.swap(chain.wallets[0], "multihop")
        chain.mine()
        before = world.calls()
        found = await feed(world)
        rows = await world.rows()

    assert paths == [NETWORK_LIST]
    assert (quiet.counters["pages"], quiet.counters["transactions"], quiet.counters["found"]) == (1, 30, 0)
    assert world.paths(before) == [NETWORK_LIST, MULTIPLE]
    assert (found.counters["found"], found.counters["inserted"]) == (1, 1)
    assert (found.error, found.incomplete) == (None, None)
    assert rows == as_rows(chain.truth())
    assert len(rows) == 1


async def test_an_unchanged_list_changes_nothing(tmp_path: Path) -> None:
    """One call, and only the state of the feed is written."""
    async with open_world(tmp_path, chain_of(2)) as world:
        chain = world.simulator.chain
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


TABLES = ("swaps", "refusals", "candidates", "marks", "nonces", "funders", "pair_totals")


@pytest.mark.parametrize("cadence_s", [1, 10, 60, 900])
async def test_every_run_looks(cadence_s: int, tmp_path: Path) -> None:
    """At every cadence, whether anybody trades or not: a swap is found by the first run after its block."""
    async with open_world(tmp_path, chain_of(2)) as world:
        chain = world.simulator.chain
        await started(world)
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
    async with open_world(tmp_path, chain_of(11, all_eligible=False)) as world:
        chain = world.simulator.chain
        await started(world)
        failed = chain.swap(chain.wallets[0], "abort_by_response")
        genesis = chain.swap(chain.wallets[9])
        unlisted = chain.swap(chain.wallets[1], "off_list_contract")
        chain.swap(chain.strangers[0], "off_list_contract")
        chain.mine()
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
    async with open_world(tmp_path, chain_of(11, all_eligible=False)) as world:
        chain = world.simulator.chain
        await started(world)
        half = chain.wallets[9]
        chain.swap(half)
        sent = chain.swap(chain.wallets[0], "off_list_contract")
        chain.mine()
        await feed(world)
        before = await world.rows()
        await register(world.db, [Wallet(half.address, "eligible", half.btc_address, erc8004_agent_id=99)])
        await world.clock.sleep(900)
        await sweep(world)
        promoted = await world.rows()
        call = sent.payload
        contracts = {call.contract: frozenset({call.function})}  # type: ignore[union-attr]  # a call, not a transfer
        grown = Rules(built_in().plus(AllowList(contracts)), world.rules.start_s)
        await sweep(world, rules=grown)
        rows = await world.rows()

    eligible = {wallet.address for wallet in chain.wallets if wallet.tier == "eligible"} | {half.address}
    assert before == []
    assert promoted == as_rows(chain.truth(senders=eligible))
    assert rows == as_rows(chain.truth(senders=eligible, allowlist=grown.allowlist.contracts))
    assert len(rows) == 2


@pytest.mark.slow
@pytest.mark.parametrize("new", ["contract", "function"])
async def test_nothing_is_called_complete_before_new_rules_were_applied(new: str, tmp_path: Path) -> None:
    """Until the list of a new contract, or one with a new function, was read from the start."""
    async with open_world(tmp_path, chain_of(2)) as world:
        chain = world.simulator.chain
        sent = chain.swap(chain.wallets[0], f"off_list_{new}")
        await started(world)
        before = await feed(world)
        call = sent.payload
        contracts = {call.contract: frozenset({call.function})}  # type: ignore[union-attr]  # a call, not a transfer
        grown = Rules(built_in().plus(AllowList(contracts)), world.rules.start_s)
        await world.clock.sleep(120)
        unread = await feed(world, rules=grown)
        await sweep(world, rules=grown)
        await world.clock.sleep(120)
        read = await feed(world, rules=grown)
        rows = await world.rows()

    assert before.counters["completeUntilBlock"] is not None
    assert unread.counters["completeUntilBlock"] is None
    assert read.counters["completeUntilBlock"] is not None
    assert len(rows) == 1


async def test_a_wallet_that_registers_later_is_read_by_the_sweep(tmp_path: Path) -> None:
    """The feed skipped its swaps while it was unregistered; its own list has them."""
    async with open_world(tmp_path, chain_of(2)) as world:
        chain = world.simulator.chain
        await started(world)
        stranger = chain.strangers[0]
        chain.burst(stranger, 3)
        chain.mine()
        await feed(world)
        before = await world.rows()
        await register(world.db, [Wallet(stranger.address, "eligible", "bc1qnew", erc8004_agent_id=9)])
        await world.clock.sleep(120)
        unread = await feed(world)
        await sweep(world)
        rows = await world.rows()
        await world.clock.sleep(120)
        read = await feed(world)

    assert before == []
    assert rows == as_rows(chain.truth(senders={stranger.address}))
    assert len(rows) == 3
    assert unread.counters["completeUntilBlock"] is None
    assert read.counters["completeUntilBlock"] is not None


async def test_what_a_wallet_sponsors_uses_its_nonces_too(tmp_path: Path) -> None:
    """An agent that pays for others' transactions lacks nothing, although it sent only a few of its own."""
    simulator = chain_of(2)
    chain = simulator.chain
    sponsor = Wallet(SPONSOR, "eligible", "bc1qsponsor", erc8004_agent_id=77)
    chain.wallets = (*chain.wallets, sponsor)
    async with open_world(tmp_path, simulator) as world:
        await started(world)
        for wallet in (sponsor, chain.wallets[0], sponsor, chain.wallets[1], sponsor):
            chain.swap(wallet, "simple" if wallet is sponsor else "sponsored")
            chain.mine()
        result = await feed(world)
        ranges = await world.all("SELECT ranges_json FROM nonces WHERE wallet = ?", SPONSOR)
        rows = await world.rows()

    height = chain.blocks[-1].height
    assert (result.counters["missingNonces"], result.counters["visited"]) == (0, 0)
    assert ranges == [{"ranges_json": f"[[0, 4, {height}]]"}]
    assert rows == as_rows(chain.truth())
    assert len(rows) == 5


@pytest.mark.slow
async def test_runs_of_feed_and_sweep_verify_a_swap_once(tmp_path: Path) -> None:
    """An hour of trades with both tasks: every swap is asked for once, and all are recorded."""
    async with open_world(tmp_path, chain_of(5)) as world:
        chain = world.simulator.chain
        await started(world)
        for _ in range(4):
            for wallet in chain.wallets:
                chain.swap(wallet)
            chain.mine()
            await follow(world, 15)
        rows = await world.rows()

    assert rows == as_rows(chain.truth())
    assert len(rows) == 20
    assert world.calls(MULTIPLE) == 4
