"""Routes of more than a hundred events get the verdict that all events give, with as few calls as possible."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast_testing.virtual_time import run_virtual
from stacks_simulator.chain import Chain
from stacks_simulator.chain_records import ChainTransaction
from stacks_simulator.simulator import Simulator
from support.competition import World, as_rows, chain_of, open_world, sweep
from support.example_chain import POOL, TXID, WALLET
from support.scripted_fetch import Request, example, response
from support.simulated_fetch import SimulatedFetch
from support.upstreams import wired_hiro
from tocsin.fetch import FetchResponse
from tocsin.stacks import EventPage, Transaction, TransactionWithEvents, TransferEvent
from tocsin.swaps.store import Candidate
from tocsin.swaps.submit import SubmissionLane, submit
from tocsin.swaps.swap import moves_of_events
from tocsin.swaps.verify import Verifier, moves_of_long_routes, to_read_first
from tocsin.upstream.answer import value_or_raise
from tocsin.upstream.hiro_parse import events_v1

SIMPLE: dict[str, Any] = example("hiro/swap_simple_synthetic")["body"]
PARTIES = st.sampled_from([WALLET, POOL, "SPTREASURY"])


def long_route(chain: Chain, events: range, kind: str = "multibin", wallet: int = 0) -> ChainTransaction:
    """Make a trade with this many events, the only one that waits to be mined."""
    while True:
        tx: ChainTransaction = chain.swap(chain.wallets[wallet], kind)
        if len(tx.events) in events:
            return tx


async def verified(world: World, sent: Sequence[ChainTransaction]) -> list[str]:
    """Return the purposes of the calls that verify these transactions together."""
    before = world.calls()
    candidates = [Candidate(tx.tx_id, "cron", added_at=1) for tx in sent]
    await Verifier(world.run(), world.rules).verify(candidates)
    requests = list(world.simulator.requests)[before:]
    return ["changes" if "balance-changes" in each.path else _page_of(each.query) for each in requests]


def _page_of(query: str) -> str:
    """The offset, and how many transactions are asked for."""
    offset = query.partition("event_offset=")[2].partition("&")[0] or "0"
    return f"{offset} of {query.count('0x')}"


UP_TO_200, UP_TO_400, UP_TO_1100 = range(101, 201), range(301, 401), range(1001, 1101)


@pytest.mark.parametrize(
    ("events", "kind", "calls"),
    [
        (UP_TO_200, "multibin", ["0 of 1", "100 of 1"]),
        (UP_TO_400, "multibin", ["0 of 1", "changes"]),
        (UP_TO_200, "third_token_fee", ["0 of 1", "100 of 1"]),
        (UP_TO_400, "third_token_fee", ["0 of 1", "changes", "261 of 1", "changes"]),
    ],
)
async def test_one_long_route_takes_the_fewest_calls(
    events: range, kind: str, calls: list[str], tmp_path: Path
) -> None:
    """One more page tells more than balance changes for the same cost; these are asked first where it is longer."""
    async with open_world(tmp_path) as world:
        chain = world.simulator.chain
        tx = long_route(chain, events, kind)
        chain.mine(tx)
        made = await verified(world, [tx])
        rows = await world.rows()

    assert made == calls
    assert rows == as_rows(chain.truth())
    assert [row["txid"] for row in rows] == [tx.tx_id]


async def test_several_long_routes_are_read_in_the_same_calls(tmp_path: Path) -> None:
    """Three senders would take three calls for their balance changes, and two of them have fees."""
    async with open_world(tmp_path, chain_of(3)) as world:
        chain = world.simulator.chain
        kinds = ("third_token_fee", "multibin", "third_token_fee")
        sent = [long_route(chain, UP_TO_400, kind, wallet) for wallet, kind in enumerate(kinds)]
        sent += [long_route(chain, UP_TO_200, "multibin", wallet) for wallet in range(3)]
        chain.mine(*sent)
        made = await verified(world, sent)
        rows = await world.rows()

    assert made == ["0 of 6", "100 of 6", "200 of 3", "300 of 3"]
    assert rows == as_rows(chain.truth())
    assert len(rows) == 6


async def test_a_submitted_long_route_with_a_fee_is_recorded_with_its_legs(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        chain = world.simulator.chain
        tx = long_route(chain, UP_TO_1100, "third_token_fee")
        chain.mine(tx)
        answer = await submit(world.request(), world.rules, {"txid": tx.tx_id}, SubmissionLane())

    assert (answer.http_status, answer.reason) == (200, "recorded")
    assert answer.legs is not None
    assert [leg.role for leg in answer.legs] == ["given", "fee", "received"]
    assert world.calls() == 4


class ReorgFetch(SimulatedFetch):
    """The chain abandons its newest block before the second page of events is asked for."""

    def __init__(self, simulator: Simulator) -> None:
        super().__init__(simulator)
        self._chain = simulator.chain
        self._reorged = False

    async def __call__(self, url: str, **options: Any) -> FetchResponse:
        if "event_offset=100" in url and not self._reorged:
            self._reorged = True
            self._chain.reorg(self._chain.tip_height - self._chain.blocks[-1].height + 1, "remined")
        return await super().__call__(url, **options)


async def test_a_reorg_between_two_pages_leaves_the_transaction_undecided(tmp_path: Path) -> None:
    """It is in another block now: neither recorded nor refused, but asked for again, and then it is a swap."""
    async with open_world(tmp_path, fetch=ReorgFetch) as world:
        chain = world.simulator.chain
        tx = long_route(chain, UP_TO_200)
        chain.mine(tx)
        first = tx.block
        await sweep(world)
        rows = await world.rows()
        refusals = await world.all("SELECT txid FROM refusals")
        queued = await world.all("SELECT txid, attempts FROM candidates")
        await world.clock.sleep(3_600)
        await sweep(world)
        later = await world.rows()

    assert first is not None
    assert tx.block is not None
    assert first.hash != tx.block.hash
    assert (rows, refusals, queued) == ([], [], [{"txid": tx.tx_id, "attempts": 1}])
    assert later == as_rows(chain.truth())
    assert tx.tx_id in {row["txid"] for row in later}


def spoiling(spoil: Callable[[list[Any]], None]) -> type[SimulatedFetch]:
    class SpoilingFetch(SimulatedFetch):
        """Spoils every page of events but the first."""

        async def __call__(self, url: str, **options: Any) -> FetchResponse:
            answer = await super().__call__(url, **options)
            if "event_offset=" not in url:
                return answer
            body = json.loads(answer.body)
            for entry in body.values():
                spoil(entry["result"]["events"])
            return replace(answer, body=json.dumps(body).encode())

    return SpoilingFetch


@pytest.mark.parametrize(
    "spoil",
    [
        lambda events: events.pop(0),
        lambda events: events.append(events[0]),
        lambda events: [event.update(event_index=event["event_index"] - 1) for event in events],
    ],
    ids=["missing", "overlapping", "wrong"],
)
async def test_balance_changes_decide_where_events_cannot_be_read(
    spoil: Callable[[list[Any]], None], tmp_path: Path
) -> None:
    """Without a fee they are enough. With one it is unclear what it was, so it stays undecided."""
    async with open_world(tmp_path, chain_of(2), fetch=spoiling(spoil)) as world:
        chain = world.simulator.chain
        plain, fee = long_route(chain, UP_TO_200), long_route(chain, UP_TO_200, "third_token_fee", 1)
        chain.mine(plain)
        chain.mine(fee)
        made = await verified(world, [plain])
        rows = await world.rows()
        await sweep(world)
        later = await world.rows()
        refusals = await world.all("SELECT txid FROM refusals")
        queued = await world.all("SELECT txid FROM candidates")

    assert made == ["0 of 1", "100 of 1", "changes"]
    assert [row["txid"] for row in rows] == [plain.tx_id]
    assert later == rows
    assert (refusals, queued) == ([], [{"txid": fee.tx_id}])


# What to read first


def route(number: int, events: int | None, sender: str = WALLET, *, gives: str = "A", known: int = 100) -> Any:
    """A route of which the first events are known; it gives each of these assets."""
    transaction = Transaction(
        f"0x{number:064x}", sender, False, 1, "success", "contract_call", None, None, True, events
    )
    given_ = tuple(TransferEvent(at, "transfer", asset, sender, POOL, 5) for at, asset in enumerate(gives))
    return TransactionWithEvents(transaction, EventPage(0, known, given_) if known else None)


@pytest.mark.parametrize(
    ("routes", "first"),
    [
        ([route(0, 101)], {0}),
        ([route(0, 200)], {0}),
        ([route(0, 201)], set()),
        ([route(0, 201, gives="AB")], {0}),
        ([route(0, 400, gives="AB")], {0}),
        ([route(0, 401, gives="AB")], set()),  # who received a fee may tell more cheaply
        ([route(0, 401, gives="AB"), route(1, 401, gives="AB")], {0, 1}),
        ([route(0, 5001, gives="AB"), route(1, 5001, "B", gives="AB")], set()),
        ([route(n, 5000, f"S{n}", gives="AB") for n in range(17)], {*range(17)}),
        ([route(0, 5001), route(1, 150, "B")], {1}),
        ([route(0, None)], set()),
        ([route(0, 150, known=1)], set()),
        ([route(0, 150, known=0)], set()),
        ([route(0, 201), route(1, 300)], set()),  # one call for the changes of one sender
        ([route(0, 201), route(1, 300, "B")], {0, 1}),  # two calls either way
        ([route(0, 201), route(1, 301, "B")], set()),
        ([route(0, 150), route(1, 400)], set()),  # the changes of one tell those of the other
        ([route(0, 150), route(1, 400, "B")], {0}),
        ([route(0, 150), route(1, 400, "B", gives="AB")], {0, 1}),
        ([route(n, 400, f"S{n}") for n in range(3)], {0, 1, 2}),
        ([route(n, 401, f"S{n}") for n in range(3)], set()),
    ],
)
def test_what_costs_the_fewest_calls_is_read_first(routes: list[Any], first: set[int]) -> None:
    """Pages are shared by all routes, balance changes by those of a sender."""
    assert {int(each.transaction.tx_id, 16) for each in to_read_first(routes)} == first


# The verdict is the same


@st.composite
def moved(draw: st.DrawFn) -> list[dict[str, Any]]:
    """The events of a long route: a few transfers, mints and burns among many logs."""
    count = draw(st.integers(101, 620))
    places = st.integers(0, count - 1) | st.integers(0, 9) | st.integers(count - 9, count - 1)
    events = [{**SIMPLE["events"][0], "event_index": n} for n in range(count)]
    for place in draw(st.lists(places, min_size=1, max_size=8, unique=True)):
        kind = draw(st.sampled_from(["transfer"] * 6 + ["mint", "burn"]))
        asset = {"asset_event_type": kind, "sender": draw(PARTIES), "recipient": draw(PARTIES)}
        asset |= {"asset_id": f"SP1.{draw(st.sampled_from('abc'))}::t", "amount": str(draw(st.integers(0, 3)))}
        asset |= {"mint": {"sender": ""}, "burn": {"recipient": ""}}.get(kind, {})
        events[place] = {"event_index": place, "event_type": "fungible_token_asset", "asset": asset}
    return events


@st.composite
def with_fee(draw: st.DrawFn) -> list[dict[str, Any]]:
    """The same with a swap around it, and what may be a fee at its end."""
    events = draw(moved())
    legs = {0: ("a", WALLET, POOL), 1: ("b", POOL, WALLET), len(events) - 1: ("c", WALLET, draw(PARTIES))}
    for place, (name, sender, recipient) in legs.items():
        asset = {"asset_event_type": "transfer", "sender": sender, "recipient": recipient, "amount": "9"}
        asset["asset_id"] = f"SP1.{name}::t"
        events[place] = {"event_index": place, "event_type": "fungible_token_asset", "asset": asset}
    return events


def hiro_with(events: list[dict[str, Any]], *, to_itself: bool) -> Callable[[Request], FetchResponse]:
    """Hiro with one transaction: pages of its events, and everybody's balance changes."""
    row = {**SIMPLE, "sender_address": WALLET, "fee_rate": "7", "event_count": len(events)}

    def serve(request: Request) -> FetchResponse:
        if "balance-changes" in request.url:
            principal = unquote(request.url.partition("/principals/")[2].partition("/")[0])
            return response(_changes(events, principal, to_itself=to_itself))
        offset = int(request.url.partition("event_offset=")[2].partition("&")[0] or 0)
        return response({TXID: {"found": True, "result": {**row, "events": events[offset : offset + 100]}}})

    return serve


def _changes(events: list[dict[str, Any]], principal: str, *, to_itself: bool) -> dict[str, Any]:
    """With or without what somebody sent to itself: Hiro might do either."""
    sums: dict[str, list[int]] = {"stx": [7, 0]} if principal == WALLET else {}
    for asset in (event["asset"] for event in events if "asset" in event):
        if asset["sender"] == asset["recipient"] and not to_itself:
            continue
        for at, side in enumerate(("sender", "recipient")):
            if asset[side] == principal:
                sums.setdefault(asset["asset_id"], [0, 0])[at] += int(asset["amount"])
    rows = [
        {
            "tx_id": TXID,
            "asset": {"type": "stx" if asset == "stx" else "ft", "identifier": asset},
            "balance_change": {"sent": str(sent), "received": str(gotten), "net": str(gotten - sent)},
        }
        for asset, (sent, gotten) in sums.items()
    ]
    return {"total": len(rows), "limit": 50, "cursor": {"next": None}, "results": rows}


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(moved() | with_fee(), st.booleans())
def test_the_verdict_of_a_long_route_is_that_of_all_its_events(events: list[dict[str, Any]], to_itself: bool) -> None:
    """By every method, wherever the transfers are."""

    async def play() -> None:
        wired = wired_hiro(hiro_with(events, to_itself=to_itself))
        found = (value_or_raise(await wired.hiro.transactions_with_events([TXID], wired.task())) or {})[TXID]
        assert found is not None
        told = await moves_of_long_routes(wired.hiro, wired.task(), [found])

        assert told == {TXID: moves_of_events(WALLET, events_v1({"events": [*events]}, WALLET))}

    run_virtual(play())


def fee_route(count: int, *extra: tuple[int, str, str, str]) -> list[dict[str, Any]]:
    """A swap of a for b with a fee in c as its last event, and more transfers at some places."""
    events = [{**SIMPLE["events"][0], "event_index": n} for n in range(count)]
    legs = ((0, "a", WALLET, POOL), (1, "b", POOL, WALLET), (count - 1, "c", WALLET, "SPTREASURY"), *extra)
    for place, name, sender, recipient in legs:
        asset = {"asset_event_type": "transfer", "sender": sender, "recipient": recipient, "amount": "9"}
        asset["asset_id"] = f"SP1.{name}::t"
        events[place] = {"event_index": place, "event_type": "fungible_token_asset", "asset": asset}
    return events


@pytest.mark.parametrize(
    ("events", "fees", "calls"),
    [
        (fee_route(1_051), {"c"}, 4),
        (fee_route(1_051, (500, "c", WALLET, "SPOTHER")), {"c"}, 3 + 10),  # not all receivers are known
        (fee_route(1_051, (500, "c", "SPTREASURY", POOL)), set(), 4 + 10),  # it passes the fee on
        (fee_route(1_051, (500, "d", "SPTREASURY", POOL)), set(), 4 + 10),  # it gives something else
        (fee_route(1_051, (500, "c", WALLET, WALLET)), {"c"}, 3 + 10),  # sent to itself: hard to tell from sums
        (fee_route(1_051, (2, "c", WALLET, POOL)), set(), 2),  # the pool gives: no fee, and no question
        (fee_route(301), {"c"}, 4),
        (fee_route(300), {"c"}, 4),  # two more pages take as many calls
    ],
)
async def test_a_fee_is_proven_by_who_received_it_or_by_all_events(
    events: list[dict[str, Any]], fees: set[str], calls: int
) -> None:
    """First and last page, and what the receiver gave; if these leave a doubt, every page is read."""
    wired = wired_hiro(hiro_with(events, to_itself=True))
    found = (value_or_raise(await wired.hiro.transactions_with_events([TXID], wired.task())) or {})[TXID]
    assert found is not None
    told = (await moves_of_long_routes(wired.hiro, wired.task(), [found]))[TXID]

    assert told is not None
    assert told.fees == {f"SP1.{name}::t" for name in fees}
    assert told == moves_of_events(WALLET, events_v1({"events": [*events]}, WALLET))
    assert len(wired.fetch.requests) == calls


@pytest.mark.parametrize("broken", ["SPTREASURY/balance-changes", "event_offset=951"])
@pytest.mark.parametrize("body", [{}, {"total": 0, "limit": 50, "cursor": {"next": None}, "results": []}])
async def test_a_fee_that_cannot_be_proven_is_read_from_all_events(broken: str, body: dict[str, Any]) -> None:
    """A receiver without balance changes gave something or nothing; a last page that is none shows nobody."""
    events = fee_route(1_051)
    serve = hiro_with(events, to_itself=True)
    wired = wired_hiro(lambda request: response(body) if broken in request.url else serve(request))
    found = (value_or_raise(await wired.hiro.transactions_with_events([TXID], wired.task())) or {})[TXID]
    assert found is not None
    told = await moves_of_long_routes(wired.hiro, wired.task(), [found])

    assert told == {TXID: moves_of_events(WALLET, events_v1({"events": [*events]}, WALLET))}
    assert len(wired.fetch.requests) >= 1 + 1 + 1 + 10
