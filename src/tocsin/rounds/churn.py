"""Trades there and back: volume that ends where it began. Pure, one pass over an agent's trades.

A trade gives back what an earlier trade of the same pair brought, if that was at most an hour before. Parts count: one
trade there and three back are the same as one and one. What came back is compared with what was given for it: who
earned by it has traded.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from operator import itemgetter

from tocsin.rounds.flag_limits import (
    CHURN_GAIN,
    CHURN_SHARE,
    CHURN_TRADES_MIN,
    CHURN_WINDOW_S,
    EVIDENCE_MAX,
)
from tocsin.shapes.rounds import RoundSwap


@dataclass(slots=True)
class _Rest:
    """What is left of what a trade brought: `got` of the one token, for `paid` of the other."""

    paid: int
    got: int


@dataclass(slots=True)
class ThereAndBack:
    """What went there and back. `volume` is given in both directions; `gain` is what came back less what went."""

    volume: int = 0
    gain: int = 0
    rests: dict[str, _Rest] = field(default_factory=dict)  # of the trades that went there, or came back

    def rest_of(self, swap: RoundSwap) -> _Rest:
        rest = self.rests.get(swap.txid)
        if rest is None:
            rest = self.rests[swap.txid] = _Rest(int(swap.amount_in), int(swap.amount_out))
        return rest

    @property
    def trades(self) -> int:
        """That went there, or came back."""
        return len(self.rests)

    @property
    def txids(self) -> list[str]:
        """Some of them."""
        return list(islice(self.rests, EVIDENCE_MAX))

    def is_churn(self, volume: int) -> bool:
        """Whether it is half of the volume, often repeated, and earned nearly nothing."""
        return (
            self.trades >= CHURN_TRADES_MIN
            and self.volume * CHURN_SHARE >= volume
            and self.gain * CHURN_GAIN < self.volume
        )


def there_and_back(swaps: Iterable[RoundSwap], units: Mapping[str, int]) -> ThereAndBack:
    """What one agent, in the order of the chain, gave back within the window; the newest is given back first."""
    pairs: dict[tuple[str, str], list[RoundSwap]] = {}  # one list for both directions
    for swap in swaps:
        _, _, _, _, token_in, _, token_out, _, _, _, _, _ = swap  # fast: there may be a million
        traded = pairs.get((token_in, token_out))
        if traded is None:
            traded = pairs[token_in, token_out] = pairs[token_out, token_in] = []
        traded.append(swap)
    found = ThereAndBack()
    for (first, second), traded in sorted(pairs.items(), key=itemgetter(0)):
        if first < second:
            _match(traded, first, units, found)
    return found


def _match(swaps: Iterable[RoundSwap], first: str, units: Mapping[str, int], found: ThereAndBack) -> None:
    """Of one pair of tokens, in both directions."""
    there: list[RoundSwap] = []
    back: list[RoundSwap] = []
    for swap in swaps:
        mine, earlier = (there, back) if swap.token_in == first else (back, there)
        if earlier and earlier[-1].burn_block_time >= swap.burn_block_time - CHURN_WINDOW_S:
            _give_back(swap, earlier, units, found)
            if not found.rests[swap.txid].got:
                continue
        mine.append(swap)


def _give_back(
    swap: RoundSwap, earlier: list[RoundSwap], units: Mapping[str, int], found: ThereAndBack
) -> None:
    """Match a trade with what earlier ones brought."""
    given, gotten = int(swap.amount_in), int(swap.amount_out)
    left, oldest = given, swap.burn_block_time - CHURN_WINDOW_S
    while left and earlier and earlier[-1].burn_block_time >= oldest:
        lot = found.rest_of(earlier[-1])
        if part := min(left, lot.got):
            paid = lot.paid * part // lot.got
            found.volume += paid * units[swap.token_out] + part * units[swap.token_in]
            found.gain += (gotten * part // given - paid) * units[swap.token_out]
            left, lot.got, lot.paid = left - part, lot.got - part, lot.paid - paid
        if not lot.got:
            earlier.pop()
    rest = found.rest_of(swap)
    rest.paid, rest.got = left, gotten * left // given
