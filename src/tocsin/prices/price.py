"""Prices as visitors see them, and which tokens are *thin*: their pools hold or trade too little for a price to count.

Tenero does not report everything about every token. Unknown liquidity counts as too little, except for the core
tokens, which everybody trades: a source that omits them must not empty the board. An unknown volume does not matter.
"""

from collections.abc import Collection
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, ClassVar, Literal, TypeAlias

from tocsin.settings import Settings
from tocsin.shape import Shape

PriceSource: TypeAlias = Literal["tenero", "peg"]
Usd: TypeAlias = float | Decimal
PricePeriod: TypeAlias = Literal["24h", "7d", "30d"]
_CONSTRAINTS = {"price_usd": {"exclusiveMinimum": 0}, "decimals": {"minimum": 0, "maximum": 38}}

CORE_TOKENS = (
    "stx",
    "SM3VDXK3WZZSA84XXFKAFAF15NNZX32CTSG82JFQ4.sbtc-token::sbtc-token",
    "SP4SZE494VC2YC5JYG7AYFQ44F5Q4PYV7DVMDPBG.ststx-token::ststx",
)


@dataclass(frozen=True, slots=True)
class Price(Shape):
    """The price of a token.

    `price_usd` is null if the source has no price. A peg is never fetched. Without `decimals`, an amount of the token
    has no value: they are never guessed. `liquidity_usd` is what the token's pools hold and `volume_usd` what they
    trade in a day; null if the source does not report it.
    """

    CONSTRAINTS: ClassVar = _CONSTRAINTS

    price_usd: float | None
    decimals: int | None
    fetched_at: int | None
    stale: bool
    source: PriceSource
    liquidity_usd: float | None = None
    volume_usd: float | None = None


@dataclass(frozen=True, slots=True)
class PriceList(Shape):
    """Prices by token id. `missing` has the tokens that were never priced."""

    prices: dict[str, Price]
    missing: list[str]
    supported_tokens: list[str]


@dataclass(frozen=True, slots=True)
class OnePrice(Shape):
    """The price of one token; `stale` and `source` are present if it was priced."""

    CONSTRAINTS: ClassVar = _CONSTRAINTS

    token_id: str
    price_usd: float | None
    decimals: int | None
    fetched_at: int | None
    stale: bool | None = None
    source: PriceSource | None = None

    def __post_serialize__(self, json: dict[Any, Any]) -> dict[Any, Any]:
        if self.source is None:
            del json["stale"], json["source"]
        return json


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


@dataclass(frozen=True, slots=True)
class PoolFloors:
    """What a token's pools must hold, and trade in a day, for its price to count. 0: no floor."""

    liquidity_usd: Usd
    day_volume_usd: Usd
    core_tokens: Collection[str] = CORE_TOKENS

    def is_thin(self, token_id: str, liquidity_usd: Usd | None, volume_usd: Usd | None) -> bool:
        if not self.holds_enough(token_id, liquidity_usd):
            return True
        return volume_usd is not None and volume_usd < self.day_volume_usd

    def holds_enough(self, token_id: str, liquidity_usd: Usd | None) -> bool:
        if liquidity_usd is None:
            return self.liquidity_usd <= 0 or token_id in self.core_tokens
        return liquidity_usd >= self.liquidity_usd


NO_FLOORS = PoolFloors(0.0, 0.0)


def floors_of(settings: Settings) -> PoolFloors:
    return PoolFloors(settings.min_liquidity_usd, settings.min_day_volume_usd)
