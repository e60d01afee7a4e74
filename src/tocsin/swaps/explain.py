"""Explains the verifier's verdict on a transaction step by step. Pure; stores nothing.

The steps are the verifier's own checks in its own order. All of them are shown, including those after the decisive
one, so anyone who fixes one problem sees the others.
"""

from typing import Literal

from holdfast.types import Row
from tocsin.stacks import Transaction
from tocsin.swaps.codes import Code
from tocsin.swaps.rules import Check, Rules, Tier, checks
from tocsin.swaps.swap import Moves, NoSwap, Swap, legs_of, recorded_legs, shown_legs, swap_of
from tocsin.swaps.types import ExplainStep, Explanation, Leg, SwapAmounts
from tocsin.swaps.values import stored_excess


def explain(transaction: Transaction, moves: Moves | None, tier: Tier, rules: Rules) -> Explanation:
    """Explain a transaction. `moves` are the changes to its sender's balance, None if unknown."""
    steps = list(checks(transaction, tier, rules))
    swap = None if moves is None else swap_of(moves)
    legs = None if moves is None else legs_of(moves)
    if swap is not None and legs is not None and steps[0].code is None:
        steps.append(_tokens(swap, legs))
    elif all(check.code is None for check in steps):
        steps.append(Check("tokens", "Hiro does not show its tokens yet", Code.PENDING))
    return _explanation(_first_failed(steps), _shown(transaction, steps), swap, legs)


def explain_stored_swap(transaction: Transaction, row: Row, tier: Tier, rules: Rules) -> Explanation:
    """Explain a recorded swap from its record, with every check."""
    steps = [*checks(transaction, tier, rules), _record(row)]
    swap = Swap(row["token_in"], int(row["amount_in"]), row["token_out"], int(row["amount_out"]))
    return _explanation(_first_failed(steps), _shown(transaction, steps), swap, recorded_legs(row))


def explain_refusal(transaction: Transaction, refusal: Check, tier: Tier, rules: Rules) -> Explanation:
    """Explain a stored refusal: the checks that can be repeated, and the one that it failed."""
    steps = list(checks(transaction, tier, rules))
    refused = next((check for check in steps if check.code is refusal.code), None)
    if refused is None:
        steps = [check for check in steps if check.name != refusal.name]
        steps.insert(0 if refusal.name == "status" else len(steps), refusal)
    return _explanation(refused or refusal, _shown(transaction, steps))


def explain_check(check: Check) -> Explanation:
    return _explanation(check, [_step(check)])


def _record(row: Row) -> Check:
    """Return a step that shows a row of `swaps`."""
    legs = recorded_legs(row)
    shown = (
        f"{row['amount_in']} of {row['token_in']} for {row['amount_out']} of {row['token_out']}; an older release"
        " recorded it, without its legs"
        if legs is None
        else shown_legs(legs)
    )
    excess = stored_excess(row["excess_json"])
    without_value = "" if excess is None else f"; it has no value: at the prices of its time, {excess}"
    return Check("record", f"recorded in block {row['block_height']}: {shown}{without_value}")


def _explanation(
    verdict: Check, steps: list[ExplainStep], swap: Swap | NoSwap | None = None, legs: list[Leg] | None = None
) -> Explanation:
    """Build the explanation. It shows the swap whenever the tokens make one, even if another check failed."""
    status: Literal["verified", "pending", "rejected"] = "verified"
    if verdict.code is not None:
        status = "pending" if verdict.code is Code.PENDING else "rejected"
    return Explanation(
        status=status,
        code=None if verdict.code is None else str(verdict.code),
        reason=verdict.detail,
        steps=steps,
        swap=_amounts(swap) if isinstance(swap, Swap) else None,
        legs=legs,
    )


def _first_failed(steps: list[Check]) -> Check:
    """Return the decisive step: the first that failed, else the last."""
    return next((check for check in steps if check.code is not None), steps[-1])


def _shown(transaction: Transaction, steps: list[Check]) -> list[ExplainStep]:
    head = Check("transaction", f"{transaction.tx_id}, sent by {transaction.sender}")
    return [_step(check) for check in (head, *steps)]


def _amounts(swap: Swap) -> SwapAmounts:
    return SwapAmounts(swap.token_in, str(swap.amount_in), swap.token_out, str(swap.amount_out))


def _tokens(swap: Swap | NoSwap, legs: list[Leg]) -> Check:
    if isinstance(swap, NoSwap):
        return Check("tokens", swap.reason, Code(swap.code))
    return Check("tokens", shown_legs(legs))


def _step(check: Check) -> ExplainStep:
    return ExplainStep(check.name, check.code is None, check.detail, None if check.code is None else str(check.code))
