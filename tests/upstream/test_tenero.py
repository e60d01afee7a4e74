"""Tenero: the list first, single calls for tokens it lacks, and no price that is not one."""

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
from tocsin.upstream.answer import BadRequest, Limited, Malformed, NotFound, Ok, Unavailable
from tocsin.upstream.tenero import token_address

SBTC_ID = f"{SBTC}::sbtc-token"
STSTX_ID = "SP4SZE494VC2YC5JYG7AYFQ44F5Q4PYV7DVMDPBG.ststx-token::ststx"
OTHERS = [f"{address_of('deployer')}.token-{n}::token" for n in range(5)]
MANY = [f"{address_of('deployer')}.token-{n}::token" for n in range(20)]


def listed(*pages: list[str]) -> Callable[[Request], FetchResponse]:
    """A Tenero whose list has these addresses on its pages, and which has every other token too."""

    def serve(request: Request) -> FetchResponse:
        if "/tokens?" not in request.url:
            address = request.url.rsplit("/", 1)[1]
            return response({"data": {"address": address, "price_usd": "7", "decimals": 3}})
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

    result = await wired.tenero.prices(["stx", SBTC_ID], wired.task())

    assert result.prices == {
        "stx": TokenPrice("stx", 0.85, 6, 1.0, 1.0),
        SBTC_ID: TokenPrice(SBTC_ID, 103420.5, 8, 1.0, 1.0),
    }
    assert (result.failures, result.unasked) == ({}, ())
    assert paths(wired.fetch.requests) == ["/tokens?limit=100"]


async def test_what_the_list_lacks_is_asked_for_one_by_one() -> None:
    """Pages in order, then single tokens in the order given, both bounded."""
    wired = wired_tenero(listed([token_address(OTHERS[0])], [token_address(OTHERS[1])], ["x"], ["y"]))

    result = await wired.tenero.prices(OTHERS, wired.task(), pages_max=3, singles_max=2)

    assert list(result.prices) == OTHERS[:4]
    assert result.prices[OTHERS[2]] == TokenPrice(OTHERS[2], 7.0, 3)
    assert result.unasked == (OTHERS[4],)
    assert paths(wired.fetch.requests) == [
        "/tokens?limit=100",
        "/tokens?limit=100&cursor=1",
        "/tokens?limit=100&cursor=2",
        *(f"/tokens/{token_address(token)}" for token in OTHERS[2:4]),
    ]


@pytest.mark.parametrize("status", [429, 500, 401, 404])
async def test_a_failed_list_is_not_replaced_by_single_calls(status: int) -> None:
    """That would multiply the load on a failing upstream; every token has the list's failure."""
    wired = wired_tenero(lambda _: response({}, status=status))

    result = await wired.tenero.prices(OTHERS, wired.task(retries_max=0))

    assert result.prices == {}
    assert sorted(result.failures) == OTHERS
    assert len(wired.fetch.requests) == 1


async def test_a_second_page_that_fails_keeps_what_the_first_gave() -> None:
    """Found is found; the others have the failure."""
    serve = listed([token_address(OTHERS[0])], ["x"])
    wired = wired_tenero(lambda r: response({}, status=500) if "cursor" in r.url else serve(r))

    result = await wired.tenero.prices(OTHERS, wired.task())

    assert list(result.prices) == [OTHERS[0]]
    assert {type(failure) for failure in result.failures.values()} == {Unavailable}


async def test_a_limit_in_the_middle_ends_the_refresh() -> None:
    """After a 429 no further token is requested, and none is forgotten."""
    serve = listed(["x"])

    def limited(request: Request) -> FetchResponse:
        if token_address(OTHERS[1]) in request.url:
            return example_response("tenero/month_429")
        return serve(request)

    wired = wired_tenero(limited)
    result = await wired.tenero.prices(OTHERS, wired.task(retries_max=0))

    assert list(result.prices) == OTHERS[:1]
    assert sorted(result.failures) == OTHERS[1:]
    assert {type(failure) for failure in result.failures.values()} == {Limited}
    assert result.unasked == ()
    assert wired.client.limits.month.remaining == 0


async def test_one_broken_token_does_not_stop_the_others() -> None:
    """A malformed single answer fails that token alone."""
    serve = listed(["x"])

    def broken(request: Request) -> FetchResponse:
        return response("{}") if token_address(OTHERS[1]) in request.url else serve(request)

    wired = wired_tenero(broken)
    result = await wired.tenero.prices(OTHERS, wired.task())

    assert [type(failure) for failure in result.failures.values()] == [Malformed]
    assert len(result.prices) == 4


async def test_bad_rows_of_the_list_are_logged() -> None:
    """One line with their number and the first reason."""
    body = example("tenero/tokens_list_page")["body"]
    body["data"]["rows"][0]["price_usd"] = {}
    wired = wired_tenero(lambda _: response(body))
    await wired.tenero.prices(["stx"], wired.task())

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
    result = await wired.tenero.prices([], wired.task())

    assert (result.prices, result.failures, result.unasked) == ({}, {}, ())
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
        session = wired.task(retries_max=0)
        result = await wired.tenero.prices([wanted], session, pages_max=pages_max, singles_max=0)
        return wanted in result.unlisted

    assert await unlisted(serve)
    assert await unlisted(with_row({"address": "y", "price_usd": {}, "decimals": 6}))
    assert not await unlisted(serve, pages_max=0)
    assert not await unlisted(lambda _: response({}, status=500))
    two = listed(["x"], ["y"])
    assert not await unlisted(lambda r: response({}, status=500) if "cursor" in r.url else two(r))
    assert not await unlisted(with_row(own_row))
    assert not await unlisted(with_row({"price_usd": 1}))


async def test_pages_that_were_read_are_counted() -> None:
    """And no more are read than were allowed, nor after the last one."""
    for pages_max, expected in ((0, 0), (1, 1), (2, 2), (9, 3)):
        wired = wired_tenero(listed(["x"], ["y"], ["z"]))
        result = await wired.tenero.prices([OTHERS[0]], wired.task(), pages_max=pages_max, singles_max=0)
        assert (result.pages, len(wired.fetch.requests)) == (expected, expected)
        assert result.unasked == (OTHERS[0],)


async def test_three_pages_and_ten_single_tokens_are_asked_for() -> None:
    """If nobody says otherwise."""

    def serve(request: Request) -> FetchResponse:
        if "/tokens?" in request.url:
            page = int(request.url.partition("cursor=")[2] or 0)
            row = {"address": f"x{page}", "price_usd": 1, "decimals": 6}
            return response({"data": {"rows": [row], "next": str(page + 1)}})
        return response({"data": {"address": request.url.rpartition("/")[2], "price_usd": 7, "decimals": 3}})

    wired = wired_tenero(serve)
    result = await wired.tenero.prices(MANY, wired.task())

    assert (result.pages, len(result.prices), len(result.unasked)) == (3, 10, 10)
    assert len(wired.fetch.requests) == 13
    assert result.seen_at == dict.fromkeys(MANY[:10], START_MS)


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


@pytest.mark.parametrize(
    ("price", "expected"),
    [
        (1, 1.0),
        ("0.5", 0.5),
        ("1e-9", 1e-9),
        (1e-18, 1e-18),
        (9.9e-19, None),
        ("1e-300", None),
        (5e-324, None),
        (1e12, 1e12),
        (0, None),
        ("0", None),
        (-1, None),
        ("-1", None),
        (None, None),
        ("", None),
        ("NaN", None),
        ("n/a", None),
        ("0x10", None),
        ("1_000", None),
        (" 1", None),
        ("1e999", None),
        (float("nan"), None),
        (float("inf"), None),
        (1e300, None),
        ("1e13", None),
        (10**400, None),
        ("9" * 40, None),
        ("9" * 41, None),
        (1.1e12, None),
        ("1e-3", 0.001),
        ("1E-3", 0.001),
        ("1e-999", None),
        ("1e1000", None),
        ("9e-19", None),
        ("1e12", 1e12),
        ("1.1e12", None),
        ("+1", None),
        ("1.", None),
        (".5", None),
    ],
)
def test_a_price_is_finite_and_above_zero_or_none(price: JSON, expected: float | None) -> None:
    """Never an error for a missing price, never a price that is not one."""
    body: JSON = {"data": {"address": SBTC, "price_usd": price, "decimals": None}}

    assert tenero.token_price(body, SBTC, SBTC) == TokenPrice(SBTC, expected, None)


@pytest.mark.parametrize(
    ("told", "known"),
    [
        (250_000, 250_000.0),
        ("1234.5", 1234.5),
        (0, 0.0),
        (1e15, 1e15),
        (1.1e15, None),
        (10**400, None),
        ("1e999", None),
        (-1, None),
        (float("nan"), None),
        (float("inf"), None),
        (True, None),
        ("n/a", None),
        ([], None),
        ({}, None),
        (None, None),
        ("0", 0.0),
        ("1.1e15", None),
        ("x", None),
    ],
)
def test_what_a_pool_holds_is_a_number_or_not_known(told: JSON, known: float | None) -> None:
    """Liquidity and the volume of a day come with the price, and never make it unreadable."""
    row: dict[str, JSON] = {
        "address": SBTC,
        "price_usd": 2,
        "total_liquidity_usd": told,
        "metrics": {"volume_1d_usd": told},
    }

    assert tenero.token_price({"data": row}, SBTC, SBTC) == TokenPrice(SBTC, 2.0, None, known, known)
    assert tenero.list_page({"data": {"rows": [row]}}).prices[SBTC].volume_usd == known
    assert tenero.token_price({"data": {**row, "metrics": 5}}, SBTC, SBTC).volume_usd is None


@pytest.mark.parametrize(
    ("row", "field"),
    [
        ({"price_usd": True}, "price_usd"),
        ({"price_usd": [1]}, "price_usd"),
        ({"price_usd": {}}, "price_usd"),
        ({}, "price_usd"),
        ({"price_usd": 1, "decimals": -1}, "decimals"),
        ({"price_usd": 1, "decimals": 39}, "decimals"),
        ({"price_usd": 1, "decimals": "39"}, "decimals"),
        ({"price_usd": 1, "decimals": "100"}, "decimals"),
        ({"price_usd": 1, "decimals": "-1"}, "decimals"),
        ({"price_usd": 1, "decimals": 6.5}, "decimals"),
        ({"price_usd": 1, "decimals": "six"}, "decimals"),
        ({"price_usd": 1, "decimals": True}, "decimals"),
        ({"price_usd": 1, "address": "another"}, "address"),
    ],
)
def test_a_changed_contract_is_not_read_as_no_price(row: dict[str, JSON], field: str) -> None:
    """A missing or renamed field, another type or another token is malformed: never silently "unpriced"."""
    with pytest.raises(MalformedBody, match=f"^{field}: "):
        tenero.token_price({"data": {"address": SBTC, **row}}, SBTC, SBTC)
