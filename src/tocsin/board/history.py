"""The board hour by hour: each agent's trades, volume, P&L and rank, in `agent_days`; and the task that keeps it.

One row holds an agent's UTC day, with at most one point per hour. Points are appended and never changed. An hour
without a point is a gap. A point has the minute of the day, the rank, the number of trades, the volume, P&L and P&L at
trade time in cents, and the number of trades that did not count because a token had no price or was thin.

The task `snapshot` appends the board every hour. It also thins out the past: everything is kept for some days, then one
point per agent a day and one price an hour, indefinitely. A run does a limited part of this and stores where it
stopped, so that nothing is read twice.
"""

import json
from collections.abc import Sequence

from holdfast.types import Database, Row
from tocsin.board.news import trim_news
from tocsin.board.published import BoardReader
from tocsin.board.types import BoardRow, HistoryPoint
from tocsin.scheduler.task import Task, TaskContext, TaskResult
from tocsin.settings import Settings
from tocsin.shape import FreeForm
from tocsin.sql import read_queries

SQL = read_queries(__file__)

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
MINUTE_MS = 60_000
LONGEST_RUN_MS = 120_000
LOOK_AGAIN_MS = 300_000
EMPTY_RESULT: FreeForm = {"agents": 0, "appended": 0, "daysThinned": 0, "pricesThinned": 0}
ROWS_MAX = 5_000  # of each kind, that one run changes or removes
HOURS_MAX = 8  # of prices that one run reads: it runs every hour, so it catches up
STATE_KEY = "history_thinned"


def snapshot_task(settings: Settings) -> Task:
    hourly_days = settings.history_hourly_days
    age_max_ms = max(HOUR_MS, settings.tenero_cadence, settings.sweep_cadence)  # each publishes the board

    async def run(context: TaskContext) -> TaskResult:
        now = context.clock.now()
        board = await BoardReader(context.kv).read()
        is_current = board is not None and 0 <= now - board.as_of < age_max_ms
        rows = board.rows if board is not None and is_current else []
        appended = await append(context.db, rows, now)
        context.checkpoint()
        days, prices = await thin_out(context.db, now, hourly_days)
        await trim_news(context.db)
        counters: FreeForm = {"agents": len(rows), "appended": appended, "daysThinned": days, "pricesThinned": prices}
        # After a start or after the full hour, the board may not be published yet.
        return TaskResult(counters, wake_at=None if is_current else now + LOOK_AGAIN_MS)

    return Task(
        name="snapshot",
        title="History",
        cadence_ms=HOUR_MS,
        slice_ms=LONGEST_RUN_MS,
        run=run,
        empty_result=EMPTY_RESULT,
        why="one point per agent and hour; no call to an upstream",
    )


async def append(db: Database, rows: Sequence[BoardRow], at: int) -> int:
    """Append a point for each agent; returns how many. An hour that already has a point stays as it is."""
    day, minute = at // DAY_MS, at % DAY_MS // MINUTE_MS
    points = [[row.erc8004_agent_id, _written(row, minute)] for row in rows]
    statement = db.prepare(SQL["append_points"]).bind(day, minute // 60, json.dumps(points))
    return (await statement.run()).meta.changes if points else 0


async def history_of(db: Database, agent_id: int, first_ms: int, last_ms: int) -> list[HistoryPoint]:
    """The points of one agent in a period, oldest first."""
    last_day = last_ms // DAY_MS
    oldest = await db.prepare(SQL["first_day"]).first()
    kept_day = last_day if oldest is None or oldest["day"] is None else int(oldest["day"])
    days = json.dumps(list(range(max(first_ms // DAY_MS, kept_day), last_day + 1)))
    rows = (await db.prepare(SQL["points_of_agent"]).bind(days, agent_id).all()).results
    return [point for row in rows for point in _read(row) if first_ms <= point.at <= last_ms]


def _written(row: BoardRow, minute: int) -> str:
    """A point as text. Money is in cents: more digits would not show on a curve."""
    usd = (row.volume_usd, row.pnl_usd, row.pnl_at_trade_usd)
    cents = [None if value is None else round(value * 100) for value in usd]
    point = [minute, row.rank, row.trade_count, *cents, row.uncounted_trade_count]
    return json.dumps(point, separators=(",", ":"))


def _read(row: Row) -> list[HistoryPoint]:
    day_ms = row["day"] * DAY_MS
    return [
        HistoryPoint(
            day_ms + minute * MINUTE_MS, rank, trades, usd_of_cents(volume), usd_of_cents(pnl), usd_of_cents(at_trade)
        )
        for minute, rank, trades, volume, pnl, at_trade, *_ in json.loads(f"[{row['points']}]")
    ]


def usd_of_cents(cents: int | None) -> float | None:
    return None if cents is None else cents / 100


async def thin_out(db: Database, now: int, hourly_days: int) -> tuple[int, int]:
    """Thin out everything older than `hourly_days` days; return how many days and prices changed."""
    today = now // DAY_MS
    before_day = today - hourly_days
    row = await db.prepare(SQL["state"]).bind(STATE_KEY).first()
    done = json.loads(row["value"]) if row else {}
    day, hour = int(done.get("day", 0)), int(done.get("hour", 0))
    days = (await db.prepare(SQL["thin_out_days"]).bind(day, before_day, ROWS_MAX).run()).meta.changes
    if days < ROWS_MAX:
        day = max(day, before_day)
    prices, hour = await _thin_prices(db, hour, before_day * 24)
    state = json.dumps({"day": day, "hour": hour})
    if row is None or row["value"] != state:
        await db.prepare(SQL["save_state"]).bind(STATE_KEY, state, now).run()
    return days, prices


async def _thin_prices(db: Database, hour: int, before_hour: int) -> tuple[int, int]:
    """Thin out prices from `hour` on; returns how many points were removed, and the hour to continue with."""
    if hour == 0:
        first = await db.prepare(SQL["first_price"]).first()
        if first is None or first["first"] is None:
            return 0, 0
        hour = int(first["first"]) // HOUR_MS
    removed = 0
    for _ in range(HOURS_MAX):
        if hour >= before_hour or removed >= ROWS_MAX:
            break
        statement = db.prepare(SQL["thin_out_prices"]).bind(hour * HOUR_MS, (hour + 1) * HOUR_MS, ROWS_MAX)
        changes = (await statement.run()).meta.changes
        removed += changes
        if changes < ROWS_MAX:
            hour += 1
    return removed, hour
