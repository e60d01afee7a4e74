"""What a periodic job is. A new one is one file in `tasks/` and one line in its `TASKS`: see docs/tasks.md.

A run is given a `TaskContext` and answers an `Outcome`. It reports how far it is, and asks at each unit of
work whether it may go on: a pause or the end of its time slice stops it there, with everything done so far
kept. What it raises is a failure of the run, logged and counted, and harms no other task. Only errors of the
platform itself (`StoreError`, `BindingMissing`) leave the alarm and are retried by the runtime.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from tocsin.bindings import JSON, KV, Clock, Database, Logger
from tocsin.budget.call_session import CallSession
from tocsin.upstream.hiro import HiroClient
from tocsin.upstream.tenero import TeneroClient


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended. `result` is what `status()` shows as the task's last result.

    `error` makes it a failure; `error_class` says of which kind, such as the class of an upstream's answer.
    `limited_until` (unix ms) says that an upstream asked us to slow down: the task's next scheduled run waits
    for it, within the scheduler's bound.
    """

    result: dict[str, JSON]
    error: str | None = None
    limited_until: int | None = None
    error_class: str | None = None


class TaskContext(Protocol):
    """What a run may use. All of it is the platform's; nothing is global."""

    @property
    def db(self) -> Database: ...
    @property
    def kv(self) -> KV: ...
    @property
    def hiro(self) -> HiroClient: ...
    @property
    def tenero(self) -> TeneroClient: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def logger(self) -> Logger: ...

    @property
    def session(self) -> CallSession:
        """Shared by all upstream calls of this run: its retry ceiling and its patience."""

    @property
    def started_at(self) -> int: ...

    def time_left_s(self) -> float:
        """Of the run's slice. A run that ends by itself before it is up is no failure."""

    def progress(self, done: int, total: int, /, **counters: JSON) -> None:
        """Show how far the run is. The counters are kept as its result if it is cut off."""

    def checkpoint(self) -> None:
        """Call it between two units of work: raises `RunStopped` when the run must end here."""


@dataclass(frozen=True, slots=True)
class Task:
    """A periodic job: `calls_per_run` is what a run usually asks of its upstream, for the budget's plan.

    With `calls_per_run_max` the cadence follows the calls that its newest runs made, up to so many.
    `empty_result` is the result of a run that was cut off before it could tell of any progress.
    """

    name: str
    upstream: str
    cadence_ms: int
    slice_ms: int
    calls_per_run: float
    run: Callable[[TaskContext], Awaitable[Outcome]]
    enabled: bool = True
    calls_per_run_max: float | None = None
    empty_result: Mapping[str, JSON] = field(default_factory=dict, compare=False)
    why: str = field(default="", compare=False)  # the reason for the cadence, shown in status


# Work on behalf of one request that must share the object's budget and its single writer, such as verifying
# a submitted trade: `stub.perform("submit", argument)`. Its session is in the request lane.
RequestJob: TypeAlias = Callable[[TaskContext, JSON], Awaitable[JSON]]
