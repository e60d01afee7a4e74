"""The result of a round, from its inputs alone. Pure, exact, and the same on every computer.

A swap counts when both its tokens have a price of the end and neither is thin. Volume is the sum of what was given,
P&L what was received less the volume. Money is counted in integers; only quotients are rounded, at the very end.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from itertools import accumulate
from operator import attrgetter

from tocsin.errors import UsageError
from tocsin.exact_decimals import decimal_text, ratio, scaled_text
from tocsin.rounds.flags import flags_of
from tocsin.rounds.token_values import TokenValues, token_values
from tocsin.shapes.rounds import (
    CATEGORIES,
    AgentFlag,
    AgentResult,
    RewardCategory,
    RoundAgent,
    RoundInputs,
    RoundOutcome,
    RoundReward,
)

CHAIN_ORDER = attrgetter("block_height", "tx_index", "txid")


def score(inputs: RoundInputs) -> RoundOutcome:
    """Results in order of rank, rewards, and the flags that excluded from them. The order of the inputs is nothing."""
    values = token_values(inputs.prices, inputs.rules)
    scores = ranked(_scores(inputs, values))
    flags = flags_of(inputs)
    results = [_result(rank, entry, values) for rank, entry in enumerate(scores, 1)]
    return RoundOutcome(results, rewards(inputs, values, scores, flags), flags)


@dataclass(frozen=True, slots=True)
class AgentScore:
    """What one identity did. Money is in the unit of `TokenValues`."""

    agent_id: int
    wallets: list[RoundAgent]  # that traded; the one that traded last is the first
    trades: int
    priced: int
    dust: int
    volume: int
    received: int
    capital: int
    latest: int
    sources: Counter[str]
    unpriced: list[str]
    thin: list[str]

    @property
    def pnl(self) -> int:
        return self.received - self.volume


@dataclass(slots=True)
class Trades:
    """The swaps of one wallet from one token to another, by one source."""

    wallet: RoundAgent
    token_in: str
    token_out: str
    source: str
    given: list[int] = field(default_factory=list)
    received: list[int] = field(default_factory=list)
    times: list[int] = field(default_factory=list)


# For each token of an identity: what was given (above 0) and received (below 0), in the order of the chain.
Flows = dict[str, list[int]]


def _scores(inputs: RoundInputs, values: TokenValues) -> list[AgentScore]:
    """One score for each identity that traded."""
    trades: dict[int, list[Trades]] = {}
    flows: dict[int, Flows] = {}
    _sort_out(inputs, values, trades, flows)
    dust = values.money(inputs.rules.dust_usd)
    return [_score(agent_id, found, flows[agent_id], values, dust) for agent_id, found in trades.items()]


def _sort_out(
    inputs: RoundInputs, values: TokenValues, trades: dict[int, list[Trades]], flows: dict[int, Flows]
) -> None:
    """One pass over the swaps, in the order of the chain. It does as little as it can: there may be a million."""
    agents = {agent.stx_address: agent for agent in inputs.agents}
    if len(agents) != len(inputs.agents):
        raise UsageError("An address is listed twice among the agents. List each once.")
    starts_at, ends_at, units = inputs.rules.starts_at, inputs.rules.ends_at, values.units
    known: dict[tuple[str, str, str, str], tuple[Trades, list[int], list[int]]] = {}
    for swap in sorted(inputs.swaps, key=CHAIN_ORDER):
        _, sender, _, _, token_in, given, token_out, received, at, _, _, source = swap
        if sender not in agents or not starts_at <= at < ends_at:
            continue
        key = (sender, token_in, token_out, source)
        if key not in known:
            agent = agents[sender]
            entry = Trades(agent, token_in, token_out, source)
            trades.setdefault(agent.erc8004_agent_id, []).append(entry)
            flow = flows.setdefault(agent.erc8004_agent_id, {})
            if token_in not in units or token_out not in units:
                flow = {}  # of a swap that does not count
            known[key] = (entry, flow.setdefault(token_in, []), flow.setdefault(token_out, []))
        entry, flow_in, flow_out = known[key]
        amount_in, amount_out = int(given), int(received)
        entry.given.append(amount_in)
        entry.received.append(amount_out)
        entry.times.append(at)
        flow_in.append(amount_in)
        flow_out.append(-amount_out)


def _score(
    agent_id: int, trades: Sequence[Trades], flows: Flows, values: TokenValues, dust: int
) -> AgentScore:
    units = values.units
    counted = [entry for entry in trades if entry.token_in in units and entry.token_out in units]
    latest: dict[str, int] = {}
    sources: Counter[str] = Counter()
    for entry in trades:
        address = entry.wallet.stx_address
        latest[address] = max(max(entry.times), latest.get(address, 0))  # noqa: PLW3301 - not a million arguments
        sources[entry.source] += len(entry.times)
    wallets = {entry.wallet.stx_address: entry.wallet for entry in trades}
    uncounted = {token for entry in trades for token in (entry.token_in, entry.token_out)} - units.keys()
    return AgentScore(
        agent_id,
        [wallets[address] for address in sorted(wallets, key=lambda address: (-latest[address], address))],
        trades=sources.total(),
        priced=sum(len(entry.times) for entry in counted),
        # An amount is dust when it is worth less: the smallest amount that is not is this quotient, rounded up.
        dust=sum(sum(map((-(-dust // units[entry.token_in])).__gt__, entry.given)) for entry in counted),
        volume=sum(sum(entry.given) * units[entry.token_in] for entry in counted),
        received=sum(sum(entry.received) * units[entry.token_out] for entry in counted),
        capital=sum(max(accumulate(flow, initial=0)) * units[token] for token, flow in flows.items()),
        latest=max(latest.values()),
        sources=sources,
        unpriced=sorted(uncounted - values.thin),
        thin=sorted(uncounted & values.thin),
    )


def ranked(scores: Iterable[AgentScore]) -> list[AgentScore]:
    """Best first: P&L, then volume, then the earliest last trade, then the address. Without a priced trade: last."""
    return sorted(
        scores,
        key=lambda entry: (
            not entry.priced,
            -entry.pnl,
            -entry.volume,
            entry.latest,
            entry.wallets[0].stx_address,
        ),
    )


def rewards(
    inputs: RoundInputs, values: TokenValues, scores: Sequence[AgentScore], flags: Iterable[AgentFlag]
) -> list[RoundReward]:
    """One winner for each category, of those whom no flag and no decision excludes. `scores` are in order of rank."""
    excluded = {
        (flag.erc8004_agent_id, category)
        for flag in flags
        if not flag.cleared
        for category in flag.excludes_from
    }
    excluded |= {
        (made.erc8004_agent_id, category)
        for made in inputs.decisions
        if made.decision == "exclude"
        for category in CATEGORIES
    }
    won = []
    for category in CATEGORIES:
        running = [
            (rank, entry)
            for rank, entry in enumerate(scores, 1)
            if entry.priced and (entry.agent_id, category) not in excluded
        ]
        winner = _winner(category, running, inputs, values)
        if winner is not None:
            rank, entry = winner
            sats = inputs.rules.rewards.get(category, 0)
            won.append(RoundReward(category, rank, entry.wallets[0].stx_address, entry.agent_id, sats))
    return won


Placed = tuple[int, AgentScore]


def _winner(
    category: RewardCategory, running: Sequence[Placed], inputs: RoundInputs, values: TokenValues
) -> Placed | None:
    """`running` is in order of rank, which decides whatever is equal."""
    if category == "overall_pnl":
        return running[0] if running else None
    if category == "volume":
        return max(running, key=lambda placed: placed[1].volume, default=None)
    least, trades = max(1, values.money(inputs.rules.min_volume_usd)), inputs.rules.min_priced_trade_count
    qualified = [
        placed
        for placed in running
        if placed[1].volume >= least and placed[1].priced - placed[1].dust >= trades
    ]
    return max(
        qualified,
        key=lambda placed: (Fraction(placed[1].pnl, placed[1].volume), placed[1].volume),
        default=None,
    )


def _result(rank: int, entry: AgentScore, values: TokenValues) -> AgentResult:
    percent = ratio(Decimal(entry.pnl), Decimal(entry.volume))
    return AgentResult(
        rank=rank,
        stx_address=entry.wallets[0].stx_address,
        btc_address=entry.wallets[0].btc_address,
        erc8004_agent_id=entry.agent_id,
        trade_count=entry.trades,
        priced_trade_count=entry.priced,
        unpriced_trade_count=entry.trades - entry.priced,
        dust_trade_count=entry.dust,
        volume_usd=scaled_text(entry.volume, values.places),
        received_usd=scaled_text(entry.received, values.places),
        pnl_usd=scaled_text(entry.pnl, values.places),
        pnl_percent=None if percent is None else decimal_text(percent),
        capital_usd=scaled_text(entry.capital, values.places),
        latest_trade_at=entry.latest,
        source_counts={source: entry.sources[source] for source in ("agent", "cron", "chainhook")},
        unpriced_tokens=entry.unpriced,
        thin_tokens=entry.thin,
        wallets=[wallet.stx_address for wallet in entry.wallets],
    )
