"""The result of a round, from its inputs alone. Pure, exact, and the same on every computer.

Volume is the value of everything given in swaps that count; P&L is the value of everything received less the volume.
Only quotients are rounded, at the very end. Long computations are generators: each step takes a millisecond or two, so
other work can run in between.
"""

import asyncio
import gc
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from operator import itemgetter
from typing import TypeVar

from tocsin.rounds.accounts import AgentScore, TradingAccounts, agent_scores, check_rules
from tocsin.rounds.fair_play import find_flags, qualifies_for_return
from tocsin.rounds.round import (
    CATEGORIES,
    AgentFlag,
    AgentResult,
    RewardCategory,
    RoundInputs,
    RoundOutcome,
    RoundReward,
    RoundRules,
    RoundSwap,
)
from tocsin.text import decimal_text, exact_text, ratio

T = TypeVar("T")

CHAIN_ORDER = itemgetter(*map(RoundSwap._fields.index, ("block_height", "tx_index", "txid")))
SWAPS_PER_STEP = 1_000
STEPS_AT_ONCE = 8


def score(inputs: RoundInputs) -> RoundOutcome:
    """Return results in order of rank, rewards and flags, whatever the order of the inputs."""
    return at_once(scoring(replace(inputs, swaps=sorted(inputs.swaps, key=CHAIN_ORDER))))


def scoring(inputs: RoundInputs) -> Generator[None, None, RoundOutcome]:
    """Do the same in small steps, for inputs whose swaps are in chain order."""
    check_rules(inputs.rules)
    accounts = TradingAccounts(inputs)
    for first in range(0, len(inputs.swaps), SWAPS_PER_STEP):
        accounts.take(inputs.swaps[first : first + SWAPS_PER_STEP])
        yield
    for account in accounts.by_agent.values():
        yield from account.book(accounts.units)
        yield
    found = []
    for entry in agent_scores(accounts, inputs.rules):
        found.append(entry)
        yield
    scores = ranked(found)
    flags = yield from find_flags(inputs, scores, accounts)
    results = []
    for rank, entry in enumerate(scores, 1):
        results.append(_result(rank, entry))
        yield
    return RoundOutcome(results, rewards(inputs.rules, scores, flags), flags)


def ranked(scores: Iterable[AgentScore]) -> list[AgentScore]:
    """Sort by P&L, then volume, then the earliest last trade, then address. Agents without a priced trade come last."""
    return sorted(
        scores,
        key=lambda entry: (not entry.priced, -entry.pnl, -entry.volume, entry.latest, entry.wallets[0].stx_address),
    )


def rewards(rules: RoundRules, scores: Sequence[AgentScore], flags: Iterable[AgentFlag]) -> list[RoundReward]:
    """Return one winner for each category, among those that no flag excludes. `scores` are in order of rank."""
    excluded = {
        (flag.erc8004_agent_id, category) for flag in flags if not flag.cleared for category in flag.excludes_from
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
    """Return the best agent. The volume decides a tie, then the rank; `running` is in order of rank."""
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


# Small steps


def at_once(steps: Generator[None, None, T]) -> T:
    """Return the result without pausing."""
    while True:
        try:
            next(steps)
        except StopIteration as ended:
            result: T = ended.value
            return result


async def with_pauses(steps: Generator[None, None, T]) -> T:
    """Return the result, letting the event loop do other work every few steps. Cloudflare has no threads."""
    while True:
        try:
            for _ in range(STEPS_AT_ONCE):
                next(steps)
        except StopIteration as ended:
            result: T = ended.value
            return result
        await asyncio.sleep(0)


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pause garbage collection: it would scan all swaps again and again, for 0.2 s each time with 100,000 of them."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
