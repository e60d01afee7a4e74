"""Token prices as visitors see them."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias

from tocsin.shapes.base import Shape

PriceSource: TypeAlias = Literal["tenero", "peg"]

_CONSTRAINTS = {"price_usd": {"exclusiveMinimum": 0}, "decimals": {"minimum": 0, "maximum": 38}}


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
