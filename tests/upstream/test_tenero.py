"""Tenero: the pages of its list, single tokens, and no price that is not one."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.errors import UsageError
from holdfast.testing.virtual_time import START_MS
from holdfast.types import JSON
from holdfast_testing.captured_log import CapturedLog
from stacks_simulator.addresses import address_of
from support.examples import SBTC
from support.scripted_fetch import Request, always, example, example_response, response
from support.upstreams import wired_tenero
from tocsin.errors import MalformedBody
from tocsin.fetch import FetchResponse
from tocsin.stacks import TokenPrice
from tocsin.upstream import tenero
from tocsin.upstream.answer import BadRequest, Limited, Malformed, NotFound, Ok, Unauthorised, Unavailable
from tocsin.upstream.tenero import ListedPrices, token_address

SBTC_ID = f"{SBTC}::sbtc-token"
STSTX_ID = "SP4SZE494VC2YC5JYG7AYFQ44F5Q4PYV7DVMDPBG.ststx-token::ststx"
OTHERS = [f"{address_of('deployer')}.token-{n}::token" for n in range(5)]


def listed(*pages: list[str]) -> Callable[[Request], FetchResponse]:
    """A Tenero whose list has these addresses on its pages."""

    def serve(request: Request) -> FetchResponse:
        page = int(request.url.split("cursor=")[1]) if "cursor=" in request.url else 0
        rows = [{"address": address, "price_usd": 1.5, "decimals": 6} for address in pages[page]]
        following = str(page + 1) if page + 1 < len(pages) else None
        return response({"data": {"rows": rows, "next": following}})

    return serve


def paths(requests: list[Request]) -> list[str]:
    return [request.url.removeprefix("https://tenero.test/v1/stacks") for request in requests]


async def test_one_page_prices_everything_it_has() -> None:
    """When the first page has all that is wanted, it is the only call."""
    wired = wired_tenero(lambda _: example_response("tenero/tokens_list_page"))

    found = await wired.tenero.listed_prices(["stx", SBTC_ID], wired.task(), 3)

    assert found.prices == {
        "stx": TokenPrice("stx", 0.85, 6, 1.0, 1.0),
        SBTC_ID: TokenPrice(SBTC_ID, 103420.5, 8, 1.0, 1.0),
    }
    assert found.seen_at == {"stx": START_MS, SBTC_ID: START_MS}
    assert (found.missing, found.failure, found.pages) == ((), None, 1)
    assert paths(wired.fetch.requests) == ["/tokens?limit=100"]


@pytest.mark.parametrize(("pages_max", "pages"), [(0, 0), (1, 1), (2, 2), (9, 3)])
async def test_pages_are_read_in_order_until_the_last_one(pages_max: int, pages: int) -> None:
    """And no more of them than are allowed; nothing else is asked."""
    wired = wired_tenero(listed([token_address(OTHERS[0])], ["x"], ["y"]))

    found = await wired.tenero.listed_prices(OTHERS, wired.task(), pages_max)

    assert list(found.prices) == OTHERS[: min(1, pages_max)]
    assert found.missing == tuple(OTHERS[min(1, pages_max) :])
    assert found.pages == pages
    expected = ["/tokens?limit=100", "/tokens?limit=100&cursor=1", "/tokens?limit=100&cursor=2"]
    assert paths(wired.fetch.requests) == expected[:pages]


@pytest.mark.parametrize(
    ("status", "failure"), [(429, Limited), (500, Unavailable), (401, Unauthorised), (404, BadRequest)]
)
async def test_a_page_that_fails_keeps_what_was_found_before(status: int, failure: type) -> None:
    """Of a list that has failed, nobody knows what else it has."""
    serve = listed([token_address(OTHERS[0])], ["x"])
    wired = wired_tenero(lambda r: response({}, status=status) if "cursor" in r.url else serve(r))

    found = await wired.tenero.listed_prices(OTHERS, wired.task(retries_max=0), 3)

    assert list(found.prices) == [OTHERS[0]]
    assert (type(found.failure), found.missing, found.unlisted) == (failure, tuple(OTHERS[1:]), frozenset())
    assert len(wired.fetch.requests) == 2


async def test_bad_rows_of_the_list_are_logged() -> None:
    """One line with their number and the first reason."""
    body = example("tenero/tokens_list_page")["body"]
    body["data"]["rows"][0]["price_usd"] = {}
    wired = wired_tenero(lambda _: response(body))
    await wired.tenero.listed_prices(["stx"], wired.task(), 1)

    assert [line.fields["count"] for line in wired.log.of("upstream.rows_refused")] == [1]


async def test_fetch_token_price_usd_returns_price_and_decimals() -> None:
    """As the name says; an unknown or worthless token has no price, and that is not an error."""
    log = CapturedLog()
    for name, price, decimals in (
        ("token", 103420.5, 8),
        ("token_price_string", 0.0012, 6),
        ("token_price_zero", None, 8),
        ("token_404", None, None),
    ):
        wired = wired_tenero(always(example_response(f"tenero/{name}")))
        answer = await wired.tenero.fetch_token_price_usd(SBTC_ID, log)
        pool = None if name == "token_404" else 1.0
        assert answer == Ok(TokenPrice(SBTC_ID, price, decimals, pool, pool))
        assert wired.client.limits.minute.remaining == 99
        assert wired.client.limits.month.remaining == 49000
    assert log.lines == []


async def test_fetch_token_price_usd_never_turns_a_failure_into_no_price() -> None:
    """429, 5xx, a wrong address of the API and nonsense are all distinguished from "no price"."""
    for answer, expected in (
        (example_response("tenero/rate_429"), Limited),
        (response({}, status=500), Unavailable),
        (response({"message": "Cannot GET /api/v1/stacks/tokens/stx"}, status=404), BadRequest),
        (response({"price_usd": 1}), Malformed),
    ):
        wired = wired_tenero(always(answer))
        result = await wired.tenero.fetch_token_price_usd("stx", wired.log)
        assert type(result) is expected
        assert wired.log.of("upstream.attempt_failed")
        assert not isinstance(result, NotFound)


@pytest.mark.parametrize("wrong", ["", "STX", "../x", "stx/../y", "SP1.x", "a::b", f"{SBTC}::", f"{SBTC}::x y"])
def test_a_token_id_is_checked_before_it_becomes_a_path(wrong: str) -> None:
    """`stx` or `contract::asset`, nothing else."""
    with pytest.raises(UsageError):
        token_address(wrong)
    assert token_address(SBTC_ID) == token_address(SBTC) == SBTC
    assert token_address(STSTX_ID).endswith(".ststx-token")


async def test_without_tokens_no_call_is_made() -> None:
    """An empty set costs nothing."""
    wired = wired_tenero(lambda _: response(json.dumps({})))

    assert await wired.tenero.listed_prices([], wired.task(), 3) == ListedPrices()
    assert wired.fetch.requests == []


async def test_a_token_counts_as_unlisted_only_when_the_list_was_read() -> None:
    """Not when no page was asked for, not when the list failed, not when a row that cannot be read may be its own."""
    wanted = OTHERS[0]
    serve = listed(["x"])
    own_row = {"address": token_address(wanted), "price_usd": {}, "decimals": 6}
    rows: list[dict[str, object]] = [{"address": "x", "price_usd": 1, "decimals": 6}]

    def with_row(*more: dict[str, object]) -> Callable[[Request], FetchResponse]:
        return lambda r: response({"data": {"rows": [*rows, *more]}}) if "/tokens?" in r.url else serve(r)

    async def unlisted(handler: Callable[[Request], FetchResponse], pages_max: int = 3) -> bool:
        wired = wired_tenero(handler)
        found = await wired.tenero.listed_prices([wanted], wired.task(retries_max=0), pages_max)
        return wanted in found.unlisted

    assert await unlisted(serve)
    assert await unlisted(with_row({"address": "y", "price_usd": {}, "decimals": 6}))
    assert not await unlisted(serve, pages_max=0)
    assert not await unlisted(lambda _: response({}, status=500))
    two = listed(["x"], ["y"])
    assert not await unlisted(lambda r: response({}, status=500) if "cursor" in r.url else two(r))
    assert not await unlisted(with_row(own_row))
    assert not await unlisted(with_row({"price_usd": 1}))


@pytest.mark.parametrize(("value", "decimals"), [(0, 0), (38, 38), ("0", 0), ("38", 38), (None, None), ("06", 6)])
def test_decimals_are_a_small_number_or_unknown(value: Any, decimals: int | None) -> None:
    """As a number or as text."""
    row = {"address": "stx", "price_usd": 1, "decimals": value}

    assert tenero.token_price({"data": row}, "stx", "stx").decimals == decimals


def test_a_list_of_rows_that_cannot_be_read_is_no_list() -> None:
    """One that can be read is enough; an empty list is a list."""
    good: Any = {"address": "a", "price_usd": 1, "decimals": 6}
    bad: Any = {"address": "b"}
    page = tenero.list_page({"data": {"rows": [bad, good], "next": "n"}})

    assert (list(page.prices), page.next_cursor, len(page.refused)) == (["a"], "n", 1)
    assert tenero.list_page({"data": {"rows": []}}).prices == {}
    with pytest.raises(MalformedBody, match="rows: none of 2 can be read"):
        tenero.list_page({"data": {"rows": [bad, bad]}})


def priced(price: JSON) -> TokenPrice:
    return tenero.token_price({"data": {"address": SBTC, "price_usd": price, "decimals": None}}, SBTC, SBTC)


@pytest.mark.parametrize(
    ("price", "expected"),
    [(1, 1.0), ("0.5", 0.5), ("1e-9", 1e-9), ("1E-3", 0.001), (1e-18, 1e-18), (1e12, 1e12), ("1e12", 1e12)],
)
def test_a_price_is_a_number_within_its_bounds(price: JSON, expected: float) -> None:
    assert priced(price) == TokenPrice(SBTC, expected, None)


def test_what_is_no_price_is_none() -> None:
    """Never an error for a missing price, never a price that is not one."""
    missing_or_no_number: list[JSON] = [None, "", "NaN", "n/a", "0x10", "1_000", " 1", "+1", "1.", ".5", float("nan")]
    too_small: list[JSON] = [0, "0", -1, "-1", 9.9e-19, "9e-19", "1e-300", "1e-999", 5e-324]
    too_large: list[JSON] = [1.1e12, "1.1e12", "1e13", 1e300, "1e999", "1e1000", 10**400, "9" * 40, "9" * 41]
    for price in (*missing_or_no_number, *too_small, *too_large, float("inf")):
        assert priced(price) == TokenPrice(SBTC, None, None)


@pytest.mark.parametrize(
    ("told", "known"), [(250_000, 250_000.0), ("1234.5", 1234.5), (0, 0.0), ("0", 0.0), (1e15, 1e15)]
)
def test_what_a_pool_holds_and_trades_comes_with_the_price(told: JSON, known: float) -> None:
    assert pooled(told) == TokenPrice(SBTC, 2.0, None, known, known)


def test_what_is_no_number_of_a_pool_is_not_known() -> None:
    """It never makes the price unreadable."""
    too_much: list[JSON] = [1.1e15, "1.1e15", 10**400, "1e999", float("inf")]
    for told in (*too_much, -1, float("nan"), True, "n/a", "x", [], {}, None):
        assert pooled(told) == TokenPrice(SBTC, 2.0, None, None, None)


def pooled(told: JSON) -> TokenPrice:
    """What is read of a token whose pools hold and trade this much, alone and in the list."""
    row: dict[str, JSON] = {
        "address": SBTC,
        "price_usd": 2,
        "total_liquidity_usd": told,
        "metrics": {"volume_1d_usd": told},
    }
    found = tenero.token_price({"data": row}, SBTC, SBTC)
    assert tenero.list_page({"data": {"rows": [row]}}).prices[SBTC].volume_usd == found.volume_usd
    assert tenero.token_price({"data": {**row, "metrics": 5}}, SBTC, SBTC).volume_usd is None
    return found


@pytest.mark.parametrize(
    ("row", "field"),
    [
        ({}, "price_usd"),
        ({"price_usd": True}, "price_usd"),
        ({"price_usd": [1]}, "price_usd"),
        ({"price_usd": {}}, "price_usd"),
        *[({"price_usd": 1, "decimals": n}, "decimals") for n in (-1, 39, "39", "100", "-1", 6.5, "six", True)],
        ({"price_usd": 1, "address": "another"}, "address"),
    ],
)
def test_a_changed_contract_is_not_read_as_no_price(row: dict[str, JSON], field: str) -> None:
    """A missing or renamed field, another type or another token is malformed: never silently "unpriced"."""
    with pytest.raises(MalformedBody, match=f"^{field}: "):
        tenero.token_price({"data": {"address": SBTC, **row}}, SBTC, SBTC)
