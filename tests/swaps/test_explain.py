"""Explanations: they agree with what the verifier does, and they show every step."""

from pathlib import Path
from typing import Any

import pytest

from holdfast.testing.virtual_time import VirtualClock
from stacks_simulator.addresses import address_of
from stacks_simulator.calls import CALL_KINDS
from support.competition import World, trading, transaction, verdict_of
from support.simulated import quiet_simulator
from tocsin.commands import render
from tocsin.stacks import ContractCall
from tocsin.swaps.explain import explain_refusal
from tocsin.swaps.rules import MEANINGS, Check, Code, Rules, built_in
from tocsin.swaps.submit import SubmissionLane, verdict
from tocsin.swaps.swap import recorded_legs
from tocsin.swaps.trades import find_swap
from tocsin.swaps.types import ExplainStep, SubmitAnswer, SwapAmounts, TradeVerdict, VerdictAnswer


async def asked(world: World, txid: str) -> VerdictAnswer:
    return await verdict(world.request(), world.rules, {"txid": txid}, SubmissionLane())


async def explained(world: World, txid: str) -> TradeVerdict:
    found = (await asked(world, txid)).verdict
    assert found is not None
    return found


def assert_agree(explained: VerdictAnswer, answer: SubmitAnswer) -> None:
    """The verdict and the answer to a submission have the same status, and the same swap or reason."""
    found = explained.verdict
    if found is None:
        assert (explained.code, explained.reason) == (answer.code, answer.reason)
        return
    assert (found.status, found.code) == (verdict_of(answer), answer.code)
    if answer.trade is None:
        assert found.reason == answer.reason
    else:
        trade = answer.trade
        assert found.swap == SwapAmounts(trade.token_in, trade.amount_in, trade.token_out, trade.amount_out)


@pytest.mark.slow
@pytest.mark.parametrize("kind", CALL_KINDS)
async def test_it_agrees_with_what_a_submission_stores(kind: str, tmp_path: Path) -> None:
    """Every kind of call, of every kind of sender, in every state: the same verdict, and nothing is stored."""
    async with trading(tmp_path, quiet_simulator(VirtualClock(), wallets=11)) as (world, chain):
        senders = [*(chain.wallets[number] for number in (0, 0, 0, 1, 9, 10)), chain.strangers[0]]
        sent = [chain.swap(sender, kind) for sender in senders]
        chain.mine()
        sent += [chain.swap(sender, kind, wait_ms=None) for sender in senders]
        before = [await asked(world, tx.tx_id) for tx in sent]
        stored = await world.all(
            "SELECT txid FROM swaps UNION ALL SELECT txid FROM refusals UNION ALL SELECT txid FROM candidates"
        )
        after = [await world.submit(tx.tx_id) for tx in sent]

    assert stored == []
    assert kind != "multibin" or any(len(tx.events) > 100 for tx in sent[:4]), "the routes are too short"
    for explanation, answer in zip(before, after, strict=True):
        assert_agree(explanation, answer)


@pytest.mark.parametrize("fate", ["forked", "dropped", "vanished", "pending"])
async def test_it_agrees_about_a_transaction_that_a_reorg_removed(fate: Any, tmp_path: Path) -> None:
    """On a fork, dropped, gone, or back in the mempool: the same verdict as for a submission."""
    async with trading(tmp_path) as (world, chain):
        [tx] = world.trade(chain.wallets[0])
        chain.reorg(3, fate)
        explanation = await asked(world, tx.tx_id)
        answer = await world.submit(tx.tx_id)

    assert_agree(explanation, answer)


def shown(explanation: TradeVerdict) -> str:
    """As a terminal shows it, on one line."""
    console = render.console()
    with console.capture() as capture:
        for line in render.explained(explanation.to_json()):
            console.print(line)
    return " ".join(capture.get().split())


async def test_a_recorded_swap_is_shown_with_its_legs(tmp_path: Path) -> None:
    """By the record alone, without a call."""
    async with trading(tmp_path) as (world, chain):
        [tx] = world.trade(chain.wallets[0], kind="third_token_fee")
        answer = await world.submit(tx.tx_id)
        calls = world.calls()
        explanation = await explained(world, tx.tx_id)
        assert world.calls() == calls
        row = await find_swap(world.db, tx.tx_id)

    assert row is not None
    assert tx.swap is not None
    assert answer.legs == explanation.legs == recorded_legs(row)
    assert answer.legs is not None
    given, fee, received = answer.legs
    assert (given.token, given.amount, given.role) == (tx.swap.token_in, str(tx.swap.amount_in), "given")
    assert (fee.amount, fee.role) == ("5000", "fee")
    assert (received.token, received.role) == (tx.swap.token_out, "received")
    assert f"and, as a fee, 5000 of {fee.token}, and got" in explanation.steps[-1].detail


async def test_a_refusal_is_shown_with_its_legs(tmp_path: Path) -> None:
    """It shows what was given and received, although it is not a swap."""
    async with trading(tmp_path) as (world, chain):
        [tx] = world.trade(chain.wallets[0], kind="two_given")
        explanation = await explained(world, tx.tx_id)

    assert explanation.legs is not None
    assert [leg.role for leg in explanation.legs] == ["given", "given", "received"]
    assert "given: 5000 of" in shown(explanation)


@pytest.mark.parametrize("code", [None, *MEANINGS])
def test_every_verdict_is_shown_in_the_words_of_the_api(code: Code | None) -> None:
    """A line per step with its mark, then the sentence."""
    step = ExplainStep("sender", code is None, "[bold]so\x1b", code and str(code))
    status: Any = "verified" if code is None else "rejected"
    words = None if code is None else MEANINGS[code].sentence
    lines = shown(TradeVerdict("0x", status, "record", "r", [step], code and str(code), words))

    expected = "Verified: r." if code is None else f"Rejected ({code}): {words}"
    assert lines == f"{'✓' if code is None else '✗'} sender [bold]so? {expected}"


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
