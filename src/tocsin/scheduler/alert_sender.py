"""Sends alerts when readiness changes, and heartbeats while the service is ready. `alerts.py` makes the decisions.

Everything is sent in the background: no run and no alarm waits for a receiver or fails because of one. The state of a
receiver is stored before each attempt, so a process that dies here neither forgets an alert nor repeats a delivered
one.

Emits `alert.sent`, `alert.send_failed`, `alert.given_up`, `heartbeat.failed`, `heartbeat.recovered`.
"""

from collections.abc import Callable, Collection, Coroutine, Mapping
from dataclasses import replace
from typing import Any

from tocsin.bindings import JSON, Storage
from tocsin.scheduler import alerts
from tocsin.scheduler.alert_delivery import TIMEOUT_S, exchange, post_alert
from tocsin.scheduler.alert_message import AlertTarget
from tocsin.scheduler.alerts import Alert, AlertState, HeartbeatState
from tocsin.scheduler.config import SchedulerEnv
from tocsin.scheduler.service_health import TaskFacts, TaskHealth, task_health, tasks_health
from tocsin.scheduler.state import ALERT_KEY, HEARTBEAT_KEY, SchedulerState
from tocsin.shapes.scheduler import Health

ATTEMPT_MAX_MS = int(TIMEOUT_S * 1000)

Background = Callable[[Coroutine[Any, Any, None]], None]


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
        if not alerts.is_undecided(self._state.alert, tasks, self._running):
            health, now = self._health(tasks), self._env.clock.now()
            self._keep(alerts.observed(self._state.alert, health, now))
        self._send_due(self._target)

    def beat(self) -> None:
        """Send a heartbeat if the service is ready and the last one was long enough ago."""
        url, now = self._heartbeat_url, self._env.clock.now()
        if (
            url is None
            or not alerts.heartbeat_due(self._state.heartbeat, now)
            or not self._health(self._tasks()).ready
        ):
            return
        self._keep_heartbeat(replace(self._state.heartbeat, sent_at=now))
        self._spawn(self._send_heartbeat(url))

    def ring_at(self) -> int | None:
        """When the alarm must ring for an alert; None if it need not."""
        if self._target is None:
            return None
        state, now = self._state.alert, self._env.clock.now()
        if self._sending and state.pending is not None:  # it waits for the attempt under way
            try_at = max(state.pending.try_at, now + ATTEMPT_MAX_MS)
            state = replace(state, pending=replace(state.pending, try_at=try_at))
        return alerts.ring_at(state, self._facts().values(), now)

    def _tasks(self) -> dict[str, TaskHealth]:
        return {name: task_health(facts) for name, facts in self._facts().items()}

    def _health(self, tasks: Mapping[str, TaskHealth]) -> Health:
        """The health of the tasks only: `process_alerts.py` reports problems of the process itself."""
        health = tasks_health(tasks.values())
        return replace(health, reasons=[self._env.mask(reason) for reason in health.reasons])

    def _send_due(self, target: AlertTarget) -> None:
        if not self._sending and alerts.due(self._state.alert, self._env.clock.now()) is not None:
            self._sending = True
            self._spawn(self._send_all(target))

    async def _send_all(self, target: AlertTarget) -> None:
        try:
            while (alert := alerts.due(self._state.alert, self._env.clock.now())) is not None:
                await self._send(target, alert)
        finally:
            self._sending = False
        self._on_sent()

    async def _send(self, target: AlertTarget, alert: Alert) -> None:
        self._keep(alerts.attempted(self._state.alert, alert, self._env.clock.now()))
        problem = await post_alert(self._env.fetch, target, alert, self._env.config.instance)
        fields: dict[str, JSON] = {"ready": alert.ready, "at": alert.at, "attempts": alert.attempts + 1}
        if problem is None:
            self._keep(alerts.delivered(self._state.alert, alert))
            self._env.logger.info("alert.sent", **fields)
        elif alert.attempts + 1 >= alerts.ATTEMPTS_MAX:
            self._keep(alerts.delivered(self._state.alert, alert))
            fix = "check TOCSIN_ALERT_URL and TOCSIN_ALERT_KEY; Tocsin will send the next change"
            self._env.logger.error("alert.given_up", **fields, reason=problem, fix=fix)
        elif alert.attempts == 0:  # log only the first failure
            self._env.logger.warn("alert.send_failed", **fields, reason=problem)

    async def _send_heartbeat(self, url: str) -> None:
        problem = await exchange(self._env.fetch, url)
        if (problem is not None) == self._state.heartbeat.failed:
            return
        self._keep_heartbeat(replace(self._state.heartbeat, failed=problem is not None))
        if problem is None:
            self._env.logger.info("heartbeat.recovered")
        else:
            self._env.logger.warn("heartbeat.failed", reason=problem, fix="check TOCSIN_HEARTBEAT_URL")

    def _keep(self, state: AlertState) -> None:
        if state != self._state.alert:
            self._state.alert = state
            self._storage.put(ALERT_KEY, state.to_json())

    def _keep_heartbeat(self, state: HeartbeatState) -> None:
        self._state.heartbeat = state
        self._storage.put(HEARTBEAT_KEY, state.to_json())
