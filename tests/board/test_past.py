"""The board's data about the past: figures of periods, changes of rank, small curves."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from holdfast.types import Database
from holdfast_testing.stores import open_kv
from support.history_rows import PlainSwap, add_swaps, mark_excessive, traders_in
from support.local_store import open_competition
from support.pages_world import sample_row
from support.round_world import SetClock
from tocsin.board import history as agent_days
from tocsin.board.board import PeriodRows, PublishedBoard, publish, read_published
from tocsin.board.history import PAST_KEY, BoardPast, curves_at, is_outdated, past_at, with_past
from tocsin.board.types import BoardPeriod, BoardRow

HOUR_MS = 3_600_000
HOUR_S = 3_600
DAY_MS = 24 * HOUR_MS
NOW = 20_000 * DAY_MS + 14 * HOUR_MS + 25 * 60_000  # 14:25
HOUR = NOW // HOUR_MS * HOUR_MS
OLD, NEW = "SPOLD", "SPNEW"
COUNTED = ["stx", "x"]  # tokens
_VALUE = "INSERT INTO swap_values (txid, sender, given_micros, received_micros) VALUES (?, ?, ?, ?)"


def row(
    agent_id: int, wallets: Sequence[str], *, rank: int = 1, trades: int = 5, pnl: float | None, uncounted: int = 0
) -> BoardRow:
    return replace(
        sample_row(Random(agent_id), agent_id, NOW),
        erc8004_agent_id=agent_id,
        rank=rank,
        trade_count=trades,
        valued_trade_count=trades,
        pnl_usd=pnl,
        uncounted_trade_count=uncounted,
        capital_usd=200.0,
        pnl_at_trade_usd=3.0,
        volume_at_trade_usd=50.0,
        stx_address=wallets[0],
        wallets=list(wallets),
    )


async def swapped(db: Database, sender: str, *hours_ago: float, worth: int = 10) -> None:
    """Make swaps of this many dollars each, receiving 1 more."""
    taken = (await db.prepare("SELECT count(*) AS n FROM swaps").all()).results[0]["n"]
    swaps = [
        PlainSwap(taken + n, sender, "stx", 1, "x", 1, int(HOUR // 1000 - hours * HOUR_S))
        for n, hours in enumerate(hours_ago, 1)
    ]
    await add_swaps(db, swaps)
    values = [(swap.txid, sender, worth * 10**6, (worth + 1) * 10**6) for swap in swaps]
    done = db.prepare("DELETE FROM swaps_to_value")
    await db.batch([*(db.prepare(_VALUE).bind(*value) for value in values), done])


async def point(db: Database, hours_ago: float, *rows: BoardRow) -> None:
    await agent_days.append(db, rows, int(HOUR - hours_ago * HOUR_MS))


async def past_of(
    directory: Path,
    swaps: Mapping[str, Sequence[float]],
    *points: tuple[float, Sequence[BoardRow]],
    agents: Sequence[tuple[str, int]] = ((OLD, 1), (NEW, 2)),
) -> BoardPast:
    """The past after these swaps of wallets and these points of the history, all by how many hours ago they were."""
    async with traders_in(directory, *agents) as db:
        for wallet, hours_ago in swaps.items():
            await swapped(db, wallet, *hours_ago)
        for ago, rows in points:
            await point(db, ago, *rows)
        return await past_at(db, NOW, COUNTED)


def of_period(rows: Sequence[BoardRow], past: BoardPast, period: BoardPeriod) -> list[BoardRow]:
    compared, periods = with_past(rows, past)
    return list(PeriodRows().of(PublishedBoard(compared, NOW, None, final=False, periods=periods), period))


async def test_a_period_is_the_difference_to_its_start(tmp_path: Path) -> None:
    """P&L by the history; trades, volume and P&L at trade by the swaps since the start."""
    kept = ((720, 1, 5.0), (168, 2, 11.5), (24, 3, -2.25), (1, 4, 70.0))
    points = [(hours, [row(1, [OLD], trades=trades, pnl=pnl)]) for hours, trades, pnl in kept]
    past = await past_of(tmp_path, {OLD: [900, 200, 100, 23.9, 1]}, *points)
    now = [replace(row(1, [OLD], trades=6, pnl=12.34), unpriced_tokens=["x"])]  # one more trade than an hour ago

    (day,), (week,), (month,) = (of_period(now, past, period) for period in ("24h", "7d", "30d"))
    assert past.since["24h"] == HOUR - DAY_MS
    assert [each.pnl_usd for each in (day, week, month)] == [14.59, 0.84, 7.34]
    assert day.pnl_percent == pytest.approx(7.295)  # of the capital used
    assert [each.trade_count for each in (day, week, month)] == [3, 4, 5]
    assert [each.volume_usd for each in (day, week, month)] == [20, 30, 40]
    assert [each.pnl_at_trade_usd for each in (day, week, month)] == [0, 1, 2]
    assert [(each.uncounted_trade_count, each.unpriced_tokens) for each in (day, week, month)] == [(0, [])] * 3
    (without_value,) = of_period([replace(now[0], valued_trade_count=5)], past, "24h")
    assert (without_value.uncounted_trade_count, without_value.unpriced_tokens) == (1, ["x"])


async def test_a_gap_is_not_a_zero(tmp_path: Path) -> None:
    """Without a point near the start the P&L is not known, nor where it had none then; trades are."""
    points = ((27, [row(1, [OLD], pnl=5.0), row(2, [NEW], pnl=5.0)]), (168, [row(1, [OLD], pnl=None)]))
    past = await past_of(tmp_path, {OLD: [900, 3], NEW: [900]}, *points)
    now = [row(1, [OLD], trades=2, pnl=9.0), row(2, [NEW], trades=1, pnl=9.0)]

    day, week = of_period(now, past, "24h"), of_period(now, past, "7d")
    assert [(each.pnl_usd, each.pnl_percent, each.trade_count) for each in day] == [(None, None, 1), (None, None, 0)]
    assert [each.pnl_usd for each in week] == [None, None]


async def test_who_had_not_traded_had_no_gain(tmp_path: Path) -> None:
    """An agent that joined within the period needs no point; one without a P&L now has none in the period."""
    past = await past_of(tmp_path, {NEW: [5, 2]})

    (day,) = of_period([row(2, [NEW], trades=2, pnl=9.0)], past, "24h")
    assert (day.pnl_usd, day.trade_count) == (9.0, 2)
    (unpriced,) = of_period([row(2, [NEW], trades=2, pnl=None)], past, "24h")
    assert unpriced.pnl_usd is None


async def test_a_rotated_wallet_counts_with_the_one_before(tmp_path: Path) -> None:
    """Earlier trades of an agent include all its wallets."""
    past = await past_of(tmp_path, {OLD: [900, 60], NEW: [3]}, agents=((OLD, 1), (NEW, 1)))

    day, week = (of_period([row(1, [NEW, OLD], trades=3, pnl=1.0)], past, each)[0] for each in ("24h", "7d"))
    assert (day.trade_count, week.trade_count) == (1, 2)
    assert day.pnl_usd is None


async def test_ranks_and_curves_come_from_the_points(tmp_path: Path) -> None:
    """The rank of a day ago; a value for each six hours of seven days, and the current one; gaps stay gaps."""
    kept = ((167.9, 9, 1.0), (25, 8, 2.0), (24, 7, 12_345.67), (22, 6, 4.0), (0, 1, 5.0))
    past = await past_of(tmp_path, {}, *((hours, [row(1, [OLD], rank=rank, pnl=pnl)]) for hours, rank, pnl in kept))
    (compared, stranger), _ = with_past([row(1, [OLD], rank=3, pnl=6.0), row(9, [NEW], rank=4, pnl=None)], past)

    assert compared.rank_change == 4
    assert len(compared.sparkline) == 29
    known = {place: value for place, value in enumerate(compared.sparkline) if value is not None}
    assert known == {0: 1.0, 23: 2.0, 24: 4.0, 28: 6.0}
    assert (stranger.rank_change, set(stranger.sparkline)) == (None, {None})


async def test_it_is_published_as_it_is(tmp_path: Path) -> None:
    """Numeric keys survive JSON; an unreadable value counts as missing."""
    clock = SetClock(NOW / 1000)
    async with traders_in(tmp_path, (OLD, 1)) as db, open_kv(tmp_path, clock) as kv:
        await swapped(db, OLD, 900, 60)
        await point(db, 24, row(1, [OLD], pnl=1.5))
        past = await past_at(db, NOW, COUNTED)
        missing = await read_published(kv, PAST_KEY, BoardPast)
        await publish(kv, past, PAST_KEY)
        read = await read_published(kv, PAST_KEY, BoardPast)
        await kv.put("board:past:v2", "{}")
        broken = await read_published(kv, PAST_KEY, BoardPast)

    assert (missing, broken) == (None, None)
    assert read == past
    assert past.ranks == {1: 1}


async def test_curves_have_a_value_for_each_day(tmp_path: Path) -> None:
    """The last one of each of 90 days, in the order of the board; a day without one is null."""
    async with open_competition(tmp_path) as db:
        for days_ago, pnl in ((90, 1.0), (89, 2.0), (1, None), (0, 4.25)):
            await agent_days.append(db, [row(1, [OLD], pnl=pnl), row(2, [NEW], pnl=7.0)], NOW - days_ago * DAY_MS)
        await agent_days.append(db, [row(1, [OLD], pnl=4.5)], NOW + HOUR_MS)
        curves = await curves_at(db, [row(2, [NEW], pnl=1.0), row(1, [OLD], pnl=1.0), row(3, ["SP3"], pnl=1.0)], NOW)

    assert [curve.erc8004_agent_id for curve in curves.agents] == [2, 1]
    assert (curves.days, curves.first_day_at) == (90, (20_000 - 89) * DAY_MS)
    of_one = curves.agents[1].pnl_usd
    assert (len(of_one), of_one[0], of_one[-2], of_one[-1]) == (90, 2.0, None, 4.5)
    assert [value for value in of_one if value is not None] == [2.0, 4.5]


async def test_what_is_found_late_is_not_of_today(tmp_path: Path) -> None:
    """After an earlier swap, a withdrawal, a late value, or more changes than are kept, it is computed again."""
    async with traders_in(tmp_path, (OLD, 1)) as db:
        empty = await past_at(db, NOW, COUNTED)
        await swapped(db, OLD, 3)
        of_today = await is_outdated(db, empty, COUNTED)
        await swapped(db, OLD, 100, 200)
        found_late = await is_outdated(db, empty, COUNTED)
        past = await past_at(db, NOW, COUNTED)
        again = await is_outdated(db, past, COUNTED)
        await db.prepare("DELETE FROM swap_values").run()
        await db.prepare("DELETE FROM swaps WHERE burn_block_time < ?").bind(HOUR // 1000 - 150 * HOUR_S).run()
        withdrawn = await is_outdated(db, past, COUNTED)
        trimmed_from = await past_at(db, NOW, COUNTED)
        await swapped(db, OLD, 1, 2)
        await db.prepare("DELETE FROM news WHERE id < (SELECT max(id) FROM news)").run()
        trimmed = await is_outdated(db, trimmed_from, COUNTED)

    assert (of_today, found_late, again, withdrawn, trimmed) == (False, True, False, True, True)
    board = [row(1, [OLD], trades=3, pnl=20.0)]
    assert [each.trade_count for each in of_period(board, empty, "24h")] == [3]  # what it was before
    assert [each.trade_count for each in of_period(board, past, "24h")] == [1]
    assert [each.pnl_usd for each in of_period(board, past, "24h")] == [None]  # nothing is known of its start


async def test_a_value_that_comes_later_is_waited_for(tmp_path: Path) -> None:
    """An earlier swap without a value yet would count as volume of today."""
    async with traders_in(tmp_path, (OLD, 1)) as db:
        await add_swaps(db, [PlainSwap(1, OLD, "stx", 1, "x", 1, HOUR // 1000 - 100 * HOUR_S)])
        waiting = await past_at(db, NOW, COUNTED)
        await db.prepare("DELETE FROM swaps_to_value").run()
        known = await past_at(db, NOW, COUNTED)

        assert (await is_outdated(db, waiting, COUNTED), await is_outdated(db, known, COUNTED)) == (True, False)


async def test_a_period_begins_with_the_points_that_are_nearest(tmp_path: Path) -> None:
    """Trades and P&L are of the same time, even if a point is missing."""
    past = await past_of(tmp_path, {OLD: [900, 24.5, 3]}, (25, [row(1, [OLD], trades=1, pnl=5.0)]))

    (day,) = of_period([row(1, [OLD], trades=3, pnl=9.0)], past, "24h")
    assert past.since == {"24h": HOUR - 25 * HOUR_MS, "7d": HOUR - 7 * DAY_MS, "30d": HOUR - 30 * DAY_MS}
    assert (day.trade_count, day.pnl_usd) == (2, 4.0)


@pytest.mark.parametrize(
    ("trades", "hours_ago", "pnl"),
    [
        (1, [900, 200], None),  # a swap of 200 hours ago was found after the point
        (1, [900, 24.9], 4.0),  # one that was minutes old then: it counts as found in the period
        (2, [900, 200], 4.0),
        (3, [900, 200], None),  # one was withdrawn since
    ],
)
async def test_pnl_is_compared_with_that_of_the_same_swaps(
    trades: int, hours_ago: list[float], pnl: float | None, tmp_path: Path
) -> None:
    """A swap found late is not a gain of today, and a withdrawn one not a loss."""
    past = await past_of(tmp_path, {OLD: hours_ago}, (24, [row(1, [OLD], trades=trades, pnl=5.0)]))

    (day,) = of_period([row(1, [OLD], trades=2, pnl=9.0)], past, "24h")
    assert (day.pnl_usd, day.trade_count) == (pnl, 0)


async def test_a_token_that_lost_its_price_is_no_gain(tmp_path: Path) -> None:
    """Nor one that got a price. The board is compared again as soon as that happens, and names the token."""
    async with traders_in(tmp_path, (OLD, 1)) as db:
        await swapped(db, OLD, 200, 100, 1)
        await point(db, 24, row(1, [OLD], trades=2, pnl=-890.0))
        await point(db, 168, row(1, [OLD], trades=1, pnl=0.0, uncounted=1))
        before = await past_at(db, NOW, COUNTED)
        lost = await is_outdated(db, before, ["stx"])
        past = await past_at(db, NOW, ["stx"])
    now = row(1, [OLD], trades=3, pnl=10.0, uncounted=3)

    day, week = (of_period([replace(now, thin_tokens=["x"])], past, period)[0] for period in ("24h", "7d"))
    assert lost
    assert (day.pnl_usd, day.pnl_percent, day.thin_tokens) == (None, None, ["x"])
    assert (week.pnl_usd, week.thin_tokens) == (10.0, [])  # it had no price a week ago either
    (got,) = of_period([row(1, [OLD], trades=3, pnl=10.0)], before, "7d")
    assert got.pnl_usd is None


@pytest.mark.parametrize(("uncounted_then", "pnl"), [(1, 10.0), (0, None)])
async def test_an_excess_that_is_found_since_is_no_gain(uncounted_then: int, pnl: float | None, tmp_path: Path) -> None:
    """The P&L of a period compares the same swaps: the excessive one was left out then as well, or it is unknown."""
    async with traders_in(tmp_path, (OLD, 1)) as db:
        await swapped(db, OLD, 200, 100, 1)
        await point(db, 24, row(1, [OLD], trades=2, pnl=0.0, uncounted=uncounted_then))
        await mark_excessive(db, 2, 3)
        past = await past_at(db, NOW, COUNTED)
    now = replace(row(1, [OLD], trades=3, pnl=10.0, uncounted=2), excess_trade_count=2, valued_trade_count=3)

    (day,) = of_period([now], past, "24h")
    assert day.pnl_usd == pnl
    assert (day.trade_count, day.uncounted_trade_count, day.excess_trade_count) == (1, 0, 0)


async def test_trades_of_unknown_value_are_not_worth_nothing(tmp_path: Path) -> None:
    """An agent without trades in a period has a volume of 0, whatever is known of the time before."""
    async with traders_in(tmp_path, (OLD, 1), (NEW, 2)) as db:
        await swapped(db, OLD, 900)
        await swapped(db, NEW, 900)
        await add_swaps(db, [PlainSwap(9, OLD, "stx", 1, "x", 1, HOUR // 1000 - HOUR_S)])
        past = await past_at(db, NOW, COUNTED)
    unknown = replace(row(1, [OLD], trades=2, pnl=1.0), valued_trade_count=1)
    quiet = replace(
        row(2, [NEW], trades=1, pnl=1.0), valued_trade_count=0, volume_at_trade_usd=None, pnl_at_trade_usd=None
    )

    of_unknown, of_quiet = of_period([unknown, quiet], past, "24h")
    assert (of_unknown.trade_count, of_unknown.volume_usd, of_unknown.pnl_at_trade_usd) == (1, None, None)
    assert (of_quiet.trade_count, of_quiet.volume_usd, of_quiet.pnl_at_trade_usd) == (0, 0.0, 0.0)
