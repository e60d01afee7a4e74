"""Thirteen ways to win a prize without being the best trader. `docs/fair-play.md` explains what stops each.

A recipe schedules transactions on a chain for the time of a round, and states what else it does: which identities,
owners and first funders its wallets have, and how it moves quotes. `ATTACKS` has them by name. The chain is then
advanced as usual; nothing here knows how results are computed.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import log
from random import Random
from typing import TypeAlias

from stacks_simulator.addresses import address_of
from stacks_simulator.chain import BURN_BLOCK_S, Chain, Fate
from stacks_simulator.tokens import AEUSDC, B42, SBTC, STSTX, STX, SUSDT, USDA, WELSH, SimulatedToken, price_usd
from stacks_simulator.wallets import Wallet
from tocsin.rounds.round import RoundAgent

MINUTE_MS = 60_000
HOUR_MS = 3_600_000
FEE = 0.003  # of a pool, including the effect of the trade on the price
BETS = (SBTC, AEUSDC, STSTX, WELSH)  # each has a pool with STX


@dataclass(frozen=True, slots=True)
class QuoteChange:
    """How Tenero quotes a token from a time on; None: as before."""

    at_ms: int
    token: SimulatedToken
    factor: float | None = None  # times the price of the market
    liquidity_usd: int | None = None


@dataclass(slots=True)
class Attack:
    """One attack on a round of a chain, with this much capital in all."""

    chain: Chain
    wallets: list[Wallet]
    starts_ms: int
    ends_ms: int
    capital_usd: float
    rng: Random
    first_funders: dict[str, str] = field(default_factory=dict)
    quotes: list[QuoteChange] = field(default_factory=list)

    def moment(self, share: float) -> int:
        """Return a time in the round; 0 is its start, 1 its end."""
        return int(self.starts_ms + share * (self.ends_ms - self.starts_ms))

    def trade(
        self,
        at_ms: int,
        wallet: Wallet,
        sold: SimulatedToken,
        bought: SimulatedToken,
        usd: float,
        *,
        kind: str = "simple",
        gain: float = 1 - FEE,
    ) -> None:
        """Swap this many dollars at the market price of that time, less the fee."""
        self.chain.schedule(at_ms, partial(self._trade, wallet, sold, bought, usd, kind, gain))

    def _trade(
        self, wallet: Wallet, sold: SimulatedToken, bought: SimulatedToken, usd: float, kind: str, gain: float
    ) -> None:
        now = self.chain.now_ms
        self.chain.swap(
            wallet,
            kind,
            rng=self.rng,
            token_in=sold.id,
            token_out=bought.id,
            amount_in=max(1000, int(usd / price_usd(sold, now) * 10**sold.decimals)),
            amount_out=max(1000, int(usd * gain / price_usd(bought, now) * 10**bought.decimals)),
        )

    def bet(self, at_ms: int, wallet: Wallet, token: SimulatedToken, usd: float, *, up: bool) -> None:
        """Bet that a token rises against STX, or that it falls."""
        sold, bought = (STX, token) if up else (token, STX)
        self.trade(at_ms, wallet, sold, bought, usd)

    def fund(self, wallets: Sequence[Wallet], funder: str) -> None:
        """Have one wallet send all of these their first STX."""
        for wallet in wallets:
            self.first_funders[wallet.address] = funder
            self.chain.transfer(funder, wallet, 5_000_000)


Recipe: TypeAlias = Callable[[Attack], None]


def churn(attack: Attack) -> None:
    """Swap there and back for volume: within minutes or more than an hour apart, whole, in parts, or in a triangle."""
    (wallet, *_), rng, usd = attack.wallets, attack.rng, attack.capital_usd
    style, slow = rng.choice(("whole", "parts", "triangle")), rng.random() < 0.5
    loop = {
        "whole": rng.choice(((STX, STSTX), (USDA, AEUSDC))),
        "parts": (STX, AEUSDC),
        "triangle": (USDA, SUSDT, AEUSDC),
    }[style]
    step, at = (70 * MINUTE_MS if slow else rng.randrange(2, 20) * MINUTE_MS), attack.moment(0.05)
    for leg in range(120):
        sold, bought = loop[leg % len(loop)], loop[(leg + 1) % len(loop)]
        parts = 3 if style == "parts" and leg % 2 else 1
        for _ in range(parts):
            attack.trade(at, wallet, sold, bought, usd * (1 - FEE) ** leg / parts)
        at += step


def ring(attack: Attack) -> None:
    """Two wallets make opposite bets of the same amounts: one of them must win."""
    one, other = attack.wallets[:2]
    (token, start), *_ = _swings(attack)
    for number in range(8):
        at, usd = start + 20 * number * MINUTE_MS, attack.capital_usd / 16 * attack.rng.uniform(0.3, 1)
        attack.bet(at, one, token, usd, up=True)
        attack.bet(at + attack.rng.randrange(20) * MINUTE_MS, other, token, usd, up=False)


def thin_token(attack: Attack) -> None:
    """Buy a token that hardly anybody trades, and quote it at a price at which nobody buys it."""
    wallet, *_ = attack.wallets
    for number in range(3):
        attack.trade(attack.moment(0.2 + 0.1 * number), wallet, STX, B42, attack.capital_usd / 3)
    attack.quotes += [
        QuoteChange(attack.starts_ms, B42, liquidity_usd=attack.rng.randrange(500, 9_999)),
        QuoteChange(attack.moment(0.6), B42, factor=attack.rng.uniform(3, 500)),
    ]


def dust(attack: Attack) -> None:
    """Make the luckiest possible trade, and hundreds of tiny ones to reach the floors for the return."""
    wallet, *_ = attack.wallets
    token, at = max(_swings(attack), key=lambda swing: _growth(attack, *swing))
    attack.bet(at, wallet, token, 60, up=True)
    for number in range(200):
        sold, bought = ((STX, AEUSDC), (AEUSDC, STX))[number % 2]
        usd = attack.rng.uniform(0.002, 0.02)
        attack.trade(attack.moment(0.2 + number / 400), wallet, sold, bought, usd)


def sybil_funding(attack: Attack) -> None:
    """Use many wallets, funded by one, that bet on and against everything: one of them must be the luckiest."""
    attack.fund(attack.wallets, address_of(f"{attack.chain.seed}:sybil"))
    usd = attack.capital_usd / len(attack.wallets) / 4
    bets = [(token, start, up) for token, start in _swings(attack) for up in (True, False)]
    for wallet, (token, start, up) in zip(attack.wallets, bets, strict=False):
        for part in range(4):
            at = start + attack.rng.randrange(5, 15) * part * MINUTE_MS
            attack.bet(at, wallet, token, usd * attack.rng.uniform(0.8, 1), up=up)


def late_submit(attack: Attack) -> None:
    """Trade after the end, knowing its prices, and submit it within the grace."""
    wallet, *_ = attack.wallets
    for number in range(4):
        at = attack.ends_ms + (BURN_BLOCK_S + 60 * number) * 1000
        attack.trade(at, wallet, STX, AEUSDC, attack.capital_usd, gain=1.4)


def reorg_at_the_end(attack: Attack) -> None:
    """Trade in the last blocks, and have them replaced: the trades return after the end, or never."""
    wallet, *_ = attack.wallets
    for number in range(4):
        attack.trade(attack.ends_ms - (50 - 10 * number) * 1000, wallet, STX, AEUSDC, 500, gain=1.4)
    fates: tuple[Fate, ...] = ("dropped", "forked", "vanished")
    fate = attack.rng.choice(fates)

    def reorg() -> None:
        attack.chain.reorg(12, fate)

    attack.chain.schedule(attack.ends_ms - 2_000, reorg)


def clock(attack: Attack) -> None:
    """Trade before the start, and after the end, at known prices, while the last Bitcoin block still counts."""
    wallet, *_ = attack.wallets
    for number in range(4):
        early = attack.starts_ms - (2 * BURN_BLOCK_S + 60 * number) * 1000
        attack.trade(early, wallet, STX, AEUSDC, attack.capital_usd, gain=1.4)
    until = -(-attack.ends_ms // (BURN_BLOCK_S * 1000)) * BURN_BLOCK_S * 1000
    for number in range(4):
        late = attack.ends_ms + number * (until - attack.ends_ms) // 4
        best = max(BETS, key=lambda token: price_usd(token, attack.ends_ms) / price_usd(token, late))
        attack.trade(late, wallet, STX, best, attack.capital_usd / 4)


def unlisted_contract(attack: Attack) -> None:
    """Trade through one's own contract, at any price."""
    wallet, *_ = attack.wallets
    for number in range(10):
        kind = attack.rng.choice(("off_list_contract", "off_list_function"))
        attack.trade(attack.moment(0.1 + 0.08 * number), wallet, STX, SBTC, attack.capital_usd, kind=kind, gain=50)


def price_spike(attack: Attack) -> None:
    """Hold a token, and push its price up for the last half hour."""
    wallet, *_ = attack.wallets
    for number in range(3):
        attack.trade(attack.moment(0.3 + 0.1 * number), wallet, STX, WELSH, attack.capital_usd / 3)
    lasts = attack.rng.randrange(1, 30) * MINUTE_MS
    attack.quotes.append(QuoteChange(attack.ends_ms - lasts, WELSH, factor=attack.rng.uniform(1.5, 20)))


def rotation(attack: Attack) -> None:
    """Lose with one wallet, win with the next, and keep only the identity of the winner."""
    first = attack.wallets[0]
    attack.wallets[:] = [replace(wallet, erc8004_agent_id=first.erc8004_agent_id) for wallet in attack.wallets[:2]]
    _opposites(attack, attack.wallets[0], attack.wallets[1])


def double_identity(attack: Attack) -> None:
    """Use two identities of one owner for opposite bets of different amounts at different hours."""
    attack.wallets[:] = [
        replace(wallet, owner=name) for wallet, name in zip(attack.wallets[:2], ("@Satoshi", "satoshi "), strict=True)
    ]
    _opposites(attack, *attack.wallets)


def minted_tokens(attack: Attack) -> None:
    """Own the contract of a token with a price, and mint it in the swap: receive any amount, or give any for volume."""
    (wallet, *_), rng = attack.wallets, attack.rng
    style, at = rng.choice(("at once", "in parts", "given")), attack.moment(rng.uniform(0.1, 0.6))
    if style == "at once":
        attack.trade(at, wallet, STX, WELSH, 1, gain=10 ** rng.randrange(6, 30))
        attack.trade(at + HOUR_MS, wallet, STX, AEUSDC, 60)
        attack.trade(at + 2 * HOUR_MS, wallet, AEUSDC, STX, 60)
    elif style == "in parts":  # each is worth less than the pool
        for number in range(20):
            attack.trade(at + number * 10 * MINUTE_MS, wallet, STX, WELSH, 10, gain=rng.uniform(6, 20_000))
    else:
        attack.trade(at, wallet, WELSH, STX, 10 ** rng.randrange(6, 30), gain=1e-5)


def _opposites(attack: Attack, one: Wallet, other: Wallet) -> None:
    """Make opposite bets more than an hour apart, in alternating order."""
    (token, start), *_ = _swings(attack)
    for number in range(6):
        at, usd = start + 10 * (number // 2) * MINUTE_MS, attack.capital_usd / 12
        apart = 70 * MINUTE_MS * (number % 2)
        attack.bet(at + apart, one, token, usd * attack.rng.uniform(0.85, 1), up=True)
        attack.bet(at + 70 * MINUTE_MS - apart, other, token, usd * attack.rng.uniform(0.85, 1), up=False)


def _swings(attack: Attack) -> list[tuple[SimulatedToken, int]]:
    """Return for each token a time after which its price moves far in either direction, the greatest move first."""
    moments = [attack.moment(attack.rng.uniform(0, 0.8)) for _ in range(20)]
    moves = sorted(
        ((abs(log(_growth(attack, token, at))), token, at) for token in BETS for at in moments),
        key=lambda move: -move[0],
    )
    farthest: dict[SimulatedToken, int] = {}
    for _, token, at in moves:
        farthest.setdefault(token, at)
    return list(farthest.items())


def _growth(attack: Attack, token: SimulatedToken, at_ms: int) -> float:
    """Return how much a token gains against STX until the end."""
    then, end = (price_usd(token, at) / price_usd(STX, at) for at in (at_ms, attack.ends_ms))
    return end / then


ATTACKS: Mapping[str, Recipe] = {
    "churn": churn,
    "ring": ring,
    "thin token": thin_token,
    "dust": dust,
    "sybil funding": sybil_funding,
    "late submit": late_submit,
    "reorg at the end": reorg_at_the_end,
    "clock": clock,
    "unlisted contract": unlisted_contract,
    "price spike at the end": price_spike,
    "rotation of wallets": rotation,
    "double identity": double_identity,
    "minted tokens": minted_tokens,
}


def agent_of(wallet: Wallet, first_funder: str | None = None) -> RoundAgent:
    assert wallet.erc8004_agent_id is not None
    return RoundAgent(
        wallet.address, wallet.btc_address, wallet.erc8004_agent_id, owner=wallet.owner, first_funder=first_funder
    )
