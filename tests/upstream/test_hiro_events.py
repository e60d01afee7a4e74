"""The events of long routes: read on from the first hundred, many routes in a call, complete or not at all."""

import json
from collections.abc import Callable, Mapping, Sequence
from operator import setitem
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from support.examples import TXID
from support.scripted_fetch import Request, example, response
from support.upstreams import Wired, value_of, wired_hiro
from tocsin.fetch import FetchResponse
from tocsin.stacks import TransactionWithEvents, TransferEvent
from tocsin.upstream.answer import Answer, Malformed, Ok, Unavailable
from tocsin.upstream.hiro import EVENTS_MAX

SIMPLE: dict[str, Any] = example("hiro/swap_simple_synthetic")["body"]
TOO_LARGE = response("x" * (4 * 1024 * 1024 + 1))

Rows = list[dict[str, Any]]
Change = Callable[[dict[str, Any], int], object]


def events_of(count: int) -> Rows:
    """Events of one swap over many bins: every third is a log."""
    return [{**SIMPLE["events"][n % 3], "event_index": n} for n in range(count)]


def ids(count: int) -> list[str]:
    return [f"0x{n:064x}" for n in range(count)]


def asked_of(request: Request) -> tuple[list[str], int, int]:
    """The ids that a request names, its offset and its limit."""
    query = parse_qs(urlsplit(request.url).query)
    return (query["tx_id"][0].split(","), int(query.get("event_offset", ["0"])[0]), int(query["event_limit"][0]))


def serving(counts: Mapping[str, int], change: Change = lambda _row, _at: None) -> Callable[[Request], FetchResponse]:
    """`tx/multiple` for routes of so many events; `change` spoils a row, and is told its offset."""

    def serve(request: Request) -> FetchResponse:
        txids, offset, limit = asked_of(request)
        body = {}
        for txid in txids:
            rows = events_of(counts[txid])[offset : offset + limit]
            row = json.loads(json.dumps({**SIMPLE, "tx_id": txid, "event_count": counts[txid], "events": rows}))
            change(row, offset)
            body[txid] = {"found": "gone" not in row, "result": row}
        return response(body)

    return serve


async def read_on(wired: Wired, txids: Sequence[str]) -> Answer[dict[str, tuple[TransferEvent, ...] | None]]:
    """All events, after the call that showed the first of them."""
    return await wired.hiro.all_events(await first_page(wired, txids), wired.task())


async def first_page(wired: Wired, txids: Sequence[str]) -> list[TransactionWithEvents]:
    value = value_of(await wired.hiro.transactions_with_events(txids, wired.task()))
    return [found for found in value.values() if found is not None]


def pages_of(wired: Wired) -> list[tuple[int, int]]:
    """The offset of each call, and how many transactions it names."""
    return [(offset, len(txids)) for txids, offset, _ in map(asked_of, wired.fetch.requests)]


async def test_the_first_hundred_events_are_not_read_again() -> None:
    """A swap over hundreds of bins comes back whole, without logs, from one call for each hundred events."""
    wired = wired_hiro(serving({TXID: 730}))

    events = value_of(await read_on(wired, [TXID]))[TXID]

    assert events is not None
    assert [event.index for event in events] == [n for n in range(730) if SIMPLE["events"][n % 3].get("asset")]
    assert sum(event.amount or 0 for event in events if event.asset == "stx") == 243 * 1_000_000
    assert pages_of(wired) == [(offset, 1) for offset in range(0, 800, 100)]


async def test_twenty_long_routes_share_their_calls() -> None:
    """Each call has the next page of all that are not complete; which is last does not matter."""
    counts = {txid: 101 + 10 * at for at, txid in enumerate(ids(20))}
    wired = wired_hiro(serving(counts))

    value = value_of(await read_on(wired, ids(20)))

    assert {txid: events and events[-1].index for txid, events in value.items()} == {
        txid: max(row["event_index"] for row in events_of(count) if "asset" in row) for txid, count in counts.items()
    }
    assert pages_of(wired) == [(0, 20), (100, 20), (200, 10)]


@pytest.mark.parametrize(
    "changes", [{"block_hash": "0x" + "77" * 32}, {"canonical": False}, {"event_count": 351}, {"gone": True}], ids=str
)
async def test_a_reorg_between_two_pages_leaves_the_events_unknown(changes: dict[str, Any]) -> None:
    """What was read before may be of another block. The others are not affected."""

    def change(row: dict[str, Any], offset: int) -> None:
        row.update(changes if offset == 200 else {})

    lasting, moved = ids(2)
    wired = wired_hiro(serving({lasting: 150, moved: 350}, change))

    value = value_of(await read_on(wired, [lasting, moved]))

    assert value[moved] is None
    assert len(value[lasting] or ()) == 100
    assert pages_of(wired) == [(0, 2), (100, 2), (200, 1)]


def moved_by(row: dict[str, Any], places: int) -> dict[str, Any]:
    return {**row, "event_index": row["event_index"] + places}


SPOILT: Mapping[str, Callable[[Rows], object]] = {
    "one left out": lambda rows: rows.pop(10),
    "the last left out": lambda rows: rows.pop(),
    "one listed twice": lambda rows: setitem(rows, 10, rows[11]),
    "one too many": lambda rows: rows.append(moved_by(rows[-1], 1)),
    "the page before": lambda rows: [row.update(moved_by(row, -100)) for row in rows],
    "begins too early": lambda rows: rows.insert(0, moved_by(rows[0], -1)),
    "an amount that is none": lambda rows: next(row for row in rows if "asset" in row)["asset"].update(amount="many"),
    "no page": lambda rows: rows.clear(),
}


@pytest.mark.parametrize("how", SPOILT)
@pytest.mark.parametrize("offset", [100, 200])
async def test_a_page_that_is_not_the_next_one_is_not_accepted(how: str, offset: int) -> None:
    """A gap, an overlap, too few or too many, or one that cannot be read: no events at all, and a log line."""

    def change(row: dict[str, Any], at: int) -> None:
        if at == offset:
            SPOILT[how](row["events"])

    wired = wired_hiro(serving({TXID: 250}, change))

    assert isinstance(await read_on(wired, [TXID]), Malformed)
    assert wired.log.of("upstream.answer_refused")
    assert pages_of(wired)[-1] == (offset, 1)


async def test_a_route_that_cannot_be_read_does_not_spoil_the_others() -> None:
    """It is missing from the answer, whether its page or its whole row is wrong."""
    good, bad_page, bad_row = ids(3)

    def change(row: dict[str, Any], offset: int) -> None:
        if row["tx_id"] == bad_page and offset:
            row["events"].pop()
        if row["tx_id"] == bad_row and offset == 200:
            row["fee_rate"] = None

    wired = wired_hiro(serving({good: 250, bad_page: 250, bad_row: 450}, change))

    answer = await read_on(wired, [good, bad_page, bad_row])

    assert isinstance(answer, Ok)
    assert list(answer.value) == [good]
    assert pages_of(wired) == [(0, 3), (100, 3), (200, 2)]


async def test_the_last_route_that_cannot_be_read_does_not_spoil_what_is_complete() -> None:
    """The call for it alone has no answer; what was read before it has."""
    short, bad = ids(2)
    serve = serving({short: 150, bad: 350})
    wired = wired_hiro(lambda request: response({}) if asked_of(request)[1] == 200 else serve(request))

    answer = await read_on(wired, [short, bad])

    assert isinstance(answer, Ok)
    assert list(answer.value) == [short]


async def test_a_failed_page_fails_the_whole() -> None:
    """Half of the events is not an answer."""
    serve = serving({TXID: 250})
    wired = wired_hiro(lambda r: response({}, status=500) if "event_offset=200" in r.url else serve(r))

    assert isinstance(await read_on(wired, [TXID]), Unavailable)


async def test_a_page_that_is_too_large_is_asked_for_in_halves() -> None:
    """Down to single ones; one that is too large alone has no events."""
    serve = serving(dict.fromkeys(ids(4), 150))

    def limited(request: Request) -> FetchResponse:
        txids, offset, _ = asked_of(request)
        return TOO_LARGE if offset and len(txids) > 2 else serve(request)

    def narrow(request: Request) -> FetchResponse:
        return TOO_LARGE if asked_of(request)[1] else serve(request)

    wired, hopeless = wired_hiro(limited), wired_hiro(narrow)
    value = value_of(await read_on(wired, ids(4)))
    nothing = await read_on(hopeless, ids(1))

    assert [len(events or ()) for events in value.values()] == [100] * 4
    assert pages_of(wired) == [(0, 4), (100, 4), (100, 2), (100, 2)]
    assert isinstance(nothing, Malformed)
    assert nothing.too_large
    assert pages_of(hopeless) == [(0, 1), (100, 1)]


async def test_a_route_of_which_only_the_first_event_fitted_is_read_on_from_there() -> None:
    """A page of it is smaller than a page with the arguments of its call."""
    serve = serving({TXID: 150})

    def limited(request: Request) -> FetchResponse:
        _, offset, limit = asked_of(request)
        return TOO_LARGE if limit == 100 and not offset else serve(request)

    wired = wired_hiro(limited)
    value = value_of(await read_on(wired, [TXID]))

    assert len(value[TXID] or ()) == 100
    assert pages_of(wired) == [(0, 1), (0, 1), (1, 1), (101, 1)]


async def test_first_events_that_cannot_be_read_are_read_once_more() -> None:
    """Nothing is known of such a route but its state; the whole is read from its first event."""
    spoiled = 0

    def change(row: dict[str, Any], offset: int) -> None:
        nonlocal spoiled
        if not offset and not spoiled:
            row["events"].pop(10)
            spoiled += 1

    wired = wired_hiro(serving({TXID: 150}, change))
    [found] = await first_page(wired, [TXID])
    value = value_of(await wired.hiro.all_events([found], wired.task()))

    assert (found.page, found.events) == (None, None)
    assert len(value[TXID] or ()) == 100
    assert pages_of(wired) == [(0, 1), (0, 1), (100, 1)]


async def test_a_route_of_more_than_fifty_pages_is_not_read() -> None:
    """To the event: the longest takes fifty calls, one that is longer takes none."""
    longest, longer = ids(2)
    wired = wired_hiro(serving({longest: EVENTS_MAX, longer: EVENTS_MAX + 1}))
    found = await first_page(wired, [longest, longer])
    value = value_of(await wired.hiro.all_events(found, wired.task()))

    assert list(value) == [longest]
    assert len(wired.fetch.requests) == 50
    assert await wired.hiro.all_events(found[1:], wired.task()) == Ok({})
    assert len(wired.fetch.requests) == 50


async def test_a_route_without_a_number_of_events_is_not_read() -> None:
    """Whether its events are complete could not be told."""

    def change(row: dict[str, Any], _offset: int) -> None:
        row["event_count"] = None

    wired = wired_hiro(serving({TXID: 150}, change))

    assert await read_on(wired, [TXID]) == Ok({})
    assert len(wired.fetch.requests) == 1
