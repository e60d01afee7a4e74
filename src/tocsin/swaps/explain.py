"""Explains whether a transaction counts, step by step. Stores nothing.

The steps are the verifier's own checks in its own order. All of them are shown, including those after the decisive
one, so anyone who fixes one problem sees the others.
"""

from dataclasses import replace
from typing import Literal

from holdfast.types import Database, Row
from tocsin.stacks import Transaction
from tocsin.swaps import store, trades
from tocsin.swaps.rules import MEANINGS, Check, Code, Rules, Tier, checks, still_refused, tier_of
from tocsin.swaps.swap import Moves, NoSwap, Swap, legs_of, recorded_legs, shown_legs, swap_of
from tocsin.swaps.types import ExplainStep, KnownFrom, SwapAmounts, TradeVerdict
from tocsin.swaps.values import stored_excess

QUEUED = "it is queued, and will be verified by the next run that can afford it"
STEP_OF = {
    Code.TX_FAILED: "status",
    Code.MALFORMED_TX: "kind",
}  # the other codes are derived again, or concern the tokens


async def known_verdict(db: Database, txid: str, rules: Rules) -> TradeVerdict | None:
    """Return the verdict without asking the chain; None if only the chain has the answer."""
    swap = await trades.find_swap(db, txid)
    if swap is not None:
        return explain_stored_swap(store.stored_transaction(swap), swap, await tier_of(db, swap["sender"]), rules)
    refusal = await trades.find_refusal(db, txid)
    if refusal is not None:
        tier = await tier_of(db, refusal["sender"])
        if still_refused(refusal, tier, rules):
            check = Check(STEP_OF.get(Code(refusal["code"]), "tokens"), refusal["reason"], Code(refusal["code"]))
            return explain_refusal(store.stored_transaction(refusal), check, tier, rules)
    if refusal is not None or await store.queued(db, [txid]):
        return _verdict(txid, "queue", [Check("queue", QUEUED, Code.PENDING)])
    return None


def explain(transaction: Transaction, moves: Moves | None, tier: Tier, rules: Rules) -> TradeVerdict:
    """Explain a transaction from the chain. `moves` are the changes to its sender's balance, None if unknown."""
    steps = list(checks(transaction, tier, rules))
    swap = None if moves is None else swap_of(moves)
    legs = None if moves is None else legs_of(moves)
    if swap is not None and legs is not None and steps[0].code is None:
        missed = Check("tokens", swap.reason, Code(swap.code)) if isinstance(swap, NoSwap) else None
        steps.append(missed or Check("tokens", shown_legs(legs)))
    elif all(check.code is None for check in steps):
        steps.append(Check("tokens", "Hiro does not show its tokens yet", Code.PENDING))
    shown = _verdict(transaction.tx_id, "chain", steps, transaction.sender)
    if isinstance(swap, Swap):
        amounts = SwapAmounts(swap.token_in, str(swap.amount_in), swap.token_out, str(swap.amount_out))
        return replace(shown, swap=amounts, legs=legs)
    return replace(shown, legs=legs)


def explain_stored_swap(transaction: Transaction, row: Row, tier: Tier, rules: Rules) -> TradeVerdict:
    """Explain a recorded swap from its record, with every check."""
    legs = recorded_legs(row)
    excess = stored_excess(row["excess_json"])
    without_value = "" if excess is None else f"; it has no value: at the prices of its time, {excess}"
    block = Check("record", f"recorded in block {row['block_height']}: {shown_legs(legs)}{without_value}")
    steps = [*checks(transaction, tier, rules), block]
    amounts = SwapAmounts(row["token_in"], row["amount_in"], row["token_out"], row["amount_out"])
    shown = _verdict(row["txid"], "record", steps, row["sender"])
    return replace(shown, swap=amounts, legs=legs, trade=trades.trade_of(row))


def explain_refusal(transaction: Transaction, refusal: Check, tier: Tier, rules: Rules) -> TradeVerdict:
    """Explain a stored refusal: the checks that can be repeated, and the one that it failed."""
    steps = list(checks(transaction, tier, rules))
    refused = next((check for check in steps if check.code is refusal.code), None)
    if refused is None:
        steps = [check for check in steps if check.name != refusal.name]
        steps.insert(0 if refusal.name == "status" else len(steps), refusal)
    return _verdict(transaction.tx_id, "refusal", steps, transaction.sender, refused or refusal)


def _verdict(
    txid: str, known_from: KnownFrom, steps: list[Check], sender: str | None = None, decisive: Check | None = None
) -> TradeVerdict:
    """Return the verdict of these steps. The first that failed is decisive, else the last, unless another is given."""
    decisive = decisive or next((check for check in steps if check.code is not None), steps[-1])
    if sender is not None:
        steps = [Check("transaction", f"{txid}, sent by {sender}"), *steps]
    code = decisive.code
    status: Literal["verified", "pending", "rejected"] = "verified"
    if code is not None:
        status = "pending" if code is Code.PENDING else "rejected"
    return TradeVerdict(
        txid=txid,
        status=status,
        known_from=known_from,
        reason=decisive.detail,
        steps=[ExplainStep(each.name, each.code is None, each.detail, each.code and str(each.code)) for each in steps],
        code=code and str(code),
        sentence=code and MEANINGS[code].sentence,
    )
