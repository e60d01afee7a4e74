"""The methods of an object that keeps a run history."""

from tocsin.bindings import JSON
from tocsin.errors import UsageError
from tocsin.scheduler.audit_log import AuditedObject
from tocsin.scheduler.config import SchedulerEnv
from tocsin.scheduler.run import Run
from tocsin.scheduler.run_history import RunQuery, find_run, find_runs, read_days, read_lines
from tocsin.scheduler.state import SchedulerState
from tocsin.scheduler.task import Task
from tocsin.shapes.base import FreeForm
from tocsin.shapes.run_days import DayList
from tocsin.shapes.run_detail import RunDetail
from tocsin.shapes.scheduler import RunList


class HistoryObject(AuditedObject):
    """Public methods return JSON: see `SchedulerClient` for the shapes."""

    env: SchedulerEnv
    _state: SchedulerState
    _tasks: dict[str, Task]
    _running: dict[str, Run]

    async def runs(
        self,
        task: str | None = None,
        limit: int = 50,
        outcome: str | None = None,
        since: int | None = None,
        before: int | None = None,
        trigger: str | None = None,
        until: int | None = None,
    ) -> FreeForm:
        """Runs of all tasks or of one, newest first. `before` is the `next` of the previous answer."""
        if task is not None:
            self._check_known(task)
        query = RunQuery(task, max(1, limit), outcome, since, before, trigger, until)
        found = await find_runs(self._state, self.ctx.storage, self.env.logger, query)
        return RunList(self.ctx.id.name, *found).to_json()

    async def run(self, number: int) -> FreeForm:
        """One run, with its log lines."""
        found = await find_run(self.ctx.storage, self.env.logger, number)
        if found is None:
            raise UsageError(f"there is no run {number}: it never began, or it is too old to be kept")
        live = next((each for each in self._running.values() if each.record.id == number), None)
        if live is not None:
            return RunDetail(self.ctx.id.name, found, live.progress(), live.kept.lines()).to_json()
        lines = await read_lines(self.ctx.storage, self.env.logger, number)
        return RunDetail(self.ctx.id.name, found, None, lines).to_json()

    async def days(self, limit: int = 30) -> FreeForm:
        """The totals of each day, newest first."""
        days = await read_days(self.ctx.storage, self.env.logger, max(1, limit))
        return DayList(self.ctx.id.name, days).to_json()

    def _check_known(self, task: JSON, *others: str) -> None:
        if task not in [*self._tasks]:
            known = ", ".join([*self._tasks, *others])
            raise UsageError(f"there is no task {task!r:.60}: give one of {known}")
