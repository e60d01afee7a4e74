"""Totals per agent, pair and token. Triggers update them in the same transaction as the rows that they count.

So no forgotten update can make a total drift. This module reads, compares and rebuilds them.
"""

from collections.abc import Mapping
from typing import Any

from tocsin.bindings import Database

LIMB = 10**10  # an amount is four numbers of ten digits; see pair_totals in the schema

_TRADED_READ_MAX = 200  # more than are ever priced: some rows may not be token ids
_TRADED = "SELECT token FROM token_totals ORDER BY trades DESC, token LIMIT ?"
_DRIFT = (
    """SELECT 'pair_totals' AS totals, count(*) AS rows FROM (
      SELECT * FROM (SELECT * FROM pair_totals EXCEPT SELECT * FROM pair_totals_recounted)
      UNION ALL SELECT * FROM (SELECT * FROM pair_totals_recounted EXCEPT SELECT * FROM pair_totals))""",
    """SELECT 'sender_totals' AS totals, count(*) AS rows FROM (
      SELECT * FROM (SELECT * FROM sender_totals EXCEPT SELECT * FROM sender_totals_recounted)
      UNION ALL SELECT * FROM (SELECT * FROM sender_totals_recounted EXCEPT SELECT * FROM sender_totals))""",
    """SELECT 'token_totals' AS totals, count(*) AS rows FROM (
      SELECT * FROM (SELECT * FROM token_totals EXCEPT SELECT * FROM token_totals_recounted)
      UNION ALL SELECT * FROM (SELECT * FROM token_totals_recounted EXCEPT SELECT * FROM token_totals))""",
    """SELECT 'sender_values' AS totals, count(*) AS rows FROM (
      SELECT * FROM (SELECT * FROM sender_values EXCEPT SELECT * FROM sender_values_recounted)
      UNION ALL SELECT * FROM (SELECT * FROM sender_values_recounted EXCEPT SELECT * FROM sender_values))""",
)
_REBUILD = (
    "DELETE FROM pair_totals",
    "INSERT INTO pair_totals SELECT * FROM pair_totals_recounted",
    "DELETE FROM sender_totals",
    "INSERT INTO sender_totals SELECT * FROM sender_totals_recounted",
    "DELETE FROM token_totals",
    "INSERT INTO token_totals SELECT * FROM token_totals_recounted",
    "DELETE FROM sender_values",
    "INSERT INTO sender_values SELECT * FROM sender_values_recounted",
    "DELETE FROM outlays",  # the next runs compute them again from the swaps
)


def amount(row: Mapping[str, Any], side: str) -> int:
    """Return the exact sum that a row of pair_totals holds for `in` or `out`."""
    total = 0
    for limb in ("3", "2", "1", "0"):
        total = total * LIMB + int(row[f"{side}_{limb}"])
    return total


async def traded_tokens(db: Database) -> list[str]:
    """Return the tokens of swaps that count, from any source, most traded first. Reads one row per token."""
    rows = (await db.prepare(_TRADED).bind(_TRADED_READ_MAX).all()).results
    return [str(row["token"]) for row in rows]


async def drift(db: Database) -> dict[str, int]:
    """Return how many rows differ from a fresh count, by table; empty if none does. Reads every swap."""
    results = await db.batch([db.prepare(sql) for sql in _DRIFT])
    rows = [result.results[0] for result in results]
    return {row["totals"]: row["rows"] for row in rows if row["rows"]}


async def rebuild(db: Database) -> None:
    """Compute all totals again, in one transaction."""
    await db.batch([db.prepare(sql) for sql in _REBUILD])
