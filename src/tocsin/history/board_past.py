"""What the board must know of the past: how each agent stood when a period began, and its last seven days.

It is found once an hour, and whenever the record of the time before changes: a swap that is found late, or withdrawn.
It is published in KV, and the board is compared with it whenever it is published. So a period is up to an hour longer
than its name says. A value is taken from the point nearest to the start of the period, if there is
one near it: nothing is put in the place of one that was not kept.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tocsin.bindings import KV, Database, Row
from tocsin.competition.news_reader import newest_id
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

_DAY = "SELECT agent_id, points FROM agent_days WHERE day = ?"
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
# What was recorded since, and whether some of it is older than a time or was taken back.
_CHANGES = """
SELECT count(*) AS n, max(n.id) AS newest, max(n.kind = 'withdrawn' OR s.burn_block_time < ?2) AS are_old
FROM news n LEFT JOIN swaps s ON n.kind = 'counted' AND s.txid = n.txid WHERE n.id > ?1"""
_UNVALUED = """
SELECT 1 AS waits FROM swaps_to_value w JOIN swaps s ON s.txid = w.txid WHERE s.burn_block_time < ? LIMIT 1"""
_RANK, _CENTS = 1, 4  # places in a point: see agent_days
_FIGURES = ("trades", "valued", "given", "received")


@dataclass(frozen=True, slots=True)
class BoardPast(Shape):
    """How agents and wallets stood at the start of each period, by agent (`erc8004_agent_id`) or by wallet.

    `before` has for each wallet what it had traded by then: trades, those with a known value, micro-USD given and
    received. `ranks` are those of a day ago. `news_id` is the newest change of the record that it includes; `unvalued`
    says that a swap of the time before still waits for its value.
    """

    hour_at: int
    since: dict[str, int]
    pnl_usd: dict[str, dict[int, float | None]]
    before: dict[str, dict[str, list[int]]]
    ranks: dict[int, int]
    sparklines: dict[int, list[float | None]]
    news_id: int = 0
    unvalued: bool = False


async def past_at(db: Database, now: int) -> BoardPast:
    """Day by day: each is a short query, and a moment's work."""
    hour_at, news_id = now // HOUR_MS * HOUR_MS, await newest_id(db)
    since = {period: hour_at - hours * HOUR_MS for period, hours in PERIOD_HOURS.items()}
    nearest = {period: _Nearest(at // MINUTE_MS, NEAR_HOURS[period] * 60) for period, at in since.items()}
    lines = _Lines(hour_at // MINUTE_MS - SLOTS * SLOT_HOURS * 60)
    every: list[_Nearest | _Lines] = [*nearest.values(), lines]
    for day in sorted({day for reader in every for day in reader.days}):
        readers = [reader for reader in every if day in reader.days]
        for row in (await db.prepare(_DAY).bind(day).all()).results:
            points = json.loads(f"[{row['points']}]")
            for reader in readers:
                reader.read(row["agent_id"], day * DAY_MINUTES, points)
    starts_s = json.dumps([at // 1000 for at in since.values()])
    within, totals, unvalued = await db.batch(
        [
            db.prepare(_SWAPS).bind(starts_s),
            db.prepare(_TOTALS),
            db.prepare(_UNVALUED).bind(_newest_start_s(since)),
        ]
    )
    return BoardPast(
        hour_at=hour_at,
        since=since,
        pnl_usd={
            period: {agent_id: _usd(point[_CENTS]) for agent_id, (_, point) in reader.found.items()}
            for period, reader in nearest.items()
        },
        before=_before(within.results, totals.results),
        ranks={agent_id: point[_RANK] for agent_id, (_, point) in nearest["24h"].found.items()},
        sparklines=lines.found,
        news_id=news_id,
        unvalued=bool(unvalued.results),
    )


async def is_outdated(db: Database, past: BoardPast) -> bool:
    """Whether the record of the time before its periods has changed, or may have."""
    if past.unvalued:
        return True
    row = await db.prepare(_CHANGES).bind(past.news_id, _newest_start_s(past.since)).first() or {}
    is_trimmed = bool(row["n"]) and row["n"] < row["newest"] - past.news_id
    return is_trimmed or bool(row["are_old"])


def _newest_start_s(since: Mapping[str, int]) -> int:
    return max(since.values()) // 1000


class _Nearest:
    """Of each agent the point that is nearest to a minute, if it is near."""

    def __init__(self, minute: int, near: int) -> None:
        self._minute, self._near = minute, near
        self.days = range((minute - near) // DAY_MINUTES, (minute + near) // DAY_MINUTES + 1)
        self.found: dict[int, tuple[int, list[int]]] = {}  # by agent: how far, and the point

    def read(self, agent_id: int, day_minute: int, points: list[list[int]]) -> None:
        wanted = self._minute - day_minute
        point = min(points, key=lambda each: abs(each[0] - wanted))
        distance = abs(point[0] - wanted)
        known = self.found.get(agent_id)
        if distance <= self._near and (known is None or distance < known[0]):
            self.found[agent_id] = distance, point


class _Lines:
    """Of each agent the last P&L of each slot."""

    def __init__(self, first_minute: int) -> None:
        self._first = first_minute
        length = SLOTS * SLOT_HOURS * 60
        self.days = range(first_minute // DAY_MINUTES, (first_minute + length) // DAY_MINUTES + 1)
        self.found: dict[int, list[float | None]] = {}

    def read(self, agent_id: int, day_minute: int, points: list[list[int]]) -> None:
        line = self.found.setdefault(agent_id, [None] * SLOTS)
        offset = day_minute - self._first
        cents = {
            (offset + point[0]) // (SLOT_HOURS * 60): point[_CENTS] for point in points
        }  # the last one stays
        for slot, value in cents.items():
            if 0 <= slot < SLOTS:
                line[slot] = _four_digits(_usd(value))


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
    if len(of_wallets) == 1:  # of nearly everybody
        return of_wallets[0]
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
