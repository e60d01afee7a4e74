"""Agents that trade for gain, with typical strategies: flags must not hit them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random

from stacks_simulator.chain import Chain
from stacks_simulator.tokens import AEUSDC, ALEX, SBTC, STSTX, STX, WELSH, SimulatedToken, price_usd
from stacks_simulator.wallets import Wallet

HOUR_MS = 3_600_000
TOKENS = (SBTC, AEUSDC, STSTX, WELSH, ALEX)  # each has a pool with STX


@dataclass
class Trader:
    """One wallet and its holdings, in dollars at the time of purchase."""

    chain: Chain
    wallet: Wallet
    rng: Random
    starts_ms: int
    ends_ms: int
    capital_usd: float

    def swap(self, at_ms: float, sold: SimulatedToken, bought: SimulatedToken, amount: int) -> int:
        """Swap at the market price, less a fee and the movement of the pool's price; return the amount received."""
        at = int(at_ms)
        usd = amount / 10**sold.decimals * price_usd(sold, at)
        cost = self.rng.uniform(-0.001, 0.008)
        gotten = max(1000, int(usd * (1 - cost) / price_usd(bought, at) * 10**bought.decimals))
        if at < self.ends_ms:
            self.chain.schedule(at, lambda: self._broadcast(sold, bought, amount, gotten))
        return gotten

    def _broadcast(self, sold: SimulatedToken, bought: SimulatedToken, given: int, gotten: int) -> None:
        self.chain.swap(
            self.wallet, rng=self.rng, token_in=sold.id, token_out=bought.id, amount_in=given, amount_out=gotten
        )

    def stx_of(self, usd: float, at_ms: float) -> int:
        return max(1000, int(usd / price_usd(STX, int(at_ms)) * 10**STX.decimals))

    def moment(self, low: float = 0.0, high: float = 0.98) -> float:
        return self.starts_ms + self.rng.uniform(low, high) * (self.ends_ms - self.starts_ms)

    def choice(self, at_ms: float, until_ms: float) -> SimulatedToken:
        """Return the better of two tokens: traders know a little."""
        at, until = int(at_ms), int(min(until_ms, self.ends_ms))
        two = self.rng.sample(TOKENS, 2)
        return max(two, key=lambda token: price_usd(token, until) / price_usd(token, at))

    def trips(self, count: int, hold_hours: tuple[float, float], shares: tuple[float, float]) -> None:
        """Buy a token and sell all or nearly all of it later; then the next."""
        at = self.moment(0, 0.1)
        for _ in range(count):
            usd, until = (self.capital_usd * self.rng.uniform(*shares), at + self.rng.uniform(*hold_hours) * HOUR_MS)
            token = self.choice(at, until)
            brought = self.swap(at, STX, token, self.stx_of(usd, at))
            at = until
            if at >= self.ends_ms:
                return
            part = self.rng.choice((1.0, 1.0, 0.5, self.rng.uniform(0.3, 1)))
            self.swap(at, token, STX, max(1000, int(brought * part)))
            at += self.rng.uniform(0.2, 1) * hold_hours[1] * HOUR_MS


def holder(trader: Trader) -> None:
    """Makes a few purchases and keeps most of them."""
    for _ in range(trader.rng.randrange(3, 7)):
        at, token = trader.moment(), trader.rng.choice(TOKENS)
        brought = trader.swap(at, STX, token, trader.stx_of(trader.capital_usd * trader.rng.uniform(0.1, 0.4), at))
        if trader.rng.random() < 0.3:
            trader.swap(at + trader.rng.uniform(10, 80) * HOUR_MS, token, STX, brought)


def swing(trader: Trader) -> None:
    """Holds positions for hours to days."""
    trader.trips(trader.rng.randrange(4, 12), (4, 40), (0.1, 0.6))


def day_trader(trader: Trader) -> None:
    """Buys and sells within a day."""
    trader.trips(trader.rng.randrange(5, 10), (1, 10), (0.3, 1))


def scalper(trader: Trader) -> None:
    """Buys and sells within hours, sometimes minutes."""
    trader.trips(trader.rng.randrange(6, 18), (0.3, 6), (0.2, 0.8))


def saver(trader: Trader) -> None:
    """Buys the same round amount of the same token at the same hours."""
    stx, every = trader.rng.choice((5, 10, 10, 20, 25, 50, 100)), trader.rng.choice((4, 6, 8, 12, 24))
    token = trader.rng.choice(TOKENS)
    for number in range(7 * 24 // every):
        trader.swap(trader.starts_ms + number * every * HOUR_MS, STX, token, stx * 10**STX.decimals)


def tiny(trader: Trader) -> None:
    """Tries trades of a few cents."""
    for _ in range(trader.rng.randrange(3, 30)):
        at = trader.moment()
        trader.swap(at, STX, trader.rng.choice(TOKENS), trader.stx_of(trader.rng.uniform(0.2, 5), at))


KINDS: Mapping[Callable[[Trader], None], float] = {
    holder: 27,
    swing: 30,
    day_trader: 15,
    scalper: 5,
    saver: 18,
    tiny: 5,
}


def start_honest(chain: Chain, wallets: list[Wallet], starts_ms: int, ends_ms: int, rng: Random) -> None:
    """Let everybody trade independently, a few with much capital and many with little."""
    for wallet in wallets:
        (kind,) = rng.choices(list(KINDS), list(KINDS.values()))
        capital_usd = min(5_000.0, 60 * rng.paretovariate(1.1))
        kind(Trader(chain, wallet, Random(rng.random()), starts_ms, ends_ms, capital_usd))
