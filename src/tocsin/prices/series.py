"""The price series: every accepted price with its time, in `price_points`. Gaps stay gaps: nothing is interpolated.

The price *in force* at a time is the newest point at or before it, unless that is stale. Pegs are not in the series:
they are always in force.
"""

import json
from bisect import bisect_right
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from tocsin.bindings import Database, Row, Statement
from tocsin.chain_model import TokenPrice
from tocsin.exact_decimals import decimal_of_float, decimal_text
from tocsin.prices.pricing import STALE_AFTER_MS

SOURCE = "tenero"

_ADD_TOKENS = """
INSERT INTO price_tokens (token) SELECT json_extract(value, '$[0]') FROM json_each(?) WHERE true
ON CONFLICT (token) DO NOTHING"""
_ADD_POINTS = """
INSERT INTO price_points (token, at, price_usd, decimals, source, liquidity_usd, volume_usd)
SELECT t.id, json_extract(p.value, '$[1]'), json_extract(p.value, '$[2]'), json_extract(p.value, '$[3]'),
  json_extract(p.value, '$[4]'), json_extract(p.value, '$[5]'), json_extract(p.value, '$[6]')
FROM json_each(?) p
JOIN price_tokens t ON t.token = json_extract(p.value, '$[0]')
WHERE true
ON CONFLICT (token, at) DO NOTHING"""
# CROSS JOIN keeps this order: first the requested tokens, then their points by the primary key.
_BETWEEN = """
SELECT t.token AS token_id, p.at, p.price_usd, p.decimals, p.source, p.liquidity_usd, p.volume_usd
FROM json_each(?) asked
CROSS JOIN price_tokens t ON t.token = CAST(asked.value AS TEXT)
CROSS JOIN price_points p ON p.token = t.id AND p.at >= ? AND p.at <= ?
ORDER BY p.token, p.at"""

_NEWEST_DECIMALS = """
SELECT p.decimals FROM price_tokens t JOIN price_points p ON p.token = t.id
WHERE t.token = ? AND p.decimals IS NOT NULL ORDER BY p.at DESC LIMIT 1"""


@dataclass(frozen=True, slots=True)
class PricePoint:
    """A price and when it was seen (unix ms). Numbers are exact decimal text; None: the source had no price then."""

    token_id: str
    at: int
    price_usd: str | None
    decimals: int | None
    source: str
    liquidity_usd: str | None
    volume_usd: str | None


def accepted_point(seen: TokenPrice, decimals: int | None, at: int) -> PricePoint:
    """The point for a price that was just accepted."""
    price = None if seen.price_usd is None else decimal_text(decimal_of_float(seen.price_usd))
    return PricePoint(
        seen.token_id, at, price, decimals, SOURCE, _cents(seen.liquidity_usd), _cents(seen.volume_usd)
    )


def append(db: Database, points: Sequence[PricePoint]) -> list[Statement]:
    """Statements that append these points. An existing point stays as it is."""
    if not points:
        return []
    rows = json.dumps(
        [[p.token_id, p.at, p.price_usd, p.decimals, p.source, p.liquidity_usd, p.volume_usd] for p in points]
    )
    return [db.prepare(_ADD_TOKENS).bind(rows), db.prepare(_ADD_POINTS).bind(rows)]


def ask_for_points(db: Database, token_ids: Collection[str], first_ms: int, last_ms: int) -> Statement:
    """A query for `points_of`: the points of these tokens in a period."""
    return db.prepare(_BETWEEN).bind(json.dumps(sorted(set(token_ids))), first_ms, last_ms)


def points_of(rows: Iterable[Row]) -> dict[str, list[PricePoint]]:
    """The points of each token, oldest first; a token without one is left out."""
    found: dict[str, list[PricePoint]] = {}
    for row in rows:
        found.setdefault(row["token_id"], []).append(_point(row))
    return found


async def points_between(
    db: Database, token_ids: Collection[str], first_ms: int, last_ms: int
) -> dict[str, list[PricePoint]]:
    """The points of these tokens in a period."""
    return points_of((await ask_for_points(db, token_ids, first_ms, last_ms).all()).results)


async def newest_decimals(db: Database, token_id: str) -> int | None:
    """The token's decimals, from the newest point that has them."""
    row = await db.prepare(_NEWEST_DECIMALS).bind(token_id).first()
    return None if row is None else row["decimals"]


def in_force(points: Sequence[PricePoint], at: int) -> PricePoint | None:
    """The point in force at that time, out of one token's points, oldest first; None if there is none."""
    index = bisect_right(points, at, key=lambda point: point.at)
    if not index or at - points[index - 1].at > STALE_AFTER_MS:
        return None
    return points[index - 1]


def _point(row: Row) -> PricePoint:
    return PricePoint(**row)


def _cents(usd: float | None) -> str | None:
    """An amount rounded to cents: values of pools are not more exact."""
    return None if usd is None else decimal_text(decimal_of_float(round(usd, 2)))
