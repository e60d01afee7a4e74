"""Writes the result of a captured round once: results, prizes, flags and its file, together with its new status.

The result is a function of the captured inputs, so computing it again after a crash gives the same result.
It is computed in slices that hold the event loop for at most 100 ms with 100,000 swaps.
"""

import asyncio
from collections.abc import Callable, Sequence

from holdfast.types import Database, Statement
from tocsin.rounds.capture import captured_inputs
from tocsin.rounds.file import file_lines, parts_of, stated_digest
from tocsin.rounds.round import RoundInputs, RoundOutcome, RoundRow
from tocsin.rounds.score import collector_paused, scoring, with_pauses
from tocsin.rounds.store import compact, iso_time
from tocsin.shape import SnakeShape

PARTS_PER_BATCH = 8
ROWS_PER_STATEMENT = 500  # D1 limits the size of a value

_PART = """
INSERT INTO competition_round_files (round_id, version, part, text)
SELECT ?1, ?2, ?3, ?4 WHERE EXISTS
  (SELECT 1 FROM competition_rounds WHERE round_id = ?1 AND version = ?2 AND status = 'finalizing')
ON CONFLICT (round_id, version, part) DO UPDATE SET text = excluded.text"""
_END = """
UPDATE competition_rounds SET status = 'finalized', finalized_at = ?1, digest = ?2, waiting_reason = NULL,
  waiting_since = NULL
WHERE round_id = ?3 AND version = ?4 AND status = 'finalizing'"""
# Only the batch that changed the status writes anything.
_IS_MINE = """EXISTS (SELECT 1 FROM competition_rounds
  WHERE round_id = ?1 AND status = 'finalized' AND finalized_at = ?2)"""
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


async def finalize(
    db: Database, round_: RoundRow, now: int, checkpoint: Callable[[], None] = lambda: None
) -> RoundOutcome | None:
    """Write the result and return it; None if another run has written it or the round is void."""
    with collector_paused():
        inputs = await captured_inputs(db, round_)
        outcome = await with_pauses(scoring(inputs))
        parts = await parts_with_pauses(inputs, outcome)
        del inputs
    checkpoint()
    # The parts come first, a few at a time. Nobody sees them until the status says that they are complete.
    for first in range(0, len(parts), PARTS_PER_BATCH):
        batch = enumerate(parts[first : first + PARTS_PER_BATCH], first)
        await db.batch([db.prepare(_PART).bind(round_.round_id, round_.version, part, text) for part, text in batch])
        checkpoint()
    results = await db.batch(_end(db, round_, outcome, parts, iso_time(now)))
    return outcome if results[0].meta.changes else None


async def parts_with_pauses(inputs: RoundInputs, outcome: RoundOutcome) -> list[str]:
    """Return the file in parts, from swaps in chain order; between two parts the event loop does other work."""
    parts = []
    for part in parts_of(file_lines(inputs, outcome, in_order=True)):
        parts.append(part)
        await asyncio.sleep(0)
    return parts


def _end(db: Database, round_: RoundRow, outcome: RoundOutcome, parts: Sequence[str], at: str) -> list[Statement]:
    """Return the batch that makes the result final."""
    round_id, version = round_.round_id, round_.version
    statements = [db.prepare(_END).bind(at, stated_digest(parts), round_id, version)]
    statements += [
        db.prepare(f"DELETE FROM {table} WHERE round_id = ?1 AND {_IS_MINE}").bind(round_id, at) for table in _REPLACED
    ]
    statements.append(db.prepare(_LAST_PART).bind(round_id, at, version, len(parts)))
    for sql, shapes in ((_RESULTS, outcome.results), (_REWARDS, outcome.rewards), (_FLAGS, outcome.flags)):
        statements += [db.prepare(sql).bind(round_id, at, rows) for rows in _rows(shapes)]
    return statements


def _rows(shapes: Sequence[SnakeShape]) -> list[str]:
    """Encode rows as JSON, in as many values as needed."""
    return [
        compact([shape.to_json() for shape in shapes[first : first + ROWS_PER_STATEMENT]])
        for first in range(0, len(shapes), ROWS_PER_STATEMENT)
    ]
