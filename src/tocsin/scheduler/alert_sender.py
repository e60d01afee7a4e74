"""Sends alerts when readiness changes, and heartbeats while the service is ready. `alerts.py` makes the decisions.

Everything is sent in the background: no run and no alarm waits for a receiver or fails because of one. The state of a
receiver is stored before each attempt, so a process that dies here neither forgets an alert nor repeats a delivered
one. An exchange with a receiver is bounded in time and size, and follows no redirect. Receivers of alerts take generic
JSON, Slack's, or PagerDuty's Events API v2.

Emits `alert.sent`, `alert.send_failed`, `alert.given_up`, `heartbeat.failed`, `heartbeat.recovered`.
"""

import json
from collections.abc import Callable, Collection, Coroutine, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from holdfast.types import JSON, Storage
from tocsin import __version__
from tocsin.errors import FetchError, RunStopped
from tocsin.fetch import Fetch
from tocsin.scheduler import alerts
from tocsin.scheduler.alerts import Alert, AlertState, HeartbeatState
from tocsin.scheduler.config import AlertTarget, SchedulerEnv
from tocsin.scheduler.health import TaskFacts, TaskHealth, found_problem, task_health, tasks_health
from tocsin.scheduler.state import SchedulerState
from tocsin.scheduler.types import Health

Background = Callable[[Coroutine[Any, Any, None]], None]

TIMEOUT_S = 10.0
ATTEMPT_MAX_MS = int(TIMEOUT_S * 1000)
ANSWER_BYTES_MAX = 64 * 1024
SUMMARY_MAX = 1_000  # PagerDuty accepts 1024 characters


@dataclass(frozen=True, slots=True)
class AlertMessage:
    """The headers and the body of a POST."""

    headers: dict[str, str] = field(repr=False)
    body: bytes = field(repr=False)


def message(target: AlertTarget, alert: Alert, instance: str) -> AlertMessage:
    """Build the message to post to the target's URL."""
    write = {"slack": _slack, "pagerduty": _pagerduty}.get(target.format, _generic)
    headers = {"content-type": "application/json"}
    if target.format == "json" and target.key is not None:
        headers["authorization"] = f"Bearer {target.key}"
    return AlertMessage(headers, json.dumps(write(target, alert, instance)).encode())


def _generic(target: AlertTarget, alert: Alert, instance: str) -> JSON:
    """`id` is the same for every attempt, so a receiver can recognise a duplicate."""
    return {
        "event": "ready" if alert.ready else "not_ready",
        "id": f"{target.name}-{instance}-{alert.at}",
        "service": target.name,
        "instance": instance,
        "state": alert.state,
        "reasons": [*alert.reasons],
        "at": alert.at,
        "version": __version__,
    }


def _slack(target: AlertTarget, alert: Alert, instance: str) -> JSON:
    icon = ":large_green_circle:" if alert.ready else ":red_circle:"
    lines = [f"{icon} {_sentence(target, alert, instance)}", *(f"• {reason}" for reason in alert.reasons)]
    text = "\n".join(lines)
    return {"text": text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")}


def _pagerduty(target: AlertTarget, alert: Alert, instance: str) -> JSON:
    """One incident per instance: the `resolve` event closes the incident that `trigger` opened."""
    event: dict[str, JSON] = {
        "routing_key": target.key,
        "event_action": "resolve" if alert.ready else "trigger",
        "dedup_key": f"{target.name}-{instance}",
    }
    if not alert.ready:
        summary = ": ".join([_sentence(target, alert, instance), *alert.reasons[:1]])
        event["payload"] = {
            "summary": summary[:SUMMARY_MAX],
            "source": f"{target.name} {instance}",
            "severity": "critical",
            "timestamp": datetime.fromtimestamp(alert.at / 1000, UTC).isoformat(),
            "component": "scheduler",
            "custom_details": {"state": alert.state, "reasons": [*alert.reasons], "version": __version__},
        }
    return event


def _sentence(target: AlertTarget, alert: Alert, instance: str) -> str:
    state = "ready again" if alert.ready else f"not ready ({alert.state})"
    return f"{target.name} {instance} is {state}"


async def post_alert(fetch: Fetch, target: AlertTarget, alert: Alert, instance: str) -> str | None:
    """Post an alert. Returns why the receiver did not accept it; None if it did."""
    post = message(target, alert, instance)
    return await exchange(fetch, target.url, method="POST", headers=post.headers, body=post.body)


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


class AlertSender:
    """The alerts and heartbeats of one scheduler. `on_sent` is called when the attempts that were due have ended."""

    def __init__(
        self,
        env: SchedulerEnv,
        storage: Storage,
        state: SchedulerState,
        *,
        facts: Callable[[], Mapping[str, TaskFacts]],
        running: Collection[str],
        spawn: Background,
        on_sent: Callable[[], None],
    ) -> None:
        self._env = env
        self._target, self._heartbeat_url = env.config.alert_target, env.config.heartbeat_url
        self._storage = storage
        self._state = state
        self._facts = facts
        self._running = running  # the tasks that are running now; the scheduler updates it
        self._spawn = spawn
        self._on_sent = on_sent
        self._sending = False

    def look(self) -> None:
        """Check the health of the tasks, and send the alert that is due."""
        if self._target is None:
            return
        tasks = self._tasks()
        if not alerts.is_undecided(self._state.own.alert, tasks, self._running):
            health, now = self._health(tasks), self._env.clock.now()
            self._keep(alerts.observed(self._state.own.alert, health, now))
        self._send_due(self._target)

    def beat(self) -> None:
        """Send a heartbeat if the service is ready and the last one was long enough ago."""
        url, now = self._heartbeat_url, self._env.clock.now()
        if (
            url is None
            or not alerts.heartbeat_due(self._state.own.heartbeat, now)
            or not self._health(self._tasks()).ready
        ):
            return
        self._keep_heartbeat(replace(self._state.own.heartbeat, sent_at=now))
        self._spawn(self._send_heartbeat(url))

    def ring_at(self) -> int | None:
        """When the alarm must ring for an alert; None if it need not."""
        if self._target is None:
            return None
        state, now = self._state.own.alert, self._env.clock.now()
        if self._sending and state.pending is not None:  # it waits for the attempt under way
            try_at = max(state.pending.try_at, now + ATTEMPT_MAX_MS)
            state = replace(state, pending=replace(state.pending, try_at=try_at))
        return alerts.ring_at(state, self._facts().values(), now)

    def _tasks(self) -> dict[str, TaskHealth]:
        tasks = {name: task_health(facts) for name, facts in self._facts().items()}
        found = self._state.own.problems_at(self._env.clock.now())
        return tasks | {sentence: found_problem(sentence) for sentence in found}

    def _health(self, tasks: Mapping[str, TaskHealth]) -> Health:
        """The health of the tasks only: `ProcessAlerts` reports problems of the process itself."""
        health = tasks_health(tasks.values())
        return replace(health, reasons=[self._env.mask(reason) for reason in health.reasons])

    def _send_due(self, target: AlertTarget) -> None:
        if not self._sending and alerts.due(self._state.own.alert, self._env.clock.now()) is not None:
            self._sending = True
            self._spawn(self._send_all(target))

    async def _send_all(self, target: AlertTarget) -> None:
        try:
            while (alert := alerts.due(self._state.own.alert, self._env.clock.now())) is not None:
                await self._send(target, alert)
        finally:
            self._sending = False
        self._on_sent()

    async def _send(self, target: AlertTarget, alert: Alert) -> None:
        self._keep(alerts.attempted(self._state.own.alert, alert, self._env.clock.now()))
        problem = await post_alert(self._env.fetch, target, alert, self._env.config.instance)
        fields: dict[str, JSON] = {"ready": alert.ready, "at": alert.at, "attempts": alert.attempts + 1}
        if problem is None:
            self._keep(alerts.delivered(self._state.own.alert, alert))
            self._env.logger.info("alert.sent", **fields)
        elif alert.attempts + 1 >= alerts.ATTEMPTS_MAX:
            self._keep(alerts.delivered(self._state.own.alert, alert))
            fix = "check TOCSIN_ALERT_URL and TOCSIN_ALERT_KEY; Tocsin will send the next change"
            self._env.logger.error("alert.given_up", **fields, reason=problem, fix=fix)
        elif alert.attempts == 0:  # log only the first failure
            self._env.logger.warning("alert.send_failed", **fields, reason=problem)

    async def _send_heartbeat(self, url: str) -> None:
        problem = await exchange(self._env.fetch, url)
        if (problem is not None) == self._state.own.heartbeat.failed:
            return
        self._keep_heartbeat(replace(self._state.own.heartbeat, failed=problem is not None))
        if problem is None:
            self._env.logger.info("heartbeat.recovered")
        else:
            self._env.logger.warning("heartbeat.failed", reason=problem, fix="check TOCSIN_HEARTBEAT_URL")

    def _keep(self, state: AlertState) -> None:
        if state != self._state.own.alert:
            self._state.own.alert = state
            self._state.save(self._storage)

    def _keep_heartbeat(self, state: HeartbeatState) -> None:
        self._state.own.heartbeat = state
        self._state.save(self._storage)
