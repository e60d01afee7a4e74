"""Grants a budget's permits. This is the asynchronous shell around `budget.py`.

Callers wait in one queue per lane, first come, first served. The heads of the two queues compete: the request goes
first while requests are within their share, otherwise the older one. A caller gets a permit, or a denial as soon as it
is clear that no permit will come within its patience. One timer serves all waiting callers; while nobody waits, there
is no timer.

Every permit is saved before it is used, so a restart finds it spent. Emits the events of `feedback.py`:
`budget.limiter_closed`, `budget.limiter_opened`, `budget.limit_corrected`, `budget.plan_contradicted`,
`budget.month_rolled_over`, `budget.quota_low`.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count

from tocsin.bindings import Clock, Logger, write_log
from tocsin.budget.budget import Budget, Quota
from tocsin.budget.feedback import BudgetEvent, apply_answer
from tocsin.budget.limiter import Denial, Lane, LimitReading
from tocsin.budget.stored import StoredBudget
from tocsin.moments import Moment, moment_of
from tocsin.shapes.budgets import BudgetStatus, WaitingCallers

WAITING_MAX = 1_000  # per lane


@dataclass(slots=True, eq=False)
class _Ticket:
    """A caller in line. The future holds None for a permit, or the denial."""

    lane: Lane
    number: int
    deadline: float
    outcome: "asyncio.Future[Denial | None]"


class BudgetLimiter:
    """One upstream's limiter, for every caller of this process."""

    def __init__(
        self,
        upstream: str,
        budget: Budget,
        clock: Clock,
        random: Callable[[], float],
        logger: Logger,
        save: Callable[[StoredBudget], object],
        on_event: Callable[[BudgetEvent], object] = lambda _: None,
    ) -> None:
        self._upstream = upstream
        self._clock = clock
        self._random = random
        self._logger = logger
        self._save = save
        self._on_event = on_event
        self._numbers = count()
        self._queues: dict[Lane, deque[_Ticket]] = {lane: deque() for lane in Lane}
        self._timer: asyncio.Task[None] | None = None
        self.budget = budget

    async def acquire(self, lane: Lane, patience_s: float) -> Denial | None:
        """Wait for a permit; see `Limiter`."""
        queue = self._queues[lane]
        denial = self.budget.ask(lane, moment_of(self._clock))
        if denial is not None and denial.wait_ms > patience_s * 1000:
            return denial
        if len(queue) >= WAITING_MAX:
            reason = f"{WAITING_MAX} callers are already waiting"
            return Denial(1_000, self._clock.now() + 1_000, reason)
        ticket = _Ticket(
            lane,
            next(self._numbers),
            self._clock.monotonic() + patience_s,
            asyncio.get_running_loop().create_future(),
        )
        queue.append(ticket)
        self._serve()
        try:
            return await ticket.outcome
        except asyncio.CancelledError:
            self._abandon(ticket)
            raise

    def calls_left(self, lane: Lane) -> float:
        """The calls that this lane has left; see `Limiter`."""
        return self.budget.calls_left(lane, moment_of(self._clock))

    def probe(self, lane: Lane) -> bool:
        """One call through a closed limiter; see `Limiter`."""
        moment = moment_of(self._clock)
        if not self.budget.may_probe(lane, moment):
            return False
        self.budget = replace(self.budget.granted(lane, moment), probing=True)
        self._save(self.budget.to_stored(moment))
        return True

    def release(
        self,
        reading: LimitReading | None,
        *,
        limited: bool,
        retry_after_ms: int | None,
        probing: bool = False,
    ) -> int:
        """Release a permit after its call has ended; see `Limiter`."""
        moment = moment_of(self._clock)
        self.budget, events = apply_answer(
            self.budget,
            reading,
            limited=limited,
            retry_after_ms=retry_after_ms,
            moment=moment,
            jitter=self._random(),
            probing=probing,
        )
        for event in events:
            write_log(self._logger, event.level, event.event, {"upstream": self._upstream, **event.fields})
            self._on_event(event)
        if events:
            self._save(self.budget.to_stored(moment))
        self._serve()
        return moment.wall_ms + self.budget.closed_until - moment.monotonic_ms

    def closed_until(self) -> int | None:
        """Until when no call is granted after a 429 (unix ms); None while the limiter is open."""
        return self.budget.closed_until_wall(moment_of(self._clock))

    def status(self) -> BudgetStatus:
        """The status of the budget and of the waiting callers."""
        waiting = WaitingCallers(len(self._queues[Lane.TASK]), len(self._queues[Lane.REQUEST]))
        return self.budget.status(moment_of(self._clock), waiting)

    def _serve(self) -> None:
        """Serve every caller that can be served, then set the timer for the next check."""
        moment = moment_of(self._clock)
        while (next_look_ms := self._serve_one(moment)) is None:
            pass
        self._set_timer(next_look_ms)

    def _serve_one(self, moment: Moment) -> int | None:
        """Serve a caller and return None, or return in how many ms to check again (0: nobody waits)."""
        waits_ms = []
        for queue in self._in_order(moment):
            denial = self.budget.ask(queue[0].lane, moment)
            if denial is None:
                ticket = queue.popleft()
                self.budget = self.budget.granted(ticket.lane, moment)
                self._save(self.budget.to_stored(moment))
                ticket.outcome.set_result(None)
                return None
            next_look = self._clock.monotonic() + denial.wait_ms / 1000
            too_late = [ticket for ticket in queue if ticket.deadline < next_look]
            if too_late:
                for ticket in too_late:
                    queue.remove(ticket)
                    if not ticket.outcome.done():
                        ticket.outcome.set_result(denial)
                return None
            waits_ms.append(denial.wait_ms)
        return min(waits_ms, default=0)

    def _in_order(self, moment: Moment) -> list[deque[_Ticket]]:
        """The queues that are not empty, in the order in which to serve them."""
        for queue in self._queues.values():
            while queue and queue[0].outcome.done():  # cancelled, but still in the queue
                queue.popleft()
        waiting = [queue for queue in self._queues.values() if queue]
        if len(waiting) == 2 and self.budget.request_first(moment):
            return [self._queues[Lane.REQUEST], self._queues[Lane.TASK]]
        return sorted(waiting, key=lambda queue: queue[0].number)

    def _abandon(self, ticket: _Ticket) -> None:
        """Remove the ticket of a cancelled caller from the queue. An already granted permit stays spent."""
        if ticket in self._queues[ticket.lane]:
            self._queues[ticket.lane].remove(ticket)
            self._serve()
        elif ticket.outcome.done() and not ticket.outcome.cancelled() and ticket.outcome.result() is None:
            self.release(None, limited=False, retry_after_ms=None)

    def _set_timer(self, in_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if in_ms > 0:
            self._timer = asyncio.get_running_loop().create_task(self._wait_and_serve(in_ms))

    async def _wait_and_serve(self, in_ms: int) -> None:
        await self._clock.sleep(in_ms / 1000)
        self._timer = None
        self._serve()


def restored_budget(plan: Quota, stored: StoredBudget | None, clock: Clock) -> Budget:
    """The budget to continue with: the stored one, or a new one."""
    moment = moment_of(clock)
    return Budget.begin(plan, moment) if stored is None else Budget.from_stored(plan, stored, moment)
