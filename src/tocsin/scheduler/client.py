"""Typed calls to `SchedulerDO`, through a stub of either platform."""

from typing import Any

from holdfast.types import JSON
from tocsin.scheduler.jobs import JobChange, JobList
from tocsin.scheduler.types import (
    AuditEntry,
    AuditList,
    AuditOutcome,
    DayList,
    EventBatch,
    MeasuredStatus,
    Paused,
    RefreshResult,
    Resumed,
    RunDetail,
    RunFilter,
    RunList,
    Status,
)
from tocsin.upstream.lookups import Lookup, LookupAnswer


class SchedulerClient:
    """Wraps one stub. Make a new client for each use, because a stub does not outlive its object."""

    def __init__(self, stub: Any) -> None:  # noqa: ANN401 - a stub accepts any method name
        self._stub = stub

    async def arm(self) -> int | None:
        """Make sure that the alarm is set; safe to call at any time. Returns when it rings."""
        at: int | None = await self._stub.arm()
        return at

    async def status(self) -> Status:
        return Status.from_json(await self._stub.status())

    async def refresh(self, task: str) -> RefreshResult:
        return RefreshResult.from_json(await self._stub.refresh_now(task))

    async def refresh_all(self) -> dict[str, RefreshResult]:
        results: dict[str, JSON] = await self._stub.refresh_now("all")
        return {task: RefreshResult.from_json(result) for task, result in results.items()}

    async def pause_until(self, until: int, task: str | None = None, by: AuditEntry | None = None) -> Paused:
        """Pause one task, or all, and record who asked for it in the same transaction."""
        return Paused.from_json(await self._stub.pause_until(until, task, None if by is None else by.to_json()))

    async def resume(self, task: str | None = None, by: AuditEntry | None = None) -> Resumed:
        return Resumed.from_json(await self._stub.resume(task, None if by is None else by.to_json()))

    async def runs(self, query: RunFilter) -> RunList:
        return RunList.from_json(await self._stub.runs(query.to_json()))

    async def run(self, number: int) -> RunDetail:
        return RunDetail.from_json(await self._stub.run(number))

    async def days(self, limit: int) -> DayList:
        return DayList.from_json(await self._stub.days(limit))

    async def measured_status(self) -> MeasuredStatus:
        return MeasuredStatus.from_json(await self._stub.measured_status())

    async def events(self, after: int, wait_ms: int) -> EventBatch:
        return EventBatch.from_json(await self._stub.events(after, wait_ms))

    async def run_job(self, job: str, argument: JSON) -> JSON:
        result: JSON = await self._stub.run_job(job, argument)
        return result

    async def look_up(self, asked: Lookup) -> LookupAnswer:
        return LookupAnswer.from_json(await self._stub.look_up(asked.to_json()))

    async def jobs(self) -> JobList:
        return JobList.from_json(await self._stub.jobs())

    async def change_jobs(self, change: JobChange, by: AuditEntry | None = None) -> JobList:
        return JobList.from_json(await self._stub.change_jobs(change.to_json(), None if by is None else by.to_json()))

    async def audit_begin(self, entry: AuditEntry) -> str:
        """Record an action that is about to be done. Returns the record's id."""
        record_id: str = await self._stub.audit_begin(entry.to_json())
        return record_id

    async def audit_end(self, record_id: str, outcome: AuditOutcome, detail: str | None) -> None:
        await self._stub.audit_end(record_id, outcome, detail)

    async def audit(self, limit: int) -> AuditList:
        return AuditList.from_json(await self._stub.audit(limit))

    async def reload(self) -> None:
        """Have the object adopt the tasks and request jobs of its environment."""
        await self._stub.reload()
