"""Hands out a budget's permits: the thin asynchronous shell around `budget.py`.

Callers wait in one queue per lane, first come first served. The two heads compete: the request's head goes
first while requests are within their share, the older one otherwise. A caller leaves with a permit, or with
a refusal as soon as it is clear that none will come within its patience. One timer serves all who wait; when
nobody waits there is none.

Every permit is saved before it is used, so that a restart finds it spent. Emits the budget's notes, and hands
them to whoever wants to know (`noted`).
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

from tocsin.bindings import JSON, Clock, Logger
from tocsin.budget.budget import Budget, Quota
from tocsin.budget.feedback import BudgetEvent, apply_answer
from tocsin.budget.limiter import Denial, Lane, LimitReading
from tocsin.budget.windows import Moment

WAITING_MAX = 1_000  # per lane


@dataclass(slots=True, eq=False)
class _Ticket:
    """A caller in line. The future holds None for a permit, or the refusal."""

    lane: Lane
    number: int
    deadline: float
    outcome: "asyncio.Future[Denial | None]"


class BudgetLimiter:
    """One upstream's gate, for every caller of this process."""

    def __init__(
        self,
        upstream: str,
        budget: Budget,
        clock: Clock,
        random: Callable[[], float],
        logger: Logger,
        save: Callable[[JSON], object],
        noted: Callable[[BudgetEvent], object] = lambda _: None,
    ) -> None:
        self._upstream = upstream
        self._clock = clock
        self._random = random
        self._logger = logger
        self._save = save
        self._noted = noted
        self._numbers = count()
        self._queues: dict[Lane, deque[_Ticket]] = {lane: deque() for lane in Lane}
        self._timer: asyncio.Task[None] | None = None
        self.budget = budget

    @classmethod
    def restore(
        cls,
        upstream: str,
        plan: Quota,
        stored: JSON,
        clock: Clock,
        random: Callable[[], float],
        logger: Logger,
        save: Callable[[JSON], object],
        noted: Callable[[BudgetEvent], object] = lambda _: None,
    ) -> "BudgetLimiter":
        """Go on from what `save` was given last; None, or something unreadable, begins anew."""
        moment = moment_of(clock)
        budget = Budget.begin(plan, moment)
        if stored is not None:
            try:
                budget = Budget.from_json(plan, stored, moment)
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                logger.error("budget.restore_failed", upstream=upstream, reason=repr(error)[:200])  # noqa: TRY400 - our Logger has no `exception`
        return cls(upstream, budget, clock, random, logger, save, noted)

    async def enter(self, lane: Lane, patience_s: float) -> Denial | None:
        """Wait for a permit; see `Gate`."""
        queue = self._queues[lane]
        refusal = self.budget.ask(lane, moment_of(self._clock))
        if refusal is not None and refusal.wait_ms > patience_s * 1000:
            return refusal
        if len(queue) >= WAITING_MAX:
            reason = f"{WAITING_MAX} callers are waiting already"
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

    def leave(self, reading: LimitReading | None, *, limited: bool, retry_after_ms: int | None) -> int:
        """A call has ended; see `Gate`."""
        moment = moment_of(self._clock)
        self.budget, notes = apply_answer(
            self.budget,
            reading,
            limited=limited,
            retry_after_ms=retry_after_ms,
            moment=moment,
            jitter=self._random(),
        )
        for note in notes:
            self._write(note)
        if notes:
            self._save(self.budget.to_json(moment))
        self._serve()
        return moment.wall_ms + self.budget.closed_until - moment.monotonic_ms

    def closed_until(self) -> int | None:
        """Until when nobody may call after a 429 (unix ms); None while the gate is open."""
        return self.budget.closed_until_wall(moment_of(self._clock))

    def describe(self) -> JSON:
        """The budget and its queues, as `status()` shows them."""
        waiting = {str(lane): len(queue) for lane, queue in self._queues.items()}
        return {**self.budget.describe(moment_of(self._clock)), "waiting": waiting}

    def _serve(self) -> None:
        """Answer everybody who can be answered, then set the timer for the next look."""
        moment = moment_of(self._clock)
        while (next_look_ms := self._serve_one(moment)) is None:
            pass
        self._set_timer(next_look_ms)

    def _serve_one(self, moment: Moment) -> int | None:
        """Answer a caller and give None, or say in how many ms to look again (0: nobody waits)."""
        waits_ms = []
        for queue in self._in_order(moment):
            refusal = self.budget.ask(queue[0].lane, moment)
            if refusal is None:
                ticket = queue.popleft()
                self.budget = self.budget.granted(ticket.lane, moment)
                self._save(self.budget.to_json(moment))
                ticket.outcome.set_result(None)
                return None
            next_look = self._clock.monotonic() + refusal.wait_ms / 1000
            too_late = [ticket for ticket in queue if ticket.deadline < next_look]
            if too_late:
                for ticket in too_late:
                    queue.remove(ticket)
                    if not ticket.outcome.done():
                        ticket.outcome.set_result(refusal)
                return None
            waits_ms.append(refusal.wait_ms)
        return min(waits_ms, default=0)

    def _in_order(self, moment: Moment) -> list[deque[_Ticket]]:
        """The queues with somebody in them, the one whose turn it is first."""
        for queue in self._queues.values():
            while queue and queue[0].outcome.done():  # cancelled, and not yet gone
                queue.popleft()
        waiting = [queue for queue in self._queues.values() if queue]
        if len(waiting) == 2 and self.budget.request_first(moment):
            return [self._queues[Lane.REQUEST], self._queues[Lane.TASK]]
        return sorted(waiting, key=lambda queue: queue[0].number)

    def _abandon(self, ticket: _Ticket) -> None:
        """Its caller was cancelled: out of the queue, and a permit already given stays spent."""
        if ticket in self._queues[ticket.lane]:
            self._queues[ticket.lane].remove(ticket)
            self._serve()
        elif ticket.outcome.done() and not ticket.outcome.cancelled() and ticket.outcome.result() is None:
            self.leave(None, limited=False, retry_after_ms=None)

    def _set_timer(self, in_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if in_ms > 0:
            self._timer = asyncio.get_running_loop().create_task(self._ring(in_ms))

    async def _ring(self, in_ms: int) -> None:
        await self._clock.sleep(in_ms / 1000)
        self._timer = None
        self._serve()

    def _write(self, note: BudgetEvent) -> None:
        write = {
            "DEBUG": self._logger.debug,
            "INFO": self._logger.info,
            "WARN": self._logger.warn,
            "ERROR": self._logger.error,
        }[note.level]
        write(note.event, upstream=self._upstream, **note.fields)
        self._noted(note)


def moment_of(clock: Clock) -> Moment:
    return Moment(clock.now(), int(clock.monotonic() * 1000))
