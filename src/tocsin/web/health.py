"""Is the process alive, and does it do its work? `/healthz` and `/readyz`.

Readiness is decided from a snapshot that needs no answer of the scheduler: see `HealthSnapshot`.
"""

from starlette.requests import Request
from starlette.types import ASGIApp

from tocsin.errors import RequestRefused
from tocsin.scheduler.readiness import reasons_not_ready
from tocsin.shapes.responses import Alive, Readiness
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
        reasons = reasons_not_ready(await self._deps.health(), self._deps.clock.now())
        if reasons:
            sentence = f"Not ready: {'; '.join(reasons)}."
            raise RequestRefused(
                503, "not_ready", sentence, retryable=True, headers=NO_STORE, ready=False, reasons=reasons
            )
        return json_response(Readiness(ready=True, reasons=[]).to_json(), headers=NO_STORE)
