"""One run of one task: given a slice of time, kept from harming others, written down.

A run ends as one of:
    ok           it did what it set out to do
    failed       its outcome says so, it raised, or its slice was over before it ended
    stopped      it came to a checkpoint while the scheduler was paused; no failure
    interrupted  written at the next start for a run that was cut off by the end of its process
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from tocsin.bindings import JSON, KV, Clock, Database, Logger
from tocsin.budget.call_session import CallSession
from tocsin.errors import BindingMissing, RunStopped, StoreError
from tocsin.scheduler.task import Outcome, Task
from tocsin.upstream.hiro import HiroClient
from tocsin.upstream.tenero import TeneroClient

Trigger: TypeAlias = Literal["alarm", "refresh", "rerun"]
ENDINGS = ("ok", "failed", "stopped", "interrupted")
PLATFORM_ERRORS = (StoreError, BindingMissing)
ERROR_MAX = 300  # characters of an error that are kept


@dataclass(slots=True)
class RunRecord:
    """What is kept of a run; one JSON object in the object's storage."""

    id: int
    task: str
    trigger: Trigger
    started_at: int
    slot_at: int | None = None
    missed: int = 0
    ended_at: int | None = None
    outcome: str = "running"
    result: dict[str, JSON] = field(default_factory=dict)
    error: dict[str, str] | None = None
    calls: int = 0  # to its upstream, retries included

    def to_json(self) -> dict[str, JSON]:
        return {
            "id": self.id,
            "task": self.task,
            "trigger": self.trigger,
            "slotAt": self.slot_at,
            "missedSlots": self.missed,
            "startedAt": self.started_at,
            "endedAt": self.ended_at,
            "durationMs": None if self.ended_at is None else self.ended_at - self.started_at,
            "outcome": self.outcome,
            "result": self.result,
            "error": self.error,
            "calls": self.calls,
        }

    def summary(self) -> dict[str, JSON]:
        """The result, with the run's own times: a task that was cut off told its last ones long before."""
        ended_at = self.started_at if self.ended_at is None else self.ended_at
        return {**self.result, "startedAt": self.started_at, "durationMs": ended_at - self.started_at}

    @classmethod
    def from_json(cls, stored: JSON) -> "RunRecord":
        return cls(
            id=stored["id"],
            task=stored["task"],
            trigger=stored["trigger"],
            started_at=stored["startedAt"],
            slot_at=stored["slotAt"],
            missed=stored["missedSlots"],
            ended_at=stored["endedAt"],
            outcome=stored["outcome"],
            result=stored["result"],
            error=stored["error"],
            calls=stored.get("calls", 0),
        )


@dataclass(frozen=True, slots=True)
class Tools:
    """The platform as a run may use it. A missing binding is found out when it is asked for."""

    hiro: HiroClient
    tenero: TeneroClient
    clock: Clock
    database: Database | None
    kv_store: KV | None

    @property
    def db(self) -> Database:
        if self.database is None:
            raise BindingMissing("The binding DB is missing: add a D1 database named DB to the deployment.")
        return self.database

    @property
    def kv(self) -> KV:
        if self.kv_store is None:
            raise BindingMissing("The binding KV is missing: add a KV namespace named KV to the deployment.")
        return self.kv_store


class Run:
    """A run under way. It is the `TaskContext` of its task; `finished` holds the record when it has ended."""

    def __init__(
        self,
        task: Task,
        record: RunRecord,
        tools: Tools,
        session: CallSession,
        *,
        must_stop: Callable[["Run"], bool],
        progressed: Callable[["Run"], None],
    ) -> None:
        self.task = task
        self.record = record
        self.session = session
        self.done = 0
        self.total = 0
        self.limited_until: int | None = None
        self.cut = False  # its slice was over before it ended
        self.platform_error: Exception | None = None
        self.finished: asyncio.Future[RunRecord] = asyncio.get_running_loop().create_future()
        self._tools = tools
        self._must_stop = must_stop
        self._progressed = progressed
        session.ends_at_s = tools.clock.monotonic() + task.slice_ms / 1000

    # As its task sees it

    @property
    def db(self) -> Database:
        return self._tools.db

    @property
    def kv(self) -> KV:
        return self._tools.kv

    @property
    def hiro(self) -> HiroClient:
        return self._tools.hiro

    @property
    def tenero(self) -> TeneroClient:
        return self._tools.tenero

    @property
    def clock(self) -> Clock:
        return self._tools.clock

    @property
    def logger(self) -> Logger:
        return self.session.logger

    @property
    def started_at(self) -> int:
        return self.record.started_at

    def time_left_s(self) -> float:
        return max(0.0, self.session.ends_at_s - self.clock.monotonic())

    def progress(self, done: int, total: int, /, **counters: JSON) -> None:
        self.done, self.total = done, total
        self.record.result.update(counters)
        self._progressed(self)

    def checkpoint(self) -> None:
        if self._must_stop(self):
            raise RunStopped("the scheduler is paused")

    # As the scheduler sees it

    async def execute(self) -> RunRecord:
        """Run the task within its slice; whatever it does, a record comes out."""
        limit = asyncio.timeout(self.task.slice_ms / 1000)
        try:
            async with limit:
                outcome = await self.task.run(self)
        except RunStopped:
            self._end("stopped")
        except TimeoutError as error:
            if limit.expired():
                self.cut = True
                sentence = f"the run took longer than its slice of {self.task.slice_ms / 1000:g} s"
                self._fail("SliceExceeded", sentence)
            else:
                self._fail("TimeoutError", str(error))
        except PLATFORM_ERRORS as error:
            self.platform_error = error
            self._fail(type(error).__name__, str(error))
        except Exception as error:  # noqa: BLE001 - a task's failure is a result, whatever it is
            self._fail(type(error).__name__, str(error))
        else:
            self._take(outcome)
        self.finished.set_result(self.record)
        return self.record

    def _take(self, outcome: Outcome) -> None:
        self.record.result = outcome.result
        self.limited_until = outcome.limited_until
        if outcome.error is None:
            self._end("ok")
        else:
            kind = outcome.error_class or ("Limited" if outcome.limited_until else "TaskFailed")
            self._fail(kind, outcome.error)

    def _fail(self, kind: str, message: str) -> None:
        self.record.error = {"class": kind, "message": message[:ERROR_MAX]}
        self._end("failed")

    def _end(self, outcome: str) -> None:
        self.record.outcome = outcome
        self.record.calls = self.session.calls
        self.record.ended_at = self.clock.now()
