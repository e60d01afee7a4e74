"""Takes a round one step further: the task does it automatically, an operator by hand. One batch completes each step.

Emits `round.closed`, `round.captured`, `round.finalized`, `round.waiting`
when a round begins to wait, and `round.opened_again` when it was closed while the clock was ahead.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from holdfast.types import Clock, Database, Logger
from tocsin.rounds import store
from tocsin.rounds.capture import (
    GAUGE,
    UNPRICED,
    capture,
    live_inputs,
    prices_of_end,
    still_unpriced,
    traded_in,
    unpriced_because,
)
from tocsin.rounds.data_complete import incomplete_because, load_last_read, load_record, unread_because
from tocsin.rounds.finalize import finalize
from tocsin.rounds.round import RoundInputs, RoundOutcome, RoundRow, RoundRules, Step
from tocsin.rounds.score import collector_paused, scoring, with_pauses
from tocsin.sql import read_queries
from tocsin.swaps.rules import Rules

SQL = read_queries(__file__)

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


async def still_waiting(work: RoundWork, rounds: Iterable[RoundRow]) -> dict[str, str]:
    """Return the rounds that have waited before and still do, each with its reason.

    There may be many, and they may wait for hours. It takes two queries, however many there are.
    """
    now = work.clock.now()
    waiting = [
        each
        for each in rounds
        if each.status == "closed" and each.waiting_reason is not None and now >= each.grace_ends_at * 1000
    ]
    if not waiting:
        return {}
    unpriced = [each.rules for each in waiting if each.waiting_reason == UNPRICED]
    reasons = dict.fromkeys(await still_unpriced(work.db, unpriced), UNPRICED) if unpriced else {}
    last_read = await load_last_read(work.db, now, feed_runs=work.feed_runs)
    for each in waiting:
        unread = unread_because(each.rules, last_read)
        if unread is not None:
            reasons.setdefault(each.round_id, unread)
    return reasons


async def take_step(work: RoundWork, round_: RoundRow, step: Step) -> bool:
    """Take a step; return whether the round advanced."""
    if step == "close":
        return await close_round(work, round_)
    if step == "capture":
        return await capture_round(work, round_) is None
    return await finalize_round(work, round_) is not None


async def close_round(work: RoundWork, round_: RoundRow) -> bool:
    now = work.clock.now()
    result = await store.close(work.db, round_.round_id, now).run()
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
        await store.open_again(db, round_.round_id).run()
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
    await store.wait(work.db, round_.round_id, reason, now).run()


async def finalize_round(work: RoundWork, round_: RoundRow) -> RoundOutcome | None:
    """Write the result and return it; None if another run has written it."""
    outcome = await finalize(work.db, round_, work.clock.now(), work.checkpoint)
    if outcome is not None:
        counts = {"agents": len(outcome.results), "flags": len(outcome.flags)}
        work.logger.info("round.finalized", round=round_.round_id, version=round_.version, **counts)
    return outcome


async def look_ahead(work: RoundWork, round_: RoundRow) -> tuple[RoundInputs, RoundOutcome, str | None]:
    """Return the inputs that would be captured now, their result, and what a capture would wait for. Writes nothing."""
    rules = round_.rules
    record = await load_record(work.db, work.rules, rules, work.clock.now(), feed_runs=work.feed_runs)
    prices = await prices_of_end(work.db, rules, {*await traded_in(work.db, rules), GAUGE})
    with collector_paused():
        inputs = await live_inputs(
            work.db,
            rules,
            prices,
            allowlist_version=work.rules.allowlist.version,
            complete_until_block=record.proven_block,
        )
        outcome = await with_pauses(scoring(inputs))
    waits = incomplete_because(rules, record) or await _unvalued_because(work, rules)
    return inputs, outcome, waits or unpriced_because(prices)
