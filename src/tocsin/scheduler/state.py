"""What the scheduler stores, under the keys that its users know.

Per task: `last<Task>RunAt`, `last<Task>Result`. By task: `consecutiveFailures`, `nextRunAfter`, `lastSlotAt`,
`lastSuccessAt`, `lastError`, `lastOutcome`, `lastReason`, `missedSlots`, `rerun`, `wakeAt`, `runCounts` (ever, by
outcome). For the scheduler: `version`, `pausedUntil`, `armedAt`, `savedAt`, `runSeq`, `lastJobAt` (by request job),
`openRuns` (the numbers of old ones, if there are any), `alert`, `heartbeat`, `measures`, the budgets under
`budget:<upstream>`; the runs and days of `run_history`, the audit log of `audit_log`. Long-lived cursors are in the
database.

Back-offs and ages are kept on the monotonic clock, so setting the wall clock moves none of them. They are stored as
wall-clock times, beside the moment at which they were stored (`savedAt`).

An entry that cannot be read is put aside under `unreadable:<key>`, reported as `state.entry_unreadable`, and replaced
by its default: no stored value can keep the scheduler from starting.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tocsin.bindings import JSON, Logger, Storage
from tocsin.budget.stored import StoredBudget
from tocsin.moments import Moment
from tocsin.scheduler.alerts import AlertState, HeartbeatState
from tocsin.scheduler.audit_log import AFTER_AUDIT, AUDIT_PREFIX
from tocsin.scheduler.measurements import MEASURES_KEY, Measurements
from tocsin.scheduler.run_history import (
    AFTER_DAYS,
    AFTER_RUNS,
    COUNTED_KEY,
    DAY_PREFIX,
    LOG_PREFIX,
    NEWEST_RUNS,
    RUN_PREFIX,
    count_earlier_runs,
    counted,
    day_of,
    load_day,
    read_runs,
    run_key,
    run_number,
)
from tocsin.scheduler.stored_entries import (
    UNREADABLE,
    EntryReader,
    counts,
    json_object,
    optional_object,
    optional_whole_number,
    optional_whole_numbers,
    stored_moment,
    text,
    truth,
    whole_number,
    whole_numbers,
)
from tocsin.scheduler.upgrades import STATE_VERSION, VERSION_KEY, upgraded
from tocsin.shapes.base import FreeForm
from tocsin.shapes.measures import Measures
from tocsin.shapes.run_days import DayTotals
from tocsin.shapes.scheduler import LastError, Outcome, RunError, RunRecord, result_name, run_at_name

RECENT_MAX = 12  # complete runs from which a task's usual calls are known
NOT_WRITTEN = object()  # differs from every value
CLOCK_SET_MS = 2_000  # the two clocks differ by less than this while nobody sets one
RERUN_WAIT_MAX_MS = 10_000
LAST_JOB_KEY = "lastJobAt"
OPEN_RUNS_KEY = "openRuns"
ALERT_KEY, HEARTBEAT_KEY = "alert", "heartbeat"  # `AlertSender` writes these


def budget_key(upstream: str) -> str:
    return f"budget:{upstream}"


def wall_time(monotonic_ms: int, moment: Moment) -> int:
    """What the wall clock of this moment calls a monotonic time."""
    return moment.wall_ms + monotonic_ms - moment.monotonic_ms


@dataclass(slots=True)
class TaskState:
    """What is remembered of one task. Times that end with `_ms` are monotonic."""

    consecutive_failures: int = 0
    held_until_ms: int | None = None
    last_slot_at: int = 0
    succeeded_ms: int | None = None  # the end of its last complete run
    success_shown: int | None = None  # the same as the wall clock called it
    last_error: LastError | None = None
    last_outcome: Outcome | None = None
    last_reason: str | None = None
    missed_slots: int = 0
    rerun: bool = False  # its last run was interrupted and is to be run again
    wake_at: int | None = None  # its last run asked for a run at this time (unix ms)
    run_counts: dict[str, int] = field(default_factory=dict)
    last_run_at: int | None = None
    last_result: FreeForm | None = None
    interruptions: int = 0  # its newest runs that were cut off, in a row
    recent_calls: deque[int] = field(default_factory=lambda: deque(maxlen=RECENT_MAX))  # of complete runs

    def ended(self, outcome: str, calls: int) -> None:
        """Learn from one more run, after all that began before it."""
        self.interruptions = self.interruptions + 1 if outcome == "interrupted" else 0
        if outcome == "ok":
            self.recent_calls.append(calls)

    def hold(self, for_ms: int, moment: Moment) -> None:
        """No scheduled run for this long."""
        self.held_until_ms = moment.monotonic_ms + for_ms

    def last_success_at(self, moment: Moment) -> int | None:
        """The end of its last complete run (unix ms): as it was noted, unless the wall clock was set since."""
        if self.succeeded_ms is None:
            return None
        at = wall_time(self.succeeded_ms, moment)
        if self.success_shown is None or abs(at - self.success_shown) > CLOCK_SET_MS:
            self.success_shown = at
        return self.success_shown

    def next_run_after(self, moment: Moment) -> int | None:
        """Until when it is held back (unix ms); None when it is not."""
        if self.held_until_ms is None or self.held_until_ms <= moment.monotonic_ms:
            return None
        return wall_time(self.held_until_ms, moment)


@dataclass(slots=True)
class SchedulerState:
    """The object's storage in memory; `save` writes it, in one turn."""

    tasks: dict[str, TaskState]
    paused_until: int | None = None
    armed_ms: int | None = None  # monotonic: when the alarm was first set
    run_seq: int = 0
    open_runs: dict[int, RunRecord] = field(default_factory=dict)  # begun and not ended, by number
    old_open_runs: list[int] = field(default_factory=list)  # those that a wake may not find among the newest
    ended_runs: int = 0  # by this instance
    days: dict[str, DayTotals] = field(
        default_factory=dict
    )  # totals of today, and perhaps of days just before
    changed_days: set[str] = field(default_factory=set)
    count_since: int | None = None  # from now on days are counted; stored with the next save
    oldest_run: tuple[int, int] | None = None  # number and start, when they are known
    budgets: dict[str, StoredBudget] = field(default_factory=dict)  # as of the start of this instance
    last_job_at: dict[str, int] = field(default_factory=dict)  # when each request job last succeeded
    alert: AlertState = field(default_factory=AlertState)
    heartbeat: HeartbeatState = field(default_factory=HeartbeatState)
    measured: Measurements = field(default_factory=Measurements)
    written: dict[str, JSON] = field(default_factory=dict)  # by this instance; runs and days are not among it

    def begin(self, record: RunRecord) -> None:
        """Add a run to the history."""
        task = self.tasks[record.task]
        self.run_seq = max(self.run_seq, record.id)
        self.open_runs[record.id] = record
        if record.slot_at is not None:
            task.last_slot_at = record.slot_at
            task.missed_slots += record.missed_slots
        task.rerun, task.wake_at = False, None
        task.last_run_at = record.started_at

    def end(
        self,
        record: RunRecord,
        moment: Moment,
        *,
        is_failure: bool = False,
        hold_ms: int | None = None,
        items: int = 0,
    ) -> None:
        """Learn from how a run ended. `hold_ms`: no scheduled run of its task for this long."""
        task = self.tasks[record.task]
        self.open_runs.pop(record.id, None)
        self.ended_runs += 1
        task.ended(record.outcome, record.calls)
        self.measured.run_ended(record)
        day = day_of(record.started_at)
        self.days[day] = counted(self.days.get(day, DayTotals(day)), record, items)
        self.changed_days.add(day)
        task.last_result = record.summary()
        task.run_counts[record.outcome] = task.run_counts.get(record.outcome, 0) + 1
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
        """Runs that the last instance did not end: failures, to be run again at once.

        A task that is cut off again and again waits a little longer each time, ten seconds at most: one that takes the
        process down with it must not keep it from everything else, and one that is merely interrupted goes on.
        """
        now = moment.wall_ms
        ended = []
        for record in list(self.open_runs.values()):
            if record.task not in self.tasks:  # a task that this release does not have any more
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
        """Write what has changed, and these runs. It takes effect at once and is committed with the turn.

        What this instance has not written yet counts as changed. If a commit fails, the instance is gone too.
        """
        entries: dict[str, JSON] = {
            VERSION_KEY: STATE_VERSION,
            "pausedUntil": self.paused_until,
            "armedAt": None if self.armed_ms is None else wall_time(self.armed_ms, moment),
            "savedAt": [moment.wall_ms, moment.monotonic_ms, moment.boot_id],
            "runSeq": self.run_seq,
            "nextRunAfter": {name: task.next_run_after(moment) for name, task in self.tasks.items()},
            "lastSuccessAt": {name: task.last_success_at(moment) for name, task in self.tasks.items()},
        }
        for key, column in _COLUMNS.items():
            entries[key] = {name: column.write(task) for name, task in self.tasks.items()}
        for name, task in self.tasks.items():
            entries[run_at_name(name)] = task.last_run_at
            entries[result_name(name)] = task.last_result
        entries = {
            key: value for key, value in entries.items() if self.written.get(key, NOT_WRITTEN) != value
        }
        changed = dict(entries)
        for record in records:
            entries[run_key(record.id)] = record.to_json()
        if self.measured.is_new and any(record.outcome != "running" for record in records):
            entries[MEASURES_KEY], self.measured.is_new = self.measured.measures().to_json(), False
        old = [number for number in self.open_runs if number <= self.run_seq - NEWEST_RUNS // 2]
        if old != self.old_open_runs:
            entries[OPEN_RUNS_KEY], self.old_open_runs = [*old], old
        for day in self.changed_days:
            entries[f"{DAY_PREFIX}{day}"] = self.days[day].to_json()
        self.changed_days.clear()
        if self.count_since is not None:
            entries[COUNTED_KEY] = self.count_since
            self.count_since = None
        storage.put(entries)
        self.written |= changed


@dataclass(frozen=True, slots=True)
class _Column:
    """A field of all tasks that is stored as one entry, `{task: value}`."""

    attribute: str
    read: Callable[[Any], Any]

    def write(self, task: TaskState) -> JSON:
        value = getattr(task, self.attribute)
        if isinstance(value, dict):
            return dict(value)  # as it is now: it is changed in place
        return value.to_json() if isinstance(value, LastError) else value


async def load_state(
    storage: Storage, tasks: Iterable[str], upstreams: Iterable[str], logger: Logger, moment: Moment
) -> SchedulerState:
    """Load the stored state, upgraded if an older release stored it, with what its newest runs tell."""
    newest = await storage.list(prefix=RUN_PREFIX, reverse=True, limit=NEWEST_RUNS)
    stored = {
        **await storage.list(end=AUDIT_PREFIX),
        **await storage.list(start=AFTER_AUDIT, end=DAY_PREFIX),
        **await storage.list(start=AFTER_DAYS, end=LOG_PREFIX),
        **await storage.list(start=AFTER_RUNS),
    }
    stored |= await _old_open_runs(storage, stored.get(OPEN_RUNS_KEY))
    stored |= dict(reversed(newest.items()))
    version = stored.pop(VERSION_KEY, 1 if stored else STATE_VERSION)
    if type(version) is not int or not 1 <= version <= STATE_VERSION:
        logger.warn("state.version_unknown", version=version, known=STATE_VERSION)
        version = STATE_VERSION
        storage.put(VERSION_KEY, version)  # what is saved from now on is in this layout
    entries = {key: value for key, value in stored.items() if not key.startswith(UNREADABLE)}
    entries = upgraded(entries, version)
    if version < STATE_VERSION:
        changed = {
            key: value
            for key, value in entries.items()
            if value != stored[key]
            and not key.startswith(RUN_PREFIX)  # these are upgraded when they are read
        }
        storage.put({**changed, VERSION_KEY: STATE_VERSION})
        logger.info("state.upgraded", from_version=version, to_version=STATE_VERSION, entries=len(changed))
    reader = EntryReader(entries, stored, storage, logger)
    state = _read_state(reader, list(tasks), list(upstreams), moment)
    if reader.entry(COUNTED_KEY, whole_number, None) is None:
        if newest:
            logger.info("state.runs_counted", runs=await count_earlier_runs(storage, logger))
            storage.put(COUNTED_KEY, moment.wall_ms)
        else:
            state.count_since = moment.wall_ms
    for at in {moment.wall_ms, *(run.started_at for run in state.open_runs.values())}:
        await load_day(state, storage, logger, at)
    return state


def _read_state(
    reader: "EntryReader", tasks: list[str], upstreams: list[str], moment: Moment
) -> SchedulerState:
    state = SchedulerState({name: TaskState() for name in tasks})
    state.paused_until = reader.entry("pausedUntil", optional_whole_number, None)
    saved_at = reader.entry("savedAt", stored_moment, moment)

    def monotonic(wall_ms: int | None) -> int | None:
        """A stored time on this process's monotonic clock; None for one that was in the future when it was stored."""
        return (
            None
            if wall_ms is None
            else moment.monotonic_ms - moment.since(saved_at) + wall_ms - saved_at.wall_ms
        )

    def past(wall_ms: int | None) -> int | None:
        return None if wall_ms is None or wall_ms > saved_at.wall_ms else monotonic(wall_ms)

    state.armed_ms = past(reader.entry("armedAt", optional_whole_number, None))
    state.run_seq = reader.entry("runSeq", whole_number, 0)
    state.last_job_at = reader.entry(LAST_JOB_KEY, counts, state.last_job_at)
    state.alert = reader.entry(ALERT_KEY, AlertState.from_json, state.alert)
    state.heartbeat = reader.entry(HEARTBEAT_KEY, HeartbeatState.from_json, state.heartbeat)
    state.measured = Measurements(reader.entry(MEASURES_KEY, Measures.from_json, None))
    for key, column in _COLUMNS.items():
        values: dict[str, Any] = reader.entry(key, json_object, dict[str, Any]())
        for name in tasks:
            if values.get(name) is not None:
                default = getattr(TaskState(), column.attribute)
                setattr(
                    state.tasks[name], column.attribute, reader.value(key, values[name], column.read, default)
                )
    holds = reader.entry("nextRunAfter", optional_whole_numbers, dict[str, int | None]())
    successes = reader.entry("lastSuccessAt", optional_whole_numbers, dict[str, int | None]())
    for name, task in state.tasks.items():
        task.held_until_ms = monotonic(holds.get(name))
        task.succeeded_ms, task.success_shown = past(successes.get(name)), successes.get(name)
        task.last_run_at = reader.entry(run_at_name(name), optional_whole_number, None)
        task.last_result = reader.entry(result_name(name), optional_object, None)
    _look_at_runs(state, reader)
    for name in upstreams:
        budget = reader.entry(budget_key(name), StoredBudget.from_json, None)
        if budget is not None:
            state.budgets[name] = budget
    return state


async def _old_open_runs(storage: Storage, numbers: Any) -> dict[str, Any]:
    """These runs, oldest first. Whether the entry with their numbers can be read is told later."""
    listed = numbers if isinstance(numbers, list) else []
    keys = [run_key(number) for number in sorted(number for number in listed if type(number) is int)]
    return {key: value for key in keys if (value := await storage.get(key)) is not None}


def _look_at_runs(state: SchedulerState, reader: "EntryReader") -> None:
    """What the newest runs tell. Only those that have not ended are read as a whole: a wake must be cheap."""
    runs = {key: value for key, value in reader.entries.items() if key.startswith(RUN_PREFIX)}
    state.run_seq = max(state.run_seq, *map(run_number, runs), 0)
    is_open = [key for key, run in runs.items() if isinstance(run, dict) and run.get("outcome") == "running"]
    state.open_runs = read_runs(reader, is_open)
    state.old_open_runs = reader.entry(OPEN_RUNS_KEY, whole_numbers, [])
    for key, run in runs.items():  # oldest first
        if isinstance(run, dict) and key not in is_open and (task := state.tasks.get(str(run.get("task")))):
            calls = run.get("calls")
            task.ended(str(run.get("outcome")), calls if type(calls) is int else 0)


_COLUMNS: Mapping[str, _Column] = {
    "consecutiveFailures": _Column("consecutive_failures", whole_number),
    "lastSlotAt": _Column("last_slot_at", whole_number),
    "lastError": _Column("last_error", LastError.from_json),
    "lastOutcome": _Column("last_outcome", text),
    "lastReason": _Column("last_reason", text),
    "missedSlots": _Column("missed_slots", whole_number),
    "rerun": _Column("rerun", truth),
    "wakeAt": _Column("wake_at", optional_whole_number),
    "runCounts": _Column("run_counts", counts),
}
