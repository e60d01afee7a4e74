"""The result of a round, from its inputs alone. Pure, exact, and the same on every computer.

A swap counts when both its tokens have a price of the end and neither is thin. Volume is the sum of what was given,
P&L what was received less the volume. Sums are exact; only quotients are rounded, at the very end.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cmp_to_key

from tocsin.exact_decimals import EXACT, decimal_text, ratio, read_decimal, usd_value
from tocsin.rounds.flags import flags_of
from tocsin.shapes.rounds import (
    CATEGORIES,
    AgentFlag,
    AgentResult,
    RewardCategory,
    RoundAgent,
    RoundInputs,
    RoundOutcome,
    RoundPrice,
    RoundReward,
    RoundRules,
    RoundSwap,
)

ZERO = Decimal(0)


def score(inputs: RoundInputs) -> RoundOutcome:
    """Results in order of rank, rewards, and the flags that excluded from them."""
    scores = ranked(_scores(inputs))
    flags = flags_of(inputs, scores, token_values(inputs.prices, inputs.rules))
    results = [replace(_result(entry), rank=rank) for rank, entry in enumerate(scores, 1)]
    return RoundOutcome(results, rewards(inputs.rules, scores, flags), flags)


@dataclass(slots=True)
class AgentScore:
    """What one identity did, exactly."""

    agent_id: int
    wallets: list[RoundAgent]
    trades: int = 0
    priced: int = 0
    dust: int = 0
    volume: Decimal = ZERO
    received: Decimal = ZERO
    capital: Decimal = ZERO
    sources: Counter[str] = field(default_factory=Counter)
    unpriced: set[str] = field(default_factory=set)
    thin: set[str] = field(default_factory=set)
    latest_by_wallet: dict[str, int] = field(default_factory=dict)

    @property
    def pnl(self) -> Decimal:
        return EXACT.subtract(self.received, self.volume)


@dataclass(frozen=True, slots=True)
class TokenValue:
    """What one smallest unit is worth, and whether the token is thin."""

    price: Decimal
    decimals: int
    thin: bool


def token_values(prices: Iterable[RoundPrice], rules: RoundRules) -> dict[str, TokenValue]:
    return {
        price.token_id: TokenValue(read_decimal(price.price_usd), price.decimals, is_thin(price, rules))
        for price in prices
    }


def is_thin(price: RoundPrice, rules: RoundRules) -> bool:
    """Whether nobody could trade much at this price. A peg and a price that an operator set are taken as they are."""
    if price.source != "tenero":
        return False
    floors = ((price.liquidity_usd, rules.min_liquidity_usd), (price.volume_usd, rules.min_day_volume_usd))
    return any(
        read_decimal(floor) > 0 and (known is None or read_decimal(known) < read_decimal(floor))
        for known, floor in floors
    )


def _scores(inputs: RoundInputs) -> list[AgentScore]:
    """One score for each identity that traded."""
    values = token_values(inputs.prices, inputs.rules)
    dust_usd = read_decimal(inputs.rules.dust_usd)
    agents = {agent.stx_address: agent for agent in inputs.agents}
    scores: dict[int, AgentScore] = {}
    outlays: dict[int, Outlays] = {}
    for swap in sorted(inputs.swaps, key=lambda swap: (swap.block_height, swap.tx_index, swap.txid)):
        agent = agents.get(swap.sender)
        if agent is None or not inputs.rules.starts_at <= swap.burn_block_time < inputs.rules.ends_at:
            continue
        agent_id = agent.erc8004_agent_id
        entry = scores.setdefault(agent_id, AgentScore(agent_id, []))
        _count(entry, swap, agent)
        given, received = values.get(swap.token_in), values.get(swap.token_out)
        if given is None or received is None or given.thin or received.thin:
            _note_uncounted(entry, swap, values)
            continue
        entry.priced += 1
        given_usd = usd_value(int(swap.amount_in), given.price, given.decimals)
        entry.dust += given_usd < dust_usd
        entry.volume = EXACT.add(entry.volume, given_usd)
        entry.received = EXACT.add(
            entry.received, usd_value(int(swap.amount_out), received.price, received.decimals)
        )
        outlays.setdefault(agent_id, Outlays()).add(swap)
    for agent_id, entry in scores.items():
        entry.capital = outlays.get(agent_id, Outlays()).worth(values)
    return list(scores.values())


class Outlays:
    """The capital used: for each token the largest net amount that was given at any time."""

    def __init__(self) -> None:
        self.net: dict[str, int] = {}
        self.peak: dict[str, int] = {}

    def add(self, swap: RoundSwap) -> None:
        """The next swap, in the order of the chain."""
        net = self.net[swap.token_in] = self.net.get(swap.token_in, 0) + int(swap.amount_in)
        self.net[swap.token_out] = self.net.get(swap.token_out, 0) - int(swap.amount_out)
        if net > self.peak.get(swap.token_in, 0):
            self.peak[swap.token_in] = net

    def worth(self, values: Mapping[str, TokenValue]) -> Decimal:
        total = ZERO
        for token, amount in self.peak.items():
            total = EXACT.add(total, usd_value(amount, values[token].price, values[token].decimals))
        return total


def _count(entry: AgentScore, swap: RoundSwap, agent: RoundAgent) -> None:
    entry.trades += 1
    entry.sources[swap.source] += 1
    if agent not in entry.wallets:
        entry.wallets.append(agent)
    latest = max(swap.burn_block_time, entry.latest_by_wallet.get(agent.stx_address, 0))
    entry.latest_by_wallet[agent.stx_address] = latest


def _note_uncounted(entry: AgentScore, swap: RoundSwap, values: Mapping[str, TokenValue]) -> None:
    """Remember which tokens kept a swap from counting."""
    for token in (swap.token_in, swap.token_out):
        value = values.get(token)
        if value is None:
            entry.unpriced.add(token)
        elif value.thin:
            entry.thin.add(token)


def ranked(scores: Iterable[AgentScore]) -> list[AgentScore]:
    """Best first: P&L, then volume, then the earliest last trade, then the address. Without a priced trade: last."""
    return sorted(
        scores,
        key=lambda entry: (
            not entry.priced,
            EXACT.minus(entry.pnl),
            EXACT.minus(entry.volume),
            _latest(entry),
            shown_wallet(entry).stx_address,
        ),
    )


def _latest(entry: AgentScore) -> int:
    return max(entry.latest_by_wallet.values())


def shown_wallet(entry: AgentScore) -> RoundAgent:
    """The wallet that traded last; of several the first address."""
    return min(
        entry.wallets, key=lambda wallet: (-entry.latest_by_wallet[wallet.stx_address], wallet.stx_address)
    )


def rewards(rules: RoundRules, scores: Sequence[AgentScore], flags: Iterable[AgentFlag]) -> list[RoundReward]:
    """One winner for each category, of those whom no flag excludes."""
    excluded = {
        (flag.erc8004_agent_id, category)
        for flag in flags
        if not flag.cleared
        for category in flag.excludes_from
    }
    ranks = {entry.agent_id: rank for rank, entry in enumerate(scores, 1)}
    won = []
    for category in CATEGORIES:
        running = [entry for entry in scores if entry.priced and (entry.agent_id, category) not in excluded]
        winner = _winner(category, running, rules)
        if winner is not None:
            won.append(
                RoundReward(
                    category,
                    ranks[winner.agent_id],
                    shown_wallet(winner).stx_address,
                    winner.agent_id,
                    rules.rewards.get(category, 0),
                )
            )
    return won


def _winner(category: RewardCategory, running: Sequence[AgentScore], rules: RoundRules) -> AgentScore | None:
    """`running` is in order of rank, which decides whatever is equal."""
    if category == "overall_pnl":
        return running[0] if running else None
    if category == "volume":
        return max(running, key=lambda entry: entry.volume, default=None)
    least, trades = read_decimal(rules.min_volume_usd), rules.min_priced_trade_count
    qualified = [
        entry
        for entry in running
        if entry.volume > 0 and entry.volume >= least and entry.priced - entry.dust >= trades
    ]
    return min(qualified, key=cmp_to_key(_by_return), default=None)


def _by_return(one: AgentScore, other: AgentScore) -> int:
    """Greater P&L per volume first, compared without dividing; then greater volume."""
    left, right = EXACT.multiply(one.pnl, other.volume), EXACT.multiply(other.pnl, one.volume)
    if left != right:
        return -1 if left > right else 1
    return int(one.volume < other.volume) - int(one.volume > other.volume)


def _result(entry: AgentScore) -> AgentResult:
    shown, percent = shown_wallet(entry), ratio(entry.pnl, entry.volume)
    wallets = sorted(
        entry.wallets, key=lambda wallet: (-entry.latest_by_wallet[wallet.stx_address], wallet.stx_address)
    )
    return AgentResult(
        rank=0,
        stx_address=shown.stx_address,
        btc_address=shown.btc_address,
        erc8004_agent_id=entry.agent_id,
        trade_count=entry.trades,
        priced_trade_count=entry.priced,
        unpriced_trade_count=entry.trades - entry.priced,
        dust_trade_count=entry.dust,
        volume_usd=decimal_text(entry.volume),
        received_usd=decimal_text(entry.received),
        pnl_usd=decimal_text(entry.pnl),
        pnl_percent=None if percent is None else decimal_text(percent),
        capital_usd=decimal_text(entry.capital),
        latest_trade_at=_latest(entry),
        source_counts={source: entry.sources[source] for source in ("agent", "cron", "chainhook")},
        unpriced_tokens=sorted(entry.unpriced),
        thin_tokens=sorted(entry.thin),
        wallets=[wallet.stx_address for wallet in wallets],
    )
