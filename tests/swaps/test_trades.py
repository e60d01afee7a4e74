"""What an agent sees of its trades: pages that neither skip nor repeat, counts, and refusals."""

from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import UsageError
from holdfast.types import Database
from stacks_simulator.addresses import address_of
from support.competition import open_world, trading
from support.local_store import open_competition
from tocsin.errors import RequestRefused
from tocsin.swaps import trades
from tocsin.swaps.trades import check_address, trade_counts, trades_of
from tocsin.swaps.types import TradeCounts, TradePage
from tocsin.web.competition import CompetitionRoutes
from tocsin.web.parameters import parameters

NOW = 1_778_700_600_000
WALLET, OTHER = address_of("wallet"), address_of("other")
_REFUSAL = """
INSERT INTO refusals (txid, code, reason, sender, burn_block_time, block_height, block_hash, source, allowlist_version,
  refused_at) VALUES (?, ?, 'why', ?, 1, 1, '0x', 'cron', '1', ?)"""


async def test_pages_hold_every_swap_once_newest_first(tmp_path: Path) -> None:
    """Whatever the page size, the pages add up to the wallet's swaps, including those of equal time."""
    async with trading(tmp_path) as (world, chain):
        wallet = chain.wallets[0].address
        sent = [chain.swap(sender) for sender in (wallet, chain.wallets[1].address) for _ in range(7)]
        chain.mine()
        for tx in sent:
            await world.submit(tx.tx_id)
        expected = sorted((tx.tx_id for tx in sent[:7]), reverse=True)
        for limit in (1, 3, 7, 200):
            txids: list[str] = []
            cursor = None
            while True:
                page = await trades_of(world.db, wallet, limit=limit, after=cursor)
                assert len(page.trades) <= limit
                txids += [trade.txid for trade in page.trades]
                assert {trade.block_time for trade in page.trades} == {chain.blocks[-1].time_s}
                cursor = page.next_cursor
                if cursor is None:
                    break
            assert txids == expected

        counts = await trade_counts(world.db, wallet)

    burn_time = sent[0].block.burn_time_s if sent[0].block else 0
    assert counts == TradeCounts(
        address=wallet,
        agent_id=1,
        registered=True,
        trade_count=7,
        verified_trade_count=7,
        first_trade_at=burn_time,
        last_trade_at=burn_time,
    )


async def test_an_unknown_wallet_has_nothing(tmp_path: Path) -> None:
    """Its counts are zeros, it is not registered, and its list is empty."""
    async with open_world(tmp_path) as world:
        stranger = world.simulator.chain.strangers[0].address
        counts = await trade_counts(world.db, stranger)
        page = await trades_of(world.db, stranger)

    assert (counts.registered, counts.trade_count, counts.agent_id) == (False, 0, None)
    assert page == TradePage(trades=[], next_cursor=None)


def test_what_is_not_an_address_is_refused() -> None:
    """The sentence says what an address looks like. A typing error is reported, not answered with zeros."""
    short = "SPG4A1SAV4F6E9GJYPNVH1NDC28STBW9DRHBN37"  # of 39 characters
    check_address(short)
    with pytest.raises(UsageError, match="has a wrong checksum"):
        check_address(short.replace("V4F6", "VF46"))
    for wrong in ("", "SP", "bc1qxy", "ST" + "0" * 39, "SP" + "a" * 39, "SP" + "0" * 41):
        with pytest.raises(UsageError, match="SP or SM"):
            check_address(wrong)


async def test_what_is_not_a_cursor_is_refused(tmp_path: Path) -> None:
    """Only the cursor of a page leads to the next one."""
    no_position = ("bnVsbA", "W10", "eyJ0IjoxfQ", "eyJ0IjoiMSIsIngiOiIweCJ9", "eyJ0IjoxLCJ4IjoiMHgifQ")
    async with open_competition(tmp_path) as db:
        for cursor in ("", "x", "====", "é", "A" * 100_000, *no_position):
            with pytest.raises(UsageError, match="next_cursor"):
                await trades_of(db, WALLET, after=cursor)


# Cursors


@pytest.mark.parametrize("value", [[], ["pnl:desc", 50], {"t": 1, "x": "0x"}, "ü?>~", None, 7])
def test_a_cursor_comes_back_as_it_went(value: Any) -> None:
    """In letters that an address may have."""
    text = trades.write(value)

    assert trades.read(text) == value
    assert "=" not in text
    assert text.replace("-", "").replace("_", "").isalnum()


@pytest.mark.parametrize("text", ["", "!", "W10=x", "W1!0", "\u00fc", "W1 0", "x" * 5_000, "W" * 401])
def test_anything_else_is_no_cursor(text: str) -> None:
    """It is not an error: callers may send anything."""
    assert trades.read(text) is None


def test_a_long_cursor_is_read_up_to_its_bound() -> None:
    """Four hundred characters."""
    fits, longer = trades.write("x" * 298), trades.write("x" * 299)

    assert (len(fits), trades.read(fits)) == (400, "x" * 298)
    assert (len(longer) > 400, trades.read(longer)) == (True, None)


# Refusals


async def refuse(db: Database, number: int, code: str = "tx_failed", sender: str = WALLET, at: int = NOW) -> None:
    await db.prepare(_REFUSAL).bind(f"0x{number:064x}", code, sender, at).run()


def numbers(page: Any) -> list[int]:
    return [int(each.txid, 16) for each in page.refusals]


async def test_refusals_are_shown_newest_first_page_by_page(tmp_path: Path) -> None:
    """Each once, also those of one millisecond; of a code or of a sender."""
    async with open_competition(tmp_path) as db:
        for number in range(1, 8):
            code = "malformed_tx" if number % 3 == 0 else "tx_failed"
            await refuse(db, number, code, OTHER if number == 5 else WALLET, NOW + number // 3)
        pages, cursor = list[list[int]](), None
        while True:
            page = await trades.refusals(db, limit=3, after=cursor)
            pages.append(numbers(page))
            cursor = page.next
            if cursor is None:
                break
        of_code = await trades.refusals(db, code="malformed_tx", limit=1)
        rest = await trades.refusals(db, code="malformed_tx", limit=1, after=of_code.next)
        of_sender = await trades.refusals(db, sender=OTHER)
        exact = await trades.refusals(db, limit=7)

    assert pages == [[7, 6, 5], [4, 3, 2], [1]]
    assert (numbers(of_code), numbers(rest), rest.next) == ([6], [3], None)
    assert (numbers(of_sender), exact.next) == ([5], None)
    assert exact.refusals[0].sentence.startswith("The transaction did not succeed")


async def test_a_question_for_refusals_that_cannot_be_answered_says_what_can(tmp_path: Path) -> None:
    """Codes that are stored, one filter at a time, and cursors of ours."""
    async with open_competition(tmp_path) as db:
        with pytest.raises(UsageError, match="Give code or sender, not both"):
            await trades.refusals(db, code="tx_failed", sender=WALLET)
        for code in ("pending", "x" * 50):
            with pytest.raises(RequestRefused, match=rf"^code is one of .*, not {code[:40]!r}\.$"):
                parameters(CompetitionRoutes.refusals)["code"].read("code", code)
        for cursor in ("x", trades.write({"t": -1, "x": f"0x{1:064x}"}), trades.write({"t": 1, "x": "0xA"})):
            with pytest.raises(UsageError):
                await trades.refusals(db, after=cursor)
        assert (await trades.refusals(db)).refusals == []
