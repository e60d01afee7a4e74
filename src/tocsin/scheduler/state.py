"""The state that the scheduler stores: one entry for each task, and one for the scheduler itself.

    task:<name>         `TaskState`
    scheduler           `SchedulerRecord`
    measures            `Measures`
    budget:<upstream>   `Budget`, which its limiter writes
    run:, run-log:, day:, audit:    see `history` and `audit`

Each entry is a shape. A field may be added if it has a default; any other change of the layout raises `STATE_VERSION`
and comes with a function that upgrades the entries of the version before. Long-lived cursors are in the database.

A task has one run at a time, so a run that has not ended is the last one of its task. The object reads only these runs
when it wakes.

Times are wall-clock times (unix ms). When the clock is set, ages and holds keep their length; a clock that was set
between two processes is not noticed. So each time has a bound: one that is further in the future counts as the bound.

An entry that cannot be read is put aside under `unreadable:<key>`, reported as `state.entry_unreadable`, and replaced
by its default: no stored value can keep the scheduler from starting. Emits also `state.version_unknown`.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from holdfast.storage import Storage
from holdfast.types import JSON, Logger
from tocsin.scheduler.history import (
    DAY_PREFIX,
    RUN_NUMBERS,
    RUN_PREFIX,
    EntryReader,
    counted,
    day_of,
    load_day,
    read_runs,
    run_key,
    run_number,
)
from tocsin.scheduler.slots import PAUSE_MAX_MS
from tocsin.scheduler.types import (
    AlertState,
    DayTotals,
    HeartbeatState,
    LastError,
    Measures,
    Outcome,
    Problem,
    RunError,
    RunRecord,
)
from tocsin.shape import FreeForm, Shape
from tocsin.upstream.budget import Budget
from tocsin.upstream.windows import HOUR_MS, check_plausible

HOLD_MAX_MS = HOUR_MS  # the longest back-off, and how long the breaker holds a task back
STATE_VERSION = 4  # earlier ones were never released
PROBLEM_LASTS_MS = 86_400_000  # after it was last found
RECENT_MAX = 12  # complete runs that determine a task's usual number of calls
NEWEST_RUNS = 120  # read if an entry is missing or damaged that would have named the last runs
RERUN_WAIT_MAX_MS = 10_000
INTERRUPTED = "the process ended during this run, or the object was reset or moved"
TASK_PREFIX = "task:"
SCHEDULER_KEY = "scheduler"
MEASURES_KEY = "measures"


def budget_key(upstream: str) -> str:
    return f"budget:{upstream}"


@dataclass(slots=True)
class TaskState(Shape):
    """What is stored about a task."""

    last_run: int | None = None  # its number
    last_run_at: int | None = None
    last_slot_at: int = 0
    last_success_at: int | None = None  # the end of its last complete run
    last_outcome: Outcome | None = None
    last_reason: str | None = None
    last_error: LastError | None = None
    last_result: FreeForm | None = None
    next_run_after: int | None = None  # until then it is held back
    paused_until: int | None = None
    consecutive_failures: int = 0
    interruptions: int = 0  # how many of its newest runs in a row were cut off
    missed_slots: int = 0
    rerun: bool = False  # its last run was interrupted and is to be run again
    wake_at: int | None = None  # its last run asked for a run at this time
    run_counts: dict[str, int] = field(default_factory=dict)  # by outcome
    recent_calls: list[int] = field(default_factory=list)  # of complete runs
    watched_since: int | None = None  # when a job was added or resumed; other tasks are watched since the first start
    attempt: int = 1  # of its last run, which may have repeated another
    first_attempt_at: int = 0
    steps: FreeForm = field(default_factory=dict)  # results of its last run's steps that must not be repeated

    @classmethod
    def __post_deserialize__(cls, task: "TaskState") -> "TaskState":
        """Reject numbers that Tocsin cannot have stored: calculations with them would fail later."""
        optional = [task.last_run_at, task.last_success_at, task.next_run_after, task.paused_until, task.wake_at]
        optional.append(task.watched_since)
        check_plausible(task.last_slot_at, task.consecutive_failures, task.interruptions, task.missed_slots)
        check_plausible(*(at or 0 for at in optional), *task.run_counts.values(), *task.recent_calls)
        if task.last_run is not None and not 0 < task.last_run < RUN_NUMBERS:
            raise ValueError(f"{task.last_run!r:.40} is not the number of a run")
        return task


@dataclass(slots=True)
class SchedulerRecord(Shape):
    """What is stored about the scheduler itself."""

    version: int = STATE_VERSION
    paused_until: int | None = None  # all tasks
    armed_at: int | None = None  # when the alarm was first set
    last_job_at: dict[str, int] = field(default_factory=dict)  # when each request job last succeeded
    problems: dict[str, Problem] = field(default_factory=dict)  # that request jobs found, by subject
    alert: AlertState = field(default_factory=AlertState)
    heartbeat: HeartbeatState = field(default_factory=HeartbeatState)

    @classmethod
    def __post_deserialize__(cls, record: "SchedulerRecord") -> "SchedulerRecord":
        check_plausible(record.paused_until or 0, record.armed_at or 0, *record.last_job_at.values())
        return record

    def problems_at(self, now: int) -> list[str]:
        """The problems that were found in the last day."""
        return [each.sentence for each in self.problems.values() if abs(now - each.at) < PROBLEM_LASTS_MS]


@dataclass(slots=True)
class SchedulerState:
    """The object's stored state, in memory. `save` writes it in one turn."""

    tasks: dict[str, TaskState]
    own: SchedulerRecord = field(default_factory=SchedulerRecord)
    measures: Measures = field(default_factory=Measures)
    budgets: dict[str, Budget] = field(default_factory=dict)  # as of the start of this instance
    run_seq: int = 0
    open_runs: dict[int, RunRecord] = field(default_factory=dict)  # begun and not ended, by number
    ended_runs: int = 0  # by this instance
    days: dict[str, DayTotals] = field(default_factory=dict)  # totals of today, and perhaps of the days just before
    changed_days: set[str] = field(default_factory=set)
    oldest_run: tuple[int, int] | None = None  # number and start, when they are known
    written: dict[str, JSON] = field(default_factory=dict)  # the stored records

    def bound_times(self, now: int) -> None:
        """Forget pauses and holds that have ended, and shorten what is further in the future than it can be."""
        own = self.own
        own.paused_until = _until(own.paused_until, now, PAUSE_MAX_MS)
        own.armed_at = _past(own.armed_at, now)
        for task in self.tasks.values():
            task.paused_until = _until(task.paused_until, now, PAUSE_MAX_MS)
            task.next_run_after = _until(task.next_run_after, now, HOLD_MAX_MS)
            task.last_success_at = _past(task.last_success_at, now)
            task.watched_since = _past(task.watched_since, now)

    def move_times(self, by_ms: int) -> None:
        """Move ages and holds with a clock that was set."""
        self.own.armed_at = _moved(self.own.armed_at, by_ms)
        for task in self.tasks.values():
            task.next_run_after = _moved(task.next_run_after, by_ms)
            task.last_success_at = _moved(task.last_success_at, by_ms)
            task.watched_since = _moved(task.watched_since, by_ms)

    def paused_until(self, task: str) -> int | None:
        """When no pause keeps this task from running."""
        ends = self.own.paused_until, self.tasks[task].paused_until
        return max((at for at in ends if at is not None), default=None)

    def pause(self, task: str | None, until: int | None) -> None:
        """Pause one task, or all; None ends a pause of one, or every pause."""
        if task is not None:
            self.tasks[task].paused_until = until
            return
        self.own.paused_until = until
        if until is None:
            for each in self.tasks.values():
                each.paused_until = None

    def begin(self, record: RunRecord) -> None:
        """Add a run to the history."""
        task = self.tasks[record.task]
        if task.rerun and record.slot_at in {None, task.last_slot_at}:
            task.attempt += 1
        else:
            task.attempt, task.first_attempt_at, task.steps = 1, record.started_at, {}
        self.run_seq = max(self.run_seq, record.id)
        self.open_runs[record.id] = record
        if record.slot_at is not None:
            task.last_slot_at = record.slot_at
            task.missed_slots += record.missed_slots
        task.rerun, task.wake_at = False, None
        task.last_run, task.last_run_at = record.id, record.started_at

    def end(
        self, record: RunRecord, now: int, *, is_failure: bool = False, hold_ms: int | None = None, items: int = 0
    ) -> None:
        """Record how a run ended. `hold_ms`: start no scheduled run of its task for this long."""
        task = self.tasks[record.task]
        self.open_runs.pop(record.id, None)
        self.ended_runs += 1
        self.measures.run_ended(record)
        day = day_of(record.started_at)
        self.days[day] = counted(self.days.get(day, DayTotals(day)), record, items)
        self.changed_days.add(day)
        task.interruptions = task.interruptions + 1 if record.outcome == "interrupted" else 0
        task.run_counts[record.outcome] = task.run_counts.get(record.outcome, 0) + 1
        task.last_result = record.summary()
        task.last_outcome = record.outcome
        task.last_reason = record.reason if record.error is None else record.error.cause
        if record.outcome == "ok":
            task.recent_calls = [*task.recent_calls, record.calls][-RECENT_MAX:]
            task.last_success_at = now
            task.consecutive_failures = 0
            task.next_run_after = task.last_error = None
        elif is_failure:
            error = record.error or RunError(record.outcome.capitalize(), record.reason or "")
            task.last_error = LastError(error.kind, error.message, at=now)
        task.consecutive_failures += is_failure
        if hold_ms is not None:
            task.next_run_after = now + hold_ms

    def interrupt(self, now: int) -> list[RunRecord]:
        """Record the runs that the last instance did not end as failures, and run their tasks again at once.

        A task that is cut off repeatedly waits a little longer each time, ten seconds at most. A task that crashes the
        process must not block all other work, and a task that was only interrupted must continue.
        """
        ended = []
        for record in list(self.open_runs.values()):
            if record.task not in self.tasks:  # this release no longer has the task
                del self.open_runs[record.id]
                ended.append(record.ended("interrupted", now))
                continue
            interrupted = record.ended("interrupted", now, error=RunError("Interrupted", INTERRUPTED))
            in_a_row = self.tasks[record.task].interruptions
            hold_ms = min(RERUN_WAIT_MAX_MS, 1_000 * 2**in_a_row) if in_a_row else None
            self.end(interrupted, now, is_failure=True, hold_ms=hold_ms)
            self.tasks[record.task].rerun = True
            ended.append(interrupted)
        return ended

    def forget(self, storage: Storage, task: str) -> None:
        """Remove what is stored about a task that no longer exists."""
        self.tasks.pop(task, None)
        self.written.pop(f"{TASK_PREFIX}{task}", None)
        storage.delete(f"{TASK_PREFIX}{task}")

    def save(self, storage: Storage, *runs: RunRecord) -> None:
        """Write the changed records and these runs. Writes take effect at once and are committed with the turn.

        If a commit fails, the runtime discards the instance too.
        """
        records: dict[str, JSON] = {f"{TASK_PREFIX}{name}": task.to_json() for name, task in self.tasks.items()}
        records[SCHEDULER_KEY] = self.own.to_json()
        if any(run.outcome != "running" for run in runs):
            records[MEASURES_KEY] = self.measures.to_json()
        entries = {key: record for key, record in records.items() if self.written.get(key) != record}
        self.written |= entries
        for run in runs:
            entries[run_key(run.id)] = run.to_json()
        for day in self.changed_days:
            entries[f"{DAY_PREFIX}{day}"] = self.days[day].to_json()
        self.changed_days.clear()
        storage.put(entries)


def _until(at: int | None, now: int, longest_ms: int) -> int | None:
    """When something ends that lasts this long at most; None if it has ended."""
    return None if at is None or at <= now else min(at, now + longest_ms)


def _moved(at: int | None, by_ms: int) -> int | None:
    return None if at is None else max(0, at + by_ms)


def _past(at: int | None, now: int) -> int | None:
    return None if at is None else min(at, now)


async def load_state(
    reader: EntryReader, tasks: Collection[str], upstreams: Iterable[str], logger: Logger, now: int
) -> SchedulerState:
    """Load the stored state."""
    storage = reader.storage
    budgets = {upstream: budget_key(upstream) for upstream in upstreams}
    single: dict[str, JSON] = await storage.get([SCHEDULER_KEY, MEASURES_KEY, *budgets.values()])
    stored: dict[str, JSON] = await storage.list(prefix=TASK_PREFIX)
    records = {  # also of tasks that this release does not have
        key.removeprefix(TASK_PREFIX): reader.read(key, value, TaskState.from_json, TaskState())
        for key, value in stored.items()
    }
    state = SchedulerState({name: records.get(name) or TaskState() for name in tasks})
    found = reader.read(SCHEDULER_KEY, single.get(SCHEDULER_KEY), SchedulerRecord.from_json, None)
    state.own = found or state.own
    state.measures = reader.read(MEASURES_KEY, single.get(MEASURES_KEY), Measures.from_json, state.measures)
    for upstream, key in budgets.items():
        budget = reader.read(key, single.get(key), Budget.from_json, None)
        if budget is not None:
            state.budgets[upstream] = budget
    state.written = {key: value for key, value in {**single, **stored}.items() if key not in reader.put_aside}
    if state.own.version != STATE_VERSION:
        logger.warning("state.version_unknown", version=state.own.version, known=STATE_VERSION)
        state.own.version, found = STATE_VERSION, None
        storage.put(SCHEDULER_KEY, state.own.to_json())  # everything saved from now on has this layout
    numbers = sorted(record.last_run for record in records.values() if record.last_run is not None)
    runs: dict[str, JSON] = await storage.get([run_key(number) for number in numbers])
    if found is None or reader.put_aside:
        runs |= await storage.list(prefix=RUN_PREFIX, reverse=True, limit=NEWEST_RUNS)
    state.run_seq = max(*numbers, *map(run_number, runs), 0, 0)
    is_open = [key for key, run in runs.items() if isinstance(run, dict) and run.get("outcome") == "running"]
    state.open_runs = dict(sorted(read_runs(reader, {key: runs[key] for key in is_open}).items()))
    for at in {now, *(run.started_at for run in state.open_runs.values())}:
        await load_day(state, reader, at)
    return state
