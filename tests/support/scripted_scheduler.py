"""A test double of the scheduler's stub, scripted by the test, and a site around it on real stores."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from holdfast.errors import UsageError
from holdfast.testing.virtual_time import VirtualClock
from holdfast.types import JSON, Clock
from support.statuses import refresh_result, run_record, scheduler_status
from support.world import ADMIN_KEY, CRON_SECRET, VIEWER_KEY, Tocsin, named_keys, tocsin_in
from tocsin.scheduler.health import HealthSnapshot
from tocsin.scheduler.types import (
    AuditEntry,
    AuditList,
    AuditOutcome,
    AuditRecord,
    DayList,
    DayTotals,
    EventBatch,
    Measures,
    Paused,
    Resumed,
    RunDetail,
    RunError,
    RunFilter,
    RunLine,
    RunLines,
    RunList,
    RunRecord,
    SchedulerEvent,
    Status,
    TaskTotals,
)
from tocsin.text import utc_time
from tocsin.web.deps import WebDeps

__all__ = ("ADMIN_KEY", "CRON_SECRET", "HEALTHY", "VIEWER_KEY", "Scene", "ScriptedScheduler", "named_keys", "scene")

HEALTHY = HealthSnapshot(loop_tick_age_s=0.1, store_error=None, status=scheduler_status())


@dataclass
class ScriptedScheduler:
    """Returns JSON as the object does, and remembers its calls. `failing` is raised by every call."""

    clock: Clock
    shown: Status = field(default_factory=scheduler_status)
    failing: Exception | None = None
    calls: list[tuple[Any, ...]] = field(default_factory=list)
    history: list[RunRecord] = field(default_factory=list)
    happened: list[SchedulerEvent] = field(default_factory=list)
    audited: dict[str, AuditRecord] = field(default_factory=dict)
    news: asyncio.Event = field(default_factory=asyncio.Event)
    measured: Measures = field(default_factory=Measures)
    statuses_per_refresh: int = 0  # a refresh ends after this many requests for the status
    _asked: asyncio.Condition = field(default_factory=asyncio.Condition)

    def show(self, **changes: Any) -> None:
        """Change fields of the status."""
        self.shown = replace(self.shown, **changes)

    async def arm(self) -> JSON:
        self._called("arm")
        return self.shown.next_alarm_at

    async def status(self) -> JSON:
        self._called("status")
        async with self._asked:
            self._asked.notify_all()
        return replace(self.shown, now=self.clock.now()).to_json()

    async def refresh_now(self, task: str) -> JSON:
        self._called("refresh_now", task)
        if task not in {"tenero", "sweep", "all"}:
            raise UsageError(f"there is no task {task!r}: give one of tenero, sweep, all")
        enough = self.calls.count(("status",)) + self.statuses_per_refresh
        async with self._asked:
            await self._asked.wait_for(lambda: self.calls.count(("status",)) >= enough)
        results = {name: self._result(name) for name in ("tenero", "sweep")}
        return {**results} if task == "all" else results[task]

    async def pause_until(self, until: int, task: str | None = None, by: dict[str, Any] | None = None) -> JSON:
        self._called("pause_until", until, task)
        if until <= self.clock.now():
            raise UsageError("That time is past. Give one at most 7 days ahead.")
        self.show(paused_until=until)
        await self._audit(by, f"until {utc_time(until)}")
        return Paused("v1", until, task).to_json()

    async def resume(self, task: str | None = None, by: dict[str, Any] | None = None) -> JSON:
        self._called("resume", task)
        await self._audit(by, None)
        self.show(paused_until=None)
        return Resumed("v1", resumed=True, task=task).to_json()

    async def runs(self, query: dict[str, Any] | None = None) -> JSON:
        self._called("runs", query)
        asked = RunFilter.from_json(query or {})
        if asked.task not in {None, *self.shown.tasks}:
            raise UsageError(f"there is no task {asked.task!r}: give one of tenero, sweep")
        runs = [run for run in self.history if asked.fits(run) and run.id < (asked.before or 10**9)]
        return RunList(
            "v1", runs[: asked.limit], runs[asked.limit - 1].id if len(runs) > asked.limit else None
        ).to_json()

    async def run(self, number: int) -> JSON:
        self._called("run", number)
        for run in self.history:
            if run.id == number:
                line = RunLine(run.started_at, "WARN", "sweep.unit_unanswered", "unit=SP.one reason=HTTP 503")
                return RunDetail("v1", run, None, RunLines([line], 3)).to_json()
        raise UsageError(f"there is no run {number}")

    async def days(self, limit: int) -> JSON:
        self._called("days", limit)
        totals = TaskTotals(runs=3, outcomes={"ok": 2, "failed": 1}, calls=27, items=9, duration_ms=600)
        return DayList("v1", [DayTotals("2026-05-13", {"tenero": totals})]).to_json()

    async def measures(self) -> JSON:
        self._called("measures")
        return self.measured.to_json()

    async def events(self, after: int, wait_ms: int) -> JSON:
        self._called("events", after, wait_ms)
        if not self._since(after):
            self.news.clear()
            waiting = asyncio.ensure_future(self.news.wait())
            await asyncio.wait({waiting}, timeout=wait_ms / 1000)
            waiting.cancel()
        events = self._since(after)
        return EventBatch(events, events[-1].seq if events else after).to_json()

    async def run_job(self, job: str, argument: JSON) -> JSON:
        self._called("run_job", job, argument)
        return None

    async def audit_begin(self, entry: dict[str, Any]) -> str:
        self._check()
        record_id = f"{entry['role']}-{len(self.audited) + 1}"
        fields = AuditEntry.from_json(entry).to_json()
        self.audited[record_id] = AuditRecord.from_json({**fields, "id": record_id, "at": self.clock.now()})
        return record_id

    async def audit_end(self, record_id: str, outcome: AuditOutcome, detail: str | None) -> None:
        ended = replace(self.audited[record_id], outcome=outcome, ended_at=self.clock.now(), detail=detail)
        self.audited[record_id] = ended

    async def _audit(self, by: dict[str, Any] | None, detail: str | None) -> None:
        if by is not None:
            await self.audit_end(await self.audit_begin(by), "done", detail)

    async def audit(self, limit: int) -> JSON:
        return AuditList("v1", list(reversed(self.audited.values()))[:limit]).to_json()

    async def reload(self) -> None:
        self._called("reload")

    def emit(self, event: str, **fields: JSON) -> None:
        self.happened.append(SchedulerEvent(len(self.happened) + 1, self.clock.now(), event, fields))
        self.news.set()

    def _result(self, task: str) -> dict[str, JSON]:
        failed = self.shown.consecutive_failures[task] > 0
        record = run_record(
            task=task,
            trigger="refresh",
            outcome="failed" if failed else "ok",
            error=RunError("TaskFailed", "hiro said 503") if failed else None,
            result=self.shown.last_result[task] or {},
        )
        return refresh_result(record, paused_until=self.shown.paused_until).to_json()

    def _since(self, after: int) -> list[SchedulerEvent]:
        return [event for event in self.happened if event.seq > after]

    def _called(self, *call: Any) -> None:
        self.calls.append(call)
        self._check()

    def _check(self) -> None:
        if self.failing is not None:
            raise self.failing


@dataclass
class Scene(Tocsin):
    """Tocsin with a scheduler and a health that a test changes."""

    scheduler: ScriptedScheduler
    health: HealthSnapshot = HEALTHY

    @property
    def site(self) -> WebDeps:
        return self.deps

    def with_site(self, **changes: Any) -> WebDeps:
        self.with_deps(**changes)
        return self.deps

    async def snapshot(self) -> HealthSnapshot:
        if self.scheduler.failing is not None:
            return replace(self.health, status=None, scheduler_error=str(self.scheduler.failing))
        return replace(self.health, status=replace(self.scheduler.shown, now=self.clock.now()))


@asynccontextmanager
async def scene(directory: Path, clock: Clock | None = None) -> AsyncIterator[Scene]:
    """Open Tocsin with a scripted scheduler; in virtual time unless a clock is given."""
    clock = clock or VirtualClock()
    scheduler = ScriptedScheduler(clock)
    async with tocsin_in(directory, clock=clock, stub=scheduler) as tocsin:
        made = Scene(tocsin.built, tocsin.db, tocsin.kv, clock, tocsin.log, tocsin.simulator, None, scheduler)
        made.with_deps(health=made.snapshot, measured_health=None, version="1.2.3")
        yield made
