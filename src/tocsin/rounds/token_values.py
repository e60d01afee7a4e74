"""The exact values of tokens at the end of a round. Pure."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from tocsin.chain_model import DECIMALS_MAX
from tocsin.errors import UsageError
from tocsin.exact_decimals import read_decimal
from tocsin.shapes.rounds import RoundPrice, RoundRules


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
        values[price.token_id] = TokenValue(
            read_decimal(price.price_usd), price.decimals, is_thin(price, rules)
        )
    return values


def integer_units(values: Mapping[str, TokenValue]) -> tuple[dict[str, int], int]:
    """Return the value of a smallest unit of each token that counts, in parts of a dollar, and the parts per dollar.

    There are enough parts to make all values integers, which are fast and never rounded.
    """
    exact = {
        token: Fraction(value.price) / 10**value.decimals for token, value in values.items() if not value.thin
    }
    dollar = math.lcm(*(value.denominator for value in exact.values()))
    return {token: int(value * dollar) for token, value in exact.items()}, dollar


def is_thin(price: RoundPrice, rules: RoundRules) -> bool:
    """Return whether the pools are too small for this price. Pegs and prices set by an operator are never thin."""
    if price.source != "tenero":
        return False
    liquidity_floor, volume_floor = (
        read_decimal(rules.min_liquidity_usd),
        read_decimal(rules.min_day_volume_usd),
    )
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
