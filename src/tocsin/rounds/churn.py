"""Trades there and back: volume that ends where it began. Pure; makes one pass over an agent's trades.

A trade gives back what an earlier trade of the same pair brought, if that was at most an hour before. Parts count: one
trade there and three back count the same as one and one. The amount that came back is compared with the amount given:
an agent that earned by it has traded, not churned.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import TypeAlias

from tocsin.rounds.flag_limits import (
    CHURN_GAIN,
    CHURN_SHARE,
    CHURN_TRADES_MIN,
    CHURN_WINDOW_S,
    EVIDENCE_MAX,
)

# The unmatched part of a trade: its time, what was paid, what it brought, its transaction.
Lot: TypeAlias = tuple[int, int, int, str]


@dataclass(slots=True)
class PairTrades:
    """An agent's trades of one pair of tokens, and the parts that went there and back.

    `unit` and `unit_back` are the values of one smallest unit of the two tokens, in parts of a dollar.
    """

    unit: int
    unit_back: int
    there: list[Lot] = field(default_factory=list)  # unmatched parts of trades that gave the first token
    back: list[Lot] = field(default_factory=list)  # of trades that gave the second
    given: int = 0  # of the first token, in trades that went there and back
    given_back: int = 0  # of the second
    gain: int = 0  # of the first token: the amount that came back less the amount given
    gain_back: int = 0  # of the second
    txids: dict[str, None] = field(default_factory=dict)  # of the trades that went there or came back

    @property
    def volume(self) -> int:
        return self.given * self.unit + self.given_back * self.unit_back

    @property
    def total_gain(self) -> int:
        return self.gain * self.unit + self.gain_back * self.unit_back

    def give_back(self, trade: Lot, mine: list[Lot], earlier: list[Lot], *, is_first: bool) -> None:
        """Match a trade with the `earlier` ones of the other direction, the newest first.

        `is_first`: it gave the first token.
        """
        at, given, received, txid = trade
        left, oldest, txids = given, at - CHURN_WINDOW_S, self.txids
        costs = gain = 0
        while left and earlier:
            brought_at, paid, brought, brought_by = earlier[-1]
            if brought_at < oldest:
                break
            txids[brought_by] = None
            if left >= brought:
                part, cost = brought, paid
                earlier.pop()
            else:
                part, cost = left, paid * left // brought
                earlier[-1] = (brought_at, paid - cost, brought - part, brought_by)
            costs += cost
            gain += received * part // given - cost
            left -= part
        txids[txid] = None
        if is_first:
            self.given += given - left
            self.given_back += costs
            self.gain_back += gain
        else:
            self.given_back += given - left
            self.given += costs
            self.gain += gain
        rest = received * left // given
        if rest:
            mine.append((at, left, rest, txid))


@dataclass(frozen=True, slots=True)
class ThereAndBack:
    """The part of an agent's trades that went there and back, and some of the transactions."""

    volume: int
    gain: int
    trades: int
    txids: list[str]

    def is_churn(self, volume: int) -> bool:
        """Return whether it is half of the volume, often repeated, and earned nearly nothing."""
        return (
            self.trades >= CHURN_TRADES_MIN
            and self.volume * CHURN_SHARE >= volume
            and self.gain * CHURN_GAIN < self.volume
        )


def there_and_back(pairs: Mapping[tuple[str, str], PairTrades]) -> ThereAndBack:
    """Add up all pairs that an agent traded."""
    in_order: Iterable[PairTrades] = [pairs[tokens] for tokens in sorted(pairs)]
    return ThereAndBack(
        sum(pair.volume for pair in in_order),
        sum(pair.total_gain for pair in in_order),
        sum(len(pair.txids) for pair in in_order),
        list(islice(chain.from_iterable(pair.txids for pair in in_order), EVIDENCE_MAX)),
    )
