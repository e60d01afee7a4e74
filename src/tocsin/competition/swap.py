"""What a transaction did to its sender, and whether that is a swap. Pure, and in integers only.

All movements are added up per asset, over every transfer, mint and burn: a token that only passes through the wallet
cancels out, hundreds of bins become two sums, refunds and fees in the same token are included. Exactly one asset less
and one more is a swap. The transaction's own fee is not part of it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from tocsin.chain_model import STX, BalanceChange, Transaction, TransferEvent
from tocsin.stacks_address import is_principal

AMOUNT_MAX = 10**40 - 1  # what the table holds; the chain's largest single integer has 39 digits

Net: TypeAlias = Mapping[str, int]  # by asset, without those that add up to zero


@dataclass(frozen=True, slots=True)
class Swap:
    """What the sender gave and what it got."""

    token_in: str
    amount_in: int
    token_out: str
    amount_out: int


@dataclass(frozen=True, slots=True)
class NoSwap:
    """Why a call is not a swap, and what moved instead."""

    code: Literal["incomplete_events", "invalid_amount"]
    reason: str
    net: Net


def net_of_events(sender: str, events: Iterable[TransferEvent]) -> Net:
    """The sender's change per asset, from all events of a transaction. A transfer to itself is zero."""
    net: dict[str, int] = {}
    for event in events:
        change = event.amount * ((event.recipient == sender) - (event.sender == sender))
        net[event.asset] = net.get(event.asset, 0) + change
    return _moved(net)


def net_of_changes(transaction: Transaction, changes: Iterable[BalanceChange]) -> Net | None:
    """The same from the sender's balance changes, whose STX includes the fee if the sender paid it.

    None when they cannot belong to this transaction: the fee is missing, so it left the chain or is not indexed yet.
    For a sponsored transaction, no change at all means the same.
    """
    net: dict[str, int] = {}
    paid = 0
    for change in changes:
        if change.tx_id != transaction.tx_id:
            continue
        net[change.asset] = change.net
        if change.asset == STX:
            paid = change.sent
    if not net:
        return None
    if not transaction.sponsored:
        if paid < transaction.fee:
            return None
        net[STX] = net.get(STX, 0) + transaction.fee
    return _moved(net)


def swap_of(net: Net) -> Swap | NoSwap:
    given = [asset for asset, change in net.items() if change < 0]
    gotten = [asset for asset, change in net.items() if change > 0]
    if len(given) != 1 or len(gotten) != 1:
        return NoSwap("incomplete_events", _why_none(len(given), len(gotten)), net)
    swap = Swap(given[0], -net[given[0]], gotten[0], net[gotten[0]])
    if max(swap.amount_in, swap.amount_out) > AMOUNT_MAX:
        return NoSwap("invalid_amount", "an amount has more than 40 digits", net)
    return swap


def provider_of(argument: str | None) -> str | None:
    """Who is named by an argument of type `principal` or `(optional principal)`, as Clarity prints it."""
    printed = argument or ""
    if printed.startswith("(some ") and printed.endswith(")"):
        printed = printed[len("(some ") : -1]
    name = printed.removeprefix("'")
    return name if is_principal(name) else None


def _moved(net: Net) -> Net:
    return {asset: change for asset, change in net.items() if change != 0}


def _why_none(given: int, gotten: int) -> str:
    if given == gotten == 0:
        return "no token changed hands for the sender"
    if gotten == 0:
        return f"the sender gave {_count(given)} and got nothing"
    if given == 0:
        return f"the sender got {_count(gotten)} and gave nothing"
    return f"the sender gave {_count(given)} and got {_count(gotten)}: a swap has one of each"


def _count(tokens: int) -> str:
    return "one token" if tokens == 1 else f"{tokens} tokens"
