"""Is the process alive, and is it doing its work? `/healthz` and `/readyz`.

Readiness is judged from a snapshot that needs no answer of the scheduler: see `HealthSnapshot`.
"""

from starlette.requests import Request
from starlette.types import ASGIApp

from tocsin.errors import RequestRefused
from tocsin.web.deps import HealthSnapshot, WebDeps
from tocsin.web.respond import json_response

LOOP_TICK_AGE_MAX_S = 5.0
ALARM_LATE_MAX_MS = 60_000

NO_STORE = {"Cache-Control": "no-store"}


def not_ready(snapshot: HealthSnapshot, now: int) -> list[str]:
    """Everything that is wrong, as sentences; empty when nothing is."""
    found = []
    if (snapshot.loop_tick_age_s or 0) > LOOP_TICK_AGE_MAX_S:
        found.append(f"the event loop has been stuck for {snapshot.loop_tick_age_s:.0f} s")
    if snapshot.store_error is not None:
        found.append(f"the store cannot be written: {snapshot.store_error}")
    if snapshot.alarm_at is None:
        found.append("no alarm is set: nothing will run by itself")
    elif now - snapshot.alarm_at > ALARM_LATE_MAX_MS:
        found.append(f"the alarm is {(now - snapshot.alarm_at) / 1000:.0f} s late")
    return [*found, *snapshot.reasons]


class HealthRoutes:
    """The two questions that a supervisor asks."""

    def __init__(self, site: WebDeps) -> None:
        self._site = site

    async def alive(self, _request: Request) -> ASGIApp:
        return json_response({"ok": True, "version": self._site.version}, headers=NO_STORE)

    async def ready(self, _request: Request) -> ASGIApp:
        reasons = not_ready(await self._site.health(), self._site.clock.now())
        if reasons:
            sentence = f"Not ready: {'; '.join(reasons)}."
            raise RequestRefused(
                503, "not_ready", sentence, retryable=True, headers=NO_STORE, ready=False, reasons=reasons
            )
        return json_response({"ready": True, "reasons": []}, headers=NO_STORE)
