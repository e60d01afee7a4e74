"""The verifier: order, codes, what is stored of each transaction, and how few calls it takes."""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import StoreUnavailable
from holdfast.testing.virtual_time import run_virtual
from holdfast.types import Database, DBResult
from holdfast.values import decode, encode
from stacks_simulator.calls import REFUSED_KINDS, SWAP_KINDS
from stacks_simulator.chain import Chain
from stacks_simulator.chain_records import ChainTransaction
from stacks_simulator.faults import SimulatedFault
from stacks_simulator.simulator import Simulator
from stacks_simulator.wallets import Wallet, WalletTier
from support.competition import World, chain_of, listing, open_world, register, sweep, trading, verdict_of
from support.examples import POOL, TXID, WALLET
from support.reference_cases import VERIFY_CASES, answering
from support.scripted_fetch import Request, ScriptedFetch, example, response
from support.simulated_fetch import SimulatedFetch
from support.upstreams import wired_hiro
from tocsin.fetch import FetchResponse
from tocsin.swaps import store as swap_store
from tocsin.swaps.rules import MEANINGS, Code, Rules, built_in
from tocsin.swaps.store import Candidate
from tocsin.swaps.submit import SubmissionLane, submit
from tocsin.swaps.swap import moves_of_events
from tocsin.swaps.types import SubmitAnswer
from tocsin.swaps.verify import (
    LOOKS_MIN,
    PUSHED_LOOKS_MAX,
    Tally,
    Verifier,
    _is_invented,
    _is_nowhere,
    _wait_ms,
    moves_of_each,
)
from tocsin.upstream.answer import value_or_raise
from tocsin.upstream.hiro_parse import events_v1

SENDER = "SP4DXVEC16FS6QR7RBKGWZYJKTXPC81W49W0ATJE"
READS = {
    "read-existing": "FROM swaps WHERE txid = ?",
    "sender-check": "FROM agent_tiers",
    "insert": "INSERT INTO swaps",
}
EXPECTED_CODES = {
    "off_list_contract": "contract_not_allowlisted",
    "off_list_function": "contract_not_allowlisted",
    "abort_by_response": "tx_failed",
    "abort_by_post_condition": "tx_failed",
    "problematic_skipped": "tx_failed",
    "one_sided": "incomplete_events",
    "two_given": "incomplete_events",
    "two_gotten": "incomplete_events",
    "round_trip": "incomplete_events",
    "no_events": "incomplete_events",
}
MINUTE = 60_000
SIDES = (("legsOut", "in"), ("legsIn", "out"))
TALLY = Tally(1, 2, 3, 4, 5, Counter({Code.TX_FAILED: 2, Code.INCOMPLETE_EVENTS: 1}))
COMING_TO_THE_SITE = """
SELECT txid, sender, contract_id, function_name, token_in, token_out, amount_in, amount_out, burn_block_time,
  tx_status, scored_value, scored_at, source, raw_event_json
FROM swaps WHERE sender = ? AND tx_status = 'success' ORDER BY burn_block_time DESC LIMIT 50"""
SIMPLE: dict[str, Any] = example("hiro/swap_simple_synthetic")["body"]
PARTIES = st.sampled_from([WALLET, POOL, "SPTREASURY"])
UP_TO_200, UP_TO_400 = range(101, 201), range(301, 401)
EVENTS_OF_1 = ["100 of 1", "200 of 1", "300 of 1"]


class TroubledDatabase:
    """A database that fails at one kind of statement, or to which another writer writes just before it."""

    def __init__(self, db: Database, fail_on: str | None = None, winner: dict[str, Any] | None = None) -> None:
        self._db = db
        self._fail_on = READS.get(fail_on or "")
        self._winner = winner

    def prepare(self, sql: str) -> Any:
        statement = self._db.prepare(sql)
        if self._fail_on is not None and self._fail_on in sql:
            return Failing()
        return statement

    async def batch(self, statements: Sequence[Any]) -> list[DBResult]:
        if any(isinstance(statement, Failing) for statement in statements):
            raise StoreUnavailable("the disk is full")
        if self._winner is not None and any(READS["insert"] in s.sql for s in statements):
            winner, self._winner = self._winner, None
            await store(self._db, winner)
        return await self._db.batch(statements)


class Failing:
    """A statement that fails."""

    def bind(self, *_values: object) -> "Failing":
        return self

    async def first(self) -> None:
        raise StoreUnavailable("the disk is full")

    all = first


async def store(db: Database, row: dict[str, Any]) -> None:
    """As another writer would have stored it: the same block, with its legs."""
    legs = {name: [{"asset_id": row[f"token_{side}"], "amount": str(row[f"amount_{side}"])}] for name, side in SIDES}
    kept = {name: row[name] for name in row if name not in {"tx_status", "scored_value", "scored_at"}}
    kept |= {"amount_in": str(row["amount_in"]), "amount_out": str(row["amount_out"]), "tx_index": 3}
    kept |= {"block_height": 7_929_497, "block_hash": "0x" + "a1" * 32, "allowlist_version": "v", "recorded_at": 0}
    kept["raw_event_json"] = json.dumps(legs)
    sql = f"INSERT INTO swaps ({','.join(kept)}) VALUES ({','.join('?' * len(kept))})"
    await db.prepare(sql).bind(*kept.values()).run()


def agent(sender: dict[str, bool]) -> list[Wallet]:
    if not sender["registered"]:
        return []
    tier: WalletTier = "registered" if not sender["genesis"] else "eligible" if sender["has_identity"] else "genesis"
    return [Wallet(SENDER, tier, "bc1qcase", erc8004_agent_id=7 if sender["has_identity"] else None)]


@pytest.mark.slow
@pytest.mark.parametrize("case", VERIFY_CASES, ids=lambda case: case["name"])
async def test_cases_of_the_reference(case: dict[str, Any], tmp_path: Path) -> None:
    """Every case of the reference ends the same. A verdict may take two calls."""
    hiro, stored = case["hiro"], case["db"]
    fetch = ScriptedFetch(lambda request: answering(hiro, request))
    wallets = agent(stored["sender"])
    if stored["existing_row"]:
        wallets = agent({"registered": True, "genesis": True, "has_identity": True})
    async with open_world(
        tmp_path,
        fetch=lambda _: fetch,
        wrap=lambda db: TroubledDatabase(db, stored["fail_on"], stored["row_after_lost_race"]),
    ) as world:
        plain = world.db._db  # type: ignore[attr-defined]  # the database under the troubled one
        await register(plain, wallets)
        if stored["existing_row"]:
            await store(plain, stored["existing_row"])
        answer = await world.submit(case["txid"])
        swaps = (await plain.prepare("SELECT count(*) AS n FROM swaps").first())["n"]

    expected = case["expected"]
    if case["source"] == "cron":  # a submission is the agent's own; the row differs in that word only
        expected = {**expected, "row": {**expected["row"], "source": "agent"}}
    assert SubmitAnswer.from_json(decode(encode(answer.to_json(), "the answer"))) == answer
    assert verdict_of(answer) == expected["status"]
    if "code" in expected:
        assert answer.code == expected["code"]
        assert answer.http_status == MEANINGS[Code(expected["code"])].status
    if "row" in expected:
        amounts = {name: str(expected["row"][name]) for name in ("amount_in", "amount_out")}
        assert answer.trade is not None
        assert {**expected["row"], **amounts}.items() <= answer.trade.to_json().items()
        assert answer.code == (None if expected["inserted"] else Code.TXID_ALREADY_VERIFIED)
    assert swaps == (expected["status"] == "verified")
    attempts = 3 if "network_error" in hiro or hiro.get("status") == 503 else 1
    assert bool(fetch.requests) == bool(case["expected_hiro_calls"])
    assert len(fetch.requests) <= 2 * attempts


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*SWAP_KINDS, *REFUSED_KINDS])
async def test_every_shape_ends_as_the_generator_meant(kind: str, tmp_path: Path) -> None:
    """A swap is recorded exactly as the truth has it, everything else is refused with its code."""
    async with trading(tmp_path) as (world, chain):
        sent = [chain.swap(chain.wallets[0], kind) for _ in range(3)]
        chain.mine()
        for _ in range(LOOKS_MIN if kind == "no_events" else 0):
            assert {(await world.submit(tx.tx_id)).code for tx in sent} == {"pending"}
            await sweep(world, after_s=1_000)
        answers = [await world.submit(tx.tx_id.upper()) for tx in sent]
        await world.check(3 if kind in SWAP_KINDS else 0)

    if kind in REFUSED_KINDS:
        assert {answer.code for answer in answers} == {EXPECTED_CODES[kind]}


async def test_a_recheck_replaces_a_verdict_that_rests_on_a_wrong_answer(tmp_path: Path) -> None:
    """An operator can recheck a trade; an agent that sends it again cannot."""
    async with trading(tmp_path) as (world, chain):
        good, bad = chain.swap(chain.wallets[0]), chain.swap(chain.wallets[0], "one_sided")
        chain.mine()
        await world.submit(good.tx_id)
        await world.submit(bad.tx_id)
        await world.db.batch(
            [
                world.db.prepare(
                    "INSERT INTO refusals SELECT txid, 'incomplete_events', '', sender, contract_id, function_name,"
                    " burn_block_time, block_height, block_hash, '{}', source, allowlist_version, 1 FROM swaps"
                ),
                world.db.prepare("DELETE FROM swaps"),
            ]
        )
        again = await world.submit(good.tx_id)
        rechecked = [await world.submit(tx.tx_id, again=True) for tx in (good, bad)]
        await world.check()
        refused = await world.all("SELECT txid FROM refusals")

    assert again.code == "incomplete_events"
    assert [answer.code for answer in rechecked] == [None, "incomplete_events"]
    assert refused == [{"txid": bad.tx_id}]


async def test_a_refusal_is_kept_and_not_fetched_again(tmp_path: Path) -> None:
    """The second submission is answered from what is kept: code, legs and the list's version."""
    async with trading(tmp_path) as (world, chain):
        [tx] = world.trade(chain.wallets[0], kind="two_given")
        first = await world.submit(tx.tx_id)
        calls = world.calls()
        second = await world.submit(tx.tx_id[2:].upper())
        (kept,) = await world.all("SELECT * FROM refusals")

    assert first == second
    assert world.calls() == calls
    assert (kept["txid"], kept["code"], kept["source"]) == (tx.tx_id, "incomplete_events", "agent")
    assert kept["allowlist_version"] == world.rules.allowlist.version
    assert len(json.loads(kept["legs_json"])) == 3


@pytest.mark.parametrize("tier", ["registered", "genesis", "not_registered"])
async def test_a_refusal_ends_when_its_sender_becomes_eligible(tier: str, tmp_path: Path) -> None:
    """An agent that completes its registration may submit the same trade again, and it counts."""
    async with trading(tmp_path) as (world, chain):
        stranger = chain.strangers[0].address
        if tier != "not_registered":
            await register(world.db, [Wallet(stranger, tier, "bc1qnew")])  # type: ignore[arg-type]  # a word of the table above
        [tx] = world.trade(stranger)
        before = await world.submit(tx.tx_id)
        await register(world.db, [Wallet(stranger, "eligible", "bc1qnew", erc8004_agent_id=9)])
        after = await world.submit(tx.tx_id)
        left = await world.all("SELECT * FROM refusals")

    assert before.code == ("sender_not_genesis" if tier == "registered" else "sender_not_registered")
    assert (verdict_of(after), after.code) == ("verified", None)
    assert left == []


async def test_a_refusal_ends_when_the_list_grows(tmp_path: Path) -> None:
    """A contract that is added makes its earlier trades count."""
    async with trading(tmp_path) as (world, chain):
        [tx] = world.trade(chain.wallets[0], kind="off_list_contract")
        before = await world.submit(tx.tx_id)
        grown = listing(world, tx)
        after = await world.submit(tx.tx_id, grown)

    assert before.code == "contract_not_allowlisted"
    assert verdict_of(after) == "verified"


async def test_the_campaign_has_an_end(tmp_path: Path) -> None:
    """The last second counts, the next does not; a later end re-opens the refusal."""
    async with trading(tmp_path) as (world, chain):
        [tx] = world.trade(chain.wallets[0])
        assert tx.block is not None
        ends_now = Rules(built_in(), 0, tx.block.burn_time_s)
        ends_next = Rules(built_in(), 0, tx.block.burn_time_s + 1)
        late = await world.submit(tx.tx_id, ends_now)
        in_time = await world.submit(tx.tx_id, ends_next)

    assert (late.code, verdict_of(in_time)) == ("after_comp_end", "verified")


async def test_a_pending_trade_is_queued_if_it_would_count(tmp_path: Path) -> None:
    """A pending trade is not recorded; one that would count is queued, one that never would is not."""
    async with trading(tmp_path) as (world, chain):
        good = chain.swap(chain.wallets[0], wait_ms=None)
        bad = [
            chain.swap(chain.wallets[0], "off_list_contract", wait_ms=None),
            chain.swap(chain.strangers[0], wait_ms=None),
        ]
        answers = [await world.submit(tx.tx_id) for tx in (good, *bad)]
        queued = await world.all("SELECT txid, source FROM candidates")
        rows = await world.rows()

    assert [answer.http_status for answer in answers] == [202, 202, 202]
    assert all(answer.retryable for answer in answers)
    assert queued == [{"txid": good.tx_id, "source": "agent"}]
    assert rows == []


@pytest.mark.parametrize("fate", ["forked", "dropped", "vanished", "pending"])
async def test_a_trade_that_a_reorg_removed_is_not_refused_for_good(fate: Any, tmp_path: Path) -> None:
    """Off the canonical chain nothing is final: no row, no refusal, and it counts once it is mined again."""
    async with trading(tmp_path) as (world, chain):
        [tx] = world.trade(chain.wallets[0])
        chain.reorg(3, fate)
        before = await world.submit(tx.tx_id)
        kept = await world.all("SELECT txid FROM swaps UNION ALL SELECT txid FROM refusals")
        if tx.state != "mempool":
            chain.rebroadcast(tx)
        chain.mine(tx)
        after = await world.submit(tx.tx_id)

    codes = {"forked": "pending", "pending": "pending", "dropped": "tx_failed", "vanished": "tx_not_found"}
    assert before.code == codes[fate]
    assert kept == []
    assert verdict_of(after) == "verified"


async def test_a_429_gives_the_time_to_try_again(tmp_path: Path) -> None:
    """A 429 is not a refusal: nothing is kept, and the answer has the time to try again."""
    async with trading(tmp_path) as (world, chain):
        [tx] = world.trade(chain.wallets[0])
        world.simulator.faults.add(SimulatedFault(kind="limited", retry_after=300))
        answer = await world.submit(tx.tx_id)
        kept = await world.all("SELECT txid FROM refusals UNION ALL SELECT txid FROM candidates")

    assert (answer.code, answer.http_status, answer.retryable) == ("tx_fetch_failed", 502, True)
    assert answer.retry_at is not None
    assert answer.retry_at >= world.clock.now() + 290_000
    assert kept == []


@pytest.mark.parametrize(
    "argument", [None, [], "0x", {}, {"txid": 5}, {"txid": "0x12"}, {"txid": "z" * 64}, {"txid": ["0x"]}]
)
async def test_what_is_not_a_transaction_id_is_refused_without_a_call(argument: Any, tmp_path: Path) -> None:
    """The answer says what an id looks like; no call is made and nothing is stored."""
    async with open_world(tmp_path) as world:
        answer = await submit(world.request(), world.rules, argument, SubmissionLane())

    assert (answer.code, answer.http_status, answer.retryable) == ("malformed_txid", 400, False)
    assert world.calls() == 0


async def test_the_provider_is_recorded_where_the_call_names_it(tmp_path: Path) -> None:
    """The optional principal in the call becomes the address, or nothing."""
    async with trading(tmp_path) as (world, chain):
        sent = [chain.swap(chain.wallets[0], "provider") for _ in range(8)]
        chain.mine()
        for tx in sent:
            await world.submit(tx.tx_id)
        rows = await world.all("SELECT txid, provider FROM swaps")

    expected = {tx.tx_id: tx.payload.arguments[1].value for tx in sent}  # type: ignore[union-attr]  # calls, not transfers
    assert {row["txid"]: row["provider"] for row in rows} == expected
    assert len(set(expected.values())) == 2


# Waits


def test_a_transaction_that_is_not_mined_is_asked_for_less_and_less_often() -> None:
    """After 5, 10, 20 … minutes, six hours at most, whatever the number of attempts."""
    waits = [_wait_ms(Candidate("x", "cron", attempts=attempts)) // MINUTE for attempts in (0, 1, 2, 6, 7, 50)]

    assert waits == [5, 10, 20, 320, 360, 360]


def test_a_transaction_that_hiro_does_not_know_may_be_new() -> None:
    """Four looks; what only a push names has three. One that Hiro knows is nowhere at once."""

    def candidate(attempts: int, rank: int = swap_store.PUSHED) -> Candidate:
        return Candidate("x", "chainhook", attempts=attempts, rank=rank)

    assert PUSHED_LOOKS_MAX == 3
    assert [_is_nowhere(candidate(n), {"x"}) for n in (2, 3)] == [False, True]
    assert _is_nowhere(candidate(0), set())
    assert [_is_invented(candidate(n)) for n in (1, 2)] == [False, True]
    assert not _is_invented(candidate(9, swap_store.SUBMITTED))


def test_tallies_are_added_field_by_field() -> None:
    """The work of concurrent workers."""
    total = Tally(10, 20, 30, 40, 50, Counter({Code.TX_FAILED: 1}))
    total.add(TALLY)

    assert total == Tally(11, 22, 33, 44, 55, Counter({Code.TX_FAILED: 3, Code.INCOMPLETE_EVENTS: 1}))


# Fees in a third token


async def test_the_sites_readers_find_their_columns(tmp_path: Path) -> None:
    """Swaps with the site's columns, and its statistics as a view that follows every swap."""
    async with trading(tmp_path) as (world, chain):
        wallet = chain.wallets[0].address
        tx = chain.swap(wallet, "third_token_fee")
        world.trade(wallet)
        await sweep(world)
        rows = (await world.db.prepare(COMING_TO_THE_SITE).bind(wallet).all()).results
        (stats,) = await world.all("SELECT * FROM agent_swap_stats")
        (recorded,) = await world.all("SELECT max(recorded_at) / 1000 AS s, max(burn_block_time) AS t FROM swaps")
        await world.db.prepare("DELETE FROM swaps").run()
        gone = await world.all("SELECT * FROM agent_swap_stats")

    assert tx.swap is not None
    (with_fee,) = [row for row in rows if row["txid"] == tx.tx_id]
    legs = json.loads(with_fee["raw_event_json"])
    assert (with_fee["tx_status"], with_fee["scored_value"], with_fee["scored_at"]) == ("success", None, None)
    assert legs["legsIn"] == [{"asset_id": tx.swap.token_out, "amount": str(tx.swap.amount_out)}]
    assert legs["legsOut"][0] == {"asset_id": tx.swap.token_in, "amount": str(tx.swap.amount_in)}
    assert [(leg["amount"], leg["fee"]) for leg in legs["legsOut"][1:]] == [("5000", True)]
    assert stats == {
        "stx_address": wallet,
        "trade_count": 2,
        "verified_count": 2,
        "first_trade_at": stats["first_trade_at"],
        "last_trade_at": recorded["t"],
        "updated_at": recorded["s"],
    }
    assert gone == []


def spoilt_amounts(_: str, body: dict[str, Any]) -> None:
    """Every amount between strangers, in the events of v1, is not a number."""
    for entry in body.values():
        for event in entry["result"].get("events", ()):
            asset = event.get("asset", {})
            if entry["result"]["sender_address"] not in {asset.get("sender"), asset.get("recipient")}:
                asset["amount"] = "1e5"


async def test_a_bad_amount_between_strangers_does_not_spoil_the_swap(tmp_path: Path) -> None:
    """It is counted in the log, and the swap is recorded by what is known of its sender."""
    async with trading(tmp_path) as (world, chain):
        [tx] = world.trade(chain.wallets[0], kind="bystanders")
        with world.changing("tx/multiple", spoilt_amounts):
            await world.submit(tx.tx_id)
        await world.check()

    assert [line["count"] for line in world.log.named("upstream.amounts_ignored")] == [1]


# Long routes


def long_route(chain: Chain, events: range, kind: str = "multibin", wallet: int = 0) -> ChainTransaction:
    """Make a trade with this many events, the only one that waits to be mined."""
    while True:
        tx: ChainTransaction = chain.swap(chain.wallets[wallet], kind)
        if len(tx.events) in events:
            return tx


async def verified(world: World, sent: Sequence[ChainTransaction]) -> list[str]:
    """Return the purposes of the calls that verify these transactions together."""
    before = world.calls()
    candidates = [Candidate(tx.tx_id, "cron", added_at=1) for tx in sent]
    await Verifier(world.run(), world.rules).verify(candidates)
    requests = list(world.simulator.requests)[before:]
    return ["changes" if "balance-changes" in each.path else _page_of(each.query) for each in requests]


def _page_of(query: str) -> str:
    """The offset, and how many transactions are asked for."""
    offset = query.partition("event_offset=")[2].partition("&")[0] or "0"
    return f"{offset} of {query.count('0x')}"


@pytest.mark.parametrize(
    ("kind", "calls"), [("multibin", ["0 of 1", "changes"]), ("third_token_fee", ["0 of 1", "changes", *EVENTS_OF_1])]
)
async def test_the_events_of_a_long_route_are_read_if_it_may_have_fees(
    kind: str, calls: list[str], tmp_path: Path
) -> None:
    """One call for its balance changes is enough for any other."""
    async with trading(tmp_path) as (world, chain):
        tx = long_route(chain, UP_TO_400, kind)
        chain.mine(tx)
        made = await verified(world, [tx])
        await world.check(1)

    assert made == calls


async def test_several_long_routes_share_calls(tmp_path: Path) -> None:
    """One for the balance changes of each sender, and one for the next events of all routes with fees."""
    async with trading(tmp_path, 2) as (world, chain):
        kinds = ("third_token_fee", "third_token_fee", "multibin", "multibin")
        sent = [long_route(chain, UP_TO_400, kind, number % 2) for number, kind in enumerate(kinds)]
        chain.mine(*sent)
        made = await verified(world, sent)
        await world.check(4)

    assert made == ["0 of 4", "changes", "changes", "100 of 2", "200 of 2", "300 of 2"]


async def test_a_submitted_long_route_with_a_fee_is_recorded_with_its_legs(tmp_path: Path) -> None:
    async with trading(tmp_path) as (world, chain):
        tx = long_route(chain, UP_TO_200, "third_token_fee")
        chain.mine(tx)
        answer = await world.submit(tx.tx_id)

    assert (answer.http_status, answer.reason) == (200, "recorded")
    assert answer.legs is not None
    assert [leg.role for leg in answer.legs] == ["given", "fee", "received"]


async def test_a_reorg_between_two_pages_leaves_the_transaction_undecided(tmp_path: Path) -> None:
    """It is in another block now: neither recorded nor refused, but asked for again, and then it is a swap."""
    async with trading(tmp_path) as (world, chain):
        tx = long_route(chain, UP_TO_200, "third_token_fee")
        chain.mine(tx)
        first = tx.block

        def reorg(url: str) -> None:
            if "event_offset=100" in url and tx.block is first:
                chain.reorg(chain.tip_height - chain.blocks[-1].height + 1, "remined")

        with world.answering(reorg):
            await sweep(world)
        rows = await world.rows()
        refusals = await world.all("SELECT txid FROM refusals")
        queued = await world.all("SELECT txid, attempts FROM candidates")
        await sweep(world, after_s=3_600)
        await world.check()

    assert first is not None
    assert tx.block is not None
    assert first.hash != tx.block.hash
    assert (rows, refusals, queued) == ([], [], [{"txid": tx.tx_id, "attempts": 1}])
    assert tx.tx_id in {swap.txid for swap in chain.truth()}


@pytest.mark.parametrize(
    "spoil",
    [
        lambda events: events.pop(0),
        lambda events: events.append(events[0]),
        lambda events: [event.update(event_index=event["event_index"] - 1) for event in events],
    ],
    ids=["missing", "overlapping", "wrong"],
)
async def test_a_route_whose_events_cannot_be_read_stays_undecided(
    spoil: Callable[[list[Any]], None], tmp_path: Path
) -> None:
    """It may have a fee, so its balance changes do not tell what it was."""

    def change(_: str, body: dict[str, Any]) -> None:
        for entry in body.values():
            spoil(entry["result"]["events"])

    async with trading(tmp_path) as (world, chain):
        tx = long_route(chain, UP_TO_200, "third_token_fee")
        chain.mine(tx)
        with world.changing("event_offset=", change):
            await sweep(world)
        stored = [await world.all(f"SELECT txid FROM {table}") for table in ("swaps", "refusals", "candidates")]

    assert stored == [[], [], [{"txid": tx.tx_id}]]


# The verdict is the same


@st.composite
def moved(draw: st.DrawFn) -> list[dict[str, Any]]:
    """The events of a long route: a few transfers, mints and burns among many logs."""
    count = draw(st.integers(101, 620))
    places = st.integers(0, count - 1) | st.integers(0, 9) | st.integers(count - 9, count - 1)
    events = [{**SIMPLE["events"][0], "event_index": n} for n in range(count)]
    for place in draw(st.lists(places, min_size=1, max_size=8, unique=True)):
        kind = draw(st.sampled_from(["transfer"] * 6 + ["mint", "burn"]))
        asset = {"asset_event_type": kind, "sender": draw(PARTIES), "recipient": draw(PARTIES)}
        asset |= {"asset_id": f"SP1.{draw(st.sampled_from('abc'))}::t", "amount": str(draw(st.integers(0, 3)))}
        asset |= {"mint": {"sender": ""}, "burn": {"recipient": ""}}.get(kind, {})
        events[place] = {"event_index": place, "event_type": "fungible_token_asset", "asset": asset}
    return events


@st.composite
def with_fee(draw: st.DrawFn) -> list[dict[str, Any]]:
    """The same with a swap around it, and what may be a fee at its end."""
    events = draw(moved())
    legs = {0: ("a", WALLET, POOL), 1: ("b", POOL, WALLET), len(events) - 1: ("c", WALLET, draw(PARTIES))}
    for place, (name, sender, recipient) in legs.items():
        asset = {"asset_event_type": "transfer", "sender": sender, "recipient": recipient, "amount": "9"}
        asset["asset_id"] = f"SP1.{name}::t"
        events[place] = {"event_index": place, "event_type": "fungible_token_asset", "asset": asset}
    return events


def hiro_with(events: list[dict[str, Any]], *, to_itself: bool) -> Callable[[Request], FetchResponse]:
    """Hiro with one transaction: pages of its events, and everybody's balance changes."""
    row = {**SIMPLE, "sender_address": WALLET, "fee_rate": "7", "event_count": len(events)}

    def serve(request: Request) -> FetchResponse:
        if "balance-changes" in request.url:
            principal = unquote(request.url.partition("/principals/")[2].partition("/")[0])
            return response(_changes(events, principal, to_itself=to_itself))
        offset = int(request.url.partition("event_offset=")[2].partition("&")[0] or 0)
        return response({TXID: {"found": True, "result": {**row, "events": events[offset : offset + 100]}}})

    return serve


def _changes(events: list[dict[str, Any]], principal: str, *, to_itself: bool) -> dict[str, Any]:
    """With or without what somebody sent to itself: Hiro might do either."""
    sums: dict[str, list[int]] = {"stx": [7, 0]} if principal == WALLET else {}
    for asset in (event["asset"] for event in events if "asset" in event):
        if asset["sender"] == asset["recipient"] and not to_itself:
            continue
        for at, side in enumerate(("sender", "recipient")):
            if asset[side] == principal:
                sums.setdefault(asset["asset_id"], [0, 0])[at] += int(asset["amount"])
    rows = [
        {
            "tx_id": TXID,
            "asset": {"type": "stx" if asset == "stx" else "ft", "identifier": asset},
            "balance_change": {"sent": str(sent), "received": str(gotten), "net": str(gotten - sent)},
        }
        for asset, (sent, gotten) in sums.items()
    ]
    return {"total": len(rows), "limit": 50, "cursor": {"next": None}, "results": rows}


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(moved() | with_fee(), st.booleans())
def test_the_verdict_of_a_long_route_is_that_of_all_its_events(events: list[dict[str, Any]], to_itself: bool) -> None:
    """With and without fees, wherever the transfers are."""

    async def play() -> None:
        wired = wired_hiro(hiro_with(events, to_itself=to_itself))
        found = (value_or_raise(await wired.hiro.transactions_with_events([TXID], wired.task())) or {})[TXID]
        assert found is not None
        told = await moves_of_each(wired.hiro, wired.task(), [found])

        assert told == {TXID: moves_of_events(WALLET, events_v1({"events": [*events]}, WALLET))}

    run_virtual(play())


# Answers that are too large


def cut_at(body_max: int) -> type[SimulatedFetch]:
    class CutFetch(SimulatedFetch):
        """Refuses answers of more than `body_max` bytes."""

        async def __call__(self, url: str, **options: Any) -> FetchResponse:
            return await super().__call__(url, **{**options, "body_max": body_max})

    return CutFetch


def busy_chain() -> Simulator:
    """Forty trades whose answers are long, over a few blocks."""
    simulator = chain_of(3)
    for number in range(40):
        simulator.chain.swap(simulator.chain.wallets[number % 3], kind="multibin")
        if number % 10 == 9:
            simulator.chain.mine()
    return simulator


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body_max", "calls"),
    [
        (4 * 1024 * 1024, 2),  # twenty each
        (400_000, 6),  # twenty are too many, ten are not
    ],
)
async def test_a_large_batch_is_halved_at_once(body_max: int, calls: int, tmp_path: Path) -> None:
    async with open_world(tmp_path, busy_chain(), fetch=cut_at(body_max)) as world:
        result = await sweep(world)
        await world.check(40)

    assert (result.counters["failed"], result.error, result.incomplete) == (0, None, None)
    assert world.calls("tx/multiple") == calls


@pytest.mark.slow
async def test_a_single_transaction_that_is_too_large_is_read_without_its_events(tmp_path: Path) -> None:
    """Its balance changes show what it moved."""
    async with open_world(tmp_path, busy_chain(), fetch=cut_at(45_000)) as world:
        result = await sweep(world)
        await world.check(40)

    assert (result.counters["failed"], result.error) == (0, None)
    assert world.calls("balance-changes") > 0
