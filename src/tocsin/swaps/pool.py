"""Runs units of work a few at a time, and verifies the queue with it.

A failing unit does not affect the others. A problem that every unit would meet (a 429, a refused key, an upstream that
no longer answers) stops the pool: `stop` holds the reason, and units that have not started are left out. A pause, the
end of the time slice or a broken store is raised after all units under way have ended.

Queued transactions that are due are verified twenty at a time, each once per run: those from our lists first, then
those submitted by agents. Those that were only pushed get one call per run: if they are real, the lists show them too.
Two runs of the object may verify the queue at the same time; each leaves alone what the other is working on.

Emits `sweep.unit_unanswered` when an upstream had no answer for a unit, `sweep.unit_failed` when our own code failed.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, Literal, TypeAlias, TypeVar

from holdfast.errors import BindingMissing, StoreError
from tocsin.errors import RunStopped
from tocsin.scheduler.task import TaskContext, TaskResult
from tocsin.shape import FreeForm
from tocsin.swaps import store as swap_store
from tocsin.swaps.lists import ReadCounts
from tocsin.swaps.rules import Rules
from tocsin.swaps.store import PUSHED, Candidate
from tocsin.swaps.verify import ALONE_AFTER, Tally, Verifier, retry_ms
from tocsin.upstream.answer import Failure, Gone, Limited, Malformed, NoAnswer, Unauthorised
from tocsin.upstream.hiro import EVENTS_TXIDS_MAX

T = TypeVar("T")
R = TypeVar("R")

# done · unanswered: nothing is known, ask again · broken: the problem may lie in this unit itself
UnitEnd: TypeAlias = Literal["done", "unanswered", "broken"]

FAILURE_MAX = 200  # characters kept of the first failure
IN_FLIGHT_MAX = 6  # Cloudflare allows six requests of an invocation to wait for their headers
QUEUE_PART = 1_000  # candidates taken from the queue at once
PUSHED_PER_RUN = EVENTS_TXIDS_MAX  # nobody but the sender of a push vouches for them: one call per run is enough


def run_result(
    counters: FreeForm, undone: Sequence[str], stop: Failure | None, first_failure: str | None, *, progressed: bool
) -> TaskResult:
    """Return how a run ended: incomplete if something is `undone`, failed in one unit, or was stopped."""
    left, reason = ", ".join(undone), first_failure if stop is None else stop.reason
    return TaskResult(
        counters,
        limited_until=stop.until if isinstance(stop, Limited) else None,
        incomplete=f"{reason} ({left})" if reason and left else reason or left or None,
        by_budget=isinstance(stop, Limited) and stop.by_budget,
        progressed=progressed or (stop is None and not left),
    )


@dataclass(frozen=True, slots=True)
class UnitResult(Generic[T, R]):
    """How one unit ended. `value` is the return value of its work, None unless it is done."""

    unit: T
    end: UnitEnd
    value: R | None = None


class UnitPool:
    """The workers of one run. `stop` is why it stopped: calls are refused, or every unit would meet the same error.

    `threw` counts units in which our own code failed, `first_failure` is for people.
    """

    def __init__(self, context: TaskContext) -> None:
        self._context = context
        self.stop: Failure | None = None
        self.threw = 0
        self.first_failure: str | None = None

    async def run(
        self,
        units: Iterable[T],
        work: Callable[[T], Awaitable[R]],
        ended: Callable[[UnitResult[T, R]], Awaitable[None]] | None = None,
    ) -> None:
        """Do the work for all units; each worker calls `ended` after each of them."""
        waiting = deque(units)

        async def worker() -> None:
            try:
                while waiting and self.stop is None:
                    self._context.checkpoint()
                    result = await self._isolated(waiting.popleft(), work)
                    if ended is not None:
                        await ended(result)
            except Exception:
                waiting.clear()
                raise

        workers = [worker() for _ in range(min(IN_FLIGHT_MAX, len(waiting)))]
        for error in await asyncio.gather(*workers, return_exceptions=True):
            if error is not None:
                raise error

    async def _isolated(self, unit: T, work: Callable[[T], Awaitable[R]]) -> UnitResult[T, R]:
        try:
            return UnitResult(unit, "done", await work(unit))
        except NoAnswer as error:
            self.note(unit, error)
            return UnitResult(unit, "broken" if isinstance(error.answer, Malformed) else "unanswered")
        except (StoreError, RunStopped, BindingMissing):
            raise
        except Exception as error:
            self.threw += 1
            self._remember(unit, repr(error))
            self._context.logger.exception("sweep.unit_failed", unit=_label(unit), reason=repr(error)[:300])
            return UnitResult(unit, "broken")

    def note(self, unit: object, error: NoAnswer) -> None:
        """Take note of a call without an answer: it may be a reason to stop."""
        answer = error.answer
        if isinstance(answer, Limited):
            before = self.stop if isinstance(self.stop, Limited) else answer
            until = max(answer.until, before.until)
            self.stop = replace(answer, until=until, by_budget=answer.by_budget and before.by_budget)
        elif isinstance(answer, Unauthorised | Gone) or self._context.session.given_up:
            self.stop = self.stop or answer
        else:
            self._remember(unit, str(error))
            self._context.logger.warning("sweep.unit_unanswered", unit=_label(unit), reason=str(error))

    def _remember(self, unit: object, reason: str) -> None:
        if self.first_failure is None:
            self.first_failure = f"{_label(unit)}: {reason}"[:FAILURE_MAX]


def _label(unit: object) -> str:
    """Return a unit as the log shows it: an address, or the first transaction of a group."""
    first = unit[0] if isinstance(unit, list | tuple) and unit else unit
    return str(getattr(first, "txid", first))[:200]


class QueueVerifier:
    """Verifies the queue for one run, and counts what became of it. `report` is called after each group."""

    def __init__(
        self,
        context: TaskContext,
        rules: Rules,
        pool: UnitPool,
        counts: ReadCounts,
        report: Callable[[], None] = lambda: None,
    ) -> None:
        self._context = context
        self._verifier = Verifier(context, rules)
        self._pool = pool
        self._counts = counts
        self._report = report
        self._verified: set[str] = set()
        self._pushed_left = PUSHED_PER_RUN

    async def verify_queued(self, due_by: int | None = None) -> None:
        """Verify until nothing due by `due_by` (default: now) is left, or the pool stops."""
        until = self._context.clock.now() if due_by is None else due_by
        in_progress = self._context.in_progress
        while self._pool.stop is None:
            due = await swap_store.due(self._context.db, until, QUEUE_PART, self._pushed_left)
            candidates = [
                candidate
                for candidate in due
                if candidate.txid not in self._verified and candidate.txid not in in_progress
            ]
            if not candidates:
                return
            txids = {candidate.txid for candidate in candidates}
            self._verified |= txids
            self._pushed_left -= sum(candidate.rank == PUSHED for candidate in candidates)
            in_progress |= txids
            groups = _groups(candidates)
            self._counts.total += len(groups)
            try:
                await self._pool.run(groups, self._verifier.verify, self._ended)
            finally:
                in_progress -= txids

    async def _ended(self, result: UnitResult[Sequence[Candidate], Tally]) -> None:
        counts = self._counts
        if result.value is not None:
            counts.tally.add(result.value)
            if result.value.unanswered is not None:
                self._pool.note(result.unit, result.value.unanswered)
        elif self._pool.stop is None:  # a run that must end leaves the queue unchanged
            counts.unverified += sum(each.attempts < ALONE_AFTER for each in result.unit)
            counts.tally.failed += len(result.unit)
            db, now = self._context.db, self._context.clock.now()
            await db.batch(swap_store.postpone(db, result.unit, now, retry_ms, attempts=int(result.end == "broken")))
        counts.done += 1
        self._report()


def _groups(candidates: Sequence[Candidate]) -> list[Sequence[Candidate]]:
    """Form groups of twenty; candidates that failed several times are alone."""
    together = [candidate for candidate in candidates if candidate.attempts < ALONE_AFTER]
    alone = [[candidate] for candidate in candidates if candidate.attempts >= ALONE_AFTER]
    return [*(together[at : at + EVENTS_TXIDS_MAX] for at in range(0, len(together), EVENTS_TXIDS_MAX)), *alone]
