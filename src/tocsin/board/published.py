"""The board as the object publishes it: values in KV, so a visitor costs no query.

They are written when something changes and read as a whole. Periods, pages and orders are derived from them.
"""

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from holdfast.types import KV
from tocsin.board.board import percent_of
from tocsin.board.types import BoardPeriod, BoardRound, BoardRow
from tocsin.errors import MalformedShape
from tocsin.shape import Shape

KEY = "board:v1"
ROUND_KEY = "board:round:v1"


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


async def publish(kv: KV, board: PublishedBoard, key: str = KEY) -> None:
    await kv.put(key, json.dumps(board.to_json(), separators=(",", ":")))


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
            self._text, self._board = text, None
            with suppress(ValueError, MalformedShape):
                self._board = PublishedBoard.from_json(json.loads(text))
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
