"""Hiro's methods: complete or not at all, one spelling of ids, v1 only for what v3 does not have."""

import copy
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from holdfast.errors import UsageError
from holdfast.testing.virtual_time import START_MS
from support.examples import POOL, STSTX, SWAP, TXID, WALLET
from support.scripted_fetch import Request, always, example, example_response, response
from support.upstreams import value_of, wired_hiro
from tocsin.fetch import FetchResponse
from tocsin.stacks import AccountNonce, BalanceChange, TransactionWithEvents, canonical_txid
from tocsin.upstream import hiro
from tocsin.upstream.answer import Answer, BadRequest, Malformed, Ok, Unavailable

NOW_S = START_MS // 1000
SIMPLE: dict[str, Any] = example("hiro/swap_simple_synthetic")["body"]
BODY = example("hiro/v3_transactions_synthetic")["body"]
SPONSOR = "SP2J6ZY48GV1EZ5V2V5RB9MP66SW86PYKKNRV9EJ7"
NOT_TIMES = [10**15, START_MS, NOW_S + 86_401, 0, 1_778_700, -1, 1e9, "1778700600", None]


def multiple(*rows: dict[str, Any]) -> FetchResponse:
    """An answer of `tx/multiple` with these transactions."""
    return response({row["tx_id"]: {"found": True, "result": row} for row in rows})


async def asked(row: dict[str, Any]) -> Answer[dict[str, TransactionWithEvents | None]]:
    """What is made of the example transaction if it is this one."""
    wired = wired_hiro(lambda _: multiple(row))
    return await wired.hiro.transactions_with_events([TXID], wired.task())


async def test_an_id_is_asked_for_in_its_one_spelling() -> None:
    """An upper-case id without prefix takes one call, with the canonical spelling in its query."""
    wired = wired_hiro(lambda _: multiple(SIMPLE))

    value_of(await wired.hiro.transactions_with_events([TXID.upper().replace("0X", "")], wired.request()))

    assert urlsplit(wired.fetch.requests[0].url).query.endswith(f"tx_id={TXID}")
    assert len(wired.fetch.requests) == 1


@pytest.mark.parametrize("name", ["pending_synthetic", "dropped_synthetic", "noncanonical_synthetic"])
async def test_what_is_not_on_the_chain_comes_from_tx_multiple(name: str) -> None:
    """Pending, dropped and reorged transactions come from the endpoint that is not deprecated."""
    wired = wired_hiro(lambda _: multiple({**example(f"hiro/{name}")["body"], "tx_id": TXID}))

    found = value_of(await wired.hiro.transactions_with_events([TXID], wired.request()))[TXID]

    assert found is not None
    assert found.transaction.canonical is False
    assert "/extended/v1/tx/multiple?" in wired.fetch.requests[0].url


async def test_a_transaction_that_hiro_does_not_know_is_absent() -> None:
    """Hiro must say so of the transaction; a failure is that failure, and a missing endpoint says nothing."""
    unknown = wired_hiro(always(response({TXID: {"found": False, "result": {"tx_id": TXID}}})))
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


def paged(rows: list[Any], size: int, total: int | None = None) -> Callable[[Request], FetchResponse]:
    """A v3 list served in pages of `size`."""

    def serve(request: Request) -> FetchResponse:
        start = int(parse_qs(urlsplit(request.url).query).get("cursor", ["0"])[0])
        following = start + size if start + size < len(rows) else None
        cursor = {"next": None if following is None else str(following), "previous": None, "current": "x"}
        announced = len(rows) if total is None else total
        return response({"total": announced, "limit": size, "cursor": cursor, "results": rows[start : start + size]})

    return serve


async def test_an_endless_list_is_abandoned() -> None:
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

    value = value_of(await wired.hiro.principal_transactions(POOL, wired.task(), "7929497:2147483647:3"))

    assert [item.mined.position for item in value.items if item.mined] == [(7929497, 3)]
    assert value.next_cursor == "7929000:2147483647:1"
    url = wired.fetch.requests[0].url
    assert f"/principals/{POOL}/transactions?limit=50&cursor=7929497%3A2147483647%3A3" in url


def changes(txids: list[str]) -> list[Any]:
    rows = example("hiro/v3_principal_balance_changes_synthetic")["body"]["results"]
    nft = {**rows[1], "asset": {"type": "nft", "identifier": "SP1.nft::nft"}, "balance_change": None}
    return [{**row, "tx_id": txid} for txid in txids for row in (*rows, nft)]


def out_of_order(body: Any) -> None:
    body["results"].append(copy.deepcopy(body["results"][0]))
    body["results"][1]["transaction"]["block"]["height"] += 1


def empty_but_leading_on(body: Any) -> None:
    body.update(results=[], cursor={"next": "text"})


def with_an_id_that_cannot_be_read(body: Any) -> None:
    body["results"].append(copy.deepcopy(body["results"][0]))
    body["results"][1]["transaction"]["tx_id"] = "what"


def with_a_sponsor_without_address(body: Any) -> None:
    body["results"][0]["transaction"]["sponsor"] = {}


@pytest.mark.parametrize(
    "spoil", [out_of_order, empty_but_leading_on, with_an_id_that_cannot_be_read, with_a_sponsor_without_address]
)
async def test_a_page_that_would_hide_something_is_malformed(spoil: Callable[[Any], None]) -> None:
    """Reading back to a mark relies on the order, and on every id; a sponsor decides about amounts."""
    body = example("hiro/v3_principal_transactions_synthetic")["body"]
    spoil(body)
    wired = wired_hiro(lambda _: response(body))

    assert isinstance(await wired.hiro.principal_transactions(WALLET, wired.task()), Malformed)


async def test_who_pays_the_fee_is_known() -> None:
    body = example("hiro/v3_principal_transactions_synthetic")["body"]
    wired = wired_hiro(lambda _: response(body))
    for sponsor, sponsored in (({"address": WALLET}, True), (None, False)):
        body["results"][0]["transaction"]["sponsor"] = sponsor
        page = value_of(await wired.hiro.principal_transactions(WALLET, wired.task()))
        assert page.items[0].sponsored is sponsored


async def test_transactions_come_with_their_events_if_these_are_complete() -> None:
    """A route with more events than one answer holds has its first ones, which are not taken for all."""
    names = {TXID: "swap_simple_synthetic", "0x" + "b" * 64: "swap_dlmm_multibin_synthetic_default_page"}
    names["0x" + "c" * 64] = "pending_synthetic"
    rows = [{**example(f"hiro/{name}")["body"], "tx_id": txid} for txid, name in names.items()]
    wired = wired_hiro(lambda _: multiple(*rows))

    simple, long_route, pending = value_of(
        await wired.hiro.transactions_with_events(list(names), wired.task())
    ).values()

    assert simple is not None
    assert [event.amount for event in simple.events or ()] == [1_000_000, 859_839]
    assert long_route is not None
    assert (long_route.events, long_route.transaction.event_count) == (None, 36)
    assert long_route.page is not None
    assert (long_route.page.start, long_route.page.stop) == (0, 20)
    assert pending is not None
    assert (pending.events, pending.page, pending.transaction.status) == (None, None, "pending")


async def test_balance_changes_of_twenty_transactions_need_several_pages() -> None:
    """All pages are read, NFT rows are left out, and the fee is still in the STX sent."""
    txids = [f"0x{n:064x}" for n in range(20)]
    wired = wired_hiro(paged(changes(txids), 20))

    value = value_of(await wired.hiro.balance_changes(WALLET, txids, wired.task()))

    assert len(value) == 40
    assert value[:2] == (BalanceChange(txids[0], "stx", 1003000, 0), BalanceChange(txids[0], STSTX, 0, 859839))
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

    asked_for = [*body, *(key.upper() for key in body)]
    found = value_of(await wired.hiro.transactions_with_events(asked_for, wired.task()))

    assert {key[:6]: value and value.transaction.canonical for key, value in found.items()} == {
        "0x8911": True,
        "0x8915": True,
        "0x8912": False,
        "0x8914": None,
    }
    assert len(re.findall("0x8911", wired.fetch.requests[0].url)) == 1


@pytest.mark.parametrize(
    "body",
    [
        {},
        {TXID: {"found": True, "result": {**SIMPLE, "tx_id": "0x" + "ab" * 32}}},
        {TXID: {"found": True, "result": {**SIMPLE, "events": [*SIMPLE["events"][:1] * 2, SIMPLE["events"][2]]}}},
    ],
    ids=["the id is missing, which is not the same as not found", "another transaction", "an event twice"],
)
async def test_an_answer_that_contradicts_the_question_is_malformed(body: Any) -> None:
    wired = wired_hiro(lambda _: response(body))

    assert isinstance(await wired.hiro.transactions_with_events([TXID], wired.task()), Malformed)


async def test_impossible_requests_are_usage_errors() -> None:
    """Too many ids, none, or something that is not an id: refused before any call."""
    wired = wired_hiro(lambda _: response({}))

    for ask, reason in (
        (wired.hiro.transactions_with_events(ids(21), wired.task()), "Ask for 1 to 20 transactions at once, not 21"),
        (wired.hiro.transactions_with_events([], wired.task()), "Ask for 1 to 20 transactions at once, not 0"),
        (wired.hiro.balance_changes(WALLET, ids(21), wired.task()), "Ask for 1 to 20 transactions at once, not 21"),
        (wired.hiro.transactions_with_events(["0x12"], wired.task()), "64 hex digits"),
    ):
        with pytest.raises(UsageError, match=reason):
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


def ids(count: int) -> list[str]:
    return [f"0x{n:064x}" for n in range(count)]


def like_the_example(request: Request) -> FetchResponse:
    """Every transaction that is asked for, each like the example."""
    return multiple(*({**SIMPLE, "tx_id": tx_id} for tx_id in request.url.partition("tx_id=")[2].split(",")))


async def test_twenty_transactions_are_asked_for_at_once() -> None:
    """With their arguments and a hundred events each."""
    wired = wired_hiro(like_the_example)
    value = value_of(await wired.hiro.transactions_with_events(ids(20), wired.task()))
    [request] = wired.fetch.requests

    assert list(value) == ids(20)
    assert "/extended/v1/tx/multiple?event_limit=100&tx_id=" in request.url
    assert {(found.arguments or {})["x-amount"] for found in value.values() if found} == {"u1000000"}


async def test_an_answer_that_is_too_large_is_asked_for_in_halves() -> None:
    """Down to single ones, and one of these without its events: everything is found, nothing twice."""

    def serve(request: Request) -> FetchResponse:
        count = request.url.partition("tx_id=")[2].count(",") + 1
        whole = "event_limit=100" in request.url
        if whole and (count > 2 or ids(5)[4] in request.url):
            return response("x" * (4 * 1024 * 1024 + 1))
        return like_the_example(request)

    wired = wired_hiro(serve)
    value = value_of(await wired.hiro.transactions_with_events(ids(5), wired.task()))
    calls = [
        (request.url.partition("event_limit=")[2].split("&")[0], request.url.count("0x"))
        for request in wired.fetch.requests
    ]

    assert list(value) == ids(5)
    assert calls == [("100", 5), ("100", 2), ("100", 3), ("100", 1), ("100", 2), ("100", 1), ("100", 1), ("1", 1)]


async def test_a_half_that_fails_fails_the_whole() -> None:
    """Unknown is not empty."""

    def serve(request: Request) -> FetchResponse:
        if request.url.count("0x") == 2:
            return response("x" * (4 * 1024 * 1024 + 1))
        return response({}, status=400) if ids(2)[1] in request.url else like_the_example(request)

    wired = wired_hiro(serve)

    assert isinstance(await wired.hiro.transactions_with_events(ids(2), wired.task()), BadRequest)


async def test_amounts_between_others_that_cannot_be_read_are_one_line() -> None:
    """They change no verdict; an amount of the sender that cannot be read is no answer."""
    body = copy.deepcopy(SIMPLE)
    stranger = copy.deepcopy(body["events"][1])
    stranger["event_index"] = 3
    stranger["asset"] |= {"sender": "SP1", "recipient": "SP2", "amount": "many"}
    body["events"].append(stranger)
    body["event_count"] = 4
    wired = wired_hiro(lambda _: multiple(body))
    found = value_of(await wired.hiro.transactions_with_events([TXID], wired.task()))[TXID]
    calm = wired_hiro(like_the_example)
    await calm.hiro.transactions_with_events([TXID], calm.task())

    assert found is not None
    assert [event.amount for event in found.events or ()] == [1_000_000, 859_839, None]
    [line] = wired.log.of("upstream.amounts_ignored")
    assert (line.level, line.fields["count"], line.fields["upstream"]) == ("WARN", 1, "hiro")
    assert calm.log.of("upstream.amounts_ignored") == []
    body["events"][1]["asset"]["amount"] = "many"
    assert isinstance(await asked(body), Malformed)


@pytest.mark.parametrize(
    ("time", "is_read"),
    [(NOW_S + 86_400, True), (NOW_S + 86_401, False), (1_231_006_505, True), (1_231_006_504, False)],
)
async def test_a_block_is_as_old_as_bitcoin_and_a_day_ahead_at_most(time: int, *, is_read: bool) -> None:
    """To the second: everything else is no time in seconds."""
    assert isinstance(await asked({**SIMPLE, "burn_block_time": time}), Ok) is is_read


@pytest.mark.parametrize(
    ("limit", "anonymous"), [("50", True), ("51", False), ("500", False), ("0", None), ("x", None)]
)
def test_fifty_calls_a_minute_or_fewer_mean_no_key(limit: str, *, anonymous: bool | None) -> None:
    """That is what Hiro grants to everybody; a limit of nothing says nothing."""
    reading = hiro.read_hiro_limits({"x-ratelimit-limit-stacks-minute": limit})

    assert reading.anonymous is anonymous


def test_five_thousand_events_of_one_transaction_can_be_read() -> None:
    """Fifty pages of a hundred."""
    assert (hiro.PAGES_MAX, hiro.EVENTS_PAGE, hiro.EVENTS_MAX) == (50, 100, 5_000)
    assert (hiro.LIST_PAGE, hiro.BALANCE_TXIDS_MAX) == (50, 20)


def network_page(**changes: object) -> FetchResponse:
    return FetchResponse(200, {"etag": '"0xa2a2"'}, response({**BODY, **changes}).body)


async def test_a_page_has_rows_nonces_and_the_length_of_the_list() -> None:
    """Rows of every kind are read; a sponsored one uses two nonces."""
    wired = wired_hiro(lambda _: network_page())

    listed = value_of(await wired.hiro.network_transactions(wired.task(), cursor="7929497:2147483647:3"))

    assert [row.type for row in listed.items] == ["contract_call", "contract_call", "tenure_change"]
    assert listed.items[0].tx_id == TXID == SWAP.tx_id
    assert listed.items[0].nonces == (AccountNonce(WALLET, 12),)
    assert listed.items[1].nonces == (AccountNonce(WALLET, 12), AccountNonce(SPONSOR, 7))
    assert (listed.total, listed.next_cursor) == (13_579_246, "7929496:2147483647:9")
    assert listed.newest_s == 1_778_787_000  # of the Stacks block; that of Bitcoin is 1,778,786,400
    (request,) = wired.fetch.requests
    assert request.url.endswith("/extended/v3/transactions?limit=50&cursor=7929497%3A2147483647%3A3")
    assert "if-none-match" not in request.headers


@pytest.mark.parametrize(("unreadable", "newest_s"), [(0, 1_778_787_000), (1, 1_778_786_999), (3, None)])
async def test_the_age_of_the_list_is_that_of_the_first_block_with_a_time(
    unreadable: int, newest_s: int | None
) -> None:
    """A list without any such time is refused: nobody could tell whether it is current."""
    rows = [
        {**row, "block": {**row["block"], "time": 1_778_787_000 - number}} for number, row in enumerate(BODY["results"])
    ]
    for row in rows[:unreadable]:
        del row["block"]["time"]
    wired = wired_hiro(lambda _: network_page(results=rows))

    answer = await wired.hiro.network_transactions(wired.task())

    if newest_s is None:
        assert answer == Malformed("hiro broke its contract: results: no row has the time of its block")
    else:
        assert isinstance(answer, Ok)
        assert answer.value.newest_s == newest_s


async def test_an_empty_list_has_no_newest_block() -> None:
    wired = wired_hiro(
        lambda _: network_page(results=[], total=0, cursor={"next": None, "previous": None, "current": None})
    )

    value = value_of(await wired.hiro.network_transactions(wired.task()))

    assert (value.items, value.newest_s) == ((), None)


async def test_a_row_that_cannot_be_read_is_named_and_hides_no_other() -> None:
    """It may be a swap, so its transaction is asked for."""
    broken = {**BODY["results"][1], "fee_rate": None}
    wired = wired_hiro(lambda _: network_page(results=[BODY["results"][0], broken, BODY["results"][2]]))

    value = value_of(await wired.hiro.network_transactions(wired.task()))

    assert len(value.items) == 2
    assert value.unreadable == ("0x" + "5a" * 32,)
    assert wired.log.named("upstream.rows_refused")


@pytest.mark.parametrize(
    ("block", "field", "value"),
    [
        *[("bitcoin_block", "time", time) for time in NOT_TIMES],
        ("block", "height", 10**9 + 1),  # every block would look deep
        ("block", "height", -1),
        ("block", "tx_index", 10**15),
    ],
)
async def test_a_row_with_an_impossible_number_does_not_hide_the_others(block: str, field: str, value: Any) -> None:
    """Milliseconds, next year, 1970: this row is named as unreadable, the others are read, a line is logged."""
    body = example("hiro/v3_principal_transactions_synthetic")["body"]
    good = body["results"][0]
    bad = copy.deepcopy(good)
    bad["transaction"]["tx_id"] = "0x" + "b" * 64
    bad["transaction"][block][field] = value
    wired = wired_hiro(lambda _: response({**body, "results": [bad, good]}))

    page = value_of(await wired.hiro.principal_transactions(WALLET, wired.task()))

    assert [item.tx_id for item in page.items] == [TXID]
    assert page.unreadable == ("0x" + "b" * 64,)
    (line,) = wired.log.of("upstream.rows_refused")
    assert (line.fields["upstream"], line.fields["count"]) == ("hiro", 1)


@pytest.mark.parametrize("time", NOT_TIMES)
async def test_an_impossible_time_of_a_stacks_block_is_unknown_and_refuses_nothing(time: Any) -> None:
    """It is only shown."""
    found = value_of(await asked({**SIMPLE, "block_time": time}))[TXID]

    assert found is not None
    assert found.transaction.mined is not None
    assert found.transaction.mined.block_time is None


@pytest.mark.parametrize("time", NOT_TIMES)
async def test_a_transaction_with_an_impossible_time_is_unknown(time: Any) -> None:
    """Neither there nor "not found"; alone it is a malformed answer."""
    other = "0x" + "b" * 64
    wired = wired_hiro(lambda _: multiple(SIMPLE, {**SIMPLE, "tx_id": other, "burn_block_time": time}))

    both = value_of(await wired.hiro.transactions_with_events([TXID, other], wired.task()))
    alone = await wired.hiro.transactions_with_events([other], wired.task())

    assert list(both) == [TXID]
    assert isinstance(alone, Malformed)
    assert len(wired.log.of("upstream.rows_refused")) == 1
