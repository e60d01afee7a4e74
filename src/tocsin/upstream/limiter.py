"""Grants a budget's permits, and applies the upstream's answers to it: the asynchronous shell around `budget.py`.

A client acquires a permit before every attempt, and releases it with the limits that the answer reports. Every permit
is saved before it is used, so a restart finds it spent.

**Queues.** Callers wait in one queue per lane, first come, first served. The heads of the two queues compete: the
request goes first while requests are within their share, otherwise the older one. A caller gets a permit, or a denial
as soon as it is clear that no permit will come within its patience. One timer serves all waiting callers; while nobody
waits, there is no timer.

**Headers.** A reported limit replaces the known one, whether higher or lower, and an event reports it. Only a plan
that is a cap is never exceeded. If fewer calls remain than we counted, others made the difference. If more remain, our
own count stands. If more remain than the limit we know, and the upstream reports no limit, an event reports it and the
plan stands.

**Back-off.** A 429 closes the limiter for all callers. It stays closed for `Retry-After` (an hour at most), or for a
random part of a span that doubles with every new 429, whichever is longer; a first `Retry-After` is used as it is. A
429 to a call that was under way when the limiter closed does not lengthen the span. Afterwards, one call at a time
goes out until one is not limited, so the limiter cannot stay closed. A probe is one call through a closed limiter, at
an operator's request: if it is not limited, the limiter opens.

Emits `budget.limiter_closed`, `budget.limiter_opened`, `budget.limit_corrected`, `budget.plan_contradicted`,
`budget.month_rolled_over`, `budget.quota_low`.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import count
from math import inf
from typing import Any, Literal, TypeAlias

from holdfast.types import JSON, Clock, Level, Logger, write_log
from tocsin.upstream.budget import (
    CLOSED_MAX_MS,
    Budget,
    BudgetStatus,
    Denial,
    LimitReading,
    Quota,
    WaitingCallers,
    WindowReading,
)
from tocsin.upstream.windows import ClockSteps, Lane, SlidingWindow

BACK_OFF_MS = 1_000  # the first 429 already doubles it
BACK_OFF_MAX_MS = 300_000
WAITING_MAX = 1_000  # per lane
LOW_RATIO = 0.2  # of the month's limit: below it the operator is notified

TASK_PATIENCE_S = 70.0  # a full minute window is free again after 65 s
REQUEST_PATIENCE_S = 5.0  # a visitor is waiting
TASK_RETRIES_MAX = 20
REQUEST_RETRIES_MAX = 2

OnAnswer: TypeAlias = Callable[[str, str, float], object]  # upstream, class of answer, seconds
WindowName: TypeAlias = Literal["second", "minute", "month"]

_WINDOWS: tuple[WindowName, ...] = ("second", "minute", "month")


@dataclass(frozen=True, slots=True)
class BudgetEvent:
    """A change of a budget, for the log and for the event stream."""

    level: Level
    event: str
    fields: Mapping[str, JSON]


def apply_answer(
    budget: Budget,
    reading: LimitReading | None,
    *,
    limited: bool,
    retry_after_ms: int | None,
    now: int,
    jitter: float,
    probing: bool = False,
) -> tuple[Budget, list[BudgetEvent]]:
    """The budget after a call has ended. `reading` holds the limits in its answer; None if there was no answer."""
    events: list[BudgetEvent] = []
    budget = replace(budget, in_flight=max(0, budget.in_flight - 1), probing=budget.probing and not probing)
    if reading is None:
        return budget, events
    budget = replace(budget, reported=reading)
    for name in _WINDOWS:
        budget = _apply_window(budget, name, getattr(reading, name), now, events)
    if limited:
        return _close(budget, retry_after_ms, now, jitter, events), events
    if budget.limited_in_a_row and (probing or now >= budget.closed_until):
        fields = {"limited_in_a_row": budget.limited_in_a_row}
        events.append(BudgetEvent("INFO", "budget.limiter_opened", fields))
        budget = replace(budget, limited_in_a_row=0, closed_until=min(budget.closed_until, now))
    return budget, events


def _apply_window(
    budget: Budget, name: WindowName, reading: WindowReading, now: int, events: list[BudgetEvent]
) -> Budget:
    """Apply one window's limit and remaining calls."""
    reported = _capped(budget.plan, name, reading.limit)
    if reported is not None and reported != getattr(budget.limits, name):
        budget = _correct_limit(budget, name, reported, now, events)
    limit: int | None = getattr(budget.limits, name)
    if limit is None or reading.remaining is None:
        return budget
    if reading.remaining > limit and not budget.contradicted:
        fields: dict[str, JSON] = {"window": name, "limit": limit, "remaining": reading.remaining}
        events.append(BudgetEvent("WARN", "budget.plan_contradicted", fields))
        budget = replace(budget, contradicted=True)
    if name == "month":
        return _apply_month(budget, reading.remaining, limit, now, events)
    window: SlidingWindow = getattr(budget, name)
    changed: dict[str, Any] = {name: window.reconcile(limit, reading.remaining, now)}
    return replace(budget, **changed)


def _capped(plan: Quota, name: WindowName, reported: int | None) -> int | None:
    """A reported limit; if the plan is a cap, at most that."""
    planned: int | None = getattr(plan, name)
    return min(reported, planned) if plan.is_cap and planned is not None and reported is not None else reported


def _correct_limit(budget: Budget, name: WindowName, reported: int, now: int, events: list[BudgetEvent]) -> Budget:
    known: int | None = getattr(budget.limits, name)
    fields: dict[str, JSON] = {"window": name, "was": known, "reported": reported, "plan": getattr(budget.plan, name)}
    events.append(BudgetEvent("WARN", "budget.limit_corrected", fields))
    month = budget.month
    if name == "month":
        month = replace(budget.month_at(now), reported=None)  # of another limit, so no sign of a rollover
        if known is None:
            month = month.primed(now, reported, budget.limits.request_share)
    changed: dict[str, Any] = {name: reported}
    return replace(budget, limits=replace(budget.limits, **changed), month=month)


def _apply_month(budget: Budget, remaining: int, limit: int, now: int, events: list[BudgetEvent]) -> Budget:
    before = budget.month_at(now)
    month = before.reconcile(remaining, limit, budget.limits.request_share)
    fields: dict[str, JSON] = {"remaining": remaining, "limit": limit}
    if month.rolled_over_at != before.rolled_over_at:
        events.append(BudgetEvent("INFO", "budget.month_rolled_over", fields))
    low_in = budget.low_in
    if low_in != month.span.label and _is_low(remaining / limit, month.time_left_ratio()):
        low_in = month.span.label
        fields = {**fields, "month_ends_at": month.span.ends_at}
        events.append(BudgetEvent("WARN", "budget.quota_low", fields))
    return replace(budget, month=month, low_in=low_in)


def _is_low(calls_left: float, time_left: float) -> bool:
    """Whether less than a fifth of the limit is left, and not merely because the month is nearly over."""
    return calls_left < LOW_RATIO and calls_left < time_left / 2


def _close(budget: Budget, retry_after_ms: int | None, now: int, jitter: float, events: list[BudgetEvent]) -> Budget:
    """Close the limiter after a 429."""
    was_open = now >= budget.closed_until
    limited_in_a_row = budget.limited_in_a_row + was_open
    pause_ms = min(CLOSED_MAX_MS, retry_after_ms or 0)
    if was_open and (retry_after_ms is None or limited_in_a_row > 1):
        ceiling_ms = min(BACK_OFF_MAX_MS, BACK_OFF_MS * 2 ** min(limited_in_a_row, 20))
        pause_ms = max(pause_ms, int(jitter * ceiling_ms))
    closed_until = max(budget.closed_until, now + pause_ms)
    fields: dict[str, JSON] = {
        "for_ms": closed_until - now,
        "limited_in_a_row": limited_in_a_row,
        "retry_after_ms": retry_after_ms,
    }
    events.append(BudgetEvent("WARN", "budget.limiter_closed", fields))
    return replace(budget, limited_in_a_row=limited_in_a_row, closed_until=closed_until)


@dataclass(slots=True, eq=False)
class _Ticket:
    """A caller in line. The future holds None for a permit, or the denial."""

    lane: Lane
    cost: int
    number: int
    deadline: float
    outcome: "asyncio.Future[Denial | None]"


class BudgetLimiter:
    """One upstream's limiter, for every caller of this process. `on_event` also gets what the client notes."""

    def __init__(
        self,
        upstream: str,
        budget: Budget,
        clock: Clock,
        random: Callable[[], float],
        logger: Logger,
        save: Callable[[Budget], object],
        on_event: Callable[[BudgetEvent], object] = lambda _: None,
    ) -> None:
        self._upstream = upstream
        self.clock = clock
        self.random = random
        self._logger = logger
        self._save = save
        self.on_event = on_event
        self._numbers = count()
        self._queues: dict[Lane, deque[_Ticket]] = {lane: deque() for lane in Lane}
        self._timer: asyncio.Task[None] | None = None
        self._steps = ClockSteps(clock)
        self.budget = budget

    async def acquire(self, lane: Lane, patience_s: float, cost: int = 1) -> Denial | None:
        """Wait in line for a permit, for `patience_s` at most. None means a permit, which is already spent."""
        queue = self._queues[lane]
        denial = self.budget.ask(lane, self._now(), cost)
        if denial is not None and denial.wait_ms > patience_s * 1000:
            return denial
        if len(queue) >= WAITING_MAX:
            reason = f"{WAITING_MAX} callers are already waiting"
            return Denial(1_000, self.clock.now() + 1_000, reason)
        deadline = self.clock.monotonic() + patience_s
        ticket = _Ticket(lane, cost, next(self._numbers), deadline, asyncio.get_running_loop().create_future())
        queue.append(ticket)
        self._serve()
        try:
            return await ticket.outcome
        except asyncio.CancelledError:
            self._abandon(ticket)
            raise

    def calls_left(self, lane: Lane) -> float:
        """How many calls this lane could make in a row at the month's pace; without a monthly limit, in a day."""
        return self.budget.calls_left(lane, self._now())

    def probe(self, lane: Lane) -> bool:
        """Spend a permit for one call through a limiter that a 429 closed; False if no probe is possible now."""
        now = self._now()
        if not self.budget.may_probe(lane, now):
            return False
        self.budget = replace(self.budget.granted(lane, now), probing=True)
        self._save(self.budget)
        return True

    def release(
        self, reading: LimitReading | None, *, limited: bool, retry_after_ms: int | None, probing: bool = False
    ) -> int:
        """Call this once after every permit, with the limits that the answer reported; None if there was no answer.

        `probing`: the permit was for a probe. If the upstream did not limit that call, the limiter opens.
        Returns until when the limiter is closed to all callers (unix ms); a past time if it is open.
        """
        now = self._now()
        self.budget, events = apply_answer(
            self.budget,
            reading,
            limited=limited,
            retry_after_ms=retry_after_ms,
            now=now,
            jitter=self.random(),
            probing=probing,
        )
        for event in events:
            write_log(self._logger, event.level, event.event, {"upstream": self._upstream, **event.fields})
            self.on_event(event)
        if events:
            self._save(self.budget)
        self._serve()
        return self.budget.closed_until

    def charge(self, lane: Lane, calls: int) -> None:
        """Spend the calls that an upstream counted in addition to a permit. Call this before its `release`."""
        now = self._now()
        self.budget = replace(self.budget.granted(lane, now, calls), in_flight=self.budget.in_flight)
        self._save(self.budget)

    def status(self) -> BudgetStatus:
        """The status of the budget and of the waiting callers."""
        waiting = WaitingCallers(len(self._queues[Lane.TASK]), len(self._queues[Lane.REQUEST]))
        return self.budget.status(self._now(), waiting)

    def _now(self) -> int:
        """The time. If the clock was set, the budget has moved with it."""
        step_ms = self._steps.newest()
        if step_ms:
            self.budget = self.budget.moved(step_ms)
            self._save(self.budget)
        return self.clock.now()

    def _serve(self) -> None:
        """Serve every caller that can be served, then set the timer for the next check."""
        now = self._now()
        while (next_look_ms := self._serve_one(now)) is None:
            pass
        self._set_timer(next_look_ms)

    def _serve_one(self, now: int) -> int | None:
        """Serve a caller and return None, or return in how many ms to check again (0: nobody waits)."""
        waits_ms = []
        for queue in self._in_order(now):
            denial = self.budget.ask(queue[0].lane, now, queue[0].cost)
            if denial is None:
                ticket = queue.popleft()
                self.budget = self.budget.granted(ticket.lane, now, ticket.cost)
                self._save(self.budget)
                ticket.outcome.set_result(None)
                return None
            next_look = self.clock.monotonic() + denial.wait_ms / 1000
            too_late = [ticket for ticket in queue if ticket.deadline < next_look]
            if too_late:
                for ticket in too_late:
                    queue.remove(ticket)
                    if not ticket.outcome.done():
                        ticket.outcome.set_result(denial)
                return None
            waits_ms.append(denial.wait_ms)
        return min(waits_ms, default=0)

    def _in_order(self, now: int) -> list[deque[_Ticket]]:
        """The queues that are not empty, in the order in which to serve them."""
        for queue in self._queues.values():
            while queue and queue[0].outcome.done():  # cancelled, but still in the queue
                queue.popleft()
        waiting = [queue for queue in self._queues.values() if queue]
        if len(waiting) == 2 and self.budget.request_first(now):
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
        await self.clock.sleep(in_ms / 1000)
        self._timer = None
        self._serve()


def restored_budget(plan: Quota, stored: Budget | None, clock: Clock) -> Budget:
    """The budget to continue with: the stored one, or a new one."""
    return Budget.begin(plan, clock.now()) if stored is None else stored.continued(plan, clock.now())


def ignore(_upstream: str, _kind: str, _seconds: float) -> None:
    """Do nothing with an answer."""


@dataclass(slots=True)
class CallSession:
    """Limits the calls of one run or request as a whole.

    `retries_left` applies to all its calls together, which prevents a storm of retries. After `unanswered_max` calls
    in a row without any answer the session gives up: its further calls end as `Unavailable` without being made.
    After a limited call, further calls go out only if they need not wait. These three states end with the session,
    so none can persist. No call waits beyond `ends_at_s` (monotonic): a caller that cannot get a permit before then
    is denied at once. With `may_probe`, its first call may go through a limiter that a 429 closed. `on_answer` is
    called after each attempt.
    """

    lane: Lane
    logger: Logger
    patience_s: float
    retries_left: int
    unanswered_max: int = 5
    unanswered: int = 0
    limited: bool = False
    calls: int = 0  # made so far, retries and redirects included
    ends_at_s: float = inf
    may_probe: bool = False
    on_answer: OnAnswer = ignore

    @property
    def given_up(self) -> bool:
        return self.unanswered >= self.unanswered_max

    def deadline(self, now_s: float) -> float:
        """Until when a call that begins now may wait for its permits."""
        return min(now_s + (0.0 if self.limited else self.patience_s), self.ends_at_s)

    def call_ended(self, *, limited: bool, answered: bool) -> None:
        """Record how a call ended. A limited call does not show whether the upstream answers."""
        self.limited = limited
        if not limited:
            self.unanswered = 0 if answered else self.unanswered + 1

    def take_retry(self) -> bool:
        """Spend one retry; False if none is left."""
        if self.retries_left <= 0:
            return False
        self.retries_left -= 1
        return True


def task_session(logger: Logger, on_answer: OnAnswer = ignore, *, may_probe: bool = False) -> CallSession:
    """A session for one run of a task."""
    patience_s, retries = TASK_PATIENCE_S, TASK_RETRIES_MAX
    return CallSession(Lane.TASK, logger, patience_s, retries, may_probe=may_probe, on_answer=on_answer)


def request_session(
    logger: Logger, on_answer: OnAnswer = ignore, *, patience_s: float = REQUEST_PATIENCE_S
) -> CallSession:
    """A session for one request."""
    return CallSession(Lane.REQUEST, logger, patience_s, REQUEST_RETRIES_MAX, on_answer=on_answer)
