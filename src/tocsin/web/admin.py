"""`/api/admin/scheduler`: the object's methods over HTTP, for operators with the admin key.

Emits `refusals.not_counted` when the database does not answer; the status is shown without them.
"""

import re
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from tocsin.competition.codes import Code
from tocsin.competition.request_jobs import RECHECK
from tocsin.competition.trades import refused_since
from tocsin.competition.walk import list_ages
from tocsin.durations import parse_duration
from tocsin.errors import BindingMissing, RequestRefused, StoreError, UsageError
from tocsin.scheduler.run_history import DAYS_KEPT
from tocsin.scheduler.service_health import health_of
from tocsin.shapes.base import FreeForm, SnakeShape
from tocsin.shapes.competition import SubmitAnswer
from tocsin.shapes.scheduler import OUTCOMES, Refreshed, StatusCondition
from tocsin.web.auth import require_key
from tocsin.web.deps import WebDeps
from tocsin.web.event_streams import EventStreams
from tocsin.web.respond import json_response

DAY_MS = 86_400_000
RUNS_PAGE_MAX = 2_000  # runs in one answer
COUNTED_AGE_S = 2.0
HEADERS = {"Cache-Control": "no-store", "X-Robots-Tag": "noindex"}
ACTIONS = (
    "action=pause&for=2h, action=pause&until=UNIX_MS, action=resume,"
    " action=refresh&task=tenero (sweep, or all), or action=recheck&txid=0x…"
)

_TASK = re.compile(r"[a-z][a-z0-9_]{0,39}")
_NUMBER = re.compile(r"[0-9]{1,15}")


class AdminRoutes:
    """`on_refresh` is called when a refresh has ended."""

    def __init__(self, deps: WebDeps, on_refresh: Callable[[], None]) -> None:
        self._deps = deps
        self._on_refresh = on_refresh
        self._streams = EventStreams(deps)
        self._counted = _Counted(-COUNTED_AGE_S)

    async def show(self, request: Request) -> ASGIApp:
        self._authorise(request)
        deps = self._deps
        status = await deps.scheduler().status_json()
        health = health_of(await deps.health(), deps.clock.now(), StatusCondition.from_json(status))
        counted = await self._count()
        # A `SchedulerOverview`. A `Status` would be made of the status only to be taken apart again.
        overview: FreeForm = {
            "name": deps.instance,
            "status": status,
            "health": health.to_json(),
            "refusals": counted.refusals,
            "lists": counted.lists,
        }
        return json_response(overview, headers=HEADERS)

    async def act(self, request: Request) -> ASGIApp:
        self._authorise(request)
        match request.query_params.get("action"):
            case "pause":
                with _refused_as("bad_until"):
                    return _respond(await self._deps.scheduler().pause_until(self._until(request)))
            case "resume":
                return _respond(await self._deps.scheduler().resume())
            case "refresh":
                return _respond(await self._refresh(_task(request, "tenero, sweep or all")))
            case "recheck":
                return _respond(await self._recheck(request.query_params.get("txid", "")))
            case _:
                raise RequestRefused(400, "unknown_action", f"Give one of these: {ACTIONS}.")

    async def runs(self, request: Request) -> ASGIApp:
        self._authorise(request)
        task = _task(request, "tenero or sweep") if request.query_params.get("task") else None
        limit = _limit(request, 50, RUNS_PAGE_MAX)
        outcome = request.query_params.get("outcome") or None
        if outcome is not None and outcome not in {"running", *OUTCOMES}:
            raise RequestRefused(400, "bad_outcome", f"outcome is one of running, {', '.join(OUTCOMES)}.")
        since, before = (
            _optional_number(request, "since", 1778700600000),
            _optional_number(request, "cursor", 51),
        )
        with _refused_as("bad_task"):
            return _respond(await self._deps.scheduler().runs(task, limit, outcome, since, before))

    async def days(self, request: Request) -> ASGIApp:
        self._authorise(request)
        return _respond(await self._deps.scheduler().days(_limit(request, 30, DAYS_KEPT)))

    async def events(self, request: Request) -> ASGIApp:
        self._authorise(request)
        last = request.headers.get("last-event-id", "")
        after = int(last) if _NUMBER.fullmatch(last) else 0
        headers = {**HEADERS, "X-Accel-Buffering": "no"}
        if request.method == "HEAD":
            return Response(headers=headers, media_type="text/event-stream")
        return _Stream(self._streams.open(after), headers=headers, media_type="text/event-stream")

    async def _refresh(self, task: str) -> Refreshed:
        scheduler = self._deps.scheduler()
        try:
            with _refused_as("bad_task"):
                if task == "all":
                    results = await scheduler.refresh_all()
                    every = {name: result.to_json() for name, result in results.items()}
                    return Refreshed(self._deps.instance, task, {**every})
                return Refreshed(self._deps.instance, task, (await scheduler.refresh(task)).to_json())
        finally:
            self._on_refresh()

    async def _recheck(self, txid: str) -> SubmitAnswer:
        answer = SubmitAnswer.from_json(await self._deps.scheduler().run_job(RECHECK, {"txid": txid}))
        if answer.code == Code.MALFORMED_TXID:
            raise RequestRefused(400, "bad_txid", f"txid: {answer.reason}")
        self._on_refresh()
        return answer

    def _until(self, request: Request) -> int:
        """The end of a pause: a time, or a duration from now by this machine's clock."""
        query = request.query_params
        if ("for" in query) == ("until" in query):
            raise RequestRefused(400, "bad_until", "Give one of for=2h and until=1778700600000.")
        if "until" in query:
            return _number(request, "until", example=1778700600000)
        try:
            return self._deps.clock.now() + parse_duration(query["for"])
        except ValueError as error:
            raise RequestRefused(
                400, "bad_until", f"for={query['for'][:40]} {error}, such as for=2h."
            ) from None

    async def _count(self) -> "_Counted":
        """What the database knows; nothing when it does not answer: the status matters most just then."""
        deps, now_s = self._deps, self._deps.clock.monotonic()
        if now_s - self._counted.at_s < COUNTED_AGE_S:
            return self._counted
        try:
            refusals = await refused_since(deps.db, deps.clock.now() - DAY_MS)
            lists = await list_ages(deps.db, deps.rules.allowlist.contracts)
        except (StoreError, BindingMissing) as error:
            deps.logger.warn("refusals.not_counted", error=str(error))
            return _Counted(now_s)
        self._counted = _Counted(now_s, {**refusals}, {**lists})
        return self._counted

    def _authorise(self, request: Request) -> None:
        require_key(request, "X-Admin-Key", self._deps.keys.admin, "ADMIN_KEY")


@dataclass(frozen=True, slots=True)
class _Counted:
    """What the database knew at a (monotonic) time."""

    at_s: float
    refusals: FreeForm | None = None
    lists: FreeForm | None = None


class _Stream(StreamingResponse):
    """Closes its generator when the client disconnects, not whenever it is garbage-collected."""

    body_iterator: AsyncGenerator[bytes, None]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self.body_iterator.aclose()


def _respond(shape: SnakeShape) -> Response:
    return json_response(shape.to_json(), headers=HEADERS)


@contextmanager
def _refused_as(code: str) -> Iterator[None]:
    """The object does not know which parameter its argument came from; the code names it."""
    try:
        yield
    except UsageError as error:
        raise RequestRefused(400, code, str(error)) from error


def _task(request: Request, examples: str) -> str:
    task = request.query_params.get("task", "")
    if _TASK.fullmatch(task) is None:
        raise RequestRefused(400, "bad_task", f"task is the name of a task: {examples}.")
    return task


def _limit(request: Request, default: int, most: int) -> int:
    limit = _optional_number(request, "limit", default)
    if limit is not None and not 1 <= limit <= most:
        raise RequestRefused(400, "bad_limit", f"limit is 1 to {most}.")
    return default if limit is None else limit


def _optional_number(request: Request, name: str, example: int) -> int | None:
    return _number(request, name, example) if name in request.query_params else None


def _number(request: Request, name: str, example: int) -> int:
    text = request.query_params.get(name, "")
    if _NUMBER.fullmatch(text) is None:
        raise RequestRefused(400, f"bad_{name}", f"{name} is a whole number, such as {name}={example}.")
    return int(text)
