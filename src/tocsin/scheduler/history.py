"""The run history: keeps each run for 30 days, and the totals of each day for more than a year.

A run is an entry `run:<number>` of the object, written in the same transaction as the slot and the alarm. Its log
lines are an entry `run-log:<number>`. A day is an entry `day:<date>`, which is updated by every run that ends. When
the object wakes, it does not read all runs and days, but only each task's last run, today's totals and the oldest run.
docs/decisions.md explains why.

An unreadable entry is put aside and reported, and its default is used. Emits `state.entry_unreadable`.

Also the newest events of the scheduler, for watchers, and a way to wait for more.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Protocol, TypeVar

from holdfast.storage import Storage
from holdfast.types import JSON, Logger
from tocsin.errors import MalformedShape
from tocsin.scheduler.types import DayTotals, EventBatch, RunFilter, RunLines, RunRecord, SchedulerEvent, TaskTotals
from tocsin.shape import FreeForm
from tocsin.upstream.windows import DAY_MS, HOUR_MS

T = TypeVar("T")

KEPT_MS = 30 * DAY_MS
RUNS_MIN = 2_000  # kept at any age: a clock that was set ahead must not empty the history
RUNS_MAX = 60_000  # 30 days at the default cadences are 54,720; the rest is for refreshes by hand
DAYS_KEPT = 400
RUN_NUMBERS = 10**12  # every number is smaller, so that keys sort by number
REMOVED_MAX = 128  # runs that one alarm removes
PAGE_RUNS = 500  # read from storage at once
SCANNED_MAX = 5_000  # runs that one query reads; `next` continues it
LAST_DAY_MS = 253_402_300_799_999
RUN_PREFIX = "run:"
LOG_PREFIX = "run-log:"
UNREADABLE = "unreadable:"
DAY_PREFIX = "day:"
KEPT_MAX = 400
TAIL_MAX = 50  # for a new watcher
WAIT_MAX_S = 25.0


class EntryReader:
    """Reads entries. `put_aside` has the keys of those that could not be read."""

    def __init__(self, storage: Storage, logger: Logger) -> None:
        self.storage = storage
        self._logger = logger
        self.put_aside: set[str] = set()

    def read(self, key: str, value: JSON, parse: Callable[[JSON], T], default: T) -> T:
        """Parse the value of an entry. No value at all, or an unreadable one, gives the default."""
        if value is None:
            return default
        try:
            return parse(value)
        except (MalformedShape, TypeError, ValueError, OverflowError) as error:
            self.storage.put(f"{UNREADABLE}{key}", value)
            self.storage.delete(key)
            self.put_aside.add(key)
            self._logger.exception(
                "state.entry_unreadable",
                key=key,
                reason=str(error),
                fix=f"its default is used; the stored value is kept under {UNREADABLE}{key} (docs/data.md)",
            )
            return default


def run_key(number: int) -> str:
    return f"{RUN_PREFIX}{number:012}"


def log_key(number: int) -> str:
    return f"{LOG_PREFIX}{number:012}"


def day_of(at_ms: int) -> str:
    """The day in UTC."""
    return datetime.fromtimestamp(min(max(at_ms, 0), LAST_DAY_MS) / 1000, UTC).strftime("%Y-%m-%d")


def counted(day: DayTotals, record: RunRecord, items: int = 0) -> DayTotals:
    """The day's totals with one more ended run."""
    task = day.tasks.get(record.task, TaskTotals())
    duration_ms = record.duration_ms or 0
    added = TaskTotals(
        runs=task.runs + 1,
        outcomes={**task.outcomes, record.outcome: task.outcomes.get(record.outcome, 0) + 1},
        calls=task.calls + record.calls,
        items=task.items + items,
        duration_ms=task.duration_ms + duration_ms,
        duration_max_ms=max(task.duration_max_ms, duration_ms),
    )
    return replace(day, tasks={**day.tasks, record.task: added})


class HistoryState(Protocol):
    """The part of the scheduler's state that belongs to the history."""

    run_seq: int
    days: dict[str, DayTotals]
    oldest_run: tuple[int, int] | None


def read_runs(entries: EntryReader, stored: Mapping[str, JSON]) -> dict[int, RunRecord]:
    records = [entries.read(key, value, RunRecord.from_json, None) for key, value in stored.items()]
    return {record.id: record for record in records if record is not None}


async def find_runs(state: HistoryState, entries: EntryReader, query: RunFilter) -> tuple[list[RunRecord], int | None]:
    """The newest matching runs, and where to continue if there may be more."""
    found: list[RunRecord] = []
    scanned = 0
    below = read_to = state.run_seq + 1 if query.before is None else query.before
    limit = max(1, query.limit)
    page_size = min(limit, PAGE_RUNS)  # enough if every run matches
    while stored := await entries.storage.list(prefix=RUN_PREFIX, end=run_key(read_to), reverse=True, limit=page_size):
        for number, run in read_runs(entries, stored).items():
            if query.since is not None and run.started_at < query.since:
                return found, None
            below, scanned = min(below, number), scanned + 1
            if query.fits(run):
                found.append(run)
            if len(found) >= limit or scanned >= SCANNED_MAX:
                return found, below if below > 1 else None
        read_to = min(map(run_number, stored))  # decreases with every page, whatever is stored
        page_size = PAGE_RUNS
        await asyncio.sleep(0)  # a long scan must not hold up the other work of the process
    return found, None


async def find_run(entries: EntryReader, number: int) -> RunRecord | None:
    """One run by its number."""
    key = run_key(number)
    return read_runs(entries, {key: await entries.storage.get(key)}).get(number)


def store_lines(storage: Storage, number: int, lines: RunLines) -> None:
    """Store the log lines of a run that has ended, in the same turn as the run."""
    if lines.lines:
        storage.put(log_key(number), lines.to_json())


async def read_lines(entries: EntryReader, number: int) -> RunLines:
    key = log_key(number)
    return entries.read(key, await entries.storage.get(key), RunLines.from_json, RunLines())


async def prepare_history(state: HistoryState, entries: EntryReader, now: int) -> None:
    """Prepare the history for a new run: load today's totals, and remove old runs."""
    await load_day(state, entries, now)
    await _remove_old(state, entries.storage, now)


async def load_day(state: HistoryState, entries: EntryReader, at_ms: int) -> None:
    """Load the totals of this day into memory, so that a run can be added to them."""
    day = day_of(at_ms)
    if day in state.days:
        return
    key = f"{DAY_PREFIX}{day}"
    state.days[day] = entries.read(key, await entries.storage.get(key), DayTotals.from_json, DayTotals(day))
    for old in sorted(state.days)[:-3]:
        del state.days[old]


async def read_days(entries: EntryReader, limit: int) -> list[DayTotals]:
    """The newest days first."""
    stored = await entries.storage.list(prefix=DAY_PREFIX, reverse=True, limit=limit)
    days = [entries.read(key, value, DayTotals.from_json, None) for key, value in stored.items()]
    return [day for day in days if day is not None]


async def _remove_old(state: HistoryState, storage: Storage, now: int) -> None:
    """Remove expired runs and days, about once an hour and a limited number at a time."""
    if state.oldest_run is None:
        oldest = await storage.list(prefix=RUN_PREFIX, limit=1)
        state.oldest_run = next((_numbered(key, value) for key, value in oldest.items()), None)
    if state.oldest_run is None or not _is_due(state.oldest_run, state.run_seq, now):
        return
    stored = await storage.list(prefix=RUN_PREFIX, limit=REMOVED_MAX)
    state.oldest_run = None
    for key, value in stored.items():
        number, started_at = run = _numbered(key, value)
        if not _is_old(run, state.run_seq, now):
            state.oldest_run = number, started_at
            break
        storage.delete(key)
        storage.delete(log_key(number))
    for key in await storage.list(
        prefix=DAY_PREFIX, end=f"{DAY_PREFIX}{day_of(now - DAYS_KEPT * DAY_MS)}", limit=REMOVED_MAX
    ):
        storage.delete(key)


def _is_old(run: tuple[int, int], run_seq: int, now: int) -> bool:
    number, started_at = run
    if run_seq - number < RUNS_MIN:
        return False
    return run_seq - number >= RUNS_MAX or started_at < now - KEPT_MS


def _is_due(oldest: tuple[int, int], run_seq: int, now: int) -> bool:
    """Whether to remove runs now: an hour after the first expires, so that one query removes many at once."""
    return _is_old((oldest[0] + REMOVED_MAX, oldest[1]), run_seq, now - HOUR_MS)


def _numbered(key: str, value: JSON) -> tuple[int, int]:
    """A stored run's number and start; an unreadable run counts as started at 0."""
    started_at = value.get("startedAt") if isinstance(value, dict) else None
    return run_number(key), started_at if type(started_at) is int else 0


def run_number(key: str) -> int:
    digits = key.removeprefix(RUN_PREFIX)
    return int(digits) if digits.isascii() and digits.isdecimal() and len(digits) <= 15 else 0


class EventLog:
    """Numbered events in memory. A watcher asks for those after the last one it saw; a new watcher passes 0."""

    def __init__(self, first: int) -> None:
        # Numbers keep growing across restarts, so a watcher's last number never refers to a different event.
        self._next = first
        self._kept: deque[SchedulerEvent] = deque(maxlen=KEPT_MAX)
        self._added = asyncio.Event()

    def add(self, event: str, at: int, fields: FreeForm) -> None:
        self._kept.append(SchedulerEvent(self._next, at, event, fields))
        self._next += 1
        self._added.set()
        self._added = asyncio.Event()

    async def after(self, seq: int, wait_s: float) -> EventBatch:
        """Events after this number; waits for the first if there is none yet."""
        if not self._since(seq) and wait_s > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(min(wait_s, WAIT_MAX_S)):
                    await self._added.wait()
        return EventBatch(self._since(seq), self._next - 1)

    def _since(self, seq: int) -> list[SchedulerEvent]:
        if seq <= 0:
            return list(self._kept)[-TAIL_MAX:]
        return [event for event in self._kept if event.seq > seq]
