"""When tasks run. Pure: state and time come in, a decision comes out.

A task's slots lie on a grid: the n-th slot of a 5-minute task is at n x 5 minutes of unix time, whatever
happened before. A late or long run does not move the next slot. Slots that passed unused (the process was
down, the task was paused, held back or still running) become one run, and are counted. When the budget
stretches the cadence, slots follow the last one at the stretched distance instead.

The last slot only ever moves forward, so no slot is run twice. After the clock was set back, a last slot, a
back-off or a pause would lie in the far future and hold a task up for as long: `clamped` brings each back to
its bound, and must be applied and kept before deciding. Whatever the clock does, a task that is not paused
runs again within a quarter of an hour, the bound of a back-off and two cadences.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

RING_MAX_MS = 900_000  # the alarm is never further away than this, so that a surprise is noticed


@dataclass(frozen=True, slots=True)
class DueSlot:
    """A run that is due: for which slot, and how many before it passed unused."""

    at: int
    missed: int


@dataclass(frozen=True, slots=True)
class TaskSchedule:
    """All that decides about one task."""

    name: str
    cadence_ms: int
    effective_ms: int
    last_slot_at: int = 0
    next_run_after: int | None = None
    running: bool = False
    rerun: bool = False  # its last run was cut off by a crash
    enabled: bool = True


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do now, and when to ring next."""

    due: dict[str, DueSlot]
    ring_at: int


def clamped(standing: TaskSchedule, *, now: int, backoff_max_ms: int) -> TaskSchedule:
    """The standing, with nothing in it further in the future than it can be."""
    last, after = standing.last_slot_at, standing.next_run_after
    if last > now + standing.cadence_ms:
        last = _grid(now, standing.cadence_ms)
    if after is not None:
        after = min(after, now + backoff_max_ms)
    return replace(standing, last_slot_at=last, next_run_after=after)


def decide(standings: Iterable[TaskSchedule], *, now: int, paused_until: int | None) -> Decision:
    """Decide for all tasks, as `clamped`. Tasks that run now are looked at again when they end."""
    due: dict[str, DueSlot] = {}
    rings = [now + RING_MAX_MS]
    for standing in standings:
        if not standing.enabled or standing.running:
            continue
        at = due_at(standing, now=now, paused_until=paused_until)
        if at <= now:
            due[standing.name] = slot = current_slot(standing, now)
            rings.append(slot_after(slot.at, standing, now))
        else:
            rings.append(at)
    return Decision(due, max(min(rings), now + 1))


def due_at(standing: TaskSchedule, *, now: int, paused_until: int | None) -> int:
    """When the task's next scheduled run starts, if nothing changes."""
    slot_at = now if standing.rerun else slot_after(standing.last_slot_at, standing, now)
    return max(slot_at, standing.next_run_after or 0, paused_until or 0)


def current_slot(standing: TaskSchedule, now: int) -> DueSlot:
    """The newest slot that has begun; older ones are missed."""
    last = standing.last_slot_at
    if last <= 0:
        return DueSlot(_grid(now, standing.cadence_ms), 0)
    if _stretched(standing):
        passed = max(1, (now - last) // standing.effective_ms)
        at = last + passed * standing.effective_ms
    else:
        at = _grid(now, standing.cadence_ms)
        passed = (at - _grid(last, standing.cadence_ms)) // standing.cadence_ms
    # A run after a crash belongs to the slot that was cut off, if no newer one has begun.
    return DueSlot(max(at, last), max(0, passed - 1)) if at <= now else DueSlot(last, 0)


def slot_after(last: int, standing: TaskSchedule, now: int) -> int:
    """The first slot after this one; in the past when it was missed."""
    if last <= 0:
        return now
    if _stretched(standing):
        return last + standing.effective_ms
    return _grid(last, standing.cadence_ms) + standing.cadence_ms


def _stretched(standing: TaskSchedule) -> bool:
    return standing.effective_ms > standing.cadence_ms


def _grid(at: int, cadence_ms: int) -> int:
    return at - at % cadence_ms
