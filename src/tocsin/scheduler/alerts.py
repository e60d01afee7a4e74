"""Decides which alerts to send, and when. Pure: takes state, health and time, and returns a new state.

An alert is an edge: the service became not ready, or ready again. Each edge is sent once. `sent_ready` is the last
readiness that the receiver was sent. It is stored, so a restart neither repeats an alert nor loses one.

    an undelivered alert                  is retried after 1, 2, 4 … minutes, an hour at most, up to 30 attempts
    a newer edge                          replaces an undelivered one; two edges that cancel out before the first
                                          attempt are not sent
    an overdue task that is running       is judged when its run has ended, which is within its time slice
    flapping                              at most six alerts an hour; after that, the newest edge waits until the
                                          oldest of the six is an hour old, and is sent if it still applies

Times are wall-clock times. A time too far in the future means that the clock was set back; it counts as now.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from tocsin.scheduler.health import TaskFacts, TaskHealth, overdue_in_ms
from tocsin.scheduler.types import Health
from tocsin.shape import Shape
from tocsin.upstream.windows import HOUR_MS, MINUTE_MS

ALERTS_PER_HOUR_MAX = 6
ATTEMPTS_MAX = 30  # about a day
REASONS_MAX = 10
REASON_LENGTH_MAX = 300
HEARTBEAT_EVERY_MS = MINUTE_MS


@dataclass(frozen=True, slots=True)
class Alert(Shape):
    """An edge that is to be delivered. `at` is when it happened, `try_at` is the time of the next attempt."""

    ready: bool
    state: str
    reasons: list[str]
    at: int
    try_at: int
    attempts: int = 0


@dataclass(frozen=True, slots=True)
class AlertState(Shape):
    """The readiness sent last, the alert to send next, and the times of the alerts of the last hour."""

    sent_ready: bool = True
    pending: Alert | None = None
    sent_at: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class HeartbeatState(Shape):
    """When the last heartbeat was sent, and whether it failed."""

    sent_at: int | None = None
    failed: bool = False


def observed(state: AlertState, health: Health, now: int) -> AlertState:
    """The state after a health check."""
    pending = state.pending
    if pending is None:
        return state if health.ready == state.sent_ready else replace(state, pending=_edge(health, now))
    if pending.ready == health.ready:  # the same edge: keep its newest reasons
        same = replace(pending, state=health.state, reasons=_shortened(health.reasons))
        return replace(state, pending=same)
    if health.ready == state.sent_ready and pending.attempts == 0:
        return replace(state, pending=None)
    return replace(state, pending=_edge(health, now))


def is_undecided(state: AlertState, tasks: Mapping[str, TaskHealth], running: Collection[str]) -> bool:
    """Whether to wait for runs under way: every task that is not ready is overdue and running.

    After a long downtime, or after one bad run, such a run often completes within seconds.
    """
    runs = [task.condition == "overdue" and name in running for name, task in tasks.items() if task.not_ready]
    return state.sent_ready and state.pending is None and bool(runs) and all(runs)


def due(state: AlertState, now: int) -> Alert | None:
    """The alert to send now."""
    at = send_at(state, now)
    return None if at is None or at > now else state.pending


def send_at(state: AlertState, now: int) -> int | None:
    """When to send the pending alert; None if there is none."""
    if state.pending is None:
        return None
    at = state.pending.try_at if state.pending.try_at <= now + HOUR_MS else now
    recent = _recent(state.sent_at, now)
    if state.pending.attempts == 0 and len(recent) >= ALERTS_PER_HOUR_MAX:
        at = max(at, recent[-ALERTS_PER_HOUR_MAX] + HOUR_MS)
    return at


def attempted(state: AlertState, alert: Alert, now: int) -> AlertState:
    """The state before an attempt: if this process dies during it, the next process waits and then retries."""
    sent_at = _recent(state.sent_at, now) + ([now] if alert.attempts == 0 else [])
    wait_ms = min(MINUTE_MS * 2**alert.attempts, HOUR_MS)
    pending = replace(alert, attempts=alert.attempts + 1, try_at=now + wait_ms)
    return replace(state, pending=pending, sent_at=sent_at[-ALERTS_PER_HOUR_MAX:])


def delivered(state: AlertState, alert: Alert) -> AlertState:
    """The state after the receiver accepted an alert, or we gave up on it. An edge that came up since then stays."""
    pending = state.pending
    is_news = pending is not None and pending.ready != alert.ready
    return replace(state, sent_ready=alert.ready, pending=pending if is_news else None)


def heartbeat_due(state: HeartbeatState, now: int) -> bool:
    return state.sent_at is None or not state.sent_at <= now < state.sent_at + HEARTBEAT_EVERY_MS


def ring_at(state: AlertState, tasks: Iterable[TaskFacts], now: int) -> int | None:
    """When the alarm must ring for an alert: to send one, or because a task becomes overdue."""
    waits_ms = [overdue_in_ms(task) for task in tasks if task.enabled]
    overdue = [now + wait_ms for wait_ms in waits_ms if wait_ms is not None and wait_ms > 0]
    sent = send_at(state, now)
    return min(overdue if sent is None else [*overdue, sent], default=None)


def _edge(health: Health, now: int) -> Alert:
    return Alert(health.ready, health.state, _shortened(health.reasons), at=now, try_at=now)


def _shortened(reasons: list[str]) -> list[str]:
    return [reason[:REASON_LENGTH_MAX] for reason in reasons[:REASONS_MAX]]


def _recent(sent_at: list[int], now: int) -> list[int]:
    return [at for at in sent_at if now - HOUR_MS < at <= now]
