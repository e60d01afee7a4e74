"""The board's totals. Triggers of the schema keep them in the same transaction as the swap they count.

So a total cannot drift by a forgotten update. Here is what reads, compares and rebuilds them.
"""

from collections.abc import Mapping
from typing import Any

from tocsin.bindings import Database

LIMB = 10**10  # an amount is four numbers of ten digits; see pair_totals in the schema

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
)
_REBUILD = (
    "DELETE FROM pair_totals",
    "INSERT INTO pair_totals SELECT * FROM pair_totals_recounted",
    "DELETE FROM sender_totals",
    "INSERT INTO sender_totals SELECT * FROM sender_totals_recounted",
    "DELETE FROM token_totals",
    "INSERT INTO token_totals SELECT * FROM token_totals_recounted",
)


def amount(row: Mapping[str, Any], side: str) -> int:
    """The exact sum that a row of pair_totals holds for `in` or `out`."""
    total = 0
    for limb in ("3", "2", "1", "0"):
        total = total * LIMB + int(row[f"{side}_{limb}"])
    return total


async def drift(db: Database) -> dict[str, int]:
    """Rows that differ from a recount, by table; reads every swap. Empty when all is well."""
    results = await db.batch([db.prepare(sql) for sql in _DRIFT])
    rows = [result.results[0] for result in results]
    return {row["totals"]: row["rows"] for row in rows if row["rows"]}


async def rebuild(db: Database) -> None:
    """Count everything anew, at once."""
    await db.batch([db.prepare(sql) for sql in _REBUILD])
