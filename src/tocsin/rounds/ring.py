"""Finds agents that trade the same amounts at the same time, in the same direction or in opposite ones. Pure.

Two trades match if they are of the same pair of tokens, both amounts differ by at most 2 %, and they are at most an
hour apart in either order. The largest trades of each agent are compared. They are put into cells by amount, in two
grids that are half a cell apart, so no edge hides a match. In a cell, each trade is compared with those that follow
within the hour.
"""

from collections import Counter, defaultdict
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from tocsin.rounds.flag_limits import (
    EVIDENCE_MAX,
    RING_MATCHES_MIN,
    RING_SHARE,
    RING_TOLERANCE,
    RING_WINDOW_S,
)
from tocsin.rounds.trading_accounts import Trade, TradingAccounts

COMPARED_MAX = 16  # following trades in a cell: a popular amount must not cost more than the others

_TRADES_PER_STEP = 500
_STEP_BITS = 4  # 16 steps between an amount and its double: each is more than the tolerance


# Time, agent, transaction, amounts of the pair's tokens in their order, whether it gave the first of them, value.
_Trade: TypeAlias = tuple[int, int, str, int, int, bool, int]
_Cells: TypeAlias = defaultdict[tuple[int, int], list[_Trade]]


@dataclass(slots=True)
class Matches:
    """The trades of one agent that match those of another, by transaction, with their values."""

    mirrored: dict[str, int] = field(default_factory=dict)
    same: dict[str, int] = field(default_factory=dict)
    amounts: set[int] = field(default_factory=set)  # given in the same direction

    def note(self, trade: _Trade, *, is_same: bool) -> None:
        _, _, txid, first, second, is_forward, value = trade
        if is_same:
            self.same[txid] = value
            self.amounts.add(_step(first if is_forward else second))
        else:
            self.mirrored[txid] = value

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


def ring_links(accounts: TradingAccounts) -> Generator[None, None, list[RingLink]]:
    """Find the links in steps; they are in the order of the agents."""
    cells: _Cells = defaultdict(list)
    pairs: dict[tuple[str, str], int] = {}
    volumes: dict[int, int] = {}
    for agent, account in accounts.by_agent.items():
        largest = account.largest()
        _put(agent, largest, pairs, cells)
        volumes[agent] = sum(value for value, _ in largest)
        yield
    several = [trades for trades in cells.values() if len(trades) > 1]
    often: Counter[tuple[int, int]] = Counter()
    for trades in several:
        trades.sort()
        for first in range(0, len(trades), _TRADES_PER_STEP):
            often.update((one[1], other[1]) for one, other in _matches(trades, first))
            yield
    found: dict[tuple[int, int], tuple[Matches, Matches]] = {
        agents: (Matches(), Matches()) for agents, count in sorted(often.items()) if count >= RING_MATCHES_MIN
    }
    for trades in several if found else ():
        for first in range(0, len(trades), _TRADES_PER_STEP):
            _note(_matches(trades, first), found)
            yield
    links = (_link(agents, sides, volumes) for agents, sides in found.items())
    return [link for link in links if link is not None]


def _note(
    matches: Iterable[tuple[_Trade, _Trade]], found: Mapping[tuple[int, int], tuple[Matches, Matches]]
) -> None:
    for one, other in matches:
        sides = found.get((one[1], other[1]))
        if sides is not None:
            sides[0].note(one, is_same=one[5] == other[5])
            sides[1].note(other, is_same=one[5] == other[5])


def _put(
    agent: int, largest: Iterable[tuple[int, Trade]], pairs: dict[tuple[str, str], int], cells: _Cells
) -> None:
    """Put the largest trades of an agent into their cells."""
    for value, (txid, token, first, other, second, at) in largest:
        is_forward = token < other
        if is_forward:
            pair = pairs.setdefault((token, other), len(pairs))
            trade = (at, agent, txid, first, second, True, value)
        else:
            pair = pairs.setdefault((other, token), len(pairs))
            trade = (at, agent, txid, second, first, False, value)
        step = _step(trade[3])
        cells[pair, step & ~1].append(trade)
        cells[pair, (step + 1) | 1].append(trade)


def _step(amount: int) -> int:
    """Return the position of an amount on a scale of 16 steps between an amount and its double."""
    scaled = amount << _STEP_BITS
    shift = scaled.bit_length() - _STEP_BITS - 1
    return (shift << _STEP_BITS) + (scaled >> shift) - (1 << _STEP_BITS)


def _matches(trades: list[_Trade], first_at: int) -> Iterator[tuple[_Trade, _Trade]]:
    """Yield pairs of matching trades in a cell, the agent with the lower number first; some pairs appear twice."""
    for at, one in enumerate(trades[first_at : first_at + _TRADES_PER_STEP], first_at + 1):
        time, agent, _, first, second, _, _ = one
        latest = time + RING_WINDOW_S
        least, most = _tolerated(second)
        for other in trades[at : at + COMPARED_MAX]:
            if other[0] > latest:
                break
            if least <= other[4] <= most and other[1] != agent:
                least_first, most_first = _tolerated(first)
                if least_first <= other[3] <= most_first:
                    yield (one, other) if agent < other[1] else (other, one)


def _tolerated(amount: int) -> tuple[int, int]:
    """Return the smallest and largest amount that differ by at most one part in `RING_TOLERANCE` of the larger."""
    rest = RING_TOLERANCE - 1
    return -(-amount * rest // RING_TOLERANCE), amount * RING_TOLERANCE // rest


def _link(
    agents: tuple[int, int], sides: tuple[Matches, Matches], volumes: Mapping[int, int]
) -> RingLink | None:
    """Return a link if two agents have many matches that make up much of the volume of the one that traded less."""
    less = min((0, 1), key=lambda side: (volumes[agents[side]], side))
    least = volumes[agents[less]]
    mirrored, same = (min(len(side.mirrored) for side in sides), min(len(side.same) for side in sides))
    amounts = min(len(side.amounts) for side in sides)
    is_mirrored = mirrored >= RING_MATCHES_MIN and sum(sides[less].mirrored.values()) * RING_SHARE >= least
    if is_mirrored or (amounts >= RING_MATCHES_MIN and sum(sides[less].same.values()) * RING_SHARE >= least):
        txids = tuple(sides[0].txids() + sides[1].txids())
        return RingLink(*agents, is_mirrored, mirrored if is_mirrored else same, txids)
    return None
