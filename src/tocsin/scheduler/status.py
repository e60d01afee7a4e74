"""`status()`: everything about the scheduler in one value, from memory. Pure."""

from collections.abc import Mapping

from tocsin.scheduler.config import SchedulerConfig
from tocsin.scheduler.health import TaskFacts, is_failing, is_overdue, task_health
from tocsin.scheduler.run import Run
from tocsin.scheduler.slots import TaskSchedule, due_at
from tocsin.scheduler.state import SchedulerState
from tocsin.scheduler.task import Task
from tocsin.scheduler.types import Status, TaskStatus
from tocsin.upstream.budget import BudgetStatus, Moment
from tocsin.upstream.cadence import Cadence


def facts_of(
    config: SchedulerConfig,
    tasks: Mapping[str, Task],
    state: SchedulerState,
    cadences: Mapping[str, Cadence],
    moment: Moment,
    paused_until: int | None,
) -> dict[str, TaskFacts]:
    """The facts that determine each task's condition. Alerts need only these, at every ring of the alarm."""
    armed_ago_ms = _ago(state.armed_ms, moment)

    def task_facts(task: Task) -> TaskFacts:
        memory = state.tasks[task.name]
        return TaskFacts(
            task.name,
            task.enabled,
            cadences[task.name].effective_ms,
            _ago(memory.succeeded_ms, moment),
            armed_ago_ms,
            memory.consecutive_failures,
            config.failing_after,
            memory.last_outcome,
            memory.last_reason,
            paused_until,
            task.overdue_after_ms,
        )

    return {task.name: task_facts(task) for task in tasks.values()}


def tasks_of(
    tasks: Mapping[str, Task],
    state: SchedulerState,
    facts: Mapping[str, TaskFacts],
    running: Mapping[str, Run],
    schedules: Mapping[str, TaskSchedule],
    cadences: Mapping[str, Cadence],
    moment: Moment,
) -> dict[str, TaskStatus]:
    def task_status(task: Task) -> TaskStatus:
        run, memory, cadence = running.get(task.name), state.tasks[task.name], cadences[task.name]
        health, paused = task_health(facts[task.name]), facts[task.name].paused_until
        return TaskStatus(
            enabled=task.enabled,
            upstream=task.upstream,
            cadence_ms=task.cadence_ms,
            effective_cadence_ms=cadence.effective_ms,
            cadence_reason=cadence.reason,
            cadence_why=task.why,
            slice_ms=task.slice_ms,
            next_due_at=due_at(schedules[task.name], now=moment.wall_ms, paused_until=paused) if task.enabled else None,
            running=None if run is None else run.progress(),
            last_success_at=memory.last_success_at(moment),
            last_error=memory.last_error,
            missed_slots=memory.missed_slots,
            run_counts=dict(memory.run_counts),
            overdue=task.enabled and is_overdue(facts[task.name]),
            overdue_after_ms=task.overdue_after_ms,
            failing=is_failing(facts[task.name]),
            condition=health.condition,
            sentence=health.sentence,
            problem=health.problem,
        )

    return {task.name: task_status(task) for task in tasks.values()}


def status_of(
    *,
    name: str | None,
    active: bool,
    config: SchedulerConfig,
    tasks: dict[str, TaskStatus],
    state: SchedulerState,
    budgets: dict[str, BudgetStatus],
    next_alarm_at: int | None,
    paused_until: int | None,
    moment: Moment,
) -> Status:
    return Status(
        name=name,
        active=active,
        now=moment.wall_ms,
        next_alarm_at=next_alarm_at,
        paused_until=paused_until,
        pause_max_ms=config.pause_max_ms,
        consecutive_failures={task: state.tasks[task].consecutive_failures for task in tasks},
        next_run_after={task: state.tasks[task].next_run_after(moment) for task in tasks},
        tasks=tasks,
        budgets=budgets,
        last_run_at={task: state.tasks[task].last_run_at for task in tasks},
        last_result={task: state.tasks[task].last_result for task in tasks},
        last_job_at=dict(state.last_job_at),
    )


def _ago(monotonic_ms: int | None, moment: Moment) -> int | None:
    return None if monotonic_ms is None else moment.monotonic_ms - monotonic_ms
