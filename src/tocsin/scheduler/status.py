"""`status()`: everything about the scheduler in one value, from memory. Pure."""

from collections.abc import Mapping

from tocsin.budget.cadence import Cadence
from tocsin.scheduler.config import SchedulerConfig
from tocsin.scheduler.run import Run
from tocsin.scheduler.slots import TaskSchedule, due_at
from tocsin.scheduler.state import SchedulerState, TaskState
from tocsin.scheduler.task import Task
from tocsin.shapes.scheduler import BudgetStatus, Status, TaskStatus


def status_of(
    *,
    name: str | None,
    active: bool,
    config: SchedulerConfig,
    tasks: Mapping[str, Task],
    state: SchedulerState,
    running: Mapping[str, Run],
    schedules: Mapping[str, TaskSchedule],
    cadences: Mapping[str, Cadence],
    budgets: dict[str, BudgetStatus],
    next_alarm_at: int | None,
    now: int,
) -> Status:
    paused = state.paused_until if state.paused_until is not None and state.paused_until > now else None

    def task_status(task: Task) -> TaskStatus:
        run, memory, cadence = running.get(task.name), state.tasks[task.name], cadences[task.name]
        due = due_at(schedules[task.name], now=now, paused_until=paused)
        return TaskStatus(
            enabled=task.enabled,
            upstream=task.upstream,
            cadence_ms=task.cadence_ms,
            effective_cadence_ms=cadence.effective_ms,
            cadence_reason=cadence.reason,
            cadence_why=task.why,
            slice_ms=task.slice_ms,
            next_due_at=due if task.enabled else None,
            running=None if run is None else run.progress(),
            last_success_at=memory.last_success_at,
            last_error=memory.last_error,
            missed_slots=memory.missed_slots,
            run_counts=dict(memory.run_counts),
            overdue=task.enabled and is_overdue(task, memory, state.armed_at, cadence, now),
            failing=memory.consecutive_failures >= config.failing_after,
        )

    return Status(
        name=name,
        active=active,
        now=now,
        next_alarm_at=next_alarm_at,
        paused_until=paused,
        pause_max_ms=config.pause_max_ms,
        consecutive_failures={task: state.tasks[task].consecutive_failures for task in tasks},
        next_run_after={task: state.tasks[task].next_run_after for task in tasks},
        tasks={task.name: task_status(task) for task in tasks.values()},
        budgets=budgets,
        last_run_at={task: state.tasks[task].last_run_at for task in tasks},
        last_result={task: state.tasks[task].last_result for task in tasks},
    )


def is_overdue(task: Task, memory: TaskState, armed_at: int | None, cadence: Cadence, now: int) -> bool:
    """Two cadences and a slice without a success: by then it should have had one, whatever the cause."""
    since = memory.last_success_at or armed_at
    return since is not None and now - since > 2 * cadence.effective_ms + task.slice_ms
