"""News: what is told since a number, and how many are kept."""

from pathlib import Path

from stacks_simulator.addresses import address_of
from support.history_rows import PlainSwap, add_refusal, add_swaps, remove_swap, traders_in
from support.local_store import open_competition
from tocsin.board.news import newest_id, read_news, trim_news

WALLET = address_of("wallet")


async def test_news_are_read_from_a_number_on(tmp_path: Path) -> None:
    """In order, two hundred at once; the number to continue from is that of the last."""
    async with open_competition(tmp_path) as db:
        before = await newest_id(db)
        for number in range(1, 203):
            await add_refusal(db, number, WALLET, "tx_failed")
        first, after_first = await read_news(db, 0)
        second, after_second = await read_news(db, after_first)
        none, after_none = await read_news(db, after_second)
        newest = await newest_id(db)

    assert before == 0
    assert [int(each.txid or "", 16) for each in (*first, *second)] == list(range(1, 203))
    assert (len(first), after_first, after_second) == (200, 200, 202)
    assert (none, after_none, newest) == ([], 202, 202)
    assert (first[0].kind, first[0].code, first[0].reason, first[0].trade) == ("refused", "tx_failed", "why", None)


async def test_a_swap_that_moved_is_no_news_and_one_that_came_and_went_neither(tmp_path: Path) -> None:
    """Within one reading; what counts in the end and did not before is."""
    first, second, third = (PlainSwap(number, WALLET, "stx", 5, "b", 7) for number in (1, 2, 3))
    async with traders_in(tmp_path, (WALLET, 1)) as db:
        await add_swaps(db, [first])
        known = await newest_id(db)
        await remove_swap(db, first)
        await add_swaps(db, [first, second])
        await remove_swap(db, second)
        await add_swaps(db, [third])
        told, _ = await read_news(db, known)

    assert [(each.kind, each.txid) for each in told] == [("counted", third.txid)]
    assert told[0].trade is not None
    assert (told[0].trade.amount_in, told[0].address) == ("5", WALLET)


async def test_the_newest_ten_thousand_news_are_kept(tmp_path: Path) -> None:
    """Older ones are left out, and counted."""
    async with open_competition(tmp_path) as db:
        await db.prepare("INSERT INTO news (id, kind, txid, sender) VALUES (1, 'refused', 'a', 'b')").run()
        await db.prepare("INSERT INTO news (id, kind, txid, sender) VALUES (2, 'refused', 'a', 'b')").run()
        await db.prepare("INSERT INTO news (id, kind, txid, sender) VALUES (10001, 'refused', 'a', 'b')").run()
        removed = await trim_news(db)
        left = [each["id"] for each in (await db.prepare("SELECT id FROM news ORDER BY id").all()).results]

    assert (removed, left) == (1, [2, 10_001])
