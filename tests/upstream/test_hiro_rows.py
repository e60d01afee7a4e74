"""Rows of Hiro that break its contract: they are left out and named, and the others are read."""

import json
from typing import Any

import pytest

from holdfast_testing.virtual_time import START_MS
from support.example_chain import TXID, WALLET
from support.scripted_fetch import example, response
from support.upstreams import wired_hiro
from tocsin.upstream.answer import Malformed, Ok

NOW_S = START_MS // 1000
NOT_TIMES = [10**15, START_MS, NOW_S + 86_401, 0, 1_778_700, -1, 1e9, "1778700600", None]


@pytest.mark.parametrize("time", NOT_TIMES)
async def test_a_row_with_an_impossible_time_does_not_hide_the_others(time: Any) -> None:
    """Milliseconds, next year, 1970: this row is named as unreadable, the others are read, a line is logged."""
    body = example("hiro/v3_principal_transactions_synthetic")["body"]
    good = body["results"][0]
    bad = json.loads(json.dumps(good))
    bad["transaction"] |= {"tx_id": "0x" + "b" * 64, "bitcoin_block": {"height": 1, "time": time}}
    wired = wired_hiro(lambda _: response({**body, "results": [bad, good]}))

    answer = await wired.hiro.principal_transactions(WALLET, wired.task())

    assert isinstance(answer, Ok)
    assert [item.tx_id for item in answer.value.items] == [TXID]
    assert answer.value.unreadable == ("0x" + "b" * 64,)
    (line,) = wired.log.of("upstream.rows_refused")
    assert (line.fields["upstream"], line.fields["count"]) == ("hiro", 1)


@pytest.mark.parametrize("time", NOT_TIMES)
async def test_a_transaction_with_an_impossible_time_is_unknown(time: Any) -> None:
    """Neither there nor "not found"; alone it is a malformed answer."""
    body, other = example("hiro/swap_simple_synthetic")["body"], "0x" + "b" * 64
    rows = {TXID: {**body, "burn_block_time": NOW_S + 86_400}, other: {**body, "tx_id": other, "burn_block_time": time}}
    wired = wired_hiro(lambda _: response({key: {"found": True, "result": row} for key, row in rows.items()}))

    answer = await wired.hiro.transactions_with_events([TXID, other], wired.task())
    alone = await wired.hiro.transactions_with_events([other], wired.task())

    assert isinstance(answer, Ok)
    assert list(answer.value) == [TXID]
    assert isinstance(alone, Malformed)
    assert len(wired.log.of("upstream.rows_refused")) == 1


async def test_a_row_whose_id_cannot_be_read_spoils_the_page() -> None:
    """It may be any transaction, so nothing would ask for it again."""
    body = example("hiro/v3_principal_transactions_synthetic")["body"]
    bad = json.loads(json.dumps(body["results"][0]))
    bad["transaction"]["tx_id"] = "what"
    wired = wired_hiro(lambda _: response({**body, "results": [body["results"][0], bad]}))

    assert isinstance(await wired.hiro.principal_transactions(WALLET, wired.task()), Malformed)


@pytest.mark.parametrize(("field", "value"), [("height", 10**9 + 1), ("tx_index", 10**15), ("height", -1)])
async def test_a_row_with_an_impossible_height_or_index_is_left_out(field: str, value: int) -> None:
    """A height of 10^15 would make every block look deep."""
    body = example("hiro/v3_principal_transactions_synthetic")["body"]
    bad = json.loads(json.dumps(body["results"][0]))
    bad["transaction"]["tx_id"] = "0x" + "b" * 64
    bad["transaction"]["block"][field] = value
    wired = wired_hiro(lambda _: response({**body, "results": [bad, body["results"][0]]}))

    answer = await wired.hiro.principal_transactions(WALLET, wired.task())

    assert isinstance(answer, Ok)
    assert answer.value.unreadable == ("0x" + "b" * 64,)
