"""The sweep: what it finds, which calls it makes, how it follows reorgs, changes of the rules, and faults."""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import StoreUnavailable
from holdfast.testing.virtual_time import VirtualClock
from holdfast.values import decode, encode
from stacks_simulator.chain_records import ChainTransaction
from stacks_simulator.faults import SimulatedFault
from stacks_simulator.wallets import Wallet
from support.competition import (
    CADENCE_MS,
    PAUSED,
    World,
    as_rows,
    chain_of,
    listing,
    number,
    open_world,
    register,
    sweep,
    trading,
)
from support.simulated import quiet_simulator
from tocsin.errors import RunStopped
from tocsin.scheduler.run import LineCollector, Run
from tocsin.scheduler.types import RunRecord
from tocsin.settings import Settings
from tocsin.shape import FreeForm
from tocsin.swaps import store as swap_store
from tocsin.swaps.rules import AllowList, Code, Rules, built_in
from tocsin.swaps.store import Candidate, drift
from tocsin.swaps.sweep import EMPTY_RESULT, Sweep, SweepCounts, sweep_task
from tocsin.swaps.verify import Tally, Verifier
from tocsin.upstream.answer import Failure, Limited, Malformed, Unauthorised

HOUR_S = 3_600
CONTRACTS = len(built_in().contracts)
IMPOSSIBLE = 10**15
HOURS_7 = 7 * 3600
KINDS = {
    Code.TX_FAILED: "abort_by_response",
    Code.CONTRACT_NOT_ALLOWLISTED: "off_list_contract",
    Code.INCOMPLETE_EVENTS: "one_sided",
}
SENDERS = {Code.SENDER_NOT_REGISTERED: 9, Code.SENDER_NOT_GENESIS: 10}
# A malformed id is never queued, a database that fails ends the run, and an amount of more than 40 digits
# does not exist on the chain: `test_swap.py` has it. Only submissions have shares: `test_submit.py`.
ELSEWHERE = {Code.MALFORMED_TXID, Code.DB_UNAVAILABLE, Code.INVALID_AMOUNT, Code.TOO_MANY_REQUESTS}
COUNTERS = {
    Code.TXID_ALREADY_VERIFIED: "alreadyKnown",
    Code.PENDING: "pending",
    Code.TX_NOT_FOUND: "pending",
    Code.TX_FETCH_FAILED: "failed",
}
NOW = 1_778_700_600_000
MINUTE = 60_000
TALLY = Tally(1, 2, 3, 4, 5, Counter({Code.TX_FAILED: 2, Code.INCOMPLETE_EVENTS: 1}))
LIMITED = Limited(NOW + MINUTE, "calls are refused", by_budget=True)


async def sweep_within(world: World, slice_s: float) -> RunRecord:
    """One run of the task within a time slice, as the scheduler records it."""
    task = replace(sweep_task(Settings(), world.rules), slice_ms=int(slice_s * 1000))
    record = RunRecord(
        id=1,
        task=task.name,
        trigger="alarm",
        slot_at=None,
        missed_slots=0,
        started_at=world.clock.now(),
        result=dict(task.empty_result),
    )
    return await Run(task, record, world.run(slice_s=slice_s), LineCollector(world.clock, str)).execute()


async def prepared(world: World, rules: Rules | None = None) -> Sweep:
    """Begin a sweep without the feed."""
    made = Sweep(world.run(), rules or world.rules, cadence_ms=CADENCE_MS)
    await made.prepare()
    return made


async def test_the_result_has_the_documented_shape(tmp_path: Path) -> None:
    """Counters, reasons, cursor and times are there, and they add up."""
    async with trading(tmp_path, chain_of(12, all_eligible=False)) as (world, chain):
        for wallet in chain.wallets:
            chain.swap(wallet)
        chain.swap(chain.wallets[0], "abort_by_response")
        chain.swap(chain.wallets[0], "one_sided")
        world.trade(chain.strangers[0])
        result = await sweep(world)
        await world.check()

    counters = decode(encode(result.counters, "the counters"))
    reasons = {"tx_failed": 1, "incomplete_events": 1, "sender_not_registered": 1, "sender_not_genesis": 1}
    assert counters["rejectionReasons"] == reasons
    assert (counters["inserted"], counters["rejected"], counters["pending"]) == (10, 4, 0)
    assert (counters["scanned"], counters["failedWallets"]) == (10, 0)
    assert counters["contractsScanned"] == CONTRACTS
    assert {"startedAt", "durationMs", "found", "alreadyKnown", "cursor"} < set(counters)
    assert (result.error, result.limited_until) == (None, None)


@pytest.mark.slow
async def test_contracts_alone_find_the_swaps_of_everybody(tmp_path: Path) -> None:
    """One list per contract, one call per twenty new swaps; what is known or refused is not asked again."""
    async with trading(tmp_path, 30) as (world, chain):
        for wallet in chain.wallets:
            for kind in ("simple", "simple", "multihop", "two_given", "abort_by_post_condition"):
                chain.swap(wallet, kind)
        chain.mine()
        first = await prepared(world)
        await first.read_lists(world.rules.allowlist.contracts, ())
        await first.queue.verify_queued()
        asked = world.calls("tx/multiple")
        before = world.calls()
        second = await prepared(world)
        await second.read_lists(world.rules.allowlist.contracts, ())
        await second.queue.verify_queued()
        await world.check()

    assert asked == 6  # of thirty wallets four calls each that succeeded
    pages = sum(max(1, -(-len(chain.index.of(contract)) // 50)) for contract in world.rules.allowlist.contracts)
    assert world.calls() - before == pages
    assert second.counters()["alreadyKnown"] == len(chain.truth())


@pytest.mark.slow
async def test_more_than_five_hundred_transactions_between_visits(tmp_path: Path) -> None:
    """A burst of swaps, buried under dust and other calls, is found to the last one."""
    async with trading(tmp_path, 2) as (world, chain):
        await sweep(world)
        for _ in range(30):
            chain.burst(chain.wallets[0], 10)
            chain.dust(chain.wallets[0], 20)
            chain.mine()
        await world.wait(HOUR_S)
        result = await sweep(world)
        await world.check(300)
        await world.db.batch([world.db.prepare(f"DELETE FROM {table}") for table in ("swaps", "marks", "candidates")])
        for _ in range(3):  # the wallets' own lists alone
            walk = await prepared(world)
            await walk.read_lists((), walk.visits())
            await walk.queue.verify_queued()
        await world.check(300)

    assert result.counters["inserted"] == 300


async def test_a_wallet_that_becomes_eligible_gets_its_earlier_swaps(tmp_path: Path) -> None:
    """Whether it was a stranger or half registered, everything since the start is found."""
    async with trading(tmp_path, 2) as (world, chain):
        stranger, half = chain.strangers[0], chain.strangers[1]
        await register(world.db, [Wallet(half.address, "registered", "bc1qhalf")])
        for wallet in (stranger, half):
            chain.burst(wallet, 3)
        chain.mine()
        await sweep(world, after_s=HOUR_S)
        assert await world.rows() == []
        new = [(stranger.address, "bc1qnew"), (half.address, "bc1qhalf")]
        await register(
            world.db, [Wallet(each, "eligible", btc, erc8004_agent_id=n) for n, (each, btc) in enumerate(new)]
        )
        await sweep(world)
        await world.check(6, senders={stranger.address, half.address})


@pytest.mark.parametrize("part", ["start", "end", "list"])
async def test_rules_that_tighten_take_swaps_out(part: str, tmp_path: Path) -> None:
    """A swap that no longer counts is refused and leaves totals and board; when the rules widen, it is back."""
    async with trading(tmp_path, 2) as (world, chain):
        for _ in range(3):
            chain.swap(chain.wallets[0])
            world.trade(chain.wallets[1], kind="multihop")
            await world.wait(HOUR_S)
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
    async with trading(tmp_path, 2) as (world, chain):
        sent = [chain.swap(wallet, kind) for wallet in chain.wallets]
        chain.mine()
        await sweep(world, after_s=HOUR_S)
        noted = await world.all("SELECT code, count(*) AS n FROM refusals GROUP BY code")
        grown = listing(world, sent[0])
        await sweep(world, rules=grown)
        await world.check(2, allowlist=grown.allowlist.contracts)

    assert noted == [{"code": "contract_not_allowlisted", "n": 2}]
    assert [line.fields["contract"] for line in world.log.of("contract.unlisted")] == [sent[0].payload.contract]  # type: ignore[union-attr]  # a call


@pytest.mark.slow
@pytest.mark.parametrize("fate", ["remined", "pending", "dropped", "forked", "vanished"])
@pytest.mark.parametrize("depth", [3, 300])
async def test_a_reorg_takes_swaps_out_and_brings_them_back(fate: Any, depth: int, tmp_path: Path) -> None:
    """A swap whose block was abandoned leaves the totals; mined again, it is back, in its new block."""
    async with trading(tmp_path, 3) as (world, chain):
        sent = world.trade()
        await world.wait(5 * (depth - 2))
        await sweep(world)
        await world.check()
        chain.reorg(depth + 1, fate)
        if fate == "pending":  # it returns in the next block by itself: sweep before that
            assert not [tx for tx in sent if tx.state == "mined"]
        await sweep(world)
        await world.check()
        for tx in sent:
            if tx.state in {"dropped", "forked", "vanished"}:
                chain.rebroadcast(tx)
        await sweep(world, after_s=60)
        await world.check(3)
        sources = await world.all("SELECT DISTINCT source FROM swaps")

    assert sources == [{"source": "cron"}]


async def test_a_failed_transaction_that_is_mined_again_may_succeed(tmp_path: Path) -> None:
    """A refusal belongs to its block: in another one the same transaction is judged again, both ways."""
    async with trading(tmp_path, 2) as (world, chain):
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
    async with trading(tmp_path, 2) as (world, chain):
        tx = chain.swap(chain.wallets[0], wait_ms=None)
        await world.submit(tx.tx_id)
        waiting = await sweep(world)
        chain.mine(tx)
        await sweep(world, after_s=900)
        found = await world.all("SELECT source FROM swaps")
        left = await world.all("SELECT * FROM candidates")

    assert waiting.counters["pending"] == 1
    assert found == [{"source": "agent"}]
    assert left == []


@pytest.mark.slow
async def test_a_transaction_that_is_never_mined_is_dismissed(tmp_path: Path) -> None:
    """It is checked less and less often, and dismissed after a week; mined later, the sweep finds it anyway."""
    async with trading(tmp_path, 1) as (world, chain):
        tx = chain.swap(chain.wallets[0], wait_ms=None)
        await world.submit(tx.tx_id)
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
async def test_every_wallet_has_its_turn(tmp_path: Path) -> None:
    """One in each quarter of an hour, again and again in the same order."""
    async with open_world(tmp_path, chain_of(6)) as world:
        await sweep(world)  # every one for the first time
        visited = [(await sweep(world, after_s=900)).counters["cursor"] for _ in range(12)]

    assert sorted(visited[:6], key=str) == sorted(wallet.address for wallet in world.simulator.chain.wallets)
    assert visited[:6] == visited[6:]


@pytest.mark.slow
async def test_a_long_walk_that_is_cut_off_continues(tmp_path: Path) -> None:
    """A contract's history of many pages is read over several short runs, and never from its head again."""
    async with trading(tmp_path, 3, latency_s=2.0) as (world, chain):
        for _ in range(40):
            chain.burst(chain.wallets[0], 25, "multihop")
            chain.mine()
        await world.wait(HOUR_S)
        outcomes: list[str] = []
        while len(await world.rows()) < 1000:
            outcomes.append((await sweep_within(world, 60.0)).outcome)
            assert len(outcomes) < 30
        await world.check()

    assert len(outcomes) > 1
    assert outcomes[0] == "partial"


async def test_a_sweep_that_did_nothing_has_the_result_of_one_that_was_cut_off_at_once(tmp_path: Path) -> None:
    """So `lastSweepResult` always has the same fields."""
    task = sweep_task(Settings())
    async with open_world(tmp_path) as world:
        counters = Sweep(world.run(), world.rules, cadence_ms=task.cadence_ms).counters()

    assert counters == {**task.empty_result, "startedAt": counters["startedAt"], "durationMs": 0}


async def test_a_sweep_by_a_clock_that_was_ahead_is_forgotten(tmp_path: Path) -> None:
    """By the next one that begins: otherwise it would count as soon as that time has come."""
    async with open_world(tmp_path, chain_of(1)) as world:
        kept = "SELECT value FROM competition_state WHERE key = 'competition_swept_at'"
        await sweep(world)
        now = (await world.all(kept))[0]["value"]
        await prepared(world)
        unchanged = await world.all(kept)
        ahead = str(world.clock.now() + 1)
        await (
            world.db.prepare("UPDATE competition_state SET value = ? WHERE key = 'competition_swept_at'")
            .bind(ahead)
            .run()
        )
        await prepared(world)

        assert (unchanged, await world.all(kept)) == ([{"value": now}], [])


async def test_a_complete_sweep_says_nothing_about_other_rules(tmp_path: Path) -> None:
    """When it began is kept until the rules change; then the next complete one is the first again."""
    async with open_world(tmp_path, chain_of(1)) as world:
        kept = "SELECT value FROM competition_state WHERE key = 'competition_swept_at'"
        await sweep(world)
        before = await world.all(kept)
        grown = Rules(built_in().plus(AllowList({"SP1.a": frozenset({"swap"})})), world.rules.start_s)
        await prepared(world, grown)
        changed = await world.all(kept)
        await Sweep(world.run(), grown, cadence_ms=CADENCE_MS).keep_swept_at()
        await prepared(world, grown)
        after = await world.all(kept)

    assert (len(before), changed, len(after)) == (1, [], 1)


# Where a sweep continues


async def test_an_earlier_start_finds_the_swaps_from_there_on(tmp_path: Path) -> None:
    """A mark is void under other rules: the part before the start was never checked."""
    async with trading(tmp_path, 2) as (world, chain):
        for _ in range(4):
            chain.swap(chain.wallets[0], "multihop")  # all of one contract, whose list has a mark
            chain.mine()
            await world.wait(HOUR_S)
        await sweep(world, rules=world.rules)
        times = [row["burn_block_time"] for row in await world.rows()]
        await world.db.batch([world.db.prepare(f"DELETE FROM {table}") for table in ("swaps", "marks")])
        await sweep(world, rules=Rules(world.rules.allowlist, times[2]))
        late = await world.rows()
        await sweep(world)
        await world.check(4)

    assert len({swap.contract_id for swap in chain.truth()}) == 1
    assert [row["burn_block_time"] for row in late] == times[2:]


async def test_a_long_route_without_balance_changes_is_read_from_its_events(tmp_path: Path) -> None:
    """With hundreds of events and no balance changes, all its events are read, page by page."""
    nothing = {"results": [], "total": 0, "cursor": {"next": None, "previous": None, "current": None}}
    async with trading(tmp_path) as (world, chain):
        tx: ChainTransaction = chain.swap(chain.wallets[0], "multibin")
        while len(tx.events) <= 200:
            tx = chain.swap(chain.wallets[0], "multibin")
        chain.mine(tx)
        with world.changing("/balance-changes", lambda _, body: body.update(nothing)):
            await sweep(world)
        await world.check()

    assert world.calls("balance-changes") == 1
    assert tx.tx_id in {swap.txid for swap in chain.truth()}


@pytest.mark.parametrize("pages_left", [1, 4, 5, 6, 10])
async def test_after_what_was_left_over_a_list_is_read_from_its_head(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pages_left: int
) -> None:
    """However many pages that was, even if it ends where a turn of five pages does."""
    async with trading(tmp_path, 1) as (world, chain):
        swap = chain.swap(chain.wallets[0], "multihop")
        chain.burst(chain.wallets[0], 50 * (1 + pages_left) - 1, "multihop")
        chain.mine()
        await world.clock.sleep(HOUR_S)  # it is deep enough to continue from there
        world.simulator.advance()
        [contract] = {row.contract_id for row in chain.truth() if row.txid == swap.tx_id}
        whole = world.hiro.principal_transactions

        async def first_page(principal: str, session: Any, cursor: str | None = None) -> Any:
            return Malformed("no more") if cursor else await whole(principal, session)

        with monkeypatch.context() as patch:
            patch.setattr(world.hiro, "principal_transactions", first_page)
            await sweep(world)
        await world.clock.sleep(HOUR_S)
        chain.mine(*chain.burst(chain.wallets[0], 3, "multihop"))
        world.simulator.advance()
        began_at = world.clock.now()
        result = await sweep(world)
        [mark] = await world.all("SELECT walked_at, position_json FROM marks WHERE principal = ?", contract)
        await world.check()

    assert result.incomplete is None
    assert mark["walked_at"] >= began_at
    assert json.loads(mark["position_json"])["gaps"] == []


async def test_a_wallet_that_a_limited_sweep_did_not_read_is_read_by_the_next(tmp_path: Path) -> None:
    """It keeps its turn, and it is not the wallet's failure."""
    async with open_world(tmp_path, chain_of(2)) as world:
        await sweep(world)
        second = (await sweep(world, after_s=900)).counters["cursor"]
        [first] = {wallet.address for wallet in world.simulator.chain.wallets} - {second}
        world.simulator.faults.add(SimulatedFault(kind="status", status=429, path=first))
        await sweep(world)
        failures = await world.all("SELECT failures FROM marks WHERE principal = ?", first)
        world.simulator.faults.clear()
        next_one = (await sweep(world, after_s=HOUR_S)).counters["cursor"]

    assert failures == [{"failures": 0}]
    assert next_one == first


@pytest.mark.slow
async def test_more_retracted_swaps_than_fit_into_one_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next sweeps continue until none is left that does not count."""
    monkeypatch.setattr("tocsin.swaps.sweep.RETRACTED_MAX", 2)
    async with trading(tmp_path, 1) as (world, chain):
        for _ in range(5):
            world.trade(chain.wallets[0])
            await world.wait(HOUR_S)
        await sweep(world)
        last = (await world.rows())[-1]
        tight = Rules(world.rules.allowlist, last["burn_block_time"])
        left = []
        for _ in range(3):
            await sweep(world, rules=tight)
            left.append(len(await world.rows()))

    assert left == [3, 1, 1]


# Faults


async def test_a_list_that_fails_is_counted_and_read_next_time(tmp_path: Path) -> None:
    """A wallet whose list cannot be read is a failed wallet, not an empty one; the others are read."""
    async with trading(tmp_path, 3) as (world, chain):
        bad = sorted(wallet.address for wallet in chain.wallets)[1]
        world.simulator.faults.add(SimulatedFault(kind="truncated", path=bad))
        first = await sweep(world)
        marks = await world.all("SELECT failures, walked_at FROM marks WHERE principal = ?", bad)
        world.simulator.faults.clear()
        world.simulator.requests.clear()
        second = await sweep(world, after_s=900)
        visited = world.calls(bad)

    assert (first.counters["failedWallets"], first.counters["scanned"], first.error) == (1, 3, None)
    assert marks == [{"failures": 1, "walked_at": None}]
    assert second.counters["failedWallets"] == 0
    assert visited == 1
    assert world.log.named("sweep.unit_unanswered")[0]["unit"] == bad


@pytest.mark.slow
async def test_a_contract_that_fails_loses_nothing(tmp_path: Path) -> None:
    """Its swaps are found when its list can be read again, however many there are by then."""
    async with trading(tmp_path, 2) as (world, chain):
        chain.burst(chain.wallets[0], 5)
        chain.mine()
        world.simulator.faults.add(SimulatedFault(kind="wrong_json", path="/transactions"))
        first = await sweep(world)
        chain.mine(*chain.burst(chain.wallets[1], 120))
        world.simulator.faults.clear()
        second = await sweep(world)
        await world.check(125)

    assert first.error is not None
    assert first.error.startswith("S")
    assert "hiro broke its contract: not JSON" in first.error
    assert first.counters["failedContracts"] == CONTRACTS
    assert second.error is None


@pytest.mark.slow
@pytest.mark.parametrize("path", ["tx/multiple", "/v3/"])
async def test_a_404_of_the_route_itself_says_nothing_of_swaps(path: str, tmp_path: Path) -> None:
    """For days every run reports a failure, and afterwards nothing is missing."""
    async with trading(tmp_path, 2) as (world, chain):
        chain.mine(*chain.burst(chain.wallets[0], 5))
        gone = '{"error": "not here"}'
        world.simulator.faults.add(SimulatedFault(kind="status", status=404, path=path, body=gone))
        for _ in range(60):
            result = await sweep(world)
            assert result.error or result.counters["failed"], result
            await world.clock.sleep(3 * 3600)
        world.simulator.faults.clear()
        await sweep(world, after_s=6 * 3600)
        await world.check(5)


async def test_a_404_for_a_list_is_not_an_empty_list(tmp_path: Path) -> None:
    """Hiro gives this answer for two contracts: the sweep is not complete, and a later one finds their swaps."""
    async with trading(tmp_path, 1) as (world, chain):
        chain.mine(chain.swap(chain.wallets[0], "multihop"))
        [swap] = chain.truth()
        others = sorted(set(world.rules.allowlist.contracts) - {swap.contract_id})
        for principal in (swap.contract_id, others[0], swap.sender):
            world.simulator.faults.add(SimulatedFault(kind="status", status=404, path=f"/{principal}/"))
        first = await sweep(world)
        assert await world.rows() == []
        world.simulator.faults.clear()
        second = await sweep(world)
        await world.check()

    assert first.counters["failedContracts"] == 2
    assert first.incomplete is not None
    assert "404" in first.incomplete
    assert second.incomplete is None


@pytest.mark.slow
async def test_a_429_ends_the_run_with_the_time_to_try_again(tmp_path: Path) -> None:
    """No call follows, nothing is counted as failed, and what was found before stays queued."""
    async with trading(tmp_path, 20) as (world, _):
        world.trade()
        world.simulator.faults.add(SimulatedFault(kind="limited", path="tx/multiple", retry_after=600))
        first = await sweep(world)
        made = world.calls("tx/multiple")
        queued = (await world.all("SELECT count(*) AS n FROM candidates"))[0]["n"]
        world.simulator.faults.clear()
        await sweep(world, after_s=900)
        await world.check()

    assert first.limited_until is not None
    assert first.limited_until >= number(first.counters, "startedAt") + 600_000
    assert first.error is None
    assert first.counters["failedWallets"] == 0
    assert made <= 6
    assert queued == 20


@pytest.mark.parametrize(
    ("fault", "message", "kind"),
    [
        (SimulatedFault(kind="status", status=403), "refuses our key", "Unauthorised"),
        (SimulatedFault(kind="status", status=410), "switched this endpoint off", "Gone"),
        (SimulatedFault(kind="hang"), "gave no answer", "Unavailable"),
        (SimulatedFault(kind="status", status=503), "answered 503", "Unavailable"),
    ],
)
async def test_an_error_that_every_unit_would_meet_ends_the_run_as_a_failure(
    fault: SimulatedFault, message: str, kind: str, tmp_path: Path
) -> None:
    """A refused key, an endpoint that is gone, an upstream that is down: few calls, and the reason."""
    async with open_world(tmp_path, chain_of(20)) as world:
        world.simulator.faults.add(fault)
        result = await sweep(world)

    assert result.error is not None
    assert message in result.error
    assert result.error_kind == kind
    assert result.limited_until is None
    assert world.calls() <= 40
    assert number(result.counters, "scanned") <= 2  # of the first six lists one is a wallet's


@pytest.mark.slow
async def test_a_pause_stops_between_two_units(tmp_path: Path) -> None:
    """Wherever it stops, what was done is kept, and the next run finds the rest."""
    async with trading(tmp_path, 8) as (world, chain):
        for wallet in chain.wallets:
            chain.burst(wallet, 3)
        chain.mine()
        stops: list[RunStopped] = []
        for stop_after in range(0, 70, 7):
            context = world.run(stop_after=stop_after)
            try:
                await sweep(world, context)
            except RunStopped as stopped:
                stops.append(stopped)
        await sweep(world)
        await world.check()

    assert len(stops) >= 5
    assert {(stopped.outcome, str(stopped)) for stopped in stops} == {("stopped", PAUSED)}


@pytest.mark.slow
async def test_a_run_whose_slice_is_nearly_over_is_partial(tmp_path: Path) -> None:
    """No new unit begins; the record has the reason and the counters so far, and later runs do the rest."""
    async with trading(tmp_path, 60, latency_s=2.0) as (world, chain):
        for wallet in chain.wallets:
            chain.burst(wallet, 2)
        chain.mine()
        first = await sweep_within(world, 40.0)
        kept = await world.rows()
        later = [await sweep_within(world, 40.0) for _ in range(6)]
        await world.check()

    assert (first.outcome, first.reason, first.error) == ("partial", "its time slice of 40 s is nearly over", None)
    assert first.duration_ms is not None
    assert 20_000 <= first.duration_ms < 40_000
    assert first.result["contractsScanned"] == CONTRACTS
    assert 0 < len(kept) == first.result["inserted"]
    assert later[-1].outcome == "ok"


async def test_a_short_slice_is_used_and_a_useless_one_is_not_a_success(tmp_path: Path) -> None:
    """Nine seconds are enough to sweep; a run that could read nothing makes no call and is partial, not ok."""
    async with trading(tmp_path, 2) as (world, chain):
        chain.mine(*chain.burst(chain.wallets[0], 3))
        short = await sweep_within(world, 9.0)
        calls = world.calls()
        late = world.run(slice_s=1.0)
        await world.clock.sleep(0.9)
        with pytest.raises(RunStopped, match="its time slice of 1 s is nearly over") as stopped:
            await sweep(world, late)
        await world.check()

    assert (short.outcome, short.result["contractsScanned"]) == ("ok", CONTRACTS)
    assert stopped.value.outcome == "partial"
    assert (world.calls(), late.done, late.counters) == (calls, 0, {})


async def test_a_store_that_fails_ends_the_run(tmp_path: Path) -> None:
    """The platform retries a database error: it passes through the run unchanged."""
    async with open_world(tmp_path, chain_of(4)) as world:
        world.trade()
        batch = world.db.batch
        calls = 0

        async def failing(statements: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls > 20:
                raise StoreUnavailable("the disk is full")
            return await batch(statements)

        world.db.batch = failing  # type: ignore[method-assign]  # a disk that fills up
        with pytest.raises(StoreUnavailable):
            await sweep(world)
        world.db.batch = batch  # type: ignore[method-assign]  # and is emptied
        await sweep(world)
        await world.check()


@pytest.mark.slow
async def test_a_transaction_that_trips_our_code_harms_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is counted as verify_threw and tried again; the others of its group are verified without it."""
    async with trading(tmp_path, 1) as (world, chain):
        sent = chain.burst(chain.wallets[0], 20)
        chain.mine()
        poison = sent[7].tx_id
        whole = world.hiro.transactions_with_events

        async def tripping(txids: Any, session: Any, **options: Any) -> Any:
            if poison in txids:
                raise ZeroDivisionError
            return await whole(txids, session, **options)

        monkeypatch.setattr(world.hiro, "transactions_with_events", tripping)
        first = await sweep(world)
        for _ in range(6):
            await sweep(world, after_s=900)
        rows = await world.rows()

    reasons = first.counters["rejectionReasons"]
    assert isinstance(reasons, dict)
    assert set(reasons) == {"verify_threw"}
    assert first.error is None
    assert {row["txid"] for row in rows} == {tx.tx_id for tx in sent} - {poison}
    assert world.log.named("sweep.unit_failed")


async def test_a_cursor_that_is_not_accepted_is_given_up(tmp_path: Path) -> None:
    """A walk that cannot continue where it was cut off begins at the head again, and misses nothing."""
    async with trading(tmp_path, 2) as (world, chain):
        chain.mine(*chain.burst(chain.wallets[0], 70, "multihop"))
        await sweep(world)
        await world.db.prepare("DELETE FROM swaps").run()
        unknown = '{"anchors": [], "gaps": [{"cursor": "text", "bottom": [9007199254740991, 0]}]}'
        await world.db.prepare("UPDATE marks SET position_json = ?").bind(unknown).run()
        result = await sweep(world)
        await world.check()

    assert result.counters["failedContracts"] == 0


async def test_a_list_that_goes_in_circles_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An upstream whose cursors do not lead on costs a few calls, not the whole run."""
    async with trading(tmp_path, 1) as (world, chain):
        chain.mine(*chain.burst(chain.wallets[0], 120, "multihop"))
        whole = world.hiro.principal_transactions

        async def circling(principal: str, session: Any, cursor: str | None = None) -> Any:
            return await whole(principal, session, None)

        monkeypatch.setattr(world.hiro, "principal_transactions", circling)
        result = await sweep(world)

    assert result.counters["failedContracts"] == 1
    assert result.counters["failedWallets"] == 1
    assert world.calls() <= CONTRACTS + 20


async def test_a_swap_that_needs_another_call_holds_up_no_other(tmp_path: Path) -> None:
    """Where that call gets no answer, the others of its group are recorded, and it is asked for again later.

    The run says that it was limited.
    """
    async with trading(tmp_path, 1) as (world, chain):
        sent = [chain.swap(chain.wallets[0], "multibin") for _ in range(15)]
        chain.mine()
        short = {tx.tx_id for tx in sent if len(tx.events) <= 100}
        assert 0 < len(short) < 15
        world.simulator.faults.add(SimulatedFault(kind="limited", path="balance-changes", retry_after=900))
        limited = await sweep(world)
        without = {row["txid"] for row in await world.rows()}
        world.simulator.faults.clear()
        for _ in range(3):
            await sweep(world, after_s=1_800)
        await world.check()

    assert without == short
    assert limited.limited_until is not None
    assert limited.incomplete is not None


# Rows that break Hiro's contract


def at_time(txid: str, time: int) -> Callable[[str, Any], None]:
    """Give a transaction another burn block time, wherever it is shown."""

    def change(url: str, value: Any) -> None:
        if isinstance(value, dict) and value.get("tx_id") == txid:
            value |= {"burn_block_time": time, "bitcoin_block": {"height": 1, "time": time}}
        for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
            change(url, inner)

    return change


@pytest.mark.slow
@pytest.mark.parametrize("time", [IMPOSSIBLE, 1_778_700_600_000, 0])
async def test_a_swap_with_an_impossible_time_does_not_hide_the_others(time: int, tmp_path: Path) -> None:
    """It is neither recorded nor refused, and is recorded once Hiro shows its time."""
    async with trading(tmp_path, 2) as (world, chain):
        sent = chain.burst(chain.wallets[0], 5)
        chain.mine()
        bad = sent[2].tx_id
        with world.changing("", at_time(bad, time)):
            first = await sweep(world)
        others = await world.rows()
        queued = await world.all("SELECT txid FROM candidates")
        refused = await world.all("SELECT txid FROM refusals")
        await sweep(world, after_s=HOURS_7)
        await world.check()

    assert first.error is None
    assert (first.counters["inserted"], first.counters["failed"]) == (4, 1)
    assert others == [row for row in as_rows(chain.truth()) if row["txid"] != bad]
    assert queued == [{"txid": bad}]
    assert refused == []


@pytest.mark.slow
async def test_a_recorded_swap_stays_while_its_row_cannot_be_read(tmp_path: Path) -> None:
    """There is no sign that it left the chain, however long Hiro's answer stays wrong."""
    async with trading(tmp_path, 1) as (world, chain):
        sent = chain.burst(chain.wallets[0], 3)
        chain.mine()
        await sweep(world)
        with world.changing("", at_time(sent[1].tx_id, IMPOSSIBLE)):
            for _ in range(40):
                await sweep(world, after_s=HOURS_7)
        await world.check(3)

    assert world.log.named("swap.withdrawn") == []
    assert world.log.named("candidate.dismissed") == []


async def test_a_submitted_trade_with_an_impossible_time_may_be_submitted_again(tmp_path: Path) -> None:
    """The answer is "Hiro could not be asked", not a stored refusal."""
    async with trading(tmp_path, 1) as (world, chain):
        (sent,) = chain.burst(chain.wallets[0], 1)
        chain.mine()
        with world.changing("", at_time(sent.tx_id, IMPOSSIBLE)):
            first = await world.submit(sent.tx_id)
        kept = await world.all("SELECT txid FROM refusals UNION ALL SELECT txid FROM swaps")
        second = await world.submit(sent.tx_id)

    assert (first.code, first.retryable) == ("tx_fetch_failed", True)
    assert kept == []
    assert second.http_status == 200


# What is counted


async def candidate_for(world: World, code: Code) -> tuple[str, Rules]:
    """A transaction that will end with this code, and the rules under which it does."""
    chain, rules = world.simulator.chain, world.rules
    if code is Code.TX_NOT_FOUND:
        return "0x" + "ab" * 32, rules
    if code is Code.MALFORMED_TX:
        tx = chain.transfer(chain.wallets[0], chain.wallets[1], 5)
    else:
        wait_ms = None if code is Code.PENDING else 0
        wallet = chain.wallets[SENDERS.get(code, 0)]
        tx = chain.swap(wallet, KINDS.get(code, "simple"), wait_ms=wait_ms)
    if code is not Code.PENDING:
        chain.mine(tx)
        assert tx.block is not None
        if code is Code.BEFORE_COMP_START:
            rules = Rules(rules.allowlist, tx.block.burn_time_s + 1)
        if code is Code.AFTER_COMP_END:
            rules = Rules(rules.allowlist, rules.start_s - 1, tx.block.burn_time_s)
    if code is Code.TXID_ALREADY_VERIFIED:
        await world.submit(tx.tx_id, rules)
    return tx.tx_id, rules


@pytest.mark.slow
@pytest.mark.parametrize("code", sorted(set(Code) - ELSEWHERE))
async def test_every_code_is_counted_where_it_belongs(
    code: Code, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One transaction, one count; a refusal is named by its code, and only refusals are."""
    async with open_world(tmp_path, quiet_simulator(VirtualClock(), wallets=11)) as world:
        txid, rules = await candidate_for(world, code)
        await world.db.batch(swap_store.enqueue(world.db, [Candidate(txid, "agent")], world.clock.now()))
        if code is Code.TX_FETCH_FAILED:
            world.simulator.faults.add(SimulatedFault(kind="truncated", path="tx/multiple"))
        if code is Code.VERIFY_THREW:

            async def broken(*_: Any) -> None:
                raise ZeroDivisionError

            monkeypatch.setattr(Verifier, "verify", broken)
        run = await prepared(world, rules)
        await run.queue.verify_queued()  # the queue alone: the lists would find it too
        counters = run.counters()

    counter = COUNTERS.get(code, "rejected")
    counted = {name: counters[name] for name in ("rejected", "pending", "failed", "alreadyKnown")}
    expected = dict.fromkeys(counted, 0) | {counter: 1}
    if code is Code.VERIFY_THREW:
        expected["failed"] = 1  # it stays queued, and is tried again
    assert counted == expected
    assert counters["rejectionReasons"] == ({str(code): 1} if counter == "rejected" else {})


# The report of a sweep


def test_the_counters_of_a_sweep() -> None:
    """Each in its own field."""
    counts = SweepCounts(
        contracts={"a", "b", "c"},
        read={"a", "b"},
        failed_contracts=6,
        wallets={"w"},
        failed_wallets=7,
        found=8,
        found_by_wallets=9,
        cursor="w",
        tally=TALLY,
    )

    assert counts.counters(12, 2) == {
        "scanned": 1,
        "contracts": 12,
        "contractsScanned": 3,
        "contractsRead": 2,
        "found": 8,
        "foundByWallets": 9,
        "inserted": 1,
        "alreadyKnown": 2,
        "pending": 3,
        "withdrawn": 4,
        "rejected": 5,
        "rejectionReasons": {"incomplete_events": 1, "tx_failed": 2, "verify_threw": 2},
        "failed": 5,
        "failedContracts": 6,
        "failedWallets": 7,
        "cursor": "w",
    }
    nothing: FreeForm = dict.fromkeys(counts.counters(12, 2), 0) | {"rejectionReasons": {}, "cursor": None}
    assert {"way": "contracts", **nothing} == EMPTY_RESULT


def swept(contracts: int = 2, stop: Failure | None = None, failure: str | None = None, **counts: Any) -> Any:
    made = SweepCounts(**{"read": {"a", "b"}, **counts})
    return made.result({"a": 1}, contracts, stop, failure)


def test_a_sweep_that_read_everything_is_complete() -> None:
    """Even one that has no contracts to read."""
    for result in (swept(), swept(0, read=set())):
        assert (result.counters, result.error, result.incomplete) == ({"a": 1}, None, None)


@pytest.mark.parametrize(
    ("counts", "part"),
    [
        ({"read": {"a"}}, "1 of 2 contracts' lists were read"),
        ({"failed_wallets": 1}, "one wallet's list was not read"),
        ({"unread_wallets": 1}, "one wallet's list was not read"),
        ({"failed_wallets": 1, "unread_wallets": 2}, "3 wallets' lists were not read"),
        ({"unverified": 4}, "transactions that could not be verified: 4"),
        (
            {"read": {"a"}, "unverified": 1},
            "1 of 2 contracts' lists were read, transactions that could not be verified: 1",
        ),
    ],
)
def test_what_a_sweep_left_is_said(counts: dict[str, Any], part: str) -> None:
    """With the first failure, or where to look for it."""
    assert swept(failure="HTTP 503", **counts).incomplete == f"HTTP 503 ({part})"
    assert swept(**counts).incomplete == f"the log has the reason ({part})"
    assert swept(**counts).error is None


def test_a_sweep_that_read_not_one_list_has_failed() -> None:
    """With the first failure, or where to look for it."""
    nothing, unexplained = swept(read=set(), failure="HTTP 503"), swept(read=set())

    assert nothing.error == "HTTP 503 (no contract's list could be read)"
    assert unexplained.error == "the log has the reason (no contract's list could be read)"
    assert swept(read={"a"}).error is None


def test_a_sweep_that_was_stopped_is_limited_or_failed() -> None:
    """Limited while calls are refused, whatever it has read; failed by an error that everything would meet."""
    limited = swept(read=set(), stop=LIMITED)
    failed = swept(stop=Unauthorised("the key is refused"))
    done = swept(stop=LIMITED)

    assert (limited.error, limited.limited_until, limited.by_budget) == (None, NOW + MINUTE, True)
    assert limited.incomplete == "calls are refused (0 of 2 contracts' lists were read)"
    assert (failed.error, failed.error_kind) == ("the key is refused", "Unauthorised")
    assert done.incomplete == "calls are refused"


@pytest.mark.parametrize(
    ("counts", "progressed"),
    [
        ({}, False),
        ({"pages": 1}, True),
        ({"tally": Tally(inserted=1)}, True),
        ({"tally": Tally(reasons=Counter({Code.TX_FAILED: 1}))}, True),
        ({"tally": Tally(pending=1)}, True),
        ({"tally": Tally(failed=1)}, False),
    ],
)
def test_a_sweep_has_come_further_if_it_read_or_verified(counts: dict[str, Any], *, progressed: bool) -> None:
    """Only then is a limit not a failure."""
    assert swept(stop=LIMITED, **counts).progressed is progressed
