"""How agents did over time, as visitors see it."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from tocsin.shapes.base import Shape

Period: TypeAlias = Literal["24h", "7d", "30d", "90d", "all"]


@dataclass(frozen=True, slots=True)
class HistoryPoint(Shape):
    """The board's row of an agent at a time (unix ms), in USD to the cent; null where it was not known then."""

    at: int
    rank: int
    trade_count: int
    volume_usd: float | None
    pnl_usd: float | None
    pnl_at_trade_usd: float | None


@dataclass(frozen=True, slots=True)
class AgentHistory(Shape):
    """The points of one agent, oldest first."""

    erc8004_agent_id: int
    points: list[HistoryPoint]


@dataclass(frozen=True, slots=True)
class HistoryView(Shape):
    """An agent's points of a period, oldest first: one for each hour, of days long ago the last one.

    An hour without a point is a gap, and stays one. The agent is null for an address without an identity.
    """

    address: str
    erc8004_agent_id: int | None
    period: Period
    as_of: int
    points: list[HistoryPoint]
