"""One run of one task: bounded by its time slice, isolated from the others, recorded with some of its log lines.

A run ends as one of:
    ok           it did everything it set out to do
    partial      it did not do everything: an upstream had no answer, or its time slice was over; finished work is kept
    limited      it did not do everything, because the upstream or our own budget refused calls
    failed       its result is an error, it raised, or it did not end within its time slice
    stopped      it reached a checkpoint while the scheduler was paused; not a failure
    interrupted  the run was cut off; recorded at the next start of the object

All its lines go to the log. It keeps the first, which show how it began, and the newest, which show why it ended. They
are stored when the run ends, so an interrupted run has none.
"""

import asyncio
import json
from collections import deque
from collections.abc import Callable, Mapping

from holdfast.errors import BindingMissing, StoreError
from holdfast.types import JSON, Clock, Level, Levels, Logger, write_log
from tocsin.errors import RunStopped
from tocsin.scheduler.task import Task, TaskContext, TaskResult
from tocsin.scheduler.types import Outcome, Progress, RunError, RunLine, RunLines, RunRecord

PLATFORM_ERRORS = (StoreError, BindingMissing)
MESSAGE_MAX = 300  # characters of an error message to keep
FIRST_MAX = 10  # log lines
NEWEST_MAX = 20
TEXT_MAX = 300  # characters of a line's fields


class Run:
    """A run under way. `finished` holds the record when it has ended."""

    def __init__(self, task: Task, record: RunRecord, context: TaskContext, kept: "LineCollector") -> None:
        self.task = task
        self.record = record
        self.limited_until: int | None = None
        self.slice_exceeded = False
        self.is_failure = False  # whether the run counts as a failure
        self.rerun = False  # whether to run again as soon as the upstream or the platform allows it
        self.wake_at: int | None = None
        self.platform_error: Exception | None = None
        self.finished: asyncio.Future[RunRecord] = asyncio.get_running_loop().create_future()
        self.kept = kept  # its log lines
        self._context = context

    def progress(self) -> Progress:
        context = self._context
        return Progress(self.record.started_at, context.done, context.total, self.record.id)

    async def execute(self) -> RunRecord:
        """Run the task within its slice. The result is always a record, even if the task raises."""
        limit = asyncio.timeout(self.task.slice_ms / 1000)
        try:
            async with limit:
                result = await self.task.run(self._context)
        except RunStopped as stopped:
            self._end(stopped.outcome, reason=str(stopped))
        except TimeoutError as error:
            if limit.expired():
                self.slice_exceeded = True
                self._fail("SliceExceeded", f"the run took longer than its slice of {self.task.slice_ms / 1000:g} s")
            else:
                self._fail("TimeoutError", str(error))
        except PLATFORM_ERRORS as error:
            self.platform_error = error
            if self.task.upstream is None:  # its next slot may be far away, and a retry costs no call
                self.rerun, self.limited_until = True, self._context.clock.now()
            self._fail(type(error).__name__, str(error))
        except Exception as error:  # noqa: BLE001 - a task's failure is a result, whatever it is
            self._fail(type(error).__name__, str(error))
        else:
            self._take(result)
        self.finished.set_result(self.record)
        return self.record

    def _take(self, result: TaskResult) -> None:
        self._context.counters = result.counters
        self.limited_until, self.wake_at = result.limited_until, result.wake_at
        if result.error is not None:
            self._fail(result.error_kind or "TaskFailed", result.error)
        elif result.incomplete is None:
            self._end("ok")
        elif result.limited_until is None:
            self._end("partial", reason=result.incomplete[:MESSAGE_MAX])
        else:
            self.is_failure = not result.by_budget and not result.progressed
            self.rerun = not result.by_budget
            self._end("limited", reason=result.incomplete[:MESSAGE_MAX])

    def _fail(self, kind: str, message: str) -> None:
        self.is_failure = True
        self._end("failed", error=RunError(kind, message[:MESSAGE_MAX]))

    def _end(self, outcome: Outcome, *, error: RunError | None = None, reason: str | None = None) -> None:
        context = self._context
        self.record = self.record.ended(
            outcome,
            context.clock.now(),
            result={**self.record.result, **context.counters},
            error=error,
            reason=reason,
            calls=context.session.calls,
            done=context.done,
            total=context.total,
        )


class LineCollector:
    """Collects the lines of a run."""

    def __init__(self, clock: Clock, mask: Callable[[str], str]) -> None:
        self._clock = clock
        self._mask = mask
        self._first: list[RunLine] = []
        self._newest: deque[RunLine] = deque(maxlen=NEWEST_MAX)
        self._count = 0

    def add(self, level: Level, event: str, fields: Mapping[str, JSON]) -> None:
        text = self._mask(_text(fields))
        if len(text) > TEXT_MAX:
            text = f"{text[: TEXT_MAX - 1]}…"
        line = RunLine(self._clock.now(), level, event, text)
        self._count += 1
        if len(self._first) < FIRST_MAX:
            self._first.append(line)
        else:
            self._newest.append(line)

    def lines(self) -> RunLines:
        kept = [*self._first, *self._newest]
        return RunLines(kept, self._count - len(kept))


class RunLogger(Levels):
    """A `Logger` that also keeps the lines it writes, except `debug` lines."""

    def __init__(self, logger: Logger, kept: LineCollector) -> None:
        self._logger = logger
        self._kept = kept

    def _line(self, level: Level, event: str, fields: dict[str, JSON]) -> None:
        write_log(self._logger, level, event, fields)
        if level != "DEBUG":
            self._kept.add(level, event, fields)


def _text(fields: Mapping[str, JSON]) -> str:
    return " ".join(f"{name}={_value(value)}" for name, value in fields.items())


def _value(value: JSON) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
