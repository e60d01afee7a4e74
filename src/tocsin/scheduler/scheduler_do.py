"""THE OBJECT: one alarm, all periodic work.

`alarm()` decides what is due, arms the next ring, starts what is due, and waits for it until that next
ring at the latest; a run that takes longer goes on beside it. So no task delays another, and a process that
dies at any point is armed. A task's failure is a result (policy B); a limited upstream holds its task back
(C); only the platform's own failures leave `alarm()` (A); the breaker (D) is a setting.

Emits: `run.started`, `run.progressed`, `run.ended`, `run.interrupted`, `alarm.armed`, `scheduler.paused`,
`scheduler.resumed`, `scheduler.drained`, `breaker.opened`, `budget.overdrawn`, as log lines and as events;
`budget.changed` as an event only.
"""

import asyncio
from dataclasses import replace
from itertools import islice
from typing import Any, Literal

from tocsin.bindings import JSON, AlarmInfo, DurableObject, ObjectContext
from tocsin.budget.budget_limiter import BudgetLimiter, moment_of
from tocsin.budget.cadence import Cadence, Demand, cadences, overdraft, usual_calls
from tocsin.budget.call_session import request_session, task_session
from tocsin.budget.feedback import BudgetEvent
from tocsin.errors import BindingMissing, UsageError
from tocsin.scheduler.config import SchedulerEnv
from tocsin.scheduler.events import Events, camel_case
from tocsin.scheduler.run import Run, RunRecord, Tools, Trigger
from tocsin.scheduler.slots import Decision, DueSlot, TaskSchedule, clamped, decide
from tocsin.scheduler.state import SchedulerState
from tocsin.scheduler.status import snapshot
from tocsin.scheduler.task import Task
from tocsin.upstream.client import UpstreamClient
from tocsin.upstream.hiro import HiroClient
from tocsin.upstream.tenero import TeneroClient

PROGRESS_EVERY_MS = 500


class SchedulerDO(DurableObject):
    """Binding `SCHEDULER`, instance "v1"."""

    env: SchedulerEnv

    def __init__(self, ctx: ObjectContext, env: SchedulerEnv) -> None:
        super().__init__(ctx, env)
        self._tasks: dict[str, Task] = {task.name: task for task in env.tasks}
        self._running: dict[str, Run] = {}
        self._reported_at: dict[str, int] = {}
        ctx.block_concurrency_while(self._load)

    async def _load(self) -> None:
        storage, env, now = self.ctx.storage, self.env, self.env.clock.now()
        self._state = await SchedulerState.load(storage, self._tasks)
        self._events = Events(now)
        self._limiters = {name: await self._gate(name) for name in env.config.upstreams}
        clients = {
            name: UpstreamClient(
                upstream,
                env.fetch,
                self._limiters[name],
                env.clock,
                env.random,
                said=env.memory.said,
                key_refused=lambda reason, name=name: self._budget_changed(  # type: ignore[misc]  # a default binds it
                    name, "key_ignored", reason=reason
                ),
            )
            for name, upstream in env.config.upstreams.items()
        }
        self._tools = Tools(
            HiroClient(clients["hiro"]), TeneroClient(clients["tenero"]), env.clock, env.DB, env.KV
        )
        interrupted = self._state.interrupt(now)
        for record in interrupted:
            self._tell("run.interrupted", task=record.task, run=record.id, level="warn")
        if interrupted:
            self._state.save(storage, *interrupted)
        self._report_overdrafts()

    async def _gate(self, upstream: str) -> BudgetLimiter:
        """The upstream's budget: as this process knows it, or else as it was stored."""
        env, storage, key = self.env, self.ctx.storage, f"budget:{upstream}"

        def save(stored: JSON) -> None:
            storage.put(key, stored)
            env.memory.budgets[upstream] = gate.budget

        def noted(note: BudgetEvent) -> None:
            self._budget_changed(upstream, note.event.removeprefix("budget."), **note.fields)

        known = env.memory.budgets.get(upstream)
        outside = (env.clock, env.random, env.logger, save, noted)
        if known is not None:
            # Evicted, not restarted: its clock runs on. Whoever was on a call then is no more.
            gate = BudgetLimiter(upstream, replace(known, in_flight=0), *outside)
        else:
            plan, stored = env.config.plans[upstream], await storage.get(key)
            gate = BudgetLimiter.restore(upstream, plan, stored, *outside)
        return gate

    # RPC

    async def arm(self) -> int | None:
        """Make sure that the alarm is set; called when the process starts, and harmless at any time."""
        if self._drained():
            return None
        if self._state.armed_at is None:
            self._state.armed_at = self.env.clock.now()
            self._state.save(self.ctx.storage)
        self._arm(self._tick())
        at: int | None = await self.ctx.storage.get_alarm()
        return at

    async def status(self) -> dict[str, JSON]:
        now = self.env.clock.now()
        return snapshot(
            name=self.ctx.id.name,
            active=not self._drained(),
            config=self.env.config,
            tasks=self._tasks,
            state=self._state,
            running=self._running,
            standings={standing.name: standing for standing in self._standings()},
            cadences=self._cadences(),
            budgets={name: gate.describe() for name, gate in self._limiters.items()},
            next_alarm_at=await self.ctx.storage.get_alarm(),
            now=now,
        )

    async def refresh_now(self, task: str) -> dict[str, JSON]:
        """Run a task now and answer its result; joins a run that is under way. "all" for every task."""
        if self._drained():
            raise UsageError(
                f"this scheduler is not the active one: {self.env.config.instance!r} is (TOCSIN_INSTANCE)"
            )
        if task == "all":
            names = list(self._tasks)
            results = await asyncio.gather(*[self._refresh(name) for name in names])
            return dict(zip(names, results, strict=True))
        self._must_know(task, "all")
        return await self._refresh(task)

    async def pause_until(self, until: int) -> dict[str, JSON]:
        now, longest = self.env.clock.now(), self.env.config.pause_max_ms
        if type(until) is not int or until <= now:
            raise UsageError(f"pause_until takes a time to come in unix milliseconds; now is {now}")
        if until > now + longest:
            days = longest / 86_400_000
            raise UsageError(
                f"a pause lasts at most {days:g} days (until {now + longest}): give an earlier time"
            )
        self._state.paused_until = until
        self._state.save(self.ctx.storage)
        self._tell("scheduler.paused", until=until, level="warn")
        self._arm(self._tick())
        return {"pausedUntil": until}

    async def resume(self) -> dict[str, JSON]:
        """Undo a pause, and let a breaker that is open try again."""
        self._state.paused_until = None
        if self.env.config.breaker_failures:
            for name in self._tasks:
                if self._state.failures(name) >= self.env.config.breaker_failures:
                    self._state.by_task["nextRunAfter"].pop(name, None)
        self._state.save(self.ctx.storage)
        self._tell("scheduler.resumed")
        self._arm(self._tick())
        return {"resumed": True}

    async def runs(self, task: str | None = None, limit: int = 50) -> dict[str, JSON]:
        """What is known of the last runs, newest first: of all tasks, or of one."""
        if task is not None:
            self._must_know(task)
        newest = reversed(self._state.runs.values())
        found = (record.to_json() for record in newest if task is None or record.task == task)
        return {"runs": list(islice(found, max(1, limit)))}

    async def events(self, after: int, wait_ms: int = 0) -> dict[str, JSON]:
        return await self._events.after(after, wait_ms / 1000)

    async def perform(self, job: str, argument: JSON) -> JSON:
        """Do a request's job here: within the budget's request lane, by the single writer."""
        if job not in self.env.request_jobs:
            raise BindingMissing(f"there is no job {job!r} in this deployment")
        record = RunRecord(0, job, "refresh", self.env.clock.now())
        task = Task(job, "", 0, 60_000, 0, _never)
        session = request_session(self.env.logger.bind(job=job))
        run = Run(task, record, self._tools, session, must_stop=lambda _: False, progressed=lambda _: None)
        return await self.env.request_jobs[job](run, argument)

    # The alarm

    async def alarm(self, _info: AlarmInfo | None = None) -> None:
        if self._drained():
            self._tell("scheduler.drained", level="warn")
            return
        decided = self._tick()
        started = [
            self._begin(name, "rerun" if self._rerun(name) else "alarm", slot)
            for name, slot in decided.due.items()
        ]
        self._state.save(self.ctx.storage, *[run.record for run in started])
        self._arm(decided)  # in the same transaction as the slots and the started runs
        if started:
            await self._work(started, decided.ring_at)

    async def _work(self, started: list[Run], ring_at: int) -> None:
        """Wait for the runs, but not beyond the next ring: it must find this handler gone."""
        work = [asyncio.create_task(self._execute(run)) for run in started]
        until_s = max(0, ring_at - self.env.clock.now()) / 1000
        _, pending = await asyncio.wait(work, timeout=until_s)
        for task in pending:
            self.ctx.wait_until(task)
        for run in started:
            if run.platform_error is not None:
                raise run.platform_error

    def _begin(self, name: str, trigger: Trigger, slot: DueSlot | None) -> Run:
        now = self.env.clock.now()
        record = RunRecord(self._state.run_seq + 1, name, trigger, now)
        record.result = dict(self._tasks[name].empty_result)
        if slot is not None:
            record.slot_at, record.missed = slot.at, slot.missed
        self._state.begin(record)
        logger = self.env.logger.bind(task=name, run=record.id, trigger=trigger)
        run = self._running[name] = Run(
            self._tasks[name],
            record,
            self._tools,
            task_session(logger),
            must_stop=self._must_stop,
            progressed=self._progressed,
        )
        self._tell("run.started", task=name, run=record.id, trigger=trigger, slotAt=record.slot_at)
        return run

    async def _execute(self, run: Run) -> None:
        record = await run.execute()
        now, config, name = self.env.clock.now(), self.env.config, run.task.name
        del self._running[name]
        limited_until = run.limited_until
        if run.cut:  # it could not say so itself
            limited_until = self._limiters[run.task.upstream].closed_until()
        self._state.end(record, limited_until=limited_until, backoff_max_ms=config.backoff_max_ms, now=now)
        if config.breaker_failures and self._state.failures(name) >= config.breaker_failures:
            self._state.hold(name, now + config.breaker_pause_ms)
            self._tell("breaker.opened", task=name, failures=self._state.failures(name), level="error")
        self._state.save(self.ctx.storage, record)
        shown = record.to_json()
        self._tell(
            "run.ended",
            level="warn" if record.outcome == "failed" else "info",
            **{k: shown[k] for k in ("task", "trigger", "outcome", "durationMs", "error", "result")},
            run=record.id,
        )
        self._arm(self._tick())

    async def _refresh(self, name: str) -> dict[str, JSON]:
        run = self._running.get(name)
        joined = run is not None
        if run is None:
            run = self._begin(name, "refresh", None)
            self._state.save(self.ctx.storage, run.record)
            self.ctx.wait_until(asyncio.create_task(self._execute(run)))
        record = await asyncio.shield(run.finished)
        about = {
            "id": record.id,
            "outcome": record.outcome,
            "error": record.error,
            "joined": joined,
            "pausedUntil": self._paused(),
        }
        return {**record.summary(), "run": about}

    def _must_know(self, task: str, *others: str) -> None:
        if task not in self._tasks:
            known = ", ".join([*self._tasks, *others])
            raise UsageError(f"there is no task {task!r}: give one of {known}")

    # Deciding

    def _tick(self) -> Decision:
        return decide(self._standings(), now=self.env.clock.now(), paused_until=self._paused())

    def _standings(self) -> list[TaskSchedule]:
        """All tasks as they stand; what a clock set back has put out of reach is brought back for good."""
        by_task, afford, now = self._state.by_task, self._cadences(), self.env.clock.now()
        found = [
            TaskSchedule(
                name,
                task.cadence_ms,
                afford[name].effective_ms,
                by_task["lastSlotAt"].get(name, 0),
                by_task["nextRunAfter"].get(name),
                running=name in self._running,
                rerun=self._rerun(name),
                enabled=task.enabled,
            )
            for name, task in self._tasks.items()
        ]
        found = [clamped(one, now=now, backoff_max_ms=self.env.config.backoff_max_ms) for one in found]
        for standing in found:
            if standing.last_slot_at:
                by_task["lastSlotAt"][standing.name] = standing.last_slot_at
            if standing.next_run_after is not None:
                by_task["nextRunAfter"][standing.name] = standing.next_run_after
        return found

    def _cadences(self) -> dict[str, Cadence]:
        found = {name: Cadence(task.cadence_ms, "switched off") for name, task in self._tasks.items()}
        for upstream, gate in self._limiters.items():
            demands = {name: self._as_measured(name, d) for name, d in self._demands(upstream).items()}
            found |= cadences(gate.budget, demands, moment_of(self.env.clock))
        return found

    def _as_measured(self, name: str, planned: Demand) -> Demand:
        most, recent = self._tasks[name].calls_per_run_max, self._state.recent_calls(name)
        return replace(planned, calls_per_run=usual_calls(planned.calls_per_run, most, recent))

    def _demands(self, upstream: str) -> dict[str, Demand]:
        """As the tasks plan them: what `tocsin check` reckons with."""
        return {
            name: Demand(task.cadence_ms, task.calls_per_run)
            for name, task in self._tasks.items()
            if task.upstream == upstream and task.enabled
        }

    def _arm(self, decided: Decision) -> None:
        # What is due now has not been started by whoever asked: ring at once.
        now = self.env.clock.now()
        due = any(name not in self._running for name in decided.due)
        at = now if due else decided.ring_at
        self.ctx.storage.set_alarm(at)
        self._events.add("alarm.armed", now, nextAlarmAt=at)

    def _rerun(self, name: str) -> bool:
        return bool(self._state.by_task["rerun"].get(name))

    def _paused(self) -> int | None:
        now = self.env.clock.now()
        if self._state.paused_until is not None:
            self._state.paused_until = min(self._state.paused_until, now + self.env.config.pause_max_ms)
            if self._state.paused_until <= now:
                self._state.paused_until = None
        return self._state.paused_until

    def _drained(self) -> bool:
        return self.ctx.id.name != self.env.config.instance

    def _must_stop(self, run: Run) -> bool:
        return self._paused() is not None and run.record.trigger != "refresh"

    def _progressed(self, run: Run) -> None:
        now, name = self.env.clock.now(), run.task.name
        if now - self._reported_at.get(name, 0) >= PROGRESS_EVERY_MS or run.done == run.total:
            self._reported_at[name] = now
            self._events.add(
                "run.progressed", now, task=name, run=run.record.id, done=run.done, total=run.total
            )

    def _budget_changed(self, upstream: str, what: str, **fields: JSON) -> None:
        """To those who watch; the log has it already."""
        shown = {camel_case(name): value for name, value in fields.items()}
        self._events.add("budget.changed", self.env.clock.now(), upstream=upstream, what=what, **shown)

    def _report_overdrafts(self) -> None:
        for upstream, plan in self.env.config.plans.items():
            sentence = overdraft(plan, self._demands(upstream))
            if sentence is not None and self.env.memory.said.is_news(sentence):
                self._tell("budget.overdrawn", upstream=upstream, reason=sentence, level="warn")

    def _tell(self, event: str, *, level: Literal["info", "warn", "error"] = "info", **fields: JSON) -> None:
        """To the log and to those who watch."""
        getattr(self.env.logger, level)(event, **fields)
        self._events.add(event, self.env.clock.now(), **fields)


async def _never(_context: Any) -> Any:
    raise AssertionError("a request's job is not a task")
