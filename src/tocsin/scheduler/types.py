"""The shapes of the scheduler: runs, status, events, health, measures, days, log lines, and actions of operators."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, TypeAlias, get_args

from holdfast.types import Level
from tocsin.shape import FreeForm, Shape, without_nulls
from tocsin.upstream.answer import Failure
from tocsin.upstream.budget import BudgetStatus
from tocsin.upstream.lookups import LookupUse
from tocsin.upstream.windows import check_plausible

Trigger: TypeAlias = Literal["alarm", "refresh", "rerun"]
Outcome: TypeAlias = Literal["running", "ok", "partial", "limited", "failed", "stopped", "interrupted"]
Condition: TypeAlias = Literal["ok", "starting", "partial", "limited", "paused", "overdue", "failing", "disabled"]
ServiceState: TypeAlias = Literal[
    "ready", "starting", "partial", "limited", "paused", "overdue", "failing", "disabled", "broken"
]
AuditOutcome: TypeAlias = Literal["begun", "done", "refused", "failed"]

# Outcomes of runs that ended.
OUTCOMES: tuple[Outcome, ...] = ("ok", "partial", "limited", "failed", "stopped", "interrupted")
TRIGGERS: tuple[Trigger, ...] = get_args(Trigger)
CONDITIONS: tuple[Condition, ...] = get_args(Condition)
SERVICE_STATES: tuple[ServiceState, ...] = get_args(ServiceState)

EXPECTED_ERRORS = {answer.__name__ for answer in get_args(Failure)} | {
    "TaskFailed",
    "SliceExceeded",
    "Interrupted",
    "NoAnswer",
}
NO_TASK = "there is no task"  # how a refusal of an unknown task begins

RUN_BOUNDS_S = (0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
CALL_BOUNDS_S = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 8)  # an attempt ends after 8 s
LATENESS_BOUNDS_S = (0.01, 0.05, 0.1, 0.5, 1, 5, 15, 60, 300)


@dataclass(frozen=True, slots=True)
class RunError(Shape):
    """Why a run failed: `kind` is the class of the exception or of the upstream's answer, and `message` a sentence."""

    ALIASES: ClassVar = {"kind": "class"}

    kind: str
    message: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}"

    @property
    def cause(self) -> str:
        """The message; with the class of an exception that nobody expected, whose message may be no sentence."""
        return self.message if self.kind in EXPECTED_ERRORS else str(self)


@dataclass(frozen=True, slots=True)
class LastError(RunError):
    """The error of a task's last failed run, as in its record: its `kind` and `message`; a complete run clears it."""

    at: int


@dataclass(frozen=True, slots=True)
class RunRecord(Shape):
    """The stored record of a run. `error` explains why it failed, `reason` why another one is not complete.

    `result` has the task's own counters.
    """

    id: int
    task: str
    trigger: Trigger
    slot_at: int | None
    missed_slots: int
    started_at: int
    ended_at: int | None = None
    duration_ms: int | None = None
    outcome: Outcome = "running"
    result: FreeForm = field(default_factory=dict)  # each task has its own counters
    error: RunError | None = None
    reason: str | None = None
    calls: int = 0  # to its upstream, retries included
    done: int = 0  # units of work out of `total`, as it reported them
    total: int = 0

    @classmethod
    def __post_deserialize__(cls, record: "RunRecord") -> "RunRecord":
        """Reject numbers that Tocsin cannot have stored."""
        check_plausible(record.started_at, record.duration_ms or 0, record.calls)
        return record

    def ended(self, outcome: Outcome, at: int, **known: Any) -> "RunRecord":  # noqa: ANN401 - fields of the record
        """The record of the same run after its end, with what is known then."""
        return replace(self, outcome=outcome, ended_at=at, duration_ms=at - self.started_at, **known)

    def summary(self) -> FreeForm:
        """The result with the run's own times, which are correct even if the run was cut off."""
        return {**self.result, "startedAt": self.started_at, "durationMs": self.duration_ms or 0}


@dataclass(frozen=True, slots=True)
class RunList(Shape):
    """Runs, newest first. `name` is the scheduler instance. `next` is where to continue, null at the end."""

    name: str | None
    runs: list[RunRecord]
    next: int | None = None


@dataclass(frozen=True, slots=True)
class RunFilter(Shape):
    """Which runs: of a task, with an outcome, started by a trigger from `since` to `until`, numbered below `before`."""

    task: str | None = None
    limit: int = 50
    outcome: str | None = None
    since: int | None = None
    before: int | None = None
    trigger: str | None = None
    until: int | None = None

    def fits(self, run: RunRecord) -> bool:
        return (
            self.task in {None, run.task}
            and self.outcome in {None, run.outcome}
            and self.trigger in {None, run.trigger}
            and (self.until is None or run.started_at <= self.until)
        )


@dataclass(frozen=True, slots=True)
class Progress(Shape):
    """A run under way; `run` is its number."""

    started_at: int
    done: int
    total: int
    run: int


@dataclass(frozen=True, slots=True)
class Problem(Shape):
    """What a request job found to be wrong, in a sentence, and when it last did."""

    at: int
    sentence: str


@dataclass(frozen=True, slots=True)
class TaskStatus(Shape):
    """One task.

    `cadence_reason` explains the effective cadence, `cadence_why` the configured one. `last_success_at` is the end of
    its last complete run. `sentence` describes its state. `condition` is its health; `problem` explains why it makes
    the service not ready. `title` is its name for people. Of a job, `next_at` are the next times of its schedule.
    """

    enabled: bool
    upstream: str | None
    cadence_ms: int
    effective_cadence_ms: int
    cadence_reason: str
    cadence_why: str
    slice_ms: int
    next_due_at: int | None
    running: Progress | None
    last_success_at: int | None
    last_error: LastError | None
    missed_slots: int
    run_counts: dict[str, int]  # by outcome, since the first start
    overdue: bool
    failing: bool
    condition: Condition
    sentence: str
    problem: str | None
    overdue_after_ms: int = 0  # overdue after this long without a complete run, or two cadences if longer
    title: str = ""
    paused_until: int | None = None  # of this task alone; `Status.paused_until` is that of all
    next_at: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Status(Shape):
    """Everything the scheduler knows about itself.

    In JSON, each task's last run is `last<Task>RunAt` and `last<Task>Result`, as the site named them. `last_job_at` is
    when each request job last succeeded; `receive` is a Chainhook push.
    """

    MERGED: ClassVar = ("last_run_at", "last_result")
    PATTERNS: ClassVar = {
        "^last[A-Z].*RunAt$": {"type": ["integer", "null"]},
        "^last[A-Z].*Result$": {"type": ["object", "null"]},
    }

    name: str | None
    active: bool
    now: int
    next_alarm_at: int | None
    paused_until: int | None
    pause_max_ms: int
    consecutive_failures: dict[str, int]
    next_run_after: dict[str, int | None]
    tasks: dict[str, TaskStatus]
    budgets: dict[str, BudgetStatus]
    last_run_at: dict[str, int | None]
    last_result: dict[str, FreeForm | None]
    last_job_at: dict[str, int] = field(default_factory=dict)
    lookups: dict[str, LookupUse] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def __post_serialize__(self, json: dict[Any, Any]) -> dict[Any, Any]:
        del json["lastRunAt"], json["lastResult"]
        for task in self.tasks:
            json[run_at_name(task)] = self.last_run_at.get(task)
            json[result_name(task)] = self.last_result.get(task)
        return json

    @classmethod
    def __pre_deserialize__(cls, json: dict[Any, Any]) -> dict[Any, Any]:
        tasks = json.get("tasks") or {}
        return {
            **json,
            "lastRunAt": {task: json.get(run_at_name(task)) for task in tasks},
            "lastResult": {task: json.get(result_name(task)) for task in tasks},
        }


@dataclass(frozen=True, slots=True)
class TaskCondition:
    """A task's health: the part of a `TaskStatus` that determines that of the service."""

    condition: Condition
    sentence: str
    problem: str | None = None  # the sentence, if it makes the service not ready


def run_at_name(task: str) -> str:
    return f"last{task[:1].upper()}{task[1:]}RunAt"


def result_name(task: str) -> str:
    return f"last{task[:1].upper()}{task[1:]}Result"


@dataclass(frozen=True, slots=True)
class RefreshRun(Shape):
    """The run that a refresh started or joined. `error` explains why it failed, `reason` why it is not complete."""

    id: int
    outcome: Outcome
    error: RunError | None
    reason: str | None
    joined: bool
    paused_until: int | None


@dataclass(frozen=True, slots=True)
class RefreshResult(Shape):
    """The result of a refresh: in JSON the run's counters, and `run` next to them."""

    MERGED: ClassVar = ("summary",)

    summary: FreeForm
    run: RefreshRun

    def __post_serialize__(self, json: dict[Any, Any]) -> dict[Any, Any]:
        return {**json.pop("summary"), **json}

    @classmethod
    def __pre_deserialize__(cls, json: dict[Any, Any]) -> dict[Any, Any]:
        return {"run": json.get("run"), "summary": {name: value for name, value in json.items() if name != "run"}}


@dataclass(frozen=True, slots=True)
class SchedulerEvent(Shape):
    """One event of the stream: in JSON its fields are next to `seq`, `at` and `event`."""

    MERGED: ClassVar = ("fields",)

    seq: int
    at: int
    event: str
    fields: FreeForm = field(default_factory=dict)

    def __post_serialize__(self, json: dict[Any, Any]) -> dict[Any, Any]:
        fields = json.pop("fields")
        return {**json, **fields}

    @classmethod
    def __pre_deserialize__(cls, json: dict[Any, Any]) -> dict[Any, Any]:
        own = {name: json[name] for name in ("seq", "at", "event") if name in json}
        return {**own, "fields": {name: value for name, value in json.items() if name not in own}}


@dataclass(frozen=True, slots=True)
class EventBatch(Shape):
    """Events after a number, and the number to use in the next request."""

    events: list[SchedulerEvent]
    next: int


@dataclass(frozen=True, slots=True)
class Paused(Shape):
    """The answer to a pause; `task` is omitted if all tasks are paused."""

    name: str | None
    paused_until: int
    task: str | None = None

    def __post_serialize__(self, json: dict[Any, Any]) -> dict[Any, Any]:
        return without_nulls(json)


@dataclass(frozen=True, slots=True)
class Resumed(Shape):
    """The answer to a resume; `task` is omitted if every pause has ended."""

    name: str | None
    resumed: bool
    task: str | None = None

    def __post_serialize__(self, json: dict[Any, Any]) -> dict[Any, Any]:
        return without_nulls(json)


@dataclass(frozen=True, slots=True)
class Armed(Shape):
    """When the alarm rings next; null for an instance that is not active."""

    name: str | None
    next_alarm_at: int | None


@dataclass(frozen=True, slots=True)
class Refreshed(Shape):
    """The answer to a refresh: `result` is a `RefreshResult`, or one per task for `all`."""

    name: str | None
    task: str
    result: FreeForm


@dataclass(frozen=True, slots=True)
class Health(Shape):
    """The health of the service, in one word and in sentences.

    `reasons` explain why it is not ready, `notes` what else an operator should know.
    """

    ready: bool
    state: ServiceState
    reasons: list[str]
    notes: list[str]


@dataclass(frozen=True, slots=True)
class Alert(Shape):
    """An edge that is to be delivered. `at` is when it happened, `try_at` is the time of the next attempt."""

    ready: bool
    state: str
    reasons: list[str]
    at: int
    try_at: int
    attempts: int = 0


@dataclass(frozen=True, slots=True)
class AlertState(Shape):
    """The readiness sent last, the alert to send next, and the times of the alerts of the last hour."""

    sent_ready: bool = True
    pending: Alert | None = None
    sent_at: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class HeartbeatState(Shape):
    """When the last heartbeat was sent, and whether it failed."""

    sent_at: int | None = None
    failed: bool = False


@dataclass(slots=True)
class Histogram(Shape):
    """The number of durations up to each bound (seconds); the last count has the longer ones.

    Unlike other shapes it is mutable, because counting must be cheap.
    """

    bounds: list[float]
    counts: list[int] = field(default_factory=list)
    sum: float = 0.0

    def __post_init__(self) -> None:
        self.counts = self.counts or [0] * (len(self.bounds) + 1)

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(self.bounds, seconds)] += 1
        self.sum += seconds

    def has(self, bounds: Sequence[float]) -> bool:
        """Whether it uses these bounds; a histogram that another release stored may not."""
        return self.bounds == list(bounds) and len(self.counts) == len(bounds) + 1


@dataclass(slots=True)
class Measures(Shape):
    """What the scheduler has measured since its first start; stored, because an object is short-lived on Cloudflare.

    `run_seconds` has the durations of runs by task, `call_seconds` those of calls by upstream and class of answer,
    `alarm_lateness` how late the alarm rang.
    """

    run_seconds: dict[str, Histogram] = field(default_factory=dict)
    call_seconds: dict[str, dict[str, Histogram]] = field(default_factory=dict)
    alarm_lateness: Histogram = field(default_factory=lambda: Histogram([*LATENESS_BOUNDS_S]))

    @classmethod
    def __post_deserialize__(cls, stored: "Measures") -> "Measures":
        """Continue the stored counts, unless a release has changed the bounds."""
        calls = [found for kinds in stored.call_seconds.values() for found in kinds.values()]
        same = [
            stored.alarm_lateness.has(LATENESS_BOUNDS_S),
            *(found.has(RUN_BOUNDS_S) for found in stored.run_seconds.values()),
            *(found.has(CALL_BOUNDS_S) for found in calls),
        ]
        return stored if all(same) else cls()

    def run_ended(self, record: RunRecord) -> None:
        """Count a run. The duration of an interrupted run is not known."""
        if record.outcome != "interrupted":
            durations = self.run_seconds.setdefault(record.task, Histogram([*RUN_BOUNDS_S]))
            durations.add((record.duration_ms or 0) / 1000)

    def call_answered(self, upstream: str, kind: str, seconds: float) -> None:
        """Count one attempt of a call by the class of its answer."""
        kinds = self.call_seconds.setdefault(upstream, {})
        kinds.setdefault(kind, Histogram([*CALL_BOUNDS_S])).add(seconds)

    def alarm_rang(self, late_ms: int) -> None:
        self.alarm_lateness.add(max(0, late_ms) / 1000)


@dataclass(frozen=True, slots=True)
class MeasuredStatus(Shape):
    """The status and the measures of one instant, from one call to the object."""

    status: Status
    measures: Measures


@dataclass(frozen=True, slots=True)
class TaskTotals(Shape):
    """One task's runs of a day. `items` is the number of finished units of work, as the runs reported them."""

    runs: int = 0
    outcomes: dict[str, int] = field(default_factory=dict)
    calls: int = 0
    items: int = 0
    duration_ms: int = 0
    duration_max_ms: int = 0


@dataclass(frozen=True, slots=True)
class DayTotals(Shape):
    """A day in UTC, such as 2026-11-16; a run belongs to the day on which it started."""

    day: str
    tasks: dict[str, TaskTotals] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DayList(Shape):
    """Days, newest first. `name` is the scheduler instance."""

    name: str | None
    days: list[DayTotals]


@dataclass(frozen=True, slots=True)
class RunLine(Shape):
    """A log line of a run: its event and its fields as text, without secrets."""

    at: int
    level: Level
    event: str
    text: str


@dataclass(frozen=True, slots=True)
class RunLines(Shape):
    """The first and the last lines of a run; `left_out` is the number of lines in between."""

    lines: list[RunLine] = field(default_factory=list)
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class RunDetail(Shape):
    """A run and its lines. `progress` is null unless it is running. `name` is the scheduler instance."""

    name: str | None
    run: RunRecord
    progress: Progress | None
    log: RunLines


@dataclass(frozen=True, slots=True)
class AuditEntry(Shape):
    """An action that is about to be done. `key` is the name of a key, never the key."""

    key: str
    role: Literal["operator", "cron"]
    client: str
    action: str
    target: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRecord(AuditEntry):
    """One action in the audit log. While it is `begun`, its outcome is not known: it may have been done."""

    id: str
    at: int
    outcome: AuditOutcome = "begun"
    ended_at: int | None = None
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class AuditList(Shape):
    """Actions, newest first. `name` is the scheduler instance."""

    name: str | None
    records: list[AuditRecord]


@dataclass(frozen=True, slots=True)
class Reloaded(Shape):
    """The answer to a reload: lists of setting names.

    `applied` settings changed and are in force. `needs_restart` settings changed too, but only a restart applies them.
    `overridden` settings have a value in `.env` that the environment or the command line overrides; a running process
    cannot see changes there.
    """

    name: str | None
    applied: list[str]
    needs_restart: list[str]
    overridden: list[str]


@dataclass(frozen=True, slots=True)
class Caller(Shape):
    """The key of a request, by its `name`. A viewer may look but not act."""

    name: str
    role: Literal["operator", "viewer"]


@dataclass(frozen=True, slots=True)
class Completeness(Shape):
    """Up to which block the record is proven complete; null: that is not proven.

    `as_of` is when the list that proves it was last read completely. `obstacle` explains why the block is not the
    newest one; null if it is. `missing_nonces` counts transactions of eligible wallets that no list has shown.
    """

    until_block: int | None
    as_of: int | None
    missing_nonces: int | None
    obstacle: str | None


@dataclass(frozen=True, slots=True)
class SchedulerOverview(Shape):
    """What the console reads: the scheduler's `status`, the service's `health`, and the state of the record.

    `refusals` counts those of the last 24 hours by code. `lists` has the time when each contract's list was last read
    to its end, oldest first; null if never. Both are null while the database does not answer. `complete` shows up to
    which block the record is proven complete. `simulator` is the address of a demo's simulator; null in every real
    service.
    """

    name: str | None
    status: Status
    health: Health
    refusals: dict[str, int] | None
    lists: dict[str, int | None] | None
    caller: Caller | None = None  # whose key asked
    complete: Completeness | None = None  # null: from an older service
    simulator: str | None = None
