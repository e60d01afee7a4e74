"""`/api/admin/scheduler`: the object's RPC over HTTP, for whoever has the admin key.

Emits `refusals.not_counted` when the database does not answer; the status is told without them.
"""

import re
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from tocsin.bindings import JSON
from tocsin.competition.trades import refused_since
from tocsin.errors import BindingMissing, RequestRefused, StoreError, UsageError
from tocsin.scheduler.state import RUNS_MAX
from tocsin.web.auth import require_key
from tocsin.web.deps import WebDeps
from tocsin.web.event_streams import EventStreams
from tocsin.web.respond import json_response

DAY_MS = 86_400_000
REFUSALS_AGE_S = 2.0
HEADERS = {"Cache-Control": "no-store", "X-Robots-Tag": "noindex"}
ACTIONS = "action=pause&until=UNIX_MS, action=resume, or action=refresh&task=tenero|sweep|all"

_TASK = re.compile(r"[a-z][a-z0-9_]{0,39}")
_NUMBER = re.compile(r"[0-9]{1,15}")


class AdminRoutes:
    """`on_refresh` is called when a refresh has ended."""

    def __init__(self, site: WebDeps, on_refresh: Callable[[], None]) -> None:
        self._site = site
        self._on_refresh = on_refresh
        self._streams = EventStreams(site)
        self._counted: tuple[float, dict[str, int]] | None = None  # refusals, and when that was

    async def show(self, request: Request) -> ASGIApp:
        self._authorise(request)
        status = await self._site.scheduler().status()
        return self._answer({"status": status, "refusals": await self._refusals()})

    async def act(self, request: Request) -> ASGIApp:
        self._authorise(request)
        match request.query_params.get("action"):
            case "pause":
                until = _number(request, "until", example=1778700600000)
                with _refused_as("bad_until"):
                    await self._site.scheduler().pause_until(until)
                return self._answer({"pausedUntil": until})
            case "resume":
                await self._site.scheduler().resume()
                return self._answer({"resumed": True})
            case "refresh":
                task = _task(request, "tenero, sweep or all")
                try:
                    with _refused_as("bad_task"):
                        result = await self._site.scheduler().refresh_now(task)
                finally:
                    self._on_refresh()
                return self._answer({"task": task, "result": result})
            case _:
                raise RequestRefused(400, "unknown_action", f"Say what to do: {ACTIONS}.")

    async def runs(self, request: Request) -> ASGIApp:
        self._authorise(request)
        task = _task(request, "tenero or sweep") if request.query_params.get("task") else None
        limit = _number(request, "limit", example=50) if "limit" in request.query_params else 50
        if not 1 <= limit <= RUNS_MAX:
            raise RequestRefused(400, "bad_limit", f"limit is 1 to {RUNS_MAX}.")
        with _refused_as("bad_task"):
            return self._answer(await self._site.scheduler().runs(task, limit))

    async def events(self, request: Request) -> ASGIApp:
        self._authorise(request)
        last = request.headers.get("last-event-id", "")
        after = int(last) if _NUMBER.fullmatch(last) else 0
        headers = {**HEADERS, "X-Accel-Buffering": "no"}
        if request.method == "HEAD":
            return Response(headers=headers, media_type="text/event-stream")
        return _Stream(self._streams.open(after), headers=headers, media_type="text/event-stream")

    async def _refusals(self) -> dict[str, int] | None:
        """Of the last day, by code; None without an answer: the status must show just then."""
        site, now = self._site, self._site.clock.monotonic()
        if self._counted is not None and now - self._counted[0] < REFUSALS_AGE_S:
            return self._counted[1]
        try:
            refusals = await refused_since(site.db, site.clock.now() - DAY_MS)
        except (StoreError, BindingMissing) as error:
            site.logger.warn("refusals.not_counted", error=str(error))
            return None
        self._counted = now, refusals
        return refusals

    def _authorise(self, request: Request) -> None:
        require_key(request, "X-Admin-Key", self._site.keys.admin, "ADMIN_KEY")

    def _answer(self, fields: dict[str, Any]) -> Response:
        value: JSON = {"name": self._site.instance, **fields}
        return json_response(value, headers=HEADERS)


class _Stream(StreamingResponse):
    """Ends what it streams when its client goes, not whenever that is next tidied away."""

    body_iterator: AsyncGenerator[bytes, None]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self.body_iterator.aclose()


@contextmanager
def _refused_as(code: str) -> Iterator[None]:
    """What the object refuses is wrong with this parameter, which it does not know by name."""
    try:
        yield
    except UsageError as error:
        raise RequestRefused(400, code, str(error)) from error


def _task(request: Request, such_as: str) -> str:
    task = request.query_params.get("task", "")
    if _TASK.fullmatch(task) is None:
        raise RequestRefused(400, "bad_task", f"task is the name of a task: {such_as}.")
    return task


def _number(request: Request, name: str, example: int) -> int:
    text = request.query_params.get(name, "")
    if _NUMBER.fullmatch(text) is None:
        raise RequestRefused(400, f"bad_{name}", f"{name} is a whole number, such as {name}={example}.")
    return int(text)
