"""What the verifier makes of a transaction, step by step. Pure, and nothing is stored.

The steps are the verifier's own checks in its own order. All of them are shown, including those after the one that
decided, so that somebody who fixes one thing sees what else is missing.
"""

from dataclasses import replace
from typing import Literal

from tocsin.bindings import Row
from tocsin.chain_model import Transaction
from tocsin.competition.codes import Code
from tocsin.competition.eligibility import Tier
from tocsin.competition.legs import legs_of, recorded_legs, shown_legs
from tocsin.competition.rules import Check, Rules, checks
from tocsin.competition.swap import Moves, NoSwap, Swap, swap_of
from tocsin.shapes.competition import ExplainStep, Explanation, Leg, SwapAmounts


def explain(
    transaction: Transaction,
    moves: Moves | None,
    tier: Tier,
    rules: Rules,
    *,
    sender_note: str = "",
    unusable: Check | None = None,
) -> Explanation:
    """Explain a transaction.

    `moves` are what it did to its sender, None where that is not known. `sender_note` says where the tier comes from,
    if that needs saying; `unusable` says why its tokens cannot be judged.
    """
    steps = list(checks(transaction, tier, rules))
    swap = None if moves is None else swap_of(moves)
    legs = None if moves is None else legs_of(moves)
    if swap is not None and legs is not None and steps[0].code is None:
        steps.append(_tokens(swap, legs))
    elif unusable is not None:
        steps.append(unusable)
    elif all(check.code is None for check in steps):
        steps.append(Check("tokens", "Hiro does not show its tokens yet", Code.PENDING))
    shown = _shown(transaction, steps, sender_note)
    return _explanation(_first_failed(steps), shown, swap, legs)


def explain_not_found(tx_id: str) -> Explanation:
    """Explain a transaction that Hiro does not know."""
    check = Check("transaction", "Hiro does not know it", Code.TX_NOT_FOUND)
    return _explanation(check, [_step(check, tx_id)])


def without_verdict(explanation: Explanation) -> Explanation:
    """The same, where the tokens cannot be judged: its code says what is missing."""
    return replace(explanation, status="unknown")


def with_record(explanation: Explanation, row: Row) -> Explanation:
    """The same with what is on record: a row of `swaps`."""
    return replace(explanation, steps=[*explanation.steps, _step(_record(row), "")])


def explain_record(row: Row, note: str) -> Explanation:
    """Explain a recorded swap by its record alone; `note` says why."""
    check = _record(row)
    swap = Swap(row["token_in"], int(row["amount_in"]), row["token_out"], int(row["amount_out"]))
    return _explanation(check, [_step(check, note)], swap, recorded_legs(row))


def explain_stored_swap(transaction: Transaction, row: Row, tier: Tier, rules: Rules) -> Explanation:
    """Explain a recorded swap by its record, with every check."""
    steps = [*checks(transaction, tier, rules), _record(row)]
    swap = Swap(row["token_in"], int(row["amount_in"]), row["token_out"], int(row["amount_out"]))
    return _explanation(_first_failed(steps), _shown(transaction, steps), swap, recorded_legs(row))


def explain_refusal(transaction: Transaction, refusal: Check, tier: Tier, rules: Rules) -> Explanation:
    """Explain a stored refusal: the checks that can be made again, and the one that it was refused for."""
    steps = list(checks(transaction, tier, rules))
    refused = next((check for check in steps if check.code is refusal.code), None)
    if refused is None:
        steps = [check for check in steps if check.name != refusal.name]
        steps.insert(0 if refusal.name == "status" else len(steps), refusal)
    return _explanation(refused or refusal, _shown(transaction, steps))


def explain_check(check: Check) -> Explanation:
    """Explain what is known by one step alone."""
    return _explanation(check, [_step(check, "")])


def _record(row: Row) -> Check:
    """What a row of `swaps` says, and that it says so."""
    legs = recorded_legs(row)
    shown = (
        f"{row['amount_in']} of {row['token_in']} for {row['amount_out']} of {row['token_out']}; an older release"
        " recorded it, without its legs"
        if legs is None
        else shown_legs(legs)
    )
    return Check("record", f"recorded in block {row['block_height']}: {shown}")


def _explanation(
    verdict: Check,
    steps: list[ExplainStep],
    swap: Swap | NoSwap | None = None,
    legs: list[Leg] | None = None,
) -> Explanation:
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
        legs=legs,
    )


def _first_failed(steps: list[Check]) -> Check:
    """What decides: the first step that failed, else the last one."""
    return next((check for check in steps if check.code is not None), steps[-1])


def _shown(transaction: Transaction, steps: list[Check], sender_note: str = "") -> list[ExplainStep]:
    head = Check("transaction", f"{transaction.tx_id}, sent by {transaction.sender}")
    return [_step(check, sender_note if check.name == "sender" else "") for check in (head, *steps)]


def _amounts(swap: Swap) -> SwapAmounts:
    return SwapAmounts(swap.token_in, str(swap.amount_in), swap.token_out, str(swap.amount_out))


def _tokens(swap: Swap | NoSwap, legs: list[Leg]) -> Check:
    if isinstance(swap, NoSwap):
        return Check("tokens", swap.reason, Code(swap.code))
    return Check("tokens", shown_legs(legs))


def _step(check: Check, note: str) -> ExplainStep:
    detail = f"{check.detail} ({note})" if note else check.detail
    return ExplainStep(
        check.name, check.code is None, detail, None if check.code is None else str(check.code)
    )
