"""The task `rounds` closes, captures and finalizes rounds when they are due. It calls no upstream.

Afterwards it looks for discrepancies between today's record and the captured one: a reorg, a late arrival, a change of
rules. Triggers note each swap of a captured round that appears, disappears or moves, and it is compared with the
captured one. The result stays unchanged; an operator may reopen the round.

Emits the events of the steps, `round.added` for a round of the rule, and `round.discrepancy`.
"""

import json
from collections import Counter
from collections.abc import Collection, Mapping

from holdfast.errors import BindingMissing, HoldfastError, StoreError
from holdfast.types import JSON, Database, Row, Statement
from tocsin.errors import RunStopped
from tocsin.rounds import store
from tocsin.rounds.actions import latest_start, next_start_ms, rounds_until
from tocsin.rounds.round import (
    TOO_LONG_MS,
    WAIT_MS,
    Discrepancy,
    DiscrepancyKind,
    RoundRow,
    RoundRule,
    due_step,
    next_look,
    waited_ms,
)
from tocsin.rounds.steps import RoundWork, note_waiting, take_step
from tocsin.rounds.store import compact, iso_time
from tocsin.scheduler.task import Task, TaskContext, TaskResult
from tocsin.settings import Settings
from tocsin.shape import FreeForm
from tocsin.sql import read_queries
from tocsin.swaps.rules import Rules, rules_of
from tocsin.swaps.values import value_swaps

SQL = read_queries(__file__)

LOOK_EVERY_MS = 300_000
LONGEST_RUN_MS = 240_000
PROBLEM_MAX = 300  # characters of a problem to keep
STEPS_MAX = 4  # from open to finalized, and one more check
EMPTY_RESULT: FreeForm = {"added": 0, "closed": 0, "captured": 0, "finalized": 0, "discrepancies": 0, "waiting": {}}
NOTED_MAX = 200  # transactions that one run compares

_COMPARED = (
    "sender",
    "contract_id",
    "function_name",
    "token_in",
    "amount_in",
    "token_out",
    "amount_out",
    "burn_block_time",
    "block_height",
    "tx_index",
)


def feed_runs(settings: Settings) -> bool:
    return settings.feed_enabled and settings.sweep_enabled


def rounds_task(settings: Settings, rules: Rules | None = None) -> Task:
    """The task under the rules of the settings, or under the given rules."""
    in_force = rules_of(settings) if rules is None else rules
    followed = feed_runs(settings)

    async def run(context: TaskContext) -> TaskResult:
        work = RoundWork(context.db, context.clock, context.logger, in_force, followed, context.checkpoint)
        return await RoundsRun(context, work).run()

    return Task(
        name="rounds",
        title="Rounds",
        cadence_ms=LOOK_EVERY_MS,
        slice_ms=LONGEST_RUN_MS,
        run=run,
        overdue_after_ms=TOO_LONG_MS - WAIT_MS,
        empty_result=EMPTY_RESULT,
        why="a waiting round continues within 5 minutes once it can; the alarm also rings at the end of each round",
    )


class RoundsRun:
    """One run: advances every round as far as possible."""

    def __init__(self, context: TaskContext, work: RoundWork) -> None:
        self._context = context
        self._work = work
        self._counts: Counter[str] = Counter()
        self._stuck: set[str] = set()  # rounds whose step failed

    async def run(self) -> TaskResult:
        db, clock = self._work.db, self._work.clock
        began, left = clock.now(), await store.load_unfinished(db)
        if left.rule is not None and await self._follow_rule(left.rule, left.rule_set_at):
            left = await store.load_unfinished(db)
        for number, each in enumerate(left.rounds):
            self._context.progress(number, len(left.rounds), **EMPTY_RESULT | self._counts)
            self._context.checkpoint()
            await self._try_to_advance(each)
        await self._note_discrepancies()
        left, now = await store.load_unfinished(db), clock.now()
        waiting: JSON = {each.round_id: each.waiting_reason for each in left.rounds if each.waiting_reason}
        next_start = None if left.rule is None else next_start_ms(left.rule, began // 1000)
        return TaskResult(
            {**EMPTY_RESULT, **self._counts, "waiting": waiting},
            incomplete=_to_be_told(left.rounds, now, self._stuck),
            wake_at=next_look(left.rounds, began, now, next_start),
        )

    async def _follow_rule(self, rule: RoundRule, set_at_s: int) -> bool:
        """Add the rounds of the rule, so that the next one exists before it starts.

        Returns whether there were any to add.
        """
        db, now = self._work.db, self._work.clock.now()
        now_s = now // 1000
        newest = await store.newest_by_rule(db, rule, latest_start(rule, now_s))
        wanted = list(rounds_until(rule, set_at_s, newest, now_s, self._work.rules.floors))
        for rules in wanted:
            added = await store.add(db, rules, now).run()
            if added.meta.changes:
                self._counts["added"] += 1
                self._work.logger.info("round.added", round=rules.round_id)
        return bool(wanted)

    async def _try_to_advance(self, round_: RoundRow) -> None:
        """Advance a round. If a step fails, its error becomes the round's waiting reason; other rounds continue."""
        try:
            await self._advance(round_)
        except (StoreError, RunStopped, BindingMissing):
            raise
        except HoldfastError as error:
            self._stuck.add(round_.round_id)
            await note_waiting(self._work, round_, f"its next step failed: {error}"[:PROBLEM_MAX])

    async def _advance(self, round_: RoundRow) -> None:
        """Take all steps that are due."""
        for _ in range(STEPS_MAX):
            step = due_step(round_, self._work.clock.now())
            if step == "capture":  # only when it is known which swaps are excessive
                while await value_swaps(self._work.db, self._work.clock.now(), self._work.rules.floors):
                    self._context.checkpoint()
            if step is None or not await take_step(self._work, round_, step):
                return
            self._counts[{"close": "closed", "capture": "captured", "finalize": "finalized"}[step]] += 1
            self._context.checkpoint()
            round_ = await store.the_round(self._work.db, round_.round_id)

    async def _note_discrepancies(self) -> None:
        for round_id, found in await find_discrepancies(self._work.db, self._work.clock.now()):
            self._counts["discrepancies"] += 1
            self._work.logger.warning(
                "round.discrepancy", round=round_id, subject=found.subject, kind=found.kind, detail=found.detail
            )


def _to_be_told(rounds: list[RoundRow], now: int, stuck: Collection[str]) -> str | None:
    """What to report to an operator: rounds that are stuck, or that wait longer than usual."""
    late = [each for each in rounds if each.round_id in stuck or waited_ms(each, now) >= WAIT_MS]
    return ", ".join(f"{each.round_id} waits: {each.waiting_reason}" for each in late) or None


# Discrepancies


def difference(captured: Row | None, now: Row | None) -> tuple[DiscrepancyKind, str] | None:
    """Return how a transaction differs from the captured one; None if it does not. Pure."""
    if captured is None and now is None:
        return None
    if captured is None:
        return "late", "it was recorded after the round was captured"
    if now is None:
        return "withdrawn", "it counted in the round, and is no longer on chain or no longer counts"
    changed = [name for name in _COMPARED if captured[name] != now[name]]
    if not changed:
        return None
    return "changed", "; ".join(f"{name} {captured[name]} is now {now[name]}" for name in changed)[:500]


async def find_discrepancies(db: Database, now: int) -> list[tuple[str, Discrepancy]]:
    """Compare the noted swaps and the placed wallets; return what is new or has changed, with its round."""
    changes, _, ineligible = await db.batch(
        [
            db.prepare(SQL["noted_changes"]).bind(NOTED_MAX),
            db.prepare(SQL["eligible_again"]),
            db.prepare(SQL["ineligible"]).bind(NOTED_MAX),
        ]
    )
    noted: dict[tuple[str, int], list[str]] = {}
    for row in changes.results:
        noted.setdefault((row["round_id"], row["version"]), []).append(row["txid"])
    found: list[tuple[str, Discrepancy]] = []
    for (round_id, version), txids in noted.items():
        found += await _compare(db, round_id, version, txids, now)
    for row in ineligible.results:
        detail = f"it was placed, and its tier is now {row['tier']}"
        one = Discrepancy(row["stx_address"], "agent_ineligible", detail, iso_time(now))
        await _record(db, row["round_id"], row["version"], [one]).run()
        found.append((row["round_id"], one))
    return found


async def _compare(
    db: Database, round_id: str, version: int, txids: list[str], now: int
) -> list[tuple[str, Discrepancy]]:
    listed = json.dumps(txids)
    captured = _by_txid((await db.prepare(SQL["captured_swaps_by_txid"]).bind(round_id, listed).all()).results)
    live = _by_txid((await db.prepare(SQL["swaps_by_txid"]).bind(listed).all()).results)
    found = []
    for txid in txids:
        differs = difference(captured.get(txid), live.get(txid))
        if differs is not None:
            found.append(Discrepancy(txid, *differs, iso_time(now)))
    await db.batch(
        [
            db.prepare(SQL["settle_discrepancies"]).bind(round_id, listed),
            _record(db, round_id, version, found),
            db.prepare(SQL["forget_changes"]).bind(round_id, listed),
        ]
    )
    return [(round_id, each) for each in found]


def _by_txid(rows: list[Row]) -> Mapping[str, Row]:
    return {row["txid"]: row for row in rows}


def _record(db: Database, round_id: str, version: int, found: list[Discrepancy]) -> Statement:
    return db.prepare(SQL["add_discrepancies"]).bind(round_id, version, compact([each.to_json() for each in found]))
