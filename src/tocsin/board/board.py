"""The leaderboard: the trades of eligible agents, valued at given prices. It reads totals, never swaps.

A pair counts only when both its tokens have a price: with one priced side it would be all gain or all loss. A thin
token counts like one without a price; the board names both kinds. An excessive swap does not count either, and is not
in the totals of its pair. An agent is one identity (ERC-8004): its rotated wallets share one row, under the wallet that
traded last. Sums in USD have twelve digits; the underlying amounts are exact.

There are two P&Ls: unrealized, with all amounts at the given prices, and at trade, with each swap at the prices of its
own time.

The object publishes the board as values in KV, so that a visitor costs no query. They are written when something
changes and read as a whole; periods, pages and orders are derived from them.
"""

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import isfinite
from operator import attrgetter
from typing import Any, TypeVar, get_args

from holdfast.errors import UsageError
from holdfast.types import KV, Database, Row
from tocsin.board.capital import KnownOutlays, Trader, capital
from tocsin.board.types import BoardPeriod, BoardRound, BoardRow
from tocsin.errors import MalformedShape
from tocsin.prices.price import Price
from tocsin.shape import Shape
from tocsin.sql import read_queries
from tocsin.swaps import trades

T = TypeVar("T", bound=Shape)

SQL = read_queries(__file__)

_VALUE_OF = {"trades": "trade_count", "volume": "volume_usd", "pnl": "pnl_usd", "latest": "latest_trade_at"}

SORTS = tuple(_VALUE_OF)
DIRECTIONS = ("asc", "desc")
PERIODS: tuple[BoardPeriod, ...] = get_args(BoardPeriod)
PERIOD_DEFAULT: BoardPeriod = "all"
SORT_DEFAULT = "pnl"  # not the number of trades, which costs nothing to raise
PAGE_MAX = 200
PAGE_DEFAULT = 50
KEY = "board:v1"
ROUND_KEY = "board:round:v1"

_OFFSET_MAX = 10**6


@dataclass(frozen=True, slots=True)
class BoardPage:
    """Rows of the board, and the cursor of the next page."""

    rows: list[BoardRow]
    next: str | None


@dataclass(slots=True)
class _Uncounted:
    """The tokens of a wallet that do not count, and the number of trades left out because of them."""

    tokens: set[str] = field(default_factory=set)
    trades: int = 0


@dataclass(slots=True)
class _Line:
    """One identity. Its first wallet is the one shown."""

    agent_id: int
    wallets: list[Row] = field(default_factory=list)
    trades: int = 0
    given_usd: float | None = None
    received_usd: float | None = None
    valued: int = 0  # swaps whose value at the time of the swap is known
    given_micros: int = 0  # of these
    gain_micros: int = 0
    capital_usd: float | None = None
    uncounted: int = 0  # trades
    excess: int = 0  # of these

    @property
    def pnl_usd(self) -> float | None:
        if self.given_usd is None or self.received_usd is None:
            return None
        return self.received_usd - self.given_usd


@dataclass(frozen=True, slots=True)
class BoardQuery:
    """A page of the board: the period of its figures, its order, and the cursor where it starts."""

    sort: str = SORT_DEFAULT
    direction: str = "desc"
    limit: int = PAGE_DEFAULT
    after: str | None = None
    period: BoardPeriod = PERIOD_DEFAULT

    @property
    def order(self) -> str:
        """The order and period that a cursor is valid for."""
        order = f"{self.sort}:{self.direction}"
        return order if self.period == PERIOD_DEFAULT else f"{order}:{self.period}"

    @property
    def offset(self) -> int:
        """Raises `UsageError` for a cursor of another order, or none at all."""
        if self.after is None:
            return 0
        match trades.read(self.after):
            case [str(named), int(offset)] if named == self.order and 0 <= offset <= _OFFSET_MAX:
                return offset
        raise UsageError("cursor must be next of the previous page, with the same sort, dir and period.")


def page_of(rows: Sequence[BoardRow], query: BoardQuery) -> BoardPage:
    """Return a page of all rows, ranked in its order. Rows of a round are in the order of its rules."""
    ordered = ranked(rows, query.sort, query.direction, by_place=query.period == "round")
    start, end = query.offset, query.offset + query.limit
    page = [replace(row, rank=rank) for rank, row in enumerate(ordered[start:end], start + 1)]
    more = end < len(ordered)
    return BoardPage(page, trades.write([query.order, end]) if more else None)


async def all_rows(
    db: Database, units: Mapping[str, float], thin: Collection[str] = (), *, follow_max: int = 0
) -> list[BoardRow]:
    """Return every agent with a trade, in the default order. `units`: USD per smallest unit of tokens that count.

    With `follow_max` it first updates the capital used, which reads at most about that many swaps.
    """
    agents, worth, uncounted, excess, *known = await db.batch(
        [
            db.prepare(SQL["agents"]),
            db.prepare(SQL["values_of_wallets"]).bind(json.dumps(list(units.items()))),
            db.prepare(SQL["other_tokens"]).bind(json.dumps(list(units))),
            db.prepare(SQL["excess_trades"]),
            *KnownOutlays.statements(db),
        ]
    )
    lines = _lines(agents.results, worth.results)
    left_out = await _left_out(db, {row["token"] for row in uncounted.results})
    traders = {line.agent_id: _trader(line, left_out) for line in lines}
    excessive = {row["sender"]: row["trades"] for row in excess.results}
    for line in lines if left_out or excessive else ():
        wallets = [each["stx_address"] for each in line.wallets]
        line.excess = sum(excessive.get(wallet, 0) for wallet in wallets)
        line.uncounted = line.excess + sum(left_out[wallet].trades for wallet in wallets if wallet in left_out)
    used = await capital(db, list(traders.values()), follow_max, KnownOutlays.of(*known))
    for line in lines:
        if line.given_usd is not None:
            line.capital_usd = _worth(used.get(line.agent_id), units)
    rows = ranked([_row(line, traders[line.agent_id], thin) for line in lines], SORT_DEFAULT, "desc")
    return [replace(row, rank=rank) for rank, row in enumerate(rows, 1)]


def _trader(line: _Line, left_out: Mapping[str, _Uncounted]) -> Trader:
    wallets = sorted([wallet["stx_address"] for wallet in line.wallets])
    tokens = {token for wallet in wallets if wallet in left_out for token in left_out[wallet].tokens}
    return Trader(line.agent_id, tuple(wallets), tuple(sorted(tokens)))


def _worth(amounts: Mapping[str, int] | None, units: Mapping[str, float]) -> float | None:
    """Return the value of amounts of tokens; None while the amounts are unknown."""
    if amounts is None:
        return None
    return twelve_digits(sum([amount * units[token] for token, amount in amounts.items()]))


def unit_prices(prices: Mapping[str, Price]) -> dict[str, float]:
    """Return USD per smallest unit, for each token that has a price."""
    return {token: usd for token, price in prices.items() if (usd := _per_unit(price)) is not None}


def _per_unit(price: Price) -> float | None:
    """Return USD per smallest unit. Decimals are never guessed."""
    if price.price_usd is None or price.decimals is None:
        return None
    usd = float(price.price_usd / 10**price.decimals)
    return usd if isfinite(usd) and usd > 0 else None


def _lines(agents: Iterable[Row], worth: Iterable[Row]) -> list[_Line]:
    """One line per identity."""
    values = {row["sender"]: row for row in worth}
    lines: dict[int, _Line] = {}
    for agent in sorted(agents, key=lambda row: (-row["last_trade_at"], row["stx_address"])):
        agent_id = agent["erc8004_agent_id"]
        line = lines.get(agent_id)
        if line is None:
            line = lines[agent_id] = _Line(agent_id)
        line.wallets.append(agent)
        line.trades += agent["trades"]
        if agent["valued"]:
            line.valued += agent["valued"]
            line.given_micros += agent["given_micros"]
            line.gain_micros += agent["received_micros"] - agent["given_micros"]
        value = values.get(agent["stx_address"])
        if value is not None and None not in value.values():  # SQLite's sum is NULL if it is not a number
            line.given_usd = (line.given_usd or 0.0) + value["given_usd"]
            line.received_usd = (line.received_usd or 0.0) + value["received_usd"]
    for line in lines.values():
        line.given_usd, line.received_usd = twelve_digits(line.given_usd), twelve_digits(line.received_usd)
    return list(lines.values())


def twelve_digits(usd: float | None) -> float | None:
    """Round: the order in which SQLite adds is undefined and affects the last digits. None if it is no number."""
    return float(f"{usd:.12g}") if usd is not None and isfinite(usd) else None


def ranked(rows: Sequence[BoardRow], sort: str, direction: str, *, by_place: bool = False) -> list[BoardRow]:
    """Sort rows. Rows without a value come last in both directions.

    In a tie the latest trade comes first; with `by_place`, tied rows keep their order.
    """
    sign = 1 if direction == "asc" else -1
    value_of = value_by(sort)

    def key(row: BoardRow) -> tuple[Any, ...]:
        value = value_of(row)
        tie = () if by_place else (-row.latest_trade_at, row.stx_address)
        return (value is None, sign * (value or 0), *tie)

    return sorted(rows, key=key)


def value_by(sort: str) -> Callable[[BoardRow], float | None]:
    """Return the function that gives the value to sort rows by."""
    return attrgetter(_VALUE_OF[sort])


async def _left_out(db: Database, tokens: Collection[str]) -> dict[str, _Uncounted]:
    """Return the tokens and trades that do not count, for each wallet that has any."""
    left_out: dict[str, _Uncounted] = {}
    if not tokens:
        return left_out
    names = json.dumps(sorted(tokens))
    for row in (await db.prepare(SQL["trades_with"]).bind(names).all()).results:
        of_wallet = left_out.setdefault(row["sender"], _Uncounted())
        of_wallet.tokens.update({row["token_in"], row["token_out"]} & set(tokens))
        of_wallet.trades += row["trades"]
    return left_out


def _row(line: _Line, trader: Trader, thin: Collection[str]) -> BoardRow:
    shown, pnl = line.wallets[0], line.pnl_usd
    return BoardRow(
        rank=0,  # not known yet
        stx_address=shown["stx_address"],
        btc_address=shown["btc_address"],
        display_name=shown["display_name"],
        bns_name=shown["bns_name"],
        erc8004_agent_id=line.agent_id,
        trade_count=line.trades,
        latest_trade_at=shown["last_trade_at"] * 1000,
        volume_usd=line.given_usd,
        capital_usd=line.capital_usd,
        pnl_usd=pnl,
        pnl_percent=percent_of(pnl, line.capital_usd),
        pnl_at_trade_usd=line.gain_micros / 1e6 if line.valued else None,
        valued_trade_count=line.valued,
        unpriced_tokens=[token for token in trader.left_out if token not in thin],
        thin_tokens=[token for token in trader.left_out if token in thin],
        wallets=[wallet["stx_address"] for wallet in line.wallets],
        uncounted_trade_count=line.uncounted,
        excess_trade_count=line.excess,
        volume_at_trade_usd=line.given_micros / 1e6 if line.valued else None,
    )


def percent_of(pnl: float | None, base: float | None) -> float | None:
    """Return P&L as a percentage. None also if the quotient is too large for a number: JSON has no infinity."""
    if pnl is None or not base:
        return None
    percent = pnl / base * 100
    return percent if isfinite(percent) else None


# The published board


@dataclass(frozen=True, slots=True)
class PeriodFigures(Shape):
    """The agents' figures since a time (unix ms): a value for each row of the board, in its order."""

    since: int
    pnl_usd: list[float | None]
    volume_usd: list[float | None]  # each swap at the prices of its own time, as in the next field
    pnl_at_trade_usd: list[float | None]
    trade_count: list[int]
    valued_trade_count: list[int]


@dataclass(frozen=True, slots=True)
class PublishedBoard(Shape):
    """All rows, in the default order. A final board is valued at the prices of the competition's end.

    The board of a round has a row for each agent that traded in it, in the order of its rules.
    """

    rows: list[BoardRow]
    as_of: int
    prices_as_of: int | None
    final: bool
    periods: dict[str, PeriodFigures] = field(default_factory=dict)
    round: BoardRound | None = None
    round_version: int = 0  # of the result


async def publish(kv: KV, published: Shape, key: str = KEY) -> None:
    """Publish a board, or a part of its history, under a key."""
    await kv.put(key, json.dumps(published.to_json(), separators=(",", ":")))


async def read_published(kv: KV, key: str, shape: type[T]) -> T | None:
    """Return what was published under a key; None if there is nothing or it is unreadable."""
    text = await kv.get(key)
    return None if text is None else parsed(text, shape)


def parsed(text: str, shape: type[T]) -> T | None:
    """Return the shape; None for a text of another release, or a damaged one."""
    with suppress(ValueError, MalformedShape):
        return shape.from_json(json.loads(text))
    return None


class BoardReader:
    """Reads a published board, and parses it once for each publication."""

    def __init__(self, kv: KV, key: str = KEY) -> None:
        self._kv = kv
        self._key = key
        self._text = ""
        self._board: PublishedBoard | None = None

    async def read(self) -> PublishedBoard | None:
        """Return the board; None if there is none or it cannot be read."""
        text = await self._kv.get(self._key)
        if text is None:
            return None
        if text != self._text:
            self._text, self._board = text, parsed(text, PublishedBoard)
        return self._board


class PeriodRows:
    """The rows of each period, computed once for each published board."""

    def __init__(self) -> None:
        self._board: PublishedBoard | None = None
        self._rows: dict[str, list[BoardRow]] = {}

    def of(self, board: PublishedBoard, period: BoardPeriod) -> Sequence[BoardRow]:
        """Return the rows of a period; none if the board is from an older release without that period."""
        if period in {"all", "round"}:
            return board.rows
        if board is not self._board:
            self._board, self._rows = board, {}
        if period not in self._rows:
            figures = board.periods.get(period)
            self._rows[period] = [] if figures is None else _rows_of(board.rows, figures)
        return self._rows[period]


def _rows_of(rows: Sequence[BoardRow], figures: PeriodFigures) -> list[BoardRow]:
    columns = zip(
        rows,
        figures.pnl_usd,
        figures.volume_usd,
        figures.pnl_at_trade_usd,
        figures.trade_count,
        figures.valued_trade_count,
        strict=True,
    )
    return [
        replace(
            row,
            pnl_usd=pnl,
            pnl_percent=percent_of(pnl, row.capital_usd),
            volume_usd=volume,
            volume_at_trade_usd=volume,
            pnl_at_trade_usd=at_trade,
            trade_count=trades,
            valued_trade_count=valued,
            uncounted_trade_count=trades - valued,
            excess_trade_count=min(row.excess_trade_count, trades - valued),
            unpriced_tokens=row.unpriced_tokens if trades > valued or pnl is None else [],
            thin_tokens=row.thin_tokens if trades > valued or pnl is None else [],
        )
        for row, pnl, volume, at_trade, trades, valued in columns
    ]
