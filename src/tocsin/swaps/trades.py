"""What an agent can see of its trades: its swaps page by page, its counts, and its refusals. Operators see all.

Where a page ended is an opaque string that callers send back.
"""

import base64
import binascii
import json
import re
from collections.abc import Sequence

from holdfast.errors import UsageError
from holdfast.types import JSON, Database, Row
from tocsin.sql import read_queries
from tocsin.stacks import decode_address
from tocsin.swaps.rules import MEANINGS, Code
from tocsin.swaps.types import RecentRefusal, RefusalPage, Trade, TradeCounts, TradePage
from tocsin.swaps.values import stored_excess

LENGTH_MAX = 400
PATTERN = "^([A-Za-z0-9_-]{4,400})?$"  # an empty one counts as absent

PAGE_MAX = 200
PAGE_DEFAULT = 50
REFUSALS_MAX = 500
REFUSALS_DEFAULT = 50

_TXID = re.compile(r"0x[0-9a-f]{64}")
_MAX = 2**53 - 1

SQL = read_queries(__file__)


def write(value: JSON) -> str:
    text = json.dumps(value, separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def read(cursor: str) -> JSON:
    """Return the encoded value; None for anything else that a caller may send."""
    value: JSON = None
    try:
        padded = cursor[:LENGTH_MAX] + "=" * (-len(cursor) % 4)
        value = json.loads(base64.b64decode(padded.encode("ascii"), altchars=b"-_", validate=True))
    except (ValueError, RecursionError, binascii.Error):
        return None
    return value


async def find_swap(db: Database, txid: str) -> Row | None:
    return await db.prepare(SQL["swap"]).bind(txid).first()


async def find_refusal(db: Database, txid: str) -> Row | None:
    return await db.prepare(SQL["refusal"]).bind(txid).first()


async def refused_since(db: Database, since_ms: int) -> dict[str, int]:
    """Return how many transactions were refused since then, by code, most frequent first."""
    rows = (await db.prepare(SQL["refused_since"]).bind(since_ms).all()).results
    return {row["code"]: row["n"] for row in rows}


def trade_of(row: Row) -> Trade:
    """Return a row of `swaps` as the routes show it. A swap that was just recorded has no `excess_json` yet."""
    return Trade.from_json({**row, "tx_status": "success", "excess": stored_excess(row.get("excess_json"))})


async def trades_of(db: Database, address: str, *, limit: int = PAGE_DEFAULT, after: str | None = None) -> TradePage:
    """Return the page of a wallet's swaps at the cursor `after`, newest first."""
    before = (_MAX, "") if after is None else _read_time(after)
    rows = (await db.prepare(SQL["trades_of_sender"]).bind(address, *before, limit + 1).all()).results
    return TradePage([trade_of(row) for row in rows[:limit]], _next(rows, limit, t="burn_block_time", x="txid"))


async def newest_trades(db: Database, *, limit: int = PAGE_DEFAULT, after: str | None = None) -> TradePage:
    """Return the page of everybody's swaps at the cursor `after`, newest first."""
    before = (_MAX, 0) if after is None else _read_position(after)
    rows = (await db.prepare(SQL["newest_trades"]).bind(*before, limit + 1).all()).results
    return TradePage([trade_of(row) for row in rows[:limit]], _next(rows, limit, h="block_height", i="tx_index"))


async def trade_counts(db: Database, address: str) -> TradeCounts:
    """Return a wallet's counts; zeros for an unregistered one."""
    row = await db.prepare(SQL["trade_counts"]).bind(address).first() or {}
    trades = row.get("trades") or 0
    return TradeCounts(
        address=address,
        agent_id=row.get("agent_id"),
        registered=bool(row),
        trade_count=trades,
        verified_trade_count=trades,
        first_trade_at=row.get("first_trade_at"),
        last_trade_at=row.get("last_trade_at"),
    )


def check_address(address: str) -> None:
    """Raise `UsageError` for anything but a mainnet address."""
    try:
        decode_address(address)
    except ValueError as error:
        raise UsageError(f"address must be a Stacks mainnet address, SP… or SM…; {address[:60]!a} {error}.") from None


def _next(rows: Sequence[Row], limit: int, **columns: str) -> str | None:
    """Return the cursor after a full page, with these columns of its last row; None if there is no other page."""
    return write({key: rows[limit - 1][column] for key, column in columns.items()}) if len(rows) > limit else None


def _read_time(text: str, field: str = "next_cursor") -> tuple[int, str]:
    match read(text):
        case {"t": int(time), "x": str(txid)} if 0 <= time <= _MAX and _TXID.fullmatch(txid):
            return time, txid
    raise UsageError(f"cursor must be {field} of the previous page; leave it out to start at the newest.")


def _read_position(text: str) -> tuple[int, int]:
    match read(text):
        case {"h": int(height), "i": int(index)} if 0 <= height <= _MAX and 0 <= index <= _MAX:
            return height, index
    raise UsageError("cursor must be next_cursor of the previous page, also of everybody's trades.")


async def refusals(
    db: Database,
    *,
    limit: int = REFUSALS_DEFAULT,
    code: str | None = None,
    sender: str | None = None,
    after: str | None = None,
) -> RefusalPage:
    """Return the page at the cursor `after`: refusals of one code, of one sender, or all."""
    if code is not None and sender is not None:
        raise UsageError("Give code or sender, not both.")
    before = (_MAX, "") if after is None else _read_time(after, "next")
    if sender is not None:
        check_address(sender)
        statement = db.prepare(SQL["refusals_of_sender"]).bind(sender, *before, limit + 1)
    elif code is not None:
        statement = db.prepare(SQL["refusals_of_code"]).bind(code, *before, limit + 1)
    else:
        statement = db.prepare(SQL["newest_refusals"]).bind(*before, limit + 1)
    rows = (await statement.all()).results
    return RefusalPage([refusal_of(row) for row in rows[:limit]], _next(rows, limit, t="refused_at", x="txid"))


def refusal_of(row: Row) -> RecentRefusal:
    return RecentRefusal(
        txid=row["txid"],
        code=row["code"],
        reason=row["reason"],
        sentence=MEANINGS[Code(row["code"])].sentence,
        sender=row["sender"],
        contract_id=row["contract_id"],
        function_name=row["function_name"],
        burn_block_time=row["burn_block_time"],
        refused_at=row["refused_at"],
    )
