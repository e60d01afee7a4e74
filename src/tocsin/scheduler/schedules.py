"""Reads from the state when tasks may run: their schedules, and how long they are held back."""

from collections.abc import Collection, Iterable, Mapping

from tocsin.budget.cadence import Cadence
from tocsin.moments import Moment
from tocsin.scheduler.config import UpstreamSource
from tocsin.scheduler.slots import TaskSchedule, clamped
from tocsin.scheduler.state import SchedulerState
from tocsin.scheduler.task import Task


def schedules_of(
    tasks: Iterable[Task],
    state: SchedulerState,
    cadences: Mapping[str, Cadence],
    running: Collection[str],
    moment: Moment,
) -> list[TaskSchedule]:
    """The schedules of all tasks. A last slot that a clock change left in the far future is corrected in the state."""
    schedules = []
    for task in tasks:
        own = state.tasks[task.name]
        schedule = clamped(
            TaskSchedule(
                task.name,
                task.cadence_ms,
                cadences[task.name].effective_ms,
                own.last_slot_at,
                own.next_run_after(moment),
                running=task.name in running,
                rerun=own.rerun,
                wake_at=own.wake_at,
                enabled=task.enabled,
            ),
            now=moment.wall_ms,
        )
        own.last_slot_at = schedule.last_slot_at
        schedules.append(schedule)
    return schedules


def bound_holds(
    tasks: Iterable[Task], state: SchedulerState, upstreams: Mapping[str, UpstreamSource], latest_ms: int
) -> None:
    """Shorten holds that are longer than possible, and end those whose upstream's plan has changed."""
    for task in tasks:
        own = state.tasks[task.name]
        if own.held_until_ms is not None:
            own.held_until_ms = min(own.held_until_ms, latest_ms)
        budget = state.budgets.get(task.upstream or "")
        if budget is not None and budget.plan != upstreams[task.upstream or ""].quota.status():
            own.held_until_ms = None
