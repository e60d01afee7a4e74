"""The board hour by hour: each agent's trades, volume, P&L and rank, in `agent_days`; and the task that keeps it.

One row holds an agent's UTC day, with at most one point per hour. Points are appended and never changed. An hour
without a point is a gap. A point has the minute of the day, the rank, the number of trades, the volume, P&L and P&L at
trade time in cents, and the number of trades that did not count because a token had no price or was thin.

The task `snapshot` appends the board every hour. It also thins out the past: everything is kept for some days, then one
point per agent a day and one price an hour, indefinitely. A run does a limited part of this and stores where it
stopped, so that nothing is read twice.

Each new board is compared with its *past*: the figures of each agent when a period began, and its last seven days. The
past is computed once an hour, when the record before a period changes (a swap is found late or withdrawn), and when the
set of tokens that count changes, and it is published in KV.

A period begins at the points nearest to its nominal start, if there are any near it; missing points are not replaced.
The difference of two P&Ls is a gain only if both cover the same swaps. So the gain is unknown for an agent if one of
its old swaps was found or withdrawn since, if it has another wallet, or if one of its tokens lost or got a price.

Every agent's P&L of the last 90 days, one point a day: one value in KV, computed once an hour and sent unchanged.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from holdfast.types import KV, Database, Row
from tocsin.board.board import BoardReader, PeriodFigures
from tocsin.board.news import newest_id, trim_news
from tocsin.board.types import AgentCurve, BoardRow, Curves, HistoryPoint
from tocsin.scheduler.task import Task, TaskContext, TaskResult
from tocsin.settings import Settings
from tocsin.shape import FreeForm, Shape
from tocsin.sql import read_queries
from tocsin.swaps.position import get_value, set_value

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
PAST_KEY = "board:past:v2"
DAY_MINUTES = 24 * 60
PERIOD_HOURS: dict[str, int] = {"24h": 24, "7d": 7 * 24, "30d": 30 * 24}
NEAR_HOURS: dict[str, int] = {"24h": 2, "7d": 7, "30d": 30}  # how far a point may be from its start
SLOTS, SLOT_HOURS = 28, 6
FOUND_LATE_S = 3_600  # a swap found sooner is not late
_RANK, _TRADES, _CENTS, _UNCOUNTED = 1, 2, 4, 6  # positions in a point: see agent_days
_FIGURES = ("trades", "valued", "given", "received", "uncounted")
CURVES_KEY = "curves:v1"
DAYS = 90
STEP_DAYS = 15  # per query, so that none delays others


def snapshot_task(settings: Settings) -> Task:
    hourly_days = settings.history_hourly_days
    age_max_ms = max(HOUR_MS, settings.tenero_cadence, settings.sweep_cadence)  # each wakes the task that publishes it

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
    stored = await get_value(db, STATE_KEY)
    done = json.loads(stored) if stored else {}
    day, hour = int(done.get("day", 0)), int(done.get("hour", 0))
    days = (await db.prepare(SQL["thin_out_days"]).bind(day, before_day, ROWS_MAX).run()).meta.changes
    if days < ROWS_MAX:
        day = max(day, before_day)
    prices, hour = await _thin_prices(db, hour, before_day * 24)
    state = json.dumps({"day": day, "hour": hour})
    if stored != state:
        await set_value(db, STATE_KEY, state, now).run()
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


# The past of the board


@dataclass(frozen=True, slots=True)
class PastPoint(Shape):
    """An agent's P&L and number of trades when a period began; `uncounted` of the trades had no value."""

    pnl_usd: float | None
    trades: int
    uncounted: int | None


@dataclass(frozen=True, slots=True)
class BoardPast(Shape):
    """The figures of agents and wallets at the start of each period, by agent (`erc8004_agent_id`) or by wallet.

    `points` were recorded then. `before` is from the current record: what each wallet had traded by then (trades, those
    with a known value, micro-USD given and received, trades that do not count now). `just_before` is how
    many of these trades may have been found after the point. `counted` has the tokens that count now. `ranks` has the
    ranks of a day ago. `news_id` is the newest change of the record that is included; `unvalued`: a swap from before a
    period is still waiting for its value.
    """

    hour_at: int
    since: dict[str, int]
    counted: list[str]
    points: dict[str, dict[int, PastPoint]]
    before: dict[str, dict[str, list[int]]]
    just_before: dict[str, dict[str, int]]
    ranks: dict[int, int]
    sparklines: dict[int, list[float | None]]
    news_id: int = 0
    unvalued: bool = False


async def past_at(db: Database, now: int, counted: Collection[str]) -> BoardPast:
    """Compute the past, one short query per day. `counted` has the tokens that count now."""
    hour_at, news_id = now // HOUR_MS * HOUR_MS, await newest_id(db)
    nearest = {
        period: _Nearest((hour_at - hours * HOUR_MS) // MINUTE_MS, NEAR_HOURS[period] * 60)
        for period, hours in PERIOD_HOURS.items()
    }
    lines = _Lines(hour_at // MINUTE_MS - SLOTS * SLOT_HOURS * 60)
    every: list[_Nearest | _Lines] = [*nearest.values(), lines]
    for day in sorted({day for reader in every for day in reader.days}):
        readers = [reader for reader in every if day in reader.days]
        for row in (await db.prepare(SQL["points_of_day"]).bind(day).all()).results:
            points = json.loads(f"[{row['points']}]")
            for reader in readers:
                reader.read(row["agent_id"], day * DAY_MINUTES, points)
    since = {period: reader.starts_minute * MINUTE_MS for period, reader in nearest.items()}
    starts_s = json.dumps([at // 1000 for at in since.values()])
    tokens = json.dumps(sorted(counted))
    within, totals, just_before, unvalued = await db.batch(
        [
            db.prepare(SQL["trades_since"]).bind(starts_s, tokens),
            db.prepare(SQL["totals"]).bind(tokens),
            db.prepare(SQL["trades_just_before"]).bind(starts_s, FOUND_LATE_S),
            db.prepare(SQL["unvalued_before"]).bind(_newest_start_s(since)),
        ]
    )
    return BoardPast(
        hour_at=hour_at,
        since=since,
        counted=sorted(counted),
        points={
            period: {agent_id: _past_point(point) for agent_id, point in reader.points.items()}
            for period, reader in nearest.items()
        },
        before=_before(within.results, totals.results),
        just_before={
            period: {row["sender"]: row["trades"] for row in just_before.results if row["number"] == number}
            for number, period in enumerate(PERIOD_HOURS)
        },
        ranks={agent_id: point[_RANK] for agent_id, point in nearest["24h"].points.items()},
        sparklines=lines.found,
        news_id=news_id,
        unvalued=bool(unvalued.results),
    )


async def is_outdated(db: Database, past: BoardPast, counted: Collection[str]) -> bool:
    """Whether the record before its periods has changed or may have changed, or other tokens count now."""
    if past.unvalued or past.counted != sorted(counted):
        return True
    row = await db.prepare(SQL["changes_since"]).bind(past.news_id, _newest_start_s(past.since)).first() or {}
    is_trimmed = bool(row["n"]) and row["n"] < row["newest"] - past.news_id
    return is_trimmed or bool(row["are_old"])


def _newest_start_s(since: Mapping[str, int]) -> int:
    return max(since.values()) // 1000


class _Nearest:
    """The points of all agents nearest to a minute, if any are near. All have the same time."""

    def __init__(self, minute: int, near: int) -> None:
        self.starts_minute = minute  # the minute of the points; if there are none, the wanted one
        self._wanted, self._near = minute, near + 1
        self.days = range((minute - near) // DAY_MINUTES, (minute + near) // DAY_MINUTES + 1)
        self.points: dict[int, list[int]] = {}  # by agent

    def read(self, agent_id: int, day_minute: int, points: list[list[int]]) -> None:
        wanted = self._wanted - day_minute
        point = min(points, key=lambda each: abs(each[0] - wanted))
        minute = day_minute + point[0]
        if abs(minute - self._wanted) < self._near:
            self.starts_minute, self._near = minute, abs(minute - self._wanted)
            self.points.clear()  # they are from another minute
        if minute == self.starts_minute:
            self.points[agent_id] = point


def _past_point(point: list[int]) -> PastPoint:
    uncounted = point[_UNCOUNTED] if len(point) > _UNCOUNTED else None
    return PastPoint(usd_of_cents(point[_CENTS]), point[_TRADES], uncounted)


class _Lines:
    """The last P&L of each agent in each time slot."""

    def __init__(self, first_minute: int) -> None:
        self._first = first_minute
        length = SLOTS * SLOT_HOURS * 60
        self.days = range(first_minute // DAY_MINUTES, (first_minute + length) // DAY_MINUTES + 1)
        self.found: dict[int, list[float | None]] = {}

    def read(self, agent_id: int, day_minute: int, points: list[list[int]]) -> None:
        line = self.found.setdefault(agent_id, [None] * SLOTS)
        offset = day_minute - self._first
        cents = {(offset + point[0]) // (SLOT_HOURS * 60): point[_CENTS] for point in points}  # the last one wins
        for slot, value in cents.items():
            if 0 <= slot < SLOTS:
                line[slot] = _four_digits(usd_of_cents(value))


def _before(within: Sequence[Row], totals: Sequence[Row]) -> dict[str, dict[str, list[int]]]:
    """What each wallet had traded before each period: its totals less its trades in the period."""
    recent = {(row["number"], row["sender"]): row for row in within}
    before: dict[str, dict[str, list[int]]] = {}
    for number, period in enumerate(PERIOD_HOURS):
        before[period] = {}
        for row in totals:
            since = recent.get((number, row["sender"]), {})
            before[period][row["sender"]] = [row[name] - since.get(name, 0) for name in _FIGURES]
    return before


def with_past(rows: Sequence[BoardRow], past: BoardPast) -> tuple[list[BoardRow], dict[str, PeriodFigures]]:
    """The board's rows with their past, and their figures for each period."""
    compared = [
        replace(
            row,
            rank_change=None if (rank := past.ranks.get(row.erc8004_agent_id)) is None else rank - row.rank,
            sparkline=[*past.sparklines.get(row.erc8004_agent_id, [None] * SLOTS), _four_digits(row.pnl_usd)],
        )
        for row in rows
    ]
    return compared, {period: _figures(rows, past, period) for period in past.since}


def _figures(rows: Sequence[BoardRow], past: BoardPast, period: str) -> PeriodFigures:
    before, just_before = past.before[period], past.just_before[period]
    figures = PeriodFigures(past.since[period], [], [], [], [], [])
    for row in rows:
        trades_then, valued_then, given, received, uncounted = _sums(before, row.wallets)
        trades = max(0, row.trade_count - trades_then)
        valued = max(0, row.valued_trade_count - valued_then)
        found_after = sum(just_before.get(wallet, 0) for wallet in row.wallets)
        then = _pnl_then(past.points[period].get(row.erc8004_agent_id), trades_then, uncounted, found_after)
        figures.trade_count.append(trades)
        figures.valued_trade_count.append(valued)
        figures.pnl_usd.append(None if row.pnl_usd is None or then is None else round(row.pnl_usd - then, 2))
        volume, gain = row.volume_at_trade_usd, row.pnl_at_trade_usd
        figures.volume_usd.append(_in_period(trades, valued, volume, given / 1e6, least=0.0))
        figures.pnl_at_trade_usd.append(_in_period(trades, valued, gain, (received - given) / 1e6))
    return figures


def _pnl_then(point: PastPoint | None, trades: int, uncounted: int, found_after: int) -> float | None:
    """The P&L at the start of a period, if it covers the same swaps as the current record before the period."""
    if trades == 0:
        return 0.0  # an agent without trades had no gain and no loss
    if point is None or not trades - found_after <= point.trades <= trades or point.uncounted != uncounted:
        return None
    return point.pnl_usd


def _in_period(trades: int, valued: int, now: float | None, then: float, *, least: float | None = None) -> float | None:
    """The sum of a period: 0 without trades, None if no trade has a value."""
    if trades == 0:
        return 0.0
    if valued == 0 or now is None:
        return None
    difference = round(now - then, 6)
    return difference if least is None else max(least, difference)


def _sums(before: Mapping[str, list[int]], wallets: Sequence[str]) -> list[int]:
    of_wallets = [before[wallet] for wallet in wallets if wallet in before]
    if len(of_wallets) == 1:  # the case of nearly every agent
        return of_wallets[0]
    return [sum(column) for column in zip(*of_wallets, strict=True)] if of_wallets else [0] * len(_FIGURES)


def _four_digits(usd: float | None) -> float | None:
    """A number with four significant digits: more would not show on a small curve."""
    return None if usd is None else float(f"{usd:.4g}")


async def curves_at(db: Database, rows: Sequence[BoardRow], now: int) -> Curves:
    """The curves of the agents on the board, in its order. Today's point is the newest one so far."""
    first_day = now // DAY_MS - DAYS + 1
    curves: dict[int, list[float | None]] = {}
    for day in range(first_day, first_day + DAYS, STEP_DAYS):
        found = await db.prepare(SQL["curves"]).bind(first_day, day, day + STEP_DAYS).all()
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


async def published_curves(kv: KV) -> str | None:
    """The published text to send: JSON of `Curves`, if it can be read."""
    return await kv.get(CURVES_KEY)
