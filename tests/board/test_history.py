"""The board hour by hour: what the task `snapshot` keeps, and what is left of it later."""

import json
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from holdfast.testing.virtual_time import START_MS
from holdfast.types import Database
from support.local_store import open_competition
from support.market import Market
from support.pages_world import sample_row
from support.task_run import task_bench
from tocsin.board import history
from tocsin.board.board import PublishedBoard, publish
from tocsin.board.types import BoardRow, HistoryPoint
from tocsin.prices.store import PricePoint, append, points_between
from tocsin.settings import Settings

DAY_MS = 86_400_000
HOUR_MS = 3_600_000
MINUTE_MS = 60_000
TASK = history.snapshot_task(Settings())
T = 20_000 * DAY_MS  # the start of a day


def row(agent_id: int, rank: int = 1, trades: int = 5, pnl: float | None = 1.005) -> BoardRow:
    sample = replace(sample_row(Random(agent_id), agent_id, T), erc8004_agent_id=agent_id, rank=rank)
    return replace(sample, trade_count=trades, volume_usd=100.0, pnl_usd=pnl, pnl_at_trade_usd=None)


async def stored(db: Database) -> list[str]:
    rows = await db.prepare("SELECT points FROM agent_days ORDER BY day, agent_id").all()
    return [row["points"] for row in rows.results]


async def test_each_hour_has_one_point(tmp_path: Path) -> None:
    """A second point of the same hour changes nothing, whatever its values; an hour without one is a gap."""
    async with open_competition(tmp_path) as db:
        appended = [
            await history.append(db, [row(7), row(8, 2)], T + 5 * MINUTE_MS),
            await history.append(db, [row(7, 2, 9)], T + 59 * MINUTE_MS),
            await history.append(db, [row(7, 2, 9, None)], T + 3 * HOUR_MS),
            await history.append(db, [], T + 4 * HOUR_MS),
            await history.append(db, [row(7, 3, 10)], T + DAY_MS),
        ]
        rows = await stored(db)
        found = await history.history_of(db, 7, T, T + DAY_MS)

    assert appended == [2, 0, 1, 0, 1]
    assert rows == [
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
            await history.append(db, [row(7, trades=hour), row(8)], T + hour * HOUR_MS)
        some = await history.history_of(db, 7, T + 20 * HOUR_MS, T + 30 * HOUR_MS)
        whole = await history.history_of(db, 7, 0, T + 90 * DAY_MS)
        nobody = await history.history_of(db, 9, 0, T + DAY_MS)

    assert [point.trade_count for point in some] == list(range(20, 31))
    assert ([point.trade_count for point in whole], nobody) == (list(range(48)), [])


async def test_old_days_keep_their_last_point(tmp_path: Path) -> None:
    """After the days of the setting; a bounded number of rows in each run, and nothing twice."""
    async with open_competition(tmp_path) as db:
        for hour in range(0, 5 * 24, 6):
            await history.append(db, [row(7, trades=hour), row(8)], T + hour * HOUR_MS)
        first = await history.thin_out(db, T + 5 * DAY_MS, 3)
        again = await history.thin_out(db, T + 5 * DAY_MS, 3)
        found = await history.history_of(db, 7, 0, T + 9 * DAY_MS)

    assert (first[0], again[0]) == (4, 0)
    assert [point.trade_count for point in found] == [18, 42, *range(48, 120, 6)]


async def test_old_prices_keep_the_last_one_of_each_hour(tmp_path: Path) -> None:
    """Newer ones stay unchanged; a run processes a few hours and the next one continues there."""

    def point(at: int, token_id: str = "stx") -> PricePoint:
        return PricePoint(token_id, at, "1", 6, "tenero", None, None)

    async with open_competition(tmp_path) as db:
        every_five = [point(T + n * 5 * MINUTE_MS) for n in range(3 * 24 * 12)]
        await db.batch(append(db, [*every_five, point(T + 10), point(T + 7, "b"), point(T + 20 * HOUR_MS, "b")]))
        removed = [(await history.thin_out(db, T + 3 * DAY_MS, 1))[1] for _ in range(8)]
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
    monkeypatch.setattr(history, "ROWS_MAX", 2)
    async with open_competition(tmp_path) as db:
        for hour in (0, 1):
            await history.append(db, [row(agent) for agent in range(1, 6)], T + hour * HOUR_MS)
        prices = [PricePoint("stx", T + n * MINUTE_MS, "1", 6, "tenero", None, None) for n in range(6)]
        await db.batch(append(db, prices))
        runs = [await history.thin_out(db, T + 3 * DAY_MS, 1) for _ in range(6)]
        left = await stored(db)
        kept = await points_between(db, ["stx"], T, T + DAY_MS)

    assert runs == [(2, 2), (2, 2), (1, 1), (0, 0), (0, 0), (0, 0)]
    assert left == ["[60,1,5,10000,100,null,0]"] * 5
    assert [each.at for each in kept["stx"]] == [T + 5 * MINUTE_MS]


# The task


async def test_the_published_board_is_kept_once_an_hour(tmp_path: Path) -> None:
    """A board that is an hour old is not this hour's: the task looks again until there is a newer one."""
    async with task_bench(tmp_path, Market([])) as bench:
        nothing_yet = await bench.run(TASK)
        agent = sample_row(Random(1), 1, START_MS)
        await publish(bench.kv, PublishedBoard([agent], START_MS, None, final=False))
        results = [await bench.run(TASK)]
        for seconds in (60, 3_539, 1, 5_400):
            await bench.wired.clock.sleep(seconds)
            results.append(await bench.run(TASK))
        await publish(bench.kv, PublishedBoard([agent], bench.wired.clock.now(), None, final=False))
        await bench.wired.clock.sleep(300)
        results.append(await bench.run(TASK))
        points = await history.history_of(bench.db, agent.erc8004_agent_id, 0, START_MS + 9 * HOUR_MS)

    assert nothing_yet.counters == {"agents": 0, "appended": 0, "daysThinned": 0, "pricesThinned": 0}
    assert (nothing_yet.error, nothing_yet.wake_at) == (None, START_MS + 300_000)
    assert START_MS % HOUR_MS == 1_800_000
    assert [(result.counters["appended"], result.wake_at) for result in results] == [
        (1, None),
        (0, None),  # a minute later
        (1, None),  # in the next hour
        (0, START_MS + 3_600_000 + 300_000),  # the board is an hour old, in the middle of the next hour
        (0, START_MS + 2 * HOUR_MS + 1_800_000 + 300_000),  # at a full hour
        (1, None),  # published again
    ]
    assert [point.at - START_MS for point in points] == [0, 3_540_000, 9_300_000]


async def test_a_board_of_the_future_is_not_kept(tmp_path: Path) -> None:
    """It was published before the clock was set back: its figures are not those of this hour."""
    async with task_bench(tmp_path, Market([])) as bench:
        agent = sample_row(Random(1), 1, START_MS)
        await publish(bench.kv, PublishedBoard([agent], START_MS + 1, None, final=False))
        result = await bench.run(TASK)

    assert (result.counters["agents"], result.counters["appended"]) == (0, 0)


def test_it_runs_on_the_hour_and_calls_nobody() -> None:
    """So that history costs no call."""
    assert (TASK.name, TASK.cadence_ms, TASK.upstream, TASK.calls_per_run) == ("snapshot", 3_600_000, None, 0.0)
