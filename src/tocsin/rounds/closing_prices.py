"""The prices of a round's end, from the price series: the same whenever they are computed.

The price of a token is the median of the prices in force at 13 instants of the last hour, including the end. A spike
of a few minutes does not move it. A token whose price was known at fewer than seven of them has no price.
"""

from collections.abc import Collection, Iterable, Sequence

from tocsin.bindings import Database, Row, Statement
from tocsin.chain_model import STX, STX_DECIMALS
from tocsin.exact_decimals import decimal_of_float, decimal_text, read_decimal
from tocsin.prices.pricing import STALE_AFTER_MS, peg_of
from tocsin.prices.series import PricePoint, ask_for_points, in_force, newest_decimals, points_of
from tocsin.shapes.rounds import RoundPrice

INSTANTS = 13
APART_MS = 5 * 60_000
KNOWN_MIN = 7


def ask_for_closing_prices(db: Database, token_ids: Collection[str], ends_at: int) -> Statement:
    """Return the query for the rows that `closing_prices_of` reads."""
    end_ms = ends_at * 1000
    return ask_for_points(db, token_ids, end_ms - (INSTANTS - 1) * APART_MS - STALE_AFTER_MS, end_ms)


def closing_prices_of(rows: Iterable[Row], token_ids: Collection[str], ends_at: int) -> list[RoundPrice]:
    """Return the prices at `ends_at` (unix seconds) of the tokens that have one, in order of their ids."""
    series = points_of(rows)
    prices = [
        closing_price(token_id, series.get(token_id, []), ends_at * 1000)
        for token_id in sorted(set(token_ids))
    ]
    return [price for price in prices if price is not None]


async def closing_prices(db: Database, token_ids: Collection[str], ends_at: int) -> list[RoundPrice]:
    rows = (await ask_for_closing_prices(db, token_ids, ends_at).all()).results
    return closing_prices_of(rows, token_ids, ends_at)


async def known_decimals(db: Database, token_id: str, ends_at: int) -> int | None:
    """Return a token's decimals from its price at `ends_at` or its newest price; None if no price has them."""
    if token_id == STX:
        return STX_DECIMALS
    for price in await closing_prices(db, [token_id], ends_at):
        return price.decimals
    return await newest_decimals(db, token_id)


def closing_price(token_id: str, points: Sequence[PricePoint], end_ms: int) -> RoundPrice | None:
    """Return the price of one token, whose points are given oldest first."""
    peg = peg_of(token_id)
    if peg is not None:
        price_usd = decimal_text(decimal_of_float(peg.price_usd))
        return RoundPrice(token_id, price_usd, peg.decimals, "peg", end_ms)
    known = []
    for number in range(INSTANTS):
        point = in_force(points, end_ms - number * APART_MS)
        if point is not None and point.price_usd is not None and point.decimals is not None:
            known.append((read_decimal(point.price_usd), point.at, point.decimals, point))
    if len(known) < KNOWN_MIN:
        return None
    _, at, decimals, point = sorted(known, key=lambda each: each[:2])[(len(known) - 1) // 2]
    assert point.price_usd is not None, "only points with a price are known"
    return RoundPrice(
        token_id, point.price_usd, decimals, "tenero", at, point.liquidity_usd, point.volume_usd
    )
