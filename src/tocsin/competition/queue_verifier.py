"""Verifies the queued transactions that are due, twenty at a time and each once per run.

Those from our lists come first, then those submitted by agents. Those that were only pushed get one call per run: if
they are real, the lists show them too.

Two runs of the object may verify the queue at the same time. Each leaves alone what the other is working on.
"""

from collections.abc import Callable, Sequence
from contextlib import aclosing

from tocsin.competition import swap_store
from tocsin.competition.rules import Rules
from tocsin.competition.swap_store import PUSHED, Candidate
from tocsin.competition.unit_pool import UnitPool
from tocsin.competition.verify import ALONE_AFTER, Tally, Verifier, retry_later
from tocsin.scheduler.work_context import TaskContext
from tocsin.upstream.hiro import EVENTS_TXIDS_MAX

QUEUE_PART = 1_000  # candidates taken from the queue at once
PUSHED_PER_RUN = (
    EVENTS_TXIDS_MAX  # nobody but the sender of a push vouches for them: one call per run is enough
)


class QueueVerifier:
    """Verifies the queue for one run. `unverified` counts failed candidates, except those that can never succeed.

    `plan` is called with the number of groups, `group_done` after each group.
    """

    def __init__(
        self,
        context: TaskContext,
        rules: Rules,
        pool: UnitPool,
        *,
        plan: Callable[[int], None] = lambda _: None,
        group_done: Callable[[], None] = lambda: None,
    ) -> None:
        self._context = context
        self._verifier = Verifier(context, rules)
        self._pool = pool
        self._plan = plan
        self._group_done = group_done
        self._verified: set[str] = set()
        self._pushed_left = PUSHED_PER_RUN
        self.tally = Tally()
        self.unverified = 0

    async def verify_queued(self, due_by: int | None = None) -> None:
        """Verify until nothing due by `due_by` (default: now) is left, or the pool stops."""
        until = self._context.clock.now() if due_by is None else due_by
        in_hand = self._context.in_hand
        while self._pool.stop is None:
            due = await swap_store.due(self._context.db, until, QUEUE_PART, self._pushed_left)
            candidates = [
                candidate
                for candidate in due
                if candidate.txid not in self._verified and candidate.txid not in in_hand
            ]
            if not candidates:
                return
            txids = {candidate.txid for candidate in candidates}
            self._verified |= txids
            self._pushed_left -= sum(candidate.rank == PUSHED for candidate in candidates)
            in_hand |= txids
            try:
                await self._verify(candidates)
            finally:
                in_hand -= txids

    async def _verify(self, candidates: Sequence[Candidate]) -> None:
        groups = _groups(candidates)
        self._plan(len(groups))
        async with aclosing(self._pool.run(groups, self._verifier.verify)) as results:
            async for result in results:
                if result.value is not None:
                    self.tally.add(result.value)
                elif self._pool.stop is None:  # a run that must end leaves the queue unchanged
                    self.unverified += sum(each.attempts < ALONE_AFTER for each in result.unit)
                    await self._postpone(result.unit, broken=result.end == "broken")
                self._group_done()

    async def _postpone(self, group: Sequence[Candidate], *, broken: bool) -> None:
        self.tally.failed += len(group)
        db, now = self._context.db, self._context.clock.now()
        await db.batch(retry_later(db, group, now, attempts=int(broken)))


def _groups(candidates: Sequence[Candidate]) -> list[Sequence[Candidate]]:
    """Form groups of twenty; candidates that failed several times are alone."""
    together = [candidate for candidate in candidates if candidate.attempts < ALONE_AFTER]
    alone = [[candidate] for candidate in candidates if candidate.attempts >= ALONE_AFTER]
    return [
        *(together[at : at + EVENTS_TXIDS_MAX] for at in range(0, len(together), EVENTS_TXIDS_MAX)),
        *alone,
    ]
