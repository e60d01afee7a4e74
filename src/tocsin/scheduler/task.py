"""Defines a task, and what its runs are given. To add one, see docs/tasks.md.

A run gets a `TaskContext` and returns a `TaskResult`. It reports its progress, and calls `checkpoint()` between two
units of work: a pause or the end of its time slice stops it there, and keeps everything done so far. An exception is a
failure of the run: it is logged and counted, and does not affect other tasks. Only errors of the platform itself
(`StoreError`, `BindingMissing`) leave the alarm, and the runtime retries them.

The platform provides everything in a context; nothing is global. Tests use the same classes with their own
collaborators.
"""

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

from holdfast.errors import BindingMissing, UsageError
from holdfast.schedule import Cron
from holdfast.types import JSON, KV, Clock, Database, Logger
from holdfast.values import encode
from tocsin.errors import RunStopped
from tocsin.scheduler.types import Trigger
from tocsin.settings import SLICE_MAX_MS
from tocsin.shape import FreeForm
from tocsin.upstream.answer import Failure, Limited
from tocsin.upstream.limiter import CallSession

T = TypeVar("T")

_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")

STEPS_MAX = 20  # of a run
STEP_LENGTH_MAX = 4_096  # of a step's result, as JSON
MARGIN_S = 15.0  # how long before the end of its slice a run stops at a checkpoint; at most a quarter of the slice


@dataclass(frozen=True, slots=True)
class ContextBindings:
    """The platform and the upstream clients, shared by all runs. A missing binding is an error only when it is used."""

    clock: Clock
    clients: Mapping[str, object] = field(default_factory=dict)  # upstream clients by name
    database: Database | None = None
    kv_store: KV | None = None
    in_progress: set[str] = field(default_factory=set)  # work in progress, so that no two runs do the same


@dataclass(frozen=True, slots=True)
class Attempt:
    """Which run this is. A run that is repeated after a crash or a limit has the same `first_at` (unix ms)."""

    run: int = 0
    slot_at: int | None = None
    trigger: Trigger = "alarm"
    number: int = 1
    first_at: int = 0


class WorkContext:
    """The context of a request job; `TaskContext` adds what only runs have."""

    def __init__(
        self,
        bindings: ContextBindings,
        session: CallSession,
        *,
        wake: Callable[..., None] = lambda *_tasks: None,
        report: Callable[[str, str | None], None] = lambda _subject, _problem: None,
    ) -> None:
        self._bindings = bindings
        self.session = session
        self.report = report  # a problem of a subject, which makes the service not ready; None: it has none now
        self.wake = wake  # asks for a run of the first of these tasks that is switched on

    @property
    def db(self) -> Database:
        if self._bindings.database is None:
            raise BindingMissing("The binding DB is missing: add a D1 database named DB to the deployment.")
        return self._bindings.database

    @property
    def kv(self) -> KV:
        if self._bindings.kv_store is None:
            raise BindingMissing("The binding KV is missing: add a KV namespace named KV to the deployment.")
        return self._bindings.kv_store

    @property
    def clock(self) -> Clock:
        return self._bindings.clock

    @property
    def logger(self) -> Logger:
        return self.session.logger

    def upstream(self, name: str, client: type[T]) -> T:
        """The client of an upstream: `context.upstream("hiro", HiroClient)`."""
        found = self._bindings.clients.get(name)
        if not isinstance(found, client):
            known = ", ".join(sorted(self._bindings.clients)) or "none"
            raise BindingMissing(f"There is no upstream {name!r} with a {client.__name__}; the upstreams are: {known}.")
        return found


class TaskContext(WorkContext):
    """The context of one run of a task.

    `stop_reason` returns a sentence if the run must stop at its next checkpoint. `on_progress` is called with every
    progress report.
    """

    def __init__(
        self,
        bindings: ContextBindings,
        session: CallSession,
        *,
        slice_ms: int,
        stop_reason: Callable[[], str | None] = lambda: None,
        on_progress: Callable[["TaskContext"], object] = lambda _: None,
        attempt: Attempt = Attempt(),  # noqa: B008 - it is frozen
        steps: dict[str, JSON] | None = None,
        keep_steps: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        super().__init__(bindings, session)
        self.attempt = attempt
        self._steps = {} if steps is None else steps
        self._keep_steps = keep_steps
        self.started_at = bindings.clock.now()
        self.in_progress = bindings.in_progress
        self.done = 0
        self.total = 0
        self.counters: FreeForm = {}
        self._slice_s = slice_ms / 1000
        session.ends_at_s = bindings.clock.monotonic() + self._slice_s
        self._stop_at_s = session.ends_at_s - min(MARGIN_S, self._slice_s / 4)
        self._stop_reason = stop_reason
        self._on_progress = on_progress

    @property
    def by_hand(self) -> bool:
        """Whether an operator started it."""
        return self.attempt.trigger == "refresh"

    def time_left_s(self) -> float:
        """How much longer the run may begin new units of work."""
        return max(0.0, self._stop_at_s - self.clock.monotonic())

    def progress(self, done: int, total: int, /, **counters: JSON) -> None:
        """Report how far the run has come. The counters are kept as its result if it is cut off."""
        self.done, self.total = done, total
        self.counters.update(counters)
        self._on_progress(self)

    async def once(self, step: str, work: Callable[[], Awaitable[T]]) -> T:
        """Do a step that must not be repeated, and return its result, which is JSON.

        If this run is cut off later and repeated for its slot, the step is not done again: its stored result is
        returned. If it is cut off during the step, nobody knows whether the step was done: it is done again.
        """
        if step not in self._steps:
            if len(self._steps) >= STEPS_MAX:
                raise UsageError(f"a run can have {STEPS_MAX} steps: {step!r:.40} is one too many")
            result: Any = await work()
            if len(encode(result, f"the result of the step {step!r:.40}")) > STEP_LENGTH_MAX:
                raise UsageError(f"the result of the step {step!r:.40} is longer than {STEP_LENGTH_MAX:,} characters")
            self._steps[step] = result
            if self._keep_steps is not None:
                await self._keep_steps()
        kept: Any = self._steps[step]
        return kept  # type: ignore[no-any-return]  # what the step returned, as JSON

    def checkpoint(self) -> None:
        """Call this between two units of work. Raises `RunStopped` when the run must end here."""
        reason = self._stop_reason()
        if reason is not None:
            raise RunStopped(reason)
        if self.time_left_s() <= 0:
            raise RunStopped(f"its time slice of {self._slice_s:g} s is nearly over", outcome="partial")


@dataclass(frozen=True, slots=True)
class TaskResult:
    """How a run ended. `status()` shows `counters` as the task's last result.

    `error` makes it a failure; `error_kind` names the kind, such as the class of an upstream's answer. `incomplete`
    describes what the run set out to do but did not. `limited_until` (unix ms) is set when the upstream or our own
    budget (`by_budget`) refused calls: the task's next scheduled run waits until then, within the scheduler's bound.
    `progressed` is False for an incomplete run that did none of its work. `wake_at` (unix ms) asks for a run at that
    time, in addition to those of the task's cadence.
    """

    counters: FreeForm
    error: str | None = None
    limited_until: int | None = None
    error_kind: str | None = None
    incomplete: str | None = None
    by_budget: bool = False
    progressed: bool = True
    wake_at: int | None = None

    @classmethod
    def of(cls, failure: Failure, counters: FreeForm) -> "TaskResult":
        """The result of a run whose only call had no answer."""
        if isinstance(failure, Limited):
            until, reason, by_budget = failure.until, failure.reason, failure.by_budget
            return cls(counters, limited_until=until, incomplete=reason, by_budget=by_budget, progressed=False)
        return cls(counters, error=failure.reason, error_kind=type(failure).__name__)


@dataclass(frozen=True, slots=True)
class Task:
    """A periodic job.

    `upstream` is the one whose budget it spends; None if it makes no calls. `calls_per_run` is the usual number of
    calls of a run. With `calls_per_run_max`, the cadence follows the calls that the newest runs actually made, up to
    that number. Without a complete run for two cadences, or for `overdue_after_ms` if that is longer, the service is
    not ready. `empty_result` is the result of a run that was cut off before it reported any progress. `why` explains
    the cadence to the operator. With `cron`, runs are at its times, and `cadence_ms` is how far they are apart on
    average. `title` is what the console calls it; without one, its name. `woken_by` tells whether a run of another
    task, with these counters, asks for a run.
    """

    name: str
    cadence_ms: int
    slice_ms: int
    run: Callable[[TaskContext], Awaitable[TaskResult]]
    upstream: str | None = None
    calls_per_run: float = 0.0
    calls_per_run_max: float | None = None
    overdue_after_ms: int = 0
    enabled: bool = True
    empty_result: FreeForm = field(default_factory=dict, compare=False)
    why: str = field(default="", compare=False)
    title: str = field(default="", compare=False)
    cron: Cron | None = field(default=None, compare=False)
    woken_by: Callable[[str, FreeForm], bool] = field(default=lambda _task, _counters: False, compare=False)

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name) or self.name == "all":
            raise UsageError(f"A task's name is a lower-case word such as `sweep`, not {self.name!r}.")
        if self.cadence_ms < 1 or not 1 <= self.slice_ms <= SLICE_MAX_MS:
            raise UsageError(
                f"The task {self.name} has a time slice of {self.slice_ms / 60_000:g} minutes every"
                f" {self.cadence_ms / 60_000:g}: a slice may take {SLICE_MAX_MS // 60_000} minutes at most,"
                " because an alarm's handler must end soon after."
            )
        if self.upstream is None and self.calls_per_run:
            raise UsageError(f"The task {self.name} makes calls: name the upstream whose budget it spends.")


# Work on behalf of one request that must share the object's budget and its single writer, such as verifying a
# submitted trade: `stub.run_job("submit", argument)`. Its calls are in the request lane.
RequestJob: TypeAlias = Callable[[WorkContext, JSON], Awaitable[JSON]]
