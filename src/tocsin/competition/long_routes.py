"""Finds what routes of more than a hundred events did to their senders, with as few calls as possible.

Reading all their events always gives the answer. A call reads the next hundred events of up to twenty routes, so the
longest route decides how many calls it takes. Balance changes also give the answer, unless they may include a fee in a
third token. A call returns those of up to twenty routes, but of one sender only.

Fees can often be identified without reading all events. If the first and the last hundred show as much of an asset
leaving the sender as its balance changes do, they show everybody who received it. The balance changes of these
receivers show whether they gave anything.
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

PROOF_CALLS = 2  # one for the last events of a route, one for a receiver of a fee


async def moves_of_long_routes(
    hiro: HiroClient, session: CallSession, routes: Sequence[TransactionWithEvents]
) -> dict[str, Moves | None]:
    """Return the moves by transaction; None where Hiro has no answer now. Raises `NoAnswer`."""
    moved: dict[str, Moves | None] = {}
    first = to_read_first(routes)
    if first:
        answer = await hiro.all_events(first, session)
        # If the events cannot be read, balance changes may still give the answer.
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
    """A route that gave several assets for one, and how much it sent of each."""

    route: TransactionWithEvents
    net: Net
    sent: Mapping[str, int]


async def _by_receivers(
    hiro: HiroClient, session: CallSession, questions: Sequence[_MayHaveFees]
) -> dict[str, Moves]:
    """Return the moves of routes whose fees can be identified with fewer calls than reading all events takes."""
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
    """Return the fees if nobody who received one gave anything; None if that is not certain."""
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
    """Choose the routes whose events to read instead of balance changes: those up to the length with the fewest calls.

    At equal cost the longer ones are read as well, because events leave no question open.
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
    """Return how many pages of events are left to read; None if the first is unknown or there are too many."""
    count = route.transaction.event_count
    if route.page is None or route.page.stop != EVENTS_PAGE or count is None or count > EVENTS_MAX:
        return None
    return max(1, -(-count // EVENTS_PAGE) - 1)


def _seems_to_pay_fees(route: TransactionWithEvents) -> bool:
    """Return whether the known events suggest fees: if so, balance changes will probably not suffice."""
    return route.page is not None and gives_several(
        net_of_events(route.transaction.sender, route.page.transfers)
    )


def _moves(
    events: Mapping[str, tuple[TransferEvent, ...] | None], routes: Sequence[TransactionWithEvents]
) -> dict[str, Moves | None]:
    """Return the moves of the routes whose events are all known; None if a route was reorged in the meantime."""
    moved: dict[str, Moves | None] = {}
    for transaction in (route.transaction for route in routes if route.transaction.tx_id in events):
        known = events[transaction.tx_id]
        moved[transaction.tx_id] = None if known is None else moves_of_events(transaction.sender, known)
    return moved
