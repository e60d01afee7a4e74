"""Sends alerts about a process whose store, files or alarm do not work.

The object cannot send these, because it could not store that it sent them. The alert state is kept in memory, so a
restart may repeat an alert. The `ready` alert is sent only when the tasks are ready too, even if the object also sends
one. A stuck event loop cannot send anything; then the heartbeats stop.

Emits `alert.sent` and `alert.send_failed`.
"""

import asyncio
from collections.abc import Callable

from tocsin.bindings import JSON, Clock, Fetch, Logger
from tocsin.scheduler import alerts
from tocsin.scheduler.alert_delivery import post_alert
from tocsin.scheduler.alert_message import AlertTarget
from tocsin.scheduler.alerts import AlertState
from tocsin.scheduler.service_health import HealthSnapshot, health_of, process_problems
from tocsin.shapes.scheduler import Health

PATIENCE_S = 20.0  # a shorter problem is not reported


class ProcessAlerts:
    """The alerts of one process. `mask` removes the secrets from a text."""

    def __init__(
        self,
        target: AlertTarget,
        instance: str,
        *,
        fetch: Fetch,
        clock: Clock,
        logger: Logger,
        mask: Callable[[str], str] = str,
    ) -> None:
        self._target = target
        self._instance = instance
        self._fetch = fetch
        self._clock = clock
        self._logger = logger
        self._mask = mask
        self._state = AlertState()
        self._broken_since_s: float | None = None
        self._sending: asyncio.Task[None] | None = None

    def look(self, snapshot: HealthSnapshot) -> None:
        """Check the health of the process, and send the alert that is due."""
        health = self._health(snapshot)
        if health is None:
            return
        if health.ready or health.state == "broken":  # the object reports problems of tasks
            self._state = alerts.observed(self._state, health, self._clock.now())
        if self._sending is None and alerts.due(self._state, self._clock.now()) is not None:
            self._sending = asyncio.create_task(self._send_due())

    def _health(self, snapshot: HealthSnapshot) -> Health | None:
        """The health of the process; None while a problem may still go away."""
        now, now_s = self._clock.now(), self._clock.monotonic()
        problems = process_problems(snapshot, snapshot.status, now)
        if not problems:
            self._broken_since_s = None
            return health_of(snapshot, now)
        if self._broken_since_s is None:
            self._broken_since_s = now_s
        if now_s - self._broken_since_s < PATIENCE_S:
            return None
        return Health(False, "broken", [self._mask(problem) for problem in problems], [])

    async def _send_due(self) -> None:
        try:
            alert = alerts.due(self._state, self._clock.now())
            if alert is None:
                return
            self._state = alerts.attempted(self._state, alert, self._clock.now())
            problem = await post_alert(self._fetch, self._target, alert, self._instance)
            fields: dict[str, JSON] = {
                "ready": alert.ready,
                "at": alert.at,
                "attempts": alert.attempts + 1,
            }
            if problem is None:
                self._state = alerts.delivered(self._state, alert)
                self._logger.info("alert.sent", **fields)
            elif alert.attempts == 0:
                self._logger.warn("alert.send_failed", **fields, reason=problem)
        finally:
            self._sending = None
