"""Whether the service does its work, and what is wrong if not, as sentences. Pure."""

from dataclasses import dataclass, fields

from tocsin.settings import Settings
from tocsin.shapes.scheduler import Status

LOOP_TICK_AGE_MAX_S = 5.0
ALARM_LATE_MAX_MS = 60_000

_SETTINGS = frozenset(setting.name for setting in fields(Settings))


@dataclass(frozen=True, slots=True)
class HealthSnapshot:
    """What is known about the process without waiting for anything: a stuck loop must not be able to hide.

    `problems` are the scheduler's own: a task that is overdue, disabled or failing.
    """

    loop_tick_age_s: float | None  # None: there is no process of ours, hence no loop that could be stuck
    store_error: str | None
    alarm_at: int | None
    problems: tuple[str, ...] = ()


def reasons_not_ready(snapshot: HealthSnapshot, now: int) -> list[str]:
    """Everything that is wrong, as sentences; empty when the service is ready."""
    reasons = []
    if (snapshot.loop_tick_age_s or 0) > LOOP_TICK_AGE_MAX_S:
        reasons.append(f"the event loop has been stuck for {snapshot.loop_tick_age_s:.0f} s")
    if snapshot.store_error is not None:
        reasons.append(f"the store cannot be written: {snapshot.store_error}")
    if snapshot.alarm_at is None:
        reasons.append("no alarm is set: nothing will run by itself")
    elif now - snapshot.alarm_at > ALARM_LATE_MAX_MS:
        reasons.append(f"the alarm is {(now - snapshot.alarm_at) / 1000:.0f} s late")
    return [*reasons, *snapshot.problems]


def task_problems(status: Status) -> tuple[str, ...]:
    """What is wrong with the tasks, as sentences."""
    problems = []
    for name, task in status.tasks.items():
        if not task.enabled:
            problems.append(f"{name} is disabled ({_switch(name)})")
        elif task.failing:
            failures = status.consecutive_failures[name]
            problems.append(f"{name} is failing, {failures} times in a row: {task.last_error}")
        elif task.overdue:
            paused = ": the scheduler is paused" if status.paused_until is not None else ""
            problems.append(f"{name} is overdue{paused}")
    return tuple(problems)


def _switch(name: str) -> str:
    """Where a task was switched off: not every one has a setting."""
    return f"TOCSIN_{name.upper()}_ENABLED" if f"{name}_enabled" in _SETTINGS else "in its own file"
