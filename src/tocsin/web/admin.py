"""Routes for operators, supervisors and the site's cron: they show the scheduler and act on it.

`/api/admin/scheduler` has the object's methods over HTTP, for callers with a key. A viewer's key may only read. An
operator's key may act, and every action is in the audit log. `/api/competition/cron` is for clients that still call it
(docs/decisions.md). `/healthz` says whether the process is alive, `/readyz` whether the
service is ready: on one machine from a snapshot that needs no answer from the scheduler, see `HealthSnapshot`.

Emits `refusals.not_counted` when the database does not answer; the status is then shown without refusals.
"""

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from holdfast.errors import BindingMissing, StoreError, UsageError
from tocsin import __version__
from tocsin.errors import RequestRefused
from tocsin.scheduler.audit import KEPT_MAX, audited
from tocsin.scheduler.health import health_of
from tocsin.scheduler.history import DAYS_KEPT
from tocsin.scheduler.types import (
    NO_TASK,
    OUTCOMES,
    TRIGGERS,
    AuditEntry,
    AuditList,
    Caller,
    DayList,
    Health,
    Paused,
    Refreshed,
    RefreshResult,
    Reloaded,
    Resumed,
    RunDetail,
    RunFilter,
    RunList,
    SchedulerEvent,
    SchedulerOverview,
)
from tocsin.shape import FreeForm, Shape, SnakeShape
from tocsin.stacks import TXID_PATTERN
from tocsin.swaps.position import list_ages
from tocsin.swaps.rules import Code
from tocsin.swaps.submit import RECHECK
from tocsin.swaps.trades import refused_since
from tocsin.swaps.types import SubmitAnswer
from tocsin.text import DURATION_PATTERN, parse_duration
from tocsin.web.cache import SharedResults
from tocsin.web.competition import ProofReader
from tocsin.web.deps import WebDeps
from tocsin.web.events import EventStreams
from tocsin.web.limits import networks_of
from tocsin.web.parameters import LAST_EVENT, Parameter, one_of, text, whole
from tocsin.web.response import NO_STORE, PRIVATE
from tocsin.web.route import admin_keys, get, key_of, post

DAY_MS = 86_400_000
RUNS_PAGE_MAX = 2_000  # runs in one answer
COUNTS_AGE_S = 2.0
ACTIONS = (
    "action=pause&for=2h, action=pause&until=UNIX_MS, action=resume,"
    " action=refresh&task=tenero (another task, or all), action=recheck&txid=0x…, or action=reload;"
    " pause and resume take task=sweep for one task"
)
REASON_MAX = 200  # characters
AUDIT_MAX = sum(KEPT_MAX.values())

TARGET_MAX = 80  # characters of a caller's text, which may be anything
DEPLOYMENT = (
    "On Cloudflare a change of settings is a deployment: run `wrangler secret put NAME` for a secret, and deploy again"
    " for everything else."
)

# The parameters of each action. A parameter of another action is refused: the caller must have meant something else.
PARAMETERS: Mapping[str, frozenset[str]] = {
    "pause": frozenset({"until", "for", "task"}),
    "resume": frozenset({"task"}),
    "refresh": frozenset({"task"}),
    "recheck": frozenset({"txid"}),
    "reload": frozenset(),
}

TASK_PATTERN = "^[a-z][a-z0-9_]{0,39}$"
DEFAULT_TASK = "tenero"  # as on the site
SITE_TASKS = {"competition": "sweep"}  # the site's name of the task, and ours

_AT = 1778700600000
_NUMBER = re.compile(r"[0-9]{1,15}")


def _action(_name: str, sent: str) -> str:
    if sent not in PARAMETERS:
        raise RequestRefused(400, "unknown_action", f"Give one of these: {ACTIONS}.")
    return sent


def _duration(_name: str, sent: str) -> int:
    try:
        return parse_duration(sent)
    except ValueError as error:
        raise RequestRefused(400, "bad_until", f"for={sent[:40]} {error}, such as for=2h.") from None


def _run_number(_name: str, sent: str) -> int:
    if _NUMBER.fullmatch(sent) is None:
        raise RequestRefused(400, "bad_number", "A run has a number, such as 17.")
    return int(sent)


def checked_reason(sent: str) -> str | None:
    """Why an operator acts, in the operator's own words."""
    reason = sent.strip()
    if len(reason) > REASON_MAX or not reason.isprintable():
        raise RequestRefused(400, "bad_reason", f"reason is one line of at most {REASON_MAX} characters.")
    return reason or None


def _task(description: str, pattern: str = TASK_PATTERN) -> Parameter:
    """A task. The scheduler refuses an unknown one, and names those that it has."""
    schema: FreeForm = {"type": "string", "pattern": pattern}
    return Parameter(description, schema, lambda _name, sent: SITE_TASKS.get(sent, sent))


_LENGTH = Parameter(
    "pause: for how long, such as 90s, 15m, 2h, 1d",
    {"type": "string", "pattern": DURATION_PATTERN},
    _duration,
    "for",
    strict=True,
)
_ACTED_ON = _task(f"a task's name; refresh: or all, {DEFAULT_TASK} by default; pause and resume: all by default")
_REASON = Parameter(
    "why, for the audit log", {"type": "string", "maxLength": REASON_MAX}, lambda _name, sent: checked_reason(sent)
)
_RUN = Parameter(
    "the run's `id`", {"type": "string", "pattern": "^[0-9]{1,15}$"}, _run_number, place="path", example="17"
)


def _check_given(action: str, until: int | None, length_ms: int | None, task: str | None, txid: str) -> None:
    """Refuse an action with the parameter of another one, or a pause without one end."""
    given = {"until": until, "for": length_ms, "task": task, "txid": txid or None}
    own = PARAMETERS[action]
    foreign = next((name for name, value in given.items() if value is not None and name not in own), None)
    if foreign is not None:
        raise RequestRefused(400, "bad_request", f"{action} takes no {foreign}. Give one of these: {ACTIONS}.")
    if action == "pause" and (until is None) == (length_ms is None):
        raise RequestRefused(400, "bad_until", f"Give either for=2h or until={_AT}.")


@dataclass(frozen=True, slots=True)
class Alive(Shape):
    """The process answers: `ok` is always true."""

    ok: bool
    version: str


@dataclass(frozen=True, slots=True)
class CronDescription(Shape):
    """What `POST /api/competition/cron` does, and what to use instead."""

    route: str
    does: str
    needed: bool
    why: str
    instead: str


_SCHEDULER = "/api/admin/scheduler"
_CRON = "/api/competition/cron"


class AdminRoutes:
    """Also the site's cron, and what a supervisor asks. `on_refresh` is called when a refresh has ended."""

    def __init__(self, deps: WebDeps, on_refresh: Callable[[], None]) -> None:
        self._deps = deps
        self._on_refresh = on_refresh
        self._streams = EventStreams(deps)
        self._counts: SharedResults[None, tuple[dict[str, int], dict[str, int | None]]] = SharedResults(
            deps, COUNTS_AGE_S
        )
        self._proof = ProofReader(deps)

    @get(
        _SCHEDULER,
        "getScheduler",
        "the status; `refusals` by code, null while the database does not answer",
        access="viewer",
    )
    async def show(self, request: Request) -> SchedulerOverview:
        """Everything the scheduler knows about itself, and what was refused in the last 24 hours."""
        deps, key = self._deps, key_of(request)
        status = await deps.scheduler().status()
        snapshot = replace(await deps.health(), status=status)
        refusals, lists = await self._count()
        return SchedulerOverview(
            name=deps.settings.instance,
            status=status,
            health=health_of(snapshot, deps.clock.now()),
            refusals=refusals,
            lists=lists,
            complete=await self._proof.read(status.tasks),
            caller=Caller(key.name, "operator" if key.role == "operator" else "viewer"),
            simulator=deps.process.simulator,
        )

    @post(
        _SCHEDULER,
        "controlScheduler",
        "what was done",
        *(Paused, Resumed, Refreshed, SubmitAnswer, Reloaded),
        example=Paused("v1", 1778707800000),
        errors={
            409: "reload_is_a_deployment: on Cloudflare, settings change with a deployment",
            422: "settings_refused: the new settings are invalid; the old ones stay in force",
        },
        description=f"One of: {ACTIONS}. The audit log records each action before it starts and when it ends.",
        access="operator",
    )
    async def act(
        self,
        request: Request,
        action: Annotated[str, Parameter("what to do", {"enum": list(PARAMETERS)}, _action)],
        until: Annotated[int | None, whole("pause: until when, unix milliseconds", _AT)] = None,
        length_ms: Annotated[int | None, _LENGTH] = None,
        task: Annotated[str | None, _ACTED_ON] = None,
        txid: Annotated[str, text("recheck: a transaction", pattern=TXID_PATTERN)] = "",
        reason: Annotated[str | None, _REASON] = None,
    ) -> SnakeShape:
        """Pause, resume, refresh, recheck or reload."""
        _check_given(action, until, length_ms, task, txid)
        deps, key = self._deps, key_of(request)
        target = task and task[:TARGET_MAX]
        by = AuditEntry(key.name, "operator", networks_of(request.scope)[0], action, target, reason)
        work: Callable[[], Awaitable[SnakeShape]]
        match action:
            case "pause":
                end = until if length_ms is None else deps.clock.now() + length_ms
                assert end is not None
                with _refused_as("bad_until"):
                    return await deps.scheduler().pause_until(end, task, by)
            case "resume":
                with _refused_as("bad_task"):
                    return await deps.scheduler().resume(task, by)
            case "refresh":
                target = task or DEFAULT_TASK
                work = partial(self._refresh, target)
            case "recheck":
                target, work = txid, partial(self._recheck, txid)
            case _:
                if deps.process.reload is None:
                    raise RequestRefused(409, "reload_is_a_deployment", DEPLOYMENT)
                target, work = None, deps.process.reload
        entry = replace(by, target=target and target[:TARGET_MAX])
        return await audited(deps.scheduler, deps.logger, entry, work, detail_of)

    @get(f"{_SCHEDULER}/audit", "listActions", "the audit log", access="viewer")
    async def audit(
        self, _request: Request, limit: Annotated[int, whole("50 by default", 50, AUDIT_MAX, 1)] = 50
    ) -> AuditList:
        """The latest actions of operators, newest first: who, what, why, and how it ended."""
        return await self._deps.scheduler().audit(limit)

    @get(f"{_SCHEDULER}/runs", "listRuns", "runs", access="viewer")
    async def runs(
        self,
        _request: Request,
        task: Annotated[str | None, _task("only runs of this task", f"^$|{TASK_PATTERN}")] = None,
        outcome: Annotated[
            str | None, one_of(("running", *OUTCOMES), "only runs with this outcome", "bad_outcome")
        ] = None,
        trigger: Annotated[str | None, one_of(TRIGGERS, "only runs with this trigger", "bad_trigger")] = None,
        since: Annotated[int | None, whole("only runs that started at or after it, unix milliseconds", _AT)] = None,
        until: Annotated[int | None, whole("only runs that started at or before it, unix milliseconds", _AT)] = None,
        limit: Annotated[int, whole("50 by default", 50, RUNS_PAGE_MAX, 1)] = 50,
        cursor: Annotated[int | None, whole("`next` of the previous page", 51)] = None,
    ) -> RunList:
        """The runs of the last 30 days, newest first.

        `next` is the `cursor` of the next page. With a filter, a page may be short and still have a `next`.
        """
        wanted = RunFilter(task, limit, outcome, since, cursor, trigger, until)
        with _refused_as("bad_task"):
            return await self._deps.scheduler().runs(wanted)

    @get(
        f"{_SCHEDULER}/runs/{{number}}",
        "getRun",
        "the run",
        errors={404: "unknown_run: it never began, or its record has expired"},
        access="viewer",
    )
    async def run(self, _request: Request, number: Annotated[int, _RUN]) -> RunDetail:
        """One run: how it was started, what it did, how it ended, and its log lines.

        The first 10 lines and the last 20 are kept. They are stored when a run ends.
        """
        try:
            return await self._deps.scheduler().run(number)
        except UsageError as error:
            raise RequestRefused(404, "unknown_run", str(error)) from error

    @get(f"{_SCHEDULER}/days", "listDays", "days", access="viewer")
    async def days(
        self, _request: Request, limit: Annotated[int, whole("30 by default", 50, DAYS_KEPT, 1)] = 30
    ) -> DayList:
        """The totals of each day and task, newest first."""
        return await self._deps.scheduler().days(limit)

    @get(
        f"{_SCHEDULER}/events",
        "streamEvents",
        "a stream that does not end",
        SchedulerEvent,
        media_type="text/event-stream",
        errors={429: "too_many_streams: close one"},
        access="viewer",
    )
    async def events(self, request: Request, after: Annotated[int | None, LAST_EVENT] = None) -> ASGIApp:
        """Server-sent events: runs, alarms, pauses, changes of budgets.

        Each event's `data` is a `SchedulerEvent`. While nothing happens, a comment is sent every 15 s.
        """
        key, headers = key_of(request), {**PRIVATE, "X-Accel-Buffering": "no"}
        if request.method == "HEAD":
            return Response(headers=headers, media_type="text/event-stream")
        return self._streams.open(after or 0, lambda: key in admin_keys(self._deps.settings), headers)

    @get(_CRON, "describeCron", "a description", store=False)
    async def describe(self, _request: Request) -> CronDescription:
        """What the POST does, and why it is not needed."""
        return CronDescription(
            route=_CRON,
            does="POST with the header X-Cron-Secret runs the competition sweep now, or joins the one that is"
            " running, and returns its counters.",
            needed=False,
            why="The scheduler sweeps on its own; this only makes it sweep now.",
            instead="POST /api/admin/scheduler?action=refresh&task=sweep",
        )

    @post(
        _CRON,
        "sweepNow",
        "the sweep's counters",
        errors={400: "bad_request: this instance of the scheduler is not the active one"},
        access="cron",
    )
    async def sweep(self, request: Request) -> RefreshResult:
        """Run the competition sweep now, or join the one that is running."""
        deps, key = self._deps, key_of(request)
        entry = AuditEntry(key.name, "cron", networks_of(request.scope)[0], "refresh", "sweep")
        return await audited(deps.scheduler, deps.logger, entry, lambda: deps.scheduler().refresh("sweep"), detail_of)

    @get("/healthz", "getHealth", "it is", store=False)
    async def alive(self, _request: Request) -> Alive:
        """Whether the process is alive."""
        return Alive(ok=True, version=__version__)

    @get(
        "/readyz",
        "getReadiness",
        "it is ready",
        example=Health(ready=True, state="ready", reasons=[], notes=[]),
        errors={
            503: "not_ready, with `reasons`: a task is overdue, disabled or failing, no alarm is set, the event loop is"
            " stuck, or the store cannot be written"
        },
    )
    async def ready(self, _request: Request) -> Health:
        """Whether the service is ready."""
        health = health_of(await self._deps.health(), self._deps.clock.now())
        if not health.ready:
            sentence = f"Not ready: {'. '.join(health.reasons)}."
            raise RequestRefused(503, "not_ready", sentence, retryable=True, headers=NO_STORE, **health.to_json())
        return health

    async def _refresh(self, task: str) -> Refreshed:
        scheduler = self._deps.scheduler()
        try:
            with _refused_as("bad_task"):
                if task == "all":
                    results = await scheduler.refresh_all()
                    every = {name: result.to_json() for name, result in results.items()}
                    return Refreshed(self._deps.settings.instance, task, {**every})
                return Refreshed(self._deps.settings.instance, task, (await scheduler.refresh(task)).to_json())
        finally:
            self._on_refresh()

    async def _recheck(self, txid: str) -> SubmitAnswer:
        answer = SubmitAnswer.from_json(await self._deps.scheduler().run_job(RECHECK, {"txid": txid}))
        if answer.code == Code.MALFORMED_TXID:
            raise RequestRefused(400, "bad_txid", f"txid: {answer.reason}")
        self._on_refresh()
        return answer

    async def _count(self) -> tuple[dict[str, int] | None, dict[str, int | None] | None]:
        """Refusals by code and the ages of lists; none without the database: the status matters most just then."""
        try:
            return await self._counts.get(None, self._read_counts)
        except (StoreError, BindingMissing) as error:
            self._deps.logger.warning("refusals.not_counted", error=str(error))
            return None, None

    async def _read_counts(self) -> tuple[dict[str, int], dict[str, int | None]]:
        deps = self._deps
        refusals = await refused_since(deps.db, deps.clock.now() - DAY_MS)
        return refusals, await list_ages(deps.db, deps.rules.allowlist.contracts)


def detail_of(done: SnakeShape) -> str | None:
    """The result of an action in a few words, for the audit log."""
    match done:
        case Refreshed():
            results = done.result if done.task == "all" else {done.task: done.result}
            runs = {task: RefreshResult.from_json(result).run for task, result in results.items()}
            return ", ".join(f"run {run.id} of {task}: {run.outcome}" for task, run in runs.items())
        case RefreshResult():
            return f"run {done.run.id} of sweep: {done.run.outcome}"
        case SubmitAnswer():
            return "recorded" if done.trade is not None else str(done.code)
        case Reloaded():
            named = {"applied": done.applied, "needs a restart": done.needs_restart}
            return "; ".join(f"{what}: {', '.join(names) or 'nothing'}" for what, names in named.items())
        case _:
            return None


@contextmanager
def _refused_as(code: str) -> Iterator[None]:
    """Give a refusal this code: the object does not know which parameter its argument came from."""
    try:
        yield
    except UsageError as error:
        sentence = str(error)
        raise RequestRefused(400, "bad_task" if sentence.startswith(NO_TASK) else code, sentence) from error
