"""The alerts: which to send, and when; their messages; and who sends them.

An alert is an edge: the service became not ready, or ready again. Each edge is sent once. `sent_ready` is the last
readiness that the receiver was sent. The object's own is stored, so a restart neither repeats an alert nor loses one.

    an undelivered alert                  is retried after 1, 2, 4 … minutes, an hour at most, up to 30 attempts
    a newer edge                          replaces an undelivered one; two edges that cancel out before the first
                                          attempt are not sent
    an overdue task that is running       is judged when its run has ended, which is within its time slice
    flapping                              at most six alerts an hour; after that, the newest edge waits until the
                                          oldest of the six is an hour old, and is sent if it still applies

Times are wall-clock times. A time too far in the future means that the clock was set back; it counts as now.

`TaskAlerts` sends the alerts about tasks, in the object. `ProcessAlerts` sends those about a process whose store, files
or alarm do not work: the object cannot, because it could not store that it sent them. Their state is kept in memory, so
a restart may repeat an alert. The `ready` alert is sent only when the tasks are ready too, even if the object also
sends one. A stuck event loop cannot send anything; then the heartbeats stop.

Emits `alert.sent`, `alert.send_failed`, `alert.abandoned`, `heartbeat.failed`, `heartbeat.recovered`.
"""

import asyncio
import json
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from holdfast.types import JSON
from tocsin import __version__
from tocsin.errors import FetchError, RunStopped
from tocsin.fetch import Fetch
from tocsin.scheduler.config import SchedulerEnv
from tocsin.scheduler.health import (
    HealthSnapshot,
    TaskFacts,
    found_problem,
    health_of,
    overdue_in_ms,
    process_problems,
    task_health,
    tasks_health,
)
from tocsin.scheduler.state import SchedulerRecord
from tocsin.scheduler.types import Alert, AlertState, Health, HeartbeatState, TaskCondition
from tocsin.settings import Settings
from tocsin.upstream.windows import HOUR_MS, MINUTE_MS

Background = Callable[[Coroutine[Any, Any, None]], object]

TIMEOUT_S = 10.0
ATTEMPT_MAX_MS = int(TIMEOUT_S * 1000)
ANSWER_BYTES_MAX = 64 * 1024
SUMMARY_MAX = 1_000  # PagerDuty accepts 1024 characters
PATIENCE_S = 20.0  # a shorter problem of the process is not reported by an alert
ALERTS_PER_HOUR_MAX = 6
ATTEMPTS_MAX = 30  # about a day
REASONS_MAX = 10
REASON_LENGTH_MAX = 300
HEARTBEAT_EVERY_MS = MINUTE_MS


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


def is_undecided(state: AlertState, tasks: Mapping[str, TaskCondition], running: Collection[str]) -> bool:
    """Whether to wait for runs under way: every task that is not ready is overdue and running.

    After a long downtime, or after one bad run, such a run often completes within seconds.
    """
    runs = [task.condition == "overdue" and name in running for name, task in tasks.items() if task.problem is not None]
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


def message(settings: Settings, alert: Alert) -> tuple[dict[str, str], bytes]:
    """The headers and the body to post to the receiver."""
    write = {"slack": _slack, "pagerduty": _pagerduty}.get(settings.alert_format, _generic)
    headers = {"content-type": "application/json"}
    if settings.alert_format == "json" and settings.alert_key is not None:
        headers["authorization"] = f"Bearer {settings.alert_key}"
    return headers, json.dumps(write(settings, alert)).encode()


def _generic(settings: Settings, alert: Alert) -> JSON:
    """`id` is the same for every attempt, so a receiver can recognize a duplicate."""
    return {
        "event": "ready" if alert.ready else "not_ready",
        "id": f"{settings.alert_name}-{settings.instance}-{alert.at}",
        "service": settings.alert_name,
        "instance": settings.instance,
        "state": alert.state,
        "reasons": [*alert.reasons],
        "at": alert.at,
        "version": __version__,
    }


def _slack(settings: Settings, alert: Alert) -> JSON:
    icon = ":large_green_circle:" if alert.ready else ":red_circle:"
    lines = [f"{icon} {_sentence(settings, alert)}", *(f"• {reason}" for reason in alert.reasons)]
    text = "\n".join(lines)
    return {"text": text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")}


def _pagerduty(settings: Settings, alert: Alert) -> JSON:
    """One incident per instance: the `resolve` event closes the incident that `trigger` opened."""
    event: dict[str, JSON] = {
        "routing_key": settings.alert_key,
        "event_action": "resolve" if alert.ready else "trigger",
        "dedup_key": f"{settings.alert_name}-{settings.instance}",
    }
    if not alert.ready:
        summary = ": ".join([_sentence(settings, alert), *alert.reasons[:1]])
        event["payload"] = {
            "summary": summary[:SUMMARY_MAX],
            "source": f"{settings.alert_name} {settings.instance}",
            "severity": "critical",
            "timestamp": datetime.fromtimestamp(alert.at / 1000, UTC).isoformat(),
            "component": "scheduler",
            "custom_details": {"state": alert.state, "reasons": [*alert.reasons], "version": __version__},
        }
    return event


def _sentence(settings: Settings, alert: Alert) -> str:
    state = "ready again" if alert.ready else f"not ready ({alert.state})"
    return f"{settings.alert_name} {settings.instance} is {state}"


async def exchange(
    fetch: Fetch, url: str, *, method: str = "GET", headers: Mapping[str, str] | None = None, body: bytes | None = None
) -> str | None:
    """Make one call. Returns why it failed, without the URL, which is a secret; None if it succeeded."""
    try:
        response = await fetch(
            url, method=method, headers=headers, body=body, timeout_s=TIMEOUT_S, body_max=ANSWER_BYTES_MAX
        )
    except FetchError as error:
        return f"{type(error).__name__}: {str(error).rpartition(': ')[2]}"
    except RunStopped as stopped:  # Cloudflare: this invocation has no subrequests left
        return str(stopped)
    return None if 200 <= response.status < 300 else f"the receiver answered {response.status}"


@dataclass(eq=False, repr=False)
class AlertSender:
    """Sends the alerts of one record, one at a time. `save` stores the record.

    `on_sent` is called when the attempts that were due have ended.
    """

    env: SchedulerEnv
    own: SchedulerRecord
    spawn: Background
    save: Callable[[], None] = lambda: None
    on_sent: Callable[[], None] = lambda: None
    sending: bool = field(default=False, init=False)
    url: str | None = field(init=False)  # None: no alerts

    def __post_init__(self) -> None:
        self.url = self.env.settings.alert_url

    def observe(self, health: Health) -> None:
        masked = replace(health, reasons=[self.env.mask(reason) for reason in health.reasons])
        self._set(observed(self.own.alert, masked, self.env.clock.now()))

    def send(self) -> None:
        """Send the alert that is due, in the background."""
        if self.url is not None and not self.sending and due(self.own.alert, self.env.clock.now()) is not None:
            self.sending = True
            self.spawn(self._send_all(self.url))

    async def _send_all(self, url: str) -> None:
        try:
            while (alert := due(self.own.alert, self.env.clock.now())) is not None:
                await self._send(url, alert)
        finally:
            self.sending = False
        self.on_sent()

    async def _send(self, url: str, alert: Alert) -> None:
        logger = self.env.logger
        self._set(attempted(self.own.alert, alert, self.env.clock.now()))
        headers, body = message(self.env.settings, alert)
        problem = await exchange(self.env.fetch, url, method="POST", headers=headers, body=body)
        fields: dict[str, JSON] = {"ready": alert.ready, "at": alert.at, "attempts": alert.attempts + 1}
        if problem is None:
            self._set(delivered(self.own.alert, alert))
            logger.info("alert.sent", **fields)
        elif alert.attempts + 1 >= ATTEMPTS_MAX:
            self._set(delivered(self.own.alert, alert))
            fix = "check TOCSIN_ALERT_URL and TOCSIN_ALERT_KEY; Tocsin will send the next change"
            logger.error("alert.abandoned", **fields, reason=problem, fix=fix)
        elif alert.attempts == 0:  # log only the first failure
            logger.warning("alert.send_failed", **fields, reason=problem)

    def _set(self, state: AlertState) -> None:
        if state != self.own.alert:
            self.own.alert = state
            self.save()


@dataclass(eq=False, repr=False)
class TaskAlerts(AlertSender):
    """The alerts about the tasks of one scheduler, and its heartbeats. `running` has the tasks that are running now."""

    facts: Callable[[], Mapping[str, TaskFacts]] = field(kw_only=True)
    running: Collection[str] = field(kw_only=True)

    def check(self) -> None:
        """Check the health of the tasks, and send the alert that is due."""
        if self.url is None:
            return
        tasks = self._tasks()
        if not is_undecided(self.own.alert, tasks, self.running):
            self.observe(tasks_health(tasks.values()))  # `ProcessAlerts` reports problems of the process itself
        self.send()

    def ring_at(self) -> int | None:
        """When the alarm must ring for an alert; None if it need not."""
        if self.url is None:
            return None
        state, now = self.own.alert, self.env.clock.now()
        if self.sending and state.pending is not None:  # it waits for the attempt under way
            try_at = max(state.pending.try_at, now + ATTEMPT_MAX_MS)
            state = replace(state, pending=replace(state.pending, try_at=try_at))
        return ring_at(state, self.facts().values(), now)

    def _tasks(self) -> dict[str, TaskCondition]:
        """The health of each task, and the problems that request jobs reported."""
        now = self.env.clock.now()
        tasks = {name: task_health(facts, now) for name, facts in self.facts().items()}
        return tasks | {sentence: found_problem(sentence) for sentence in self.own.problems_at(now)}

    def send_heartbeat(self) -> None:
        """Send a heartbeat if the service is ready and the last one was long enough ago."""
        url, now = self.env.settings.heartbeat_url, self.env.clock.now()
        if url is None or not heartbeat_due(self.own.heartbeat, now) or not tasks_health(self._tasks().values()).ready:
            return
        self._set_heartbeat(replace(self.own.heartbeat, sent_at=now))
        self.spawn(self._send_heartbeat(url))

    async def _send_heartbeat(self, url: str) -> None:
        problem = await exchange(self.env.fetch, url)
        if (problem is not None) == self.own.heartbeat.failed:
            return
        self._set_heartbeat(replace(self.own.heartbeat, failed=problem is not None))
        if problem is None:
            self.env.logger.info("heartbeat.recovered")
        else:
            self.env.logger.warning("heartbeat.failed", reason=problem, fix="check TOCSIN_HEARTBEAT_URL")

    def _set_heartbeat(self, heartbeat: HeartbeatState) -> None:
        self.own.heartbeat = heartbeat
        self.save()


class ProcessAlerts(AlertSender):
    """The alerts of one process; its record is not stored."""

    def __init__(self, env: SchedulerEnv) -> None:
        super().__init__(env, SchedulerRecord(), self._spawn)
        self._background: set[asyncio.Task[None]] = set()
        self._broken_since_s: float | None = None

    def check(self, snapshot: HealthSnapshot) -> None:
        """Check the health of the process, and send the alert that is due."""
        health = None if self.url is None else self._health(snapshot)
        if health is None:
            return
        if health.ready or health.state == "broken":  # the object reports problems of tasks
            self.observe(health)
        self.send()

    def _health(self, snapshot: HealthSnapshot) -> Health | None:
        """The health of the process; None while a problem may still go away."""
        now, now_s = self.env.clock.now(), self.env.clock.monotonic()
        problems = process_problems(snapshot, now)
        if not problems:
            self._broken_since_s = None
            return health_of(snapshot, now)
        if self._broken_since_s is None:
            self._broken_since_s = now_s
        if now_s - self._broken_since_s < PATIENCE_S:
            return None
        return Health(False, "broken", problems, [])

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
