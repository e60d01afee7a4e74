"""Agents that trade the same amounts at the same time, in the same direction or in opposite ones. Pure.

Two trades match when they are of one pair of tokens, both amounts differ by 2 % at most, and they are at most an hour
apart, whichever came first. The largest trades of each agent are compared. They are put into cells by amount, twice and
half a cell apart, so no edge hides a match; in a cell, each is compared with those that follow within the hour.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import NamedTuple

from tocsin.rounds.counted_trades import AgentTrades, CountedTrades
from tocsin.rounds.flag_limits import (
    EVIDENCE_MAX,
    RING_MATCHES_MIN,
    RING_SHARE,
    RING_TOLERANCE,
    RING_TRADES_MAX,
    RING_WINDOW_S,
)

COMPARED_MAX = 16  # trades that follow in a cell: a popular amount must not cost more than the others

_STEP_BITS = 4  # 16 steps between an amount and its double: each is more than the tolerance


class _Trade(NamedTuple):
    """A trade that is compared. `first` and `second` are the amounts of the pair's tokens in their order."""

    time: int
    agent: int
    txid: str
    first: int
    second: int
    is_forward: bool  # gave the first, received the second
    value: int


@dataclass(slots=True)
class Matches:
    """The trades of one agent that match those of another, by transaction, with what each is worth."""

    mirrored: dict[str, int] = field(default_factory=dict)
    same: dict[str, int] = field(default_factory=dict)
    amounts: set[int] = field(default_factory=set)  # given in the same direction

    def note(self, trade: _Trade, *, is_same: bool) -> None:
        if is_same:
            self.same[trade.txid] = trade.value
            self.amounts.add(_step(trade.first if trade.is_forward else trade.second))
        else:
            self.mirrored[trade.txid] = trade.value

    def txids(self) -> list[str]:
        return sorted({*self.mirrored, *self.same})[:EVIDENCE_MAX]


@dataclass(frozen=True, slots=True)
class RingLink:
    """Two agents that traded the same amounts, and some of the transactions."""

    one: int
    other: int
    mirrored: bool
    count: int
    txids: tuple[str, ...]


def ring_links(counted: CountedTrades) -> list[RingLink]:
    """In the order of the agents."""
    cells: dict[tuple[str, str, int], list[_Trade]] = {}
    volumes = {agent: _put(agent, trades, cells) for agent, trades in counted.by_agent.items()}
    found: dict[tuple[int, int], tuple[Matches, Matches]] = {}
    for trades in cells.values():
        for one, other in _matches(trades):
            sides = found.setdefault((one.agent, other.agent), (Matches(), Matches()))
            sides[0].note(one, is_same=one.is_forward == other.is_forward)
            sides[1].note(other, is_same=one.is_forward == other.is_forward)
    links = (_link(agents, sides, volumes) for agents, sides in sorted(found.items(), key=itemgetter(0)))
    return [link for link in links if link is not None]


def _put(agent: int, trades: AgentTrades, cells: dict[tuple[str, str, int], list[_Trade]]) -> int:
    """Put the largest trades of an agent into their cells, and return what they are worth."""
    chosen: Sequence[int] = range(len(trades.swaps))
    if len(chosen) > RING_TRADES_MAX:
        chosen = sorted(chosen, key=trades.values.__getitem__, reverse=True)[:RING_TRADES_MAX]
    for at in chosen:
        swap = trades.swaps[at]
        token, other, first, second = swap.token_in, swap.token_out, int(swap.amount_in), int(swap.amount_out)
        is_forward = token < other
        if not is_forward:
            token, other, first, second = other, token, second, first
        trade = _Trade(swap.burn_block_time, agent, swap.txid, first, second, is_forward, trades.values[at])
        step = _step(first)
        even, odd = step & ~1, (step + 1) & ~1 | 1
        for cell in ((token, other, even), (token, other, odd)):
            if cell in cells:
                cells[cell].append(trade)
            else:
                cells[cell] = [trade]
    return sum(trades.values[at] for at in chosen)


def _step(amount: int) -> int:
    """On a scale of 16 steps between an amount and its double."""
    scaled = amount << _STEP_BITS
    shift = scaled.bit_length() - _STEP_BITS - 1
    return (shift << _STEP_BITS) + (scaled >> shift) - (1 << _STEP_BITS)


def _matches(trades: list[_Trade]) -> Iterator[tuple[_Trade, _Trade]]:
    """The trades of a cell that match, those of the agent with the lower number first."""
    trades.sort()
    for at, one in enumerate(trades):
        latest = one.time + RING_WINDOW_S
        for other in trades[at + 1 : at + 1 + COMPARED_MAX]:
            if other.time > latest:
                break
            if (
                one.agent != other.agent
                and abs(one.second - other.second) * RING_TOLERANCE <= max(one.second, other.second)
                and abs(one.first - other.first) * RING_TOLERANCE <= max(one.first, other.first)
            ):
                yield (one, other) if one.agent < other.agent else (other, one)


def _link(
    agents: tuple[int, int], sides: tuple[Matches, Matches], volumes: Mapping[int, int]
) -> RingLink | None:
    """Whether the matches of two agents are many, and much of what the one who traded less has traded."""
    less = min((0, 1), key=lambda side: (volumes[agents[side]], side))
    txids = tuple(sides[0].txids() + sides[1].txids())
    matched = min(len(side.mirrored) for side in sides)
    value = sum(sides[less].mirrored.values())
    if matched >= RING_MATCHES_MIN and value * RING_SHARE >= volumes[agents[less]]:
        return RingLink(*agents, True, matched, txids)
    amounts = min(len(side.amounts) for side in sides)
    value = sum(sides[less].same.values())
    if amounts >= RING_MATCHES_MIN and value * RING_SHARE >= volumes[agents[less]]:
        return RingLink(*agents, False, min(len(side.same) for side in sides), txids)
    return None
