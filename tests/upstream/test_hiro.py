"""Hiro's methods: complete or not at all, one spelling of ids, v1 only for what v3 does not have."""

import json
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from holdfast.errors import UsageError
from support.example_chain import POOL, STSTX, TXID, WALLET
from support.scripted_fetch import Request, example, example_response, response
from support.upstreams import wired_hiro
from tocsin.fetch import FetchResponse
from tocsin.stacks import BalanceChange, canonical_txid
from tocsin.upstream.answer import Malformed, Ok, Unavailable


def multiple(name: str | None) -> FetchResponse:
    """An answer of `tx/multiple` for the example transaction."""
    if name is None:
        return response({TXID: {"found": False, "result": {"tx_id": TXID}}})
    return response({TXID: {"found": True, "result": example(f"hiro/{name}")["body"]}})


async def test_an_id_is_asked_for_in_its_one_spelling() -> None:
    """An upper-case id without prefix takes one call, with the canonical spelling in its query."""
    wired = wired_hiro(lambda _: multiple("swap_simple_synthetic"))

    answer = await wired.hiro.transactions_with_events([TXID.upper().replace("0X", "")], wired.request())

    assert isinstance(answer, Ok)
    assert urlsplit(wired.fetch.requests[0].url).query.endswith(f"tx_id={TXID}")
    assert len(wired.fetch.requests) == 1


@pytest.mark.parametrize("name", ["pending_synthetic", "dropped_synthetic", "noncanonical_synthetic"])
async def test_what_is_not_on_the_chain_comes_from_tx_multiple(name: str) -> None:
    """Pending, dropped and reorged transactions come from the endpoint that is not deprecated."""
    wired = wired_hiro(lambda _: multiple(name))

    answer = await wired.hiro.transactions_with_events([TXID], wired.request())

    assert isinstance(answer, Ok)
    found = answer.value[TXID]
    assert found is not None
    assert found.transaction.canonical is False
    assert "/extended/v1/tx/multiple?" in wired.fetch.requests[0].url


async def test_a_transaction_that_hiro_does_not_know_is_absent() -> None:
    """Hiro must say so of the transaction; a failure is that failure, and a missing endpoint says nothing."""
    unknown = wired_hiro(lambda _: multiple(None))
    failing = wired_hiro(lambda _: response({}, status=500))
    missing = wired_hiro(lambda _: example_response("hiro/tx_404"))

    assert await unknown.hiro.transactions_with_events([TXID], unknown.request()) == Ok({TXID: None})
    assert isinstance(await failing.hiro.transactions_with_events([TXID], failing.request()), Unavailable)
    assert isinstance(await missing.hiro.transactions_with_events([TXID], missing.request()), Malformed)


@pytest.mark.parametrize("status", [429, 500, 503, 410, 401, 404])
async def test_no_fallback_multiplies_the_load_of_an_upstream_in_trouble(status: int) -> None:
    """No failure leads to a second endpoint."""
    wired = wired_hiro(lambda _: response({}, status=status))
    await wired.hiro.transactions_with_events([TXID], wired.task(retries_max=0))
    await wired.hiro.principal_transactions(TXID, wired.task(retries_max=0))

    assert len(wired.fetch.requests) == 2


async def test_another_transaction_than_the_one_asked_for_is_malformed() -> None:
    """The answer's own id is checked."""
    other = "0x" + "ab" * 32
    body = {other: {"found": True, "result": example("hiro/swap_simple_synthetic")["body"]}}
    wired = wired_hiro(lambda _: response(body))

    assert isinstance(await wired.hiro.transactions_with_events([other], wired.request()), Malformed)


def paged(rows: list[Any], size: int, total: int | None = None) -> Callable[[Request], FetchResponse]:
    """A v3 list served in pages of `size`."""

    def serve(request: Request) -> FetchResponse:
        start = int(parse_qs(urlsplit(request.url).query).get("cursor", ["0"])[0])
        following = start + size if start + size < len(rows) else None
        cursor = {"next": None if following is None else str(following), "previous": None, "current": "x"}
        announced = len(rows) if total is None else total
        return response({"total": announced, "limit": size, "cursor": cursor, "results": rows[start : start + size]})

    return serve


async def test_a_list_that_never_ends_is_left() -> None:
    """A cursor that leads in circles ends after a bounded number of pages."""
    body = {"total": 2, "limit": 50, "cursor": {"next": "1"}, "results": changes([TXID])}
    wired = wired_hiro(lambda _: response(body))

    assert isinstance(await wired.hiro.balance_changes(WALLET, [TXID], wired.task()), Malformed)
    assert len(wired.fetch.requests) == 50


@pytest.mark.parametrize("total", [2, 4])
async def test_a_list_of_another_length_than_it_says_is_not_an_answer(total: int) -> None:
    """Fewer rows than announced, or more: malformed, with a log line, never a part."""
    wired = wired_hiro(paged(changes([TXID]), 50, total))

    assert isinstance(await wired.hiro.balance_changes(WALLET, [TXID], wired.task()), Malformed)
    assert wired.log.of("upstream.answer_refused")


async def test_a_principals_transactions_come_newest_first_by_cursor() -> None:
    """A wallet or a contract, page by page; a cursor is sent as it came."""
    body = example("hiro/v3_principal_transactions_synthetic")["body"]
    body["cursor"]["next"] = "7929000:2147483647:1"
    wired = wired_hiro(lambda _: response(body))

    answer = await wired.hiro.principal_transactions(POOL, wired.task(), "7929497:2147483647:3")

    assert isinstance(answer, Ok)
    assert [item.mined.position for item in answer.value.items if item.mined] == [(7929497, 3)]
    assert answer.value.next_cursor == "7929000:2147483647:1"
    url = wired.fetch.requests[0].url
    assert f"/principals/{POOL}/transactions?limit=50&cursor=7929497%3A2147483647%3A3" in url


async def test_a_list_out_of_order_is_malformed() -> None:
    """Reading back to a mark relies on the order; a page that breaks it would hide swaps."""
    body = example("hiro/v3_principal_transactions_synthetic")["body"]
    newer = json.loads(json.dumps(body["results"][0]))
    newer["transaction"]["block"]["height"] += 1
    wired = wired_hiro(lambda _: response({**body, "results": [body["results"][0], newer]}))

    assert isinstance(await wired.hiro.principal_transactions(WALLET, wired.task()), Malformed)


def changes(txids: list[str]) -> list[Any]:
    rows = example("hiro/v3_principal_balance_changes_synthetic")["body"]["results"]
    nft = {**rows[1], "asset": {"type": "nft", "identifier": "SP1.nft::nft"}, "balance_change": None}
    return [{**row, "tx_id": txid} for txid in txids for row in (*rows, nft)]


async def test_an_empty_page_that_leads_on_is_malformed() -> None:
    """Followed, its cursor would lead anywhere."""
    body = {"total": 0, "limit": 50, "cursor": {"next": "text"}, "results": []}
    wired = wired_hiro(lambda _: response(body))

    assert isinstance(await wired.hiro.principal_transactions(POOL, wired.task()), Malformed)


async def test_a_sponsor_has_an_address() -> None:
    """The payer of the fee decides about amounts: an odd value is not read as a sponsor, nor as none."""
    body = example("hiro/v3_principal_transactions_synthetic")["body"]
    body["results"][0]["transaction"]["sponsor"] = {}
    wired = wired_hiro(lambda _: response(body))

    assert isinstance(await wired.hiro.principal_transactions(WALLET, wired.task()), Malformed)
    for sponsor, sponsored in (({"address": WALLET}, True), (None, False)):
        body["results"][0]["transaction"]["sponsor"] = sponsor
        answer = await wired.hiro.principal_transactions(WALLET, wired.task())
        assert isinstance(answer, Ok)
        assert answer.value.items[0].sponsored is sponsored


async def test_transactions_come_with_their_events_if_these_are_complete() -> None:
    """A route with more events than one answer holds has its first ones, which are not taken for all."""
    names = {TXID: "swap_simple_synthetic", "0x" + "b" * 64: "swap_dlmm_multibin_synthetic_default_page"}
    names["0x" + "c" * 64] = "pending_synthetic"
    bodies = {txid: {**example(f"hiro/{name}")["body"], "tx_id": txid} for txid, name in names.items()}
    wired = wired_hiro(lambda _: response({t: {"found": True, "result": b} for t, b in bodies.items()}))

    answer = await wired.hiro.transactions_with_events(list(names), wired.task())

    assert isinstance(answer, Ok)
    simple, long_route, pending = answer.value.values()
    assert simple is not None
    assert [event.amount for event in simple.events or ()] == [1_000_000, 859_839]
    assert long_route is not None
    assert (long_route.events, long_route.transaction.event_count) == (None, 36)
    assert long_route.page is not None
    assert (long_route.page.start, long_route.page.stop) == (0, 20)
    assert pending is not None
    assert (pending.events, pending.page, pending.transaction.status) == (None, None, "pending")


async def test_events_that_are_there_twice_are_malformed() -> None:
    """Their number is right and they are not."""
    body = example("hiro/swap_simple_synthetic")["body"]
    body["events"][1] = body["events"][0]
    wired = wired_hiro(lambda _: response({TXID: {"found": True, "result": body}}))

    assert isinstance(await wired.hiro.transactions_with_events([TXID], wired.task()), Malformed)


async def test_one_argument_of_many_calls_in_one_call() -> None:
    """By its name, as Clarity prints it; None where the call has no such argument, or is unknown."""
    printed = "(some 'SP1M8KHCJXB3SBRQRDBCG3J3859AA1CN0AWDHN17B)"
    body = example("hiro/swap_simple_synthetic")["body"]
    call = {**body["contract_call"], "function_args": [{"name": "provider", "repr": printed, "type": "x"}]}
    other, unknown = "0x" + "b" * 64, "0x" + "c" * 64
    wired = wired_hiro(
        lambda _: response(
            {
                TXID: {"found": True, "result": {**body, "contract_call": call}},
                other: {"found": True, "result": {**body, "tx_id": other}},
                unknown: {"found": False, "result": {"tx_id": unknown}},
            }
        )
    )

    answer = await wired.hiro.call_argument([TXID, other, unknown], "provider", wired.task())

    assert answer == Ok({TXID: printed, other: None, unknown: None})
    assert len(wired.fetch.requests) == 1


async def test_balance_changes_of_twenty_transactions_need_several_pages() -> None:
    """All pages are read, NFT rows are left out, and the fee is still in the STX sent."""
    txids = [f"0x{n:064x}" for n in range(20)]
    wired = wired_hiro(paged(changes(txids), 20))

    answer = await wired.hiro.balance_changes(WALLET, txids, wired.task())

    assert isinstance(answer, Ok)
    assert len(answer.value) == 40
    assert answer.value[:2] == (BalanceChange(txids[0], "stx", 1003000, 0), BalanceChange(txids[0], STSTX, 0, 859839))
    assert len(wired.fetch.requests) == 3


@pytest.mark.parametrize(
    "spoil",
    [
        lambda rows: rows[0].update(tx_id="0x" + "9" * 64),
        lambda rows: rows[0].update(balance_change={"sent": "5", "received": "2", "net": "3"}),
        lambda rows: rows.append(dict(rows[0])),
    ],
)
async def test_contradicting_balance_changes_are_malformed(spoil: Callable[[list[Any]], None]) -> None:
    """A stranger's transaction, a wrong net and a doubled row are all refused."""
    rows = changes([TXID])
    spoil(rows)
    wired = wired_hiro(paged(rows, 50))

    assert isinstance(await wired.hiro.balance_changes(WALLET, [TXID], wired.task()), Malformed)


async def test_many_transactions_in_one_call() -> None:
    """`tx/multiple` says of each whether it is known; doubles and spellings are folded."""
    body = example("hiro/v1_tx_multiple")["body"]
    wired = wired_hiro(lambda _: response(body))

    answer = await wired.hiro.transactions_with_events([*body, *(key.upper() for key in body)], wired.task())

    assert isinstance(answer, Ok)
    assert {key[:6]: value and value.transaction.canonical for key, value in answer.value.items()} == {
        "0x8911": True,
        "0x8915": True,
        "0x8912": False,
        "0x8914": None,
    }
    assert len(re.findall("0x8911", wired.fetch.requests[0].url)) == 1


async def test_an_id_missing_from_the_answer_is_malformed() -> None:
    """Not being mentioned is not the same as "not found"."""
    wired = wired_hiro(lambda _: response({}))

    assert isinstance(await wired.hiro.transactions_with_events([TXID], wired.task()), Malformed)


async def test_wrong_questions_are_the_callers_mistake() -> None:
    """Too many ids, none, or something that is not an id: refused before any call."""
    wired = wired_hiro(lambda _: response({}))
    many = [f"{n:064x}" for n in range(51)]

    for ask in (
        wired.hiro.call_argument(many, "provider", wired.task()),
        wired.hiro.transactions_with_events(many[:21], wired.task()),
        wired.hiro.transactions_with_events([], wired.task()),
        wired.hiro.balance_changes(WALLET, many[:21], wired.task()),
        wired.hiro.transactions_with_events(["0x12"], wired.task()),
    ):
        with pytest.raises(UsageError):
            await ask
    assert wired.fetch.requests == []


async def test_a_principal_cannot_leave_its_place_in_the_path() -> None:
    """Whatever a principal is made of, it stays one segment."""
    wired = wired_hiro(lambda _: example_response("hiro/v3_principal_transactions_synthetic"))
    await wired.hiro.principal_transactions("../../x?y#z", wired.task())

    assert "/principals/..%2F..%2Fx%3Fy%23z/transactions" in wired.fetch.requests[0].url


def test_a_transaction_id_has_one_spelling() -> None:
    """Case and prefix do not matter; anything else is refused."""
    assert canonical_txid("AB" * 32) == canonical_txid("0X" + "ab" * 32) == "0x" + "ab" * 32
    for wrong in ("", "0x", "ab" * 31, "ab" * 33, "0xzz" + "ab" * 31, "ab" * 32 + "\n"):
        with pytest.raises(UsageError):
            canonical_txid(wrong)
