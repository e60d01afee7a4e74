"""The tables of transactions: swaps, refusals, candidates that wait to be verified, and totals.

Every write returns statements that the caller batches, so a unit of work is written whole or not at all. A list is
bound as JSON, so a batch has few statements, however long the list is.

The object is the only writer. Even so, every write may be repeated: inserting a recorded swap changes nothing, and the
first to report a transaction stays its `source`.

Triggers update the totals per agent, pair and token in the same transaction as the rows that they count, so no
forgotten update can make a total drift. This module reads, compares and rebuilds them.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from holdfast.types import Database, Row, Statement
from tocsin.sql import read_queries
from tocsin.stacks import ContractCall, MinedAt, Transaction
from tocsin.swaps.position import Place
from tocsin.swaps.rules import Code, Rules, judge
from tocsin.swaps.swap import Net, Swap, stored_legs
from tocsin.swaps.types import SwapSource

NEVER_S = 2**53 - 1
LISTED, SUBMITTED, PUSHED = 0, 1, 2  # ranks: who named a candidate; lower ones are verified first
QUEUED_MAX = {SUBMITTED: 10_000, PUSHED: 10_000}  # listed ones are on chain, which bounds their number
ROWS_MAX = 5_000  # in one value; a row of a candidate has at most 300 bytes, and D1 accepts values of 2 MB
WAIT_MAX_MS = 6 * 3_600_000  # until a candidate is verified again
INSERT_AT = 2  # the index of the insert among the statements of `record`

SQL = read_queries(__file__)

LIMB = 10**10  # an amount is four numbers of ten digits; see pair_totals in the schema
_TOTALS = ("pair_totals", "sender_totals", "token_totals", "sender_values")
_DRIFT = [
    f"""SELECT '{name}' AS totals, count(*) AS rows FROM (
      SELECT * FROM (SELECT * FROM {name} EXCEPT SELECT * FROM {name}_recounted)
      UNION ALL SELECT * FROM (SELECT * FROM {name}_recounted EXCEPT SELECT * FROM {name}))"""  # noqa: S608 - our own names
    for name in _TOTALS
]
_REBUILD = [
    statement
    for name in _TOTALS
    for statement in (f"DELETE FROM {name}", f"INSERT INTO {name} SELECT * FROM {name}_recounted")  # noqa: S608 - same
]
_RESET_OUTLAYS = "DELETE FROM outlays"  # the next runs compute them again from the swaps


@dataclass(frozen=True, slots=True)
class Candidate:
    txid: str
    source: SwapSource
    attempts: int = 0
    added_at: int = 0
    rank: int = LISTED
    block_height: int | None = None  # where a list showed it; 0: it may be in any block; None: in none


@dataclass(frozen=True, slots=True)
class Refusal:
    """A transaction that does not count, and why."""

    transaction: Transaction
    code: Code
    reason: str
    source: SwapSource
    net: Net | None = None


@dataclass(frozen=True, slots=True)
class NewSwap:
    transaction: Transaction
    swap: Swap
    source: SwapSource
    provider: str | None = None


@dataclass(frozen=True, slots=True)
class Known:
    """Whether a transaction is recorded or refused; `block_hash` is the block in which it was seen."""

    kind: Literal["swap", "refusal"]
    block_hash: str
    code: Code | None = None


async def known(db: Database, txids: Sequence[str]) -> dict[str, Known]:
    """Return which of these are recorded or refused."""
    if not txids:
        return {}
    asked = json.dumps(txids)
    queries = (SQL["recorded_blocks"], SQL["refused_blocks"])
    swaps, refusals = await db.batch([db.prepare(sql).bind(asked) for sql in queries])
    result = {row["txid"]: Known("refusal", row["block_hash"], Code(row["code"])) for row in refusals.results}
    result |= {row["txid"]: Known("swap", row["block_hash"]) for row in swaps.results}
    return result


def record(db: Database, swaps: Sequence[NewSwap], rules: Rules, now: int) -> list[Statement]:
    """Record swaps, and replace those of an abandoned block; statement `INSERT_AT` returns the new ones."""
    if not swaps:
        return []
    rows = json.dumps([_swap_row(new, rules) for new in swaps])
    txids = json.dumps([new.transaction.tx_id for new in swaps])
    return [
        db.prepare(SQL["keep_source"]).bind(txids),
        db.prepare(SQL["remove_moved"]).bind(rows),
        db.prepare(SQL["insert_swaps"]).bind(now, rows),
        db.prepare(SQL["forget_candidates"]).bind(txids),
        db.prepare(SQL["forget_refusals"]).bind(txids),
    ]


def refuse(db: Database, refusals: Sequence[Refusal], rules: Rules, now: int) -> list[Statement]:
    """Store refusals; the refusal of a recorded swap removes it."""
    if not refusals:
        return []
    rows = json.dumps([_refusal_row(refusal, rules) for refusal in refusals])
    txids = json.dumps([refusal.transaction.tx_id for refusal in refusals])
    return [
        db.prepare(SQL["refuse"]).bind(now, rows),
        db.prepare(SQL["forget_candidates"]).bind(txids),
        db.prepare(SQL["forget_swaps"]).bind(txids),
    ]


async def outdated(db: Database, rules: Rules, limit: int) -> list[Refusal]:
    """Return recorded swaps that do not count under these rules, as refusals. Reads all swaps."""
    end_s = NEVER_S if rules.end_s is None else rules.end_s
    rows = (await db.prepare(SQL["swaps_outside"]).bind(rules.start_s, end_s, limit).all()).results
    for call in (await db.prepare(SQL["recorded_calls"]).all()).results:
        names = call["contract_id"], call["function_name"]
        if not rules.allowlist.allows(ContractCall(*names)) and len(rows) < limit:
            rows += (await db.prepare(SQL["swaps_of_call"]).bind(*names, limit - len(rows)).all()).results
    return [_refusal_of(row, rules) for row in {row["txid"]: row for row in rows}.values()]


def _refusal_of(swap: Row, rules: Rules) -> Refusal:
    transaction = stored_transaction(swap)
    check = judge(transaction, "eligible", rules)
    assert check is not None, "only swaps that do not count are selected"
    assert check.code is not None, "a failed check has its code"
    return Refusal(transaction, check.code, check.detail, swap["source"])


def stored_transaction(row: Row) -> Transaction:
    """Rebuild the transaction of a row of swaps or refusals, as far as it is stored."""
    call = None if row["contract_id"] is None else ContractCall(row["contract_id"], row["function_name"])
    return Transaction(
        tx_id=row["txid"],
        sender=row["sender"],
        sponsored=False,
        fee=0,
        status="success",
        type="contract_call" if call is not None else "transaction of another kind",
        contract_call=call,
        mined=MinedAt(row["block_height"], row["block_hash"], row.get("tx_index", 0), row["burn_block_time"]),
        canonical=True,
        event_count=None,
    )


def enqueue(db: Database, candidates: Sequence[Candidate], now: int) -> list[Statement]:
    """Queue transactions for verification. Those already queued keep their place and their first reporter.

    A transaction that our lists show or an agent submits is due again at once. A push does not renew anything.
    """
    rows: list[object] = [[each.txid, each.source, each.attempts, each.rank, each.block_height] for each in candidates]
    return [db.prepare(SQL["enqueue"]).bind(now, part) for part in in_parts(rows)]


def in_parts(rows: Sequence[object]) -> list[str]:
    """Encode rows as JSON, in as many values as needed: a deep reorg, or new rules, may concern all of them."""
    return [json.dumps(rows[first : first + ROWS_MAX]) for first in range(0, len(rows), ROWS_MAX)]


def withdraw(db: Database, txids: Sequence[str]) -> Statement:
    """Remove swaps that are no longer on chain; as candidates they may come back."""
    return db.prepare(SQL["forget_swaps"]).bind(json.dumps(txids))


def not_mined(db: Database, txids: Sequence[str]) -> Statement:
    """Mark candidates that are in no block according to the chain: the record is complete without them."""
    return db.prepare(SQL["not_mined"]).bind(json.dumps(txids))


def dismiss(db: Database, txids: Sequence[str]) -> Statement:
    """Remove candidates from the queue."""
    return db.prepare(SQL["forget_candidates"]).bind(json.dumps(txids))


def postpone(
    db: Database, candidates: Iterable[Candidate], now: int, wait_ms: Callable[[Candidate], int], *, attempts: int
) -> list[Statement]:
    """Verify candidates later, and count attempts."""
    waits: dict[int, list[str]] = {}
    for candidate in candidates:
        waits.setdefault(wait_ms(candidate), []).append(candidate.txid)
    sql = SQL["postpone"]
    return [db.prepare(sql).bind(attempts, now + wait, json.dumps(txids)) for wait, txids in waits.items()]


async def due(db: Database, now: int, limit: int, pushed_max: int | None = None) -> list[Candidate]:
    """Return candidates that are due: those from our lists, then those submitted by agents, then those pushed.

    A candidate whose wait exceeds the maximum was added or postponed while the clock was ahead, and is due as well.
    """
    pushed = limit if pushed_max is None else min(limit, pushed_max)
    ahead = now + 2 * WAIT_MAX_MS  # twice, because `now` may be the start of a run that has postponed some since
    parts = await db.batch(
        [
            db.prepare(SQL["due_candidates"]).bind(rank, now, most, ahead)
            for rank, most in ((LISTED, limit), (SUBMITTED, limit), (PUSHED, pushed))
        ]
    )
    return [Candidate(**row) for part in parts for row in part.results][:limit]


async def recorded_between(db: Database, above: Place, below: Place, principal: str | None = None) -> list[str]:
    """Return the recorded swaps of everybody, or of a contract or wallet, in a stretch of the chain."""
    if principal is None:
        statement = db.prepare(SQL["recorded_of_all"]).bind(*above, *below)
    else:
        sql = SQL["recorded_of_contract"] if "." in principal else SQL["recorded_of_wallet"]
        statement = db.prepare(sql).bind(principal, *above, *below)
    return [row["txid"] for row in (await statement.all()).results]


async def queued(db: Database, txids: Sequence[str]) -> set[str]:
    """Return which of these are candidates."""
    rows = (await db.prepare(SQL["queued"]).bind(json.dumps(txids)).all()).results if txids else []
    return {row["txid"] for row in rows}


async def room(db: Database, rank: int) -> int:
    """Return how many more candidates of this rank may be queued."""
    row = await db.prepare(SQL["count_candidates"]).bind(rank).first()
    return max(0, QUEUED_MAX[rank] - (row["n"] if row else 0))


def _swap_row(new: NewSwap, rules: Rules) -> dict[str, Any]:
    swap = new.swap
    return {
        **_facts(new.transaction),
        "token_in": swap.token_in,
        "amount_in": str(swap.amount_in),
        "token_out": swap.token_out,
        "amount_out": str(swap.amount_out),
        "source": new.source,
        "provider": new.provider,
        "raw_event_json": stored_legs(swap, new.provider),
        "allowlist_version": rules.allowlist.version,
    }


def _refusal_row(refusal: Refusal, rules: Rules) -> dict[str, Any]:
    net = refusal.net
    return {
        **_facts(refusal.transaction),
        "code": refusal.code,
        "reason": refusal.reason,
        "legs_json": None if net is None else json.dumps({asset: str(net[asset]) for asset in net}),
        "source": refusal.source,
        "allowlist_version": rules.allowlist.version,
    }


def _facts(transaction: Transaction) -> dict[str, Any]:
    call, mined = transaction.contract_call, transaction.mined
    assert mined is not None, "only mined transactions are recorded"
    return {
        "txid": transaction.tx_id,
        "sender": transaction.sender,
        "contract_id": call.contract_id if call else None,
        "function_name": call.function_name if call else None,
        "burn_block_time": mined.burn_block_time,
        "block_time": mined.block_time,
        "block_height": mined.height,
        "block_hash": mined.block_hash,
        "tx_index": mined.tx_index,
    }


@dataclass(frozen=True, slots=True)
class RecordSize:
    """`queue_oldest_at` is when the oldest waiting transaction was queued (unix ms); None when none waits."""

    swaps: int
    queue_length: int
    queue_oldest_at: int | None


async def record_size(db: Database) -> RecordSize:
    swaps, queue = await db.batch([db.prepare(SQL["count_swaps"]), db.prepare(SQL["queue_size"])])
    waiting = queue.results[0]
    return RecordSize(swaps.results[0]["swaps"], waiting["length"], waiting["oldest_at"])


def amount(row: Mapping[str, Any], side: str) -> int:
    """Return the exact sum that a row of pair_totals holds for `in` or `out`."""
    total = 0
    for limb in ("3", "2", "1", "0"):
        total = total * LIMB + int(row[f"{side}_{limb}"])
    return total


async def drift(db: Database) -> dict[str, int]:
    """Return how many rows differ from a fresh count, by table; empty if none does. Reads every swap."""
    results = await db.batch([db.prepare(sql) for sql in _DRIFT])
    rows = [result.results[0] for result in results]
    return {row["totals"]: row["rows"] for row in rows if row["rows"]}


async def rebuild(db: Database) -> None:
    """Compute all totals again, in one transaction."""
    await db.batch([db.prepare(sql) for sql in (*_REBUILD, _RESET_OUTLAYS)])
