"""Decides when tasks run. Pure: takes state and time, and returns a decision.

A task's slots lie on a grid: the n-th slot of a 5-minute task is at n x 5 minutes of unix time, whatever happened
before. A late or long run does not move the next slot. Slots that passed unused (the process was down, the task was
paused, held back or still running) result in one run, and are counted as missed. When the budget stretches the
cadence, each slot follows the last one at the stretched interval instead. The first run of a task starts at once, with
a slot of its own: an earlier slot would make a new service look late. A run may ask for another run at a given time,
such as the end of a round. That adds one slot and moves no other. A task with a cron expression has its slots at the
times of that expression, and the budget never stretches them.

The last slot only moves forward, so no slot is run twice. After the clock is set back, the last slot can lie in the
far future, which would hold the task up until then. `clamped` corrects it; apply it and keep the result before
deciding. (Back-offs do not depend on the wall clock, and pauses are bounded where they are stored.) Whatever the clock
does, a task that is not paused runs again within the sum of the longest wait for an alarm, the longest back-off and
two cadences.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from holdfast.errors import UsageError
from holdfast.schedule import MINUTE_MS, Cron
from tocsin.settings import ALARM_AHEAD_MAX_MS
from tocsin.text import utc_time
from tocsin.upstream.windows import DAY_MS

PAUSE_MAX_MS = 7 * DAY_MS
MISSED_MAX = 1_000  # slots of a cron expression that are counted as missed at once


@dataclass(frozen=True, slots=True)
class DueSlot:
    """A run that is due: its slot, and how many slots before it passed unused."""

    at: int
    missed: int


@dataclass(frozen=True, slots=True)
class TaskSchedule:
    """Everything that determines when one task runs."""

    name: str
    cadence_ms: int
    effective_ms: int
    last_slot_at: int = 0
    next_run_after: int | None = None
    running: bool = False
    rerun: bool = False  # its last run was interrupted
    wake_at: int | None = None  # its last run asked for a run at this time
    enabled: bool = True
    cron: Cron | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """What to start now, and when to ring next."""

    due: dict[str, DueSlot]
    ring_at: int


def clamped(schedule: TaskSchedule, *, now: int) -> TaskSchedule:
    """The schedule, with a last slot no further in the future than possible."""
    if schedule.last_slot_at <= now + schedule.cadence_ms:
        return schedule
    return replace(schedule, last_slot_at=_newest(now, schedule))


def decide(
    schedules: Iterable[TaskSchedule], *, now: int, paused_until: int | None, ring_by: int | None = None
) -> Decision:
    """Decide for all tasks, given `clamped` schedules. Running tasks are decided on when they end.

    `ring_by` is when the alarm must ring even if no task is due by then.
    """
    due: dict[str, DueSlot] = {}
    rings = [now + ALARM_AHEAD_MAX_MS]  # never further ahead, so that unexpected changes are noticed
    if ring_by is not None:
        rings.append(ring_by)
    for schedule in schedules:
        if not schedule.enabled or schedule.running:
            continue
        at = due_at(schedule, now=now, paused_until=paused_until)
        if at <= now:
            due[schedule.name] = slot = current_slot(schedule, now)
            rings.append(slot_after(slot.at, schedule, now))
        else:
            rings.append(at)
    return Decision(due, max(min(rings), now + 1))


def due_at(schedule: TaskSchedule, *, now: int, paused_until: int | None) -> int:
    """When the task's next scheduled run starts, if nothing changes."""
    slot_at = now if schedule.rerun else slot_after(schedule.last_slot_at, schedule, now)
    if schedule.wake_at is not None:
        slot_at = min(slot_at, schedule.wake_at)
    return max(slot_at, schedule.next_run_after or 0, paused_until or 0)


def current_slot(schedule: TaskSchedule, now: int) -> DueSlot:
    """The newest slot that has begun; older ones are missed."""
    slot = _regular_slot(schedule, now)
    wake_at = schedule.wake_at
    return slot if wake_at is None or not slot.at < wake_at <= now else DueSlot(wake_at, slot.missed)


def _regular_slot(schedule: TaskSchedule, now: int) -> DueSlot:
    last = schedule.last_slot_at
    if last <= 0:
        return DueSlot(now, 0)
    if _stretched(schedule):
        passed = max(1, (now - last) // schedule.effective_ms)
        at = last + passed * schedule.effective_ms
    else:
        at = _newest(now, schedule)
        passed = _slots_between(last, at, schedule)
    # A rerun belongs to the slot of the interrupted run, if no newer one has begun.
    return DueSlot(max(at, last), max(0, passed - 1)) if at <= now else DueSlot(last, 0)


def slot_after(last: int, schedule: TaskSchedule, now: int) -> int:
    """The first slot after this one; in the past if it was missed."""
    if last <= 0:
        return now
    if _stretched(schedule):
        return last + schedule.effective_ms
    if schedule.cron is not None:
        return schedule.cron.after(last)
    return _newest(last, schedule) + schedule.cadence_ms


def _stretched(schedule: TaskSchedule) -> bool:
    return schedule.cron is None and schedule.effective_ms > schedule.cadence_ms


def _newest(at: int, schedule: TaskSchedule) -> int:
    """The newest slot that has begun at this time."""
    if schedule.cron is None:
        return at - at % schedule.cadence_ms
    back_ms = MINUTE_MS
    while (slot := schedule.cron.after(at - back_ms)) > at:
        back_ms *= 4
    while (following := schedule.cron.after(slot)) <= at:
        slot = following
    return slot


def _slots_between(last: int, at: int, schedule: TaskSchedule) -> int:
    """How many slots there are after `last` up to `at`; of a cron expression, `MISSED_MAX` are counted."""
    if schedule.cron is None:
        return (at - _newest(last, schedule)) // schedule.cadence_ms
    count, slot = 0, schedule.cron.after(last)
    while slot <= at and count <= MISSED_MAX:
        count, slot = count + 1, schedule.cron.after(slot)
    return count


def check_pause(until: int, now: int) -> None:
    """Reject an end of a pause that is not a time, in the past, or too far ahead."""
    latest = f"Give one at most {PAUSE_MAX_MS // DAY_MS} days ahead, {utc_time(now + PAUSE_MAX_MS)} at the latest."
    if type(until) is not int:
        raise UsageError(f"A pause ends at a time in unix milliseconds, not {until!r:.60}. {latest}")
    if until <= now:
        raise UsageError(f"That time is past: it is {utc_time(now)} now. {latest}")
    if until > now + PAUSE_MAX_MS:
        raise UsageError(f"That is too far ahead for a pause. {latest}")
