"""What a token cost over time."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from tocsin.shapes.base import Shape

PricePeriod: TypeAlias = Literal["24h", "7d", "30d"]


@dataclass(frozen=True, slots=True)
class PastPrice(Shape):
    """A price and when it was seen (unix ms); null: the source had none then."""

    at: int
    price_usd: float | None


@dataclass(frozen=True, slots=True)
class PriceHistory(Shape):
    """A token's prices of a period, oldest first, a few hundred at most. A gap stays a gap."""

    token: str
    period: PricePeriod
    as_of: int
    points: list[PastPrice]
