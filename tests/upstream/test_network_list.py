"""Hiro's list of all transactions: rows, nonces, length, and the age of its newest block."""

import pytest

from support.example_chain import SWAP, TXID
from support.scripted_fetch import example, response
from support.upstreams import wired_hiro
from tocsin.fetch import FetchResponse
from tocsin.stacks import AccountNonce
from tocsin.upstream.answer import BadRequest, Gone, Malformed, Ok

BODY = example("hiro/v3_transactions_synthetic")["body"]
WALLET = "SP4DXVEC16FS6QR7RBKGWZYJKTXPC81W49W0ATJE"
SPONSOR = "SP2J6ZY48GV1EZ5V2V5RB9MP66SW86PYKKNRV9EJ7"


def page(**changes: object) -> FetchResponse:
    return FetchResponse(200, {"etag": '"0xa2a2"'}, response({**BODY, **changes}).body)


async def test_a_page_has_rows_nonces_and_the_length_of_the_list() -> None:
    """Rows of every kind are read; a sponsored one uses two nonces."""
    wired = wired_hiro(lambda _: page())

    answer = await wired.hiro.network_transactions(wired.task(), cursor="7929497:2147483647:3")

    assert isinstance(answer, Ok)
    listed = answer.value
    assert [row.type for row in listed.items] == ["contract_call", "contract_call", "tenure_change"]
    assert listed.items[0].tx_id == TXID == SWAP.tx_id
    assert listed.items[0].nonces == (AccountNonce(WALLET, 12),)
    assert listed.items[1].nonces == (AccountNonce(WALLET, 12), AccountNonce(SPONSOR, 7))
    assert (listed.total, listed.next_cursor) == (13_579_246, "7929496:2147483647:9")
    assert listed.newest_s == 1_778_787_000  # of the Stacks block; that of Bitcoin is 1,778,786,400
    (request,) = wired.fetch.requests
    assert request.url.endswith("/extended/v3/transactions?limit=50&cursor=7929497%3A2147483647%3A3")
    assert "if-none-match" not in request.headers


async def test_no_etag_is_sent_back() -> None:
    """A list whose ETag is stuck would hide everything, and a 304 costs as much as the page."""
    wired = wired_hiro(lambda _: page())

    for _ in range(2):
        assert isinstance(await wired.hiro.network_transactions(wired.task()), Ok)

    assert ["if-none-match" in request.headers for request in wired.fetch.requests] == [False, False]


async def test_a_304_that_nobody_asked_for_is_no_answer() -> None:
    """Read as "unchanged" it would hide everything."""
    wired = wired_hiro(lambda _: FetchResponse(304, {}, b""))

    assert isinstance(await wired.hiro.network_transactions(wired.task()), Malformed)


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
    wired = wired_hiro(lambda _: page(results=rows))

    answer = await wired.hiro.network_transactions(wired.task())

    if newest_s is None:
        assert answer == Malformed("hiro broke its contract: results: no row has the time of its block")
    else:
        assert isinstance(answer, Ok)
        assert answer.value.newest_s == newest_s


async def test_an_empty_list_has_no_newest_block() -> None:
    wired = wired_hiro(lambda _: page(results=[], total=0, cursor={"next": None, "previous": None, "current": None}))

    answer = await wired.hiro.network_transactions(wired.task())

    assert isinstance(answer, Ok)
    assert (answer.value.items, answer.value.newest_s) == ((), None)


async def test_a_server_without_the_list_says_so() -> None:
    """An unknown route and one that was switched off are told apart from an empty list."""
    unknown = wired_hiro(lambda _: response({"message": "Route GET:/extended/v3/transactions not found"}, status=404))
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
    assert len(answer.value.items) == 2
    assert answer.value.unreadable == ("0x" + "5a" * 32,)
    assert wired.log.named("upstream.rows_refused")
