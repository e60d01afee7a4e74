"""What routes of more than a hundred events did to their senders, with as few calls as possible.

All their events tell. A call reads the next hundred of up to twenty routes, so the longest of them decides how many
calls it takes. Balance changes tell, too, unless they may include a fee in a third token. A call has those of up to
twenty routes, but of one sender.

What is a fee can often be told without reading all events: if the first and the last hundred show as much of an asset
leave the sender as its balance changes do, they show everybody who received it. The balance changes of these tell
whether they gave anything.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tocsin.budget.call_session import CallSession
from tocsin.chain_model import TransactionWithEvents, TransferEvent
from tocsin.competition.swap import (
    Moves,
    Net,
    gives_several,
    may_have_fees,
    moves_of_events,
    net_of_changes,
    net_of_events,
    possible_fees,
    sent_of_changes,
)
from tocsin.upstream.answer import Malformed, Ok, value_or_raise
from tocsin.upstream.hiro import EVENTS_MAX, EVENTS_PAGE, HiroClient

PROOF_CALLS = 2  # for the last events of a route, and for one who received a fee


async def moves_of_long_routes(
    hiro: HiroClient, session: CallSession, routes: Sequence[TransactionWithEvents]
) -> dict[str, Moves | None]:
    """By transaction; None where Hiro cannot say now. Raises `NoAnswer`."""
    moved: dict[str, Moves | None] = {}
    first = to_read_first(routes)
    if first:
        answer = await hiro.all_events(first, session)
        # Of those that cannot be read, balance changes may still tell.
        moved |= _moves({} if isinstance(answer, Malformed) else value_or_raise(answer) or {}, first)
    senders: dict[str, list[TransactionWithEvents]] = {}
    for route in routes:
        if route.transaction.tx_id not in moved:
            senders.setdefault(route.transaction.sender, []).append(route)
    unclear: list[TransactionWithEvents] = []
    with_fees: list[_MayHaveFees] = []
    for sender, own in senders.items():
        txids = [route.transaction.tx_id for route in own]
        changes = value_or_raise(await hiro.balance_changes(sender, txids, session)) or ()
        for route in own:
            transaction = route.transaction
            net = net_of_changes(transaction, changes)
            moved[transaction.tx_id] = None if net is None else Moves(net)
            if net is None:
                unclear.append(route)
            elif may_have_fees(net) and (transaction.event_count or 0) <= EVENTS_MAX:
                with_fees.append(_MayHaveFees(route, net, sent_of_changes(transaction, changes, net)))
    proven = await _by_receivers(hiro, session, with_fees)
    unclear += [each.route for each in with_fees if each.route.transaction.tx_id not in proven]
    moved |= proven | dict.fromkeys((route.transaction.tx_id for route in unclear), None)
    if unclear:
        moved |= _moves(value_or_raise(await hiro.all_events(unclear, session)) or {}, unclear)
    return moved


@dataclass(frozen=True, slots=True)
class _MayHaveFees:
    """A route that gave several assets for one, and how much it sent of each of them."""

    route: TransactionWithEvents
    net: Net
    sent: Mapping[str, int]


async def _by_receivers(
    hiro: HiroClient, session: CallSession, questions: Sequence[_MayHaveFees]
) -> dict[str, Moves]:
    """What those routes moved whose fees can be told with fewer calls than it takes to read all events."""
    pages = max((_pages_left(each.route) or 0 for each in questions), default=0)
    if pages <= PROOF_CALLS * len(questions):
        return {}
    told = {}
    for each in questions:
        fees = await _fees_by_receivers(hiro, session, each)
        if fees is not None:
            told[each.route.transaction.tx_id] = Moves(each.net, fees)
    return told


async def _fees_by_receivers(
    hiro: HiroClient, session: CallSession, question: _MayHaveFees
) -> frozenset[str] | None:
    """The fees, if everybody who received one gave nothing; None if that is not certain."""
    route, pages = question.route, _pages_left(question.route)
    if route.page is None or pages is None or pages < 2:  # the last page must not overlap the first
        return None
    sender, events = route.transaction.sender, route.page.transfers
    possible = possible_fees(sender, events, question.sent)
    if possible is None:
        last = await hiro.last_events(route, session)
        possible = None if last is None else possible_fees(sender, events + last, question.sent)
    if possible is None:
        return None
    receivers: set[str] = set().union(*possible.values())
    if len(receivers) >= pages:
        return None
    for receiver in sorted(receivers):
        answer = await hiro.balance_changes(receiver, [route.transaction.tx_id], session)
        changes = answer.value if isinstance(answer, Ok) else ()
        received = {change.asset for change in changes if change.received}
        paid = {asset for asset in possible if receiver in possible[asset]}
        if not paid <= received or any(change.sent for change in changes):
            return None
    return frozenset(possible)


def to_read_first(routes: Sequence[TransactionWithEvents]) -> list[TransactionWithEvents]:
    """The routes whose events to read without asking for balance changes: all up to the length that costs fewest calls.

    At the same cost the longer ones are read, too, because events leave no question open.
    """
    pages = {route.transaction.tx_id: left for route in routes if (left := _pages_left(route))}

    def calls(length: int) -> int:
        others = [route for route in routes if pages.get(route.transaction.tx_id, length + 1) > length]
        later = [pages.get(route.transaction.tx_id, 0) for route in others if _seems_to_pay_fees(route)]
        senders = len({route.transaction.sender for route in others})
        return length + senders + min(max(later, default=0), PROOF_CALLS * len(later))

    longest = min(sorted({0, *pages.values()}, reverse=True), key=calls)
    return [route for route in routes if pages.get(route.transaction.tx_id, longest + 1) <= longest]


def _pages_left(route: TransactionWithEvents) -> int | None:
    """How many pages of events are still to be read; None where the first is not known, or there are too many."""
    count = route.transaction.event_count
    if route.page is None or route.page.stop != EVENTS_PAGE or count is None or count > EVENTS_MAX:
        return None
    return max(1, -(-count // EVENTS_PAGE) - 1)


def _seems_to_pay_fees(route: TransactionWithEvents) -> bool:
    """By the events that are known: if so, balance changes will probably not do."""
    return route.page is not None and gives_several(
        net_of_events(route.transaction.sender, route.page.transfers)
    )


def _moves(
    events: Mapping[str, tuple[TransferEvent, ...] | None], routes: Sequence[TransactionWithEvents]
) -> dict[str, Moves | None]:
    """From all events of those routes of which they are known; None where a route was reorged meanwhile."""
    moved: dict[str, Moves | None] = {}
    for transaction in (route.transaction for route in routes if route.transaction.tx_id in events):
        known = events[transaction.tx_id]
        moved[transaction.tx_id] = None if known is None else moves_of_events(transaction.sender, known)
    return moved
