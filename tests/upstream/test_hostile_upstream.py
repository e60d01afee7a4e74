"""Whatever a malicious upstream sends ends as an answer's class: no exception, no leaked key, bounded memory."""

import copy
import json
import tracemalloc
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.testing.virtual_time import run_virtual
from support.examples import SBTC, TXID, WALLET
from support.scripted_fetch import example
from support.upstreams import KEY, Wired, read_transaction, wired_hiro
from tocsin.errors import FetchFailed, FetchTimeout, FetchTooLarge
from tocsin.fetch import FetchResponse
from tocsin.upstream import hiro_parse
from tocsin.upstream.answer import Answer, Failure, NotFound, Ok
from tocsin.upstream.tenero import ListedPrices

ANSWERS: tuple[type, ...] = (Ok, NotFound, *get_args(Failure))
HIRO_EXAMPLES = [
    "hiro/v3_principal_transactions_synthetic",
    "hiro/swap_simple_synthetic",
    "hiro/v3_principal_balance_changes_synthetic",
    "hiro/v1_tx_multiple",
    "hiro/pending_synthetic",
]
LONG_ROUTE = hiro_parse.with_events_v1(
    {**example("hiro/swap_simple_synthetic")["body"], "event_count": 250}, 2_000_000_000
)
TENERO_EXAMPLES = ["tenero/token", "tenero/tokens_list_page"]

texts = st.text(max_size=12) | st.sampled_from(
    ["", "\x00", "\x1b[2J", "\u202e", "NaN", "1e999", "9" * 5000, "-1", TXID, KEY, "stx", "ft_asset", "mint"]
)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([10**30, -(10**30), 2**63, float("nan"), float("inf")])
    | st.floats()
    | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
headers = st.dictionaries(
    st.sampled_from(
        [
            "retry-after",
            "date",
            "etag",
            "warning",
            "cf-ray",
            "location",
            "x-ratelimit-type",
            *(
                f"x-ratelimit-{kind}-stacks-{window}"
                for kind in ("limit", "remaining")
                for window in ("second", "month")
            ),
            "x-ratelimit-minute-remaining",
            "x-ratelimit-month-remaining",
        ]
    ),
    texts
    | st.integers(-5, 10**12).map(str)
    | st.sampled_from(
        ["https://evil.test/", "//evil.test", "/x", "http://[", "Thu, 32 May 2026 25:61:00 GMT", "299 x"]
    ),
    max_size=6,
)
statuses = st.sampled_from([200, 200, 200, 304, 302, 400, 401, 404, 410, 429, 500, 0, 999])


def spoil(body: Any, where: list[int], value: Any) -> Any:
    """Replace the part of `body` that the numbers lead to."""
    if not where or not isinstance(body, dict | list) or not body:
        return value
    keys = list(body) if isinstance(body, dict) else list(range(len(body)))
    key = keys[where[0] % len(keys)]
    if isinstance(body, dict) and where[0] % 7 == 6:
        del body[key]
    else:
        body[key] = spoil(body[key], where[1:], value)
    return body


bodies = st.one_of(
    st.binary(max_size=60),
    values.map(lambda value: json.dumps(value).encode()),
    st.builds(
        lambda name, places: json.dumps(_spoiled(name, places)).encode(),
        st.sampled_from(HIRO_EXAMPLES + TENERO_EXAMPLES),
        st.lists(st.tuples(st.lists(st.integers(0, 40), max_size=7), values), min_size=1, max_size=3),
    ),
)


def _spoiled(name: str, places: list[tuple[list[int], Any]]) -> Any:
    body = copy.deepcopy(example(name)["body"])
    for where, value in places:
        body = spoil(body, where, value)
    return body


answers = st.builds(FetchResponse, statuses, headers, bodies)
errors = st.sampled_from(
    [FetchTimeout("t"), FetchFailed("\x1b" + KEY), FetchTooLarge("big", 429, {"retry-after": KEY}, KEY.encode())]
)


async def ask_everything(wired: Wired) -> list[Answer[object] | ListedPrices]:
    """Every method of both clients against this upstream."""
    hiro, tenero, log = wired.hiro, wired.tenero, wired.log
    return [
        await wired.client.get("/x", read_transaction, wired.request()),
        await hiro.transactions_with_events([TXID, "ab" * 32], wired.request()),
        await hiro.all_events([LONG_ROUTE], wired.request()),
        await hiro.principal_transactions(WALLET, wired.request()),
        await hiro.balance_changes(WALLET, [TXID], wired.request()),
        await tenero.fetch_token_price_usd("stx", log),
        await tenero.listed_prices(["stx", SBTC], wired.request(), 2),
    ]


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(played=st.lists(answers | errors, min_size=1, max_size=4))
def test_every_input_ends_as_an_answer(played: list[FetchResponse | Exception]) -> None:
    """Wrong types anywhere, cut and nested bodies, odd headers: an `Answer`, and a clean log."""

    async def play() -> None:
        count = 0

        def serve(_: object) -> FetchResponse:
            nonlocal count
            count += 1
            answer = played[count % len(played)]
            if isinstance(answer, Exception):
                raise answer
            return answer

        wired = wired_hiro(serve)
        for result in await ask_everything(wired):
            if isinstance(result, ListedPrices):
                assert len(result.prices) + len(result.missing) == 2
                assert all(price.price_usd is None or price.price_usd > 0 for price in result.prices.values())
            else:
                assert isinstance(result, ANSWERS)
        for request in wired.fetch.requests:
            assert request.url.startswith("https://hiro.test/")
        for line in wired.log.lines:
            json.dumps(line.fields)
            shown = repr(line.fields)
            assert KEY not in shown
            assert all(c.isprintable() for value in line.fields.values() for c in str(value))
        assert wired.limiter.status().in_flight == 0

    run_virtual(play())


CAP = 4 * 1024 * 1024
SMILE = "\U0001f600"
NASTY = {
    "many small lists": b"[" + b"[]," * (CAP // 3 - 1) + b"[]]",
    "many small numbers": b"[" + b"1," * (CAP // 2 - 2) + b"1]",
    "just below the count": b"[" + b"{}," * 90_000 + b"{}]" + b" " * (CAP - 300_000),
    "deep lists": b"[" * CAP,
    "deep objects": b'{"a":' * 150_000,
    "one wide text": b'{"a":"' + SMILE.encode() + b"x" * (CAP - 20) + b'"}',
    "one endless number": b"9" * CAP,
    "a text for every field": json.dumps({"tx_id": "x" * (CAP - 100)}).encode(),
    "zeros": b"\0" * CAP,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", NASTY)
@pytest.mark.parametrize("status", [200, 404, 400, 500])
async def test_memory_stays_within_a_bound(name: str, status: int) -> None:
    """The worst bodies of the allowed size cost a fixed multiple of it, and end as an answer."""
    body = NASTY[name]
    assert len(body) <= CAP
    wired = wired_hiro(lambda _: FetchResponse(status, {}, body))
    tracemalloc.start()
    try:
        answer = await wired.client.get("/x", read_transaction, wired.task(retries_max=0))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert isinstance(answer, ANSWERS)
    assert not isinstance(answer, Ok)
    assert peak <= 12 * CAP
    assert len(repr(answer)) + sum(len(repr(line)) for line in wired.log.lines) <= 5_000
