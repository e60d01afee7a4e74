"""Reads the changes of the record in the order in which they were written. Triggers write them, so none is missing."""

from holdfast.types import Database, Row
from tocsin.board.types import News
from tocsin.swaps.trades import trade_of

READ_MAX = 200  # at once
KEPT_MAX = 10_000

_NEWEST = "SELECT max(id) AS id FROM news"
# A swap that was withdrawn since, or a refusal that was reopened, no longer has a row.
_AFTER = """
SELECT n.id, n.kind, n.txid AS news_txid, n.sender AS news_sender, s.*,
  r.code AS refusal_code, r.reason AS refusal_reason
FROM news n LEFT JOIN swaps s ON s.txid = n.txid LEFT JOIN refusals r ON r.txid = n.txid
WHERE n.id > ? ORDER BY n.id LIMIT ?"""
_TRIM = "DELETE FROM news WHERE id <= (SELECT max(id) FROM news) - ?"


async def newest_id(db: Database) -> int:
    row = await db.prepare(_NEWEST).first()
    return 0 if row is None or row["id"] is None else int(row["id"])


async def read_news(db: Database, after: int) -> tuple[list[News], int]:
    """Return the changes after this number, and the number to continue from.

    A swap that was written several times within one reading, for example because its block moved, gives at most one
    piece of news. A recorded swap that no longer counts gives two: one tells everybody that it was withdrawn, the
    other tells its agent why.
    """
    rows = (await db.prepare(_AFTER).bind(after, READ_MAX).all()).results
    last: dict[tuple[str, bool], Row] = {}  # by transaction, and whether it is about its refusal
    first_kind: dict[str, str] = {}
    for row in rows:
        txid, kind = row["news_txid"], row["kind"]
        if kind != "refused":
            first_kind.setdefault(txid, kind)
        if kind == "counted":
            last.pop((txid, True), None)  # a refusal that was reopened
        last.pop((txid, kind == "refused"), None)
        last[txid, kind == "refused"] = row
    told = [
        _news(row)
        for (txid, _), row in last.items()
        if not (row["kind"] == "counted" and first_kind[txid] == "withdrawn")
        and not (row["kind"] == "withdrawn" and first_kind[txid] == "counted")
    ]
    return told, rows[-1]["id"] if rows else after


async def trim_news(db: Database) -> int:
    """Delete all but the newest; return how many were deleted."""
    return (await db.prepare(_TRIM).bind(KEPT_MAX).run()).meta.changes


def _news(row: Row) -> News:
    kind = row["kind"]
    return News(
        id=row["id"],
        kind=kind,
        address=row["news_sender"],
        txid=row["news_txid"],
        trade=trade_of(row) if kind == "counted" and row["txid"] is not None else None,
        code=row["refusal_code"] if kind == "refused" else None,
        reason=row["refusal_reason"] if kind == "refused" else None,
    )
