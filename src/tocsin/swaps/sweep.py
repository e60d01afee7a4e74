"""The task `sweep` finds every swap of every agent, however unreliable Hiro is.

The task `feed` finds swaps in the network's list; the sweep proves that nothing was missed. It reads the lists of newly
listed contracts and newly eligible agents back to the start at once, and all others in turn. Where the feed does not
find the swaps, and when an operator starts it, a sweep reads the list of every allow-listed contract: contracts are
principals, and their lists name the swaps of all senders.

Reading a list only finds candidates. They are queued together with the mark, which records how far the list was read,
and verified from the queue. So a run may end anywhere and lose nothing.

However few calls there are, every sweep makes progress: it verifies the queue before it reads more, and reads the
lists that have waited longest first.

Emits `refusals.reopened`, `swaps.retracted`, and the events of reading, verifying and the pool.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil

from holdfast.types import Row, Statement
from tocsin.scheduler.task import Task, TaskContext, TaskResult
from tocsin.settings import Settings
from tocsin.shape import FreeForm
from tocsin.sql import read_queries
from tocsin.swaps import store as swap_store
from tocsin.swaps.lists import ListReader, ReadCounts
from tocsin.swaps.pool import QUEUE_PART, QueueVerifier, UnitPool, UnitResult, run_result
from tocsin.swaps.position import (
    DAY_MS,
    FAILURES_MAX,
    MONTH_MS,
    Mark,
    clear_value,
    count_failure,
    get_value,
    load_marks,
    load_state,
    set_value,
)
from tocsin.swaps.rules import Rules, Tier, rules_of, still_refused, tiers
from tocsin.swaps.store import Candidate, Refusal
from tocsin.swaps.verify import LOOKS_MIN
from tocsin.text import long_duration
from tocsin.upstream.answer import Failure, Limited

OTHER_CALLS = 6.0  # per run, in addition to one per contract: wallets' lists, new and pending swaps
URGENT_MAX = 100  # wallets that were never read or failed, per sweep
WALLET_PAGES_MAX = 20  # per visit: a thousand transactions; a flood of dust takes several visits
RETRACTED_MAX = 2_000  # swaps that one sweep removes because the rules have changed
RECHECK_DAYS = 3  # for how many days a doubtful refusal is verified again, once a day
LISTS_AT_ONCE = 60  # after which their candidates are verified
PAGES_AT_ONCE = 5  # of one list, before the others are read
CONTRACTS_PER_WALLET = 3  # contracts' lists are worth more, but wallets must not wait forever
TURN_LOOKS = 400  # readings of the network's list between two turns of a contract
TURNS_PER_DAY_MAX = 44
TURN_LISTS_MAX = 2  # in one sweep
SWEEPS_PER_WALLET = 24  # a wallet's list has its turn in one of this many sweeps
AGAIN_MS = 60_000  # until the sweep that the first proof needs

IN_THE_LOG = "the log has the reason"
RECHECKED = "competition_rechecked_at"
RULES = "competition_rules"
# When the newest complete sweep of all contracts' lists began, under those rules.
SWEPT_AT = "competition_swept_at"

SQL = read_queries(__file__)


def reading_order(contracts: Iterable[str], wallets: Sequence[str], marks: Mapping[str, Mark]) -> list[str]:
    """Return the lists of a sweep. If calls run out in the middle, the next sweep begins with those that got none.

    Contracts are in the order in which they were last requested, and every fourth list is a wallet's.
    """
    left = list(wallets)
    order: list[str] = []
    for number, contract in enumerate(sorted(contracts, key=lambda name: (_tried_at(marks, name), name)), 1):
        order.append(contract)
        if number % CONTRACTS_PER_WALLET == 0 and left:
            order.append(left.pop(0))
    return order + left


def turn_period(contracts: int, feed_ms: int) -> int:
    """Return how often each contract's list has its turn while the feed finds the swaps.

    That is once a day; less often if the network's list is read rarely or there are many contracts, because the proof
    must cost less than what it proves.
    """
    return max(DAY_MS, TURN_LOOKS * feed_ms, contracts * DAY_MS // TURNS_PER_DAY_MAX)


def due_contracts(
    contracts: Iterable[str], marks: Mapping[str, Mark], since: int, *, now: int, period_ms: int
) -> tuple[str, ...]:
    """Return contracts whose lists were not read to the end since then; if there are none, those whose turn has come.

    Each has its own time in the period. Those requested longest ago come first, so a list that always fails does not
    take the turns of the others.
    """
    read_at = {contract: marks.get(contract, Mark()).walked_at or 0 for contract in sorted(contracts)}
    due = tuple(contract for contract in read_at if read_at[contract] < since)
    if due:
        return due
    times = (number * period_ms // len(read_at) for number in range(len(read_at)))
    waiting = [
        contract
        for (contract, at), time in zip(read_at.items(), times, strict=True)
        if (at - time) // period_ms < (now - time) // period_ms
    ]
    return tuple(sorted(waiting, key=lambda contract: (_tried_at(marks, contract), contract))[:TURN_LISTS_MAX])


def _tried_at(marks: Mapping[str, Mark], principal: str) -> int:
    return marks.get(principal, Mark()).tried_at or 0


def choose_visits(wallets: Iterable[str], marks: Mapping[str, Mark], *, urgent_max: int, share: int) -> list[str]:
    """Choose the wallets to visit: the urgent ones, and a share of all, those requested longest ago first.

    Urgent are those never read to the end, and those whose last visit failed. One that keeps failing waits for its
    turn, so it does not delay others.
    """
    in_turn = sorted(wallets, key=lambda wallet: (_tried_at(marks, wallet), wallet))
    urgent = [wallet for wallet in in_turn if _is_urgent(marks.get(wallet, Mark()))]
    urgent.sort(key=lambda wallet: marks.get(wallet, Mark()).failures)
    return list(dict.fromkeys((*urgent[:urgent_max], *in_turn[:share])))


def _is_urgent(mark: Mark) -> bool:
    return mark.failures < FAILURES_MAX and (mark.walked_at is None or mark.failures > 0)


@dataclass(slots=True)
class SweepCounts(ReadCounts):
    contracts: set[str] = field(default_factory=set)  # lists asked for
    read: set[str] = field(default_factory=set)  # those of them that were read to the end
    failed_contracts: int = 0
    wallets: set[str] = field(default_factory=set)
    failed_wallets: int = 0
    unread_wallets: int = 0
    found_by_wallets: int = 0
    cursor: str | None = None  # the wallet that was visited last

    def counters(self, contracts: int, threw: int) -> FreeForm:
        return {
            "scanned": len(self.wallets),
            "contracts": contracts,
            "contractsScanned": len(self.contracts),
            "contractsRead": len(self.read),
            "found": self.found,
            "foundByWallets": self.found_by_wallets,
            **self.tally.counters(threw),
            "failedContracts": self.failed_contracts,
            "failedWallets": self.failed_wallets,
            "cursor": self.cursor,
        }

    def result(self, counters: FreeForm, contracts: int, stop: Failure | None, first_failure: str | None) -> TaskResult:
        """Return how the sweep ended: incomplete if it could not read everything, failed if it read nothing."""
        if stop is not None and not isinstance(stop, Limited):
            return TaskResult.of(stop, counters)
        if stop is None and contracts and not self.read:
            return TaskResult(counters, f"{first_failure or IN_THE_LOG} (no contract's list could be read)")
        undone = self._undone(contracts)
        failure = (first_failure or IN_THE_LOG) if undone else None
        return run_result(counters, undone, stop, failure, progressed=self.progressed)

    def _undone(self, contracts: int) -> list[str]:
        parts = []
        if len(self.read) < contracts:
            parts.append(f"{len(self.read)} of {contracts} contracts' lists were read")
        wallets = self.failed_wallets + self.unread_wallets
        if wallets:
            parts.append(f"{wallets} wallets' lists were not read" if wallets > 1 else "one wallet's list was not read")
        return [*parts, *self.unverified_ones()]


EMPTY_RESULT: FreeForm = {"way": "contracts", **SweepCounts().counters(0, 0)}


class Sweep:
    """One sweep. `run` does all of it; its parts are public so that they can be measured separately.

    `feed_ms` is the cadence of the task `feed`, if there is one.
    """

    def __init__(self, context: TaskContext, rules: Rules, *, cadence_ms: int, feed_ms: int | None = None) -> None:
        self._context = context
        self._rules = rules
        self._cadence_ms = cadence_ms
        self._feed_ms = feed_ms
        self._followed_since: int | None = None  # since when the feed finds the swaps; None: it does not
        self._tiers: dict[str, Tier] = {}
        self._marks: dict[str, Mark] = {}
        self._pool = UnitPool(context)
        self._reader = ListReader(context, rules, self._tiers, self._marks)
        self._pages_of: Counter[str] = Counter()
        self._due: Sequence[str] = ()
        self._unread: list[str] = []
        self._is_first = False  # no sweep has been complete
        self.counts = SweepCounts()
        self.queue = QueueVerifier(context, rules, self._pool, self.counts, self._report)

    async def run(self) -> TaskResult:
        """Do the sweep. The queue comes first: however few calls there are, a swap that was found is recorded.

        While the feed finds the swaps, the feed verifies the queue together with its own findings.
        """
        await self.prepare()
        if self._followed_since is None:
            await self.queue.verify_queued()
        await self.read_lists(self._due, self.visits())
        pool = self._pool
        result = self.counts.result(self.counters(), len(self._due), pool.stop, pool.first_failure)
        if result.error is not None or result.incomplete is not None:
            return result
        await self.keep_swept_at()
        return replace(result, wake_at=await self.needed_again_at())

    def counters(self) -> FreeForm:
        """Return the counters as `status()` shows them."""
        context = self._context
        return {
            "startedAt": context.started_at,
            "durationMs": context.clock.now() - context.started_at,
            "way": "contracts" if self._followed_since is None else "network",
            **self.counts.counters(len(self._rules.allowlist.contracts), self._pool.threw),
        }

    async def prepare(self) -> None:
        """Load the registered agents and the marks of the lists; queue refusals that might count now."""
        db = self._context.db
        self._tiers.update(await tiers(db))
        self._marks.update(await load_marks(db, self._rules))
        if self._feed_ms is not None and not self._context.by_hand:
            feed = await load_state(db)
            if feed.finds_swaps(self._context.clock.now(), self._cadence_ms):
                self._followed_since = feed.started_at
        self._due = self._due_contracts()
        await self._reopen()

    def _due_contracts(self) -> Sequence[str]:
        """Return all contracts; while the feed finds the swaps, only those it cannot vouch for or whose turn it is."""
        listed = self._rules.allowlist.contracts
        if self._followed_since is None or self._feed_ms is None:
            return tuple(listed)
        period_ms = turn_period(len(listed), self._feed_ms)
        now = self._context.started_at
        return due_contracts(listed, self._marks, self._followed_since, now=now, period_ms=period_ms)

    def visits(self) -> list[str]:
        eligible = [wallet for wallet, tier in self._tiers.items() if tier == "eligible"]
        share = max(1, ceil(len(eligible) * self._cadence_ms / DAY_MS))
        if self._followed_since is not None:
            share = int(self._context.started_at // self._cadence_ms % SWEEPS_PER_WALLET == 0)
        return choose_visits(eligible, self._marks, urgent_max=URGENT_MAX, share=share)

    async def read_lists(self, contracts: Iterable[str], wallets: Sequence[str]) -> None:
        """Read the lists in parts, a few pages of each list at a time; verify their candidates after each part.

        So one long list delays neither the other lists nor candidates that were already found.
        """
        self._unread = reading_order(contracts, wallets, self._marks)
        self.counts.total += len(self._unread)
        self.counts.unread_wallets = len(wallets)
        while self._unread and self._pool.stop is None:
            part, self._unread = self._unread[:LISTS_AT_ONCE], self._unread[LISTS_AT_ONCE:]
            await self._pool.run(part, self._read_list, self._list_ended)
            if self._followed_since is None or self.counts.queued:
                await self.queue.verify_queued()

    def _goes_on(self, principal: str) -> bool:
        """Return whether a list has more pages and may have another turn in this sweep."""
        unfinished = principal in self._reader.unfinished
        return unfinished and (is_contract(principal) or self._pages_of[principal] < WALLET_PAGES_MAX)

    async def _list_ended(self, result: UnitResult[str, None]) -> None:
        principal, failed = result.unit, result.end != "done"
        if not failed and self._goes_on(principal):
            self._unread.append(principal)
            return
        self.counts.done += 1
        self._report()
        if failed and self._pool.stop is not None:  # not a failure of this list
            return
        if not is_contract(principal):
            self.counts.unread_wallets -= 1
            self.counts.failed_wallets += failed
            self.counts.cursor = principal
        elif failed:
            self.counts.failed_contracts += 1
        else:
            self.counts.read.add(principal)
        if failed:
            db, now = self._context.db, self._context.clock.now()
            await count_failure(db, principal, self._rules, now).run()

    async def _read_list(self, principal: str) -> None:
        counts, of_contract = self.counts, is_contract(principal)
        (counts.contracts if of_contract else counts.wallets).add(principal)
        async for page in self._reader.pages(principal, pages_max=PAGES_AT_ONCE):
            self._pages_of[principal] += 1
            counts.pages += 1
            counts.count(page)
            if not of_contract:
                counts.found_by_wallets += len(page.candidates)

    def _report(self) -> None:
        self._context.progress(self.counts.done, self.counts.total, **self.counters())

    # What is stored

    async def _reopen(self) -> None:
        """Queue refused transactions that might count now; refuse recorded swaps that no longer count."""
        db, now = self._context.db, self._context.clock.now()
        rows = (await db.prepare(SQL["refusals_of_eligible_senders"]).all()).results
        doubtful = await self._doubtful(now)
        changed = await get_value(db, RULES) != self._rules.version
        swept_at = await get_value(db, SWEPT_AT)
        self._is_first = swept_at is None
        retracted: list[Refusal] = []
        if changed:
            rows += (await db.prepare(SQL["refusals_by_rules"]).all()).results
            retracted = await swap_store.outdated(db, self._rules, RETRACTED_MAX)
        reopened = [
            row for row in rows if not still_refused(row, self._tiers.get(row["sender"], "not_registered"), self._rules)
        ]
        candidates = [Candidate(row["txid"], row["source"], block_height=row["block_height"]) for row in reopened]
        candidates += [Candidate(row["txid"], row["source"], attempts=LOOKS_MIN - 1) for row in doubtful]
        statements: list[Statement] = swap_store.enqueue(db, candidates, now)
        if doubtful:
            statements.append(set_value(db, RECHECKED, str(now), now))
        if reopened:
            txids = swap_store.in_parts([row["txid"] for row in reopened])
            statements += [db.prepare(SQL["forget_refusals"]).bind(part) for part in txids]
            self._context.logger.info("refusals.reopened", count=len(reopened), rules=self._rules.version)
        if retracted:
            statements += swap_store.refuse(db, retracted, self._rules, now)
            self._context.logger.warning("swaps.retracted", count=len(retracted), rules=self._rules.version)
        if changed and len(retracted) < RETRACTED_MAX:  # otherwise the next sweep continues
            statements += [set_value(db, RULES, self._rules.version, now), clear_value(db, SWEPT_AT)]
        elif swept_at is not None and int(swept_at) > now:  # the clock was ahead
            statements.append(clear_value(db, SWEPT_AT))
        if statements:
            await db.batch(statements)

    async def keep_swept_at(self) -> None:
        """Store when this sweep began: a complete sweep of all contracts' lists shows all swaps from before that."""
        if self._followed_since is None:
            context = self._context
            await set_value(context.db, SWEPT_AT, str(context.started_at), context.clock.now()).run()

    async def needed_again_at(self) -> int | None:
        """Return when to sweep again so that the record can be proven complete; None if the next slot is soon enough.

        At a start, feed and sweep begin together. A list that was read before the feed's first look may lack what was
        mined in between. Without another sweep, the first proof would have to wait for the next slot. If the feed has
        not looked yet, only the first sweep asks for another.
        """
        if self._feed_ms is None:
            return None
        feed, now = await load_state(self._context.db), self._context.clock.now()
        if feed.source != "network" or (feed.started_at or 0) > now:  # not followed, or the clock was ahead
            return None
        if feed.started_at is None:
            return now + AGAIN_MS if self._is_first else None
        listed = self._rules.allowlist.contracts
        read_since = (self._marks.get(contract, Mark()).walked_at or 0 for contract in listed)
        return now + AGAIN_MS if min(read_since, default=now) < feed.started_at else None

    async def _doubtful(self, now: int) -> list[Row]:
        """Return, once a day, refusals of the last days that may rest on a wrong answer."""
        db = self._context.db
        last = await get_value(db, RECHECKED)
        if last is not None and now - int(last) < DAY_MS:
            return []
        since_s = (now - RECHECK_DAYS * DAY_MS) // 1000
        return (await db.prepare(SQL["doubtful_refusals"]).bind(since_s, QUEUE_PART).all()).results


def is_contract(principal: str) -> bool:
    return "." in principal


def sweep_task(settings: Settings, rules: Rules | None = None) -> Task:
    """The task under the rules of the settings, or under the given rules."""
    in_force = rules_of(settings) if rules is None else rules
    cadence_ms, contracts = settings.sweep_cadence, len(in_force.allowlist.contracts)
    feed_ms = settings.feed_cadence if settings.feed_enabled else None

    async def run(context: TaskContext) -> TaskResult:
        return await Sweep(context, in_force, cadence_ms=cadence_ms, feed_ms=feed_ms).run()

    return Task(
        name="sweep",
        title="Swap sweep",
        upstream="hiro",
        cadence_ms=cadence_ms,
        slice_ms=settings.sweep_slice,
        calls_per_run=OTHER_CALLS if settings.feed_enabled else contracts + OTHER_CALLS,
        calls_per_run_max=contracts + OTHER_CALLS,
        run=run,
        enabled=settings.sweep_enabled,
        empty_result={**EMPTY_RESULT, "contracts": contracts},
        why=_why(cadence_ms, contracts, with_feed=settings.feed_enabled),
    )


def _why(cadence_ms: int, contracts: int, *, with_feed: bool) -> str:
    if with_feed:
        return (
            f"the feed finds the swaps; one list per run, in turn, is {MONTH_MS // cadence_ms:,} calls in 30 days,"
            f" and all {contracts} contracts' lists are read if the feed does not find the swaps"
        )
    return (
        f"a swap is on the board within {long_duration(cadence_ms)} of its block; one list for each of"
        f" {contracts} contracts per run is {contracts * MONTH_MS // cadence_ms:,} calls in 30 days"
    )
