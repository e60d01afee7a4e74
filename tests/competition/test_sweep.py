"""The sweep: what it finds, which calls it makes, how it follows reorgs and changes of the rules."""

from pathlib import Path
from typing import Any

import pytest

from holdfast.values import decode, encode
from stacks_simulator.wallets import Wallet
from support.competition import CADENCE_MS, World, as_rows, chain_of, number, open_world, register, sweep, sweep_within
from tocsin.swaps import store as totals
from tocsin.swaps.rules import AllowList, Rules, built_in
from tocsin.swaps.store import drift
from tocsin.swaps.submit import SubmissionLane, submit
from tocsin.swaps.sweep import CURSOR, Sweep
from tocsin.swaps.walk import Visits

HOUR_S = 3_600
CONTRACTS = len(built_in().contracts)

NO_VISITS = Visits((), (), ends_pass=False)


async def test_the_result_has_the_documented_shape(tmp_path: Path) -> None:
    """Counters, reasons, cursor and times are there, and they add up."""
    async with open_world(tmp_path, chain_of(12, all_eligible=False)) as world:
        chain = world.simulator.chain
        for wallet in chain.wallets:
            chain.swap(wallet)
        chain.swap(chain.wallets[0], "abort_by_response")
        chain.swap(chain.wallets[0], "one_sided")
        chain.swap(chain.strangers[0])
        chain.mine()
        result = await sweep(world)
        rows = await world.rows()

    counters = decode(encode(result.counters, "the counters"))
    reasons = {"tx_failed": 1, "incomplete_events": 1, "sender_not_registered": 1, "sender_not_genesis": 1}
    assert counters["rejectionReasons"] == reasons
    assert (counters["inserted"], counters["rejected"], counters["pending"]) == (10, 4, 0)
    assert (counters["scanned"], counters["failedWallets"]) == (10, 0)
    assert counters["contractsScanned"] == CONTRACTS
    assert {"startedAt", "durationMs", "found", "alreadyKnown", "cursor"} < set(counters)
    assert (result.error, result.limited_until) == (None, None)
    assert rows == as_rows(chain.truth())


@pytest.mark.slow
async def test_contracts_alone_find_the_swaps_of_everybody(tmp_path: Path) -> None:
    """One list per contract, one call per twenty new swaps; what is known or refused is not asked again."""
    async with open_world(tmp_path, chain_of(30)) as world:
        chain = world.simulator.chain
        for wallet in chain.wallets:
            for kind in ("simple", "simple", "multihop", "two_given", "abort_by_post_condition"):
                chain.swap(wallet, kind)
        chain.mine()
        first = Sweep(world.run(), world.rules, cadence_ms=CADENCE_MS)
        await first.prepare()
        await first.read_lists(world.rules.allowlist.contracts, NO_VISITS)
        await first.verify_queued()
        asked = world.calls("tx/multiple")
        before = world.calls()
        second = Sweep(world.run(), world.rules, cadence_ms=CADENCE_MS)
        await second.prepare()
        await second.read_lists(world.rules.allowlist.contracts, NO_VISITS)
        await second.verify_queued()
        rows = await world.rows()

    assert rows == as_rows(chain.truth())
    assert asked == 6  # of thirty wallets four calls each that succeeded
    pages = sum(max(1, -(-len(chain.index.of(contract)) // 50)) for contract in world.rules.allowlist.contracts)
    assert world.calls() - before == pages
    assert second.counters()["alreadyKnown"] == len(rows)


async def test_long_routes_take_one_call_for_twenty_of_a_sender(tmp_path: Path) -> None:
    """More events than one answer has: one call returns the balance changes of twenty at once."""
    async with open_world(tmp_path, chain_of(1)) as world:
        chain = world.simulator.chain
        while sum(len(tx.events) > 100 for tx in chain.transactions.values()) < 20:
            chain.swap(chain.wallets[0], "multibin")
        chain.mine()
        await sweep(world)
        rows = await world.rows()

    assert rows == as_rows(chain.truth())
    assert world.calls("tx/multiple") == -(-len(rows) // 20)
    assert world.calls("balance-changes") <= world.calls("tx/multiple") + 2  # a page holds fifty rows


async def test_never_more_than_six_calls_at_a_time(tmp_path: Path) -> None:
    """However much there is to do, at most six requests are under way, and six are used."""
    async with open_world(tmp_path, chain_of(30), latency_s=0.06) as world:
        chain = world.simulator.chain
        for wallet in chain.wallets:
            chain.swap(wallet)
        chain.mine()
        peak = peak_of(world)
        await sweep(world)

    assert peak[0] == 6


def peak_of(world: World) -> list[int]:
    """The most calls under way so far, kept up to date."""
    peak = [0]
    fetch = world.hiro.client._fetch
    under_way = 0

    async def counting(*arguments: Any, **named: Any) -> Any:
        nonlocal under_way
        under_way += 1
        peak[0] = max(peak[0], under_way)
        try:
            return await fetch(*arguments, **named)
        finally:
            under_way -= 1

    world.hiro.client._fetch = counting
    return peak


@pytest.mark.slow
async def test_more_than_five_hundred_transactions_between_visits(tmp_path: Path) -> None:
    """A burst of swaps, buried under dust and other calls, is found to the last one."""
    async with open_world(tmp_path, chain_of(2)) as world:
        chain = world.simulator.chain
        await sweep(world)
        for _ in range(30):
            chain.burst(chain.wallets[0], 10)
            chain.dust(chain.wallets[0], 20)
            chain.mine()
        await world.clock.sleep(HOUR_S)
        world.simulator.advance()
        result = await sweep(world)
        by_wallets = await fresh_database_by_wallets(world)
        rows = await world.rows()

    assert result.counters["inserted"] == 300
    assert rows == as_rows(chain.truth())
    assert by_wallets == rows


async def fresh_database_by_wallets(world: World) -> list[dict[str, Any]]:
    """What the wallets' own lists alone would have found."""
    await world.db.batch([world.db.prepare(f"DELETE FROM {table}") for table in ("swaps", "marks", "candidates")])
    for _ in range(3):
        walk = Sweep(world.run(), world.rules, cadence_ms=CADENCE_MS)
        await walk.prepare()
        await walk.read_lists((), walk.visits())
        await walk.verify_queued()
    return await world.rows()


async def test_a_wallet_that_becomes_eligible_gets_its_earlier_swaps(tmp_path: Path) -> None:
    """Whether it was a stranger or half registered, everything since the start is found."""
    async with open_world(tmp_path, chain_of(2)) as world:
        chain = world.simulator.chain
        stranger, half = chain.strangers[0], chain.strangers[1]
        await register(world.db, [Wallet(half.address, "registered", "bc1qhalf")])
        for wallet in (stranger, half):
            chain.burst(wallet, 3)
        chain.mine()
        await world.clock.sleep(HOUR_S)
        await sweep(world)
        before = await world.rows()
        await register(
            world.db,
            [
                Wallet(stranger.address, "eligible", "bc1qnew", erc8004_agent_id=8),
                Wallet(half.address, "eligible", "bc1qhalf", erc8004_agent_id=9),
            ],
        )
        await sweep(world)
        rows = await world.rows()

    senders = {stranger.address, half.address}
    assert before == []
    assert rows == as_rows(chain.truth(senders=senders))
    assert len(rows) == 6


@pytest.mark.parametrize("part", ["start", "end", "list"])
async def test_rules_that_tighten_take_swaps_out(part: str, tmp_path: Path) -> None:
    """A swap that no longer counts is refused and leaves totals and board; when the rules widen, it is back."""
    async with open_world(tmp_path, chain_of(2)) as world:
        chain = world.simulator.chain
        for _ in range(3):
            chain.swap(chain.wallets[0])
            chain.swap(chain.wallets[1], "multihop")
            chain.mine()
            await world.clock.sleep(HOUR_S)
            world.simulator.advance()
        await sweep(world)
        before = await world.rows()
        middle = before[2]["burn_block_time"]
        contracts = dict(built_in().contracts)
        if part == "list":
            del contracts[before[0]["contract_id"]]
        tight = Rules(
            AllowList(contracts), middle if part == "start" else world.rules.start_s, middle if part == "end" else None
        )
        calls = world.calls("tx/multiple")
        await sweep(world, rules=tight)
        kept, spoilt = await world.rows(), await drift(world.db)
        refused = await world.all("SELECT code, source FROM refusals")
        asked = world.calls("tx/multiple") - calls
        await sweep(world)
        again = await world.rows()

    expected = {
        "start": [row for row in before if row["burn_block_time"] >= middle],
        "end": [row for row in before if row["burn_block_time"] < middle],
        "list": [row for row in before if row["contract_id"] in contracts],
    }[part]
    code = {"start": "before_comp_start", "end": "after_comp_end", "list": "contract_not_allowlisted"}[part]
    assert kept == expected
    assert 0 < len(kept) < len(before)
    assert refused == [{"code": code, "source": "cron"}] * (len(before) - len(kept))
    assert (asked, spoilt) == (0, {})
    assert again == before


@pytest.mark.parametrize("kind", ["off_list_contract", "off_list_function"])
async def test_a_list_that_grows_finds_what_was_before(kind: str, tmp_path: Path) -> None:
    """A new contract, or a new function of a known one, counts from the campaign's start on."""
    async with open_world(tmp_path, chain_of(2)) as world:
        chain = world.simulator.chain
        sent = [chain.swap(wallet, kind) for wallet in chain.wallets]
        chain.mine()
        await world.clock.sleep(HOUR_S)
        await sweep(world)
        noted = await world.all("SELECT code, count(*) AS n FROM refusals GROUP BY code")
        call = sent[0].payload
        contracts = {call.contract: frozenset({call.function})}  # type: ignore[union-attr]  # a call, not a transfer
        grown = Rules(built_in().plus(AllowList(contracts)), world.rules.start_s)
        await sweep(world, rules=grown)
        rows = await world.rows()

    assert noted == [{"code": "contract_not_allowlisted", "n": 2}]
    assert [line.fields["contract"] for line in world.log.of("contract.unlisted")] == list(contracts)
    assert rows == as_rows(chain.truth(allowlist=grown.allowlist.contracts))
    assert len(rows) == 2


@pytest.mark.slow
@pytest.mark.parametrize("fate", ["remined", "pending", "dropped", "forked", "vanished"])
@pytest.mark.parametrize("depth", [3, 300])
async def test_a_reorg_takes_swaps_out_and_brings_them_back(fate: Any, depth: int, tmp_path: Path) -> None:
    """A swap whose block was abandoned leaves the totals; mined again, it is back, in its new block."""
    async with open_world(tmp_path, chain_of(3)) as world:
        chain = world.simulator.chain
        sent = [chain.swap(wallet) for wallet in chain.wallets]
        chain.mine()
        await world.clock.sleep(5 * (depth - 2))
        world.simulator.advance()
        await sweep(world)
        assert await world.rows() == as_rows(chain.truth())
        chain.reorg(depth + 1, fate)
        if fate == "pending":  # it returns in the next block by itself: sweep before that
            assert not [tx for tx in sent if tx.state == "mined"]
        await sweep(world)
        after = await world.rows()
        truth = as_rows(chain.truth())
        drift = await totals.drift(world.db)
        for tx in sent:
            if tx.state in {"dropped", "forked", "vanished"}:
                chain.rebroadcast(tx)
        await world.clock.sleep(60)
        await sweep(world)
        back = await world.rows()
        sources = await world.all("SELECT DISTINCT source FROM swaps")

    assert after == truth
    assert drift == {}
    assert back == as_rows(chain.truth())
    assert len(back) == 3
    assert sources == [{"source": "cron"}]


async def test_a_failed_transaction_that_is_mined_again_may_succeed(tmp_path: Path) -> None:
    """A refusal belongs to its block: in another one the same transaction is judged again, both ways."""
    async with open_world(tmp_path, chain_of(2)) as world:
        chain = world.simulator.chain
        tx = chain.swap(chain.wallets[0])
        outcomes = []
        for outcome in ("abort_by_response", "success", "abort_by_post_condition", "success"):
            tx.outcome = outcome
            if tx.state == "mined":
                chain.reorg(3, "pending")
            chain.mine(tx)
            await sweep(world)
            outcomes.append((await world.rows(), await world.all("SELECT txid, code FROM refusals")))

    refused = [{"txid": tx.tx_id, "code": "tx_failed"}]
    assert [bool(rows) for rows, _ in outcomes] == [False, True, False, True]
    assert [refusals for _, refusals in outcomes] == [refused, [], refused, []]


async def test_a_pending_trade_keeps_its_agent_as_source(tmp_path: Path) -> None:
    """The first source stays: a trade that its agent submitted while it was pending has the source `agent`."""
    async with open_world(tmp_path, chain_of(2)) as world:
        chain = world.simulator.chain
        tx = chain.swap(chain.wallets[0], wait_ms=None)
        await submit(world.request(), world.rules, {"txid": tx.tx_id}, SubmissionLane())
        waiting = await sweep(world)
        chain.mine(tx)
        await world.clock.sleep(900)
        await sweep(world)
        found = await world.all("SELECT source FROM swaps")
        left = await world.all("SELECT * FROM candidates")

    assert waiting.counters["pending"] == 1
    assert found == [{"source": "agent"}]
    assert left == []


@pytest.mark.slow
async def test_a_transaction_that_is_never_mined_is_dismissed(tmp_path: Path) -> None:
    """It is checked less and less often, and dismissed after a week; mined later, the sweep finds it anyway."""
    async with open_world(tmp_path, chain_of(1)) as world:
        chain = world.simulator.chain
        tx = chain.swap(chain.wallets[0], wait_ms=None)
        await submit(world.request(), world.rules, {"txid": tx.tx_id}, SubmissionLane())
        for _ in range(8 * 12):
            await sweep(world)
            await world.clock.sleep(2 * HOUR_S)
        looks = world.calls("tx/multiple")
        left = await world.all("SELECT * FROM candidates")
        chain.mine(tx)
        await sweep(world)
        rows = await world.rows()

    assert left == []
    assert looks <= 40
    assert len(rows) == 1


@pytest.mark.slow
async def test_the_daily_pass_visits_every_wallet_and_keeps_its_place(tmp_path: Path) -> None:
    """A 96th of the wallets each quarter of an hour, in order; the cursor is cleared when the pass ends."""
    async with open_world(tmp_path, chain_of(200)) as world:
        while number((await sweep(world)).counters, "scanned") >= 100:  # every one for the first time
            await world.clock.sleep(900)
        await world.db.prepare("DELETE FROM competition_state WHERE key = ?").bind(CURSOR).run()
        visited: list[str] = []
        cursors = []
        for _ in range(67):
            world.simulator.requests.clear()
            result = await sweep(world)
            paths = [request.path for request in world.simulator.requests]
            visited += [path.split("/")[4] for path in paths if "." not in path.split("/")[4]]
            cursors.append(result.counters["cursor"])
            await world.clock.sleep(900)

    wallets = sorted(wallet.address for wallet in world.simulator.chain.wallets)
    assert sorted(visited[:200]) == wallets
    assert cursors[:3] == [wallets[2], wallets[5], wallets[8]]
    assert cursors[66] is None


@pytest.mark.slow
async def test_a_long_walk_that_is_cut_off_continues(tmp_path: Path) -> None:
    """A contract's history of many pages is read over several short runs, and never from its head again."""
    async with open_world(tmp_path, chain_of(3), latency_s=2.0) as world:
        chain = world.simulator.chain
        for _ in range(40):
            chain.burst(chain.wallets[0], 25, "multihop")
            chain.mine()
        await world.clock.sleep(HOUR_S)
        world.simulator.advance()
        outcomes: list[str] = []
        while len(await world.rows()) < 1000:
            outcomes.append((await sweep_within(world, 60.0)).outcome)
            assert len(outcomes) < 30
        rows = await world.rows()

    assert rows == as_rows(chain.truth())
    assert len(outcomes) > 1
    assert outcomes[0] == "partial"
