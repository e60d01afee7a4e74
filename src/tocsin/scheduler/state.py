"""The state that the scheduler stores, under the keys that its users know.

Per task: `last<Task>RunAt`, `last<Task>Result`. By task: `consecutiveFailures`, `nextRunAfter`, `lastSlotAt`,
`lastSuccessAt`, `lastError`, `lastOutcome`, `lastReason`, `missedSlots`, `rerun`, `wakeAt`, `runCounts` (in total, by
outcome), `lastRun` (its number), `interruptions`, `recentCalls`. For the scheduler: `version`, `pausedUntil`,
`armedAt`, `savedAt`, `runSeq` (if it is more than any `lastRun`), `lastJobAt` (by request job), `alert`, `heartbeat`,
`measures`, the budgets under `budget:<upstream>`; the runs and days of `history`, the audit log of `audit`. Long-lived
cursors are in the database.

A task has one run at a time, so a run that has not ended is the last one of its task. The object reads only these runs
when it wakes.

Back-offs and ages use the monotonic clock, so changes of the wall clock do not affect them. They are stored as
wall-clock times, together with the time at which they were stored (`savedAt`).

An entry that cannot be read is put aside under `unreadable:<key>`, reported as `state.entry_unreadable`, and replaced
by its default: no stored value can keep the scheduler from starting. Emits also `state.upgraded`,
`state.version_unknown` and `state.runs_counted`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, TypeGuard

from holdfast.types import JSON, Logger, Storage
from tocsin.scheduler.alerts import AlertState, HeartbeatState
from tocsin.scheduler.audit import AFTER_AUDIT, AUDIT_PREFIX
from tocsin.scheduler.history import (
    AFTER_DAYS,
    AFTER_RUNS,
    COUNTED_KEY,
    DAY_PREFIX,
    LOG_PREFIX,
    NEWEST_RUNS,
    RUN_NUMBERS,
    RUN_PREFIX,
    count_earlier_runs,
    counted,
    day_of,
    load_day,
    read_runs,
    run_key,
    run_number,
)
from tocsin.scheduler.stored import (
    MEASURES_KEY,
    STATE_VERSION,
    UNREADABLE,
    VERSION_KEY,
    EntryReader,
    Measurements,
    counts,
    json_object,
    optional_object,
    optional_whole_number,
    optional_whole_numbers,
    stored_moment,
    text,
    truth,
    upgraded,
    whole_number,
    whole_numbers,
)
from tocsin.scheduler.types import (
    DayTotals,
    LastError,
    Measures,
    Outcome,
    RunError,
    RunRecord,
    result_name,
    run_at_name,
)
from tocsin.shape import FreeForm
from tocsin.upstream.budget import StoredBudget
from tocsin.upstream.windows import Moment

RECENT_MAX = 12  # complete runs that determine a task's usual number of calls
NOT_WRITTEN = object()  # differs from every value
CLOCK_SET_MS = 2_000  # the two clocks drift apart by less than this unless one is set
RERUN_WAIT_MAX_MS = 10_000
LAST_JOB_KEY = "lastJobAt"
LAST_RUN_KEY = "lastRun"
OPEN_RUNS_KEY = "openRuns"  # of older releases
ALERT_KEY, HEARTBEAT_KEY = "alert", "heartbeat"  # `AlertSender` writes these


def budget_key(upstream: str) -> str:
    return f"budget:{upstream}"


def wall_time(monotonic_ms: int, moment: Moment) -> int:
    """Convert a monotonic time to the wall clock of this moment."""
    return moment.wall_ms + monotonic_ms - moment.monotonic_ms


@dataclass(slots=True)
class TaskState:
    """The state of one task. Times whose names end with `_ms` are monotonic."""

    consecutive_failures: int = 0
    held_until_ms: int | None = None
    last_slot_at: int = 0
    succeeded_ms: int | None = None  # the end of its last complete run
    success_shown: int | None = None  # the same in wall-clock time, as it was then
    last_error: LastError | None = None
    last_outcome: Outcome | None = None
    last_reason: str | None = None
    missed_slots: int = 0
    rerun: bool = False  # its last run was interrupted and is to be run again
    wake_at: int | None = None  # its last run asked for a run at this time (unix ms)
    last_run: int | None = None  # its number
    run_counts: Mapping[str, int] = field(default_factory=dict)
    last_run_at: int | None = None
    last_result: FreeForm | None = None
    interruptions: int = 0  # how many of its newest runs in a row were cut off
    recent_calls: tuple[int, ...] = ()  # of complete runs

    def ended(self, outcome: str, calls: int) -> None:
        """Learn from one more run. Call this in the order in which the runs began."""
        self.interruptions = self.interruptions + 1 if outcome == "interrupted" else 0
        if outcome == "ok":
            self.recent_calls = (*self.recent_calls, calls)[-RECENT_MAX:]

    def hold(self, for_ms: int, moment: Moment) -> None:
        """Start no scheduled run for this long."""
        self.held_until_ms = moment.monotonic_ms + for_ms

    def last_success_at(self, moment: Moment) -> int | None:
        """The end of its last complete run (unix ms): as recorded then, unless the wall clock has been set since."""
        if self.succeeded_ms is None:
            return None
        at = wall_time(self.succeeded_ms, moment)
        if self.success_shown is None or abs(at - self.success_shown) > CLOCK_SET_MS:
            self.success_shown = at
        return self.success_shown

    def next_run_after(self, moment: Moment) -> int | None:
        """Until when it is held back (unix ms); None if it is not."""
        if self.held_until_ms is None or self.held_until_ms <= moment.monotonic_ms:
            return None
        return wall_time(self.held_until_ms, moment)


@dataclass(slots=True)
class SchedulerState:
    """The object's stored state, in memory. `save` writes it in one turn."""

    tasks: dict[str, TaskState]
    paused_until: int | None = None
    armed_ms: int | None = None  # monotonic: when the alarm was first set
    run_seq: int = 0
    open_runs: dict[int, RunRecord] = field(default_factory=dict)  # begun and not ended, by number
    ended_runs: int = 0  # by this instance
    days: dict[str, DayTotals] = field(default_factory=dict)  # totals of today, and perhaps of the days just before
    changed_days: set[str] = field(default_factory=set)
    count_since: int | None = None  # days are counted from this time on; stored with the next save
    oldest_run: tuple[int, int] | None = None  # number and start, when they are known
    budgets: dict[str, StoredBudget] = field(default_factory=dict)  # as of the start of this instance
    last_job_at: dict[str, int] = field(default_factory=dict)  # when each request job last succeeded
    alert: AlertState = field(default_factory=AlertState)
    heartbeat: HeartbeatState = field(default_factory=HeartbeatState)
    measured: Measurements = field(default_factory=Measurements)
    written: dict[str, JSON] = field(default_factory=dict)  # the stored entries, without runs and days
    saved_values: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)  # of the columns, by task

    def begin(self, record: RunRecord) -> None:
        """Add a run to the history."""
        task = self.tasks[record.task]
        self.run_seq = max(self.run_seq, record.id)
        self.open_runs[record.id] = record
        if record.slot_at is not None:
            task.last_slot_at = record.slot_at
            task.missed_slots += record.missed_slots
        task.rerun, task.wake_at = False, None
        task.last_run, task.last_run_at = record.id, record.started_at

    def end(
        self, record: RunRecord, moment: Moment, *, is_failure: bool = False, hold_ms: int | None = None, items: int = 0
    ) -> None:
        """Record how a run ended. `hold_ms`: start no scheduled run of its task for this long."""
        task = self.tasks[record.task]
        self.open_runs.pop(record.id, None)
        self.ended_runs += 1
        task.ended(record.outcome, record.calls)
        self.measured.run_ended(record)
        day = day_of(record.started_at)
        self.days[day] = counted(self.days.get(day, DayTotals(day)), record, items)
        self.changed_days.add(day)
        task.last_result = record.summary()
        task.run_counts = {**task.run_counts, record.outcome: task.run_counts.get(record.outcome, 0) + 1}
        task.last_outcome = record.outcome
        task.last_reason = record.reason if record.error is None else str(record.error)
        if record.outcome == "ok":
            task.succeeded_ms, task.success_shown = moment.monotonic_ms, moment.wall_ms
            task.consecutive_failures = 0
            task.held_until_ms = None
            task.last_error = None
        elif is_failure:
            error = record.error or RunError(record.outcome.capitalize(), record.reason or "")
            task.last_error = LastError(moment.wall_ms, error.kind, error.message)
        task.consecutive_failures += is_failure
        if hold_ms is not None:
            task.hold(hold_ms, moment)

    def interrupt(self, moment: Moment, reason: Callable[[RunRecord], str]) -> list[RunRecord]:
        """Record the runs that the last instance did not end as failures, and run their tasks again at once.

        A task that is cut off repeatedly waits a little longer each time, ten seconds at most. A task that crashes the
        process must not block all other work, and a task that was only interrupted must continue.
        """
        now = moment.wall_ms
        ended = []
        for record in list(self.open_runs.values()):
            if record.task not in self.tasks:  # this release no longer has the task
                del self.open_runs[record.id]
                ended.append(record.ended("interrupted", now))
                continue
            error = RunError("Interrupted", reason(record))
            interrupted = record.ended("interrupted", now, error=error)
            in_a_row = self.tasks[record.task].interruptions
            hold_ms = min(RERUN_WAIT_MAX_MS, 1_000 * 2**in_a_row) if in_a_row else None
            self.end(interrupted, moment, is_failure=True, hold_ms=hold_ms)
            self.tasks[record.task].rerun = True
            ended.append(interrupted)
        return ended

    def save(self, storage: Storage, moment: Moment, *records: RunRecord) -> None:
        """Write the changed entries and these runs. Writes take effect at once and are committed with the turn.

        If a commit fails, the runtime discards the instance too.
        """
        entries: dict[str, JSON] = {
            VERSION_KEY: STATE_VERSION,
            "pausedUntil": self.paused_until,
            "armedAt": None if self.armed_ms is None else wall_time(self.armed_ms, moment),
            "savedAt": [moment.wall_ms, moment.monotonic_ms, moment.boot_id],
            "nextRunAfter": {name: task.next_run_after(moment) for name, task in self.tasks.items()},
            "lastSuccessAt": {name: task.last_success_at(moment) for name, task in self.tasks.items()},
        }
        if self.run_seq > max((task.last_run or 0 for task in self.tasks.values()), default=0):
            entries["runSeq"] = self.run_seq  # otherwise `lastRun` holds it
        values = {name: _column_values(task) for name, task in self.tasks.items()}
        for number, (key, column) in enumerate(COLUMNS.items()):
            if self._is_new(values, number):
                entries[key] = {name: column.write(value[number]) for name, value in values.items()}
        self.saved_values = values
        for name, task in self.tasks.items():
            entries[run_at_name(name)] = task.last_run_at
            entries[result_name(name)] = task.last_result
        entries = {key: value for key, value in entries.items() if self.written.get(key, NOT_WRITTEN) != value}
        changed = dict(entries)
        for record in records:
            entries[run_key(record.id)] = record.to_json()
        if self.measured.is_new and any(record.outcome != "running" for record in records):
            entries[MEASURES_KEY], self.measured.is_new = self.measured.measures().to_json(), False
        for day in self.changed_days:
            entries[f"{DAY_PREFIX}{day}"] = self.days[day].to_json()
        self.changed_days.clear()
        if self.count_since is not None:
            entries[COUNTED_KEY] = self.count_since
            self.count_since = None
        storage.put(entries)
        self.written |= changed

    def _is_new(self, values: Mapping[str, tuple[Any, ...]], column: int) -> bool:
        """Whether a column may differ from the last save: values are replaced, never changed in place."""
        saved = self.saved_values
        return values.keys() != saved.keys() or any(
            value[column] is not saved[name][column] for name, value in values.items()
        )


@dataclass(frozen=True, slots=True)
class Column:
    """A field of all tasks, stored as one entry `{task: value}`."""

    attribute: str
    read: Callable[[Any], Any]

    def write(self, value: Any) -> JSON:  # noqa: ANN401 - each column has its own type
        if isinstance(value, tuple):
            return list(value)
        return value.to_json() if isinstance(value, LastError) else value


def _recent_calls(value: JSON) -> tuple[int, ...]:
    return tuple(whole_numbers(value)[-RECENT_MAX:])


COLUMNS: Mapping[str, Column] = {
    "consecutiveFailures": Column("consecutive_failures", whole_number),
    "lastSlotAt": Column("last_slot_at", whole_number),
    "lastError": Column("last_error", LastError.from_json),
    "lastOutcome": Column("last_outcome", text),
    "lastReason": Column("last_reason", text),
    "missedSlots": Column("missed_slots", whole_number),
    "rerun": Column("rerun", truth),
    "wakeAt": Column("wake_at", optional_whole_number),
    "runCounts": Column("run_counts", counts),
    LAST_RUN_KEY: Column("last_run", whole_number),
    "interruptions": Column("interruptions", whole_number),
    "recentCalls": Column("recent_calls", _recent_calls),
}
_column_values: Callable[[TaskState], tuple[Any, ...]] = attrgetter(*(column.attribute for column in COLUMNS.values()))


async def load_state(
    storage: Storage, tasks: Iterable[str], upstreams: Iterable[str], logger: Logger, moment: Moment
) -> SchedulerState:
    """Load the stored state, upgraded if an older release stored it."""
    stored = {
        **await storage.list(end=AUDIT_PREFIX),
        **await storage.list(start=AFTER_AUDIT, end=DAY_PREFIX),
        **await storage.list(start=AFTER_DAYS, end=LOG_PREFIX),
        **await storage.list(start=AFTER_RUNS),
    }
    version = stored.pop(VERSION_KEY, 1 if stored else STATE_VERSION)
    numbers = _numbers(stored.get(LAST_RUN_KEY)) if version == STATE_VERSION else None
    stored |= await (_newest_runs(storage, stored) if numbers is None else _runs(storage, numbers))
    if type(version) is not int or not 1 <= version <= STATE_VERSION:
        logger.warning("state.version_unknown", version=version, known=STATE_VERSION)
        version = STATE_VERSION
        storage.put(VERSION_KEY, version)  # everything saved from now on has this layout
    entries = {key: value for key, value in stored.items() if not key.startswith(UNREADABLE)}
    entries = upgraded(entries, version)
    if version < STATE_VERSION:
        changed = {
            key: value
            for key, value in entries.items()
            if value != stored[key] and not key.startswith(RUN_PREFIX)  # these are upgraded when they are read
        }
        storage.put({**changed, VERSION_KEY: STATE_VERSION})
        storage.delete(OPEN_RUNS_KEY)
        logger.info("state.upgraded", from_version=version, to_version=STATE_VERSION, entries=len(changed))
    reader = EntryReader(entries, stored, storage, logger)
    state = _read_state(reader, list(tasks), list(upstreams), moment)
    state.run_seq = max(state.run_seq, *(numbers or ()), 0)
    _find_open_runs(state, reader, learn=numbers is None)
    if stored:
        state.written = {key: value for key, value in entries.items() if key not in reader.put_aside}
        state.written[VERSION_KEY] = STATE_VERSION
    if reader.entry(COUNTED_KEY, whole_number, None) is None:
        if state.run_seq:
            logger.info("state.runs_counted", runs=await count_earlier_runs(storage, logger))
            storage.put(COUNTED_KEY, moment.wall_ms)
        else:
            state.count_since = moment.wall_ms
    for at in {moment.wall_ms, *(run.started_at for run in state.open_runs.values())}:
        await load_day(state, storage, logger, at)
    return state


def _read_state(reader: EntryReader, tasks: list[str], upstreams: list[str], moment: Moment) -> SchedulerState:
    state = SchedulerState({name: TaskState() for name in tasks})
    state.paused_until = reader.entry("pausedUntil", optional_whole_number, None)
    saved_at = reader.entry("savedAt", stored_moment, moment)

    def monotonic(wall_ms: int | None) -> int | None:
        """A stored time on this process's monotonic clock."""
        return None if wall_ms is None else moment.monotonic_ms - moment.since(saved_at) + wall_ms - saved_at.wall_ms

    def past(wall_ms: int | None) -> int | None:
        """The same, but None for a time that was in the future when it was stored."""
        return None if wall_ms is None or wall_ms > saved_at.wall_ms else monotonic(wall_ms)

    state.armed_ms = past(reader.entry("armedAt", optional_whole_number, None))
    state.run_seq = reader.entry("runSeq", whole_number, 0)
    state.last_job_at = reader.entry(LAST_JOB_KEY, counts, state.last_job_at)
    state.alert = reader.entry(ALERT_KEY, AlertState.from_json, state.alert)
    state.heartbeat = reader.entry(HEARTBEAT_KEY, HeartbeatState.from_json, state.heartbeat)
    state.measured = Measurements(reader.entry(MEASURES_KEY, Measures.from_json, None))
    for key, column in COLUMNS.items():
        values: dict[str, JSON] = reader.entry(key, json_object, dict[str, JSON]())
        for name in tasks:
            if values.get(name) is not None:
                value = reader.value(key, values[name], column.read, None)
                if value is not None:  # otherwise the field keeps its default
                    setattr(state.tasks[name], column.attribute, value)
    holds = reader.entry("nextRunAfter", optional_whole_numbers, dict[str, int | None]())
    successes = reader.entry("lastSuccessAt", optional_whole_numbers, dict[str, int | None]())
    for name, task in state.tasks.items():
        task.held_until_ms = monotonic(holds.get(name))
        task.succeeded_ms, task.success_shown = past(successes.get(name)), successes.get(name)
        task.last_run_at = reader.entry(run_at_name(name), optional_whole_number, None)
        task.last_result = reader.entry(result_name(name), optional_object, None)
    for name in upstreams:
        budget = reader.entry(budget_key(name), StoredBudget.from_json, None)
        if budget is not None:
            state.budgets[name] = budget
    return state


def _numbers(last_runs: JSON) -> list[int] | None:
    """The run numbers in this entry; None if it is missing or damaged. Reading it as a column reports the damage."""
    if not isinstance(last_runs, dict):
        return None
    numbers = [number for number in last_runs.values() if number is not None]
    return numbers if _are_numbers(numbers) else None


def _are_numbers(numbers: Sequence[JSON]) -> TypeGuard[list[int]]:
    """Whether these are valid run numbers, and few enough to read all of the runs."""
    return len(numbers) <= NEWEST_RUNS and all(type(number) is int and 0 < number < RUN_NUMBERS for number in numbers)


async def _runs(storage: Storage, numbers: Iterable[int]) -> dict[str, JSON]:
    """These runs, oldest first."""
    stored: dict[str, JSON] = await storage.get([run_key(number) for number in sorted(numbers)])
    return stored


async def _newest_runs(storage: Storage, stored: Mapping[str, JSON]) -> dict[str, JSON]:
    """The newest runs, oldest first, and the open runs that an older release listed separately."""
    noted = stored.get(OPEN_RUNS_KEY)
    is_open = noted if isinstance(noted, list) and _are_numbers(noted) else []
    newest = await storage.list(prefix=RUN_PREFIX, reverse=True, limit=NEWEST_RUNS)
    return {**await _runs(storage, is_open), **dict(reversed(newest.items()))}


def _find_open_runs(state: SchedulerState, reader: EntryReader, *, learn: bool) -> None:
    """Find the runs that have not ended. Only these are parsed completely, because a wake must be cheap.

    With `learn`, also derive from the runs what an older release did not store.
    """
    runs = {key: value for key, value in reader.entries.items() if key.startswith(RUN_PREFIX)}
    state.run_seq = max(state.run_seq, *map(run_number, runs), 0)
    is_open = [key for key, run in runs.items() if isinstance(run, dict) and run.get("outcome") == "running"]
    state.open_runs = read_runs(reader, is_open)
    if not learn:
        return
    for task in state.tasks.values():
        task.interruptions, task.last_run, task.recent_calls = 0, None, ()
    for key, run in runs.items():  # oldest first
        if isinstance(run, dict) and (task_state := state.tasks.get(str(run.get("task")))):
            task_state.last_run = run_number(key)
            if key not in is_open:
                calls = run.get("calls")
                task_state.ended(str(run.get("outcome")), calls if type(calls) is int else 0)
