"""What an agent can see of its trades: its swaps page by page, its counts, and its refusals."""

import re

from tocsin.bindings import Database, Row
from tocsin.competition import page_token
from tocsin.errors import UsageError
from tocsin.shapes.competition import Trade, TradeCounts, TradePage
from tocsin.shapes.swap_excess import stored_excess
from tocsin.stacks_address import decode_address

PAGE_MAX = 200
PAGE_DEFAULT = 50

_TXID = re.compile(r"0x[0-9a-f]{64}")
_HEIGHT_MAX = 2**53 - 1
_TIME_MAX = 10**15  # older releases recorded times up to this; trades with such a time are listed first

_SWAP = """*, (SELECT json_object('txid', txid, 'given_usd', given_usd, 'given_liquidity_usd', given_liquidity_usd,
    'received_usd', received_usd, 'received_liquidity_usd', received_liquidity_usd)
  FROM excess_swaps e WHERE e.txid = swaps.txid) AS excess_json"""
SWAP = f"SELECT {_SWAP} FROM swaps WHERE txid = ?"  # noqa: S608 - a constant, as the next two
_REFUSAL = "SELECT * FROM refusals WHERE txid = ?"
# Without the hint, SQLite would read all refusals in the order of their codes.
_REFUSED_SINCE = """
SELECT code, count(*) AS n FROM refusals INDEXED BY refusals_by_time
WHERE refused_at >= ? GROUP BY code ORDER BY n DESC, code"""
_PAGE = f"""
SELECT {_SWAP} FROM swaps WHERE sender = ? AND (burn_block_time, txid) < (?, ?)
ORDER BY burn_block_time DESC, txid DESC LIMIT ?"""  # noqa: S608
_NEWEST = f"""
SELECT {_SWAP} FROM swaps WHERE (block_height, tx_index) < (?, ?)
ORDER BY block_height DESC, tx_index DESC LIMIT ?"""  # noqa: S608
_STATUS = """
SELECT a.erc8004_agent_id AS agent_id, t.trades, t.first_trade_at, t.last_trade_at
FROM agents a LEFT JOIN sender_totals t ON t.sender = a.stx_address WHERE a.stx_address = ?"""


async def find_swap(db: Database, txid: str) -> Row | None:
    return await db.prepare(SWAP).bind(txid).first()


async def find_refusal(db: Database, txid: str) -> Row | None:
    return await db.prepare(_REFUSAL).bind(txid).first()


async def refused_since(db: Database, since_ms: int) -> dict[str, int]:
    """Return how many transactions were refused since then, by code, most frequent first."""
    rows = (await db.prepare(_REFUSED_SINCE).bind(since_ms).all()).results
    return {row["code"]: row["n"] for row in rows}


def trade_of(row: Row) -> Trade:
    """Return a row of `swaps` as the routes show it. A swap that was just recorded has no `excess_json` yet."""
    return Trade(
        txid=row["txid"],
        sender=row["sender"],
        contract_id=row["contract_id"],
        function_name=row["function_name"],
        token_in=row["token_in"],
        amount_in=row["amount_in"],
        token_out=row["token_out"],
        amount_out=row["amount_out"],
        burn_block_time=row["burn_block_time"],
        block_height=row["block_height"],
        tx_status="success",
        source=row["source"],
        provider=row["provider"],
        excess=stored_excess(row.get("excess_json")),
    )


async def trades_of(
    db: Database, address: str, *, limit: int = PAGE_DEFAULT, after: str | None = None
) -> TradePage:
    """Return the page of a wallet's swaps at the cursor `after`, newest first."""
    check_address(address)
    if not 1 <= limit <= PAGE_MAX:
        raise UsageError(f"limit is 1 to {PAGE_MAX}, not {limit}.")
    before = (_TIME_MAX + 1, "") if after is None else _read_cursor(after)
    rows = (await db.prepare(_PAGE).bind(address, *before, limit + 1).all()).results
    cursor = None
    if len(rows) > limit:
        last = rows[limit - 1]
        cursor = page_token.write({"t": last["burn_block_time"], "x": last["txid"]})
    return TradePage([trade_of(row) for row in rows[:limit]], cursor)


async def newest_trades(db: Database, *, limit: int = PAGE_DEFAULT, after: str | None = None) -> TradePage:
    """Return the page of everybody's swaps at the cursor `after`, newest first."""
    before = (_HEIGHT_MAX, 0) if after is None else _read_position(after)
    rows = (await db.prepare(_NEWEST).bind(*before, limit + 1).all()).results
    cursor = None
    if len(rows) > limit:
        last = rows[limit - 1]
        cursor = page_token.write({"h": last["block_height"], "i": last["tx_index"]})
    return TradePage([trade_of(row) for row in rows[:limit]], cursor)


async def trade_counts(db: Database, address: str) -> TradeCounts:
    """Return a wallet's counts; zeros for an unregistered one."""
    check_address(address)
    row = await db.prepare(_STATUS).bind(address).first() or {}
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
        raise UsageError(
            f"address must be a Stacks mainnet address, SP… or SM…; {address[:60]!a} {error}."
        ) from None


def _read_cursor(text: str) -> tuple[int, str]:
    match page_token.read(text):
        case {"t": int(time), "x": str(txid)} if 0 <= time <= _TIME_MAX and _TXID.fullmatch(txid):
            return time, txid
    raise UsageError("cursor must be next_cursor of the previous page; leave it out to start at the newest.")


def _read_position(text: str) -> tuple[int, int]:
    match page_token.read(text):
        case {"h": int(height), "i": int(index)} if 0 <= height <= _HEIGHT_MAX and 0 <= index <= _HEIGHT_MAX:
            return height, index
    raise UsageError("cursor must be next_cursor of the previous page, also of everybody's trades.")
