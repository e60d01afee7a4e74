"""`status()`: everything about the scheduler at one glance, from memory. Pure."""

from collections.abc import Mapping

from tocsin.bindings import JSON
from tocsin.budget.cadence import Cadence
from tocsin.scheduler.config import SchedulerConfig
from tocsin.scheduler.run import Run
from tocsin.scheduler.slots import TaskSchedule, due_at
from tocsin.scheduler.state import SchedulerState, result_key, run_at_key
from tocsin.scheduler.task import Task


def snapshot(
    *,
    name: str | None,
    active: bool,
    config: SchedulerConfig,
    tasks: Mapping[str, Task],
    state: SchedulerState,
    running: Mapping[str, Run],
    standings: Mapping[str, TaskSchedule],
    cadences: Mapping[str, Cadence],
    budgets: dict[str, JSON],
    next_alarm_at: int | None,
    now: int,
) -> dict[str, JSON]:
    paused = state.paused_until if state.paused_until is not None and state.paused_until > now else None
    found: dict[str, JSON] = {
        "name": name,
        "active": active,
        "now": now,
        "nextAlarmAt": next_alarm_at,
        "pausedUntil": paused,
        "pauseMaxMs": config.pause_max_ms,
        "consecutiveFailures": {task: state.failures(task) for task in tasks},
        "nextRunAfter": {task: state.by_task["nextRunAfter"].get(task) for task in tasks},
        "tasks": {},
        "budgets": budgets,
    }
    for task_name, task in tasks.items():
        found[run_at_key(task_name)] = state.last_run_at.get(task_name)
        found[result_key(task_name)] = state.last_result.get(task_name)
        run, standing = running.get(task_name), standings[task_name]
        due = due_at(standing, now=now, paused_until=paused)
        found["tasks"][task_name] = {
            "enabled": task.enabled,
            "upstream": task.upstream,
            "cadenceMs": task.cadence_ms,
            "effectiveCadenceMs": cadences[task_name].effective_ms,
            "cadenceReason": cadences[task_name].reason,
            "cadenceWhy": task.why,
            "sliceMs": task.slice_ms,
            "nextDueAt": due if task.enabled else None,
            "running": None
            if run is None
            else {"startedAt": run.started_at, "done": run.done, "total": run.total, "run": run.record.id},
            "lastSuccessAt": state.by_task["lastSuccessAt"].get(task_name),
            "lastError": state.by_task["lastError"].get(task_name),
            "missedSlots": state.by_task["missedSlots"].get(task_name, 0),
            "runCounts": state.by_task["runCounts"].get(task_name, {}),
            "overdue": task.enabled and overdue(task_name, task, state, cadences[task_name], now),
            "blind": state.failures(task_name) >= config.failing_failures,
        }
    return found


def overdue(name: str, task: Task, state: SchedulerState, cadence: Cadence, now: int) -> bool:
    """Two cadences and a slice without a success: by then it should have had one, whatever the cause."""
    since = state.by_task["lastSuccessAt"].get(name) or state.armed_at
    return since is not None and now - since > 2 * cadence.effective_ms + task.slice_ms
