"""The invariants checked while a history runs; docs/guarantees.md explains each by its name.

The database is read without the service's code. `FoundChecks` measures how long a swap is missing while the service
reports that it is ready.
"""

import sqlite3
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.types import JSON
from tocsin.scheduler.types import Status
from tocsin.settings import Settings

LATE_S = 2.0  # how late a run may start without an excuse
BACKOFF_MAX_MS = 3_600_000
PERMIT_S = 0.05  # how long a permitted call may wait until the object's writes are durable
SEEN_EVERY_S = 3_600.0  # at least one run begins in this time, and shows what the tasks can afford
SETTLE_S = 130.0  # how long the alarm may wait for its retry after a disk fault
FAILED = frozenset({"failed", "limited", "partial", "interrupted", "stopped"})
CADENCES_MAX = 2
# A list that stands still is told after this time; an index that lags has four attempts in half an hour.
UNTOLD_S = Settings().block_age_max / 1000 + 1_800
_SWAPS = "SELECT txid FROM swaps"


@dataclass(frozen=True, slots=True)
class Violation:
    """A promise that was broken."""

    name: str
    at_s: float
    text: str

    def __str__(self) -> str:
        return f"{self.name} at {self.at_s:.3f} s: {self.text}"


@dataclass(slots=True)
class TaskWatch:
    """The observations of one task."""

    cadence_s: float
    running: int | None = None
    started_s: float | None = None
    ended_s: float | None = None
    complete_s: float | None = None
    slot_ms: int | None = None
    slot_s: float = 0.0  # when that was, in true time
    outcome: str | None = None
    failures: int = 0
    stretched_s: float = -1.0  # when it was seen to run less often than configured


@dataclass(slots=True)
class Excuses:
    """Times in which a slot may be missed or late, whatever the task does."""

    spans: deque[tuple[float, float, str]] = field(default_factory=lambda: deque(maxlen=400))

    def add(self, from_s: float, until_s: float, why: str) -> None:
        self.spans.append((from_s, until_s, why))

    def cover(self, from_s: float, until_s: float) -> str | None:
        """Return why something between these times may be late."""
        for began_s, ended_s, why in reversed(self.spans):
            if began_s <= until_s and from_s <= ended_s:
                return why
        return None


class RunChecks:
    """Follows the runs in the log: slots, single run, pause."""

    def __init__(self) -> None:
        self.tasks: dict[str, TaskWatch] = {}
        self.excuses = Excuses()
        self.paused_until_ms: int | None = None  # as acknowledged
        self.pause_is_known = True
        self.violations: list[Violation] = []
        self.runs = 0
        self.begun_s = 0.0  # when this process was armed
        self.clock_set_s = -1.0

    def broken(self, name: str, at_s: float, text: str) -> None:
        self.violations.append(Violation(name, at_s, text))

    def process_began(self, now_s: float, cadences_s: Mapping[str, float]) -> None:
        """Note a new process: no run is under way, whatever the last one did."""
        self.begun_s = now_s
        self.follow(cadences_s, now_s)
        self.lost_runs()

    def ages_are_unknown(self, now_s: float) -> None:
        """Count all ages from now: no clock of the machine shows when earlier events happened."""
        for task in self.tasks.values():
            task.complete_s = now_s

    def lost_runs(self) -> None:
        """Note that all runs were ended, by the end of the process or a reset of the object."""
        for task in self.tasks.values():
            if task.running is not None:
                task.running, task.outcome = None, "interrupted"

    def follow(self, cadences_s: Mapping[str, float], now_s: float) -> None:
        """Note the tasks that are enabled now. A new cadence has other slots."""
        for name in [name for name in self.tasks if name not in cadences_s]:
            del self.tasks[name]
        for name, cadence_s in cadences_s.items():
            task = self.tasks.setdefault(name, TaskWatch(cadence_s, complete_s=now_s))
            if task.cadence_s != cadence_s:
                self.excuses.add(now_s, now_s + 2 * max(cadence_s, task.cadence_s), "another cadence")
                task.cadence_s, task.slot_ms = cadence_s, None

    def stretched(self, name: str, effective_ms: int, now_s: float) -> None:
        """Note how often a task can afford to run now."""
        task = self.tasks.get(name)
        if task is not None and effective_ms > task.cadence_s * 1000:
            task.stretched_s = now_s

    def started(self, fields: Mapping[str, JSON], now_s: float, wall_ms: int) -> None:
        name, trigger, slot_ms = str(fields["task"]), fields["trigger"], fields["slotAt"]
        task = self.tasks.get(name)
        self.runs += 1
        if task is None:
            self.broken("settings", now_s, f"{name} is switched off, and a run began")
            return
        if task.running is not None:
            self.broken("single-run", now_s, f"{name}: run {fields['run']} began beside run {task.running}")
        if trigger != "refresh":
            if self.pause_is_known and self.paused_until_ms is not None and wall_ms < self.paused_until_ms:
                self.broken("pause", now_s, f"{name} began {self.paused_until_ms - wall_ms} ms before the end")
            assert isinstance(slot_ms, int)
            self._slot(name, task, str(trigger), slot_ms, now_s, wall_ms)
        task.running, task.started_s = int(str(fields["run"])), now_s

    def _slot(self, name: str, task: TaskWatch, trigger: str, slot_ms: int, now_s: float, wall_ms: int) -> None:
        late_s = (wall_ms - slot_ms) / 1000
        last_ms, cadence_ms = task.slot_ms, int(task.cadence_s * 1000)
        if trigger == "alarm":
            if late_s > LATE_S and self.excuse(task, now_s - late_s, now_s) is None:
                self.broken("slots", now_s, f"{name}: the run of slot {slot_ms} began {late_s:.1f} s late")
            comes_again = last_ms is not None and slot_ms <= last_ms and task.slot_s > self.clock_set_s
            if comes_again and self.excuses.cover(now_s - 1, now_s) is None:
                self.broken("slots", now_s, f"{name}: slot {slot_ms} was run twice")
            if last_ms is not None and slot_ms - last_ms > cadence_ms:
                # By the current clock, and by the clock at the last slot: it may have been set since.
                missed_s = (now_s - (wall_ms - last_ms - cadence_ms) / 1000, task.slot_s + task.cadence_s)
                if not any(self.excuse(task, at_s, at_s + LATE_S) for at_s in missed_s):
                    self.broken("slots", now_s, f"{name}: the slot {last_ms + cadence_ms} was missed")
        task.slot_ms, task.slot_s = slot_ms, now_s - late_s

    def excuse(self, task: TaskWatch, from_s: float, until_s: float) -> str | None:
        if task.running is not None or (task.ended_s is not None and task.ended_s >= from_s):
            return "still running"
        if task.outcome in FAILED and until_s - (task.ended_s or 0) < BACKOFF_MAX_MS / 1000 + 2 * task.cadence_s:
            return "held back"
        if task.stretched_s >= from_s - max(task.cadence_s, SEEN_EVERY_S):
            return "stretched"
        return self.excuses.cover(from_s, until_s)

    def ended(self, fields: Mapping[str, JSON], now_s: float) -> None:
        task = self.tasks.get(str(fields["task"]))
        if task is None:
            return
        task.running, task.ended_s, task.outcome = None, now_s, str(fields["outcome"])
        if task.outcome == "ok":
            task.complete_s, task.failures = now_s, 0
        elif task.outcome in {"failed", "limited"}:
            task.failures += 1

    def looked(self, status: Status, now_s: float, wall_ms: int) -> None:
        """Check the invariants that a status can show."""
        for name, task in self.tasks.items():
            shown = status.tasks[name]
            self.stretched(name, shown.effective_cadence_ms, now_s)
            after_ms = status.next_run_after[name]
            longest_ms = max(BACKOFF_MAX_MS, shown.cadence_ms // 10)
            if after_ms is not None and after_ms > wall_ms + longest_ms + 1000:
                self.broken("back-off", now_s, f"{name} is held back for {after_ms - wall_ms} ms")
            quiet_s = now_s - max(task.started_s or self.begun_s, task.ended_s or 0, self.begun_s)
            is_quiet = quiet_s > task.cadence_s + LATE_S and task.running is None
            if is_quiet and self.excuse(task, now_s - quiet_s, now_s) is None:
                self.broken("slots", now_s, f"{name} has not run for {quiet_s:.0f} s")
        if not self.pause_is_known:
            self.paused_until_ms, self.pause_is_known = status.paused_until, True
        wanted = self.paused_until_ms
        if wanted is not None and wanted <= wall_ms:
            wanted = None
        if status.paused_until != wanted and self.excuses.cover(now_s - 1, now_s) is None:
            self.broken("acknowledged", now_s, f"paused until {wanted}, the status says {status.paused_until}")


class CallChecks:
    """Counts the calls of an upstream in every second and every minute, wherever they begin."""

    def __init__(self, limits: Mapping[float, int | None]) -> None:
        self.limits = {length_s: limit for length_s, limit in limits.items() if limit is not None}
        self._calls: deque[float] = deque()
        self.count = 0

    def called(self, now_s: float) -> str | None:
        """Return a sentence if this call is one too many."""
        self.count += 1
        self._calls.append(now_s)
        while self._calls[0] <= now_s - max(self.limits):
            self._calls.popleft()
        for length_s, limit in self.limits.items():
            calls = sum(at_s > now_s - length_s + PERMIT_S for at_s in self._calls)
            if calls > limit:
                return f"{calls} calls in {length_s:g} s, the plan allows {limit}"
        return None


def cadences_of(settings: Settings) -> dict[str, float]:
    """Return the enabled tasks and their cadences."""
    cadences = {}
    if settings.tenero_enabled:
        cadences["tenero"] = settings.tenero_cadence / 1000
    if settings.feed_enabled:
        cadences["feed"] = settings.feed_cadence / 1000
    if settings.sweep_enabled:
        cadences["sweep"] = settings.sweep_cadence / 1000
    if settings.chainhook_id is not None:
        cadences["chainhook"] = 3_600.0
    return cadences | {"board": 3_600.0, "snapshot": 3_600.0}


def has_alarm(connection: sqlite3.Connection) -> bool:
    return connection.execute("SELECT 1 FROM alarms LIMIT 1").fetchone() is not None


UNREAD_PUSH = "Chainhook delivers transactions of which none can be read"


def readiness(
    ready: bool, reasons: list[str], status: Status, checks: RunChecks, now_s: float, *, disk_is_full: bool
) -> str | None:
    """Return a sentence if the service reports a wrong readiness."""
    ages = {name: now_s - (task.complete_s or 0) for name, task in checks.tasks.items() if task.cadence_s > 0}
    for name, age_s in ages.items():
        shown = status.tasks[name]
        bound_s = max(2 * shown.effective_cadence_ms, shown.overdue_after_ms) / 1000
        if ready and age_s > bound_s + LATE_S:
            return f"ready, but {name} was not complete for {age_s:.0f} s (bound {bound_s:.0f} s)"
    fine = all(task.outcome == "ok" and ages[name] <= task.cadence_s + LATE_S for name, task in checks.tasks.items())
    reasons = [reason for reason in reasons if not reason.startswith(UNREAD_PUSH)]  # true: there are odd pushes
    if not ready and reasons and fine and not disk_is_full and checks.excuses.cover(now_s - SETTLE_S, now_s) is None:
        return f"not ready, but every task was complete within its cadence: {reasons}"
    return None


if TYPE_CHECKING:
    from simulation.history import History


@dataclass(slots=True)
class _Span:
    """A time in which the state may have been the same, and the longest cadence in it."""

    from_s: float = 0.0
    cadence_s: float = 0.0


class FoundChecks:
    """Follows the swaps that are on the chain and not recorded.

    `longest` has the longest time that the same swap was missing, in cadences of the task that finds swaps: while the
    state was `ready`, and while /readyz was 200, which it also is for some time after incomplete runs. Looks are rare,
    so the time since the last look with another state counts.
    """

    def __init__(self, history: "History") -> None:
        self._history = history
        self._spans = {"ready": _Span(), "200": _Span()}
        self.longest: dict[str, float] = {"ready": 0.0, "200": 0.0}

    def look(self, status: Status, state: str, *, is_200: bool) -> None:
        history, now_s = self._history, self._history.time.now_s
        cadence_s = self._finding_cadence_s(status)
        for name, holds in (("ready", state == "ready"), ("200", is_200)):
            span = self._spans[name]
            if not holds or history.checks.excuses.cover(span.from_s, now_s) is not None:
                self._spans[name] = _Span(now_s, cadence_s)
            self._spans[name].cadence_s = max(self._spans[name].cadence_s, cadence_s)
        if min(span.from_s for span in self._spans.values()) >= now_s:
            return
        for txid, mined_s in self._missing().items():
            for name, span in self._spans.items():
                missing_s = now_s - max(mined_s, span.from_s)
                self.longest[name] = max(self.longest[name], missing_s / span.cadence_s)
                too_long = missing_s > CADENCES_MAX * span.cadence_s + UNTOLD_S
                if name == "ready" and too_long:
                    text = f"{txid} is missing for {missing_s:.0f} s at a cadence of {span.cadence_s:.0f} s"
                    history.broken("found", text)

    def _finding_cadence_s(self, status: Status) -> float:
        """Return the cadence of the feed, or of the sweep if that finds the swaps."""
        followed = (status.last_result.get("feed") or {}).get("way") == "network"
        task = status.tasks.get("feed" if followed else "sweep")
        return 1e9 if task is None else max(task.effective_cadence_ms, task.cadence_ms) / 1000

    def _missing(self) -> Mapping[str, float]:
        """Return the swaps that must be recorded and are not, with the time of their block in the history."""
        outside = self._history.outside
        recorded = {row["txid"] for row in self._history.reader.rows(_SWAPS)}
        start_s = outside.time.start_ms / 1000
        return {
            swap.txid: outside.mined_s(swap.txid) - start_s
            for swap in outside.truth()
            if swap.txid not in recorded
            and outside.mined_s(swap.txid) >= outside.counted_since_s(swap.sender)
            and not outside.may_be_left_out(swap.txid)
        }


class DatabaseReader:
    """Keeps one connection for each process of the service: opening one takes longer than most queries."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection: sqlite3.Connection | None = None

    @contextmanager
    def at_one_instant(self) -> Iterator[sqlite3.Connection]:
        """Give a snapshot for several queries about the same state."""
        if self._connection is None:
            self._connection = sqlite3.connect(self._path, isolation_level=None)
        self._connection.execute("BEGIN")
        try:
            yield self._connection
        finally:
            self._connection.execute("COMMIT")

    def rows(self, sql: str) -> list[dict[str, Any]]:
        with self.at_one_instant() as database:
            return rows_of(database, sql)

    def close(self) -> None:
        """Close before the process ends: the last one to close the file cleans up, and that should be the service."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(sqlite3.Error):
                connection.close()


def rows_of(database: sqlite3.Connection, sql: str, values: tuple[Any, ...] = ()) -> list[dict[str, Any]]:
    cursor = database.execute(sql, values)
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor]
