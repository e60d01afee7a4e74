"""Which prices nobody could trade much at: a token is *thin* when its pools hold or trade too little. Pure."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PoolFloors:
    """What a token's pools must hold, and trade in a day, so that its price counts. 0: no floor."""

    liquidity_usd: float
    day_volume_usd: float

    def is_thin(self, liquidity_usd: float | None, volume_usd: float | None) -> bool:
        """What the source does not tell counts as too little."""
        return not (self.holds_enough(liquidity_usd) and _reaches(volume_usd, self.day_volume_usd))

    def holds_enough(self, liquidity_usd: float | None) -> bool:
        return _reaches(liquidity_usd, self.liquidity_usd)


NO_FLOORS = PoolFloors(0.0, 0.0)


def _reaches(usd: float | None, floor: float) -> bool:
    return floor <= 0 or (usd is not None and usd >= floor)
