"""`POST /api/chainhook`: blocks that Hiro pushes. Answered when what they name is stored, not before."""

from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.types import ASGIApp

from tocsin.competition import chainhook
from tocsin.competition.request_jobs import RECEIVE, SETTLE
from tocsin.errors import RequestRefused, TocsinError, UsageError
from tocsin.web.auth import require_secret
from tocsin.web.body import json_body
from tocsin.web.deps import WebDeps
from tocsin.web.respond import json_response

BODY_MAX = 4 * 1024 * 1024


class ChainhookRoute:
    """A receiver that keeps its sender waiting for the database only, never for Hiro."""

    def __init__(self, site: WebDeps) -> None:
        self._site = site

    async def receive(self, request: Request) -> ASGIApp:
        require_secret(request, self._site.keys.chainhook, "CHAINHOOK_SECRET")
        try:
            push = chainhook.parse(await json_body(request))
        except UsageError as error:
            raise RequestRefused(422, "malformed_push", str(error)) from None
        counts = await self._site.scheduler().perform(RECEIVE, push.to_json())
        answer = json_response(counts, headers={"Cache-Control": "no-store"})
        if counts["queued"]:
            answer.background = BackgroundTask(self._settle)
        return answer

    async def _settle(self) -> None:
        """Look at it now. Should this fail, the next sweep finds the queue as it is."""
        try:
            await self._site.scheduler().perform(SETTLE, None)
        except TocsinError as error:
            self._site.logger.warn("queue.unsettled", reason=str(error))
