"""Decides what a transaction did to its sender, and whether that is a swap. Pure; uses only integers.

All movements are added up per asset, over every transfer, mint and burn. A token that only passes through the wallet
cancels out, hundreds of bins become two sums, and refunds and fees in the same token are included. If the sender has
less of exactly one asset and more of exactly one, it is a swap. The transaction's own fee is not part of it.

If the sender has less of several assets, it is still a swap when all but one of them are fees. A receiver of a fee
gives nothing: an asset is a fee if nobody who received it from the sender sends a token to anybody in the whole
transaction.

A recorded swap keeps its legs (what the sender gave, got, and paid as fees) in the form of the site's
`raw_event_json`, so a dispute can be settled without asking Hiro. Amounts are net and exact, as strings.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from holdfast.types import Row
from tocsin.stacks import STX, BalanceChange, Transaction, TransferEvent, is_principal
from tocsin.swaps.types import Leg

AMOUNT_MAX = 10**40 - 1  # the table's limit; the chain's largest single integer has 39 digits

Net: TypeAlias = Mapping[str, int]  # by asset, without those that add up to zero


@dataclass(frozen=True, slots=True)
class Moves:
    """The changes of the sender's balance, and which of the given assets are fees."""

    net: Net
    fees: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Swap:
    """What the sender gave and what it got; `fees` are the fee legs by asset."""

    token_in: str
    amount_in: int
    token_out: str
    amount_out: int
    fees: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NoSwap:
    """Why a call is not a swap, and what moved instead."""

    code: Literal["incomplete_events", "invalid_amount"]
    reason: str
    net: Net


def moves_of_events(sender: str, events: Sequence[TransferEvent]) -> Moves:
    """Return what all events of a transaction did to its sender."""
    net = net_of_events(sender, events)
    return Moves(net, _fees(sender, events, _given(net)) if may_have_fees(net) else frozenset())


def net_of_events(sender: str, events: Iterable[TransferEvent]) -> Net:
    """Return the sender's change per asset, from all events of a transaction. A transfer to itself is zero."""
    net: dict[str, int] = {}
    for event in events:
        sign = (event.recipient == sender) - (event.sender == sender)
        if sign:
            assert event.amount is not None, "an event of the sender has its amount"
            net[event.asset] = net.get(event.asset, 0) + sign * event.amount
    return _moved(net)


def net_of_changes(transaction: Transaction, changes: Iterable[BalanceChange]) -> Net | None:
    """Return the same from the sender's balance changes, whose STX includes the fee if the sender paid it.

    None if they cannot belong to this transaction: the fee is missing, so the transaction left the chain or is not
    indexed yet. For a sponsored transaction, no change at all means the same.
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


def may_have_fees(net: Net) -> bool:
    """Return whether the events must decide: several assets were given, and one was received."""
    return len(_given(net)) > 1 and len(_received(net)) == 1


def swap_of(moves: Moves) -> Swap | NoSwap:
    net = moves.net
    given = [asset for asset in _given(net) if asset not in moves.fees]
    received = _received(net)
    if len(given) != 1 or len(received) != 1:
        return NoSwap("incomplete_events", _why_none(net, moves.fees), net)
    if max(map(abs, net.values())) > AMOUNT_MAX:
        return NoSwap("invalid_amount", "an amount has more than 40 digits", net)
    fees = {asset: -net[asset] for asset in sorted(moves.fees)}
    return Swap(given[0], -net[given[0]], received[0], net[received[0]], fees)


def provider_of(argument: str | None) -> str | None:
    """Return the principal in an argument of type `principal` or `(optional principal)`, as Clarity prints it."""
    printed = argument or ""
    if printed.startswith("(some ") and printed.endswith(")"):
        printed = printed[len("(some ") : -1]
    name = printed.removeprefix("'")
    return name if is_principal(name) else None


def _fees(sender: str, events: Sequence[TransferEvent], given: Iterable[str]) -> frozenset[str]:
    """Return the assets that went only to principals who gave nothing. A burned asset is not a fee: nobody got it.

    An unreadable amount between other principals counts as given.
    """
    moves = [event for event in events if event.sender != event.recipient and event.amount != 0]
    givers = {event.sender for event in moves if event.recipient is not None}
    fees = set()
    for asset in given:
        paid = {event.recipient for event in moves if event.asset == asset and event.sender == sender}
        if None not in paid and not paid & givers:
            fees.add(asset)
    return frozenset(fees)


def _given(net: Net) -> list[str]:
    return [asset for asset, change in net.items() if change < 0]


def _received(net: Net) -> list[str]:
    return [asset for asset, change in net.items() if change > 0]


def _moved(net: Net) -> Net:
    return {asset: change for asset, change in net.items() if change != 0}


def _why_none(net: Net, fees: frozenset[str]) -> str:
    given, received = len(_given(net)), len(_received(net))
    if given == received == 0:
        return "no token changed hands for the sender"
    if received == 0:
        return f"the sender gave {_count(given)} and got nothing"
    if given == 0:
        return f"the sender got {_count(received)} and gave nothing"
    shown = f"the sender gave {_count(given)} and got {_count(received)}"
    if fees and len(fees) == given:
        return f"{shown}, and nobody who received one gave anything: it is unclear which one was swapped"
    return f"{shown}: a swap has one of each, besides fees"


def _count(tokens: int) -> str:
    return "one token" if tokens == 1 else f"{tokens} tokens"


def legs_of(moves: Moves) -> list[Leg]:
    """Return a leg for every asset that moved: given, then fees, then received. Only a swap has fees."""
    fees = moves.fees if isinstance(swap_of(moves), Swap) else frozenset()
    legs = [
        Leg(asset, str(abs(change)), "received" if change > 0 else "fee" if asset in fees else "given")
        for asset, change in moves.net.items()
    ]
    return sorted(legs, key=lambda leg: (("given", "fee", "received").index(leg.role), leg.token))


def stored_legs(swap: Swap, provider: str | None) -> str:
    """Encode the legs of a swap for its row."""
    given = {"asset_id": swap.token_in, "amount": str(swap.amount_in)}
    fees = [{"asset_id": asset, "amount": str(amount), "fee": True} for asset, amount in swap.fees.items()]
    got = {"asset_id": swap.token_out, "amount": str(swap.amount_out)}
    referred = {} if provider is None else {"provider": provider}
    return json.dumps({"legsOut": [given, *fees], "legsIn": [got], **referred}, separators=(",", ":"))


def recorded_legs(row: Row) -> list[Leg]:
    """Return the legs of a row of `swaps`."""
    kept = json.loads(row["raw_event_json"])
    out = [Leg(leg["asset_id"], leg["amount"], "fee" if leg.get("fee") else "given") for leg in kept["legsOut"]]
    return [*out, *(Leg(leg["asset_id"], leg["amount"], "received") for leg in kept["legsIn"])]


def shown_legs(legs: list[Leg]) -> str:
    """Describe legs in a sentence: the sender gave 5 of A and, as a fee, 1 of C, and got 7 of B."""
    parts = {
        role: [f"{leg.amount} of {leg.token}" for leg in legs if leg.role == role]
        for role in ("given", "fee", "received")
    }
    fees = f" and, as a fee, {' and '.join(parts['fee'])}," if parts["fee"] else ""
    return f"the sender gave {' and '.join(parts['given'])}{fees} and got {' and '.join(parts['received'])}"
