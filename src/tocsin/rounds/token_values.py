"""What tokens are worth at the end of a round, as integers. Pure.

All money of a round is counted in one unit: a dollar divided by a power of ten that is large enough for every price of
the round. Sums and products are then those of integers, which Python never rounds.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from tocsin.chain_model import DECIMALS_MAX
from tocsin.errors import UsageError
from tocsin.exact_decimals import decimal_places, read_decimal, scaled_integer
from tocsin.shapes.rounds import RoundPrice, RoundRules


@dataclass(frozen=True, slots=True)
class TokenValues:
    """`units` is what one smallest unit of each token is worth. A thin token has no value that counts."""

    places: int  # 10**places units of money are a dollar
    units: dict[str, int]
    thin: frozenset[str]

    def money(self, usd: str) -> int:
        """An amount of dollars in our unit."""
        return scaled_integer(usd, self.places)


def token_values(prices: Iterable[RoundPrice], rules: RoundRules) -> TokenValues:
    """Raises `UsageError` for prices and rules that cannot be."""
    known: dict[str, RoundPrice] = {}
    check_rules(rules)
    for price in prices:
        check_price(price)
        if price.token_id in known:
            raise UsageError(f"{price.token_id} has two prices. Give one.")
        known[price.token_id] = price
    thin = frozenset(token for token, price in known.items() if is_thin(price, rules))
    places = max(
        decimal_places(rules.min_volume_usd),
        decimal_places(rules.dust_usd),
        *(decimal_places(price.price_usd) + price.decimals for price in known.values()),
    )
    units = {
        token: scaled_integer(price.price_usd, places - price.decimals)
        for token, price in known.items()
        if token not in thin
    }
    return TokenValues(places, units, thin)


def is_thin(price: RoundPrice, rules: RoundRules) -> bool:
    """Whether nobody could trade much at this price. A peg and a price that an operator set are taken as they are."""
    if price.source != "tenero":
        return False
    floors = ((price.liquidity_usd, rules.min_liquidity_usd), (price.volume_usd, rules.min_day_volume_usd))
    return any(
        read_decimal(floor) > 0 and (known is None or read_decimal(known) < read_decimal(floor))
        for known, floor in floors
    )


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
