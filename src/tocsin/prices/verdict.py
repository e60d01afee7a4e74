"""What happens to a price that the source just gave: written, skipped, or held back. Pure.

- A good price is never overwritten by none.
- An unchanged price is not rewritten within an hour.
- A jump beyond a factor, up or down, or other decimals, is held back until the next refresh sees it again.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from tocsin.chain_model import TokenPrice
from tocsin.prices.cache import CachedPrice, RemainingCalls

REWRITE_AFTER_MS = 3_600_000

# priced: accepted. unpriced: the source has no price. held: a jump, held back for now.
PriceKind: TypeAlias = Literal["priced", "unpriced", "held"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """`entry` is what to write, None when the cache stays as it is; `jumped` marks a jump, held back or not."""

    kind: PriceKind
    entry: CachedPrice | None
    jumped: bool = False


def judge(
    seen: TokenPrice,
    cached: CachedPrice | None,
    held: TokenPrice | None,
    *,
    now: int,
    rate_limit: RemainingCalls,
    jump_factor: float,
) -> Verdict:
    """`cached` is what readers see now, `held` what the last refresh held back."""
    entry = CachedPrice(seen.price_usd, known_decimals(seen, cached), now, rate_limit)
    if seen.price_usd is None:
        has_price = cached is not None and cached.price_usd is not None
        return Verdict("unpriced", None if has_price or _is_same(entry, cached) else entry)
    jumped = cached is not None and _is_jump(cached, seen, jump_factor)
    if jumped and (held is None or _is_jump(held, seen, jump_factor)):
        return Verdict("held", None, jumped=True)
    return Verdict("priced", None if _is_same(entry, cached) else entry, jumped)


def known_decimals(seen: TokenPrice, cached: CachedPrice | None) -> int | None:
    """Decimals that the source leaves out this time are kept."""
    return seen.decimals if seen.decimals is not None or cached is None else cached.decimals


def _is_same(entry: CachedPrice, cached: CachedPrice | None) -> bool:
    """Whether the cache has the same already, and not too old."""
    return (
        cached is not None
        and (cached.price_usd, cached.decimals) == (entry.price_usd, entry.decimals)
        and 0 <= entry.fetched_at - cached.fetched_at < REWRITE_AFTER_MS
    )


def _is_jump(known: CachedPrice | TokenPrice, seen: TokenPrice, factor: float) -> bool:
    if known.price_usd is None or seen.price_usd is None:
        return False
    if None not in {known.decimals, seen.decimals} and known.decimals != seen.decimals:
        return True
    low, high = sorted((known.price_usd, seen.price_usd))
    return high > low * factor
