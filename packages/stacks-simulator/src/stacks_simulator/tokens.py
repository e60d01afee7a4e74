"""Tokens, their price at any moment, and how Tenero quotes each.

A price is a pure function of the token and the minute, so it costs nothing to advance the chain by a month. There are
two markets: `price_usd` moves in two slow waves, which tests can foresee; `walk` looks like a market.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Literal, TypeAlias

from stacks_simulator.addresses import address_of, digest

# How Tenero quotes a token. number: a number. text: price and decimals are numeric strings. zero and null: that
# value instead of a price. missing: 404, and not in the list. unlisted: found by its address but not in the list.
Quoting: TypeAlias = Literal["number", "text", "zero", "null", "missing", "unlisted"]

PRICE_STEP_MS = 60_000
WEEK = 10_080  # minutes
SCALES = (2 * WEEK, 5_760, 2_000, 720, 240, 90, 30, 11, 4, 2)  # minutes between two random values
STSTX_RATE = 1.141
FILLER_COUNT = 235  # tokens without trades; they make the list several pages long


@dataclass(frozen=True, slots=True)
class SimulatedToken:
    """A token of the chain. `id` is `stx` or `contract::asset`, as events and stored swaps name it."""

    id: str
    symbol: str
    decimals: int
    base_price: float
    quoting: Quoting = "number"
    volatility: float = 0.12  # how far `walk` moves in a week, as a share

    @property
    def address(self) -> str:
        """The id that Tenero uses: the contract, without the asset's name."""
        return self.id.partition("::")[0]


STX = SimulatedToken("stx", "STX", 6, 0.85, volatility=0.07)
SBTC = SimulatedToken(
    "SM3VDXK3WZZSA84XXFKAFAF15NNZX32CTSG82JFQ4.sbtc-token::sbtc-token", "sBTC", 8, 103_420.5, volatility=0.04
)
STSTX = SimulatedToken("SP4SZE494VC2YC5JYG7AYFQ44F5Q4PYV7DVMDPBG.ststx-token::ststx", "stSTX", 6, 0.97)
USDCX = SimulatedToken("SP120SBRBQJ00MCWS7TM5R8WJNTTKD5K0HFRC2CNE.usdcx::usdcx-token", "USDCx", 6, 1.0, "missing")
AEUSDC = SimulatedToken("SP3Y2ZSH8P7D50B0VBTSX11S7XSG24M1VB9YFQA4K.token-aeusdc::aeUSDC", "aeUSDC", 6, 1.0, "zero")
USDA = SimulatedToken("SP2C2YFP12AJZB4MABJBAJ55XECVS7E4PMMZ89YZR.usda-token::usda", "USDA", 6, 1.0, "zero")
SUSDT = SimulatedToken("SP3K8BC0PPEVCV7NZ6QSRWPQ2JE9E5B6N3PA0KBR9.token-susdt::bridged-usdt", "sUSDT", 8, 1.0, "zero")
ALEX = SimulatedToken("SP102V8P0F7JX67ARQ77WEA3D3CFB5XW39REDT0AM.token-alex::alex", "ALEX", 8, 0.012)
WELSH = SimulatedToken(
    "SP3NE50GEXFG9SZGTT51P40X2CKYSZ5CC4ZTZ7A2G.welshcorgicoin-token::welshcorgicoin", "WELSH", 6, 0.0007, "text"
)
VELAR = SimulatedToken("SP1Y5YSTAHZ88XYK1VPDH24GY0HPX5J4JECTMY4A1.velar-token::velar", "VELAR", 6, 0.0031, "null")
DIKO = SimulatedToken("SP2C2YFP12AJZB4MABJBAJ55XECVS7E4PMMZ89YZR.arkadiko-token::diko", "DIKO", 6, 0.018, "unlisted")
# Two invented tokens: one with digits in its asset name, one with units so small that amounts exceed 2^63.
B42 = SimulatedToken(f"{address_of('b42')}.b42-token::b42", "B42", 8, 0.0052, "text")
DUST = SimulatedToken(f"{address_of('dust')}.dust-token::dust", "DUST", 18, 0.000_4)

TRADED_TOKENS = (STX, SBTC, STSTX, USDCX, AEUSDC, USDA, SUSDT, ALEX, WELSH, VELAR, DIKO, B42, DUST)
FILLER_TOKENS = tuple(
    SimulatedToken(f"{address_of(f'filler:{n}')}.token-{n}::token-{n}", f"T{n}", 6, 0.001 * (n + 1))
    for n in range(FILLER_COUNT)
)
TOKENS_BY_ID = {token.id: token for token in TRADED_TOKENS}


Market: TypeAlias = Callable[[SimulatedToken, int], float]  # the price in USD of a token at a time (ms)


def price_usd(token: SimulatedToken, at_ms: int) -> float:
    """The price of the token at that moment, in USD."""
    minute, phase = at_ms // PRICE_STEP_MS, _phase(token.id)
    if token.base_price == 1.0:  # the price of a stablecoin hardly moves
        return round(1.0 + 0.001 * math.sin(minute / 41 + phase), 6)
    slow = 0.06 * math.sin(minute / 311 + phase)
    quick = 0.015 * math.sin(minute / 17 + 2 * phase)
    return float(f"{token.base_price * math.exp(slow + quick):.6g}")


@cache
def _phase(token_id: str) -> float:
    return int(digest(token_id)[2:10], 16) / 0xFFFF_FFFF * math.tau


@lru_cache(maxsize=100_000)
def walk(token: SimulatedToken, at_ms: int) -> float:
    """A price that moves like one of a market: noise on every scale from two minutes to two weeks."""
    minute = at_ms // PRICE_STEP_MS
    if token.id == STSTX.id:  # staked STX is worth STX and its rewards
        return float(f"{walk(STX, at_ms) * STSTX_RATE * (1 + 0.0005 * _noise(token.id, 7, minute / 60)):.6g}")
    volatility = 0.0006 if token.base_price == 1.0 else token.volatility
    moved = sum(math.sqrt(length / WEEK) * _noise(token.id, length, minute / length) for length in SCALES)
    return float(f"{token.base_price * math.exp(volatility * moved):.6g}")


def _noise(token_id: str, length: int, at: float) -> float:
    """A smooth curve through random values from -1 to 1, one at each whole number."""
    before = math.floor(at)
    part = at - before
    part *= part * (3 - 2 * part)
    return (1 - part) * _random(token_id, length, before) + part * _random(token_id, length, before + 1)


@lru_cache(maxsize=100_000)
def _random(token_id: str, length: int, number: int) -> float:
    return int(digest(f"{token_id}:{length}:{number}")[2:10], 16) / 0x7FFF_FFFF - 1
