"""Every agent's P&L of the last 90 days, one point a day: one value in KV, computed once an hour and sent unchanged."""

import json
from collections.abc import Sequence

from holdfast.types import KV, Database
from tocsin.board.history import DAY_MS
from tocsin.board.types import AgentCurve, BoardRow, Curves
from tocsin.errors import MalformedShape

KEY = "curves:v1"
DAYS = 90
STEP_DAYS = 15  # per query, so that none delays others

_CURVES = """
SELECT agent_id, json_group_array(json_array(day - ?1, json_extract(last_point, '$[4]'))) AS points
FROM agent_days WHERE day >= ?2 AND day < ?3 GROUP BY agent_id"""


async def curves_at(db: Database, rows: Sequence[BoardRow], now: int) -> Curves:
    """The curves of the agents on the board, in its order. Today's point is the newest one so far."""
    first_day = now // DAY_MS - DAYS + 1
    curves: dict[int, list[float | None]] = {}
    for day in range(first_day, first_day + DAYS, STEP_DAYS):
        found = await db.prepare(_CURVES).bind(first_day, day, day + STEP_DAYS).all()
        for row in found.results:
            curve = curves.setdefault(row["agent_id"], [None] * DAYS)
            for place, cents in json.loads(row["points"]):
                curve[place] = None if cents is None else cents / 100
    agents = [
        AgentCurve(row.erc8004_agent_id, row.stx_address, row.display_name, curves[row.erc8004_agent_id])
        for row in rows
        if row.erc8004_agent_id in curves
    ]
    return Curves(now, first_day * DAY_MS, DAYS, agents)


async def publish_curves(kv: KV, curves: Curves) -> None:
    await kv.put(KEY, json.dumps(curves.to_json(), separators=(",", ":")))


async def published_curves(kv: KV) -> str | None:
    """The published text to send: JSON of `Curves`, if `are_curves`."""
    return await kv.get(KEY)


def are_curves(text: str) -> bool:
    """Whether a text from KV can be sent: it may be from another release, or damaged."""
    try:
        Curves.from_json(json.loads(text))
    except (ValueError, MalformedShape):
        return False
    return True
