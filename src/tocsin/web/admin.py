"""Routes for operators, supervisors and the site's cron: they show the scheduler and act on it.

`/api/admin/scheduler` has the object's methods over HTTP, for callers with a key. A viewer's key may only read. An
operator's key may act, and every action is in the audit log. `/api/competition/cron` is for clients that still call it
(docs/decisions.md). `/healthz` says whether the process is alive, `/readyz` whether the
service is ready: on one machine from a snapshot that needs no answer from the scheduler, see `HealthSnapshot`.

Emits `refusals.not_counted` when the database does not answer; the status is then shown without refusals. Emits
`auth.forbidden` when a viewer tries to act.
"""

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from holdfast.errors import BindingMissing, StoreError, UsageError
from tocsin.errors import RequestRefused
from tocsin.scheduler.audit import KEPT_MAX, audited
from tocsin.scheduler.health import health_of
from tocsin.scheduler.history import DAYS_KEPT
from tocsin.scheduler.types import (
    OUTCOMES,
    TRIGGERS,
    AuditEntry,
    Paused,
    Refreshed,
    RefreshResult,
    Reloaded,
    StatusCondition,
)
from tocsin.settings import AccessKey
from tocsin.shape import FreeForm, SnakeShape
from tocsin.swaps.codes import Code
from tocsin.swaps.submit import RECHECK
from tocsin.swaps.trades import refused_since
from tocsin.swaps.types import SubmitAnswer
from tocsin.swaps.walk import list_ages
from tocsin.text import parse_duration, utc_time
from tocsin.web.deps import ProofReader, WebDeps
from tocsin.web.events import EventStreams
from tocsin.web.limits import networks_of
from tocsin.web.response import NO_STORE, PRIVATE, json_response
from tocsin.web.route import Alive, CronDescription, require_key

DAY_MS = 86_400_000
RUNS_PAGE_MAX = 2_000  # runs in one answer
COUNTED_AGE_S = 2.0
ACTIONS = (
    "action=pause&for=2h, action=pause&until=UNIX_MS, action=resume,"
    " action=refresh&task=tenero (another task, or all), action=recheck&txid=0x…, or action=reload"
)
REASON_MAX = 200  # characters
AUDIT_MAX = sum(KEPT_MAX.values())

TARGET_MAX = 80  # characters of a caller's text, which may be anything
DEPLOYMENT = (
    "On Cloudflare a change of settings is a deployment: run `wrangler secret put NAME` for a secret, and deploy again"
    " for everything else."
)

AnyShape = TypeVar("AnyShape", bound=SnakeShape)

# The parameters of each action. A parameter of another action is refused: the caller must have meant something else.
PARAMETERS: Mapping[str, frozenset[str]] = {
    "pause": frozenset({"until", "for"}),
    "resume": frozenset(),
    "refresh": frozenset({"task"}),
    "recheck": frozenset({"txid"}),
    "reload": frozenset(),
}
ACTION_PARAMETERS = frozenset[str]().union(*PARAMETERS.values())

TASK_PATTERN = "^[a-z][a-z0-9_]{0,39}$"
DEFAULT_TASK = "tenero"  # as on the site
SITE_TASKS = {"competition": "sweep"}  # the site's name of the task, and ours

_NUMBER = re.compile(r"[0-9]{1,15}")


class AdminRoutes:
    """`on_refresh` is called when a refresh has ended."""

    def __init__(self, deps: WebDeps, on_refresh: Callable[[], None]) -> None:
        self._deps = deps
        self._on_refresh = on_refresh
        self._streams = EventStreams(deps)
        self._counted = _Counted(-COUNTED_AGE_S)
        self._proof = ProofReader(deps)

    async def show(self, request: Request) -> ASGIApp:
        key = self._viewer(request)
        deps = self._deps
        status = await deps.scheduler().status_json()
        condition = StatusCondition.from_json(status)
        health = health_of(await deps.health(), deps.clock.now(), condition)
        counted = await self._count()
        # This is a `SchedulerOverview`, written without building a `Status` that would be taken apart again.
        overview: FreeForm = {
            "name": deps.instance,
            "status": status,
            "health": health.to_json(),
            "refusals": counted.refusals,
            "lists": counted.lists,
            "complete": (await self._proof.read(condition.tasks)).to_json(),
            "caller": {"name": key.name, "role": key.role},
            "simulator": deps.simulator,
        }
        return json_response(overview, headers=PRIVATE)

    async def act(self, request: Request) -> ASGIApp:
        key, action, deps = self._operator(request), self._action(request), self._deps
        client, reason = networks_of(request.scope)[0], _reason(request)
        entry = AuditEntry(key.name, "operator", client, action.name, action.target, reason)
        return _respond(await audited(deps.scheduler, deps.logger, entry, action.work, detail_of))

    def _action(self, request: Request) -> "_Action":
        """The action of the request. Refuses an unclear request before anything is recorded."""
        name, deps = request.query_params.get("action"), self._deps
        own = PARAMETERS.get(name or "", frozenset())
        foreign = next((each for each in request.query_params if each in ACTION_PARAMETERS - own), None)
        if name in PARAMETERS and foreign is not None:
            raise RequestRefused(400, "bad_request", f"{name} takes no {foreign}. Give one of these: {ACTIONS}.")
        match name:
            case "pause":
                until = self._until(request)
                return _Action(name, None, _refused_as("bad_until", lambda: deps.scheduler().pause_until(until)))
            case "resume":
                return _Action(name, None, lambda: deps.scheduler().resume())
            case "refresh":
                task = _task(request) or DEFAULT_TASK
                return _Action(name, task[:TARGET_MAX], _refused_as("bad_task", lambda: self._refresh(task)))
            case "recheck":
                txid = request.query_params.get("txid", "")
                return _Action(name, txid[:TARGET_MAX], lambda: self._recheck(txid))
            case "reload":
                if deps.reload is None:
                    raise RequestRefused(409, "reload_is_a_deployment", DEPLOYMENT)
                return _Action(name, None, deps.reload)
            case _:
                raise RequestRefused(400, "unknown_action", f"Give one of these: {ACTIONS}.")

    async def audit(self, request: Request) -> ASGIApp:
        self._viewer(request)
        return _respond(await self._deps.scheduler().audit(_limit(request, 50, AUDIT_MAX)))

    async def runs(self, request: Request) -> ASGIApp:
        self._viewer(request)
        task = _task(request)
        limit = _limit(request, 50, RUNS_PAGE_MAX)
        outcome = request.query_params.get("outcome") or None
        if outcome is not None and outcome not in {"running", *OUTCOMES}:
            raise RequestRefused(400, "bad_outcome", f"outcome is one of running, {', '.join(OUTCOMES)}.")
        trigger = request.query_params.get("trigger") or None
        if trigger is not None and trigger not in TRIGGERS:
            raise RequestRefused(400, "bad_trigger", f"trigger is one of {', '.join(TRIGGERS)}.")
        since, until = (_optional_number(request, name, 1778700600000) for name in ("since", "until"))
        before = _optional_number(request, "cursor", 51)
        scheduler = self._deps.scheduler()
        ask = _refused_as("bad_task", lambda: scheduler.runs(task, limit, outcome, since, before, trigger, until))
        return _respond(await ask())

    async def run(self, request: Request) -> ASGIApp:
        self._viewer(request)
        number = request.path_params["number"]
        if _NUMBER.fullmatch(number) is None:
            raise RequestRefused(400, "bad_number", "A run has a number, such as 17.")
        try:
            return _respond(await self._deps.scheduler().run(int(number)))
        except UsageError as error:
            raise RequestRefused(404, "unknown_run", str(error)) from error

    async def days(self, request: Request) -> ASGIApp:
        self._viewer(request)
        return _respond(await self._deps.scheduler().days(_limit(request, 30, DAYS_KEPT)))

    async def events(self, request: Request) -> ASGIApp:
        key = self._viewer(request)
        last = request.headers.get("last-event-id", "")
        after = int(last) if _NUMBER.fullmatch(last) else 0
        headers = {**PRIVATE, "X-Accel-Buffering": "no"}
        if request.method == "HEAD":
            return Response(headers=headers, media_type="text/event-stream")
        return self._streams.open(after, lambda: key in self._deps.keys.admin, headers)

    async def _refresh(self, task: str) -> Refreshed:
        scheduler = self._deps.scheduler()
        try:
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
            raise RequestRefused(400, "bad_until", "Give either for=2h or until=1778700600000.")
        if "until" in query:
            return _number(request, "until", example=1778700600000)
        try:
            return self._deps.clock.now() + parse_duration(query["for"])
        except ValueError as error:
            raise RequestRefused(400, "bad_until", f"for={query['for'][:40]} {error}, such as for=2h.") from None

    async def _count(self) -> "_Counted":
        """The counts from the database; none when it does not answer, because the status matters most just then."""
        deps, now_s = self._deps, self._deps.clock.monotonic()
        if now_s - self._counted.at_s < COUNTED_AGE_S:
            return self._counted
        try:
            refusals = await refused_since(deps.db, deps.clock.now() - DAY_MS)
            lists = await list_ages(deps.db, deps.rules.allowlist.contracts)
        except (StoreError, BindingMissing) as error:
            deps.logger.warning("refusals.not_counted", error=str(error))
            return _Counted(now_s)
        self._counted = _Counted(now_s, {**refusals}, {**lists})
        return self._counted

    def _viewer(self, request: Request) -> AccessKey:
        return require_viewer(request, self._deps)

    def _operator(self, request: Request) -> AccessKey:
        return require_operator(request, self._deps)


def require_viewer(request: Request, deps: WebDeps) -> AccessKey:
    """The key, if it may read."""
    return require_key(request, "X-Admin-Key", deps.keys.admin, "ADMIN_KEY")


def require_operator(request: Request, deps: WebDeps) -> AccessKey:
    """The key, if it may act."""
    key = require_viewer(request, deps)
    if key.role != "operator":
        deps.logger.warning("auth.forbidden", key=key.name, client=networks_of(request.scope)[0])
        sentence = f"The key {key.name} is read-only: this action needs a key from ADMIN_KEY."
        raise RequestRefused(403, "read_only_key", sentence)
    return key


@dataclass(frozen=True, slots=True)
class _Action:
    """An operator's action, with its target: a task or a transaction."""

    name: str
    target: str | None
    work: Callable[[], Awaitable[SnakeShape]]


@dataclass(frozen=True, slots=True)
class _Counted:
    """The counts from the database at a (monotonic) time."""

    at_s: float
    refusals: FreeForm | None = None
    lists: FreeForm | None = None


def _respond(shape: SnakeShape) -> Response:
    return json_response(shape.to_json(), headers=PRIVATE)


def detail_of(done: SnakeShape) -> str | None:
    """The result of an action in a few words, for the audit log."""
    match done:
        case Paused():
            return f"until {utc_time(done.paused_until)}"
        case Refreshed():
            results = done.result if done.task == "all" else {done.task: done.result}
            runs = {task: RefreshResult.from_json(result).run for task, result in results.items()}
            return ", ".join(f"run {run.id} of {task}: {run.outcome}" for task, run in runs.items())
        case SubmitAnswer():
            return "recorded" if done.trade is not None else str(done.code)
        case Reloaded():
            named = {"applied": done.applied, "needs a restart": done.needs_restart}
            return "; ".join(f"{what}: {', '.join(names) or 'nothing'}" for what, names in named.items())
        case _:
            return None


def _refused_as(code: str, ask: Callable[[], Awaitable[AnyShape]]) -> Callable[[], Awaitable[AnyShape]]:
    """Give a refusal this code: the object does not know which parameter its argument came from."""

    async def asked() -> AnyShape:
        try:
            return await ask()
        except UsageError as error:
            raise RequestRefused(400, code, str(error)) from error

    return asked


def _reason(request: Request) -> str | None:
    """Why an operator acts, in the operator's own words."""
    return checked_reason(request.query_params.get("reason", ""))


def checked_reason(text: str) -> str | None:
    reason = text.strip()
    if len(reason) > REASON_MAX or not reason.isprintable():
        raise RequestRefused(400, "bad_reason", f"reason is one line of at most {REASON_MAX} characters.")
    return reason or None


def _task(request: Request) -> str | None:
    """The task of the request. The scheduler refuses an unknown one, and names those that it has."""
    task = request.query_params.get("task") or None
    return None if task is None else SITE_TASKS.get(task, task)


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
        result = await audited(deps.scheduler, deps.logger, entry, lambda: deps.scheduler().refresh("sweep"), _detail)
        return json_response(result.to_json(), headers=NO_STORE)


def _detail(result: RefreshResult) -> str:
    return f"run {result.run.id} of sweep: {result.run.outcome}"


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
            raise RequestRefused(503, "not_ready", sentence, retryable=True, headers=NO_STORE, **health.to_json())
        return json_response(health.to_json(), headers=NO_STORE)
