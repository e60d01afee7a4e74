"""Explanations: they agree with what the verifier does, and they show every step."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import StoreError
from holdfast_testing.virtual_time import VirtualClock
from stacks_simulator.addresses import address_of
from stacks_simulator.calls import CALL_KINDS, SWAP_KINDS
from support.competition import World, open_world, trading, transaction, verdict_of
from support.reference_cases import PARSE_CASES, VERIFY_CASES
from support.scripted_fetch import example
from support.simulated import ask_json, quiet_simulator
from tocsin.commands import render
from tocsin.commands.explain import explain_file, explain_of_chain, recorded_swap, tier_lookup
from tocsin.errors import TransactionUnreadable
from tocsin.settings import Settings
from tocsin.stacks import ContractCall
from tocsin.swaps.codes import MEANINGS, Code
from tocsin.swaps.explain import explain_not_found, explain_record, explain_refusal, with_record
from tocsin.swaps.rules import Check, Rules, built_in
from tocsin.swaps.swap import recorded_legs
from tocsin.swaps.types import ExplainStep, Explanation, SubmitAnswer, SwapAmounts

KEYS = {"status", "code", "reason", "steps", "swap", "legs"}
PARTS = ("token_in", "amount_in", "token_out", "amount_out")
DATA = Path(__file__).parent.parent / "data"


async def explained(world: World, directory: Path, txid: str) -> Explanation:
    lookup = tier_lookup(Settings(data_dir=str(directory)), None)
    return await explain_of_chain(world.hiro, txid, world.rules, lookup, world.log)


def assert_agree(explanation: Explanation, answer: SubmitAnswer) -> None:
    """The explanation and the answer to a submission have the same verdict, and the same swap or reason."""
    assert (explanation.status, explanation.code) == (verdict_of(answer), answer.code)
    if answer.trade is None:
        assert explanation.reason == answer.reason
    else:
        trade = answer.trade
        assert explanation.swap == SwapAmounts(trade.token_in, trade.amount_in, trade.token_out, trade.amount_out)


@pytest.mark.slow
@pytest.mark.parametrize("kind", CALL_KINDS)
async def test_it_agrees_with_what_a_submission_stores(kind: str, tmp_path: Path) -> None:
    """Every kind of call, of every kind of sender, in every state: the same verdict, and nothing is stored."""
    async with trading(tmp_path, quiet_simulator(VirtualClock(), wallets=11)) as (world, chain):
        senders = [*(chain.wallets[number] for number in (0, 0, 0, 1, 9, 10)), chain.strangers[0]]
        sent = [chain.swap(sender, kind) for sender in senders]
        chain.mine()
        sent += [chain.swap(sender, kind, wait_ms=None) for sender in senders]
        before = [await explained(world, tmp_path, tx.tx_id) for tx in sent]
        stored = await world.all(
            "SELECT txid FROM swaps UNION ALL SELECT txid FROM refusals UNION ALL SELECT txid FROM candidates"
        )
        after = [await world.submit(tx.tx_id) for tx in sent]

    assert stored == []
    assert kind != "multibin" or any(len(tx.events) > 100 for tx in sent[:4]), "the routes are too short"
    for explanation, answer in zip(before, after, strict=True):
        assert_agree(explanation, answer)
        assert set(explanation.to_json()) == KEYS


@pytest.mark.parametrize("fate", ["forked", "dropped", "vanished", "pending"])
async def test_it_agrees_about_a_transaction_that_a_reorg_removed(fate: Any, tmp_path: Path) -> None:
    """On a fork, dropped, gone, or back in the mempool: the same verdict as for a submission."""
    async with trading(tmp_path) as (world, chain):
        tx = chain.swap(chain.wallets[0])
        chain.mine()
        chain.reorg(3, fate)
        explanation = await explained(world, tmp_path, tx.tx_id)
        answer = await world.submit(tx.tx_id)

    assert_agree(explanation, answer)


@pytest.mark.slow
@pytest.mark.parametrize("kind", CALL_KINDS)
async def test_every_format_of_a_body_gives_the_same_verdict(kind: str, tmp_path: Path) -> None:
    """The bodies of v1, of tx/multiple, of v3 with its events, and all of them in wrappers."""
    simulator = quiet_simulator()
    chain = simulator.chain
    tx = chain.swap(chain.wallets[0], kind)
    chain.mine()
    v1 = ask_json(simulator, f"/extended/v1/tx/{tx.tx_id}?event_limit=100")
    several = ask_json(simulator, f"/extended/v1/tx/multiple?event_limit=100&tx_id={tx.tx_id}")
    v3 = ask_json(simulator, f"/extended/v3/transactions/{tx.tx_id}")
    page = ask_json(simulator, f"/extended/v3/transactions/{tx.tx_id}/events?limit=100")
    without = {name: value for name, value in v1.items() if name != "events"}
    bodies = [
        v1, several, several[tx.tx_id], {"tx": without, "events": v1["events"]}, {"status": 200, "body": v1},
        {**v3, "events": page["results"]}, {"transaction": v3, "events": page}, {"tx": v3, "events": page},
    ]  # fmt: skip

    first, *others = [explanation_of(tmp_path, body) for body in bodies]

    assert others == [first] * len(others)
    if len(tx.events) > 100:
        assert (first.status, first.code) == ("unknown", "incomplete_events")
        assert f"does not hold all of its {len(tx.events)} events" in first.reason
    else:
        assert first.status == ("verified" if kind in SWAP_KINDS else "rejected")


def explanation_of(directory: Path, body: Any) -> Explanation:
    """The explanation of a file with this body, for an eligible sender."""
    file = directory / "tx.json"
    file.write_text(json.dumps(body))
    return explain_file(Settings(competition_start=0), file, "eligible")


@pytest.mark.parametrize("case", VERIFY_CASES, ids=lambda case: case["name"])
def test_cases_of_the_reference(case: dict[str, Any], tmp_path: Path) -> None:
    """Status, code and swap as the reference verifies, where it is the transaction that decides."""
    hiro, sender, expected = case["hiro"], case["db"]["sender"], case["expected"]
    if case["db"]["existing_row"] or case["db"]["fail_on"] or hiro.get("status") not in {200, 404}:
        assert expected.get("code") in {None, "db_unavailable", "tx_fetch_failed"}
        return
    tier: Any = "eligible" if sender["has_identity"] else "genesis"
    if not sender["genesis"]:
        tier = "registered" if sender["registered"] else "not_registered"
    if hiro["status"] == 404:
        explanation = explain_not_found(case["txid"])
    else:
        file = tmp_path / "tx.json"
        file.write_text(json.dumps(hiro["body"]))
        explanation = explain_file(Settings(), file, tier)

    assert explanation.status == expected["status"]
    assert explanation.code == expected.get("code", "pending" if expected["status"] == "pending" else None)
    if "row" in expected:
        assert explanation.swap == SwapAmounts(*(str(expected["row"][part]) for part in PARTS))


@pytest.mark.parametrize("case", PARSE_CASES, ids=lambda case: case["name"])
def test_parse_cases_of_the_reference(case: dict[str, Any], tmp_path: Path) -> None:
    """Their bodies are shortened by hand: missing fields are filled in, and the tokens are netted."""
    explanation, expected = explanation_of(tmp_path, case["tx"]), case["expected"]

    if not expected["ok"]:
        assert explanation.code == case.get("ours", expected)["code"]
    else:
        assert explanation.swap == SwapAmounts(*(str(expected[part]) for part in PARTS))
        assert explanation.status == "verified"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[1]", "body: expected an object"),
        (b"{}", "expected the body of one transaction"),
        (b'{"a": {}, "b": {}}', "expected the body of one transaction"),
        (b'{"a": {"b": {"c": {"d": {"e": {}}}}}}', "is not a transaction"),
        (b'{"0xab": {"found": false, "result": {"tx_id": "0xab"}}}', "Hiro did not know"),
        (b'{"tx_id": "0xab", "tx_status": "success"}', "sender_address: expected"),
        (b"[" * 100_000, "nested too deeply"),
        (b" " * 16_000_001, "more than 16000000 bytes"),
    ],
)
def test_a_file_that_is_not_a_transaction_is_refused(body: bytes, message: str, tmp_path: Path) -> None:
    """The sentence names the file and what was expected."""
    file = tmp_path / "tx.json"
    file.write_bytes(body)

    with pytest.raises(TransactionUnreadable, match=r"tx\.json is not a transaction in Hiro's format") as raised:
        explain_file(Settings(), file, "eligible")

    assert message in str(raised.value)


def test_a_file_that_lacks_events_is_judged_only_where_they_do_not_matter(tmp_path: Path) -> None:
    """A sender that is not registered is refused anyway; otherwise there is no verdict, and the fix is named."""
    page = DATA / "hiro/swap_dlmm_multibin_synthetic_default_page.json"

    explanation = explain_file(Settings(), page, "not_registered")
    undecided = explain_file(Settings(), page, "eligible")

    assert explanation.code == "sender_not_registered"
    assert "tokens" not in {step.name for step in explanation.steps}
    assert (undecided.status, undecided.code) == ("unknown", "incomplete_events")
    assert re.search(r"all of its 36 events.*tocsin explain 0x46bc", undecided.reason)
    assert "Unknown (incomplete_events): the file does not hold" in shown(undecided)


def shown(explanation: Explanation) -> str:
    """As a terminal shows it, on one line."""
    console = render.console()
    with console.capture() as capture:
        for line in render.explained(explanation):
            console.print(line)
    return " ".join(capture.get().split())


def spoiled(tmp_path: Path, change: Callable[[dict[str, Any]], object]) -> Explanation:
    body = example("hiro/swap_simple_synthetic")["body"]
    change(body)
    return explanation_of(tmp_path, body)


@pytest.mark.parametrize(
    ("change", "status", "code", "reason"),
    [
        (lambda tx: tx["events"][-1]["asset"].pop("asset_id"), "unknown", "incomplete_events", "asset_id: exp"),
        (lambda tx: tx.pop("events"), "unknown", "incomplete_events", "does not hold all of its"),
        (lambda tx: tx.update(events=[], event_count=0), "rejected", "incomplete_events", "no token changed"),
        (lambda tx: tx.pop("contract_call"), "rejected", "malformed_tx", "does not say which contract"),
        (lambda tx: tx.update(contract_call={"contract_id": 7}), "rejected", "malformed_tx", "which contract"),
        (lambda tx: tx.update(tx_type="coinbase"), "rejected", "malformed_tx", "it is a coinbase"),
        (lambda tx: tx["events"][-1]["asset"].update(amount="1.5"), "rejected", "invalid_amount", "amount: exp"),
    ],
)
def test_a_body_that_cannot_be_judged_has_a_code(
    change: Any, status: str, code: str, reason: str, tmp_path: Path
) -> None:
    """A verdict where the body shows one, otherwise what is missing; never an error."""
    explanation = spoiled(tmp_path, change)

    assert (explanation.status, explanation.code) == (status, code)
    assert reason in explanation.reason


@pytest.mark.parametrize("amount", ["1.5", None, "", -1])
def test_a_bad_amount_between_strangers_changes_nothing(amount: Any, tmp_path: Path) -> None:
    """The sender's own amounts are known, so the swap is."""

    def add(tx: dict[str, Any]) -> None:
        asset = {"asset_event_type": "transfer", "asset_id": "X.x::x", "sender": "SPA", "recipient": "SPB"}
        event = {"event_type": "fungible_token_asset", "asset": {**asset, "amount": amount}}
        tx["events"].append({"event_index": len(tx["events"]), **event})
        tx["event_count"] = len(tx["events"])

    assert spoiled(tmp_path, add) == spoiled(tmp_path, lambda _: None)


async def test_a_recorded_swap_is_shown_with_its_legs(tmp_path: Path) -> None:
    """By the record alone when Hiro cannot be asked; what an older release recorded has no legs."""
    async with trading(tmp_path) as (world, chain):
        tx = chain.swap(chain.wallets[0], "third_token_fee")
        chain.mine()
        answer = await world.submit(tx.tx_id)
        explanation = await explained(world, tmp_path, tx.tx_id)
    row = recorded_swap(Settings(data_dir=str(tmp_path)), tx.tx_id)

    assert row is not None
    assert tx.swap is not None
    assert answer.legs == explanation.legs == recorded_legs(row)
    assert answer.legs is not None
    given, fee, received = answer.legs
    assert (given.token, given.amount, given.role) == (tx.swap.token_in, str(tx.swap.amount_in), "given")
    assert (fee.amount, fee.role) == ("5000", "fee")
    assert (received.token, received.role) == (tx.swap.token_out, "received")
    alone = explain_record(row, "Hiro could not be asked")
    assert (alone.status, alone.legs) == ("verified", answer.legs)
    assert f"and, as a fee, 5000 of {fee.token}, and got" in with_record(explanation, row).steps[-1].detail
    older = explain_record({**row, "raw_event_json": None}, "")
    assert (older.legs, older.swap) == (None, alone.swap)
    assert "an older release recorded it" in older.reason
    assert recorded_swap(Settings(data_dir=str(tmp_path / "absent")), tx.tx_id) is None


def test_a_refusal_is_shown_with_its_legs(tmp_path: Path) -> None:
    """It shows what was given and received, although it is not a swap."""
    simulator = quiet_simulator()
    tx = simulator.chain.swap(simulator.chain.wallets[0], "two_given")
    simulator.chain.mine()
    body = ask_json(simulator, f"/extended/v1/tx/{tx.tx_id}?event_limit=100")
    explanation = explanation_of(tmp_path, body)

    assert explanation.legs is not None
    assert [leg.role for leg in explanation.legs] == ["given", "given", "received"]
    assert "given: 5000 of" in shown(explanation)


async def test_the_sender_is_looked_up_in_the_directory_and_nothing_is_left_there(tmp_path: Path) -> None:
    """With and without a running service; without a database the step says so."""
    file = DATA / "hiro/swap_simple_synthetic.json"
    sender = json.loads(file.read_text())["body"]["sender_address"]
    settings = Settings(data_dir=str(tmp_path))
    without_database = tier_lookup(settings, None)(sender)
    async with open_world(tmp_path) as world:
        wallet = world.simulator.chain.wallets[0].address
        with_service = [tier_lookup(settings, None)(address) for address in (wallet, sender)]
    files = contents(tmp_path)
    without_service = tier_lookup(settings, None)(wallet)
    explanation = explain_file(settings, file, None)

    assert without_database[0] == "not_registered"
    assert "set --data-dir, or assume a tier with --as" in without_database[1]
    assert with_service == [("eligible", ""), ("not_registered", "")]
    assert without_service == ("eligible", "")
    assert explanation.code == "sender_not_registered"
    assert contents(tmp_path) == files


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_a_file_that_is_not_a_database_is_an_error(tmp_path: Path) -> None:
    """The error names it; the sender is not called unregistered because of it."""
    (tmp_path / "db.sqlite").write_text("nonsense")

    with pytest.raises(StoreError, match=r"db.sqlite: file is not a database"):
        tier_lookup(Settings(data_dir=str(tmp_path)), None)("SP")


@pytest.mark.parametrize("code", [None, *MEANINGS])
def test_every_verdict_is_shown_in_the_words_of_the_api(code: Code | None) -> None:
    """A line per step with its mark, then the sentence."""
    step = ExplainStep("sender", code is None, "[bold]so\x1b", code and str(code))
    explanation = Explanation(
        status="verified" if code is None else "rejected",
        code=code and str(code),
        reason="r",
        steps=[step],
        swap=None,
        legs=None,
    )
    console = render.console()
    with console.capture() as capture:
        for line in render.explained(explanation):
            console.print(line)

    steps, sentence = capture.get().split("\n", 1)
    assert steps.split() == ["✓" if code is None else "✗", "sender", "[bold]so?"]
    expected = "Verified: r." if code is None else f"Rejected ({code}): {MEANINGS[code].sentence}"
    assert sentence.strip() == expected


def test_a_refusal_is_shown_at_its_own_step() -> None:
    """One of the status first; one of the tokens last; one that is derived again where it is."""
    rules = Rules(built_in(), 0)
    contract, functions = next((name, sorted(listed)) for name, listed in rules.allowlist.contracts.items())
    call = transaction("0x1", address_of("wallet"), contract_call=ContractCall(contract, functions[0]))
    by_status = explain_refusal(call, Check("status", "it failed", Code.TX_FAILED), "eligible", rules)
    by_tokens = explain_refusal(call, Check("tokens", "two", Code.INCOMPLETE_EVENTS), "eligible", rules)
    again = explain_refusal(call, Check("tokens", "old words", Code.SENDER_NOT_GENESIS), "registered", rules)

    assert [(step.name, step.ok) for step in by_status.steps][:2] == [("transaction", True), ("status", False)]
    assert (by_status.status, by_status.code, by_status.reason) == ("rejected", "tx_failed", "it failed")
    assert (by_tokens.steps[-1].name, by_tokens.steps[-1].ok, by_tokens.reason) == ("tokens", False, "two")
    assert again.reason == "the sender's claim is not verified"
    assert [step.name for step in again.steps].count("tokens") == 0
