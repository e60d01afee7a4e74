"""The context of a run or a request job. The platform provides everything in it; nothing is global.

Tests use the same classes with their own collaborators.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from tocsin.bindings import JSON, KV, Clock, Database, Logger
from tocsin.budget.call_session import CallSession
from tocsin.errors import BindingMissing, RunStopped
from tocsin.shapes.base import FreeForm

T = TypeVar("T")

MARGIN_S = (
    15.0  # how long before the end of its slice a run stops at a checkpoint; at most a quarter of the slice
)


@dataclass(frozen=True, slots=True)
class ContextBindings:
    """The platform and the upstream clients, shared by all runs. A missing binding is an error only when it is used."""

    clock: Clock
    clients: Mapping[str, object] = field(default_factory=dict)  # upstream clients by name
    database: Database | None = None
    kv_store: KV | None = None
    in_hand: set[str] = field(default_factory=set)  # work in progress, so that no two runs do the same


class WorkContext:
    """The context of a request job; `TaskContext` adds what only runs have."""

    def __init__(
        self,
        bindings: ContextBindings,
        session: CallSession,
        *,
        wake: Callable[..., None] = lambda *_tasks: None,
    ) -> None:
        self._bindings = bindings
        self.session = session
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
            raise BindingMissing(
                f"There is no upstream {name!r} with a {client.__name__}; the upstreams are: {known}."
            )
        return found


class TaskContext(WorkContext):
    """The context of one run of a task.

    `by_hand`: an operator started it. `stop_reason` returns a sentence if the run must stop at its next checkpoint.
    `on_progress` is called with every progress report.
    """

    def __init__(
        self,
        bindings: ContextBindings,
        session: CallSession,
        *,
        slice_ms: int,
        by_hand: bool = False,
        stop_reason: Callable[[], str | None] = lambda: None,
        on_progress: Callable[["TaskContext"], object] = lambda _: None,
    ) -> None:
        super().__init__(bindings, session)
        self.started_at = bindings.clock.now()
        self.by_hand = by_hand
        self.in_hand = bindings.in_hand
        self.done = 0
        self.total = 0
        self.counters: FreeForm = {}
        self._slice_s = slice_ms / 1000
        session.ends_at_s = bindings.clock.monotonic() + self._slice_s
        self._stop_at_s = session.ends_at_s - min(MARGIN_S, self._slice_s / 4)
        self._stop_reason = stop_reason
        self._on_progress = on_progress

    def time_left_s(self) -> float:
        """How much longer the run may begin new units of work."""
        return max(0.0, self._stop_at_s - self.clock.monotonic())

    def progress(self, done: int, total: int, /, **counters: JSON) -> None:
        """Report how far the run has come. The counters are kept as its result if it is cut off."""
        self.done, self.total = done, total
        self.counters.update(counters)
        self._on_progress(self)

    def checkpoint(self) -> None:
        """Call this between two units of work. Raises `RunStopped` when the run must end here."""
        reason = self._stop_reason()
        if reason is not None:
            raise RunStopped(reason)
        if self.time_left_s() <= 0:
            raise RunStopped(f"its time slice of {self._slice_s:g} s is nearly over", outcome="partial")
