"""The board hour by hour: each agent's trades, volume, P&L and rank. Stored in `agent_days`.

One row holds an agent's UTC day, with at most one point per hour. Points are appended and never changed. An hour
without a point is a gap. Older days keep only their last point, and keep it indefinitely.

A point has the minute of the day, the rank, the number of trades, the volume, P&L and P&L at trade time in cents, and
the number of trades that did not count because a token had no price or was thin.
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
# The days as a list: each is found by the primary key, which begins with the day so that a run writes few pages.
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
    """Append a point for each agent; returns how many. An hour that already has a point stays as it is."""
    day, minute = at // DAY_MS, at % DAY_MS // MINUTE_MS
    points = [[row.erc8004_agent_id, _written(row, minute)] for row in rows]
    statement = db.prepare(_APPEND).bind(day, minute // 60, json.dumps(points))
    return (await statement.run()).meta.changes if points else 0


async def history_of(db: Database, agent_id: int, first_ms: int, last_ms: int) -> list[HistoryPoint]:
    """The points of one agent in a period, oldest first."""
    first_day = max(first_ms // DAY_MS, await _first_day(db, last_ms // DAY_MS))
    days = json.dumps(list(range(first_day, last_ms // DAY_MS + 1)))
    rows = (await db.prepare(_OF_AGENT).bind(days, agent_id).all()).results
    return [point for row in rows for point in _read(row) if first_ms <= point.at <= last_ms]


async def history_of_all(
    db: Database, first_ms: int, last_ms: int, *, hourly: bool = False
) -> list[AgentHistory]:
    """The points of every agent in a period: the last one of each day, or all."""
    sql = _OF_ALL_HOURLY if hourly else _OF_ALL
    rows = (await db.prepare(sql).bind(first_ms // DAY_MS, last_ms // DAY_MS).all()).results
    found: dict[int, list[HistoryPoint]] = {}
    for row in rows:
        points = [point for point in _read(row) if first_ms <= point.at <= last_ms]
        found.setdefault(row["agent_id"], []).extend(points)
    return [AgentHistory(agent_id, points) for agent_id, points in sorted(found.items()) if points]


async def thin_out(db: Database, first_day: int, before_day: int, limit: int) -> int:
    """Keep only the last point of these days, in at most `limit` rows; returns how many rows changed."""
    return (await db.prepare(_THIN_OUT).bind(first_day, before_day, limit).run()).meta.changes


async def _first_day(db: Database, default: int) -> int:
    row = await db.prepare(_FIRST_DAY).first()
    return default if row is None or row["day"] is None else int(row["day"])


def _written(row: BoardRow, minute: int) -> str:
    """A point as text. Money is in cents: more digits would not show on a curve."""
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
