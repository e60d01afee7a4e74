"""What an agent sees of its trades: pages that neither skip nor repeat, and counts."""

from pathlib import Path

import pytest

from holdfast.errors import UsageError
from support.competition import open_world
from tocsin.swaps.submit import SubmissionLane, submit
from tocsin.swaps.trades import trade_counts, trades_of
from tocsin.swaps.types import TradeCounts, TradePage


async def test_pages_hold_every_swap_once_newest_first(tmp_path: Path) -> None:
    """Whatever the page size, the pages add up to the wallet's swaps, including those of equal time."""
    async with open_world(tmp_path) as world:
        chain = world.simulator.chain
        wallet = chain.wallets[0].address
        sent = [chain.swap(sender) for sender in (wallet, chain.wallets[1].address) for _ in range(7)]
        chain.mine()
        for tx in sent:
            await submit(world.request(), world.rules, {"txid": tx.tx_id}, SubmissionLane())
        expected = sorted((tx.tx_id for tx in sent[:7]), reverse=True)
        for limit in (1, 3, 7, 200):
            txids: list[str] = []
            cursor = None
            while True:
                page = await trades_of(world.db, wallet, limit=limit, after=cursor)
                assert len(page.trades) <= limit
                txids += [trade.txid for trade in page.trades]
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


async def test_an_address_of_39_characters_is_one_and_a_wrong_character_is_told(tmp_path: Path) -> None:
    """The checksum is part of the address: a typing error is reported, not answered with zeros."""
    short = "SPG4A1SAV4F6E9GJYPNVH1NDC28STBW9DRHBN37"
    async with open_world(tmp_path) as world:
        assert (await trade_counts(world.db, short)).trade_count == 0
        assert (await trades_of(world.db, short)).trades == []
        with pytest.raises(UsageError, match="has a wrong checksum"):
            await trade_counts(world.db, short.replace("V4F6", "VF46"))


@pytest.mark.parametrize("address", ["", "SP", "bc1qxy", "ST" + "0" * 39, "SP" + "a" * 39, "SP" + "0" * 41])
async def test_what_is_not_an_address_is_refused(address: str, tmp_path: Path) -> None:
    """The sentence says what an address looks like."""
    async with open_world(tmp_path) as world:
        with pytest.raises(UsageError, match="SP or SM"):
            await trades_of(world.db, address)
        with pytest.raises(UsageError, match="SP or SM"):
            await trade_counts(world.db, address)


@pytest.mark.slow
@pytest.mark.parametrize(
    "cursor",
    [
        "",
        "x",
        "====",
        "é",
        "bnVsbA",
        "W10",
        "eyJ0IjoxfQ",
        "eyJ0IjoiMSIsIngiOiIweCJ9",
        "eyJ0IjoxLCJ4IjoiMHgifQ",
        "A" * 100_000,
    ],
)
async def test_what_is_not_a_cursor_is_refused(cursor: str, tmp_path: Path) -> None:
    """Only the cursor of a page leads to the next one."""
    async with open_world(tmp_path) as world:
        with pytest.raises(UsageError, match="next_cursor"):
            await trades_of(world.db, world.simulator.chain.wallets[0].address, after=cursor)


@pytest.mark.parametrize("limit", [0, -1, 201])
async def test_a_limit_out_of_range_is_refused(limit: int, tmp_path: Path) -> None:
    """A page has 1 to 200 rows."""
    async with open_world(tmp_path) as world:
        with pytest.raises(UsageError, match="limit is 1 to 200"):
            await trades_of(world.db, world.simulator.chain.wallets[0].address, limit=limit)
