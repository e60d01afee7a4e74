"""Takes a round one step further: the task does it automatically, an operator by hand. One batch completes each step.

The result is a function of the captured inputs, so computing it again after a crash gives the same result. It is
computed in slices that hold the event loop for at most 100 ms with 100,000 swaps.

Emits `round.closed`, `round.captured`, `round.finalized`, `round.waiting`
when a round begins to wait, and `round.opened_again` when it was closed while the clock was ahead.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from holdfast.types import Clock, Database, Logger, Statement
from tocsin.rounds.capture import (
    GAUGE,
    capture,
    captured_inputs,
    live_inputs,
    prices_of_end,
    traded_in,
    unpriced_because,
)
from tocsin.rounds.data_complete import incomplete_because, load_record
from tocsin.rounds.file import file_lines, parts_of, stated_digest
from tocsin.rounds.round import RoundInputs, RoundOutcome, RoundRow, RoundRules, Step
from tocsin.rounds.score import collector_paused, scoring, with_pauses
from tocsin.rounds.store import compact, iso_time
from tocsin.shape import SnakeShape
from tocsin.sql import read_queries
from tocsin.swaps.rules import Rules

SQL = read_queries(__file__)

PARTS_PER_BATCH = 8
ROWS_PER_STATEMENT = 500  # D1 limits the size of a value
NOT_OVER = "the clock was ahead when it was closed, and its grace is not over yet"


@dataclass(frozen=True, slots=True)
class RoundWork:
    """The data that steps need. `feed_runs`: whether there is a task that follows the network's list."""

    db: Database
    clock: Clock
    logger: Logger
    rules: Rules
    feed_runs: bool
    checkpoint: Callable[[], None] = lambda: None


async def take_step(work: RoundWork, round_: RoundRow, step: Step) -> bool:
    """Take a step; return whether the round advanced."""
    if step == "close":
        return await close_round(work, round_)
    if step == "capture":
        return await capture_round(work, round_) is None
    return await finalize_round(work, round_) is not None


async def close_round(work: RoundWork, round_: RoundRow) -> bool:
    now = work.clock.now()
    result = await work.db.prepare(SQL["close"]).bind(iso_time(now), round_.round_id).run()
    if result.meta.changes:
        work.logger.info("round.closed", round=round_.round_id, late_ms=now - round_.grace_ends_at * 1000)
    return bool(result.meta.changes)


async def capture_round(
    work: RoundWork, round_: RoundRow, *, tokens: Collection[str] = (), forced: bool = False
) -> str | None:
    """Capture a closed round. Return the reason why it has to wait; None if it is captured.

    `forced`: an operator takes the record as it is.
    """
    db, rules = work.db, round_.rules
    if work.clock.now() < rules.grace_ends_at * 1000:
        await db.prepare(SQL["open_again"]).bind(round_.round_id).run()
        work.logger.warning("round.opened_again", round=round_.round_id, reason=NOT_OVER)
        return NOT_OVER
    record = await load_record(db, work.rules, rules, work.clock.now(), feed_runs=work.feed_runs)
    if not forced:
        reason = (
            incomplete_because(rules, record)
            or await _unvalued_because(work, rules)
            or unpriced_because(await prices_of_end(db, rules, {GAUGE}))
        )
        if reason is not None:
            await note_waiting(work, round_, reason)
            return reason
    needed = {*await traded_in(db, rules), *tokens, GAUGE}
    prices = await prices_of_end(db, rules, needed)
    work.checkpoint()
    captured = await capture(
        db,
        round_,
        prices,
        needed,
        allowlist_version=work.rules.allowlist.version,
        complete_until_block=record.proven_block,
        now=work.clock.now(),
    )
    if not captured:
        return "a trade was recorded at this moment: the next run captures it"
    work.logger.info("round.captured", round=round_.round_id, version=round_.version, prices=len(prices), forced=forced)
    return None


async def _unvalued_because(work: RoundWork, rules: RoundRules) -> str | None:
    """Return which swaps wait to be valued: until then it is not known whether one is excessive."""
    row = await work.db.prepare(SQL["unvalued"]).bind(work.clock.now(), rules.starts_at, rules.ends_at).first()
    unvalued = 0 if row is None else row["n"]
    return f"swaps that wait to be valued at the prices of their time: {unvalued}" if unvalued else None


async def note_waiting(work: RoundWork, round_: RoundRow, reason: str) -> None:
    """Store why the round does not advance, for everybody to see."""
    now = work.clock.now()
    if round_.waiting_reason != reason:
        work.logger.warning("round.waiting", round=round_.round_id, reason=reason)
    elif round_.waiting_since is not None and round_.waiting_since <= now:
        return
    await work.db.prepare(SQL["wait"]).bind(reason, now, round_.round_id).run()


async def look_ahead(work: RoundWork, round_: RoundRow) -> tuple[RoundInputs, RoundOutcome, str | None]:
    """Return the inputs that would be captured now, their result, and what a capture would wait for. Writes nothing."""
    rules, now = round_.rules, work.clock.now()
    record = await load_record(work.db, work.rules, rules, now, feed_runs=work.feed_runs)
    with collector_paused():
        inputs = await live_inputs(work.db, rules, now // 1000)
        outcome = await with_pauses(scoring(inputs))
    waits = incomplete_because(rules, record) or await _unvalued_because(work, rules)
    return inputs, outcome, waits or unpriced_because(inputs.prices)


async def finalize_round(work: RoundWork, round_: RoundRow) -> RoundOutcome | None:
    """Write the result and return it; None if another run has written it or the round is void."""
    db, at = work.db, iso_time(work.clock.now())
    with collector_paused():
        inputs = await captured_inputs(db, round_)
        outcome = await with_pauses(scoring(inputs))
        parts = await parts_with_pauses(inputs, outcome)
        del inputs
    work.checkpoint()
    # The parts come first, a few at a time. Nobody sees them until the status says that they are complete.
    for first in range(0, len(parts), PARTS_PER_BATCH):
        batch = enumerate(parts[first : first + PARTS_PER_BATCH], first)
        await db.batch(
            [db.prepare(SQL["write_part"]).bind(round_.round_id, round_.version, part, text) for part, text in batch]
        )
        work.checkpoint()
    results = await db.batch(_end(db, round_, outcome, parts, at))
    if not results[0].meta.changes:
        return None
    counts = {"agents": len(outcome.results), "flags": len(outcome.flags)}
    work.logger.info("round.finalized", round=round_.round_id, version=round_.version, **counts)
    return outcome


async def parts_with_pauses(inputs: RoundInputs, outcome: RoundOutcome) -> list[str]:
    """Return the file in parts, from swaps in chain order; between two parts the event loop does other work."""
    parts = []
    await asyncio.sleep(0)
    for part in parts_of(file_lines(inputs, outcome, in_order=True)):
        parts.append(part)
        await asyncio.sleep(0)
    return parts


def _end(db: Database, round_: RoundRow, outcome: RoundOutcome, parts: Sequence[str], at: str) -> list[Statement]:
    """Return the batch that makes the result final."""
    round_id, version = round_.round_id, round_.version
    statements = [db.prepare(SQL["finalize"]).bind(at, stated_digest(parts), round_id, version)]
    for table in ("competition_round_results", "competition_rewards", "competition_round_flags"):
        last = f"DELETE FROM {table} WHERE round_id = ?1 AND {SQL['is_finalized']}"  # of the version before
        statements.append(db.prepare(last).bind(round_id, at))
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
