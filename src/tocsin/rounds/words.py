"""A round as people read it: its title, why a flag excludes an agent, and who won. Pure.

The sentences do not use HTML. Names are reduced to what is visible.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tocsin.rounds.round import AgentFlag, FlagKind, RoundWinner
from tocsin.text import short_address, visible

_SLUG = re.compile(r"([a-z]+)-(\d{1,6})(?:-\d{4}-\d{2}-\d{2})?")
_NUMBERS = ("no other agent", "another agent", *(f"{n} agents" for n in ("two", "three", "four", "five", "six")))
_WHY: dict[FlagKind, str] = {
    "churn": "traded there and back",
    "ring": "traded the same amounts as {others}",
    "shared_funder": "shares a funder with {others}",
    "shared_owner": "shares an owner with {others}",
    "dust": "made mostly tiny trades",
    "excess": "made trades worth more than a pool can pay",
    "operator": "was excluded by an operator",
}


@dataclass(frozen=True, slots=True)
class Placed:
    """An agent in a result."""

    rank: int
    agent_id: int
    stx_address: str
    display_name: str | None

    @property
    def name(self) -> str:
        return name_of(self.display_name, self.stx_address)


def name_of(display_name: str | None, address: str) -> str:
    return visible(display_name) or short_address(address)


def title_of(round_id: str) -> str:
    """`Week 2` for `week-2-2026-11-13`; another id is its own title."""
    match = _SLUG.fullmatch(round_id)
    return f"{match[1].capitalize()} {match[2]}" if match else round_id


def why(flag: AgentFlag, flags: Sequence[AgentFlag]) -> str:
    """Why a flag was given, in a few words: `shares a funder with two agents`. `flags` are all of the round."""
    source = flag.reason.partition(", like agent ")[0]
    others = sum(each.kind == flag.kind and each.reason.startswith(f"{source}, like agent ") for each in flags) - 1
    return _WHY[flag.kind].format(others=_NUMBERS[others] if 0 < others < len(_NUMBERS) else "other agents")


def won_by(round_id: str, winner: RoundWinner | None, placed: Sequence[Placed], flags: Sequence[AgentFlag]) -> str:
    """Who won the prize for the best P&L, and why nobody with a better rank did. `placed`: up to the winner."""
    if winner is None:
        return f"{title_of(round_id)} has a result; nobody won the prize for the best P&L"
    notes = []
    for each in placed:
        if each.agent_id == winner.erc8004_agent_id:
            break
        excluding = [flag for flag in flags if is_excluded(flag, each.agent_id)]
        notes += [f"{each.name}, rank {each.rank}, {why(flag, flags)}" for flag in excluding[:1]]
    named = name_of(winner.display_name, winner.stx_address)
    rank = next((each.rank for each in placed if each.agent_id == winner.erc8004_agent_id), None)
    note = "" if rank is None or not notes else f" ({'; '.join([f'rank {rank}', *notes])})"
    return f"{title_of(round_id)} was won by {named}{note}"


def is_excluded(flag: AgentFlag, agent_id: int) -> bool:
    """Whether this flag keeps this agent from winning the prize for the best P&L."""
    return flag.erc8004_agent_id == agent_id and not flag.cleared and "overall_pnl" in flag.excludes_from
