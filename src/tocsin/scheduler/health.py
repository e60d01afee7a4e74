"""The health of the tasks and of the service, in one word and in sentences. Pure.

Everything that shows the health of Tocsin to operators or visitors uses these functions: `/readyz`, the status, the
console, the board, metrics, alerts.

A task's condition is the first of these that holds:
    disabled  switched off                                                                  the service is not ready
    failing   its last three or more runs failed, over some minutes               the service is not ready
    overdue   no complete run for two of its effective cadences, or its own longer bound    the service is not ready
    paused    it is paused, or all tasks are
    limited   its last run was not complete: the upstream or our own budget refused calls
    partial   its last run was not complete: an upstream had no answer, or its time slice was over
    starting  it has not completed a run yet
    ok        its last run was complete

A process whose loop, store, files or alarm do not work is `broken`, whatever the condition of its tasks. The service's
state is the first in this order that any part of it is in.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

from tocsin.scheduler.types import Condition, Health, Measures, Outcome, ServiceState, Status, TaskCondition, TaskStatus
from tocsin.settings import Settings
from tocsin.text import short_duration, utc_clock, utc_time

LOOP_TICK_AGE_MAX_S = 5.0
ALARM_LATE_MAX_MS = 60_000
FAILING_AFTER = 3  # runs that failed in a row
FAILING_MS = 300_000

_SETTINGS = frozenset(setting.name for setting in fields(Settings))
_WORST_FIRST: tuple[ServiceState, ...] = (
    "broken",
    "disabled",
    "failing",
    "overdue",
    "paused",
    "limited",
    "partial",
    "starting",
)


@dataclass(frozen=True, slots=True)
class TaskFacts:
    """Everything that determines a task's condition. Ages are in ms and do not depend on the wall clock."""

    name: str
    title: str
    enabled: bool
    cadence_ms: int  # the effective one
    complete_ago_ms: int | None  # since its last complete run; None if there was none
    armed_ago_ms: int | None  # since the scheduler was first set up, or the job was added; None if it was not
    failures: int
    last_outcome: Outcome | None
    last_reason: str | None
    paused_until: int | None
    overdue_after_ms: int = 0  # it is not overdue before this age
    next_at: int | None = None  # its next scheduled run


@dataclass(frozen=True, slots=True)
class HealthSnapshot:
    """What is known about the process without waiting for anything, so that a stuck event loop is noticed.

    `status` is None if the scheduler did not answer; `scheduler_error` then explains why.
    """

    loop_tick_age_s: float | None  # None: no process of our own, so no loop that could be stuck
    store_error: str | None
    status: Status | None
    scheduler_error: str | None = None
    file_problem: str | None = None  # about a file that the service can do without for now
    measures: Measures | None = None


def task_health(facts: TaskFacts, now: int) -> TaskCondition:
    """The health of one task: what is wrong, why, and when it runs next."""
    title, more = facts.title, _because(facts.last_reason) + _next_run(facts, now)
    problem = _problem(facts, more, now)
    if problem is not None:
        return problem
    if facts.paused_until is not None:
        return TaskCondition("paused", f"{title} paused until {utc_time(facts.paused_until)}")
    if facts.last_outcome == "limited":
        return TaskCondition("limited", f"{title} limited{more}")
    if facts.last_outcome in {"partial", "failed", "interrupted"}:
        return TaskCondition("partial", f"{title} not complete{more}")
    if facts.complete_ago_ms is None:
        return TaskCondition("starting", f"{title}: no complete run yet")
    return TaskCondition("ok", f"{title} completed a run {short_duration(facts.complete_ago_ms)} ago")


def _problem(facts: TaskFacts, more: str, now: int) -> TaskCondition | None:
    """A condition that makes the service not ready; None if there is none."""
    if not facts.enabled:
        return _not_ready("disabled", f"{facts.title} switched off ({_switch(facts.name)})")
    if is_failing(facts):
        return _not_ready("failing", f"{facts.title} failed {facts.failures} times{more}")
    if is_overdue(facts):
        return _not_ready("overdue", _overdue(facts) + _next_run(facts, now))
    return None


def _not_ready(condition: Condition, sentence: str) -> TaskCondition:
    return TaskCondition(condition, sentence, problem=sentence)


def _because(reason: str | None) -> str:
    return f": {reason}" if reason else ""


def _next_run(facts: TaskFacts, now: int) -> str:
    next_at = facts.next_at or 0
    return f"; next run {utc_clock(next_at, now)}" if next_at > now else ""


def is_failing(facts: TaskFacts) -> bool:
    """Several failures in a row, spread over as many cadences or five minutes: a burst of reruns is not enough."""
    since_ms = facts.armed_ago_ms if facts.complete_ago_ms is None else facts.complete_ago_ms
    lasting_ms = min(FAILING_MS, (FAILING_AFTER - 1) * facts.cadence_ms)
    return facts.failures >= FAILING_AFTER and (since_ms is None or since_ms >= lasting_ms)


def is_overdue(facts: TaskFacts) -> bool:
    """Two cadences without a complete run, whatever the cause."""
    left_ms = overdue_in_ms(facts)
    return left_ms is not None and left_ms <= 0


def overdue_in_ms(facts: TaskFacts) -> int | None:
    """How long until the task is overdue if it completes no run; None before the scheduler is set up."""
    since_ms = facts.armed_ago_ms if facts.complete_ago_ms is None else facts.complete_ago_ms
    if since_ms is None:
        return None
    return max(2 * facts.cadence_ms, facts.overdue_after_ms) + 1 - since_ms


def health_of(snapshot: HealthSnapshot, now: int) -> Health:
    """The health of the service."""
    status = snapshot.status
    found: list[TaskStatus | TaskCondition] = (
        [] if status is None else [*status.tasks.values(), *map(found_problem, status.problems)]
    )
    return tasks_health(found, process_problems(snapshot, now))


def found_problem(sentence: str) -> TaskCondition:
    """What a request job found, which makes the service not ready as a task does."""
    return _not_ready("failing", sentence)


def tasks_health(tasks: Iterable[TaskStatus | TaskCondition], problems: Sequence[str] = ()) -> Health:
    """The health of the service, from its tasks and the problems of the process."""
    reasons = list(problems)
    states: set[ServiceState] = {"broken"} if reasons else set()
    notes = []
    for task in tasks:
        if task.condition != "ok":
            states.add(task.condition)
        if task.problem is not None:
            reasons.append(task.problem)
        elif task.condition != "ok":
            notes.append(task.sentence)
    ready: ServiceState = "ready"
    state = next((state for state in _WORST_FIRST if state in states), ready)
    return Health(not reasons, state, reasons, notes)


def process_problems(snapshot: HealthSnapshot, now: int) -> list[str]:
    """The problems of the process, its store and its alarm, as sentences."""
    status, problems = snapshot.status, []
    if (snapshot.loop_tick_age_s or 0) > LOOP_TICK_AGE_MAX_S:
        problems.append(f"the event loop has been stuck for {snapshot.loop_tick_age_s:.0f} s")
    if snapshot.store_error is not None:
        problems.append(f"the store cannot be written: {snapshot.store_error}")
    if snapshot.file_problem is not None:
        problems.append(snapshot.file_problem)
    if status is None:
        # In one process, an object that cannot write is reset: that is no second cause.
        is_own_cause = snapshot.store_error is None or snapshot.loop_tick_age_s is None
        if is_own_cause and (snapshot.scheduler_error is not None or not problems):
            problems.append(snapshot.scheduler_error or "the scheduler does not answer")
    elif status.next_alarm_at is None:
        problems.append("no alarm is set: no task will run")
    elif now - status.next_alarm_at > ALARM_LATE_MAX_MS:
        problems.append(f"the alarm is {(now - status.next_alarm_at) / 1000:.0f} s late")
    return problems


def _overdue(facts: TaskFacts) -> str:
    why = _because(facts.last_reason) if facts.paused_until is None else ": it is paused"
    age_ms = facts.complete_ago_ms
    since = "yet" if age_ms is None else f"for {short_duration(age_ms)}"
    return f"{facts.title} overdue, no complete run {since} (every {short_duration(facts.cadence_ms)}){why}"


def _switch(name: str) -> str:
    """Where the task was switched off: not every task has a setting."""
    return f"TOCSIN_{name.upper()}_ENABLED" if f"{name}_enabled" in _SETTINGS else "in its own file"
