"""The history of agents, as visitors see it."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from tocsin.shapes.base import Shape

Period: TypeAlias = Literal["24h", "7d", "30d", "90d", "all"]


@dataclass(frozen=True, slots=True)
class HistoryPoint(Shape):
    """An agent's row of the board at a time (unix ms), in USD to the cent; null for values not known then."""

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
    """An agent's points in a period, oldest first: one per hour, and only the last one of each day long ago.

    An hour without a point stays a gap. The agent is null for an address without an identity.
    """

    address: str
    erc8004_agent_id: int | None
    period: Period
    as_of: int
    points: list[HistoryPoint]


@dataclass(frozen=True, slots=True)
class AgentCurve(Shape):
    """The P&L of one agent in USD, one value per day; null if none was kept."""

    erc8004_agent_id: int
    stx_address: str
    display_name: str | None
    pnl_usd: list[float | None]


@dataclass(frozen=True, slots=True)
class Curves(Shape):
    """The P&L of all agents at the end of each UTC day, from `first_day_at` (unix ms) on, in the order of the board."""

    as_of: int
    first_day_at: int
    days: int
    agents: list[AgentCurve]
