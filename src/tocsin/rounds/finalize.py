"""Writes the result of a captured round once: results, prizes, flags and its file, together with its new status.

The result is a function of the captured inputs, so computing it again after a crash gives the same result.

It is prepared before the grace of the round is over, so that it is available a moment after. Since the end, only swaps
that are found late change a round. So everything is copied, scored and written to the file ahead of time, in small
steps, without being visible. Capturing the round then keeps the copy of the swaps, and finalizing it writes only the
file's first and last lines. If anything has changed, both start over as if nothing had been prepared.
"""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import merge
from itertools import islice

from holdfast.types import Database, Statement
from tocsin import __version__
from tocsin.rounds.capture import (
    GAUGE,
    INTO_SWAPS,
    IS_UNDER_WAY,
    Preparation,
    begin,
    captured_inputs,
    find_preparation,
    forget,
    live_inputs,
    make_ready,
    prepared_inputs,
    prepared_outcome,
    prices_of_end,
    small_copies,
    traded_in,
)
from tocsin.rounds.file import (
    PART_BYTES,
    digest_line,
    file_lines,
    parts_of,
    pieces,
    stated_digest,
    with_block,
    without_digest,
)
from tocsin.rounds.round import RoundInputs, RoundOutcome, RoundRow
from tocsin.rounds.score import collector_paused, free, scoring, with_pauses
from tocsin.rounds.store import compact, iso_time, ms_of
from tocsin.shape import SnakeShape

PARTS_PER_BATCH = 8
ROWS_PER_STATEMENT = 500  # D1 limits the size of a value
ATTEMPTS_IN_A_ROW = 6  # for one version of a result; then at longer and longer intervals
INTERVAL_MAX_MS = 3_600_000
SORTED_AT_ONCE = 10_000
COPIED_AT_ONCE = 5_000  # swaps; Cloudflare limits the calls of a run
# No block has a longer number, so no part grows when the real number is written.
ANY_BLOCK = 2**53 - 1

# A part of the file, if a condition on the status holds.
PART = """
INSERT INTO competition_round_files (round_id, version, part, text)
SELECT ?1, ?2, ?3, ?4 WHERE EXISTS
  (SELECT 1 FROM competition_rounds WHERE round_id = ?1 AND version = ?2 AND {})
ON CONFLICT (round_id, version, part) DO UPDATE SET text = excluded.text"""
_PART = PART.format("status = 'finalizing'")
_PARTS = """
SELECT part, text FROM competition_round_files WHERE round_id = ? AND version = ? AND part >= ? ORDER BY part LIMIT ?"""
_LAST = "SELECT max(part) AS last FROM competition_round_files WHERE round_id = ? AND version = ?"
_END = """
UPDATE competition_rounds SET status = 'finalized', finalized_at = ?1, digest = ?2, waiting_reason = NULL,
  waiting_since = NULL
WHERE round_id = ?3 AND version = ?4 AND status = 'finalizing'"""
# Only the batch that changed the status writes anything.
_IS_MINE = """EXISTS (SELECT 1 FROM competition_rounds
  WHERE round_id = ?1 AND status = 'finalized' AND finalized_at = ?2)"""
_IS_UNFINISHED = """AND EXISTS (SELECT 1 FROM competition_rounds r
  WHERE r.round_id = ?1 AND r.version = ?2 AND r.status = 'finalizing')"""
_REPLACED = ("competition_round_results", "competition_rewards", "competition_round_flags")
_LAST_PART = f"DELETE FROM competition_round_files WHERE round_id = ?1 AND version = ?3 AND part >= ?4 AND {_IS_MINE}"
_RESULTS = f"""
INSERT INTO competition_round_results (round_id, stx_address, rank, btc_address, erc8004_agent_id, trade_count,
  priced_trade_count, unpriced_trade_count, volume_usd, received_usd, pnl_usd, pnl_percent, latest_trade_at,
  result_json, calculated_at, exact_json)
SELECT ?1, json_extract(r.value, '$.stx_address'), json_extract(r.value, '$.rank'),
  json_extract(r.value, '$.btc_address'), json_extract(r.value, '$.erc8004_agent_id'),
  json_extract(r.value, '$.trade_count'), json_extract(r.value, '$.priced_trade_count'),
  json_extract(r.value, '$.unpriced_trade_count'), CAST(json_extract(r.value, '$.volume_usd') AS REAL),
  CAST(json_extract(r.value, '$.received_usd') AS REAL), CAST(json_extract(r.value, '$.pnl_usd') AS REAL),
  CAST(json_extract(r.value, '$.pnl_percent') AS REAL), json_extract(r.value, '$.latest_trade_at'),
  json_object('source_counts', json_extract(r.value, '$.source_counts'),
    'unpriced_tokens', json_extract(r.value, '$.unpriced_tokens')), ?2, r.value
FROM json_each(?3) r WHERE {_IS_MINE}"""
_REWARDS = f"""
INSERT INTO competition_rewards
  (round_id, category, rank, stx_address, erc8004_agent_id, amount_sats, created_at)
SELECT ?1, json_extract(r.value, '$.category'), json_extract(r.value, '$.rank'),
  json_extract(r.value, '$.stx_address'), json_extract(r.value, '$.erc8004_agent_id'),
  json_extract(r.value, '$.amount_sats'), ?2
FROM json_each(?3) r WHERE {_IS_MINE}"""
_FLAGS = f"""
INSERT INTO competition_round_flags (round_id, erc8004_agent_id, kind, flag_json)
SELECT ?1, json_extract(f.value, '$.erc8004_agent_id'), json_extract(f.value, '$.kind'), f.value
FROM json_each(?3) f WHERE {_IS_MINE}
ON CONFLICT (round_id, erc8004_agent_id, kind) DO NOTHING"""
_CLEAR_SWAPS = f"""
DELETE FROM competition_round_swaps WHERE round_id = ?1 AND txid > ?3 AND txid <= ?4 AND {IS_UNDER_WAY}"""
_COPY_SWAPS = f"""
{INTO_SWAPS} swaps s WHERE s.txid IN (SELECT value FROM json_each(?3)) AND {IS_UNDER_WAY} ORDER BY s.txid"""
_ABOVE_ALL = "1x"  # all transaction ids begin with 0x
_PREPARED_PART = PART.format(
    """status IN ('open', 'closed') AND EXISTS (SELECT 1 FROM competition_round_preparations
    WHERE round_id = ?1 AND version = ?2 AND begun_at = ?5 AND state = 'begun')"""
)


@dataclass(frozen=True, slots=True)
class RoundResult:
    """A result and its file. `texts` are its parts; if it was `prepared`, only those not stored by then."""

    outcome: RoundOutcome
    texts: Mapping[int, str]
    parts: int
    digest: str
    prepared: bool


async def finalize(
    db: Database, round_: RoundRow, now: int, checkpoint: Callable[[], None] = lambda: None
) -> RoundResult | None:
    """Write the result and return it; None if another run has written it or the round is void."""
    result = await (_prepared if await _is_prepared(db, round_) else _computed)(db, round_)
    if result is None:
        return None
    checkpoint()
    # The parts come first, a few at a time. Nobody sees them until the status says that they are complete.
    await write_parts(db, round_, result.texts, checkpoint)
    results = await db.batch(_end(db, round_, result, iso_time(now)))
    return result if results[0].meta.changes else None


async def _is_prepared(db: Database, round_: RoundRow) -> bool:
    """Return whether a result was prepared from the captured inputs. One prepared from others is removed."""
    found = await find_preparation(db, round_)
    if found is None or found.state != "captured":
        return False
    if found.basis == await basis_of(await captured_inputs(db, round_, with_swaps=False)):
        return True
    # Another release may have prepared it. Its file is overwritten now, so that release must not use it after a
    # rollback.
    await db.batch(forget(db, round_.round_id, _IS_UNFINISHED, round_.version))
    return False


async def _computed(db: Database, round_: RoundRow) -> RoundResult:
    with collector_paused():
        inputs = await captured_inputs(db, round_)
        outcome = await with_pauses(scoring(inputs))
        parts = await parts_with_pauses(inputs, outcome)
        await free(inputs.swaps)
    return RoundResult(outcome, dict(enumerate(parts)), len(parts), stated_digest(parts), prepared=False)


async def _prepared(db: Database, round_: RoundRow) -> RoundResult | None:
    """Return the prepared result; None if somebody ended the round in the meantime."""
    of_file = (round_.round_id, round_.version)
    row = await db.prepare(_LAST).bind(*of_file).first()
    last: int | None = None if row is None else row["last"]
    if last is None:
        return None
    hashed, texts = hashlib.sha256(), dict[int, str]()
    for first in range(0, last + 1, PARTS_PER_BATCH):
        for part in (await db.prepare(_PARTS).bind(*of_file, first, PARTS_PER_BATCH).all()).results:
            number, text = part["part"], part["text"]
            if number == 0:
                text = texts[0] = with_block(text, round_.complete_until_block)
            if number == last:
                text = texts[last] = without_digest(text)
            hashed.update(text.encode())
            await asyncio.sleep(0)
    text = await prepared_outcome(db, round_.round_id)
    if not text:  # it is deleted with the round's last change of status: if it exists, all parts were there
        return None
    texts[last] += f"{digest_line(hashed.hexdigest())}\n"
    outcome = RoundOutcome.from_json(json.loads(text))
    return RoundResult(outcome, texts, last + 1, hashed.hexdigest(), prepared=True)


async def basis_of(inputs: RoundInputs) -> str:
    """Return a digest of this release and of all inputs of a result except the swaps and the proven block."""
    rest = replace(inputs, swaps=[], complete_until_block=None)
    return f"{__version__} {stated_digest(await parts_with_pauses(rest, RoundOutcome([], [], [])))}"


async def write_parts(
    db: Database,
    round_: RoundRow,
    texts: Mapping[int, str],
    checkpoint: Callable[[], None],
    sql: str = _PART,
    *more: str,
) -> None:
    """Write parts of the file by their numbers, a few in each batch."""
    numbers = sorted(texts)
    for first in range(0, len(numbers), PARTS_PER_BATCH):
        await db.batch(
            [
                db.prepare(sql).bind(round_.round_id, round_.version, number, texts[number], *more)
                for number in numbers[first : first + PARTS_PER_BATCH]
            ]
        )
        checkpoint()


async def parts_with_pauses(
    inputs: RoundInputs, outcome: RoundOutcome, checkpoint: Callable[[], None] = lambda: None
) -> list[str]:
    """Return the file in parts, from swaps in chain order; between two parts the event loop does other work."""
    parts = []
    for part in parts_of(file_lines(inputs, outcome, in_order=True)):
        parts.append(part)
        await asyncio.sleep(0)
        checkpoint()
    return parts


def _end(db: Database, round_: RoundRow, result: RoundResult, at: str) -> list[Statement]:
    """Return the batch that makes the result final."""
    round_id, version, outcome = round_.round_id, round_.version, result.outcome
    statements = [db.prepare(_END).bind(at, result.digest, round_id, version)]
    statements += [
        db.prepare(f"DELETE FROM {table} WHERE round_id = ?1 AND {_IS_MINE}").bind(round_id, at) for table in _REPLACED
    ]
    statements.append(db.prepare(_LAST_PART).bind(round_id, at, version, result.parts))
    for sql, shapes in ((_RESULTS, outcome.results), (_REWARDS, outcome.rewards), (_FLAGS, outcome.flags)):
        statements += [db.prepare(sql).bind(round_id, at, rows) for rows in _rows(shapes)]
    return [*statements, *forget(db, round_id, f"AND {_IS_MINE}", at)]


def _rows(shapes: Sequence[SnakeShape]) -> list[str]:
    """Encode rows as JSON, in as many values as needed."""
    return [
        compact([shape.to_json() for shape in shapes[first : first + ROWS_PER_STATEMENT]])
        for first in range(0, len(shapes), ROWS_PER_STATEMENT)
    ]


async def is_prepared(db: Database, round_: RoundRow, found: Preparation | None, allowlist_version: str) -> bool:
    """Return whether a capture now would accept the preparation."""
    if found is None or found.state != "ready":
        return False
    inputs = await live_inputs(
        db,
        round_.rules,
        await prices_of_end(db, round_.rules, {*found.tokens, GAUGE}),
        allowlist_version=allowlist_version,
        complete_until_block=None,
        with_swaps=False,
    )
    return await basis_of(inputs) == found.basis


def is_due(found: Preparation | None, now: int) -> bool:
    """Return whether to try now, given earlier attempts: constant changes must not keep the processor busy."""
    if found is None or found.attempts < ATTEMPTS_IN_A_ROW:
        return True
    exponent = min(found.attempts - ATTEMPTS_IN_A_ROW + 1, 10)
    since_ms = now - ms_of(found.begun_at)
    return not 0 <= since_ms < min(INTERVAL_MAX_MS, 60_000 * 2**exponent)


async def prepare(
    db: Database, round_: RoundRow, allowlist_version: str, now: int, checkpoint: Callable[[], None]
) -> bool:
    """Prepare the result of a round that is over; False if the round changed in the meantime.

    Everything that may change is read after the preparation begins, when triggers note changes.
    """
    at = iso_time(now)
    if not (await begin(db, round_, at).run()).meta.changes:
        return False
    tokens = await traded_in(db, round_.rules)
    prices = await prices_of_end(db, round_.rules, {*tokens, GAUGE})
    await db.batch(await small_copies(db, round_.rules, prices, at, IS_UNDER_WAY))
    checkpoint()
    with collector_paused():
        recorded = replace(round_, allowlist_version=allowlist_version, complete_until_block=ANY_BLOCK)
        inputs = await prepared_inputs(db, recorded, checkpoint)
        if not await _copy_swaps(db, (round_.round_id, at), inputs, checkpoint):
            return False
        outcome = await with_pauses(scoring(inputs), checkpoint)
        parts = await parts_with_pauses(inputs, outcome, checkpoint)
        basis = await basis_of(inputs)
        await free(inputs.swaps)
    await write_parts(db, round_, dict(enumerate(parts)), checkpoint, _PREPARED_PART, at)
    texts = pieces(compact(outcome.to_json()), PART_BYTES)
    statements = make_ready(db, round_, at, len(parts), tokens, basis, texts)
    return (await db.batch(statements))[-1].meta.changes > 0


async def _copy_swaps(db: Database, mine: tuple[str, str], inputs: RoundInputs, checkpoint: Callable[[], None]) -> bool:
    """Replace the copy of the swaps page by page, in the order of the key; False if the preparation is outdated."""
    last = ""
    async for txids in _sorted_pages([swap.txid for swap in inputs.swaps]):
        cleared = db.prepare(_CLEAR_SWAPS).bind(*mine, last, txids[-1])
        copied = db.prepare(_COPY_SWAPS).bind(*mine, json.dumps(txids))
        if not (await db.batch([cleared, copied]))[1].meta.changes:
            return False
        last = txids[-1]
        checkpoint()
    await db.prepare(_CLEAR_SWAPS).bind(*mine, last, _ABOVE_ALL).run()
    return True


async def _sorted_pages(txids: Collection[str]) -> AsyncIterator[list[str]]:
    """Sort ids a page at a time. Sorting a million at once would block other work."""
    rest, runs = iter(txids), []
    while run := sorted(islice(rest, SORTED_AT_ONCE)):
        runs.append(run)
        await asyncio.sleep(0)
    in_order = merge(*runs)
    while page := list(islice(in_order, COPIED_AT_ONCE)):
        yield page
