"""The task `feed` follows the network's list of all transactions: one list shows everybody's swaps.

A run first verifies what is queued. Then it reads the list from its head down to where it was read before. It queues
the transactions that may count in the same batch as the new position, and verifies them in the same run.

A page that breaks Hiro's contract must not stop it: a gap that leads nowhere is dropped and read again from the head.
If the newest block of the list is old, Hiro has stopped or lags. The run is then incomplete, whatever it has read.
While Hiro does not have the list, the sweep finds the swaps in the contracts' lists, and the feed asks once an hour.

If a nonce of a wallet is missing, the list did not show one of its transactions; its own list is read at once.

Emits `feed.restarted`, `feed.gap_dropped`, `feed.source_changed`, `wallet.nonce_missing`, and the events of reading,
verifying and the pool.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from tocsin.scheduler.task import Task, TaskContext, TaskResult
from tocsin.scheduler.types import Completeness
from tocsin.settings import Settings
from tocsin.shape import FreeForm
from tocsin.stacks import Page, Transaction
from tocsin.swaps import proof as nonces
from tocsin.swaps.lists import ListReader, PageQueue, ReadCounts, record_funders
from tocsin.swaps.pool import QueueVerifier, UnitPool, UnitResult, run_result
from tocsin.swaps.position import (
    MONTH_MS,
    FeedState,
    Gap,
    Source,
    count_failure,
    load_marks,
    load_state,
    measured,
    save_state,
    take_page,
)
from tocsin.swaps.proof import load_proof
from tocsin.swaps.rules import Rules, Tier, rules_of, tiers_of
from tocsin.text import long_duration, short_duration
from tocsin.upstream.answer import (
    Answer,
    BadRequest,
    Failure,
    Gone,
    Limited,
    Malformed,
    NoAnswer,
    NotFound,
    Unauthorised,
    value_or_raise,
)
from tocsin.upstream.hiro import HiroClient

LONGEST_RUN_MS = 240_000
OVERDUE_SWEEPS = 2  # by then a swap is as late as it would be without the feed
HEAD_MS = 300_000  # how often the head is read while a gap is left and a run can afford only one call
ASK_AGAIN_MS = 3_600_000  # how often one call asks for the network's list while Hiro does not have it
PAGES_MAX = 40  # per run: two thousand transactions; a longer stretch is read over several runs
GAPS_MAX = 8  # more are joined, and what was read between them is read again
VISITS_MAX = 5  # wallets with a missing nonce, per run
VISIT_PAGES_MAX = 5

THE_LIST = "the network's list"
MISSING = "Hiro does not have the list of all transactions"
SERVED = "Hiro has the list of all transactions again"


@dataclass(slots=True)
class FeedCounts(ReadCounts):
    transactions: int = 0
    visited: int = 0
    failed_visits: int = 0
    complete: Completeness | None = None  # None: nothing is proven
    old_block_age_ms: int | None = None  # if the newest block in the list is too old

    def counters(self, state: FeedState, threw: int) -> FreeForm:
        """Return the counters as `status()` shows them."""
        return {
            "way": state.source,
            "reason": state.reason,
            "pages": self.pages,
            "transactions": self.transactions,
            "found": self.found,
            **self.tally.counters(threw),
            "visited": self.visited,
            "missingNonces": 0 if self.complete is None else self.complete.missing_nonces,
            "completeUntilBlock": None if self.complete is None else self.complete.until_block,
            "blocksBehind": state.blocks_behind,
            "transactionsPerDay": None if state.traffic is None else state.traffic.per_day,
        }

    def result(
        self, counters: FreeForm, state: FeedState, stop: Failure | None, first_failure: str | None
    ) -> TaskResult:
        """Return how the run ended: incomplete if it left something unread, failed if Hiro refuses it for good."""
        if isinstance(stop, Unauthorised | Gone):  # it does not change by itself
            return TaskResult.of(stop, counters)
        return run_result(counters, self._undone(state), stop, first_failure, progressed=self.progressed)

    def _undone(self, state: FeedState) -> list[str]:
        parts = []
        if self.old_block_age_ms is not None:
            parts.append(f"Hiro's newest block is {short_duration(self.old_block_age_ms)} old")
        if state.position.gaps:
            parts.append(
                f"the network's list is read up to block {state.position.complete_block},"
                f" {state.blocks_behind:,} blocks behind"
            )
        if self.failed_visits:
            parts.append(f"wallets whose list could not be read: {self.failed_visits}")
        return [*parts, *self.unverified_ones()]


EMPTY_RESULT = FeedCounts().counters(FeedState(), 0)


class _ListMissing(Exception):
    """The server does not have the network's list."""


class Feed:
    """One run."""

    def __init__(self, context: TaskContext, rules: Rules, state: FeedState, *, block_age_max_ms: int) -> None:
        self._context = context
        self._hiro = context.upstream("hiro", HiroClient)
        self._rules = rules
        self._block_age_max_ms = block_age_max_ms
        self._pool = UnitPool(context)
        self._pages = PageQueue(context, rules)
        self.state = state
        self.counts = FeedCounts()
        self._queue = QueueVerifier(context, rules, self._pool, self.counts)

    async def run(self) -> TaskResult:
        """Do the run.

        Candidates left by an earlier run come first. Those that became due since are verified with what this run finds.
        """
        await self._queue.verify_queued(due_by=self.state.looked_at or 0)
        if self._is_due():
            await self._pool.run([THE_LIST], self._read)
        if self.state.source == "network" and not self.state.position.gaps:
            await self._visit_wallets()
        await self._queue.verify_queued()
        if self.state.source == "network":
            await self._prove()
        if isinstance(self._pool.stop, Limited):
            await self._save(replace(self.state, limited_at=self._context.clock.now()))
        self._report()
        return self.counts.result(self._counters(), self.state, self._pool.stop, self._pool.first_failure)

    def _counters(self) -> FreeForm:
        return self.counts.counters(self.state, self._pool.threw)

    def _is_due(self) -> bool:
        state, now = self.state, self._context.clock.now()
        if self._pool.stop is not None:
            return False
        if state.source == "contracts":
            return state.asked_at is None or now - state.asked_at >= ASK_AGAIN_MS or self._context.by_hand
        return True

    async def _save(self, state: FeedState) -> None:
        self.state = state
        await save_state(self._context.db, state, self._context.clock.now()).run()

    # Reading

    async def _read(self, _unit: str) -> None:
        """Read the head, then fill gaps, the newest first.

        For some minutes after a look that left a gap, a page of the gap comes before the next look. So both make
        progress even if a run can afford only one call and the sweep takes every second one. If that page cannot be
        read, the look is made all the same.
        """
        try:
            unread = None
            waited_ms = self._context.clock.now() - (self.state.looked_at or 0)
            if self.state.position.gaps and 0 <= waited_ms < HEAD_MS:
                try:
                    await self._fill(self.state.position.gaps[0])
                except NoAnswer as error:
                    unread = error
            await self._look()
            if unread is not None:
                raise unread
            while self.state.position.gaps and self.counts.pages < PAGES_MAX:
                self._context.checkpoint()
                await self._fill(self.state.position.gaps[0])
                self._report()
        except _ListMissing:
            await self._change_source("contracts", MISSING)

    async def _look(self) -> None:
        """Read the head. If Hiro did not have the list before, it is followed from here on."""
        now = self._context.clock.now()
        if self.state.source == "contracts":
            await self._save(replace(self.state, asked_at=now))  # answered or not: nothing is late in the meantime
        answer = await self._hiro.network_transactions(self._context.session)
        if _is_missing(answer):
            raise _ListMissing
        head = value_or_raise(answer)
        assert head is not None
        self.counts.pages += 1
        await self._change_source("network", SERVED)
        now = self._context.clock.now()
        if head.total:
            self.state = replace(self.state, traffic=measured(self.state.traffic, now, head.total))
        await self._take(head, None)
        if head.newest_s is not None and self._is_old(head.newest_s):
            self.counts.old_block_age_ms = now - head.newest_s * 1000

    async def _change_source(self, source: Source, reason: str) -> None:
        """Find swaps in these lists from now on. When the network's list is followed again, it starts at its head."""
        if source == self.state.source:
            return
        await self._save(FeedState(source=source, reason=reason, asked_at=self._context.clock.now()))
        self._context.logger.warning("feed.source_changed", source=source, reason=reason)

    async def _fill(self, gap: Gap) -> None:
        """Continue where an earlier look ended."""
        answer = await self._hiro.network_transactions(self._context.session, gap.cursor)
        if isinstance(answer, Gone):
            raise _ListMissing
        self.counts.pages += 1
        if isinstance(answer, NotFound | BadRequest):  # an outdated cursor
            raise await self._refuse("hiro does not accept its own cursor", gap)
        page = value_or_raise(answer)
        assert page is not None
        await self._take(page, gap)

    async def _refuse(self, why: str, gap: Gap | None) -> NoAnswer:
        """Drop the gap of a wrong page, so that the next look reads from the head down to below it.

        Its cursor may be wrong as well. A gap that stayed would stop the feed for good.
        """
        if gap is None:
            return NoAnswer(Malformed(why))
        await self._save(replace(self.state, position=self.state.position.without(gap), looked_at=None))
        self._context.logger.warning("feed.gap_dropped", block=gap.bottom[0], reason=why)
        return NoAnswer(Malformed(f"{why}: the list is read from its head again"))

    async def _take(self, page: Page[Transaction], gap: Gap | None) -> None:
        """Queue the transactions of a page in one batch with the new position."""
        db, now, before = self._context.db, self._context.clock.now(), self.state
        taken = take_page(before.position, page, gap, self._rules.start_s)
        if taken.wrong is not None:
            raise await self._refuse(taken.wrong, gap)
        tiers = await tiers_of(db, _named_in(taken.fresh))
        eligible: dict[str, Tier] = {wallet: tier for wallet, tier in tiers.items() if tier == "eligible"}
        restarted = taken.restarted or before.started_at is None
        looked_at = now if gap is None else before.looked_at
        newest_s = page.newest_s if gap is None else before.newest_s
        is_complete = not taken.position.gaps and not self._is_old(newest_s)
        state = replace(
            before,
            position=taken.position.with_gaps(GAPS_MAX),
            newest_s=newest_s,
            looked_at=looked_at,
            complete_at=looked_at if is_complete else _past(before.complete_at, now),
            started_at=now if restarted else before.started_at,
            rests_on=None if restarted else before.rests_on,
        )
        kept = [save_state(db, state, now)]
        if restarted:
            kept.append(nonces.forget_all(db))
        else:
            kept += await nonces.record_seen(db, nonces.seen_in(taken.fresh, eligible))
        kept += record_funders(db, taken.fresh, eligible)
        read = await self._pages.add(page, taken, tiers, kept)
        self.state = state
        if taken.restarted and before.position.anchors:
            self._context.logger.warning("feed.restarted", block=taken.position.top_block)
        self.counts.transactions += len(taken.fresh)
        self.counts.count(read)

    def _is_old(self, block_s: int | None) -> bool:
        """Return whether Hiro should have a newer block by now than one of this time."""
        return block_s is not None and self._context.clock.now() - block_s * 1000 > self._block_age_max_ms

    # Wallets

    async def _visit_wallets(self) -> None:
        """Read the lists of wallets with a transaction that the network's list did not show."""
        db, clock = self._context.db, self._context.clock
        lacking = await nonces.lacking(db, VISITS_MAX, clock.now())
        if not lacking or self._pool.stop is not None:
            return
        for wallet, count in lacking.items():
            self._context.logger.warning("wallet.nonce_missing", wallet=wallet, count=count)
        marks = await load_marks(db, self._rules, lacking)
        failures = {wallet: mark.failures for wallet, mark in marks.items()}
        reader = ListReader(self._context, self._rules, await tiers_of(db, lacking), marks)

        async def visit(wallet: str) -> None:
            async for page in reader.pages(wallet, pages_max=VISIT_PAGES_MAX):
                self.counts.count(page)

        read: set[str] = set()

        async def ended(result: UnitResult[str, None]) -> None:
            self.counts.visited += 1
            if result.end == "done":
                read.add(result.unit)
            elif self._pool.stop is None:
                self.counts.failed_visits += 1
                await count_failure(db, result.unit, self._rules, clock.now()).run()

        await self._pool.run(lacking, visit, ended)
        for wallet in await nonces.lacking(db, VISITS_MAX, clock.now()):
            if wallet in read and wallet not in reader.unfinished:
                # Its list lags. The count goes on from before the visit, so that it is soon read only once an hour.
                await count_failure(db, wallet, self._rules, clock.now(), before=failures.get(wallet, 0)).run()

    async def _prove(self) -> None:
        """Update how far the record is proven complete."""
        db, state = self._context.db, self.state
        if state.started_at is not None and state.rests_on != self._rules.version:
            contracts = self._rules.allowlist.contracts
            marks = await load_marks(db, self._rules, contracts)
            if {name for name, mark in marks.items() if (mark.walked_at or 0) >= state.started_at} >= contracts.keys():
                await self._save(replace(state, rests_on=self._rules.version))
        self.counts.complete = (await load_proof(db, self.state, self._rules)).completeness(self.state)

    def _report(self) -> None:
        gaps = len(self.state.position.gaps)
        self._context.progress(self.counts.pages, self.counts.pages + gaps, **self._counters())


def _is_missing(answer: Answer[Page[Transaction]]) -> bool:
    """Return whether the server lacks the list: an older server, or one that has switched it off."""
    unknown_route = isinstance(answer, BadRequest) and answer.status == 404
    return unknown_route or isinstance(answer, NotFound | Gone)


def _named_in(rows: Iterable[Transaction]) -> Iterator[str]:
    """Yield the senders of these transactions and the receivers of their STX."""
    for row in rows:
        yield from (used.account for used in row.nonces)
        if row.payment is not None:
            yield row.payment.recipient


def _past(at: int | None, now: int) -> int | None:
    """Return the time, or None if it is in the future: the clock was ahead."""
    return None if at is None or at > now else at


def follow_network_tasks(settings: Settings, rules: Rules | None = None) -> tuple[Task, ...]:
    """The task under the rules of the settings, or under the given rules; empty if it is switched off."""
    if not (settings.feed_enabled and settings.sweep_enabled):
        return ()
    in_force = rules_of(settings) if rules is None else rules
    cadence_ms, sweep_ms = settings.feed_cadence, settings.sweep_cadence

    async def run(context: TaskContext) -> TaskResult:
        state = await load_state(context.db)
        return await Feed(context, in_force, state, block_age_max_ms=settings.block_age_max).run()

    task = Task(
        name="feed",
        title="Transaction feed",
        upstream="hiro",
        cadence_ms=cadence_ms,
        slice_ms=min(LONGEST_RUN_MS, cadence_ms * 5 // 6),
        calls_per_run=1.0,  # one page; the calls that verify swaps are measured
        calls_per_run_max=float(PAGES_MAX),
        run=run,
        overdue_after_ms=OVERDUE_SWEEPS * sweep_ms,
        empty_result=EMPTY_RESULT,
        why=(
            f"a swap is on the board within {long_duration(cadence_ms)} of its block; one page of the network's"
            f" list per run is at most {MONTH_MS // cadence_ms:,} calls in 30 days, and more only for swaps"
        ),
    )
    return (task,)
