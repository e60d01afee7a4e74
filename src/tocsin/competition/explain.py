"""What the verifier makes of a transaction, step by step. Pure, and nothing is kept.

The steps are the verifier's own checks in its own order. All are told, also those after the one that decided,
so that somebody who mends one thing knows what else is missing.
"""

from tocsin.bindings import JSON
from tocsin.chain_model import Transaction
from tocsin.competition.codes import Code
from tocsin.competition.eligibility import Tier
from tocsin.competition.rules import Check, Rules, checks
from tocsin.competition.swap import Net, NoSwap, Swap, swap_of


def explain(
    transaction: Transaction,
    net: Net | None,
    tier: Tier,
    rules: Rules,
    *,
    sender_note: str = "",
    unusable: str | None = None,
) -> JSON:
    """The verdict as `tocsin explain --json` tells it.

    `net` is what the transaction did to its sender, None where that is not known. `sender_note` says where
    the tier comes from, if that must be said; `unusable` names an amount that is no number.
    """
    found = list(checks(transaction, tier, rules))
    swap = None if net is None else swap_of(net)
    if swap is not None and found[0].code is None:
        found.append(_tokens(swap))
    elif unusable is not None:
        found.append(Check("tokens", unusable, Code.INVALID_AMOUNT))
    elif all(check.code is None for check in found):
        found.append(Check("tokens", "Hiro does not show its tokens yet", Code.PENDING))
    head = Check("transaction", f"{transaction.tx_id}, sent by {transaction.sender}")
    steps = [_step(check, sender_note if check.name == "sender" else "") for check in (head, *found)]
    verdict = next((check for check in found if check.code is not None), found[-1])
    return _told(verdict, steps, swap)


def explain_absent(tx_id: str) -> JSON:
    """The verdict on a transaction that Hiro does not know."""
    check = Check("transaction", "Hiro does not know it", Code.TX_NOT_FOUND)
    return _told(check, [_step(check, f"{tx_id}")])


def _told(verdict: Check, steps: list[JSON], swap: Swap | NoSwap | None = None) -> JSON:
    """The swap is told whenever the tokens make one, also when something else speaks against it."""
    status = "pending" if verdict.code is Code.PENDING else "rejected" if verdict.code else "verified"
    return {
        "status": status,
        "code": verdict.code and str(verdict.code),
        "reason": verdict.said,
        "steps": steps,
        "swap": _amounts(swap) if isinstance(swap, Swap) else None,
    }


def _amounts(swap: Swap) -> JSON:
    return {
        "token_in": swap.token_in,
        "amount_in": str(swap.amount_in),
        "token_out": swap.token_out,
        "amount_out": str(swap.amount_out),
    }


def _tokens(swap: Swap | NoSwap) -> Check:
    if isinstance(swap, NoSwap):
        return Check("tokens", swap.reason, Code(swap.code))
    given, gotten = f"{swap.amount_in} of {swap.token_in}", f"{swap.amount_out} of {swap.token_out}"
    return Check("tokens", f"the sender gave {given} and got {gotten}")


def _step(check: Check, note: str) -> JSON:
    said = f"{check.said} ({note})" if note else check.said
    step: dict[str, JSON] = {"name": check.name, "ok": check.code is None, "said": said}
    return step if check.code is None else {**step, "code": str(check.code)}
