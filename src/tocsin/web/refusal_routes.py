"""`/api/admin/competition/refusals`: refusals, newest first, for callers with a key."""

from starlette.requests import Request
from starlette.types import ASGIApp

from tocsin.competition.refusal_list import PAGE_DEFAULT, PAGE_MAX, refusals
from tocsin.web.auth import require_key
from tocsin.web.competition_routes import page_limit
from tocsin.web.deps import WebDeps
from tocsin.web.respond import json_response

HEADERS = {"Cache-Control": "no-store", "X-Robots-Tag": "noindex"}


class RefusalRoutes:
    """Reads the database."""

    def __init__(self, deps: WebDeps) -> None:
        self._deps = deps

    async def show(self, request: Request) -> ASGIApp:
        require_key(request, "X-Admin-Key", self._deps.keys.admin, "ADMIN_KEY")
        query = request.query_params
        found = await refusals(
            self._deps.db,
            limit=page_limit(query, PAGE_DEFAULT, PAGE_MAX),
            code=query.get("code") or None,
            sender=query.get("sender") or None,
            after=query.get("cursor") or None,
        )
        return json_response(found.to_json(), headers=HEADERS)
