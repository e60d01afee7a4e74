"""Lists refusals, newest first: all of them for operators, and an agent's own for that agent."""

from tocsin.bindings import Database, Row
from tocsin.chain_model import canonical_txid
from tocsin.competition import page_token
from tocsin.competition.codes import MEANINGS, Code
from tocsin.competition.trades import check_address
from tocsin.errors import UsageError
from tocsin.shapes.agents import RecentRefusal, RefusalPage

PAGE_MAX = 500
PAGE_DEFAULT = 50

_TIME_MAX = 2**53 - 1
# One statement for each index that can answer it: by time, by code (few of each are read), by sender.
_OF_ALL = """
SELECT * FROM refusals INDEXED BY refusals_by_time
WHERE (refused_at, txid) < (?, ?) ORDER BY refused_at DESC, txid DESC LIMIT ?"""
_OF_CODE = """
SELECT * FROM refusals INDEXED BY refusals_by_time
WHERE code = ? AND (refused_at, txid) < (?, ?) ORDER BY refused_at DESC, txid DESC LIMIT ?"""
_OF_SENDER = """
SELECT * FROM refusals INDEXED BY refusals_by_sender
WHERE sender = ? AND (refused_at, txid) < (?, ?) ORDER BY refused_at DESC, txid DESC LIMIT ?"""


async def refusals(
    db: Database,
    *,
    limit: int = PAGE_DEFAULT,
    code: str | None = None,
    sender: str | None = None,
    after: str | None = None,
) -> RefusalPage:
    """Return the page at the cursor `after`: refusals of one code, of one sender, or all."""
    if code is not None and sender is not None:
        raise UsageError("Give code or sender, not both.")
    if code is not None and code not in {str(known) for known in MEANINGS if MEANINGS[known].final}:
        final = ", ".join(str(known) for known, meaning in MEANINGS.items() if meaning.final)
        raise UsageError(f"code is one of {final}, not {code[:40]!r}.")
    before = (_TIME_MAX, "") if after is None else _read_cursor(after)
    if sender is not None:
        check_address(sender)
        statement = db.prepare(_OF_SENDER).bind(sender, *before, limit + 1)
    elif code is not None:
        statement = db.prepare(_OF_CODE).bind(code, *before, limit + 1)
    else:
        statement = db.prepare(_OF_ALL).bind(*before, limit + 1)
    rows = (await statement.all()).results
    cursor = None
    if len(rows) > limit:
        last = rows[limit - 1]
        cursor = page_token.write({"t": last["refused_at"], "x": last["txid"]})
    return RefusalPage([refusal_of(row) for row in rows[:limit]], cursor)


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


def _read_cursor(text: str) -> tuple[int, str]:
    match page_token.read(text):
        case {"t": int(time), "x": str(txid)} if 0 <= time <= _TIME_MAX and txid == canonical_txid(txid):
            return time, txid
    raise UsageError("cursor must be next of the previous page.")
