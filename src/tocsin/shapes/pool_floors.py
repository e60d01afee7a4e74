"""Decides which tokens are *thin*: their pools hold or trade too little for their price to count. Pure.

Tenero does not report everything about every token. Unknown liquidity counts as too little, except for the core
tokens, which everybody trades: a source that omits them must not empty the board. An unknown volume does not matter.
"""

from collections.abc import Collection
from dataclasses import dataclass

CORE_TOKENS = (
    "stx",
    "SM3VDXK3WZZSA84XXFKAFAF15NNZX32CTSG82JFQ4.sbtc-token::sbtc-token",
    "SP4SZE494VC2YC5JYG7AYFQ44F5Q4PYV7DVMDPBG.ststx-token::ststx",
)


@dataclass(frozen=True, slots=True)
class PoolFloors:
    """What a token's pools must hold, and trade in a day, for its price to count. 0: no floor."""

    liquidity_usd: float
    day_volume_usd: float
    core_tokens: Collection[str] = CORE_TOKENS

    def is_thin(self, token_id: str, liquidity_usd: float | None, volume_usd: float | None) -> bool:
        if not self.holds_enough(token_id, liquidity_usd):
            return True
        return volume_usd is not None and volume_usd < self.day_volume_usd

    def holds_enough(self, token_id: str, liquidity_usd: float | None) -> bool:
        if liquidity_usd is None:
            return self.liquidity_usd <= 0 or token_id in self.core_tokens
        return liquidity_usd >= self.liquidity_usd


NO_FLOORS = PoolFloors(0.0, 0.0)
