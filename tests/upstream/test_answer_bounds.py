"""Answers of Hiro and Tenero at their limits: how many at once, which times, which numbers."""

import copy
from typing import Any

import pytest

from holdfast.errors import UsageError
from holdfast_testing.virtual_time import START_MS
from stacks_simulator.addresses import address_of
from support.example_chain import TXID, WALLET
from support.scripted_fetch import Request, always, example, response
from support.upstreams import wired_hiro, wired_tenero
from tocsin.commands.explain import any_transaction
from tocsin.errors import MalformedBody
from tocsin.fetch import FetchResponse
from tocsin.stacks import HookStatus, MinedAt, StxPayment
from tocsin.upstream import hiro, hiro_parse, tenero
from tocsin.upstream.answer import BadRequest, Malformed, Ok
from tocsin.upstream.client import read_retry_after
from tocsin.upstream.hiro_parse import received, transferred

NOW_S = START_MS // 1000
SIMPLE: dict[str, Any] = example("hiro/swap_simple_synthetic")["body"]
OTHERS = [f"{address_of('deployer')}.token-{n}::token" for n in range(20)]


def ids(count: int) -> list[str]:
    return [f"0x{n:064x}" for n in range(count)]


def multiple(request: Request) -> FetchResponse:
    """Every transaction that is asked for, each like the example."""
    asked = request.url.partition("tx_id=")[2].split(",")
    rows = {tx_id: {"found": True, "result": {**SIMPLE, "tx_id": tx_id}} for tx_id in asked}
    return response(rows)


# Hiro


async def test_twenty_transactions_are_asked_for_at_once_without_their_arguments() -> None:
    """With a hundred events each; arguments only on request; 21 and none are mistakes of the caller."""
    wired = wired_hiro(multiple)
    answer = await wired.hiro.transactions_with_events(ids(20), wired.task())
    await wired.hiro.transactions_with_events(ids(1), wired.task(), arguments=True)
    for count in (0, 21):
        with pytest.raises(UsageError, match=f"Ask for 1 to 20 transactions at once, not {count}"):
            await wired.hiro.transactions_with_events(ids(count), wired.task())
    urls = [request.url for request in wired.fetch.requests]

    assert isinstance(answer, Ok)
    assert list(answer.value) == ids(20)
    assert "/extended/v1/tx/multiple?event_limit=100&exclude_function_args=true&tx_id=" in urls[0]
    assert "/extended/v1/tx/multiple?event_limit=100&tx_id=" in urls[1]
    assert len(urls) == 2


async def test_fifty_arguments_are_asked_for_at_once() -> None:
    """And no events; 51 are a mistake."""
    wired = wired_hiro(multiple)
    answer = await wired.hiro.call_argument(ids(50), "x-amount", wired.task())
    with pytest.raises(UsageError, match="Ask for 1 to 50"):
        await wired.hiro.call_argument(ids(51), "x-amount", wired.task())

    assert answer == Ok(dict.fromkeys(ids(50), "u1000000"))
    assert "?event_limit=1&tx_id=" in wired.fetch.requests[0].url


async def test_an_answer_that_is_too_large_is_asked_for_in_halves() -> None:
    """Down to single ones, and one of these without its events: everything is found, nothing twice."""

    def serve(request: Request) -> FetchResponse:
        count = request.url.partition("tx_id=")[2].count(",") + 1
        whole = "event_limit=100" in request.url
        if whole and (count > 2 or ids(5)[4] in request.url):
            return response("x" * (4 * 1024 * 1024 + 1))
        return multiple(request)

    wired = wired_hiro(serve)
    answer = await wired.hiro.transactions_with_events(ids(5), wired.task(), arguments=True)
    asked = [
        (request.url.partition("event_limit=")[2].split("&")[0], request.url.count("0x"))
        for request in wired.fetch.requests
    ]

    assert isinstance(answer, Ok)
    assert list(answer.value) == ids(5)
    assert asked == [("100", 5), ("100", 2), ("100", 3), ("100", 1), ("100", 2), ("100", 1), ("100", 1), ("1", 1)]


async def test_a_half_that_fails_fails_the_whole() -> None:
    """Unknown is not empty."""

    def serve(request: Request) -> FetchResponse:
        if request.url.count("0x") == 2:
            return response("x" * (4 * 1024 * 1024 + 1))
        return response({}, status=400) if ids(2)[1] in request.url else multiple(request)

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
    wired = wired_hiro(always(response({TXID: {"found": True, "result": body}})))
    answer = await wired.hiro.transactions_with_events([TXID], wired.task())
    calm = wired_hiro(multiple)
    await calm.hiro.transactions_with_events([TXID], calm.task())

    assert isinstance(answer, Ok)
    found = answer.value[TXID]
    assert found is not None
    assert [event.amount for event in found.events or ()] == [1_000_000, 859_839, None]
    [line] = wired.log.of("upstream.amounts_ignored")
    assert (line.level, line.fields["count"], line.fields["upstream"]) == ("WARN", 1, "hiro")
    assert calm.log.of("upstream.amounts_ignored") == []
    body["events"][1]["asset"]["amount"] = "many"
    own = wired_hiro(always(response({TXID: {"found": True, "result": body}})))
    assert isinstance(await own.hiro.transactions_with_events([TXID], own.task()), Malformed)


@pytest.mark.parametrize(
    ("time", "is_read"),
    [(NOW_S + 86_400, True), (NOW_S + 86_401, False), (1_231_006_505, True), (1_231_006_504, False)],
)
async def test_a_block_is_as_old_as_bitcoin_and_a_day_ahead_at_most(time: int, *, is_read: bool) -> None:
    """To the second: everything else is no time in seconds."""
    body = {**SIMPLE, "burn_block_time": time}
    wired = wired_hiro(always(response({TXID: {"found": True, "result": body}})))
    answer = await wired.hiro.transactions_with_events([TXID], wired.task())

    assert isinstance(answer, Ok) is is_read


@pytest.mark.parametrize(
    ("limit", "anonymous"), [("50", True), ("51", False), ("500", False), ("0", None), ("x", None)]
)
def test_who_has_fifty_calls_a_minute_has_no_key(limit: str, *, anonymous: bool | None) -> None:
    """That is what Hiro grants to everybody; a limit of nothing says nothing."""
    reading = hiro.read_hiro_limits({"x-ratelimit-limit-stacks-minute": limit})

    assert reading.anonymous is anonymous


def test_five_thousand_events_of_one_transaction_can_be_read() -> None:
    """Fifty pages of a hundred."""
    assert (hiro.PAGES_MAX, hiro.EVENTS_PAGE, hiro.EVENTS_MAX) == (50, 100, 5_000)
    assert (hiro.LIST_PAGE, hiro.BALANCE_TXIDS_MAX) == (50, 20)


@pytest.mark.parametrize(("count", "expected"), [(3, 3), (0, 0), (None, 0)])
def test_how_a_hook_is(count: int | None, expected: int) -> None:
    """Its state, its last block if it has one, and how often it found something."""
    status: Any = {"status": "streaming", "enabled": True, "last_evaluated_block_height": 7, "occurrence_count": count}

    assert hiro_parse.hook_status({"status": status}) == HookStatus("streaming", True, 7, expected)
    fresh = hiro_parse.hook_status({"status": {"status": "new", "enabled": False}})
    assert fresh == HookStatus("new", False, None, 0)
    with pytest.raises(MalformedBody):
        hiro_parse.hook_status({"status": {"status": "new"}})


def test_what_a_transfer_brought_its_recipient() -> None:
    """Only a plain one that succeeded; what cannot be read is none."""
    row: dict[str, Any] = {
        "type": "token_transfer",
        "status": "success",
        "token_transfer": {"recipient": WALLET, "amount": "5"},
    }

    assert transferred(row) == StxPayment(WALLET, 5)
    assert transferred({**row, "type": "contract_call"}) is None
    assert transferred({**row, "status": "abort_by_response"}) is None
    assert transferred({**row, "token_transfer": {"recipient": WALLET}}) is None
    assert transferred({**row, "token_transfer": None}) is None


def test_what_a_transaction_brought_the_principal_of_the_list() -> None:
    """Nothing is no payment."""
    row: dict[str, Any] = {"balance_changes": {"stx": {"sent": "0", "received": "7", "net": "7"}}}

    assert received(row, WALLET) == StxPayment(WALLET, 7)
    assert received({"balance_changes": {"stx": {"received": "0"}}}, WALLET) is None
    assert received({"balance_changes": {}}, WALLET) is None


def test_a_shortened_transaction_is_in_the_first_block() -> None:
    """What is filled in is nothing that anybody could take for a fact."""
    names = ("tx_id", "sender_address", "tx_status", "tx_type", "contract_call")
    found = any_transaction({name: SIMPLE[name] for name in names}).transaction

    assert found.mined == MinedAt(height=0, block_hash="0x", tx_index=0, burn_block_time=0)
    assert (found.canonical, found.sponsored, found.fee, found.event_count) == (True, False, 0, None)


@pytest.mark.parametrize(
    "value",
    [
        "Thu, 14 May 2026 19:30:00 +99999999999999999999",
        "Thu, 14 May 2026 19:30:00 +9900",
        "Thu, 14 May 99999 19:30:00 GMT",
        "Thu, 14",
        "x" * 65,
    ],
)
def test_a_date_that_is_none_is_no_wait(value: str) -> None:
    """Whatever is wrong with it."""
    assert read_retry_after({"retry-after": value}, START_MS) is None


# Tenero


async def test_three_pages_and_ten_single_tokens_are_asked_for() -> None:
    """If nobody says otherwise."""

    def serve(request: Request) -> FetchResponse:
        if "/tokens?" in request.url:
            page = int(request.url.partition("cursor=")[2] or 0)
            row = {"address": f"x{page}", "price_usd": 1, "decimals": 6}
            return response({"data": {"rows": [row], "next": str(page + 1)}})
        return response({"data": {"address": request.url.rpartition("/")[2], "price_usd": 7, "decimals": 3}})

    wired = wired_tenero(serve)
    result = await wired.tenero.prices(OTHERS, wired.task())

    assert (result.pages, len(result.prices), len(result.unasked)) == (3, 10, 10)
    assert len(wired.fetch.requests) == 13
    assert result.seen_at == dict.fromkeys(OTHERS[:10], START_MS)


@pytest.mark.parametrize(
    ("value", "price"),
    [
        (1e-18, 1e-18),
        (9e-19, None),
        (1e12, 1e12),
        (1.1e12, None),
        ("0.5", 0.5),
        ("1e-3", 0.001),
        ("1e-999", None),
        ("9" * 40, None),
        ("9" * 41, None),
        ("-1", None),
        ("", None),
        ("x", None),
        (0, None),
        (-1, None),
        (None, None),
        (10**400, None),
    ],
)
def test_a_price_is_within_reason_or_none(value: Any, price: float | None) -> None:
    """As a number or as text; never zero, never a guess."""
    row = {"address": "stx", "price_usd": value, "decimals": 6}

    assert tenero.token_price({"data": row}, "stx", "stx").price_usd == price


@pytest.mark.parametrize("value", [True, {}, [], ...])
def test_a_price_of_another_kind_is_no_answer(value: Any) -> None:
    """A missing one does not mean that there is none."""
    row: Any = {"address": "stx", "decimals": 6} | ({} if value is ... else {"price_usd": value})
    with pytest.raises(MalformedBody, match="price_usd"):
        tenero.token_price({"data": row}, "stx", "stx")


@pytest.mark.parametrize(("value", "decimals"), [(0, 0), (38, 38), ("0", 0), ("38", 38), (None, None), ("06", 6)])
def test_decimals_are_a_small_number_or_unknown(value: Any, decimals: int | None) -> None:
    """As a number or as text."""
    row = {"address": "stx", "price_usd": 1, "decimals": value}

    assert tenero.token_price({"data": row}, "stx", "stx").decimals == decimals


@pytest.mark.parametrize("value", [-1, 39, "39", "100", "-1", 6.0, True, "x"])
def test_decimals_that_cannot_be_are_no_answer(value: Any) -> None:
    """A wrong one would move every value by powers of ten."""
    row = {"address": "stx", "price_usd": 1, "decimals": value}
    with pytest.raises(MalformedBody, match="decimals: expected 0 to 38"):
        tenero.token_price({"data": row}, "stx", "stx")


@pytest.mark.parametrize(
    ("value", "usd"),
    [(0, 0.0), (5, 5.0), ("2.5", 2.5), (1e15, 1e15), (1.1e15, None), (-1, None), ("x", None), (True, None)],
)
def test_what_a_pool_holds_is_known_or_not(value: Any, usd: float | None) -> None:
    """The price next to it is still good."""
    row: Any = {
        "address": "stx",
        "price_usd": 1,
        "decimals": 6,
        "total_liquidity_usd": value,
        "metrics": {"volume_1d_usd": value},
    }
    price = tenero.token_price({"data": row}, "stx", "stx")

    assert (price.liquidity_usd, price.volume_usd, price.price_usd) == (usd, usd, 1)


def test_a_list_of_rows_that_cannot_be_read_is_no_list() -> None:
    """One that can be read is enough; an empty list is a list."""
    good: Any = {"address": "a", "price_usd": 1, "decimals": 6}
    bad: Any = {"address": "b"}
    page = tenero.list_page({"data": {"rows": [bad, good], "next": "n"}})

    assert (list(page.prices), page.next_cursor, len(page.refused)) == (["a"], "n", 1)
    assert tenero.list_page({"data": {"rows": []}}).prices == {}
    with pytest.raises(MalformedBody, match="rows: none of 2 can be read"):
        tenero.list_page({"data": {"rows": [bad, bad]}})
