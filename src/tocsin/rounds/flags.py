"""Finds trades that look like gaming, and the prizes that an agent cannot win because of them. Pure.

Everything comes from the inputs of the round, so anybody can recount it. The order of the inputs does not matter. The
thresholds are in `flag_limits.py`; `docs/fair-play.md` explains them.
"""

from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import get_args

from tocsin.exact_decimals import read_decimal
from tocsin.rounds.churn import ThereAndBack, there_and_back
from tocsin.rounds.flag_limits import CHURN_GAIN, DUST_SHARE, DUST_TRADES_MIN, EVIDENCE_MAX, TURNOVER_MAX
from tocsin.rounds.groups import (
    SharedSource,
    Standing,
    group_exclusions,
    joined,
    shared_funders,
    shared_owners,
)
from tocsin.rounds.ring import RingLink, ring_links
from tocsin.rounds.trading_accounts import TradingAccounts
from tocsin.shapes.rounds import (
    CATEGORIES,
    AgentFlag,
    FlagDecision,
    FlagKind,
    RewardCategory,
    RoundInputs,
    RoundRules,
)

GROUP_KINDS: tuple[FlagKind, ...] = ("ring", "shared_funder", "shared_owner")

_KINDS: tuple[FlagKind, ...] = get_args(FlagKind)


@dataclass(slots=True)
class _Found:
    """The findings, before operators' decisions."""

    flags: list[AgentFlag] = field(default_factory=list)
    links: list[tuple[FlagKind, tuple[int, ...]]] = field(default_factory=list)


def flags_of(
    inputs: RoundInputs, standings: Sequence[Standing], accounts: TradingAccounts
) -> Generator[None, None, list[AgentFlag]]:
    """Find the flags in steps; they are in the order of agent and kind.

    `standings` and `accounts` are those that the inputs give; the best standing is the first.
    """
    found = _Found()
    for standing in standings:
        found.flags += _churn(standing, accounts, inputs.rules)
        found.flags += _dust(standing, inputs.rules)
        found.flags += _excess(standing, accounts)
        yield
    traded = {standing.agent_id for standing in standings}
    _add_rings(found, (yield from ring_links(accounts)))
    _add_shared(found, "shared_funder", shared_funders(inputs.agents), traded)
    _add_shared(found, "shared_owner", shared_owners(inputs.agents), traded)
    decisions = Decisions(inputs.decisions)
    found.flags += decisions.exclusions()
    flags = [decisions.applied(flag) for flag in found.flags]
    return sorted(
        _with_groups(flags, found.links, standings, inputs.rules, decisions),
        key=lambda flag: (flag.erc8004_agent_id, flag.kind),
    )


class Decisions:
    """The decisions of operators in order; the last one on a flag holds."""

    def __init__(self, decisions: Iterable[FlagDecision]) -> None:
        self._excluded: dict[int, FlagDecision] = {}
        self._cleared: set[tuple[int, FlagKind]] = set()
        for decision in sorted(decisions, key=lambda each: (each.decided_at, each.decision, each.reason)):
            agent = decision.erc8004_agent_id
            if decision.decision == "exclude":
                self._excluded[agent] = decision
                self._cleared.discard((agent, "operator"))
            else:
                kinds = _KINDS if decision.kind is None else (decision.kind,)
                self._cleared.update((agent, kind) for kind in kinds)

    def has_cleared(self, agent: int, kind: FlagKind) -> bool:
        return (agent, kind) in self._cleared

    def exclusions(self) -> list[AgentFlag]:
        return [
            AgentFlag(agent, "operator", f"excluded by an operator: {decision.reason}", [], list(CATEGORIES))
            for agent, decision in sorted(self._excluded.items())
        ]

    def applied(self, flag: AgentFlag) -> AgentFlag:
        """Return the flag after decisions. A cleared flag stays, marked as cleared."""
        if not self.has_cleared(flag.erc8004_agent_id, flag.kind):
            return flag
        return AgentFlag(flag.erc8004_agent_id, flag.kind, flag.reason, flag.txids, [], cleared=True)


def _churn(standing: Standing, accounts: TradingAccounts, rules: RoundRules) -> list[AgentFlag]:
    volume = int(standing.volume * accounts.dollar)
    churned = there_and_back(accounts.by_agent[standing.agent_id].pairs)
    if churned.is_churn(volume):
        reason = (
            f"{churned.trades:,} of {standing.priced:,} trades went there and back within an hour: "
            f"{accounts.usd(churned.volume)} of {accounts.usd(volume)}, which earned nearly nothing"
        )
        excludes = _churn_excludes(churned, standing, volume, accounts.dollar, rules)
        return [AgentFlag(standing.agent_id, "churn", reason, churned.txids, excludes)]
    turned = standing.volume / standing.capital if standing.capital else Fraction()
    if turned > TURNOVER_MAX and standing.pnl * CHURN_GAIN < standing.volume:
        reason = f"its capital was turned over {int(turned):,} times, which earned nearly nothing"
        return [AgentFlag(standing.agent_id, "churn", reason, churned.txids, ["volume"])]
    return []


def _churn_excludes(
    churned: ThereAndBack, standing: Standing, volume: int, dollar: int, rules: RoundRules
) -> list[RewardCategory]:
    """Return the excluded prizes: always volume, and return if the floors are reached only by churning."""
    least = Fraction(read_decimal(rules.min_volume_usd))
    too_little = Fraction(volume - churned.volume, dollar) < least
    too_few = standing.priced - standing.dust - churned.trades < rules.min_priced_trade_count
    return ["volume", "return"] if too_little or too_few else ["volume"]


def _dust(standing: Standing, rules: RoundRules) -> list[AgentFlag]:
    """Return the flag for dust. It excludes nothing: the rules do not count dust towards the floors."""
    if standing.dust < DUST_TRADES_MIN or standing.dust * DUST_SHARE < standing.trades:
        return []
    reason = f"{standing.dust:,} of {standing.trades:,} trades gave less than {rules.dust_usd} USD"
    return [AgentFlag(standing.agent_id, "dust", reason, [], [])]


def _excess(standing: Standing, accounts: TradingAccounts) -> list[AgentFlag]:
    """Return the flag for swaps worth more than a pool can pay. It excludes nothing: they do not count anyway."""
    excesses = accounts.by_agent[standing.agent_id].excesses
    if not excesses:
        return []
    reason = f"{len(excesses):,} of {standing.trades:,} trades were worth more than a pool can pay; {excesses[0][1]}"
    txids = [txid for txid, _ in excesses[:EVIDENCE_MAX]]
    return [AgentFlag(standing.agent_id, "excess", reason, txids, [])]


def _add_rings(found: _Found, links: Iterable[RingLink]) -> None:
    """Add one flag for each agent, naming all agents with which it traded the same amounts."""
    partners: dict[int, list[tuple[int, RingLink]]] = {}
    for link in links:
        found.links.append(("ring", (link.one, link.other)))
        partners.setdefault(link.one, []).append((link.other, link))
        partners.setdefault(link.other, []).append((link.one, link))
    for agent, linked in sorted(partners.items()):
        words = [
            f"agent {other} ({link.count:,} trades, {'mirrored' if link.mirrored else 'in the same direction'})"
            for other, link in sorted(linked, key=lambda each: each[0])
        ]
        reason = f"traded the same amounts within an hour as {_listed(words)}"
        txids = min(linked, key=lambda each: each[0])[1].txids
        found.flags.append(AgentFlag(agent, "ring", reason, list(txids), []))


def _add_shared(found: _Found, kind: FlagKind, sources: Iterable[SharedSource], traded: set[int]) -> None:
    """Add one flag for each agent that traded. A source that is a service is shown, but forms no group."""
    reasons: dict[int, list[str]] = {}
    for source in sources:
        members = tuple(agent for agent in source.agents if agent in traded)
        if len(members) < 2:
            continue
        name = f"first funded by {source.name}" if kind == "shared_funder" else f"has {source.name}"
        if not source.is_service:
            found.links.append((kind, members))
        for agent in members:
            others = _listed([str(other) for other in members if other != agent])
            if source.is_service:
                others += ": so many that it is probably a service, which has no effect"
            reasons.setdefault(agent, []).append(f"{name}, like agent {others}")
    for agent, texts in sorted(reasons.items()):
        found.flags.append(AgentFlag(agent, kind, "; ".join(texts), [], []))


def _with_groups(
    flags: Iterable[AgentFlag],
    links: Iterable[tuple[FlagKind, tuple[int, ...]]],
    standings: Sequence[Standing],
    rules: RoundRules,
    decisions: Decisions,
) -> list[AgentFlag]:
    """Add the prizes that members of groups cannot win. An agent cleared of a kind of flag is not joined by it."""
    flags = list(flags)
    excluded: dict[int, set[RewardCategory]] = {}
    for flag in flags:
        excluded.setdefault(flag.erc8004_agent_id, set()).update(flag.excludes_from)
    groups = joined(
        [agent for agent in members if not decisions.has_cleared(agent, kind)] for kind, members in links
    )
    exclusions = group_exclusions(groups, standings, rules, excluded)
    return [
        flag
        if flag.kind not in GROUP_KINDS or flag.cleared
        else AgentFlag(
            flag.erc8004_agent_id,
            flag.kind,
            flag.reason,
            flag.txids,
            [category for category in CATEGORIES if category in exclusions.get(flag.erc8004_agent_id, ())],
        )
        for flag in flags
    ]


def _listed(words: Sequence[str]) -> str:
    """List at most five; the rest is counted."""
    shown = ", ".join(words[:5])
    return shown if len(words) <= 5 else f"{shown} and {len(words) - 5:,} more"
