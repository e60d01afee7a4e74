"""Thins out the past: keeps everything for some days, then one point per agent a day and one price an hour.

A run does a limited part of the work and stores where it stopped, so that nothing is read twice.
"""

import json
from dataclasses import dataclass

from tocsin.bindings import Database
from tocsin.history import agent_days

DAY_MS = 86_400_000
HOUR_MS = 3_600_000
ROWS_MAX = 5_000  # of each kind, that one run changes or removes
HOURS_MAX = 8  # of prices that one run reads: it runs every hour, so it catches up
STATE_KEY = "history_thinned"

_STATE = "SELECT value FROM competition_state WHERE key = ?"
_REMEMBER = """
INSERT INTO competition_state (key, value, updated_at) VALUES (?, ?, ?)
ON CONFLICT (key) DO UPDATE SET value = excluded.value, updated_at = excluded.updated_at"""
_FIRST_PRICE = """
SELECT min(first) AS first
FROM (SELECT (SELECT min(at) FROM price_points WHERE token = id) AS first FROM price_tokens)"""
# The last point of each token and hour stays. The window is an hour, which also limits what is read.
_THIN_PRICES = """
DELETE FROM price_points WHERE (token, at) IN (
  SELECT p.token, p.at FROM price_tokens t
  CROSS JOIN price_points p ON p.token = t.id AND p.at >= ? AND p.at < ?
  WHERE EXISTS (SELECT 1 FROM price_points n WHERE n.token = p.token AND n.at > p.at
    AND n.at < (p.at / 3600000 + 1) * 3600000)
  LIMIT ?)"""


@dataclass(frozen=True, slots=True)
class Thinned:
    """How many rows of each kind changed."""

    days: int
    prices: int


async def thin_out(db: Database, now: int, hourly_days: int) -> Thinned:
    """Thin out everything older than `hourly_days` days."""
    today = now // DAY_MS
    before_day = today - hourly_days
    row = await db.prepare(_STATE).bind(STATE_KEY).first()
    done = json.loads(row["value"]) if row else {}
    day, hour = int(done.get("day", 0)), int(done.get("hour", 0))
    days = await agent_days.thin_out(db, day, before_day, ROWS_MAX)
    if days < ROWS_MAX:
        day = max(day, before_day)
    prices, hour = await _thin_prices(db, hour, before_day * 24)
    state = json.dumps({"day": day, "hour": hour})
    if row is None or row["value"] != state:
        await db.prepare(_REMEMBER).bind(STATE_KEY, state, now).run()
    return Thinned(days, prices)


async def _thin_prices(db: Database, hour: int, before_hour: int) -> tuple[int, int]:
    """Thin out prices from `hour` on; returns how many points were removed, and the hour to continue with."""
    if hour == 0:
        first = await db.prepare(_FIRST_PRICE).first()
        if first is None or first["first"] is None:
            return 0, 0
        hour = int(first["first"]) // HOUR_MS
    removed = 0
    for _ in range(HOURS_MAX):
        if hour >= before_hour or removed >= ROWS_MAX:
            break
        statement = db.prepare(_THIN_PRICES).bind(hour * HOUR_MS, (hour + 1) * HOUR_MS, ROWS_MAX)
        changes = (await statement.run()).meta.changes
        removed += changes
        if changes < ROWS_MAX:
            hour += 1
    return removed, hour
