"""What each agent traded in a round: accounts, matched trades there and back, and the figures of its score. Pure.

A swap counts if both its tokens have a price of the end, neither is thin, and it was not excessive at its time. Sums
are integers: smallest units of tokens, and parts of a dollar.

Each swap is read once, in chain order; then the agents are processed one after the other.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from heapq import nlargest
from itertools import accumulate
from operator import itemgetter
from typing import TypeAlias

from holdfast.errors import UsageError
from tocsin.prices.price import PoolFloors
from tocsin.rounds import thresholds
from tocsin.rounds.round import RoundAgent, RoundInputs, RoundPrice, RoundRules, RoundSwap
from tocsin.stacks import DECIMALS_MAX
from tocsin.swaps.values import excess_of
from tocsin.text import read_decimal

TRADES_PER_STEP = 1_000

# Transaction, token and amount given, token and amount received, time.
Trade: TypeAlias = tuple[str, str, int, str, int, int]
# The unmatched part of a trade: its time, what was paid, what it brought, its transaction.
Lot: TypeAlias = tuple[int, int, int, str]


def token_values(prices: Iterable[RoundPrice], rules: RoundRules) -> tuple[dict[str, Fraction], set[str]]:
    """Return the USD per smallest unit of each token that counts, and the thin tokens, which do not.

    Pegs and prices set by an operator are never thin. Raises `UsageError` for an impossible price and for a token with
    two prices.
    """
    floors = PoolFloors(
        read_decimal(rules.min_liquidity_usd), read_decimal(rules.min_day_volume_usd), rules.core_tokens
    )
    values: dict[str, Fraction] = {}
    thin: set[str] = set()
    for price in prices:
        check_price(price)
        if price.token_id in values or price.token_id in thin:
            raise UsageError(f"{price.token_id} has two prices. Give one.")
        pools = (None if usd is None else read_decimal(usd) for usd in (price.liquidity_usd, price.volume_usd))
        if price.source == "tenero" and floors.is_thin(price.token_id, *pools):
            thin.add(price.token_id)
        else:
            values[price.token_id] = Fraction(read_decimal(price.price_usd)) / 10**price.decimals
    return values, thin


def check_price(price: RoundPrice) -> None:
    if read_decimal(price.price_usd) <= 0:
        raise UsageError("A price is above 0. A token without one is left out.")
    if not 0 <= price.decimals <= DECIMALS_MAX:
        raise UsageError(f"A token has 0 to {DECIMALS_MAX} decimals, not {price.decimals}.")
    for figure in (price.liquidity_usd, price.volume_usd):
        if figure is not None:
            read_decimal(figure)


def check_rules(rules: RoundRules) -> None:
    for name in ("min_volume_usd", "min_liquidity_usd", "min_day_volume_usd", "dust_usd"):
        if read_decimal(getattr(rules, name)) < 0:
            raise UsageError(f"{name} is 0 or above.")


@dataclass(slots=True)
class PairTrades:
    """An agent's trades of one pair of tokens, and the parts that went there and back.

    A trade gives back what an earlier trade of the same pair brought, if that was at most an hour before. Parts count:
    one trade there and three back count the same as one and one. The amount that came back is compared with the amount
    given: an agent that earned by it has traded, not churned.

    `unit` and `unit_back` are the values of one smallest unit of the two tokens, in parts of a dollar.
    """

    unit: int
    unit_back: int
    there: list[Lot] = field(default_factory=list)  # unmatched parts of trades that gave the first token
    back: list[Lot] = field(default_factory=list)  # of trades that gave the second
    given: int = 0  # of the first token, in trades that went there and back
    given_back: int = 0  # of the second
    gain: int = 0  # of the first token: the amount that came back less the amount given
    gain_back: int = 0  # of the second
    txids: dict[str, None] = field(default_factory=dict)  # of the trades that went there or came back

    @property
    def volume(self) -> int:
        return self.given * self.unit + self.given_back * self.unit_back

    @property
    def total_gain(self) -> int:
        return self.gain * self.unit + self.gain_back * self.unit_back

    def enter(self, trade: Lot, *, is_first: bool) -> None:
        """Match a trade with earlier ones of the other direction, the newest first.

        `is_first`: it gave the first token.
        """
        mine, earlier = (self.there, self.back) if is_first else (self.back, self.there)
        at, given, received, txid = trade
        left, oldest, txids = given, at - thresholds.CHURN_WINDOW_S, self.txids
        if not earlier or earlier[-1][0] < oldest:
            mine.append(trade)
            return
        costs = gain = 0
        while left and earlier:
            brought_at, paid, brought, brought_by = earlier[-1]
            if brought_at < oldest:
                break
            txids[brought_by] = None
            if left >= brought:
                part, cost = brought, paid
                earlier.pop()
            else:
                part, cost = left, paid * left // brought
                earlier[-1] = (brought_at, paid - cost, brought - part, brought_by)
            costs += cost
            gain += received * part // given - cost
            left -= part
        txids[txid] = None
        if is_first:
            self.given += given - left
            self.given_back += costs
            self.gain_back += gain
        else:
            self.given_back += given - left
            self.given += costs
            self.gain += gain
        rest = received * left // given
        if rest:
            mine.append((at, left, rest, txid))


@dataclass(slots=True)
class TradingAccount:
    """The trades of one identity. An excessive one, or one with a token that is thin or has no price, does not count.

    For each token, `flows` has the amounts that counting trades gave (above 0) and received (below 0), in chain order.
    """

    flows: dict[str, list[int]]
    trades: list[Trade] = field(default_factory=list)  # that count
    times: dict[RoundAgent, list[int]] = field(default_factory=dict)  # of all swaps of each wallet
    sources: list[str] = field(default_factory=list)
    uncounted: set[str] = field(default_factory=set)  # tokens of swaps that do not count because of them
    excesses: list[tuple[str, str]] = field(default_factory=list)  # transactions, and why they do not count
    pairs: dict[tuple[str, str], PairTrades] = field(default_factory=dict)

    def book(self, units: Mapping[str, int]) -> Iterator[None]:
        """Compute everything else from the trades, in small steps."""
        for number, (txid, token_in, given, token_out, received, at) in enumerate(self.trades, 1):
            self.flows[token_in].append(given)
            self.flows[token_out].append(-received)
            if token_in != token_out:  # a token cannot be given back for itself
                is_first = token_in < token_out
                tokens = (token_in, token_out) if is_first else (token_out, token_in)
                pair = self.pairs.get(tokens)
                if pair is None:
                    pair = self.pairs[tokens] = PairTrades(units[tokens[0]], units[tokens[1]])
                pair.enter((at, given, received, txid), is_first=is_first)
            if not number % TRADES_PER_STEP:
                yield

    def largest(self, units: Mapping[str, int]) -> list[tuple[int, Trade]]:
        """Return the largest trades that count, with their values; among equal ones the first."""
        valued = ((trade[2] * units[trade[1]], trade) for trade in self.trades)
        return nlargest(thresholds.RING_TRADES_MAX, valued, key=itemgetter(0))


class TradingAccounts:
    """Accounts by agent. `units` are the values of one smallest unit of a token; a dollar has `dollar` parts.

    There are enough parts to make all values integers, which are fast and never rounded.
    """

    def __init__(self, inputs: RoundInputs) -> None:
        values, self.thin = token_values(inputs.prices, inputs.rules)
        self.dollar = math.lcm(*(value.denominator for value in values.values()))
        self.units = {token: int(value * self.dollar) for token, value in values.items()}
        self.by_agent: dict[int, TradingAccount] = {}
        self._wallets: dict[str, tuple[TradingAccount, list[int]]] = {}
        self._starts_at, self._ends_at = inputs.rules.starts_at, inputs.rules.ends_at
        reasons = {worth.txid: excess_of(worth) for worth in inputs.excesses}
        self._excessive = {txid: reason for txid, reason in reasons.items() if reason is not None}
        for agent in inputs.agents:
            if agent.stx_address in self._wallets:
                raise UsageError(f"{agent.stx_address} is listed twice among the agents. List it once.")
            account = self.by_agent.get(agent.erc8004_agent_id)
            if account is None:
                account = TradingAccount({token: [] for token in self.units})
                self.by_agent[agent.erc8004_agent_id] = account
            self._wallets[agent.stx_address] = account, account.times.setdefault(agent, [])

    def usd(self, value: int) -> str:
        """Format a value for people: whole dollars, rounded down."""
        return f"{value // self.dollar:,} USD"

    def take(self, swaps: Iterable[RoundSwap]) -> None:
        """Add the next swaps, in chain order."""
        wallets, units, starts_at, ends_at = self._wallets, self.units, self._starts_at, self._ends_at
        excessive = self._excessive
        for swap in swaps:
            txid, sender, _, _, token_in, given, token_out, received, at, _, _, source = swap
            if sender not in wallets or not starts_at <= at < ends_at:
                continue
            account, times = wallets[sender]
            times.append(at)
            account.sources.append(source)
            if txid in excessive:
                account.excesses.append((txid, excessive[txid]))
            elif token_in in units and token_out in units:
                account.trades.append((txid, token_in, int(given), token_out, int(received), at))
            else:
                account.uncounted.update((token_in, token_out))


@dataclass(frozen=True, slots=True)
class AgentScore:
    """The figures of one identity. Money is in dollars."""

    agent_id: int
    wallets: list[RoundAgent]  # those that traded; the one that traded last comes first
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


def agent_scores(accounts: TradingAccounts, rules: RoundRules) -> Iterator[AgentScore]:
    """Return one score for each identity that traded."""
    units, dollar = accounts.units, accounts.dollar
    dust_usd = Fraction(read_decimal(rules.dust_usd))
    # The smallest amount of each token that is not dust.
    not_dust = {token: math.ceil(dust_usd * dollar / unit) for token, unit in units.items()}
    for agent_id, account in accounts.by_agent.items():
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
            unpriced=sorted(account.uncounted - units.keys() - accounts.thin),
            thin=sorted(account.uncounted & accounts.thin),
        )
