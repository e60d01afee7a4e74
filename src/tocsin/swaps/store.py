"""The tables of transactions: swaps, refusals, candidates that wait to be verified, and totals.

Every write returns statements that the caller batches, so a unit of work is written whole or not at all. A list is
bound as JSON, so a batch has few statements, however long the list is.

The object is the only writer. Even so, every write may be repeated: inserting a recorded swap changes nothing, and the
first to report a transaction stays its `source`.

Triggers update the totals per agent, pair and token in the same transaction as the rows that they count, so no
forgotten update can make a total drift. This module reads, compares and rebuilds them.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from holdfast.types import Database, Row, Statement
from tocsin.stacks import ContractCall, MinedAt, Transaction
from tocsin.swaps.codes import Code
from tocsin.swaps.rules import Rules, judge
from tocsin.swaps.swap import Net, Swap, stored_legs
from tocsin.swaps.types import SwapSource

NEVER_S = 2**53 - 1
LISTED, SUBMITTED, PUSHED = 0, 1, 2  # ranks: who named a candidate; lower ones are verified first
QUEUED_MAX = {SUBMITTED: 10_000, PUSHED: 10_000}  # listed ones are on chain, which bounds their number
ROWS_MAX = 5_000  # in one value; a row of a candidate has at most 300 bytes, and D1 accepts values of 2 MB
WAIT_MAX_MS = 6 * 3_600_000  # until a candidate is verified again
INSERT_AT = 2  # the index of the insert among the statements of `record`

_KNOWN = (
    "SELECT txid, block_hash FROM swaps WHERE txid IN (SELECT value FROM json_each(?))",
    "SELECT txid, block_hash, code FROM refusals WHERE txid IN (SELECT value FROM json_each(?))",
)
_KEEP_SOURCE = """
INSERT INTO candidates (txid, source, added_at, due_at)
SELECT txid, source, 0, 0 FROM swaps WHERE txid IN (SELECT value FROM json_each(?))
ON CONFLICT (txid) DO NOTHING"""
_REMOVE_MOVED = """
DELETE FROM swaps
WHERE txid IN (SELECT json_extract(value, '$.txid') FROM json_each(?))
  AND txid || block_hash NOT IN
    (SELECT json_extract(value, '$.txid') || json_extract(value, '$.block_hash') FROM json_each(?))"""
_INSERT = """
INSERT INTO swaps (txid, sender, contract_id, function_name, token_in, amount_in, token_out, amount_out,
  burn_block_time, block_height, block_hash, tx_index, source, provider, raw_event_json,
  allowlist_version, recorded_at)
SELECT json_extract(s.value, '$.txid'), a.stx_address, json_extract(s.value, '$.contract_id'),
  json_extract(s.value, '$.function_name'), json_extract(s.value, '$.token_in'),
  json_extract(s.value, '$.amount_in'), json_extract(s.value, '$.token_out'),
  json_extract(s.value, '$.amount_out'), json_extract(s.value, '$.burn_block_time'),
  json_extract(s.value, '$.block_height'), json_extract(s.value, '$.block_hash'),
  json_extract(s.value, '$.tx_index'), coalesce(c.source, json_extract(s.value, '$.source')),
  json_extract(s.value, '$.provider'), json_extract(s.value, '$.raw_event_json'),
  json_extract(s.value, '$.allowlist_version'), ?
FROM json_each(?) s
JOIN agents a ON a.stx_address = json_extract(s.value, '$.sender')
LEFT JOIN candidates c ON c.txid = json_extract(s.value, '$.txid')
WHERE true
ON CONFLICT (txid) DO NOTHING
RETURNING txid"""
_REFUSE = """
INSERT INTO refusals (txid, code, reason, sender, contract_id, function_name, burn_block_time, block_height,
  block_hash, legs_json, source, allowlist_version, refused_at)
SELECT json_extract(r.value, '$.txid'), json_extract(r.value, '$.code'), json_extract(r.value, '$.reason'),
  json_extract(r.value, '$.sender'), json_extract(r.value, '$.contract_id'),
  json_extract(r.value, '$.function_name'), json_extract(r.value, '$.burn_block_time'),
  json_extract(r.value, '$.block_height'), json_extract(r.value, '$.block_hash'),
  json_extract(r.value, '$.legs_json'), json_extract(r.value, '$.source'),
  json_extract(r.value, '$.allowlist_version'), ?
FROM json_each(?) r
WHERE true
ON CONFLICT (txid) DO UPDATE SET code = excluded.code, reason = excluded.reason,
  burn_block_time = excluded.burn_block_time, block_height = excluded.block_height,
  block_hash = excluded.block_hash, legs_json = excluded.legs_json,
  allowlist_version = excluded.allowlist_version, refused_at = excluded.refused_at"""
_ENQUEUE = """
INSERT INTO candidates (txid, source, added_at, due_at, contract_id, attempts, rank, block_height)
SELECT json_extract(c.value, '$[0]'), coalesce(s.source, json_extract(c.value, '$[1]')), ?, ?,
  json_extract(c.value, '$[2]'), json_extract(c.value, '$[3]'), json_extract(c.value, '$[4]'),
  json_extract(c.value, '$[5]')
FROM json_each(?) c
LEFT JOIN swaps s ON s.txid = json_extract(c.value, '$[0]')
WHERE true
ON CONFLICT (txid) DO UPDATE SET due_at = min(due_at, excluded.due_at),
  added_at = max(added_at, excluded.added_at), contract_id = coalesce(contract_id, excluded.contract_id),
  rank = min(rank, excluded.rank), block_height = coalesce(excluded.block_height, block_height)
WHERE excluded.rank < 2"""  # a repeated push changes nothing
_FORGET = (
    "DELETE FROM candidates WHERE txid IN (SELECT value FROM json_each(?))",
    "DELETE FROM refusals WHERE txid IN (SELECT value FROM json_each(?))",
    "DELETE FROM swaps WHERE txid IN (SELECT value FROM json_each(?))",
)
_POSTPONE = """
UPDATE candidates SET attempts = attempts + ?, due_at = ? WHERE txid IN (SELECT value FROM json_each(?))"""
_OUTSIDE = "SELECT * FROM swaps WHERE burn_block_time < ? OR burn_block_time >= ? LIMIT ?"
_CALLS = "SELECT DISTINCT contract_id, function_name FROM swaps"
_OF_CALL = "SELECT * FROM swaps WHERE contract_id = ? AND function_name = ? LIMIT ?"
# Those that are due, then those stored while the clock was ahead.
_DUE = """
SELECT * FROM (SELECT txid, source, attempts, added_at, contract_id, rank FROM candidates
  WHERE rank = ?1 AND due_at <= ?2 ORDER BY due_at, txid LIMIT ?3)
UNION ALL
SELECT * FROM (SELECT txid, source, attempts, added_at, contract_id, rank FROM candidates
  WHERE rank = ?1 AND due_at > ?4 ORDER BY due_at, txid LIMIT ?3)
LIMIT ?3"""
_NOT_MINED = "UPDATE candidates SET block_height = NULL WHERE txid IN (SELECT value FROM json_each(?))"
_UNVERIFIED = """
SELECT count(*) AS count, min(block_height) AS block FROM candidates c
WHERE block_height IS NOT NULL AND NOT EXISTS (SELECT 1 FROM swaps s WHERE s.txid = c.txid)"""
_QUEUED = "SELECT txid FROM candidates WHERE txid IN (SELECT value FROM json_each(?))"
_COUNT = "SELECT count(*) AS n FROM candidates WHERE rank = ?"

# From totals: one row per agent, however many swaps there are.
_SWAPS = "SELECT coalesce(sum(trades), 0) AS swaps FROM sender_totals"
_QUEUE = "SELECT count(*) AS length, min(added_at) AS oldest_at FROM candidates"

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
    contract_id: str | None = None  # where it is known
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
    swaps, refusals = await db.batch([db.prepare(sql).bind(asked) for sql in _KNOWN])
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
        db.prepare(_KEEP_SOURCE).bind(txids),
        db.prepare(_REMOVE_MOVED).bind(rows, rows),
        db.prepare(_INSERT).bind(now, rows),
        *(db.prepare(sql).bind(txids) for sql in _FORGET[:2]),
    ]


def refuse(db: Database, refusals: Sequence[Refusal], rules: Rules, now: int) -> list[Statement]:
    """Store refusals; the refusal of a recorded swap removes it."""
    if not refusals:
        return []
    rows = json.dumps([_refusal_row(refusal, rules) for refusal in refusals])
    txids = json.dumps([refusal.transaction.tx_id for refusal in refusals])
    return [db.prepare(_REFUSE).bind(now, rows), db.prepare(_FORGET[0]).bind(txids), db.prepare(_FORGET[2]).bind(txids)]


async def outdated(db: Database, rules: Rules, limit: int) -> list[Refusal]:
    """Return recorded swaps that do not count under these rules, as refusals. Reads all swaps."""
    end_s = NEVER_S if rules.end_s is None else rules.end_s
    rows = (await db.prepare(_OUTSIDE).bind(rules.start_s, end_s, limit).all()).results
    for call in (await db.prepare(_CALLS).all()).results:
        names = call["contract_id"], call["function_name"]
        if not rules.allowlist.allows(ContractCall(*names)) and len(rows) < limit:
            rows += (await db.prepare(_OF_CALL).bind(*names, limit - len(rows)).all()).results
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
    rows: list[object] = [
        [each.txid, each.source, each.contract_id, each.attempts, each.rank, each.block_height] for each in candidates
    ]
    return [db.prepare(_ENQUEUE).bind(now, now, part) for part in in_parts(rows)]


def in_parts(rows: Sequence[object]) -> list[str]:
    """Encode rows as JSON, in as many values as needed: a deep reorg, or new rules, may concern all of them."""
    return [json.dumps(rows[first : first + ROWS_MAX]) for first in range(0, len(rows), ROWS_MAX)]


def withdraw(db: Database, txids: Sequence[str]) -> list[Statement]:
    """Remove swaps that are no longer on chain; as candidates they may come back."""
    return [db.prepare(_FORGET[2]).bind(json.dumps(txids))] if txids else []


def not_mined(db: Database, txids: Sequence[str]) -> list[Statement]:
    """Mark candidates that are in no block according to the chain: the record is complete without them."""
    return [db.prepare(_NOT_MINED).bind(json.dumps(txids))] if txids else []


def unverified(db: Database) -> Statement:
    """One row: the `count` of listed transactions that wait to be verified, and their lowest `block`."""
    return db.prepare(_UNVERIFIED)


def dismiss(db: Database, txids: Sequence[str]) -> list[Statement]:
    """Remove candidates from the queue."""
    return [db.prepare(_FORGET[0]).bind(json.dumps(txids))] if txids else []


def postpone(db: Database, txids: Sequence[str], due_at: int, *, attempts: int = 0) -> list[Statement]:
    """Verify candidates later."""
    return [db.prepare(_POSTPONE).bind(attempts, due_at, json.dumps(txids))] if txids else []


async def due(db: Database, now: int, limit: int, pushed_max: int | None = None) -> list[Candidate]:
    """Return candidates that are due: those from our lists, then those submitted by agents, then those pushed.

    A candidate whose wait exceeds the maximum was added or postponed while the clock was ahead, and is due as well.
    """
    pushed = limit if pushed_max is None else min(limit, pushed_max)
    ahead = now + 2 * WAIT_MAX_MS  # twice, because `now` may be the start of a run that has postponed some since
    parts = await db.batch(
        [
            db.prepare(_DUE).bind(rank, now, most, ahead)
            for rank, most in ((LISTED, limit), (SUBMITTED, limit), (PUSHED, pushed))
        ]
    )
    return [Candidate(**row) for part in parts for row in part.results][:limit]


async def queued(db: Database, txids: Sequence[str]) -> set[str]:
    """Return which of these are candidates."""
    rows = (await db.prepare(_QUEUED).bind(json.dumps(txids)).all()).results if txids else []
    return {row["txid"] for row in rows}


async def room(db: Database, rank: int) -> int:
    """Return how many more candidates of this rank may be queued."""
    row = await db.prepare(_COUNT).bind(rank).first()
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
    swaps, queue = await db.batch([db.prepare(_SWAPS), db.prepare(_QUEUE)])
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
