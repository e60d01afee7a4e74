"""Loads the scheduler's stored state, upgraded if an older release stored it, and its open runs."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeGuard

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
    RUN_NUMBERS,
    RUN_PREFIX,
    count_earlier_runs,
    load_day,
    read_runs,
    run_key,
    run_number,
)
from tocsin.scheduler.state import (
    ALERT_KEY,
    COLUMNS,
    HEARTBEAT_KEY,
    LAST_JOB_KEY,
    LAST_RUN_KEY,
    SchedulerState,
    TaskState,
    budget_key,
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
    whole_number,
)
from tocsin.scheduler.upgrades import STATE_VERSION, VERSION_KEY, upgraded
from tocsin.shapes.measures import Measures
from tocsin.shapes.scheduler import result_name, run_at_name

OPEN_RUNS_KEY = "openRuns"  # of older releases


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
        logger.warn("state.version_unknown", version=version, known=STATE_VERSION)
        version = STATE_VERSION
        storage.put(VERSION_KEY, version)  # everything saved from now on has this layout
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
        storage.delete(OPEN_RUNS_KEY)
        logger.info("state.upgraded", from_version=version, to_version=STATE_VERSION, entries=len(changed))
    reader = EntryReader(entries, stored, storage, logger)
    state = _read_state(reader, list(tasks), list(upstreams), moment)
    state.run_seq = max(state.run_seq, *(numbers or ()), 0)
    _look_at_runs(state, reader, learn=numbers is None)
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


def _read_state(
    reader: "EntryReader", tasks: list[str], upstreams: list[str], moment: Moment
) -> SchedulerState:
    state = SchedulerState({name: TaskState() for name in tasks})
    state.paused_until = reader.entry("pausedUntil", optional_whole_number, None)
    saved_at = reader.entry("savedAt", stored_moment, moment)

    def monotonic(wall_ms: int | None) -> int | None:
        """A stored time on this process's monotonic clock."""
        return (
            None
            if wall_ms is None
            else moment.monotonic_ms - moment.since(saved_at) + wall_ms - saved_at.wall_ms
        )

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
    return len(numbers) <= NEWEST_RUNS and all(
        type(number) is int and 0 < number < RUN_NUMBERS for number in numbers
    )


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


def _look_at_runs(state: SchedulerState, reader: "EntryReader", *, learn: bool) -> None:
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
