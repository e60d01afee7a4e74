"""THE OBJECT: one alarm, all periodic work.

`alarm()` decides which tasks are due, sets the next alarm, starts the tasks, and waits for them, but never beyond the
next alarm, even if that moves to an earlier time. A run that takes longer continues in the background. So no task
delays another, and whenever the process dies, the next alarm is set. docs/architecture.md describes the failure
policies A to D: only the platform's own failures leave `alarm()` (A), a task's failure is a result (B), a limited
upstream holds its task back, which then runs again (C), the breaker is a setting (D).

Emits: `run.started`, `run.progressed`, `run.ended`, `run.interrupted`, `alarm.armed`, `scheduler.paused`,
`scheduler.resumed`, `scheduler.drained`, `breaker.opened`, `budget.overdrawn`, `admin.acted`, as log lines and as
events; `budget.changed` as an event only; `job.unusable` as a log line only.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from holdfast.errors import BindingMissing, UsageError
from holdfast.types import JSON, AlarmInfo, DurableObject, Level, ObjectContext, write_log
from tocsin.scheduler.alerts import TaskAlerts
from tocsin.scheduler.audit import AuditLog
from tocsin.scheduler.config import SchedulerEnv
from tocsin.scheduler.health import TaskFacts, is_failing, is_overdue, task_health
from tocsin.scheduler.history import (
    EntryReader,
    EventLog,
    find_run,
    find_runs,
    prepare_history,
    read_days,
    read_lines,
    store_lines,
)
from tocsin.scheduler.jobs import Job, JobChange, JobList, changed_jobs, check_job, job_task, view_of
from tocsin.scheduler.run import LineCollector, Run, RunLogger
from tocsin.scheduler.slots import PAUSE_MAX_MS, Decision, DueSlot, TaskSchedule, check_pause, clamped, decide, due_at
from tocsin.scheduler.state import HOLD_MAX_MS, TaskState, load_state
from tocsin.scheduler.task import Attempt, ContextBindings, Task, TaskContext, WorkContext
from tocsin.scheduler.types import (
    NO_TASK,
    AuditEntry,
    AuditList,
    AuditOutcome,
    DayList,
    MeasuredStatus,
    Paused,
    Problem,
    RefreshResult,
    RefreshRun,
    Resumed,
    RunDetail,
    RunFilter,
    RunList,
    RunRecord,
    Status,
    TaskStatus,
    Trigger,
)
from tocsin.scheduler.upstreams import UpstreamSet
from tocsin.shape import FreeForm
from tocsin.text import utc_time
from tocsin.upstream.budget import Cadence
from tocsin.upstream.limiter import request_session, task_session
from tocsin.upstream.lookups import Lookup
from tocsin.upstream.windows import ClockSteps

PROGRESS_EVERY_MS = 500
JOB_PREFIX = "job:"
RERUNS_PER_CADENCE = 10  # at most, while an upstream limits a task or pushes ask for runs
WAKE_AGAIN_MS = 1_000  # the least time between a run and the next one that was asked for, if it makes no calls


class SchedulerDO(DurableObject):
    """Binding `SCHEDULER`, instance "v1". Public methods return JSON: see `SchedulerClient` for the shapes."""

    env: SchedulerEnv

    def __init__(self, ctx: ObjectContext, env: SchedulerEnv) -> None:
        super().__init__(ctx, env)
        self._tasks: dict[str, Task] = {task.name: task for task in env.tasks}
        self._jobs: dict[str, Job] = {}
        self._running: dict[str, Run] = {}
        self._reported_at: dict[str, int] = {}
        self._reported_alarm: int | None = None
        self._wait: asyncio.Timeout | None = None  # the alarm handler's timeout while it waits for its runs
        self._steps = ClockSteps(env.clock)
        self._events = EventLog(env.clock.now())
        self._audit = AuditLog(ctx.storage, env.clock, env.logger, env.mask, self._emit)
        ctx.block_concurrency_while(self._load)

    async def _load(self) -> None:
        storage, env = self.ctx.storage, self.env
        self._entries = EntryReader(storage, env.logger)
        for key, value in (await storage.list(prefix=JOB_PREFIX)).items():
            job = self._entries.read(key, value, Job.from_json, None)
            if job is not None:
                self._jobs[job.name] = job
        self._tasks = self._all_tasks()
        self._state = await load_state(self._entries, self._tasks, env.upstreams, env.logger, env.clock.now())
        now = self._now()
        self._end_holds()
        self._upstreams = UpstreamSet(env, storage, self._state, self._budget_changed)
        self._alerts = TaskAlerts(
            env,
            self._state.own,
            self.ctx.wait_until,
            self._save,
            lambda: self._set_alarm(self._decide()),
            facts=self._facts,
            running=self._running,
        )
        self._bindings = ContextBindings(env.clock, self._upstreams.clients, env.DB, env.KV)
        interrupted = self._state.interrupt(now)
        for record in interrupted:
            self._emit("run.interrupted", {"task": record.task, "run": record.id}, level="WARN")
        if interrupted:
            self._save(*interrupted)
            if not self._is_drained():
                self._set_alarm(self._decide())  # after a reset nothing else makes it ring at once
        self._report_overdrafts()

    def _end_holds(self) -> None:
        """End the holds of tasks whose upstream's plan has changed."""
        for name, task in self._tasks.items():
            budget = self._state.budgets.get(task.upstream or "")
            if budget is not None and budget.plan != self.env.upstreams[task.upstream or ""].quota:
                self._state.tasks[name].next_run_after = None

    def _now(self) -> int:
        """The time. All times of the state are within their bounds of it."""
        step_ms, now = self._steps.newest(), self.env.clock.now()
        if step_ms:
            self._state.move_times(step_ms)
            self._save()
        self._state.bound_times(now)
        return now

    def _report_overdrafts(self) -> None:
        reported = self.env.reported
        for upstream, sentence in self._upstreams.overdrafts(self._tasks).items():
            if sentence not in reported:
                reported.add(sentence)
                self._emit("budget.overdrawn", {"upstream": upstream, "reason": sentence}, level="WARN")

    def _save(self, *records: RunRecord) -> None:
        self._state.save(self.ctx.storage, *records)

    # RPC

    async def arm(self) -> int | None:
        """Make sure that the alarm is set. Called when the process starts; safe to call at any time."""
        if self._is_drained():
            return None
        if self._state.own.armed_at is None:
            self._state.own.armed_at = self._now()
            self._save()
        self._set_alarm(self._decide())
        at: int | None = await self.ctx.storage.get_alarm()
        return at

    async def status(self) -> FreeForm:
        return self._status(await self.ctx.storage.get_alarm()).to_json()

    async def measured_status(self) -> FreeForm:
        status = self._status(await self.ctx.storage.get_alarm())
        return MeasuredStatus(status, self._state.measures).to_json()

    async def events(self, after: int, wait_ms: int = 0) -> FreeForm:
        return (await self._events.after(after, wait_ms / 1000)).to_json()

    async def refresh_now(self, task: str) -> FreeForm:
        """Run a task now, or join its run under way, and return the result. "all" runs every task."""
        if self._is_drained():
            raise UsageError(
                f"this scheduler is not the active one: {self.env.settings.instance!r} is (TOCSIN_INSTANCE)"
            )
        if task == "all":
            names = list(self._tasks)
            results = await asyncio.gather(*[self._refresh(name) for name in names])
            return {name: result.to_json() for name, result in zip(names, results, strict=True)}
        self._check_known(task, "all")
        return (await self._refresh(task)).to_json()

    async def pause_until(self, until: int, task: str | None = None, by: FreeForm | None = None) -> FreeForm:
        """Start no scheduled run before this time (unix ms); runs under way stop at their next checkpoint.

        Without a task, all are paused. `by` is who asked for it, an `AuditEntry`.
        """

        def pause() -> str:
            if task is not None:
                self._check_known(task)
            check_pause(until, self.env.clock.now())
            self._state.pause(task, until)
            self._save()
            self._emit("scheduler.paused", {"until": until, "task": task}, level="WARN")
            self._set_alarm(self._decide())
            return f"until {utc_time(until)}"

        await self._audit.record(by, pause)
        return Paused(self.ctx.id.name, until, task).to_json()

    async def resume(self, task: str | None = None, by: FreeForm | None = None) -> FreeForm:
        """End every pause, or that of one task, and let an open breaker try again."""

        def resume() -> None:
            if task is not None:
                self._check_known(task)
            self._state.pause(task, None)
            breaker = self.env.settings.breaker_failures
            for name, state in self._state.tasks.items():
                if breaker and state.consecutive_failures >= breaker and task in {None, name}:
                    state.next_run_after = None
            self._save()
            self._emit("scheduler.resumed", {"task": task})
            self._set_alarm(self._decide())

        await self._audit.record(by, resume)
        return Resumed(self.ctx.id.name, resumed=True, task=task).to_json()

    async def runs(self, query: FreeForm | None = None) -> FreeForm:
        """Runs of all tasks or of one, newest first; `query` is a `RunFilter`."""
        asked = RunFilter.from_json(query or {})
        if asked.task is not None:
            self._check_known(asked.task)
        found = await find_runs(self._state, self._entries, asked)
        return RunList(self.ctx.id.name, *found).to_json()

    async def run(self, number: int) -> FreeForm:
        """One run, with its log lines."""
        found = await find_run(self._entries, number)
        if found is None:
            raise UsageError(f"there is no run {number}: it never began, or it is too old to be kept")
        live = next((each for each in self._running.values() if each.record.id == number), None)
        if live is not None:
            return RunDetail(self.ctx.id.name, found, live.progress(), live.kept.lines()).to_json()
        lines = await read_lines(self._entries, number)
        return RunDetail(self.ctx.id.name, found, None, lines).to_json()

    async def days(self, limit: int = 30) -> FreeForm:
        """The totals of each day, newest first."""
        days = await read_days(self._entries, max(1, limit))
        return DayList(self.ctx.id.name, days).to_json()

    async def audit_begin(self, entry: FreeForm) -> str:
        """Record an action of an operator before it is done; returns the record's id."""
        return (await self._audit.begin(AuditEntry.from_json(entry))).id

    async def audit_end(self, record_id: str, outcome: AuditOutcome, detail: str | None) -> None:
        """Record how it ended."""
        await self._audit.end(record_id, outcome, detail)

    async def audit(self, limit: int) -> FreeForm:
        """The newest records."""
        return AuditList(self.ctx.id.name, await self._audit.newest(limit)).to_json()

    async def run_job(self, job: str, argument: JSON) -> JSON:
        """Do a request job in this object: in the budget's request lane, as the single writer."""
        if job not in self.env.request_jobs:
            raise BindingMissing(f"there is no job {job!r} in this deployment")
        session = request_session(self.env.logger.bind(job=job), self._state.measures.call_answered)
        context = WorkContext(self._bindings, session, wake=self._wake, report=self._report)
        result = await self.env.request_jobs[job](context, argument)
        self._state.own.last_job_at[job] = self.env.clock.now()
        self._save()
        return result

    async def look_up(self, asked: FreeForm) -> FreeForm:
        """Answer a question of another program to an upstream, in the budget's request lane."""
        lookup = Lookup.from_json(asked)
        session = request_session(self.env.logger.bind(key=lookup.key), self._state.measures.call_answered)
        client: Any = self._upstreams.clients[lookup.upstream]  # the one that tasks use, around the one that calls
        return (await self.env.look_ups.answer(client.client, lookup, session, self.env.clock)).to_json()

    async def reload(self) -> None:
        """Adopt the environment's tasks. A run under way keeps the task it began with."""
        self._adopt()

    def _all_tasks(self) -> dict[str, Task]:
        """The environment's tasks, and one for each job. A stored job that this release cannot run is left out."""
        env = self.env
        tasks = {task.name: task for task in env.tasks}
        for job in self._jobs.values():
            if job.name in tasks:
                env.logger.warning("job.unusable", job=job.name, reason="this release has a task with this name")
                continue
            try:
                tasks[job.name] = job_task(job, env.fetch, env.job_secrets)
            except UsageError as error:
                env.logger.warning("job.unusable", job=job.name, reason=str(error))
        return tasks

    def _adopt(self) -> None:
        self._tasks = self._all_tasks()
        for name in self._tasks:
            self._state.tasks.setdefault(name, TaskState())
        self._report_overdrafts()
        self._save()
        if not self._is_drained():
            self._set_alarm(self._decide())

    # Jobs

    async def jobs(self) -> FreeForm:
        return self._job_list([]).to_json()

    async def change_jobs(self, asked: FreeForm, by: FreeForm | None = None) -> FreeForm:
        """Make a `JobChange`: all of it or nothing."""
        wanted = JobChange.from_json(asked)
        changed: list[str] = []

        def change() -> str:
            after, lines = changed_jobs(self._jobs, wanted)
            for name, job in after.items():
                old = self._jobs.get(name)
                if job != old and (old is None or job != replace(old, enabled=False)):  # any job can be paused
                    if any(task.name == name for task in self.env.tasks):
                        raise UsageError(f"{name} is a task of Tocsin itself: give the job another name.")
                    check_job(job, self.env.upstreams, self.env.job_secrets)
                    job_task(job, self.env.fetch, self.env.job_secrets)  # it refuses a bad name
            changed.extend(lines)
            if wanted.dry_run:
                return ""
            removed = self._jobs.keys() - after.keys()
            for name in removed:
                self.ctx.storage.delete(f"{JOB_PREFIX}{name}")
                if name not in self._running:
                    self._state.forget(self.ctx.storage, name)
            self.ctx.storage.put({f"{JOB_PREFIX}{name}": job.to_json() for name, job in after.items()})
            before, self._jobs = self._jobs, after
            self._adopt()
            for name, job in after.items():
                old = before.get(name)
                if old is None or (job.enabled and not old.enabled):
                    self._state.tasks[name].watched_since = self.env.clock.now()
            self._save()
            return "; ".join(lines) or "nothing changed"

        await self._audit.record(None if wanted.dry_run else by, change)
        return self._job_list(changed).to_json()

    def _job_list(self, changed: list[str]) -> JobList:
        now = self.env.clock.now()
        return JobList(self.ctx.id.name, [view_of(job, now) for job in self._jobs.values()], changed)

    def _check_known(self, task: JSON, *others: str) -> None:
        if task not in [*self._tasks]:
            known = ", ".join([*self._tasks, *others])
            raise UsageError(f"{NO_TASK} {task!r:.60}: give one of {known}")

    def _report(self, subject: str, problem: str | None) -> None:
        """Keep or end a problem that a request job found; it is alerted like that of a task."""
        problems = self._state.own.problems
        if problem is None and subject not in problems:
            return
        problems.pop(subject, None)
        if problem is not None:
            problems[subject] = Problem(self.env.clock.now(), problem)
        self._save()
        self._alerts.check()

    def _wake(self, *names: str) -> None:
        """Run the first of these tasks that is switched on as soon as it may run; calls are within a bound.

        Before the object was armed, it runs nothing by itself.
        """
        name = next((name for name in names if name in self._tasks and self._tasks[name].enabled), None)
        if name is None or self._is_drained() or self._state.own.armed_at is None:
            return
        state = self._state.tasks[name]
        costs_calls = self._tasks[name].upstream is not None
        apart_ms = self._cadences()[name].effective_ms // RERUNS_PER_CADENCE if costs_calls else WAKE_AGAIN_MS
        state.wake_at = max(self.env.clock.now(), state.last_slot_at + apart_ms)
        self._save()
        self._set_alarm(self._decide())

    # The alarm

    async def alarm(self, info: AlarmInfo | None = None) -> None:
        if self._is_drained():
            self._emit("scheduler.drained", {}, level="WARN")
            return
        if info is not None and not info.is_retry:
            self._state.measures.alarm_rang(self.env.clock.now() - info.scheduled_time)
        await prepare_history(self._state, self._entries, self.env.clock.now())
        decision = self._decide()
        started = [
            self._begin(name, "rerun" if self._state.tasks[name].rerun else "alarm", slot)
            for name, slot in decision.due.items()
        ]
        self._save(*[run.record for run in started])
        self._set_alarm(decision)  # in the same transaction as the slots and the started runs
        self._alerts.check()
        if started:
            await self._wait_for(started, decision.ring_at)
        self._alerts.send_heartbeat()

    async def _wait_for(self, started: list[Run], ring_at: int) -> None:
        """Wait for the runs, but not beyond the next alarm: its handler cannot start until this one ends."""
        work = [asyncio.create_task(self._execute(run)) for run in started]
        until_s = max(0, ring_at - self.env.clock.now()) / 1000
        with suppress(TimeoutError):
            async with asyncio.timeout(until_s) as self._wait:
                await asyncio.wait(work)
        self._wait = None
        for task in work:
            if not task.done():
                self.ctx.wait_until(task)
        for run in started:
            if run.platform_error is not None:
                raise run.platform_error

    def _begin(self, name: str, trigger: Trigger, slot: DueSlot | None) -> Run:
        env, task = self.env, self._tasks[name]
        record = RunRecord(
            id=self._state.run_seq + 1,
            task=name,
            trigger=trigger,
            slot_at=None if slot is None else slot.at,
            missed_slots=0 if slot is None else slot.missed,
            started_at=env.clock.now(),
            result=dict(task.empty_result),
        )
        self._state.begin(record)

        def stop_reason() -> str | None:
            self._now()
            if trigger == "refresh" or self._state.paused_until(name) is None:
                return None
            return "the scheduler is paused" if self._state.own.paused_until else "the task is paused"

        async def keep_steps() -> None:
            self._save()
            await self.ctx.storage.sync()

        kept, state = LineCollector(env.clock, env.mask), self._state.tasks[name]
        context = TaskContext(
            self._bindings,
            task_session(
                RunLogger(env.logger.bind(task=name, run=record.id, trigger=trigger), kept),
                self._state.measures.call_answered,
                may_probe=trigger == "refresh",
            ),
            slice_ms=task.slice_ms,
            stop_reason=stop_reason,
            on_progress=lambda context: self._progressed(record, context),
            attempt=Attempt(record.id, record.slot_at, trigger, state.attempt, state.first_attempt_at),
            steps=state.steps,
            keep_steps=keep_steps,
        )
        run = self._running[name] = Run(task, record, context, kept)
        fields: FreeForm = {"task": name, "run": record.id, "trigger": trigger, "slotAt": record.slot_at}
        self._emit("run.started", fields)
        return run

    async def _execute(self, run: Run) -> None:
        record = await run.execute()
        now, breaker, name = self._now(), self.env.settings.breaker_failures, run.task.name
        del self._running[name]
        limited_until = run.limited_until
        if run.slice_exceeded:  # it could not report that its upstream is limited
            limited_until = self._upstreams.closed_until(run.task.upstream)
        state = self._state.tasks[name]
        hold_ms = None if limited_until is None else min(limited_until - now, HOLD_MAX_MS)
        if run.rerun and hold_ms is not None:
            state.rerun = True
            hold_ms = max(hold_ms, run.task.cadence_ms // RERUNS_PER_CADENCE)
        if run.wake_at is not None:
            state.wake_at = max(run.wake_at, now + WAKE_AGAIN_MS)
        items = run.progress().done
        self._state.end(record, now, is_failure=run.is_failure, hold_ms=hold_ms, items=items)
        if run.is_failure and 0 < breaker <= state.consecutive_failures:
            state.next_run_after = now + HOLD_MAX_MS
            fields: FreeForm = {"task": name, "failures": state.consecutive_failures}
            self._emit("breaker.opened", fields, level="ERROR")
        self._save(record)
        if name not in self._tasks:  # a job that was removed during its run
            self._state.forget(self.ctx.storage, name)
        store_lines(self.ctx.storage, record.id, run.kept.lines())
        for task in self._tasks.values():
            if task.woken_by(name, record.result):
                self._wake(task.name)
        shown = record.to_json()
        names = ("task", "trigger", "outcome", "durationMs", "error", "reason", "result")
        fields = {**{name: shown[name] for name in names}, "run": record.id}
        self._emit("run.ended", fields, level="INFO" if record.outcome in {"ok", "stopped"} else "WARN")
        self._alerts.check()
        self._set_alarm(self._decide())

    async def _refresh(self, name: str) -> RefreshResult:
        await prepare_history(self._state, self._entries, self.env.clock.now())
        run = self._running.get(name)
        joined = run is not None
        if run is None:
            run = self._begin(name, "refresh", None)
            self._save(run.record)
            self.ctx.wait_until(asyncio.create_task(self._execute(run)))
        record = await asyncio.shield(run.finished)
        about = RefreshRun(record.id, record.outcome, record.error, record.reason, joined, self._paused_until())
        return RefreshResult(record.summary(), about)

    # Deciding

    def _decide(self) -> Decision:
        schedules = self._schedules(self._cadences()).values()
        now, paused_until = self._now(), self._state.own.paused_until
        return decide(schedules, now=now, paused_until=paused_until, ring_by=self._alerts.ring_at())

    def _schedules(self, cadences: Mapping[str, Cadence]) -> dict[str, TaskSchedule]:
        """What decides when each task runs. A last slot that a clock change left in the far future is corrected."""
        now, schedules = self._now(), dict[str, TaskSchedule]()
        for name, task in self._tasks.items():
            state = self._state.tasks[name]
            if task.cron is not None and not state.last_slot_at:
                state.last_slot_at = now  # it runs first at its next time, not at once
            held_until = max(state.next_run_after or 0, state.paused_until or 0) or None
            schedule = TaskSchedule(
                name,
                task.cadence_ms,
                cadences[name].effective_ms,
                state.last_slot_at,
                held_until,
                running=name in self._running,
                rerun=state.rerun,
                wake_at=state.wake_at,
                enabled=task.enabled,
                cron=task.cron,
            )
            schedules[name] = clamped(schedule, now=now)
            state.last_slot_at = schedules[name].last_slot_at
        return schedules

    def _cadences(self) -> dict[str, Cadence]:
        return self._upstreams.cadences(self._tasks)

    def _set_alarm(self, decision: Decision) -> None:
        # If a task is due now and the caller did not start it, ring at once.
        now = self.env.clock.now()
        due = any(name not in self._running for name in decision.due)
        at = now if due else decision.ring_at
        self.ctx.storage.set_alarm(at)
        self._wait_until(at)
        if at != self._reported_alarm:  # `arm` may be called any number of times
            self._reported_alarm = at
            self._events.add("alarm.armed", now, {"nextAlarmAt": at})

    def _wait_until(self, at: int) -> None:
        """Make a handler that is waiting for its runs end in time for an alarm at this time."""
        wait = self._wait
        if wait is not None and not wait.expired():
            until_s = asyncio.get_running_loop().time() + (at - self.env.clock.now()) / 1000
            wait.reschedule(min(until_s, wait.when() or until_s))

    def _paused_until(self) -> int | None:
        """When the pause ends, if there is one."""
        self._now()
        return self._state.own.paused_until

    def _is_drained(self) -> bool:
        return self.ctx.id.name != self.env.settings.instance

    # The status

    def _status(self, next_alarm_at: int | None) -> Status:
        tasks, states, now = self._task_statuses(), self._state.tasks, self._now()
        return Status(
            name=self.ctx.id.name,
            active=not self._is_drained(),
            now=now,
            next_alarm_at=next_alarm_at,
            paused_until=self._paused_until(),
            pause_max_ms=PAUSE_MAX_MS,
            consecutive_failures={name: states[name].consecutive_failures for name in tasks},
            next_run_after={name: states[name].next_run_after for name in tasks},
            tasks=tasks,
            budgets=self._upstreams.status(),
            last_run_at={name: states[name].last_run_at for name in tasks},
            last_result={name: states[name].last_result for name in tasks},
            last_job_at=dict(self._state.own.last_job_at),
            lookups=dict(self.env.look_ups.uses),
            problems=self._state.own.problems_at(now),
        )

    def _task_statuses(self) -> dict[str, TaskStatus]:
        cadences, now, all_facts = self._cadences(), self._now(), self._facts()

        def task_status(name: str, task: Task) -> TaskStatus:
            run, state, facts = self._running.get(name), self._state.tasks[name], all_facts[name]
            health = task_health(facts, now)
            return TaskStatus(
                enabled=task.enabled,
                upstream=task.upstream,
                cadence_ms=task.cadence_ms,
                effective_cadence_ms=cadences[name].effective_ms,
                cadence_reason=cadences[name].reason,
                cadence_why=task.why,
                slice_ms=task.slice_ms,
                next_due_at=facts.next_at if task.enabled else None,
                running=None if run is None else run.progress(),
                paused_until=state.paused_until,
                last_success_at=state.last_success_at,
                last_error=state.last_error,
                missed_slots=state.missed_slots,
                run_counts=dict(state.run_counts),
                overdue=task.enabled and is_overdue(facts),
                overdue_after_ms=task.overdue_after_ms,
                failing=is_failing(facts),
                condition=health.condition,
                sentence=health.sentence,
                problem=health.problem,
                title=facts.title,
                next_at=view_of(self._jobs[name], now).next_at if name in self._jobs else [],
            )

        return {name: task_status(name, task) for name, task in self._tasks.items()}

    def _facts(self) -> dict[str, TaskFacts]:
        """What determines each task's condition. Alerts need only this, at every ring of the alarm."""
        now, cadences = self._now(), self._cadences()
        schedules, paused_until = self._schedules(cadences), self._state.own.paused_until

        def ago(at: int | None) -> int | None:
            return None if at is None else now - at

        def task_facts(task: Task) -> TaskFacts:
            state = self._state.tasks[task.name]
            since, cadence_ms = state.watched_since or self._state.own.armed_at, cadences[task.name].effective_ms
            success = state.last_success_at if (state.last_success_at or 0) > (state.watched_since or 0) else None
            if task.cron is not None:  # two of its times, which may be further apart now and then, as over a weekend
                last = success or since or now
                cadence_ms = (task.cron.after(task.cron.after(last)) - last) // 2
            return TaskFacts(
                task.name,
                task.title or task.name.replace("_", " ").capitalize(),
                task.enabled,
                cadence_ms,
                ago(success),
                ago(since),
                state.consecutive_failures,
                state.last_outcome,
                state.last_reason,
                self._state.paused_until(task.name),
                task.overdue_after_ms,
                due_at(schedules[task.name], now=now, paused_until=paused_until),
            )

        return {name: task_facts(task) for name, task in self._tasks.items()}

    # Events

    def _progressed(self, record: RunRecord, context: TaskContext) -> None:
        now, name = self.env.clock.now(), record.task
        if now - self._reported_at.get(name, 0) >= PROGRESS_EVERY_MS or context.done == context.total:
            self._reported_at[name] = now
            fields: FreeForm = {"task": name, "run": record.id, "done": context.done, "total": context.total}
            self._events.add("run.progressed", now, fields)

    def _budget_changed(self, upstream: str, what: str, fields: FreeForm) -> None:
        """Send an event to watchers only: the log already has it."""
        about: FreeForm = {"upstream": upstream, "what": what, **fields}
        self._events.add("budget.changed", self.env.clock.now(), about)

    def _emit(self, event: str, fields: FreeForm, *, level: Level = "INFO") -> None:
        """Write an event to the log and to watchers."""
        write_log(self.env.logger, level, event, fields)
        self._events.add(event, self.env.clock.now(), fields)
