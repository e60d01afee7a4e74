"""Agents that trade the same amounts at the same time, in the same direction or in opposite ones. Pure.

Two trades match when they are of one pair of tokens, both amounts differ by 2 % at most, and they are at most an hour
apart, whichever came first. The largest trades of each agent are compared. They are put into cells by amount, twice and
half a cell apart, so no edge hides a match; in a cell, each is compared with those that follow within the hour.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
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
    cells: defaultdict[tuple[int, int], list[_Trade]] = defaultdict(list)
    pairs: dict[tuple[str, str], int] = {}
    volumes = {agent: _put(agent, trades, pairs, cells) for agent, trades in counted.by_agent.items()}
    matches = [match for trades in cells.values() for match in _matches(trades)]
    often = Counter([(one.agent, other.agent) for one, other in matches])
    found: dict[tuple[int, int], tuple[Matches, Matches]] = {
        agents: (Matches(), Matches()) for agents, count in sorted(often.items()) if count >= RING_MATCHES_MIN
    }
    for one, other in matches:
        sides = found.get((one.agent, other.agent))
        if sides is not None:
            sides[0].note(one, is_same=one.is_forward == other.is_forward)
            sides[1].note(other, is_same=one.is_forward == other.is_forward)
    links = (_link(agents, sides, volumes) for agents, sides in found.items())
    return [link for link in links if link is not None]


def _put(
    agent: int,
    trades: AgentTrades,
    pairs: dict[tuple[str, str], int],
    cells: defaultdict[tuple[int, int], list[_Trade]],
) -> int:
    """Put the largest trades of an agent into their cells, and return what they are worth."""
    chosen = _largest(trades.values)
    for at in chosen:
        swap = trades.swaps[at]
        token, other, first, second = swap.token_in, swap.token_out, int(swap.amount_in), int(swap.amount_out)
        is_forward = token < other
        if not is_forward:
            token, other, first, second = other, token, second, first
        pair = pairs.setdefault((token, other), len(pairs))
        trade = _Trade(swap.burn_block_time, agent, swap.txid, first, second, is_forward, trades.values[at])
        step = _step(first)
        cells[pair, step & ~1].append(trade)
        cells[pair, (step + 1) | 1].append(trade)
    return sum(trades.values[at] for at in chosen)


def _largest(values: Sequence[int]) -> Sequence[int]:
    """Where the largest are; of equal ones the first."""
    if len(values) <= RING_TRADES_MAX:
        return range(len(values))
    least = sorted(values)[-RING_TRADES_MAX]
    larger = [at for at, value in enumerate(values) if value > least]
    equal = [at for at, value in enumerate(values) if value == least]
    return larger + equal[: RING_TRADES_MAX - len(larger)]


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
    least = volumes[agents[less]]
    mirrored, same = (min(len(side.mirrored) for side in sides), min(len(side.same) for side in sides))
    amounts = min(len(side.amounts) for side in sides)
    is_mirrored = mirrored >= RING_MATCHES_MIN and sum(sides[less].mirrored.values()) * RING_SHARE >= least
    if is_mirrored or (amounts >= RING_MATCHES_MIN and sum(sides[less].same.values()) * RING_SHARE >= least):
        txids = tuple(sides[0].txids() + sides[1].txids())
        return RingLink(*agents, is_mirrored, mirrored if is_mirrored else same, txids)
    return None
