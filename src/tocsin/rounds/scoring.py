"""The result of a round, from its inputs alone. Pure, exact, and the same on every computer.

A swap counts when both its tokens have a price of the end and neither is thin. Volume is the sum of what was given,
P&L what was received less the volume. Sums are integers and fractions; only quotients are rounded, at the very end.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from fractions import Fraction
from itertools import accumulate
from operator import attrgetter

from tocsin.errors import UsageError
from tocsin.exact_decimals import decimal_text, exact_text, ratio, read_decimal
from tocsin.rounds.flags import flags_of
from tocsin.rounds.groups import qualifies_for_return
from tocsin.rounds.token_values import TokenValue, check_rules, integer_units, token_values
from tocsin.shapes.rounds import (
    CATEGORIES,
    AgentFlag,
    AgentResult,
    RewardCategory,
    RoundAgent,
    RoundInputs,
    RoundOutcome,
    RoundReward,
    RoundRules,
)

CHAIN_ORDER = attrgetter("block_height", "tx_index", "txid")


def score(inputs: RoundInputs) -> RoundOutcome:
    """Results in order of rank, rewards, and the flags that excluded from them, whatever the order of the inputs."""
    check_rules(inputs.rules)
    values = token_values(inputs.prices, inputs.rules)
    inputs = replace(inputs, swaps=sorted(inputs.swaps, key=CHAIN_ORDER))
    scores = ranked(agent_scores(inputs, values))
    flags = flags_of(inputs, scores, values)
    results = [_result(rank, entry) for rank, entry in enumerate(scores, 1)]
    return RoundOutcome(results, rewards(inputs.rules, scores, flags), flags)


@dataclass(frozen=True, slots=True)
class AgentScore:
    """What one identity did. Money is in dollars."""

    agent_id: int
    wallets: list[RoundAgent]  # that traded; the one that traded last is the first
    trades: int
    priced: int
    dust: int
    volume: Fraction
    received: Fraction
    capital: Fraction
    latest: int
    sources: Counter[str]
    unpriced: list[str]
    thin: list[str]

    @property
    def pnl(self) -> Fraction:
        return self.received - self.volume


@dataclass(slots=True)
class TradingAccount:
    """What one identity traded.

    `flows` has for each token what swaps that count gave (above 0) and received (below 0), in the order of the chain.
    """

    flows: dict[str, list[int]]
    times: dict[RoundAgent, list[int]] = field(default_factory=dict)  # of the swaps of each wallet
    sources: list[str] = field(default_factory=list)
    uncounted: set[str] = field(default_factory=set)  # tokens of swaps that do not count


def agent_scores(inputs: RoundInputs, values: Mapping[str, TokenValue]) -> Iterator[AgentScore]:
    """One score for each identity that traded. The swaps are in the order of the chain."""
    units, dollar = integer_units(values)
    dust_usd = Fraction(read_decimal(inputs.rules.dust_usd))
    # The smallest amount of each token that is not dust.
    not_dust = {token: math.ceil(dust_usd * dollar / unit) for token, unit in units.items()}
    for agent_id, account in _accounts(inputs, units).items():
        latest = {wallet: max(times) for wallet, times in account.times.items() if times}
        if not latest:
            continue
        flows, sources = account.flows, account.sources
        given = {token: [amount for amount in flow if amount > 0] for token, flow in flows.items()}
        volume = sum(sum(amounts) * units[token] for token, amounts in given.items())
        net = sum(sum(flow) * units[token] for token, flow in flows.items())
        peaks = sum(max(accumulate(flow, initial=0)) * units[token] for token, flow in flows.items())
        yield AgentScore(
            agent_id,
            sorted(latest, key=lambda wallet: (-latest[wallet], wallet.stx_address)),
            trades=len(sources),
            priced=sum(map(len, given.values())),
            dust=sum(sum(map(not_dust[token].__gt__, amounts)) for token, amounts in given.items()),
            volume=Fraction(volume, dollar),
            received=Fraction(volume - net, dollar),
            capital=Fraction(peaks, dollar),
            latest=max(latest.values()),
            sources=Counter(sources),
            unpriced=sorted(account.uncounted - values.keys()),
            thin=sorted(token for token in account.uncounted & values.keys() if values[token].thin),
        )


def _accounts(inputs: RoundInputs, units: Mapping[str, int]) -> dict[int, TradingAccount]:
    """One pass over the swaps, in the order of the chain. It does as little as it can: there may be a million."""
    accounts: dict[int, TradingAccount] = {}
    of_wallet: dict[str, tuple[TradingAccount, list[int]]] = {}
    for agent in inputs.agents:
        if agent.stx_address in of_wallet:
            raise UsageError(f"{agent.stx_address} is listed twice among the agents. List it once.")
        account = accounts.setdefault(agent.erc8004_agent_id, TradingAccount({token: [] for token in units}))
        of_wallet[agent.stx_address] = account, account.times.setdefault(agent, [])
    starts_at, ends_at = inputs.rules.starts_at, inputs.rules.ends_at
    for swap in inputs.swaps:
        _, sender, _, _, token_in, given, token_out, received, at, _, _, source = swap
        if sender not in of_wallet or not starts_at <= at < ends_at:
            continue
        account, times = of_wallet[sender]
        times.append(at)
        account.sources.append(source)
        flows = account.flows
        if token_in in flows and token_out in flows:
            flows[token_in].append(int(given))
            flows[token_out].append(-int(received))
        else:
            account.uncounted.update((token_in, token_out))
    return accounts


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


def rewards(rules: RoundRules, scores: Sequence[AgentScore], flags: Iterable[AgentFlag]) -> list[RoundReward]:
    """One winner for each category, of those whom no flag excludes. `scores` are in order of rank."""
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
                    winner.wallets[0].stx_address,
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
    qualified = [entry for entry in running if qualifies_for_return(entry, rules)]
    return max(qualified, key=lambda entry: (entry.pnl / entry.volume, entry.volume), default=None)


def _result(rank: int, entry: AgentScore) -> AgentResult:
    volume, pnl = entry.volume, entry.pnl
    percent = ratio(Decimal(pnl.numerator * volume.denominator), Decimal(volume.numerator * pnl.denominator))
    return AgentResult(
        rank=rank,
        stx_address=entry.wallets[0].stx_address,
        btc_address=entry.wallets[0].btc_address,
        erc8004_agent_id=entry.agent_id,
        trade_count=entry.trades,
        priced_trade_count=entry.priced,
        unpriced_trade_count=entry.trades - entry.priced,
        dust_trade_count=entry.dust,
        volume_usd=exact_text(volume),
        received_usd=exact_text(entry.received),
        pnl_usd=exact_text(pnl),
        pnl_percent=None if percent is None else decimal_text(percent),
        capital_usd=exact_text(entry.capital),
        latest_trade_at=entry.latest,
        source_counts={source: entry.sources[source] for source in ("agent", "cron", "chainhook")},
        unpriced_tokens=entry.unpriced,
        thin_tokens=entry.thin,
        wallets=[wallet.stx_address for wallet in entry.wallets],
    )
