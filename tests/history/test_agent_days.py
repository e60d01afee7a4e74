"""The board hour by hour, and what is kept of it."""

import json
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from holdfast.types import Database
from support.local_store import open_competition
from support.pages_world import sample_row
from tocsin.board import history as agent_days
from tocsin.board import history as retention
from tocsin.board.history import history_of, history_of_all
from tocsin.board.types import BoardRow, HistoryPoint
from tocsin.prices.store import PricePoint, append, points_between

DAY_MS = 86_400_000
HOUR_MS = 3_600_000
MINUTE_MS = 60_000
T = 20_000 * DAY_MS  # the start of a day


def row(agent_id: int, rank: int = 1, trades: int = 5, pnl: float | None = 1.005) -> BoardRow:
    sample = sample_row(Random(agent_id), agent_id, T)
    return replace(
        sample,
        erc8004_agent_id=agent_id,
        rank=rank,
        trade_count=trades,
        volume_usd=100.0,
        pnl_usd=pnl,
        pnl_at_trade_usd=None,
    )


async def stored(db: Database) -> list[dict[str, object]]:
    sql = "SELECT day, agent_id, last_hour, last_point, points FROM agent_days ORDER BY day, agent_id"
    return (await db.prepare(sql).all()).results


async def test_each_hour_has_one_point(tmp_path: Path) -> None:
    """A second point of the same hour changes nothing, whatever its values; an hour without one is a gap."""
    async with open_competition(tmp_path) as db:
        appended = [
            await agent_days.append(db, [row(7), row(8, 2)], T + 5 * MINUTE_MS),
            await agent_days.append(db, [row(7, 2, 9)], T + 59 * MINUTE_MS),
            await agent_days.append(db, [row(7, 2, 9, None)], T + 3 * HOUR_MS),
            await agent_days.append(db, [], T + 4 * HOUR_MS),
            await agent_days.append(db, [row(7, 3, 10)], T + DAY_MS),
        ]
        rows = await stored(db)
        found = await history_of(db, 7, T, T + DAY_MS)

    assert appended == [2, 0, 1, 0, 1]
    assert [each["points"] for each in rows] == [
        "[5,1,5,10000,100,null,0],[180,2,9,10000,null,null,0]",
        "[5,2,5,10000,100,null,0]",
        "[0,3,10,10000,100,null,0]",
    ]
    assert found == [
        HistoryPoint(T + 5 * MINUTE_MS, 1, 5, 100.0, 1.0, None),
        HistoryPoint(T + 3 * HOUR_MS, 2, 9, 100.0, None, None),
        HistoryPoint(T + DAY_MS, 3, 10, 100.0, 1.0, None),
    ]


async def test_a_period_is_cut_to_the_minute(tmp_path: Path) -> None:
    """From its first to its last instant; nobody else's points, and none before there were any."""
    async with open_competition(tmp_path) as db:
        for hour in range(48):
            await agent_days.append(db, [row(7, trades=hour), row(8)], T + hour * HOUR_MS)
        some = await history_of(db, 7, T + 20 * HOUR_MS, T + 30 * HOUR_MS)
        whole = await history_of(db, 7, 0, T + 90 * DAY_MS)
        nobody = await history_of(db, 9, 0, T + DAY_MS)
        everybody = await history_of_all(db, T, T + 2 * DAY_MS)
        hourly = await history_of_all(db, T + 30 * HOUR_MS, T + 2 * DAY_MS, hourly=True)

    assert [point.trade_count for point in some] == list(range(20, 31))
    assert ([point.trade_count for point in whole], nobody) == (list(range(48)), [])
    assert [(each.erc8004_agent_id, [p.trade_count for p in each.points]) for each in everybody] == [
        (7, [23, 47]),
        (8, [5, 5]),
    ]
    assert [len(each.points) for each in hourly] == [18, 18]


async def test_old_days_keep_their_last_point(tmp_path: Path) -> None:
    """After the days of the setting; a bounded number of rows in each run, and nothing twice."""
    async with open_competition(tmp_path) as db:
        for hour in range(0, 5 * 24, 6):
            await agent_days.append(db, [row(7, trades=hour), row(8)], T + hour * HOUR_MS)
        first = await retention.thin_out(db, T + 5 * DAY_MS, 3)
        again = await retention.thin_out(db, T + 5 * DAY_MS, 3)
        found = await history_of(db, 7, 0, T + 9 * DAY_MS)

    assert (first.days, again.days) == (4, 0)
    assert [point.trade_count for point in found] == [18, 42, *range(48, 120, 6)]


async def test_old_prices_keep_the_last_one_of_each_hour(tmp_path: Path) -> None:
    """Newer ones stay unchanged; a run processes a few hours and the next one continues there."""

    def point(at: int, token_id: str = "stx") -> PricePoint:
        return PricePoint(token_id, at, "1", 6, "tenero", None, None)

    async with open_competition(tmp_path) as db:
        every_five = [point(T + n * 5 * MINUTE_MS) for n in range(3 * 24 * 12)]
        await db.batch(append(db, [*every_five, point(T + 10), point(T + 7, "b"), point(T + 20 * HOUR_MS, "b")]))
        removed = [(await retention.thin_out(db, T + 3 * DAY_MS, 1)).prices for _ in range(8)]
        state = await db.prepare("SELECT value FROM competition_state WHERE key = 'history_thinned'").first()
        found = await points_between(db, ["stx", "b"], 0, T + 9 * DAY_MS)

    assert removed == [8 * 11 + 1, *[8 * 11] * 5, 0, 0]
    assert state is not None
    assert json.loads(state["value"]) == {"day": 20_002, "hour": 20_002 * 24}
    assert [each.at - T for each in found["b"]] == [7, 20 * HOUR_MS]
    old = [each.at - T for each in found["stx"] if each.at < T + 2 * DAY_MS]
    assert old == [hour * HOUR_MS + 55 * MINUTE_MS for hour in range(48)]
    assert sum(each.at >= T + 2 * DAY_MS for each in found["stx"]) == 24 * 12


async def test_what_a_run_did_not_reach_is_thinned_out_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that is limited in the middle of a day or an hour continues there, and nothing stays behind."""
    monkeypatch.setattr(retention, "ROWS_MAX", 2)
    async with open_competition(tmp_path) as db:
        for hour in (0, 1):
            await agent_days.append(db, [row(agent) for agent in range(1, 6)], T + hour * HOUR_MS)
        prices = [PricePoint("stx", T + n * MINUTE_MS, "1", 6, "tenero", None, None) for n in range(6)]
        await db.batch(append(db, prices))
        runs = [await retention.thin_out(db, T + 3 * DAY_MS, 1) for _ in range(6)]
        left = [each["points"] for each in await stored(db)]
        kept = await points_between(db, ["stx"], T, T + DAY_MS)

    assert [each.days for each in runs] == [2, 2, 1, 0, 0, 0]
    assert [each.prices for each in runs] == [2, 2, 1, 0, 0, 0]
    assert left == ["[60,1,5,10000,100,null,0]"] * 5
    assert [each.at for each in kept["stx"]] == [T + 5 * MINUTE_MS]
