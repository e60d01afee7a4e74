"""What the scheduler remembers, under the keys that its users know.

Per task: `last<Task>RunAt`, `last<Task>Result`. By task: `consecutiveFailures`, `nextRunAfter`,
`lastSlotAt`, `lastSuccessAt`, `lastError`, `missedSlots`, `rerun`, `runCounts` (ever, by outcome). For the
scheduler: `pausedUntil`, `armedAt`, `runSeq`, and the history of runs under `run:<number>`. Long-lived
cursors are in the database.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice

from tocsin.bindings import JSON, Storage
from tocsin.scheduler.run import RunRecord

RUNS_MAX = 500  # a day at the default cadences is 288 + 96; the rest is for refreshes by hand
RECENT_MAX = 12  # runs from which a task's usual calls are known
BY_TASK = (
    "consecutiveFailures",
    "nextRunAfter",
    "lastSlotAt",
    "lastSuccessAt",
    "lastError",
    "missedSlots",
    "rerun",
    "runCounts",
)


def run_at_key(task: str) -> str:
    return f"last{task[:1].upper()}{task[1:]}RunAt"


def result_key(task: str) -> str:
    return f"last{task[:1].upper()}{task[1:]}Result"


def run_key(number: int) -> str:
    return f"run:{number:012}"


@dataclass(slots=True)
class SchedulerState:
    """A copy of the object's storage in memory; `save` writes what changed, in one turn."""

    paused_until: int | None = None
    armed_at: int | None = None
    run_seq: int = 0
    by_task: dict[str, dict[str, JSON]] = field(default_factory=lambda: {key: {} for key in BY_TASK})
    last_run_at: dict[str, int] = field(default_factory=dict)
    last_result: dict[str, JSON] = field(default_factory=dict)
    runs: dict[int, RunRecord] = field(default_factory=dict)  # by number, oldest first

    @classmethod
    async def load(cls, storage: Storage, tasks: Iterable[str]) -> "SchedulerState":
        names = list(tasks)
        keys = [*BY_TASK, "pausedUntil", "armedAt", "runSeq"]
        keys += [key(name) for name in names for key in (run_at_key, result_key)]
        found = await storage.get(keys)
        state = cls(found.get("pausedUntil"), found.get("armedAt"), found.get("runSeq", 0))
        for key in BY_TASK:
            state.by_task[key] = dict(found.get(key, {}))
        for name in names:
            if run_at_key(name) in found:
                state.last_run_at[name] = found[run_at_key(name)]
            if result_key(name) in found:
                state.last_result[name] = found[result_key(name)]
        for stored in (await storage.list(prefix="run:")).values():
            record = RunRecord.from_json(stored)
            state.runs[record.id] = record
        return state

    def failures(self, task: str) -> int:
        count: int = self.by_task["consecutiveFailures"].get(task, 0)
        return count

    def recent_calls(self, task: str) -> list[int]:
        """How many calls the newest runs made that went well."""
        newest = reversed(self.runs.values())
        well = (run.calls for run in newest if run.task == task and run.outcome == "ok")
        return list(islice(well, RECENT_MAX))

    def begin(self, record: RunRecord) -> None:
        """Take a run into the history; the oldest ones leave it."""
        self.run_seq = max(self.run_seq, record.id)
        self.runs[record.id] = record
        if record.slot_at is not None:
            self.by_task["lastSlotAt"][record.task] = record.slot_at
            missed = self.by_task["missedSlots"]
            missed[record.task] = missed.get(record.task, 0) + record.missed
        self.by_task["rerun"].pop(record.task, None)
        self.last_run_at[record.task] = record.started_at

    def end(self, record: RunRecord, *, limited_until: int | None, backoff_max_ms: int, now: int) -> None:
        """Learn from how a run ended."""
        name = record.task
        self.last_result[name] = record.summary()
        counts = self.by_task["runCounts"].setdefault(name, {})
        counts[record.outcome] = counts.get(record.outcome, 0) + 1
        if record.outcome == "ok":
            self.by_task["lastSuccessAt"][name] = now
            self.by_task["consecutiveFailures"][name] = 0
            self.by_task["nextRunAfter"].pop(name, None)
            self.by_task["lastError"].pop(name, None)
        elif record.outcome in {"failed", "interrupted"}:
            self.by_task["consecutiveFailures"][name] = self.failures(name) + 1
            self.by_task["lastError"][name] = {"at": now, **(record.error or {})}
        if limited_until is not None:
            self.hold(name, min(limited_until, now + backoff_max_ms))

    def hold(self, task: str, until: int) -> None:
        self.by_task["nextRunAfter"][task] = until

    def interrupt(self, now: int) -> list[RunRecord]:
        """Runs that the last process did not end: failures, and to be run again at once.

        Not a second time in a row: a task that takes the process down with it waits for its next slot, or
        the process would do nothing but start.
        """
        cut_off = [record for record in self.runs.values() if record.outcome == "running"]
        for record in cut_off:
            before = [r for r in self.runs.values() if r.task == record.task and r.id < record.id]
            record.outcome, record.ended_at = "interrupted", now
            record.error = {"class": "Interrupted", "message": "the process ended during this run"}
            self.end(record, limited_until=None, backoff_max_ms=0, now=now)
            if not before or before[-1].outcome != "interrupted":
                self.by_task["rerun"][record.task] = True
        return cut_off

    def save(self, storage: Storage, *records: RunRecord) -> None:
        """Write everything, and these runs; takes effect at once and is committed with the turn."""
        entries: dict[str, JSON] = {
            **self.by_task,
            "runSeq": self.run_seq,
            "pausedUntil": self.paused_until,
            "armedAt": self.armed_at,
        }
        for name, at in self.last_run_at.items():
            entries[run_at_key(name)] = at
        for name, result in self.last_result.items():
            entries[result_key(name)] = result
        for record in records:
            entries[run_key(record.id)] = record.to_json()
        storage.put(entries)
        while len(self.runs) > RUNS_MAX:
            oldest = next(iter(self.runs))
            del self.runs[oldest]
            storage.delete(run_key(oldest))
