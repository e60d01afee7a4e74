"""Defines a task. To add one, write a file in `tasks/` and add a line to its `tasks()`: see docs/tasks.md.

A run gets a `TaskContext` and returns a `TaskResult`. It reports its progress, and calls `checkpoint()` between two
units of work: a pause or the end of its time slice stops it there, and keeps everything done so far. An exception is a
failure of the run: it is logged and counted, and does not affect other tasks. Only errors of the platform itself
(`StoreError`, `BindingMissing`) leave the alarm, and the runtime retries them.
"""

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from tocsin.bindings import JSON, SLICE_MAX_MS
from tocsin.errors import UsageError
from tocsin.scheduler.work_context import TaskContext, WorkContext
from tocsin.shapes.base import FreeForm

_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")


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


@dataclass(frozen=True, slots=True)
class Task:
    """A periodic job.

    `upstream` is the one whose budget it spends; None if it makes no calls. `calls_per_run` is the usual number of
    calls of a run. With `calls_per_run_max`, the cadence follows the calls that the newest runs actually made, up to
    that number. Without a complete run for two cadences, or for `overdue_after_ms` if that is longer, the service is
    not ready. `empty_result` is the result of a run that was cut off before it reported any progress. `why` explains
    the cadence to the operator.
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
