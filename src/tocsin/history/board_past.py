"""What the board must know of the past: how each agent stood when a period began, and its last seven days.

It is found once an hour, and published in KV; the board is compared with it whenever it is published. So a period is up
to an hour longer than its name says. A value is taken from the point nearest to the start of the period, if there is
one near it: nothing is put in the place of one that was not kept.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tocsin.bindings import KV, Database, Row, Statement
from tocsin.competition.published_board import PeriodFigures
from tocsin.errors import MalformedShape
from tocsin.shapes.base import Shape
from tocsin.shapes.competition import BoardRow

KEY = "board:past:v1"
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
MINUTE_MS = 60_000
DAY_MINUTES = 24 * 60

PERIOD_HOURS: dict[str, int] = {"24h": 24, "7d": 7 * 24, "30d": 30 * 24}
NEAR_HOURS: dict[str, int] = {"24h": 2, "7d": 7, "30d": 30}  # how far a point may be from the start
SLOTS, SLOT_HOURS = 28, 6

# Of each agent the point that is nearest to a time. With min() the other columns are those of the same point.
_NEAREST = """
SELECT d.agent_id, json_extract(p.value, '$[1]') AS rank, json_extract(p.value, '$[4]') AS cents,
  min(abs(d.day * 1440 + json_extract(p.value, '$[0]') - ?1)) AS distance
FROM agent_days d, json_each('[' || d.points || ']') p
WHERE d.day >= ?2 AND d.day <= ?3
GROUP BY d.agent_id"""
# Of each agent and slot the last point.
_SLOTS = """
SELECT agent_id, json_group_array(json_array(slot, cents)) AS slots FROM (
  SELECT d.agent_id, (d.day * 1440 + json_extract(p.value, '$[0]') - ?1) / ?2 AS slot,
    json_extract(p.value, '$[4]') AS cents, max(d.day * 1440 + json_extract(p.value, '$[0]'))
  FROM agent_days d, json_each('[' || d.points || ']') p
  WHERE d.day >= ?1 / 1440 AND d.day * 1440 + json_extract(p.value, '$[0]') >= ?1
  GROUP BY d.agent_id, slot)
GROUP BY agent_id"""
# What each wallet traded since each of some times. A swap has a value when both sides have one.
_SWAPS = """
SELECT since.key AS number, s.sender, count(*) AS trades, count(v.txid) AS valued,
  coalesce(sum(v.given_micros), 0) AS given, coalesce(sum(v.received_micros), 0) AS received
FROM json_each(?) since
CROSS JOIN swaps s ON s.burn_block_time >= since.value
LEFT JOIN swap_values v ON v.txid = s.txid AND v.given_micros IS NOT NULL AND v.received_micros IS NOT NULL
GROUP BY since.key, s.sender"""
_TOTALS = """
SELECT t.sender, t.trades, coalesce(v.valued, 0) AS valued, coalesce(v.given_micros, 0) AS given,
  coalesce(v.received_micros, 0) AS received
FROM sender_totals t LEFT JOIN sender_values v ON v.sender = t.sender"""
_FIGURES = ("trades", "valued", "given", "received")


@dataclass(frozen=True, slots=True)
class BoardPast(Shape):
    """How agents and wallets stood at the start of each period, by agent (`erc8004_agent_id`) or by wallet.

    `before` has for each wallet what it had traded by then: trades, those with a known value, micro-USD given and
    received. `ranks` are those of a day ago.
    """

    hour_at: int
    since: dict[str, int]
    pnl_usd: dict[str, dict[int, float | None]]
    before: dict[str, dict[str, list[int]]]
    ranks: dict[int, int]
    sparklines: dict[int, list[float | None]]


async def past_at(db: Database, now: int) -> BoardPast:
    hour_at = now // HOUR_MS * HOUR_MS
    since = {period: hour_at - hours * HOUR_MS for period, hours in PERIOD_HOURS.items()}
    statements = [_nearest(db, since[period], NEAR_HOURS[period]) for period in PERIOD_HOURS]
    first_minute = hour_at // MINUTE_MS - SLOTS * SLOT_HOURS * 60
    *nearest, slots = await db.batch([*statements, db.prepare(_SLOTS).bind(first_minute, SLOT_HOURS * 60)])
    starts_s = json.dumps([at // 1000 for at in since.values()])
    within, totals = await db.batch([db.prepare(_SWAPS).bind(starts_s), db.prepare(_TOTALS)])
    near = {
        period: [row for row in found.results if row["distance"] <= NEAR_HOURS[period] * 60]
        for period, found in zip(PERIOD_HOURS, nearest, strict=True)
    }
    return BoardPast(
        hour_at=hour_at,
        since=since,
        pnl_usd={
            period: {row["agent_id"]: _usd(row["cents"]) for row in rows} for period, rows in near.items()
        },
        before=_before(within.results, totals.results),
        ranks={row["agent_id"]: row["rank"] for row in near["24h"]},
        sparklines={row["agent_id"]: _sparkline(json.loads(row["slots"])) for row in slots.results},
    )


def _nearest(db: Database, at: int, near_hours: int) -> Statement:
    near_ms = near_hours * HOUR_MS
    days = (at - near_ms) // DAY_MS, (at + near_ms) // DAY_MS
    return db.prepare(_NEAREST).bind(at // MINUTE_MS, *days)


def _before(within: Sequence[Row], totals: Sequence[Row]) -> dict[str, dict[str, list[int]]]:
    """What each wallet had traded before each period: all of it, less what was within."""
    recent = {(row["number"], row["sender"]): row for row in within}
    before: dict[str, dict[str, list[int]]] = {}
    for number, period in enumerate(PERIOD_HOURS):
        before[period] = {}
        for row in totals:
            since = recent.get((number, row["sender"]), {})
            before[period][row["sender"]] = [row[name] - since.get(name, 0) for name in _FIGURES]
    return before


def _sparkline(slots: Sequence[tuple[int, int | None]]) -> list[float | None]:
    points: list[float | None] = [None] * SLOTS
    for slot, cents in slots:
        if 0 <= slot < SLOTS:
            points[slot] = _four_digits(_usd(cents))
    return points


def with_past(rows: Sequence[BoardRow], past: BoardPast) -> tuple[list[BoardRow], dict[str, PeriodFigures]]:
    """The board's rows with what is known of their past, and what they did in each period."""
    compared = [
        replace(
            row,
            rank_change=_difference(past.ranks.get(row.erc8004_agent_id), row.rank),
            sparkline=[
                *past.sparklines.get(row.erc8004_agent_id, [None] * SLOTS),
                _four_digits(row.pnl_usd),
            ],
        )
        for row in rows
    ]
    return compared, {period: _figures(rows, past, period) for period in past.since}


def _figures(rows: Sequence[BoardRow], past: BoardPast, period: str) -> PeriodFigures:
    since, pnl_then, before = past.since[period], past.pnl_usd[period], past.before[period]
    figures = PeriodFigures(since, [], [], [], [], [])
    for row in rows:
        trades, valued, given, received = _sums(before, row.wallets)
        figures.trade_count.append(max(0, row.trade_count - trades))
        figures.valued_trade_count.append(max(0, row.valued_trade_count - valued))
        # Who had not traded yet had no gain and no loss.
        then = 0.0 if trades == 0 else pnl_then.get(row.erc8004_agent_id)
        figures.pnl_usd.append(None if row.pnl_usd is None or then is None else round(row.pnl_usd - then, 2))
        volume, gain = row.volume_at_trade_usd, row.pnl_at_trade_usd
        figures.volume_usd.append(None if volume is None else max(0.0, round(volume - given / 1e6, 6)))
        figures.pnl_at_trade_usd.append(None if gain is None else round(gain - (received - given) / 1e6, 6))
    return figures


def _sums(before: Mapping[str, list[int]], wallets: Sequence[str]) -> list[int]:
    of_wallets = [before[wallet] for wallet in wallets if wallet in before]
    return [sum(column) for column in zip(*of_wallets, strict=True)] if of_wallets else [0, 0, 0, 0]


def _difference(then: int | None, now: int) -> int | None:
    return None if then is None else then - now


def _usd(cents: int | None) -> float | None:
    return None if cents is None else cents / 100


def _four_digits(usd: float | None) -> float | None:
    """More say nothing on a small curve."""
    return None if usd is None else float(f"{usd:.4g}")


async def publish_past(kv: KV, past: BoardPast) -> None:
    await kv.put(KEY, json.dumps(past.to_json(), separators=(",", ":")))


async def read_past(kv: KV) -> BoardPast | None:
    """What was published; None when there is nothing that can be read."""
    text = await kv.get(KEY)
    try:
        return None if text is None else BoardPast.from_json(json.loads(text))
    except (ValueError, MalformedShape):
        return None
