"""Finds agents that belong together, and what their group may win. Pure.

A group is judged as one. Only its best placed agent may win, and it wins a prize for P&L or return only if the whole
group, added up, would have won it too. So neither many entries nor two opposite bets give a better chance than one
agent has.
"""

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

from tocsin.exact_decimals import read_decimal
from tocsin.rounds.flag_limits import FUNDER_AGENTS_MAX
from tocsin.shapes.rounds import CATEGORIES, RewardCategory, RoundAgent, RoundRules


class Standing(Protocol):
    """The exact figures of an agent; `priced` are the trades that count."""

    @property
    def agent_id(self) -> int: ...
    @property
    def trades(self) -> int: ...
    @property
    def priced(self) -> int: ...
    @property
    def dust(self) -> int: ...
    @property
    def volume(self) -> Fraction: ...
    @property
    def pnl(self) -> Fraction: ...
    @property
    def capital(self) -> Fraction: ...


@dataclass(frozen=True, slots=True)
class SharedSource:
    """Agents that share a first funder, an owner or an address. `is_service`: too many to belong to one person."""

    name: str
    agents: tuple[int, ...]
    is_service: bool = False


def shared_funders(agents: Iterable[RoundAgent]) -> list[SharedSource]:
    """Return agents whose first STX came from one wallet. If that wallet is an agent's, it belongs to the group."""
    funded: dict[str, set[int]] = {}
    for agent in agents:
        if agent.first_funder is not None:
            funded.setdefault(agent.first_funder, set()).add(agent.erc8004_agent_id)
    for agent in agents:
        if agent.stx_address in funded:
            funded[agent.stx_address].add(agent.erc8004_agent_id)
    return [
        SharedSource(funder, tuple(sorted(members)), is_service=len(members) > FUNDER_AGENTS_MAX)
        for funder, members in sorted(funded.items())
        if len(members) > 1
    ]


def shared_owners(agents: Iterable[RoundAgent]) -> list[SharedSource]:
    """Return identities that share an owner, a Bitcoin address or a wallet."""
    owned: dict[str, set[int]] = {}
    for agent in agents:
        names = [f"the wallet {agent.stx_address}", f"the Bitcoin address {agent.btc_address}"]
        if owner := (agent.owner or "").strip().removeprefix("@").casefold():
            names.append(f"the owner {owner}")
        for name in names:
            owned.setdefault(name, set()).add(agent.erc8004_agent_id)
    return [
        SharedSource(name, tuple(sorted(members)))
        for name, members in sorted(owned.items())
        if len(members) > 1
    ]


def joined(links: Iterable[Iterable[int]]) -> list[list[int]]:
    """Return the groups that links form, each in order, whatever the order of the links."""
    parent: dict[int, int] = {}

    def root(agent: int) -> int:
        while parent.setdefault(agent, agent) != agent:
            parent[agent] = parent[parent[agent]]
            agent = parent[agent]
        return agent

    for link in links:
        roots = sorted({root(agent) for agent in link})
        for other in roots[1:]:
            parent[other] = roots[0]
    groups: dict[int, list[int]] = {}
    for agent in sorted(parent):
        groups.setdefault(root(agent), []).append(agent)
    return [group for _, group in sorted(groups.items()) if len(group) > 1]


def qualifies_for_return(standing: Standing, rules: RoundRules) -> bool:
    """Return whether an agent reaches the floors of the prize for the greatest return."""
    least = Fraction(read_decimal(rules.min_volume_usd))
    enough = standing.priced - standing.dust >= rules.min_priced_trade_count
    return standing.volume > 0 and standing.volume >= least and enough


def group_exclusions(
    groups: Iterable[Sequence[int]],
    standings: Sequence[Standing],
    rules: RoundRules,
    excluded: Mapping[int, AbstractSet[RewardCategory]],
) -> dict[int, set[RewardCategory]]:
    """Return what the members of groups cannot win. `standings` are in order of rank; `excluded` is already decided."""
    exclusions: dict[int, set[RewardCategory]] = {}
    added_up: dict[int, tuple[Fraction, Fraction]] = {}  # by best placed agent: P&L and volume of its group
    for group in groups:
        chosen = set(group)
        members = [standing for standing in standings if standing.agent_id in chosen]
        for standing in members[1:]:
            exclusions[standing.agent_id] = set(CATEGORIES)
        if members:
            pnl = sum((standing.pnl for standing in members), Fraction())
            volume = sum((standing.volume for standing in members), Fraction())
            added_up[members[0].agent_id] = (pnl, volume)
    categories: tuple[RewardCategory, ...] = ("overall_pnl", "return")
    for category in categories:
        running = [
            standing
            for standing in standings
            if standing.priced
            and category not in excluded.get(standing.agent_id, ())
            and category not in exclusions.get(standing.agent_id, ())
            and (category == "overall_pnl" or qualifies_for_return(standing, rules))
        ]
        judged = {
            standing.agent_id: _judged(category, standing, added_up.get(standing.agent_id))
            for standing in running
        }
        best = max(judged.values(), default=Fraction())
        for standing in running:
            if judged[standing.agent_id] < best <= _judged(category, standing, None):
                exclusions.setdefault(standing.agent_id, set()).add(category)
    return exclusions


def _judged(
    category: RewardCategory, standing: Standing, added_up: tuple[Fraction, Fraction] | None
) -> Fraction:
    """Return an agent's P&L or return, or that of its whole group if it is less."""
    own = standing.pnl if category == "overall_pnl" else standing.pnl / standing.volume
    if added_up is None:
        return own
    theirs = added_up[0] if category == "overall_pnl" else added_up[0] / added_up[1]
    return min(own, theirs)
