"""How an agent trades: its win rate, its holding time, its drawdown. Pure.

Tokens that an agent receives in one swap and gives in a later one are matched first in, first out. Each matched part
is a closed trade. It is a win if it was given for more than it was received for, both valued at the time of the swap.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ValuedSwap:
    """A swap with the value of both sides at its time; None where the value is unknown."""

    time_s: int
    token_in: str
    amount_in: int
    token_out: str
    amount_out: int
    given_usd: float | None
    received_usd: float | None


@dataclass(slots=True)
class _Lot:
    """The part of a received amount that the agent still holds."""

    time_s: int
    amount: int
    usd: float | None  # the value given for it


@dataclass(frozen=True, slots=True)
class TradingStats:
    """Figures of closed trades. `win_rate` is the share of wins among the `valued` ones, whose values are known."""

    closed: int
    valued: int
    win_rate: float | None
    holding_s: float | None  # mean over the closed trades


def trading_stats(swaps: Iterable[ValuedSwap]) -> TradingStats:
    """Compute the figures from swaps in chain order."""
    lots: dict[str, deque[_Lot]] = {}
    closed = wins = valued = 0
    held_s = 0
    for swap in swaps:
        left = swap.amount_in
        held = lots.get(swap.token_in, deque())
        while left > 0 and held:
            lot = held[0]
            part = min(left, lot.amount)
            closed += 1
            held_s += swap.time_s - lot.time_s
            if lot.usd is not None and swap.given_usd is not None:
                valued += 1
                wins += swap.given_usd * part / swap.amount_in > lot.usd * part / lot.amount
            left -= part
            if part == lot.amount:
                held.popleft()
            else:
                lot.usd = None if lot.usd is None else lot.usd * (lot.amount - part) / lot.amount
                lot.amount -= part
        lots.setdefault(swap.token_out, deque()).append(_Lot(swap.time_s, swap.amount_out, swap.received_usd))
    return TradingStats(
        closed, valued, wins / valued if valued else None, held_s / closed if closed else None
    )


def draw_down(values: Sequence[float]) -> float:
    """Return the deepest fall from a peak, as a positive number."""
    peak, deepest = float("-inf"), 0.0
    for value in values:
        peak = max(peak, value)
        deepest = max(deepest, peak - value)
    return deepest
