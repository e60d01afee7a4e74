"""When tasks run. Pure: state and time come in, a decision comes out.

A task's slots lie on a grid: the n-th slot of a 5-minute task is at n x 5 minutes of unix time, whatever happened
before. A late or long run does not move the next slot. Slots that passed unused (the process was down, the task was
paused, held back or still running) become one run, and are counted as missed. When the budget stretches the cadence,
slots follow the last one at the stretched distance instead. The first run of a task starts at once, for a slot of its
own: a slot before it would make a new service look late. A run may ask to be woken at a time of its own, such as the
end of a round: that is one slot more, and moves no other.

The last slot only moves forward, so no slot is run twice. After the clock was set back, it would lie in the far future
and hold a task up for as long. `clamped` brings it back; apply it and keep the result before deciding. (Back-offs do
not move with the wall clock, and a pause is bounded where it is kept.) Whatever the clock does, a task that is not
paused runs again within the longest wait for an alarm, the bound of a back-off and two cadences.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from tocsin.bindings import ALARM_AHEAD_MAX_MS
from tocsin.durations import utc_time
from tocsin.errors import UsageError


@dataclass(frozen=True, slots=True)
class DueSlot:
    """A run that is due: for which slot, and how many slots before it passed unused."""

    at: int
    missed: int


@dataclass(frozen=True, slots=True)
class TaskSchedule:
    """Everything that decides about one task."""

    name: str
    cadence_ms: int
    effective_ms: int
    last_slot_at: int = 0
    next_run_after: int | None = None
    running: bool = False
    rerun: bool = False  # its last run was interrupted
    wake_at: int | None = None  # its last run asked for a run at this time
    enabled: bool = True


@dataclass(frozen=True, slots=True)
class Decision:
    """What to start now, and when to ring next."""

    due: dict[str, DueSlot]
    ring_at: int


def clamped(schedule: TaskSchedule, *, now: int) -> TaskSchedule:
    """The schedule, with a last slot that is not further in the future than it can be."""
    if schedule.last_slot_at <= now + schedule.cadence_ms:
        return schedule
    return replace(schedule, last_slot_at=_grid(now, schedule.cadence_ms))


def decide(
    schedules: Iterable[TaskSchedule], *, now: int, paused_until: int | None, ring_by: int | None = None
) -> Decision:
    """Decide for all tasks, given `clamped` schedules. Tasks that run now are decided on when they end.

    `ring_by` is when the alarm must ring even if no task is due by then.
    """
    due: dict[str, DueSlot] = {}
    rings = [now + ALARM_AHEAD_MAX_MS]  # never further ahead, so that a surprise is noticed
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
        at = _grid(now, schedule.cadence_ms)
        passed = (at - _grid(last, schedule.cadence_ms)) // schedule.cadence_ms
    # A rerun belongs to the slot of the interrupted run, if no newer one has begun.
    return DueSlot(max(at, last), max(0, passed - 1)) if at <= now else DueSlot(last, 0)


def slot_after(last: int, schedule: TaskSchedule, now: int) -> int:
    """The first slot after this one; in the past when it was missed."""
    if last <= 0:
        return now
    if _stretched(schedule):
        return last + schedule.effective_ms
    return _grid(last, schedule.cadence_ms) + schedule.cadence_ms


def _stretched(schedule: TaskSchedule) -> bool:
    return schedule.effective_ms > schedule.cadence_ms


def _grid(at: int, cadence_ms: int) -> int:
    return at - at % cadence_ms


def check_pause(until: int, now: int, longest_ms: int) -> None:
    """Refuses an end of a pause that is no time, past, or too far ahead."""
    latest = f"Give one at most {longest_ms / 86_400_000:g} days ahead, {utc_time(now + longest_ms)} at the latest."
    if type(until) is not int:
        raise UsageError(f"A pause ends at a time in unix milliseconds, not {until!r:.60}. {latest}")
    if until <= now:
        raise UsageError(f"That time is past: it is {utc_time(now)} now. {latest}")
    if until > now + longest_ms:
        raise UsageError(f"That is too far ahead for a pause. {latest}")
