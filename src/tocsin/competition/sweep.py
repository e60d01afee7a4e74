"""Finds every swap of every agent, whatever Hiro does meanwhile.

The fast path, on every sweep: the allow-listed contracts are principals, and their lists name the swaps of
all senders at once. The slow path proves that nothing was missed: the agents' own lists, a lap a day, newly
eligible agents first. Both only find. What they find is queued together with the mark that says how far
they came, and settled from the queue, so that a run may end anywhere and lose nothing.

Emits `refusals.reopened`, `swaps.retracted`, and what reading, settling and the crew emit.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil

from tocsin.bindings import JSON, Statement
from tocsin.competition import swap_store
from tocsin.competition.codes import Code
from tocsin.competition.eligibility import Tier, tiers
from tocsin.competition.reader import Reader, Reading
from tocsin.competition.rules import Rules, still_refused
from tocsin.competition.swap_store import Candidate, Refusal
from tocsin.competition.unit_pool import StopReason, SweepDesk, UnitPool
from tocsin.competition.verify import RETRY_MS, Tally, Verifier
from tocsin.competition.walk import Mark, Visits, choose_visits, count_failure, load_marks
from tocsin.upstream.hiro import EVENTS_TXIDS_MAX

LAP_MS = 24 * 3_600_000  # every wallet's own list is read about once a day
URGENT_MAX = 100  # wallets never walked or failed, per sweep
WALLET_PAGES_MAX = 20  # per visit: a thousand transactions; a flood of dust is read over several visits
ALONE_AFTER = 3  # attempts after which a transaction is settled alone, so that it harms no others
SLICE = 1_000  # candidates taken from the queue at once
RETRACTED_MAX = 2_000  # swaps that a sweep takes out because the rules have changed

CURSOR = "competition_scheduler_cursor"
RULES = "competition_rules"

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
class Counts:
    """What a sweep did."""

    contracts: int = 0
    failed_contracts: int = 0
    absent_contracts: int = 0
    wallets: int = 0
    failed_wallets: int = 0
    found: int = 0
    found_by_wallets: int = 0
    cursor: str | None = None
    tally: Tally = field(default_factory=Tally)


class Sweep:
    """One sweep. `run` is all of it; its parts are public so that they can be measured apart."""

    def __init__(self, desk: SweepDesk, rules: Rules, *, cadence_ms: int) -> None:
        self._desk = desk
        self._rules = rules
        self._cadence_ms = cadence_ms
        self._verifier = Verifier(desk, rules)
        self._tiers: dict[str, Tier] = {}
        self._marks: dict[str, Mark] = {}
        self._crew = UnitPool(desk, self.result)
        self._reader = Reader(desk, rules, self._tiers, self._marks, self._crew)
        self.counts = Counts()

    async def run(self) -> None:
        """Everything, in order of worth: what contracts show, what is queued, then the wallets' own lists."""
        await self.prepare()
        await self.read_contracts()
        await self.settle()
        await self.read_wallets(self.visits())
        await self.settle()

    @property
    def ending(self) -> StopReason:
        """How it ended; one that could read no contract at all has failed."""
        counts, ending = self.counts, self._crew.ending or StopReason()
        unread = counts.failed_contracts + counts.absent_contracts
        if ending == StopReason() and 0 < counts.contracts == unread:
            return StopReason(error="not one contract's list could be read")
        if self._crew.ending == StopReason() and counts.contracts == 0:
            return StopReason(error="the time slice was over before anything was read")
        return ending

    def result(self) -> dict[str, JSON]:
        """As `status()` shows it."""
        counts, tally = self.counts, self.counts.tally
        reasons = {str(code): number for code, number in sorted(tally.reasons.items())}
        if self._crew.threw:
            reasons[str(Code.VERIFY_THREW)] = self._crew.threw
        return {
            "startedAt": self._desk.started_at,
            "durationMs": self._desk.clock.now() - self._desk.started_at,
            "scanned": counts.wallets,
            "contractsScanned": counts.contracts,
            "found": counts.found,
            "foundByWallets": counts.found_by_wallets,
            "inserted": tally.inserted,
            "alreadyKnown": tally.already_known,
            "pending": tally.pending,
            "withdrawn": tally.withdrawn,
            "rejected": sum(reasons.values()),
            "rejectionReasons": reasons,
            "failed": tally.failed,
            "failedContracts": counts.failed_contracts,
            "failedWallets": counts.failed_wallets,
            "cursor": counts.cursor,
        }

    async def prepare(self) -> None:
        """Load who is registered and how far each list was read; queue what might count now."""
        db = self._desk.db
        self._tiers.update(await tiers(db))
        for principal, (rules, mark) in (await load_marks(db)).items():
            same = rules == self._rules.for_principal(principal)
            self._marks[principal] = mark if same else Mark(failures=mark.failures)
        self.counts.cursor = await self._state(CURSOR)
        await self._reopen()

    async def read_contracts(self) -> None:
        await self._crew.each(sorted(self._rules.allowlist.contracts), self._visit_contract)

    def visits(self) -> Visits:
        """The wallets whose turn it is."""
        eligible = sorted(wallet for wallet, tier in self._tiers.items() if tier == "eligible")
        share = max(1, ceil(len(eligible) * self._cadence_ms / LAP_MS))
        cursor = self.counts.cursor
        return choose_visits(eligible, self._marks, cursor, urgent_max=URGENT_MAX, lap_share=share)

    async def read_wallets(self, visits: Visits) -> None:
        """Visit them; the cursor follows as far as all before it are done."""
        left = list(visits.lap)
        over: set[str] = set()

        async def visit(wallet: str) -> None:
            if not await self._visit_wallet(wallet):
                return
            over.add(wallet)
            passed = None
            while left and left[0] in over:
                passed = left.pop(0)
            if passed is not None:
                await self._move_cursor(None if visits.ends_lap and not left else passed)

        await self._crew.each(dict.fromkeys((*visits.urgent, *visits.lap)), visit)

    async def settle(self) -> None:
        """Settle what is queued and due, twenty at a time."""
        now = self._desk.clock.now()
        while self._crew.ending is None:
            candidates = await swap_store.due(self._desk.db, now, SLICE)
            if not candidates:
                return
            await self._crew.each(_groups(candidates), self._settle_group)

    # Units of work

    async def _visit_contract(self, contract: str) -> None:
        self.counts.contracts += 1
        reading = Reading()
        end = await self._crew.guarded(contract, lambda: self._reader.read(contract, reading))
        self._count(reading)
        self.counts.failed_contracts += end != "done"
        self.counts.absent_contracts += reading.absent

    async def _visit_wallet(self, wallet: str) -> bool:
        """Whether the lap may pass it: read as far as a visit goes, or failed and flagged."""
        self.counts.wallets += 1
        reading = Reading()
        end = await self._crew.guarded(
            wallet, lambda: self._reader.read(wallet, reading, pages_max=WALLET_PAGES_MAX)
        )
        self._count(reading)
        self.counts.found_by_wallets += reading.queued
        if end == "done" or self._crew.ending is not None:
            return reading.finished
        self.counts.failed_wallets += 1
        await count_failure(self._desk.db, wallet, self._rules.for_principal(wallet)).run()
        return True

    async def _settle_group(self, group: Sequence[Candidate]) -> None:
        async def work() -> None:
            self.counts.tally.add(await self._verifier.settle(group, self._tiers))

        end = await self._crew.guarded(group[0].txid, work)
        if end == "done" or self._crew.ending is not None:
            return  # a run that must end leaves the queue as it is
        self.counts.tally.failed += len(group)
        txids, due_at = [candidate.txid for candidate in group], self._desk.clock.now() + RETRY_MS
        await self._desk.db.batch(
            swap_store.postpone(self._desk.db, txids, due_at, attempts=int(end == "broken"))
        )

    def _count(self, reading: Reading) -> None:
        self.counts.found += reading.found
        self.counts.tally.already_known += reading.already_known
        codes = (Code(code) for code in reading.refused)
        self.counts.tally.reasons.update(code for code in codes if code is not Code.CONTRACT_NOT_ALLOWLISTED)

    # State

    async def _reopen(self) -> None:
        """Queue what was refused and would not be today; refuse what was recorded and would not be today."""
        db, now = self._desk.db, self._desk.clock.now()
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
            self._desk.logger.info("refusals.reopened", count=len(reopened), rules=self._rules.version)
        if retracted:
            statements += swap_store.refuse(db, retracted, self._rules, now)
            self._desk.logger.warn("swaps.retracted", count=len(retracted), rules=self._rules.version)
        if changed and len(retracted) < RETRACTED_MAX:  # otherwise the next sweep goes on
            statements.append(db.prepare(_SET_STATE).bind(RULES, self._rules.version, now))
        if statements:
            await db.batch(statements)

    async def _state(self, key: str) -> str | None:
        row = await self._desk.db.prepare(_STATE).bind(key).first()
        return None if row is None else row["value"]

    async def _move_cursor(self, cursor: str | None) -> None:
        db = self._desk.db
        if cursor is None:
            await db.prepare(_CLEAR_STATE).bind(CURSOR).run()
        else:
            await db.prepare(_SET_STATE).bind(CURSOR, cursor, self._desk.clock.now()).run()
        self.counts.cursor = cursor


def _groups(candidates: Sequence[Candidate]) -> list[Sequence[Candidate]]:
    """Twenty together; what failed again and again is alone."""
    together = [candidate for candidate in candidates if candidate.attempts < ALONE_AFTER]
    alone = [[candidate] for candidate in candidates if candidate.attempts >= ALONE_AFTER]
    return [
        *(together[at : at + EVENTS_TXIDS_MAX] for at in range(0, len(together), EVENTS_TXIDS_MAX)),
        *alone,
    ]
