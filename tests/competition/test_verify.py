"""The verifier as used by a submission: order, codes, and what is stored of each."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import StoreUnavailable
from holdfast.types import Database, DBResult
from holdfast.values import decode, encode
from holdfast_testing.virtual_time import VirtualClock
from stacks_simulator.calls import REFUSED_KINDS, SWAP_KINDS
from stacks_simulator.faults import SimulatedFault
from stacks_simulator.wallets import Wallet, WalletTier
from support.competition import World, open_world, register, sweep, verdict_of
from support.reference_cases import VERIFY_CASES, answering
from support.scripted_fetch import ScriptedFetch
from support.simulated import quiet_simulator
from tocsin.swaps.codes import MEANINGS, Code
from tocsin.swaps.rules import AllowList, Rules, built_in
from tocsin.swaps.submit import SubmissionLane, recheck, submit
from tocsin.swaps.types import SubmitAnswer
from tocsin.swaps.verify import LOOKS_MIN

SENDER = "SP4DXVEC16FS6QR7RBKGWZYJKTXPC81W49W0ATJE"
READS = {
    "read-existing": "FROM swaps WHERE txid = ?",
    "sender-check": "FROM agent_tiers",
    "insert": "INSERT INTO swaps",
}


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


async def store(db: Database, row: dict[str, Any]) -> None:
    """As another writer would have stored it: the same block."""
    kept = {name: row[name] for name in row if name not in {"tx_status", "scored_value", "scored_at"}}
    kept |= {"amount_in": str(row["amount_in"]), "amount_out": str(row["amount_out"]), "tx_index": 3}
    kept |= {"block_height": 7_929_497, "block_hash": "0x" + "a1" * 32, "allowlist_version": "v", "recorded_at": 0}
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
        answer = await submit(world.request(), world.rules, {"txid": case["txid"]}, SubmissionLane())
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


async def ask(world: World, txid: str) -> SubmitAnswer:
    return await submit(world.request(), world.rules, {"txid": txid}, SubmissionLane())


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*SWAP_KINDS, *REFUSED_KINDS])
async def test_every_shape_ends_as_the_generator_meant(kind: str, tmp_path: Path) -> None:
    """A swap is recorded exactly as the truth has it, everything else is refused with its code."""
    async with open_world(tmp_path) as world:
        chain = world.simulator.chain
        sent = [chain.swap(chain.wallets[0], kind) for _ in range(3)]
        chain.mine()
        for _ in range(LOOKS_MIN if kind == "no_events" else 0):
            assert {(await ask(world, tx.tx_id)).code for tx in sent} == {"pending"}
            await world.clock.sleep(1_000)
            await sweep(world)
        answers = [await ask(world, tx.tx_id.upper()) for tx in sent]
        rows = await world.rows()

    assert rows == [vars_of(swap) for swap in chain.truth()]
    assert len(rows) == (3 if kind in SWAP_KINDS else 0)
    if kind in REFUSED_KINDS:
        assert {answer.code for answer in answers} == {EXPECTED_CODES[kind]}


async def test_a_recheck_replaces_a_verdict_that_rests_on_a_wrong_answer(tmp_path: Path) -> None:
    """An operator can recheck a trade; an agent that sends it again cannot."""
    async with open_world(tmp_path) as world:
        chain = world.simulator.chain
        good, bad = chain.swap(chain.wallets[0]), chain.swap(chain.wallets[0], "one_sided")
        chain.mine()
        await ask(world, good.tx_id)
        await ask(world, bad.tx_id)
        await world.db.batch(
            [
                world.db.prepare(
                    "INSERT INTO refusals SELECT txid, 'incomplete_events', '', sender, contract_id, function_name,"
                    " burn_block_time, block_height, block_hash, '{}', source, allowlist_version, 1 FROM swaps"
                ),
                world.db.prepare("DELETE FROM swaps"),
            ]
        )
        again = await ask(world, good.tx_id)
        rechecked = [
            await recheck(world.request(), world.rules, {"txid": tx.tx_id}, SubmissionLane()) for tx in (good, bad)
        ]
        rows = await world.rows()
        refused = await world.all("SELECT txid FROM refusals")

    assert again.code == "incomplete_events"
    assert [answer.code for answer in rechecked] == [None, "incomplete_events"]
    assert rows == [vars_of(swap) for swap in chain.truth()]
    assert refused == [{"txid": bad.tx_id}]


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


def vars_of(swap: Any) -> dict[str, Any]:
    return {name: getattr(swap, name) for name in swap.__dataclass_fields__}


async def test_a_refusal_is_kept_and_not_fetched_again(tmp_path: Path) -> None:
    """The second submission is answered from what is kept: code, legs and the list's version."""
    async with open_world(tmp_path) as world:
        chain = world.simulator.chain
        tx = chain.swap(chain.wallets[0], "two_given")
        chain.mine()
        first = await submit(world.request(), world.rules, {"txid": tx.tx_id}, SubmissionLane())
        calls = world.calls()
        second = await submit(world.request(), world.rules, {"txid": tx.tx_id[2:].upper()}, SubmissionLane())
        (kept,) = await world.all("SELECT * FROM refusals")

    assert first == second
    assert world.calls() == calls
    assert (kept["txid"], kept["code"], kept["source"]) == (tx.tx_id, "incomplete_events", "agent")
    assert kept["allowlist_version"] == world.rules.allowlist.version
    assert len(json.loads(kept["legs_json"])) == 3


@pytest.mark.parametrize("tier", ["registered", "genesis", "not_registered"])
async def test_a_refusal_ends_when_its_sender_becomes_eligible(tier: str, tmp_path: Path) -> None:
    """An agent that completes its registration may submit the same trade again, and it counts."""
    async with open_world(tmp_path) as world:
        chain = world.simulator.chain
        stranger = chain.strangers[0].address
        if tier != "not_registered":
            await register(world.db, [Wallet(stranger, tier, "bc1qnew")])  # type: ignore[arg-type]  # a word of the table above
        tx = chain.swap(stranger)
        chain.mine()
        before = await submit(world.request(), world.rules, {"txid": tx.tx_id}, SubmissionLane())
        await register(world.db, [Wallet(stranger, "eligible", "bc1qnew", erc8004_agent_id=9)])
        after = await submit(world.request(), world.rules, {"txid": tx.tx_id}, SubmissionLane())
        left = await world.all("SELECT * FROM refusals")

    assert before.code == ("sender_not_genesis" if tier == "registered" else "sender_not_registered")
    assert (verdict_of(after), after.code) == ("verified", None)
    assert left == []


async def test_a_refusal_ends_when_the_list_grows(tmp_path: Path) -> None:
    """A contract that is added makes its earlier trades count."""
    async with open_world(tmp_path) as world:
        chain = world.simulator.chain
        tx = chain.swap(chain.wallets[0], "off_list_contract")
        chain.mine()
        before = await submit(world.request(), world.rules, {"txid": tx.tx_id}, SubmissionLane())
        call = tx.payload
        added = AllowList({call.contract: frozenset({call.function})})  # type: ignore[union-attr]  # a call, not a transfer
        grown = Rules(built_in().plus(added), world.rules.start_s)
        after = await submit(world.request(), grown, {"txid": tx.tx_id}, SubmissionLane())

    assert before.code == "contract_not_allowlisted"
    assert verdict_of(after) == "verified"


async def test_the_campaign_has_an_end(tmp_path: Path) -> None:
    """The last second counts, the next does not; a later end re-opens the refusal."""
    simulator = quiet_simulator(VirtualClock())
    chain = simulator.chain
    async with open_world(tmp_path, simulator) as world:
        tx = chain.swap(chain.wallets[0])
        chain.mine()
        assert tx.block is not None
        ends_now = Rules(built_in(), 0, tx.block.burn_time_s)
        ends_next = Rules(built_in(), 0, tx.block.burn_time_s + 1)
        late = await submit(world.request(), ends_now, {"txid": tx.tx_id}, SubmissionLane())
        in_time = await submit(world.request(), ends_next, {"txid": tx.tx_id}, SubmissionLane())

    assert (late.code, verdict_of(in_time)) == ("after_comp_end", "verified")


async def test_a_pending_trade_is_queued_if_it_would_count(tmp_path: Path) -> None:
    """A pending trade is not recorded; one that would count is queued, one that never would is not."""
    async with open_world(tmp_path) as world:
        chain = world.simulator.chain
        good = chain.swap(chain.wallets[0], wait_ms=None)
        bad = [
            chain.swap(chain.wallets[0], "off_list_contract", wait_ms=None),
            chain.swap(chain.strangers[0], wait_ms=None),
        ]
        answers = [
            await submit(world.request(), world.rules, {"txid": tx.tx_id}, SubmissionLane()) for tx in (good, *bad)
        ]
        queued = await world.all("SELECT txid, source FROM candidates")
        rows = await world.rows()

    assert [answer.http_status for answer in answers] == [202, 202, 202]
    assert all(answer.retryable for answer in answers)
    assert queued == [{"txid": good.tx_id, "source": "agent"}]
    assert rows == []


@pytest.mark.parametrize("fate", ["forked", "dropped", "vanished", "pending"])
async def test_a_trade_that_a_reorg_removed_is_not_refused_for_good(fate: Any, tmp_path: Path) -> None:
    """Off the canonical chain nothing is final: no row, no refusal, and it counts once it is mined again."""
    async with open_world(tmp_path) as world:
        chain = world.simulator.chain
        tx = chain.swap(chain.wallets[0])
        chain.mine()
        chain.reorg(3, fate)
        before = await submit(world.request(), world.rules, {"txid": tx.tx_id}, SubmissionLane())
        kept = await world.all("SELECT txid FROM swaps UNION ALL SELECT txid FROM refusals")
        if tx.state != "mempool":
            chain.rebroadcast(tx)
        chain.mine(tx)
        after = await submit(world.request(), world.rules, {"txid": tx.tx_id}, SubmissionLane())

    codes = {"forked": "pending", "pending": "pending", "dropped": "tx_failed", "vanished": "tx_not_found"}
    assert before.code == codes[fate]
    assert kept == []
    assert verdict_of(after) == "verified"


async def test_a_429_gives_the_time_to_try_again(tmp_path: Path) -> None:
    """A 429 is not a refusal: nothing is kept, and the answer has the time to try again."""
    async with open_world(tmp_path) as world:
        chain = world.simulator.chain
        tx = chain.swap(chain.wallets[0])
        chain.mine()
        world.simulator.faults.add(SimulatedFault(kind="limited", retry_after=300))
        answer = await submit(world.request(), world.rules, {"txid": tx.tx_id}, SubmissionLane())
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
    async with open_world(tmp_path) as world:
        chain = world.simulator.chain
        sent = [chain.swap(chain.wallets[0], "provider") for _ in range(8)]
        chain.mine()
        for tx in sent:
            await submit(world.request(), world.rules, {"txid": tx.tx_id}, SubmissionLane())
        rows = await world.all("SELECT txid, provider FROM swaps")

    expected = {tx.tx_id: tx.payload.arguments[1].value for tx in sent}  # type: ignore[union-attr]  # calls, not transfers
    assert {row["txid"]: row["provider"] for row in rows} == expected
    assert len(set(expected.values())) == 2


def test_every_code_has_its_meaning() -> None:
    """Every code has a status, a sentence and whether to retry, and the route's table is right."""
    assert set(MEANINGS) == set(Code)
    for code, meaning in MEANINGS.items():
        assert meaning.sentence.endswith("."), code
        assert meaning.retryable == (meaning.status in {202, 404, 429, 500, 502, 503}), code
        assert not (meaning.final and meaning.retryable), code
        assert meaning.final or meaning.reopened_by is None, code
    statuses = {code: MEANINGS[code].status for code in Code}
    refused = {"malformed_tx", "tx_failed", "before_comp_start", "after_comp_end", "sender_not_registered"}
    refused |= {"sender_not_genesis", "contract_not_allowlisted", "invalid_amount", "incomplete_events"}
    assert {code for code, status in statuses.items() if status == 422} == refused
    assert {code for code in Code if MEANINGS[code].final} == refused
