"""The board hour by hour: what each agent had traded, was worth, and where it stood. In `agent_days`.

One row holds an agent's UTC day: at most one point for each hour, appended and never changed. An hour without a point
is a gap. Older days keep their last point only, and keep it for ever.

A point has the minute of the day, the rank, the trades, the cents of volume, P&L and P&L at trade time, and how many of
the trades did not count because a token had no price or was thin.
"""

import json
from collections.abc import Sequence

from tocsin.bindings import Database, Row
from tocsin.shapes.competition import BoardRow
from tocsin.shapes.history import AgentHistory, HistoryPoint

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
MINUTE_MS = 60_000

_APPEND = """
INSERT INTO agent_days (day, agent_id, last_hour, last_point, points)
SELECT ?, json_extract(p.value, '$[0]'), ?, json_extract(p.value, '$[1]'), json_extract(p.value, '$[1]')
FROM json_each(?) p WHERE true
ON CONFLICT (day, agent_id) DO UPDATE SET
  points = points || ',' || excluded.last_point, last_point = excluded.last_point, last_hour = excluded.last_hour
WHERE last_hour < excluded.last_hour"""
# The days as a list: each is looked up by the primary key, which begins with the day so that a run writes few pages.
_OF_AGENT = """
SELECT d.day, d.points FROM json_each(?) asked
CROSS JOIN agent_days d ON d.day = asked.value AND d.agent_id = ?
ORDER BY d.day"""
_OF_ALL = (
    "SELECT agent_id, day, last_point AS points FROM agent_days WHERE day >= ? AND day <= ? ORDER BY day"
)
_OF_ALL_HOURLY = "SELECT agent_id, day, points FROM agent_days WHERE day >= ? AND day <= ? ORDER BY day"
_FIRST_DAY = "SELECT min(day) AS day FROM agent_days"
_THIN_OUT = """
UPDATE agent_days SET points = last_point
WHERE (day, agent_id) IN (
  SELECT day, agent_id FROM agent_days WHERE day >= ? AND day < ? AND points <> last_point LIMIT ?)"""


async def append(db: Database, rows: Sequence[BoardRow], at: int) -> int:
    """Append a point for each agent; returns how many. An hour that has one already stays as it is."""
    day, minute = at // DAY_MS, at % DAY_MS // MINUTE_MS
    points = [[row.erc8004_agent_id, _written(row, minute)] for row in rows]
    statement = db.prepare(_APPEND).bind(day, minute // 60, json.dumps(points))
    return (await statement.run()).meta.changes if points else 0


async def history_of(db: Database, agent_id: int, first_ms: int, last_ms: int) -> list[HistoryPoint]:
    """The points of one agent within a time, oldest first."""
    first_day = max(first_ms // DAY_MS, await _first_day(db, last_ms // DAY_MS))
    days = json.dumps(list(range(first_day, last_ms // DAY_MS + 1)))
    rows = (await db.prepare(_OF_AGENT).bind(days, agent_id).all()).results
    return [point for row in rows for point in _read(row) if first_ms <= point.at <= last_ms]


async def history_of_all(
    db: Database, first_ms: int, last_ms: int, *, hourly: bool = False
) -> list[AgentHistory]:
    """The points of every agent within a time: the last one of each day, or all."""
    sql = _OF_ALL_HOURLY if hourly else _OF_ALL
    rows = (await db.prepare(sql).bind(first_ms // DAY_MS, last_ms // DAY_MS).all()).results
    found: dict[int, list[HistoryPoint]] = {}
    for row in rows:
        points = [point for point in _read(row) if first_ms <= point.at <= last_ms]
        found.setdefault(row["agent_id"], []).extend(points)
    return [AgentHistory(agent_id, points) for agent_id, points in sorted(found.items()) if points]


async def thin_out(db: Database, first_day: int, before_day: int, limit: int) -> int:
    """Keep only the last point of these days, of so many rows at most; returns how many rows changed."""
    return (await db.prepare(_THIN_OUT).bind(first_day, before_day, limit).run()).meta.changes


async def _first_day(db: Database, default: int) -> int:
    row = await db.prepare(_FIRST_DAY).first()
    return default if row is None or row["day"] is None else int(row["day"])


def _written(row: BoardRow, minute: int) -> str:
    """Money in cents: more digits say nothing on a curve."""
    usd = (row.volume_usd, row.pnl_usd, row.pnl_at_trade_usd)
    cents = [None if value is None else round(value * 100) for value in usd]
    point = [minute, row.rank, row.trade_count, *cents, row.uncounted_trade_count]
    return json.dumps(point, separators=(",", ":"))


def _read(row: Row) -> list[HistoryPoint]:
    day_ms = row["day"] * DAY_MS
    return [
        HistoryPoint(day_ms + minute * MINUTE_MS, rank, trades, _usd(volume), _usd(pnl), _usd(at_trade))
        for minute, rank, trades, volume, pnl, at_trade, *_ in json.loads(f"[{row['points']}]")
    ]


def _usd(cents: int | None) -> float | None:
    return None if cents is None else cents / 100
