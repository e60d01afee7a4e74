"""`tenero:price:{tokenId}` in KV: `{priceUsd, decimals, fetchedAt, rateLimit, liquidityUsd, volumeUsd}`.

A null price means that the source has none. A missing entry means that the price was never requested, or a week has
passed. `verdict.py` decides when a new price replaces the cached one.

To change the shape of an entry, change `CachedPrice`. Entries of an older shape count as missing until the next refresh
writes them again, which is fine for a cache.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass

from tocsin.bindings import KV
from tocsin.chain_model import DECIMALS_MAX, POOL_USD_MAX, PRICE_USD_MAX, PRICE_USD_MIN
from tocsin.errors import MalformedShape
from tocsin.shapes.base import Shape

# Longer than any back-off of an upstream: the last good price outlives an outage, and its age is shown with it.
PRICE_TTL_S = 7 * 86_400

TIME_MAX_MS = 253_402_300_799_999  # the end of the year 9999

PRICE_PREFIX = "tenero:price:"

_MANY = 100  # keys that KV accepts at once


@dataclass(frozen=True, slots=True)
class RemainingCalls(Shape):
    """The calls that remained when the price was fetched; null if the source did not report them."""

    minute: int | None = None
    month: int | None = None


NOT_REPORTED = RemainingCalls()


@dataclass(frozen=True, slots=True)
class CachedPrice(Shape):
    """What the source last reported about a token and its pools, and when."""

    price_usd: float | None
    decimals: int | None
    fetched_at: int
    rate_limit: RemainingCalls = NOT_REPORTED
    liquidity_usd: float | None = None
    volume_usd: float | None = None

    def __post_init__(self) -> None:
        price, decimals = self.price_usd, self.decimals
        if price is not None and not (math.isfinite(price) and price > 0):
            raise ValueError("a price is finite and above 0")
        if decimals is not None and not 0 <= decimals <= DECIMALS_MAX:
            raise ValueError(f"decimals are 0 to {DECIMALS_MAX}")
        for usd in (self.liquidity_usd, self.volume_usd):
            if usd is not None and not 0 <= usd <= POOL_USD_MAX:
                raise ValueError(f"what a pool holds or trades is 0 to {POOL_USD_MAX:g}")


def price_key(token_id: str) -> str:
    return f"{PRICE_PREFIX}{token_id}"


async def get_cached_token_price(kv: KV, token_id: str) -> CachedPrice | None:
    """The cached price of one token; None if there is none."""
    return (await get_cached_token_prices(kv, [token_id])).get(token_id)


async def get_cached_token_prices(kv: KV, token_ids: Sequence[str]) -> dict[str, CachedPrice]:
    """The cached prices of those tokens that have one. An unreadable entry counts as missing."""
    prices: dict[str, CachedPrice] = {}
    for start in range(0, len(token_ids), _MANY):
        part = token_ids[start : start + _MANY]
        texts = await kv.get_many([price_key(token_id) for token_id in part])
        for token_id in part:
            text = texts.get(price_key(token_id))
            price = None if text is None else read_price(text)
            if price is not None:
                prices[token_id] = price
    return prices


async def put_token_price(kv: KV, token_id: str, price: CachedPrice) -> None:
    text = json.dumps(price.to_json(), separators=(",", ":"))
    await kv.put(price_key(token_id), text, expiration_ttl=PRICE_TTL_S)


def read_price(text: str) -> CachedPrice | None:
    """The price in an entry; None if the entry is unreadable."""
    try:
        value = json.loads(text)
        if not isinstance(value, dict) or isinstance(value.get("priceUsd"), str | bool):
            return None
        price = CachedPrice.from_json({**value, "rateLimit": value.get("rateLimit") or {}})
    except (ValueError, OverflowError, RecursionError, MalformedShape):
        return None
    return price if _is_plausible(price) else None


def _is_plausible(price: CachedPrice) -> bool:
    """Whether the price is within bounds. An older release accepted any size, which would distort every sum."""
    usd = price.price_usd
    return (usd is None or PRICE_USD_MIN <= usd <= PRICE_USD_MAX) and 0 <= price.fetched_at <= TIME_MAX_MS
