"""Reads the changes of the record in the order in which they were written. Triggers write them, so none is missing."""

from holdfast.types import Database, Row
from tocsin.board.types import News
from tocsin.sql import read_queries
from tocsin.swaps.trades import trade_of

SQL = read_queries(__file__)

READ_MAX = 200  # at once
KEPT_MAX = 10_000


async def newest_id(db: Database) -> int:
    row = await db.prepare(SQL["newest_news"]).first()
    return 0 if row is None or row["id"] is None else int(row["id"])


async def read_news(db: Database, after: int) -> tuple[list[News], int]:
    """Return the changes after this number, and the number to continue from.

    A swap that was written several times within one reading, for example because its block moved, gives at most one
    piece of news. A recorded swap that no longer counts gives two: one tells everybody that it was withdrawn, the
    other tells its agent why.
    """
    rows = (await db.prepare(SQL["news_after"]).bind(after, READ_MAX).all()).results
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
    return (await db.prepare(SQL["trim_news"]).bind(KEPT_MAX).run()).meta.changes


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
