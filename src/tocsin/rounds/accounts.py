"""What each agent traded in a round: accounts, matched trades there and back, and the figures of its score. Pure.

A swap counts if both its tokens have a price of the end, neither is thin, and it was not excessive at its time. Sums
are integers: smallest units of tokens, and parts of a dollar.

Each swap is read once, in chain order; then the agents are processed one after the other.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from itertools import accumulate, chain, islice
from operator import itemgetter
from typing import TypeAlias

from holdfast.errors import UsageError
from tocsin.rounds.round import RoundAgent, RoundInputs, RoundPrice, RoundRules, RoundSwap
from tocsin.rounds.thresholds import (
    CHURN_GAIN,
    CHURN_SHARE,
    CHURN_TRADES_MIN,
    CHURN_WINDOW_S,
    EVIDENCE_MAX,
    RING_TRADES_MAX,
)
from tocsin.stacks import DECIMALS_MAX
from tocsin.swaps.values import excess_of
from tocsin.text import read_decimal

TRADES_PER_STEP = 1_000

# Transaction, token and amount given, token and amount received, time.
Trade: TypeAlias = tuple[str, str, int, str, int, int]
# The unmatched part of a trade: its time, what was paid, what it brought, its transaction.
Lot: TypeAlias = tuple[int, int, int, str]
# The books that a trade is entered in: its tokens given and received, both directions of its pair, and the pair.
_Books: TypeAlias = tuple[Callable[[int], None], Callable[[int], None], list[Lot], list[Lot], "PairTrades"]


@dataclass(frozen=True, slots=True)
class TokenValue:
    """The value of a token, and whether it is thin: then its trades do not count."""

    price: Decimal
    decimals: int
    thin: bool


def token_values(prices: Iterable[RoundPrice], rules: RoundRules) -> dict[str, TokenValue]:
    """Return the values by token. Raises `UsageError` for an impossible price and for a token with two prices."""
    values: dict[str, TokenValue] = {}
    for price in prices:
        check_price(price)
        if price.token_id in values:
            raise UsageError(f"{price.token_id} has two prices. Give one.")
        values[price.token_id] = TokenValue(read_decimal(price.price_usd), price.decimals, is_thin(price, rules))
    return values


def integer_units(values: Mapping[str, TokenValue]) -> tuple[dict[str, int], int]:
    """Return the value of a smallest unit of each token that counts, in parts of a dollar, and the parts per dollar.

    There are enough parts to make all values integers, which are fast and never rounded.
    """
    exact = {token: Fraction(value.price) / 10**value.decimals for token, value in values.items() if not value.thin}
    dollar = math.lcm(*(value.denominator for value in exact.values()))
    return {token: int(value * dollar) for token, value in exact.items()}, dollar


def is_thin(price: RoundPrice, rules: RoundRules) -> bool:
    """Return whether the pools are too small for this price. Pegs and prices set by an operator are never thin."""
    if price.source != "tenero":
        return False
    liquidity_floor, volume_floor = (read_decimal(rules.min_liquidity_usd), read_decimal(rules.min_day_volume_usd))
    if price.liquidity_usd is None:
        if liquidity_floor > 0 and price.token_id not in rules.core_tokens:
            return True
    elif read_decimal(price.liquidity_usd) < liquidity_floor:
        return True
    return price.volume_usd is not None and read_decimal(price.volume_usd) < volume_floor


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

    def give_back(self, trade: Lot, mine: list[Lot], earlier: list[Lot], *, is_first: bool) -> None:
        """Match a trade with the `earlier` ones of the other direction, the newest first.

        `is_first`: it gave the first token.
        """
        at, given, received, txid = trade
        left, oldest, txids = given, at - CHURN_WINDOW_S, self.txids
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


@dataclass(frozen=True, slots=True)
class ThereAndBack:
    """The part of an agent's trades that went there and back, and some of the transactions."""

    volume: int
    gain: int
    trades: int
    txids: list[str]

    def is_churn(self, volume: int) -> bool:
        """Return whether it is half of the volume, often repeated, and earned nearly nothing."""
        return (
            self.trades >= CHURN_TRADES_MIN
            and self.volume * CHURN_SHARE >= volume
            and self.gain * CHURN_GAIN < self.volume
        )


def there_and_back(pairs: Mapping[tuple[str, str], PairTrades]) -> ThereAndBack:
    """Add up all pairs that an agent traded."""
    in_order: Iterable[PairTrades] = [pairs[tokens] for tokens in sorted(pairs)]
    return ThereAndBack(
        sum(pair.volume for pair in in_order),
        sum(pair.total_gain for pair in in_order),
        sum(len(pair.txids) for pair in in_order),
        list(islice(chain.from_iterable(pair.txids for pair in in_order), EVIDENCE_MAX)),
    )


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
    large: list[tuple[int, Trade]] = field(default_factory=list)  # with their values; see `largest`

    def book(self, units: Mapping[str, int]) -> Iterator[None]:
        """Compute everything else from the trades, in small steps."""
        directions: dict[tuple[str, str], _Books] = {}
        floors = dict.fromkeys(units, 0)  # a trade that gives no more than this is not among the largest
        for number, trade in enumerate(self.trades, 1):
            txid, token_in, given, token_out, received, at = trade
            books = directions.get((token_in, token_out))
            if books is None:
                books = directions[token_in, token_out] = self._books(token_in, token_out, units)
            give, receive, mine, earlier, pair = books
            give(given)
            receive(-received)
            if given > floors[token_in]:
                self.large.append((given * units[token_in], trade))
                if len(self.large) >= 2 * RING_TRADES_MAX:
                    least, _ = self.largest()[-1]
                    floors.update((token, least // unit) for token, unit in units.items())
            if earlier and earlier[-1][0] >= at - CHURN_WINDOW_S:
                pair.give_back((at, given, received, txid), mine, earlier, is_first=mine is pair.there)
            else:
                mine.append((at, given, received, txid))
            if not number % TRADES_PER_STEP:
                yield

    def _books(self, token_in: str, token_out: str, units: Mapping[str, int]) -> _Books:
        first, second = min(token_in, token_out), max(token_in, token_out)
        pair = self.pairs.get((first, second))
        if pair is None:
            pair = self.pairs[first, second] = PairTrades(units[first], units[second])
        directions = (pair.there, pair.back) if token_in == first else (pair.back, pair.there)
        if token_in == token_out:
            directions = ([], [])  # a token cannot be given back for itself
        return self.flows[token_in].append, self.flows[token_out].append, *directions, pair

    def largest(self) -> list[tuple[int, Trade]]:
        """Return the largest trades that count, with their values; among equal ones the first."""
        self.large.sort(key=itemgetter(0), reverse=True)
        del self.large[RING_TRADES_MAX:]
        return self.large


class TradingAccounts:
    """Accounts by agent. `units` are the values of one smallest unit of a token; a dollar has `dollar` parts."""

    def __init__(self, inputs: RoundInputs, values: Mapping[str, TokenValue]) -> None:
        self.units, self.dollar = integer_units(values)
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


def agent_scores(
    accounts: TradingAccounts, values: Mapping[str, TokenValue], rules: RoundRules
) -> Iterator[AgentScore]:
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
            unpriced=sorted(account.uncounted - values.keys()),
            thin=sorted(token for token in account.uncounted & values.keys() if values[token].thin),
        )
