"""One sweep: finds every swap of every agent, whatever Hiro does meanwhile.

`tasks/sweep_competition.py` makes it a task.

The fast path, in every sweep: allow-listed contracts are principals, and their lists name the swaps of all senders. The
slow path proves that nothing was missed: the agents' own lists, in a daily pass, newly eligible agents first. Both only
find. What they find is queued together with the mark that says how far they came, and verified from the queue, so a run
may end anywhere and lose nothing.

Emits `refusals.reopened`, `swaps.retracted`, and what reading, verifying and the pool emit.
"""

import json
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from math import ceil

from tocsin.bindings import JSON, Statement
from tocsin.competition import swap_store
from tocsin.competition.codes import Code
from tocsin.competition.eligibility import Tier, tiers
from tocsin.competition.reader import ListReader, PageRead
from tocsin.competition.rules import Rules, still_refused
from tocsin.competition.swap_store import Candidate, Refusal
from tocsin.competition.unit_pool import StopReason, UnitPool
from tocsin.competition.verify import RETRY_MS, Tally, Verifier
from tocsin.competition.walk import Mark, Visits, choose_visits, count_failure, load_marks
from tocsin.scheduler.task import TaskResult
from tocsin.scheduler.work_context import TaskContext
from tocsin.shapes.base import FreeForm
from tocsin.upstream.hiro import EVENTS_TXIDS_MAX

DAILY_PASS_MS = 24 * 3_600_000  # every wallet's own list is read about once a day
URGENT_MAX = 100  # wallets that were never read or failed, per sweep
WALLET_PAGES_MAX = 20  # per visit: a thousand transactions; a flood of dust is read over several visits
ALONE_AFTER = 3  # attempts after which a transaction is verified alone, so that it harms no others
QUEUE_PART = 1_000  # candidates taken from the queue at once
RETRACTED_MAX = 2_000  # swaps that a sweep takes out because the rules have changed

CURSOR = "competition_scheduler_cursor"
RULES = "competition_rules"

EMPTY_RESULT: FreeForm = {
    "scanned": 0,
    "contractsScanned": 0,
    "found": 0,
    "foundByWallets": 0,
    "inserted": 0,
    "alreadyKnown": 0,
    "pending": 0,
    "withdrawn": 0,
    "rejected": 0,
    "rejectionReasons": {},
    "failed": 0,
    "failedContracts": 0,
    "failedWallets": 0,
    "cursor": None,
}

_STATE = "SELECT value FROM competition_state WHERE key = ?"
_SET_STATE = """
INSERT INTO competition_state (key, value, updated_at) VALUES (?, ?, ?)
ON CONFLICT (key) DO UPDATE SET value = excluded.value, updated_at = excluded.updated_at"""
_CLEAR_STATE = "DELETE FROM competition_state WHERE key = ?"
_NOW_ELIGIBLE = """
SELECT r.* FROM refusals r JOIN agent_tiers t ON t.stx_address = r.sender
WHERE r.code IN ('sender_not_registered', 'sender_not_genesis') AND t.tier = 'eligible'"""
_BY_RULES = """
SELECT * FROM refusals WHERE code IN ('contract_not_allowlisted', 'before_comp_start', 'after_comp_end')"""
_UNREFUSE = "DELETE FROM refusals WHERE txid IN (SELECT value FROM json_each(?))"


@dataclass(slots=True)
class SweepCounts:
    """What a sweep did."""

    contracts: int = 0
    failed_contracts: int = 0
    unknown_contracts: int = 0
    wallets: int = 0
    failed_wallets: int = 0
    found: int = 0
    found_by_wallets: int = 0
    cursor: str | None = None
    done: int = 0
    total: int = 0
    tally: Tally = field(default_factory=Tally)


async def sweep(context: TaskContext, rules: Rules, *, cadence_ms: int) -> TaskResult:
    """All of a sweep, and how it ended."""
    made = Sweep(context, rules, cadence_ms=cadence_ms)
    await made.run()
    stop = made.stop_reason
    return TaskResult(made.counters(), stop.error, stop.limited_until, stop.error_kind)


class Sweep:
    """One sweep. `run` is all of it; its parts are public so that they can be measured apart."""

    def __init__(self, context: TaskContext, rules: Rules, *, cadence_ms: int) -> None:
        self._context = context
        self._rules = rules
        self._cadence_ms = cadence_ms
        self._verifier = Verifier(context, rules)
        self._tiers: dict[str, Tier] = {}
        self._marks: dict[str, Mark] = {}
        self._pool = UnitPool(context)
        self._reader = ListReader(context, rules, self._tiers, self._marks)
        self.counts = SweepCounts()

    async def run(self) -> None:
        """Everything, in order of value: what contracts show, what is queued, then the wallets' own lists."""
        await self.prepare()
        await self.read_contracts()
        await self.verify_queued()
        await self.read_wallets(self.visits())
        await self.verify_queued()

    @property
    def stop_reason(self) -> StopReason:
        """Why it stopped early, if it did. A sweep that could read no contract at all has failed."""
        counts, stop = self.counts, self._pool.stop or StopReason()
        unread = counts.failed_contracts + counts.unknown_contracts
        if stop == StopReason() and 0 < counts.contracts == unread:
            return StopReason(error="not one contract's list could be read")
        return stop

    def counters(self) -> FreeForm:
        """As `status()` shows them."""
        counts, tally, context = self.counts, self.counts.tally, self._context
        reasons: dict[str, JSON] = {str(code): number for code, number in sorted(tally.reasons.items())}
        if self._pool.threw:
            reasons[str(Code.VERIFY_THREW)] = self._pool.threw
        return {
            "startedAt": context.started_at,
            "durationMs": context.clock.now() - context.started_at,
            "scanned": counts.wallets,
            "contractsScanned": counts.contracts,
            "found": counts.found,
            "foundByWallets": counts.found_by_wallets,
            "inserted": tally.inserted,
            "alreadyKnown": tally.already_known,
            "pending": tally.pending,
            "withdrawn": tally.withdrawn,
            "rejected": tally.reasons.total() + self._pool.threw,
            "rejectionReasons": reasons,
            "failed": tally.failed,
            "failedContracts": counts.failed_contracts,
            "failedWallets": counts.failed_wallets,
            "cursor": counts.cursor,
        }

    async def prepare(self) -> None:
        """Load who is registered and how far each list was read; queue what might count now."""
        db = self._context.db
        self._tiers.update(await tiers(db))
        for principal, (rules, mark) in (await load_marks(db)).items():
            same = rules == self._rules.for_principal(principal)
            self._marks[principal] = mark if same else Mark(failures=mark.failures)
        self.counts.cursor = await self._state(CURSOR)
        await self._reopen()

    async def read_contracts(self) -> None:
        contracts = sorted(self._rules.allowlist.contracts)
        self.counts.total += len(contracts)
        async with aclosing(self._pool.run(contracts, self._read_contract)) as results:
            async for result in results:
                self.counts.failed_contracts += result.end != "done"
                self._unit_done()

    def visits(self) -> Visits:
        """The wallets whose turn it is."""
        eligible = sorted(wallet for wallet, tier in self._tiers.items() if tier == "eligible")
        share = max(1, ceil(len(eligible) * self._cadence_ms / DAILY_PASS_MS))
        cursor = self.counts.cursor
        return choose_visits(eligible, self._marks, cursor, urgent_max=URGENT_MAX, pass_share=share)

    async def read_wallets(self, visits: Visits) -> None:
        """Visit them. The cursor of the daily pass follows as far as all wallets before it are done."""
        left = list(visits.daily_pass)
        passed: set[str] = set()
        wallets = list(dict.fromkeys((*visits.urgent, *visits.daily_pass)))
        self.counts.total += len(wallets)
        async with aclosing(self._pool.run(wallets, self._read_wallet)) as results:
            async for result in results:
                self._unit_done()
                if result.end == "done" or self._pool.stop is None:
                    passed.add(result.unit)
                if result.end != "done" and self._pool.stop is None:
                    await self._count_failure(result.unit)
                reached = None
                while left and left[0] in passed:
                    reached = left.pop(0)
                if reached is not None:
                    await self._move_cursor(None if visits.ends_pass and not left else reached)

    async def verify_queued(self) -> None:
        """Verify what is queued and due, twenty at a time."""
        now = self._context.clock.now()
        while self._pool.stop is None:
            candidates = await swap_store.due(self._context.db, now, QUEUE_PART)
            if not candidates:
                return
            groups = _groups(candidates)
            self.counts.total += len(groups)
            async with aclosing(self._pool.run(groups, self._verify_group)) as results:
                async for result in results:
                    if result.value is not None:
                        self.counts.tally.add(result.value)
                    elif self._pool.stop is None:  # a run that must end leaves the queue as it is
                        await self._postpone(result.unit, broken=result.end == "broken")
                    self._unit_done()

    # Units of work

    async def _read_contract(self, contract: str) -> None:
        self.counts.contracts += 1
        async for page in self._reader.pages(contract):
            self._count(page)
            self.counts.unknown_contracts += page.not_found

    async def _read_wallet(self, wallet: str) -> None:
        self.counts.wallets += 1
        async for page in self._reader.pages(wallet, pages_max=WALLET_PAGES_MAX):
            self._count(page)
            self.counts.found_by_wallets += page.queued

    async def _verify_group(self, group: Sequence[Candidate]) -> Tally:
        return await self._verifier.verify(group, self._tiers)

    def _count(self, page: PageRead) -> None:
        tally = self.counts.tally
        self.counts.found += page.found
        tally.already_known += page.already_known
        tally.reasons.update(code for code in page.refused if code is not Code.CONTRACT_NOT_ALLOWLISTED)

    def _unit_done(self) -> None:
        self.counts.done += 1
        self._context.progress(self.counts.done, self.counts.total, **self.counters())

    # What is stored

    async def _count_failure(self, wallet: str) -> None:
        self.counts.failed_wallets += 1
        await count_failure(self._context.db, wallet, self._rules.for_principal(wallet)).run()

    async def _postpone(self, group: Sequence[Candidate], *, broken: bool) -> None:
        self.counts.tally.failed += len(group)
        db, due_at = self._context.db, self._context.clock.now() + RETRY_MS
        txids = [candidate.txid for candidate in group]
        await db.batch(swap_store.postpone(db, txids, due_at, attempts=int(broken)))

    async def _reopen(self) -> None:
        """Queue what was refused and might count now; refuse what was recorded and does not count any more."""
        db, now = self._context.db, self._context.clock.now()
        rows = (await db.prepare(_NOW_ELIGIBLE).all()).results
        changed = await self._state(RULES) != self._rules.version
        retracted: list[Refusal] = []
        if changed:
            rows += (await db.prepare(_BY_RULES).all()).results
            retracted = await swap_store.outdated(db, self._rules, RETRACTED_MAX)
        reopened = [
            row
            for row in rows
            if not still_refused(row, self._tiers.get(row["sender"], "not_registered"), self._rules)
        ]
        candidates = [Candidate(row["txid"], row["source"]) for row in reopened]
        statements: list[Statement] = swap_store.enqueue(db, candidates, now)
        if reopened:
            statements.append(db.prepare(_UNREFUSE).bind(json.dumps([row["txid"] for row in reopened])))
            self._context.logger.info("refusals.reopened", count=len(reopened), rules=self._rules.version)
        if retracted:
            statements += swap_store.refuse(db, retracted, self._rules, now)
            self._context.logger.warn("swaps.retracted", count=len(retracted), rules=self._rules.version)
        if changed and len(retracted) < RETRACTED_MAX:  # otherwise the next sweep continues
            statements.append(db.prepare(_SET_STATE).bind(RULES, self._rules.version, now))
        if statements:
            await db.batch(statements)

    async def _state(self, key: str) -> str | None:
        row = await self._context.db.prepare(_STATE).bind(key).first()
        return None if row is None else row["value"]

    async def _move_cursor(self, cursor: str | None) -> None:
        db = self._context.db
        if cursor is None:
            await db.prepare(_CLEAR_STATE).bind(CURSOR).run()
        else:
            await db.prepare(_SET_STATE).bind(CURSOR, cursor, self._context.clock.now()).run()
        self.counts.cursor = cursor


def _groups(candidates: Sequence[Candidate]) -> list[Sequence[Candidate]]:
    """Twenty together; those that failed several times are alone."""
    together = [candidate for candidate in candidates if candidate.attempts < ALONE_AFTER]
    alone = [[candidate] for candidate in candidates if candidate.attempts >= ALONE_AFTER]
    return [
        *(together[at : at + EVENTS_TXIDS_MAX] for at in range(0, len(together), EVENTS_TXIDS_MAX)),
        *alone,
    ]
