"""`/api/competition/cron`, for clients that still call it.

docs/decisions/0002-keep-the-cron-route.md explains why it is kept.
"""

from starlette.requests import Request
from starlette.types import ASGIApp

from tocsin.scheduler.audited import audited
from tocsin.shapes.operators import AuditEntry
from tocsin.shapes.responses import CronDescription
from tocsin.shapes.scheduler import RefreshResult
from tocsin.web.auth import require_key
from tocsin.web.deps import WebDeps
from tocsin.web.request_limits import networks_of
from tocsin.web.respond import json_response


class CronRoutes:
    """A thin pass-through to the scheduler."""

    def __init__(self, deps: WebDeps) -> None:
        self._deps = deps

    async def describe(self, _request: Request) -> ASGIApp:
        description = CronDescription(
            route="/api/competition/cron",
            does="POST with the header X-Cron-Secret runs the competition sweep now, or joins the one that is"
            " running, and returns its counters.",
            needed=False,
            why="The scheduler sweeps on its own; this only makes it sweep now.",
            instead="POST /api/admin/scheduler?action=refresh&task=sweep",
        )
        return json_response(description.to_json())

    async def sweep(self, request: Request) -> ASGIApp:
        deps = self._deps
        key = require_key(request, "X-Cron-Secret", deps.keys.cron, "CRON_SECRET")
        entry = AuditEntry(key.name, "cron", networks_of(request.scope)[0], "refresh", "sweep")
        result = await audited(
            deps.scheduler, deps.logger, entry, lambda: deps.scheduler().refresh("sweep"), _detail
        )
        return json_response(result.to_json(), headers={"Cache-Control": "no-store"})


def _detail(result: RefreshResult) -> str:
    return f"run {result.run.id} of sweep: {result.run.outcome}"
