"""Finds trades that look like gaming, and the prizes that an agent cannot win because of them. Pure.

Everything comes from the inputs of the round, so anybody can recount it, and their order does not matter. The
thresholds are in `thresholds.py`; `docs/fair-play.md` explains them.

Rings are agents that trade the same amounts at the same time, in the same direction or in opposite ones. Two trades
match if they are of the same pair of tokens, both amounts differ by at most 2 %, and they are at most an hour apart in
either order. The largest trades of each agent are put into cells by amount, in two grids that are half a cell apart, so
no edge hides a match. In a cell, each trade is compared with those that follow within the hour.

A group of agents that belong together is judged as one. Only its best placed agent may win, and it wins a prize for
P&L or return only if the whole group, added up, would have won it too. So neither many entries nor two opposite bets
give a better chance than one agent has.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Generator, Hashable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import chain, islice
from typing import NamedTuple, TypeAlias, get_args

from tocsin.rounds import thresholds
from tocsin.rounds.accounts import AgentScore, Trade, TradingAccounts
from tocsin.rounds.round import (
    CATEGORIES,
    AgentFlag,
    FlagDecision,
    FlagKind,
    RewardCategory,
    RoundAgent,
    RoundInputs,
    RoundRules,
)
from tocsin.text import read_decimal

GROUP_KINDS: tuple[FlagKind, ...] = ("ring", "shared_funder", "shared_owner")
COMPARED_MAX = 16  # following trades in a cell: a popular amount must not cost more than the others

_TRADES_PER_STEP = 500
_STEP_BITS = 4  # 16 steps between an amount and its double: each is more than the tolerance


class _Trade(NamedTuple):
    """A trade of a pair of tokens. `first` and `second` are the amounts of its tokens in their order."""

    at: int
    agent: int
    txid: str
    first: int
    second: int
    is_forward: bool  # it gave the first token
    value: int


_Cells: TypeAlias = defaultdict[tuple[int, int], list[_Trade]]
_Match: TypeAlias = tuple[_Trade, _Trade]


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
        largest = account.largest(accounts.units)
        _put(agent, largest, pairs, cells)
        volumes[agent] = sum(value for value, _ in largest)
        yield
    found: defaultdict[tuple[int, int], set[_Match]] = defaultdict(set)
    for trades in cells.values():
        trades.sort()
        for start in range(0, len(trades), _TRADES_PER_STEP):
            for one, other in _matches(trades, start):
                found[one.agent, other.agent].add((one, other))
            yield
    links = (_link(matches, volumes) for _, matches in sorted(found.items()))
    return [link for link in links if link is not None]


def _put(agent: int, largest: Iterable[tuple[int, Trade]], pairs: dict[tuple[str, str], int], cells: _Cells) -> None:
    """Put the largest trades of an agent into their cells."""
    for value, (txid, token, first, other, second, at) in largest:
        is_forward = token < other
        if is_forward:
            pair = pairs.setdefault((token, other), len(pairs))
            trade = _Trade(at, agent, txid, first, second, True, value)
        else:
            pair = pairs.setdefault((other, token), len(pairs))
            trade = _Trade(at, agent, txid, second, first, False, value)
        step = _step(trade.first)
        cells[pair, step & ~1].append(trade)
        cells[pair, (step + 1) | 1].append(trade)


def _step(amount: int) -> int:
    """Return the position of an amount on a scale of 16 steps between an amount and its double."""
    scaled = amount << _STEP_BITS
    shift = scaled.bit_length() - _STEP_BITS - 1
    return (shift << _STEP_BITS) + (scaled >> shift) - (1 << _STEP_BITS)


def _matches(trades: list[_Trade], start: int) -> Iterator[_Match]:
    """Yield pairs of matching trades in a cell, the agent with the lower number first."""
    for place, one in enumerate(trades[start : start + _TRADES_PER_STEP], start + 1):
        latest = one.at + thresholds.RING_WINDOW_S
        least, most = _tolerated(one.second)
        for other in trades[place : place + COMPARED_MAX]:
            if other.at > latest:
                break
            if least <= other.second <= most and other.agent != one.agent:
                least_first, most_first = _tolerated(one.first)
                if least_first <= other.first <= most_first:
                    yield (one, other) if one.agent < other.agent else (other, one)


def _tolerated(amount: int) -> tuple[int, int]:
    """Return the smallest and largest amount that differ by at most one part in `RING_TOLERANCE` of the larger."""
    rest = thresholds.RING_TOLERANCE - 1
    return -(-amount * rest // thresholds.RING_TOLERANCE), amount * thresholds.RING_TOLERANCE // rest


def _link(matches: Collection[_Match], volumes: Mapping[int, int]) -> RingLink | None:
    """Return a link if two agents have many matches that make up much of the volume of the one that traded less."""
    if len(matches) < thresholds.RING_MATCHES_MIN:
        return None
    same = [match for match in matches if match[0].is_forward == match[1].is_forward]
    mirrored = [match for match in matches if match[0].is_forward != match[1].is_forward]
    one, other = (trade.agent for trade in next(iter(matches)))
    less = 0 if volumes[one] <= volumes[other] else 1

    def is_much(of_kind: Iterable[_Match]) -> bool:
        values = {match[less].txid: match[less].value for match in of_kind}
        return sum(values.values()) * thresholds.RING_SHARE >= min(volumes[one], volumes[other])

    mirrors = _least(mirrored, lambda trade: trade.txid)
    amounts = _least(same, lambda trade: _step(trade.first if trade.is_forward else trade.second))
    is_mirrored = mirrors >= thresholds.RING_MATCHES_MIN and is_much(mirrored)
    if not is_mirrored and (amounts < thresholds.RING_MATCHES_MIN or not is_much(same)):
        return None
    txids = [sorted({match[side].txid for match in matches})[: thresholds.EVIDENCE_MAX] for side in (0, 1)]
    count = mirrors if is_mirrored else _least(same, lambda trade: trade.txid)
    return RingLink(one, other, is_mirrored, count, (*txids[0], *txids[1]))


def _least(matches: Collection[_Match], key: Callable[[_Trade], Hashable]) -> int:
    """Return how many different trades each of the two agents has in these matches at least."""
    return min(len({key(match[side]) for match in matches}) for side in (0, 1))


@dataclass(frozen=True, slots=True)
class SharedSource:
    """Agents that share a first funder, an owner or an address. `is_service`: too many to belong to one person."""

    name: str  # what each of them has or is
    agents: tuple[int, ...]
    is_service: bool


def shared_funders(agents: Sequence[RoundAgent]) -> list[SharedSource]:
    """Return agents whose first STX came from one wallet. If that wallet is an agent's, it belongs to the group."""
    funders = {agent.first_funder for agent in agents}
    named = [
        (f"first funded by {wallet}", agent.erc8004_agent_id)
        for agent in agents
        for wallet in (agent.first_funder, agent.stx_address)
        if wallet is not None and wallet in funders
    ]
    return _shared(named, thresholds.FUNDER_AGENTS_MAX)


def shared_owners(agents: Sequence[RoundAgent]) -> list[SharedSource]:
    """Return identities that share an owner, a Bitcoin address or a wallet."""
    named = []
    for agent in agents:
        names = [f"has the wallet {agent.stx_address}", f"has the Bitcoin address {agent.btc_address}"]
        if owner := (agent.owner or "").strip().removeprefix("@").casefold():
            names.append(f"has the owner {owner}")
        named += [(name, agent.erc8004_agent_id) for name in names]
    return _shared(named, len(agents))


def _shared(named: Iterable[tuple[str, int]], agents_max: int) -> list[SharedSource]:
    members: defaultdict[str, set[int]] = defaultdict(set)
    for name, agent in named:
        members[name].add(agent)
    return [
        SharedSource(name, tuple(sorted(agents)), is_service=len(agents) > agents_max)
        for name, agents in sorted(members.items())
        if len(agents) > 1
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


def qualifies_for_return(score: AgentScore, rules: RoundRules) -> bool:
    """Return whether an agent reaches the floors of the prize for the greatest return."""
    least = Fraction(read_decimal(rules.min_volume_usd))
    enough = score.priced - score.dust >= rules.min_priced_trade_count
    return score.volume > 0 and score.volume >= least and enough


def group_exclusions(
    groups: Iterable[Sequence[int]],
    scores: Sequence[AgentScore],
    rules: RoundRules,
    excluded: Mapping[int, AbstractSet[RewardCategory]],
) -> dict[int, set[RewardCategory]]:
    """Return what the members of groups cannot win. `scores` are in order of rank; `excluded` is already decided."""
    exclusions: dict[int, set[RewardCategory]] = {}
    added_up: dict[int, tuple[Fraction, Fraction]] = {}  # by best placed agent: P&L and volume of its group
    for group in groups:
        chosen = set(group)
        members = [score for score in scores if score.agent_id in chosen]
        for score in members[1:]:
            exclusions[score.agent_id] = set(CATEGORIES)
        if members:
            pnl = sum((score.pnl for score in members), Fraction())
            volume = sum((score.volume for score in members), Fraction())
            added_up[members[0].agent_id] = (pnl, volume)
    categories: tuple[RewardCategory, ...] = ("overall_pnl", "return")
    for category in categories:
        running = [
            score
            for score in scores
            if score.priced
            and category not in excluded.get(score.agent_id, ())
            and category not in exclusions.get(score.agent_id, ())
            and (category == "overall_pnl" or qualifies_for_return(score, rules))
        ]
        judged = {score.agent_id: _judged(category, score, added_up.get(score.agent_id)) for score in running}
        best = max(judged.values(), default=Fraction())
        for score in running:
            if judged[score.agent_id] < best <= _judged(category, score, None):
                exclusions.setdefault(score.agent_id, set()).add(category)
    return exclusions


def _judged(category: RewardCategory, score: AgentScore, added_up: tuple[Fraction, Fraction] | None) -> Fraction:
    """Return an agent's P&L or return, or that of its whole group if it is less."""
    own = score.pnl if category == "overall_pnl" else score.pnl / score.volume
    if added_up is None:
        return own
    theirs = added_up[0] if category == "overall_pnl" else added_up[0] / added_up[1]
    return min(own, theirs)


@dataclass(slots=True)
class _Found:
    """The findings, before operators' decisions."""

    flags: list[AgentFlag] = field(default_factory=list)
    links: list[tuple[FlagKind, tuple[int, ...]]] = field(default_factory=list)


def find_flags(
    inputs: RoundInputs, scores: Sequence[AgentScore], accounts: TradingAccounts
) -> Generator[None, None, list[AgentFlag]]:
    """Find the flags in steps; they are in the order of agent and kind.

    `scores` and `accounts` are those that the inputs give; the best score is the first.
    """
    found = _Found()
    for score in scores:
        found.flags += _churn(score, accounts, inputs.rules)
        found.flags += _dust(score, inputs.rules)
        found.flags += _excess(score, accounts)
        yield
    traded = {score.agent_id for score in scores}
    _add_rings(found, (yield from ring_links(accounts)))
    _add_shared(found, "shared_funder", shared_funders(inputs.agents), traded)
    _add_shared(found, "shared_owner", shared_owners(inputs.agents), traded)
    decisions = Decisions(inputs.decisions)
    found.flags += decisions.exclusions()
    flags = [decisions.applied(flag) for flag in found.flags]
    return sorted(
        _with_groups(flags, found.links, scores, inputs.rules, decisions),
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
                kinds = get_args(FlagKind) if decision.kind is None else (decision.kind,)
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
        return replace(flag, excludes_from=[], cleared=True)


def _churn(score: AgentScore, accounts: TradingAccounts, rules: RoundRules) -> list[AgentFlag]:
    """Return the flag for trades there and back, or for capital that was turned over, which earned nearly nothing."""
    of_pairs = accounts.by_agent[score.agent_id].pairs
    pairs = [of_pairs[tokens] for tokens in sorted(of_pairs)]
    volume, churned = int(score.volume * accounts.dollar), sum(pair.volume for pair in pairs)
    gain, trades = sum(pair.total_gain for pair in pairs), sum(len(pair.txids) for pair in pairs)
    txids = list(islice(chain.from_iterable(pair.txids for pair in pairs), thresholds.EVIDENCE_MAX))
    is_much = trades >= thresholds.CHURN_TRADES_MIN and churned * thresholds.CHURN_SHARE >= volume
    if is_much and gain * thresholds.CHURN_GAIN < churned:
        reason = (
            f"{trades:,} of {score.priced:,} trades went there and back within an hour: "
            f"{accounts.usd(churned)} of {accounts.usd(volume)}, which earned nearly nothing"
        )
        # Always from the prize for volume, and from that for return if its floors are reached only by churning.
        too_little = Fraction(volume - churned, accounts.dollar) < Fraction(read_decimal(rules.min_volume_usd))
        too_few = score.priced - score.dust - trades < rules.min_priced_trade_count
        excludes: list[RewardCategory] = ["volume", "return"] if too_little or too_few else ["volume"]
        return [AgentFlag(score.agent_id, "churn", reason, txids, excludes)]
    turned = score.volume / score.capital if score.capital else Fraction()
    if turned > thresholds.TURNOVER_MAX and score.pnl * thresholds.CHURN_GAIN < score.volume:
        reason = f"its capital was turned over {int(turned):,} times, which earned nearly nothing"
        return [AgentFlag(score.agent_id, "churn", reason, txids, ["volume"])]
    return []


def _dust(score: AgentScore, rules: RoundRules) -> list[AgentFlag]:
    """Return the flag for dust. It excludes nothing: the rules do not count dust toward the floors."""
    if score.dust < thresholds.DUST_TRADES_MIN or score.dust * thresholds.DUST_SHARE < score.trades:
        return []
    reason = f"{score.dust:,} of {score.trades:,} trades gave less than {rules.dust_usd} USD"
    return [AgentFlag(score.agent_id, "dust", reason, [], [])]


def _excess(score: AgentScore, accounts: TradingAccounts) -> list[AgentFlag]:
    """Return the flag for swaps worth more than a pool can pay. It excludes nothing: they do not count anyway."""
    excesses = accounts.by_agent[score.agent_id].excesses
    if not excesses:
        return []
    reason = f"{len(excesses):,} of {score.trades:,} trades were worth more than a pool can pay; {excesses[0][1]}"
    txids = [txid for txid, _ in excesses[: thresholds.EVIDENCE_MAX]]
    return [AgentFlag(score.agent_id, "excess", reason, txids, [])]


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
        if not source.is_service:
            found.links.append((kind, members))
        for agent in members:
            others = _listed([str(other) for other in members if other != agent])
            if source.is_service:
                others += ": so many that it is probably a service, which has no effect"
            reasons.setdefault(agent, []).append(f"{source.name}, like agent {others}")
    for agent, texts in sorted(reasons.items()):
        found.flags.append(AgentFlag(agent, kind, "; ".join(texts), [], []))


def _with_groups(
    flags: list[AgentFlag],
    links: Iterable[tuple[FlagKind, tuple[int, ...]]],
    scores: Sequence[AgentScore],
    rules: RoundRules,
    decisions: Decisions,
) -> list[AgentFlag]:
    """Add the prizes that members of groups cannot win. An agent cleared of a kind of flag is not joined by it."""
    excluded: dict[int, set[RewardCategory]] = {}
    for flag in flags:
        excluded.setdefault(flag.erc8004_agent_id, set()).update(flag.excludes_from)
    groups = joined([agent for agent in members if not decisions.has_cleared(agent, kind)] for kind, members in links)
    exclusions = group_exclusions(groups, scores, rules, excluded)
    for number, flag in enumerate(flags):
        if flag.kind in GROUP_KINDS and not flag.cleared:
            excludes = exclusions.get(flag.erc8004_agent_id, ())
            flags[number] = replace(flag, excludes_from=[each for each in CATEGORIES if each in excludes])
    return flags


def _listed(words: Sequence[str]) -> str:
    """List at most five; the rest is counted."""
    shown = ", ".join(words[:5])
    return shown if len(words) <= 5 else f"{shown} and {len(words) - 5:,} more"
