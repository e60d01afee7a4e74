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
from tocsin.sql import read_queries

SQL = read_queries(__file__)

PARTS_PER_BATCH = 8
ROWS_PER_STATEMENT = 500  # D1 limits the size of a value


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
        await db.batch(
            [db.prepare(SQL["write_part"]).bind(round_.round_id, round_.version, part, text) for part, text in batch]
        )
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
    statements = [db.prepare(SQL["finalize"]).bind(at, stated_digest(parts), round_id, version)]
    statements += [
        db.prepare(sql).bind(round_id, at) for sql in (SQL["drop_results"], SQL["drop_rewards"], SQL["drop_flags"])
    ]
    statements.append(db.prepare(SQL["drop_last_parts"]).bind(round_id, at, version, len(parts)))
    for sql, shapes in (
        (SQL["write_results"], outcome.results),
        (SQL["write_rewards"], outcome.rewards),
        (SQL["write_flags"], outcome.flags),
    ):
        statements += [db.prepare(sql).bind(round_id, at, rows) for rows in _rows(shapes)]
    return statements


def _rows(shapes: Sequence[SnakeShape]) -> list[str]:
    """Encode rows as JSON, in as many values as needed."""
    return [
        compact([shape.to_json() for shape in shapes[first : first + ROWS_PER_STATEMENT]])
        for first in range(0, len(shapes), ROWS_PER_STATEMENT)
    ]
