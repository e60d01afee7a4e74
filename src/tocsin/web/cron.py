"""`/api/competition/cron`, for whoever still pokes it.

Why it is kept: docs/decisions/0002-keep-the-cron-route.md.
"""

from starlette.requests import Request
from starlette.types import ASGIApp

from tocsin.web.auth import require_key
from tocsin.web.deps import WebDeps
from tocsin.web.respond import json_response


class CronRoutes:
    """A thin pass-through to the scheduler."""

    def __init__(self, site: WebDeps) -> None:
        self._site = site

    async def describe(self, _request: Request) -> ASGIApp:
        return json_response(
            {
                "route": "/api/competition/cron",
                "does": "POST with the header X-Cron-Secret runs the competition sweep now, or joins the one"
                " that is running, and answers its summary.",
                "needed": False,
                "why": "The scheduler sweeps by itself every 15 minutes; this asks it to do so now.",
                "instead": "POST /api/admin/scheduler?action=refresh&task=sweep",
            }
        )

    async def sweep(self, request: Request) -> ASGIApp:
        require_key(request, "X-Cron-Secret", self._site.keys.cron, "CRON_SECRET")
        summary = await self._site.scheduler().refresh_now("sweep")
        return json_response(summary, headers={"Cache-Control": "no-store"})
