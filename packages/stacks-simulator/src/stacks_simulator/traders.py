"""Agents with a style: what a wallet trades next depends on what it bought before and on how the price moved.

A wallet buys a token, holds it for more than an hour, and sells it again when its style says so. Everything is drawn
from one random stream, so the same seed gives the same trades.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from stacks_simulator.addresses import address_of
from stacks_simulator.calls import AMOUNT_MIN
from stacks_simulator.chain import Chain
from stacks_simulator.chain_records import IntendedSwap
from stacks_simulator.tokens import AEUSDC, ALEX, B42, DIKO, DUST, SBTC, STSTX, STX, USDCX, VELAR, WELSH, SimulatedToken
from stacks_simulator.wallets import Wallet

HOLDING_MS_MIN = 4_000_000  # longer than an hour: who sells at once only makes volume
OPEN_MAX = 12  # positions of a wallet; with more it sells
FUNDED_STX = 250_000_000  # micro-STX that a wallet begins with
RING = (3, 14, 25)  # wallets that one funder pays; the first of them wins what the others lose

# What is bought, and what with. The last one has no price, and is bought seldom.
STAKES = ((AEUSDC, STX), (USDCX, STX))
COINS = ((STX, SBTC), (STX, STSTX), (STX, ALEX), (STX, WELSH), (STX, B42), (STX, DIKO), (STX, DUST))
WEIGHTS = {STX: 12.0, SBTC: 6.0, STSTX: 3.0, ALEX: 3.0, WELSH: 4.0, B42: 2.0, DIKO: 1.0, DUST: 1.0, VELAR: 0.1}
PAIRS = (*STAKES, *COINS, (STX, VELAR))


@dataclass(frozen=True, slots=True)
class Style:
    """How a wallet trades."""

    activity: float  # how often, relative to others
    usd: float  # the size of a usual purchase
    sells: float  # the chance to sell something that it wants to sell
    edge: float  # what it gains by a trade itself, as a share: a good or a bad moment, and the pool's fee
    gain: tuple[float, float]  # a position is for sale when its price moved by a share outside of these two
    copies: bool = False  # it buys what others have just bought


HOLDER = Style(0.5, 320, 0.1, 0.0, (-1.0, 0.08))
SWINGER = Style(1.5, 160, 0.6, 0.004, (-0.09, 0.02))
SCALPER = Style(3.0, 70, 0.8, 0.007, (-0.05, 0.004))
COPIER = Style(1.5, 110, 0.5, -0.002, (-0.06, 0.03), copies=True)
LOSER = Style(1.2, 140, 0.7, -0.012, (-0.01, 0.2))
STYLES = (HOLDER, SCALPER, SWINGER, COPIER, SWINGER, LOSER, HOLDER)
RING_WINNER = Style(3.0, 420, 0.8, 0.04, (-0.03, 0.01))
RING_LOSER = Style(3.0, 420, 0.8, -0.045, (-0.01, 0.03))


@dataclass(frozen=True, slots=True)
class _Position:
    paid_with: SimulatedToken
    token: SimulatedToken
    amount: int
    rate: float  # of the token in what was paid
    since_ms: int


class Traders:
    """The registered wallets of a chain, with what they hold."""

    def __init__(self, chain: Chain, rng: Random) -> None:
        self._chain = chain
        self._rng = rng
        self._styles = [_style(number) for number in range(len(chain.wallets))]
        self._sizes = [rng.lognormvariate(0, 0.5) for _ in chain.wallets]
        self._activity = [
            style.activity * (1 if number in RING else rng.lognormvariate(0, 0.7))
            for number, style in enumerate(self._styles)
        ]
        self._open: dict[int, list[_Position]] = defaultdict(list)
        self._newest: tuple[SimulatedToken, SimulatedToken] = STAKES[0]

    def fund(self) -> None:
        """Pay every wallet its first STX, each from a funder of its own, and the ring from one."""
        for number, wallet in enumerate(self._chain.wallets):
            funder = f"{self._chain.seed}:funder:{RING[0] if number in RING else number}"
            self._chain.transfer(address_of(funder), wallet, FUNDED_STX)

    def next(self) -> tuple[Wallet, IntendedSwap]:
        """Who trades next, and what."""
        wallets = self._chain.wallets
        (number,) = self._rng.choices(range(len(wallets)), self._activity)
        return wallets[number], self._sell(number) or self._buy(number)

    def _sell(self, number: int) -> IntendedSwap | None:
        style, positions = self._styles[number], self._open[number]
        least, most = style.gain
        for_sale = [
            each
            for each in positions
            if self._chain.now_ms - each.since_ms > HOLDING_MS_MIN
            and not least < self._rate(each.paid_with, each.token) / each.rate - 1 < most
        ]
        if len(positions) >= OPEN_MAX:
            for_sale = for_sale or positions[:1]
        elif not for_sale or self._rng.random() > style.sells:
            return None
        position = self._rng.choice(for_sale)
        positions.remove(position)
        received = self._amount(position.token, position.paid_with, position.amount, style.edge)
        return IntendedSwap(position.token.id, position.amount, position.paid_with.id, received)

    def _buy(self, number: int) -> IntendedSwap:
        style = self._styles[number]
        pair = self._newest if style.copies and self._rng.random() < 0.7 else self._draw(PAIRS)
        self._newest = pair
        paid_with, token = pair
        usd = style.usd * self._rng.lognormvariate(0, 0.6) * (1 if number in RING else self._sizes[number])
        amount = max(AMOUNT_MIN, round(usd / self._price(paid_with) * float(10**paid_with.decimals)))
        bought = self._amount(paid_with, token, amount, style.edge)
        position = _Position(paid_with, token, bought, self._rate(paid_with, token), self._chain.now_ms)
        self._open[number].append(position)
        return IntendedSwap(paid_with.id, amount, token.id, bought)

    def _amount(self, sold: SimulatedToken, bought: SimulatedToken, amount: int, edge: float) -> int:
        """What a wallet gets for this amount."""
        gain = 1 + edge + self._rng.gauss(0, 0.002)
        received = amount / float(10**sold.decimals) / self._rate(sold, bought) * gain
        return max(AMOUNT_MIN, round(received * float(10**bought.decimals)))

    def _draw(self, pairs: Sequence[tuple[SimulatedToken, SimulatedToken]]) -> tuple[SimulatedToken, SimulatedToken]:
        (pair,) = self._rng.choices(pairs, [WEIGHTS[token] for _, token in pairs])
        return pair

    def _rate(self, paid_with: SimulatedToken, token: SimulatedToken) -> float:
        return self._price(token) / self._price(paid_with)

    def _price(self, token: SimulatedToken) -> float:
        return self._chain.market(token, self._chain.now_ms)


def _style(number: int) -> Style:
    if number in RING:
        return RING_WINNER if number == RING[0] else RING_LOSER
    return STYLES[number % len(STYLES)]
