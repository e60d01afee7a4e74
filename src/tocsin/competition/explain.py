"""What the verifier makes of a transaction, step by step. Pure, and nothing is stored.

The steps are the verifier's own checks in its own order. All of them are shown, including those after the one that
decided, so that somebody who fixes one thing sees what else is missing.
"""

from typing import Literal

from tocsin.chain_model import Transaction
from tocsin.competition.codes import Code
from tocsin.competition.eligibility import Tier
from tocsin.competition.rules import Check, Rules, checks
from tocsin.competition.swap import Net, NoSwap, Swap, swap_of
from tocsin.shapes.competition import ExplainStep, Explanation, SwapAmounts


def explain(
    transaction: Transaction,
    net: Net | None,
    tier: Tier,
    rules: Rules,
    *,
    sender_note: str = "",
    unusable: str | None = None,
) -> Explanation:
    """Explain a transaction.

    `net` is what it did to its sender, None where that is not known. `sender_note` says where the tier comes from, if
    that needs saying; `unusable` names an amount that is not a number.
    """
    steps = list(checks(transaction, tier, rules))
    swap = None if net is None else swap_of(net)
    if swap is not None and steps[0].code is None:
        steps.append(_tokens(swap))
    elif unusable is not None:
        steps.append(Check("tokens", unusable, Code.INVALID_AMOUNT))
    elif all(check.code is None for check in steps):
        steps.append(Check("tokens", "Hiro does not show its tokens yet", Code.PENDING))
    head = Check("transaction", f"{transaction.tx_id}, sent by {transaction.sender}")
    shown = [_step(check, sender_note if check.name == "sender" else "") for check in (head, *steps)]
    verdict = next((check for check in steps if check.code is not None), steps[-1])
    return _explanation(verdict, shown, swap)


def explain_not_found(tx_id: str) -> Explanation:
    """Explain a transaction that Hiro does not know."""
    check = Check("transaction", "Hiro does not know it", Code.TX_NOT_FOUND)
    return _explanation(check, [_step(check, tx_id)])


def _explanation(verdict: Check, steps: list[ExplainStep], swap: Swap | NoSwap | None = None) -> Explanation:
    """The swap is shown whenever the tokens make one, even when another check failed."""
    status: Literal["verified", "pending", "rejected"] = "verified"
    if verdict.code is not None:
        status = "pending" if verdict.code is Code.PENDING else "rejected"
    return Explanation(
        status=status,
        code=None if verdict.code is None else str(verdict.code),
        reason=verdict.detail,
        steps=steps,
        swap=_amounts(swap) if isinstance(swap, Swap) else None,
    )


def _amounts(swap: Swap) -> SwapAmounts:
    return SwapAmounts(swap.token_in, str(swap.amount_in), swap.token_out, str(swap.amount_out))


def _tokens(swap: Swap | NoSwap) -> Check:
    if isinstance(swap, NoSwap):
        return Check("tokens", swap.reason, Code(swap.code))
    given, gotten = f"{swap.amount_in} of {swap.token_in}", f"{swap.amount_out} of {swap.token_out}"
    return Check("tokens", f"the sender gave {given} and got {gotten}")


def _step(check: Check, note: str) -> ExplainStep:
    detail = f"{check.detail} ({note})" if note else check.detail
    return ExplainStep(
        check.name, check.code is None, detail, None if check.code is None else str(check.code)
    )
