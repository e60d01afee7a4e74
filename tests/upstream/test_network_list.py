"""Hiro's list of all transactions: rows, nonces, length, and requests that depend on its ETag."""

import pytest

from support.example_chain import SWAP, TXID
from support.scripted_fetch import example, response
from support.upstreams import wired_hiro
from tocsin.bindings import FetchResponse
from tocsin.chain_model import AccountNonce
from tocsin.upstream.answer import BadRequest, Gone, Malformed, Ok, Versioned

BODY = example("hiro/v3_transactions_synthetic")["body"]
WALLET = "SP4DXVEC16FS6QR7RBKGWZYJKTXPC81W49W0ATJE"
SPONSOR = "SP2J6ZY48GV1EZ5V2V5RB9MP66SW86PYKKNRV9EJ7"


def page(etag: str | None = '"0xa2a2"', **changes: object) -> FetchResponse:
    headers = {} if etag is None else {"etag": etag}
    return FetchResponse(200, headers, response({**BODY, **changes}).body)


async def test_a_page_has_rows_nonces_and_the_length_of_the_list() -> None:
    """Rows of every kind are read; a sponsored one uses two nonces."""
    wired = wired_hiro(lambda _: page())

    answer = await wired.hiro.network_transactions(wired.task(), cursor="7929497:2147483647:3")

    assert isinstance(answer, Ok)
    listed = answer.value.value
    assert listed is not None
    assert [row.type for row in listed.items] == ["contract_call", "contract_call", "tenure_change"]
    assert listed.items[0].tx_id == TXID == SWAP.tx_id
    assert listed.items[0].nonces == (AccountNonce(WALLET, 12),)
    assert listed.items[1].nonces == (AccountNonce(WALLET, 12), AccountNonce(SPONSOR, 7))
    assert (listed.total, listed.next_cursor) == (13_579_246, "7929496:2147483647:9")
    assert answer.value.etag == '"0xa2a2"'
    (request,) = wired.fetch.requests
    assert request.url.endswith("/extended/v3/transactions?limit=50&cursor=7929497%3A2147483647%3A3")
    assert "if-none-match" not in request.headers


async def test_an_unchanged_list_is_one_call_without_a_page() -> None:
    """The ETag is sent back, and a 304 is an answer."""
    wired = wired_hiro(lambda _: FetchResponse(304, {"etag": '"0xa2a2"'}, b""))

    answer = await wired.hiro.network_transactions(wired.task(), etag='"0xa2a2"')

    assert answer == Ok(Versioned(None, '"0xa2a2"'))
    assert [request.headers["if-none-match"] for request in wired.fetch.requests] == ['"0xa2a2"']


async def test_a_304_that_nobody_asked_for_is_no_answer() -> None:
    """Read as "unchanged" it would hide everything."""
    wired = wired_hiro(lambda _: FetchResponse(304, {}, b""))

    assert isinstance(await wired.hiro.network_transactions(wired.task()), Malformed)


@pytest.mark.parametrize("etag", [None, "", "no quotes", '"new\nline"', '"' + "a" * 300 + '"'])
async def test_an_etag_that_cannot_be_sent_back_is_not_kept(etag: str | None) -> None:
    """Then the whole page is asked for next time."""
    wired = wired_hiro(lambda _: page(etag))

    answer = await wired.hiro.network_transactions(wired.task())

    assert isinstance(answer, Ok)
    assert answer.value.etag is None


async def test_a_server_without_the_list_says_so() -> None:
    """An unknown route and one that was switched off are told apart from an empty list."""
    unknown = wired_hiro(
        lambda _: response({"message": "Route GET:/extended/v3/transactions not found"}, status=404)
    )
    gone = wired_hiro(lambda _: response({"error": "Gone"}, status=410))

    answer = await unknown.hiro.network_transactions(unknown.task())

    assert isinstance(answer, BadRequest)
    assert answer.status == 404
    assert isinstance(await gone.hiro.network_transactions(gone.task()), Gone)


async def test_a_row_that_cannot_be_read_is_named_and_hides_no_other() -> None:
    """It may be a swap, so its transaction is asked for."""
    broken = {**BODY["results"][1], "fee_rate": None}
    wired = wired_hiro(lambda _: page(results=[BODY["results"][0], broken, BODY["results"][2]]))

    answer = await wired.hiro.network_transactions(wired.task())

    assert isinstance(answer, Ok)
    assert answer.value.value is not None
    assert len(answer.value.value.items) == 2
    assert answer.value.value.unreadable == ("0x" + "5a" * 32,)
    assert wired.log.named("upstream.rows_refused")
