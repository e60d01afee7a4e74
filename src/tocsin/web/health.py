"""`/healthz` and `/readyz`: whether the process is alive, and whether the service is ready.

On one machine, readiness is decided from a snapshot that needs no answer from the scheduler: see `HealthSnapshot`.
On Cloudflare, the scheduler is asked.
"""

from starlette.requests import Request
from starlette.types import ASGIApp

from tocsin.errors import RequestRefused
from tocsin.scheduler.service_health import health_of
from tocsin.shapes.responses import Alive
from tocsin.web.deps import WebDeps
from tocsin.web.respond import json_response

NO_STORE = {"Cache-Control": "no-store"}


class HealthRoutes:
    """The two questions that a supervisor asks."""

    def __init__(self, deps: WebDeps) -> None:
        self._deps = deps

    async def alive(self, _request: Request) -> ASGIApp:
        return json_response(Alive(ok=True, version=self._deps.version).to_json(), headers=NO_STORE)

    async def ready(self, _request: Request) -> ASGIApp:
        health = health_of(await self._deps.health(), self._deps.clock.now())
        if not health.ready:
            sentence = f"Not ready: {'; '.join(health.reasons)}."
            raise RequestRefused(
                503, "not_ready", sentence, retryable=True, headers=NO_STORE, **health.to_json()
            )
        return json_response(health.to_json(), headers=NO_STORE)
