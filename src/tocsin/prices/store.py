"""Prices by token: cached ones in KV, pegs, and the series of all accepted prices in the database.

- `tenero:price:{tokenId}` in KV is `{priceUsd, decimals, fetchedAt, rateLimit, liquidityUsd, volumeUsd}`. A null price
  means that the source has none; a missing entry, that the price was never requested or a week has passed. To change
  the shape, change `CachedPrice`: entries of an older shape count as missing until the next refresh.
- A peg is a fixed price. It is always in force and not in the series.
- The price *in force* at a time is the newest point of the series (`price_points`) at or before it, unless that is
  stale. Gaps stay gaps: nothing is interpolated.

Every reader (the API, the board) takes prices from here, so all of them show the same ones. The tracked tokens are a
few fixed ones and those that agents trade; each refresh determines them, and publishes them in KV for readers.
"""

import json
import math
from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import TypeAlias

from holdfast.types import KV, Database, Statement
from tocsin.errors import MalformedShape
from tocsin.prices.price import CORE_TOKENS, Price
from tocsin.shape import Shape
from tocsin.sql import read_queries
from tocsin.stacks import DECIMALS_MAX, POOL_USD_MAX, PRICE_USD_MAX, PRICE_USD_MIN, TokenPrice, is_token_id
from tocsin.text import decimal_of_float, decimal_text

# Longer than any back-off of an upstream: the last good price outlives an outage, and its age is shown with it.
PRICE_TTL_S = 7 * 86_400
PRICE_PREFIX = "tenero:price:"
SOURCE = "tenero"
TIME_MAX_MS = 253_402_300_799_999  # the end of the year 9999
_MANY = 100  # keys that KV accepts at once
# An unchanged price is written only once an hour, so an entry may be that old and still be correct.
STALE_AFTER_MS = 2 * 3_600_000
TRADED_MAX = 50
TRACKED_KEY = "tenero:tracked"
STATIC_TOKENS = CORE_TOKENS
_TRADED_READ_MAX = 200  # more than are ever priced: some rows may not be token ids

SQL = read_queries(__file__)


# The calls that remained in the `minute` and the `month`; None if the source did not report them.
RemainingCalls: TypeAlias = dict[str, int | None]


@dataclass(frozen=True, slots=True)
class CachedPrice(Shape):
    """What the source last reported about a token and its pools, and when."""

    price_usd: float | None
    decimals: int | None
    fetched_at: int
    rate_limit: RemainingCalls = field(default_factory=dict)
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
    """The price in an entry; None if it is unreadable or not plausible: such a price would distort every sum."""
    try:
        value = json.loads(text)
        if not isinstance(value, dict) or isinstance(value.get("priceUsd"), str | bool):
            return None
        price = CachedPrice.from_json({**value, "rateLimit": value.get("rateLimit") or {}})
    except (ValueError, OverflowError, RecursionError, MalformedShape):
        return None
    usd = price.price_usd
    plausible = (usd is None or PRICE_USD_MIN <= usd <= PRICE_USD_MAX) and 0 <= price.fetched_at <= TIME_MAX_MS
    return price if plausible else None


@dataclass(frozen=True, slots=True)
class Peg:
    """A fixed price, for stablecoins that the source prices wrongly or not at all."""

    symbol: str
    price_usd: float
    decimals: int


PEGS: Mapping[str, Peg] = {
    contract: Peg(peg["symbol"], peg["priceUsd"], peg["decimals"])
    for contract, peg in json.loads(files("tocsin.prices").joinpath("pegs.json").read_text()).items()
}


def peg_of(token_id: str) -> Peg | None:
    """The peg of a token, by its contract: the asset's name does not matter."""
    return PEGS.get(token_id.partition("::")[0])


def price_of(token_id: str, cached: CachedPrice | None, now: int) -> Price | None:
    """The token's price at `now`; None if it was never fetched."""
    if cached is None or cached.price_usd is None:
        peg = peg_of(token_id)
        if peg is not None:
            return Price(peg.price_usd, peg.decimals, None, stale=False, source="peg")
    if cached is None:
        return None
    stale = not 0 <= now - cached.fetched_at <= STALE_AFTER_MS
    return Price(
        cached.price_usd,
        cached.decimals,
        cached.fetched_at,
        stale=stale,
        source="tenero",
        liquidity_usd=cached.liquidity_usd,
        volume_usd=cached.volume_usd,
    )


async def prices_of(kv: KV, token_ids: Sequence[str], now: int) -> dict[str, Price]:
    """The prices of those tokens that were fetched or have a peg, including those for which the source has no price."""
    cached = await get_cached_token_prices(kv, token_ids)
    prices = {token_id: price_of(token_id, cached.get(token_id), now) for token_id in token_ids}
    return {token_id: price for token_id, price in prices.items() if price is not None}


@dataclass(frozen=True, slots=True)
class PricePoint:
    """A price and when it was seen (unix ms). Numbers are exact decimal text; None: the source had no price then."""

    token_id: str
    at: int
    price_usd: str | None
    decimals: int | None
    source: str
    liquidity_usd: str | None
    volume_usd: str | None


def accepted_point(seen: TokenPrice, decimals: int | None, at: int) -> PricePoint:
    price = None if seen.price_usd is None else decimal_text(decimal_of_float(seen.price_usd))
    return PricePoint(seen.token_id, at, price, decimals, SOURCE, _cents(seen.liquidity_usd), _cents(seen.volume_usd))


def append(db: Database, points: Sequence[PricePoint]) -> list[Statement]:
    """Statements that append these points. An existing point stays as it is."""
    if not points:
        return []
    rows = json.dumps(
        [[p.token_id, p.at, p.price_usd, p.decimals, p.source, p.liquidity_usd, p.volume_usd] for p in points]
    )
    return [db.prepare(SQL["add_tokens"]).bind(rows), db.prepare(SQL["add_points"]).bind(rows)]


async def points_between(
    db: Database, token_ids: Collection[str], first_ms: int, last_ms: int
) -> dict[str, list[PricePoint]]:
    """The points of each token in a period, oldest first; a token without one is left out."""
    values = (json.dumps(sorted(set(token_ids))), first_ms, last_ms)
    found: dict[str, list[PricePoint]] = {}
    for row in (await db.prepare(SQL["points_between"]).bind(*values).all()).results:
        found.setdefault(row["token_id"], []).append(PricePoint(**row))
    return found


async def newest_decimals(db: Database, token_id: str) -> int | None:
    """The token's decimals, from the newest point that has them."""
    row = await db.prepare(SQL["newest_decimals"]).bind(token_id).first()
    return None if row is None else row["decimals"]


def in_force(points: Sequence[PricePoint], at: int) -> PricePoint | None:
    """The point in force at that time, out of one token's points, oldest first; None if there is none."""
    index = bisect_right(points, at, key=lambda point: point.at)
    if not index or at - points[index - 1].at > STALE_AFTER_MS:
        return None
    return points[index - 1]


def _cents(usd: float | None) -> str | None:
    """An amount rounded to cents: values of pools are not more exact."""
    return None if usd is None else decimal_text(decimal_of_float(round(usd, 2)))


def tracked_tokens(traded: Iterable[str]) -> tuple[str, ...]:
    """The static tokens, then the traded ones, most traded first. Anything else is left out."""
    others = [token for token in traded if token not in STATIC_TOKENS and is_token_id(token)]
    return (*STATIC_TOKENS, *others[:TRADED_MAX])


async def publish_tokens(kv: KV, token_ids: Sequence[str]) -> None:
    """Publish the tracked tokens; an unchanged set is not written again."""
    text = json.dumps(list(token_ids))
    if await kv.get(TRACKED_KEY) != text:
        await kv.put(TRACKED_KEY, text)


async def published_tokens(kv: KV) -> tuple[str, ...] | None:
    """The tokens of the newest refresh; None before the first one."""
    text = await kv.get(TRACKED_KEY)
    return None if text is None else tuple(json.loads(text))


async def supported_tokens(kv: KV) -> tuple[str, ...]:
    """The tokens of the newest refresh; before the first one, the static tokens."""
    published = await published_tokens(kv)
    return STATIC_TOKENS if published is None else published


async def traded_tokens(db: Database) -> list[str]:
    """Return the tokens of swaps that count, from any source, most traded first. Reads one row per token."""
    rows = (await db.prepare(SQL["traded_tokens"]).bind(_TRADED_READ_MAX).all()).results
    return [str(row["token"]) for row in rows]
