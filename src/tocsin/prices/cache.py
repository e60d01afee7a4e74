"""`tenero:price:{tokenId}` in KV: `{priceUsd, decimals, fetchedAt, rateLimit}`.

A null price means that the source says it has none; a missing entry, that it was never asked or that a
week has passed. What may be written over what is in `verdict.py`.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass

from tocsin.bindings import JSON, KV

# Longer than any back-off of an upstream: a last good price outlives an outage, and its age is told.
PRICE_TTL_S = 7 * 86_400

_MANY = 100  # keys that KV takes at once


@dataclass(frozen=True, slots=True)
class RateLimit:
    """Calls that remained when the price was fetched; None where the source did not tell."""

    minute: int | None = None
    month: int | None = None


@dataclass(frozen=True, slots=True)
class CachedPrice:
    """What the source last said of a token, and when."""

    price_usd: float | None
    decimals: int | None
    fetched_at: int
    rate_limit: RateLimit = RateLimit()

    def to_json(self) -> dict[str, JSON]:
        return {
            "priceUsd": self.price_usd,
            "decimals": self.decimals,
            "fetchedAt": self.fetched_at,
            "rateLimit": {"minute": self.rate_limit.minute, "month": self.rate_limit.month},
        }


def price_key(token_id: str) -> str:
    return f"tenero:price:{token_id}"


async def get_cached_token_price(kv: KV, token_id: str) -> CachedPrice | None:
    """The cached price of one token; None when there is none."""
    return (await get_cached_token_prices(kv, [token_id])).get(token_id)


async def get_cached_token_prices(kv: KV, token_ids: Sequence[str]) -> dict[str, CachedPrice]:
    """The cached prices of those tokens that have one. An entry that cannot be read counts as none."""
    found: dict[str, CachedPrice] = {}
    for start in range(0, len(token_ids), _MANY):
        part = token_ids[start : start + _MANY]
        texts = await kv.get_many([price_key(token_id) for token_id in part])
        for token_id in part:
            text = texts.get(price_key(token_id))
            entry = None if text is None else _read(text)
            if entry is not None:
                found[token_id] = entry
    return found


async def put_token_price(kv: KV, token_id: str, entry: CachedPrice) -> None:
    text = json.dumps(entry.to_json(), separators=(",", ":"))
    await kv.put(price_key(token_id), text, expiration_ttl=PRICE_TTL_S)


def _read(text: str) -> CachedPrice | None:
    try:
        value = json.loads(text)
        limit = value.get("rateLimit") or {}
        entry = CachedPrice(
            value["priceUsd"],
            value["decimals"],
            value["fetchedAt"],
            RateLimit(limit.get("minute"), limit.get("month")),
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return entry if _is_sound(entry) else None


def _is_sound(entry: CachedPrice) -> bool:
    price, decimals = entry.price_usd, entry.decimals
    return (
        (price is None or (_is_number(price) and math.isfinite(price) and price > 0))
        and (decimals is None or (type(decimals) is int and 0 <= decimals <= 38))
        and type(entry.fetched_at) is int
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
