"""The price of a token: the cached price, or a peg, or none. Pure.

Every reader (the API, the board) uses this module, so all of them show the same price.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files

from tocsin.bindings import KV
from tocsin.prices.cache import CachedPrice, get_cached_token_prices
from tocsin.shapes.prices import Price

# An unchanged price is written only once an hour, so an entry may be that old and still be correct.
STALE_AFTER_MS = 2 * 3_600_000


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
