"""The price of a token over time."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from tocsin.shapes.base import Shape

PricePeriod: TypeAlias = Literal["24h", "7d", "30d"]


@dataclass(frozen=True, slots=True)
class PastPrice(Shape):
    """A price and the time when it was seen (unix ms); null: the source had none then."""

    at: int
    price_usd: float | None


@dataclass(frozen=True, slots=True)
class PriceHistory(Shape):
    """A token's prices in a period, oldest first, a few hundred at most. Gaps are not filled."""

    token: str
    period: PricePeriod
    as_of: int
    points: list[PastPrice]
