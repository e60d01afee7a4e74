"""Decides whether a new price from the source is written, skipped, or held back. Pure.

- A missing price never overwrites a good one.
- An unchanged price is not rewritten within an hour.
- A jump by more than a factor, up or down, or a change of decimals, is held back until the next refresh sees it again
  and the token's pools hold enough to make it plausible.
"""

from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from tocsin.chain_model import TokenPrice
from tocsin.prices.cache import CachedPrice, RemainingCalls
from tocsin.shapes.pool_floors import PoolFloors

REWRITE_AFTER_MS = 3_600_000

# priced: accepted. unpriced: the source has no price. held: a jump, held back for now.
PriceKind: TypeAlias = Literal["priced", "unpriced", "held"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """`entry` is what to write; None if the cache stays as it is.

    `jumped` marks a jump, held back or not; `why` is the reason for holding it back.
    """

    kind: PriceKind
    entry: CachedPrice | None
    jumped: bool = False
    why: str | None = None


def judge(
    seen: TokenPrice,
    cached: CachedPrice | None,
    held: TokenPrice | None,
    *,
    now: int,
    rate_limit: RemainingCalls,
    jump_factor: float,
    floors: PoolFloors,
) -> Verdict:
    """Decide about a price. `cached` is what readers see now, `held` what the last refresh held back."""
    decimals = known_decimals(seen, cached)
    entry = CachedPrice(seen.price_usd, decimals, now, rate_limit, seen.liquidity_usd, seen.volume_usd)
    if seen.price_usd is None:
        has_price = cached is not None and cached.price_usd is not None
        return Verdict(
            "unpriced", None if has_price or _is_same(seen.token_id, entry, cached, floors) else entry
        )
    jumped = cached is not None and _is_jump(cached, seen, jump_factor)
    if jumped and (held is None or _is_jump(held, seen, jump_factor)):
        return Verdict("held", None, jumped=True, why="seen once")
    if jumped and not floors.holds_enough(seen.token_id, seen.liquidity_usd):
        return Verdict(
            "held", _thinned(cached, seen), jumped=True, why=_small_pool(seen.liquidity_usd, floors)
        )
    return Verdict("priced", None if _is_same(seen.token_id, entry, cached, floors) else entry, jumped)


def known_decimals(seen: TokenPrice, cached: CachedPrice | None) -> int | None:
    """The decimals of the source, or the cached ones if it omits them this time."""
    return seen.decimals if seen.decimals is not None or cached is None else cached.decimals


def _thinned(cached: CachedPrice | None, seen: TokenPrice) -> CachedPrice | None:
    """The cached price with the current values of its pools, so that a token with emptied pools becomes thin."""
    if cached is None or cached.liquidity_usd == seen.liquidity_usd:
        return None
    return replace(cached, liquidity_usd=seen.liquidity_usd, volume_usd=seen.volume_usd)


def _small_pool(liquidity_usd: float | None, floors: PoolFloors) -> str:
    if liquidity_usd is None:
        return "the source does not report what its pools hold"
    return f"its pools hold {liquidity_usd:,.2f} USD, less than {floors.liquidity_usd:,.2f}"


def _is_same(token_id: str, entry: CachedPrice, cached: CachedPrice | None, floors: PoolFloors) -> bool:
    """Whether the cache already has the same, and is not too old. Of the pools, only thin or not thin matters."""
    return (
        cached is not None
        and (cached.price_usd, cached.decimals) == (entry.price_usd, entry.decimals)
        and floors.is_thin(token_id, cached.liquidity_usd, cached.volume_usd)
        == floors.is_thin(token_id, entry.liquidity_usd, entry.volume_usd)
        and 0 <= entry.fetched_at - cached.fetched_at < REWRITE_AFTER_MS
    )


def _is_jump(known: CachedPrice | TokenPrice, seen: TokenPrice, factor: float) -> bool:
    if known.price_usd is None or seen.price_usd is None:
        return False
    if None not in {known.decimals, seen.decimals} and known.decimals != seen.decimals:
        return True
    low, high = sorted((known.price_usd, seen.price_usd))
    return high > low * factor
