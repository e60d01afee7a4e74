"""Alarms: what is stored of one, when it rings, and how a failed run changes it.

A failed `alarm()` is retried after 2 s, doubling, each wait longer by up to a quarter. Failures of the
handler itself are counted, and the seventh ends the alarm. Failures before the handler was reached (the
constructor raised) are not counted and never end it. Count and back-off are part of the stored alarm, so a
restart neither loses nor repeats them.

`AlarmSchedule` is an index in memory over the alarms in the store, built at every start, with one timer. No
alarm rings before its time. Alarms that are more than a second overdue (after a downtime, a stopped process, a
clock set forward) ring one after the other with a small gap, so that they do not all start at once.
"""

import asyncio
import heapq
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from holdfast.local.clock import SystemClock
from holdfast.local.object_id import LocalObjectId

RETRY_FIRST_MS = 2_000
RETRY_COUNT_MAX = 6  # seven runs in all
BACKOFF_MAX = 9  # doublings: 2 s … 1,024 s
JITTER_MAX = 0.25
CLOCK_SLACK_MS = 1_000  # a smaller change of the wall clock is not treated as a jump
OVERDUE_MS = 1_000
OVERDUE_GAP_S = 0.005
HEAP_SLACK = 256  # outdated entries allowed in the heap before it is rebuilt


class Alarm(NamedTuple):
    """`scheduled_at` is the time that was set, `due_at` when it rings next, as decided at `decided_at`.

    The generation distinguishes alarms that were set for the same millisecond.
    """

    scheduled_at: int
    due_at: int
    decided_at: int
    generation: int
    retry_count: int = 0
    backoff: int = 0
    last_failure_counted: bool = False


def after_failure(alarm: Alarm, *, counted: bool, now: int, chance: float) -> Alarm | None:
    """The alarm after a failed run, or None if its retries are exhausted. 0 <= chance < 1."""
    if counted and alarm.retry_count >= RETRY_COUNT_MAX:
        return None
    backoff = 0 if counted and not alarm.last_failure_counted else alarm.backoff
    delay_ms = RETRY_FIRST_MS * 2 ** min(backoff, BACKOFF_MAX) * (1 + JITTER_MAX * chance)
    return alarm._replace(
        due_at=now + round(delay_ms),
        decided_at=now,
        retry_count=alarm.retry_count + counted,
        backoff=backoff + 1,
        last_failure_counted=counted,
    )


def rings_at(alarm: Alarm, now: int) -> int:
    """When the alarm rings by the present clock.

    If the clock was set back since `decided_at`, the alarm would ring late by the same amount. Then its
    original wait starts again from now, so that no alarm waits longer than it was meant to.
    """
    if alarm.decided_at > now + CLOCK_SLACK_MS:
        return now + (alarm.due_at - alarm.decided_at)
    return alarm.due_at


class AlarmSchedule:
    """Call `set` when an alarm changes. An alarm that is due leaves the index, and `ring` is called."""

    def __init__(self, clock: SystemClock, ring: Callable[[LocalObjectId, Alarm], object]) -> None:
        self._clock = clock
        self._ring = ring
        self._armed: dict[str, tuple[LocalObjectId, Alarm]] = {}
        self._heap: list[tuple[int, int, str]] = []  # (rings at, generation, object)
        self._overdue: deque[tuple[LocalObjectId, Alarm]] = deque()
        self._pacing: asyncio.TimerHandle | None = None
        self._timer_at: int | None = None
        self._wall_offset = 0.0

    def open(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._wall_offset = self._offset()
        self._clock.open(self._bell)

    def close(self) -> None:
        self._clock.close()
        if self._pacing is not None:
            self._pacing.cancel()

    def armed(self, owner: LocalObjectId) -> Alarm | None:
        """The alarm of the object that waits for its time. One that rings does not."""
        return self._armed.get(owner.hex, (owner, None))[1]

    def set(self, owner: LocalObjectId, alarm: Alarm | None) -> None:
        if alarm is None:
            self._armed.pop(owner.hex, None)
            return
        self._armed[owner.hex] = (owner, alarm)
        at = rings_at(alarm, self._clock.now())
        heapq.heappush(self._heap, (at, alarm.generation, owner.hex))
        if len(self._heap) > 2 * len(self._armed) + HEAP_SLACK:
            self._rebuild()
        if self._timer_at is None or at < self._timer_at:
            self._wait_for(at)

    def _bell(self) -> None:
        """The timer rang, or the wall clock was set: ring what is due, and wait for the next."""
        self._timer_at = None
        offset = self._offset()
        if abs(offset - self._wall_offset) > CLOCK_SLACK_MS:
            self._rebuild()
        self._wall_offset = offset
        now = self._clock.now()
        while self._heap:
            at, generation, object_id = self._heap[0]
            owner, alarm = self._armed.get(object_id, (None, None))
            if owner is None or alarm is None or alarm.generation != generation:
                heapq.heappop(self._heap)  # replaced or deleted meanwhile
                continue
            if at > now:
                break
            heapq.heappop(self._heap)
            del self._armed[object_id]
            if now - at > OVERDUE_MS:
                self._overdue.append((owner, alarm))
            else:
                self._ring(owner, alarm)
        if self._overdue and self._pacing is None:
            self._ring_overdue()
        if self._heap:
            self._wait_for(self._heap[0][0])

    def _ring_overdue(self) -> None:
        self._pacing = None
        if self._overdue:
            owner, alarm = self._overdue.popleft()
            self._pacing = self._loop.call_later(OVERDUE_GAP_S, self._ring_overdue)
            self._ring(owner, alarm)

    def _wait_for(self, at: int) -> None:
        self._timer_at = at
        self._clock.ring_at(at)

    def _rebuild(self) -> None:
        now = self._clock.now()
        self._heap = [
            (rings_at(alarm, now), alarm.generation, object_id) for object_id, (_, alarm) in self._armed.items()
        ]
        heapq.heapify(self._heap)

    def _offset(self) -> float:
        return self._clock.now() - self._clock.monotonic() * 1000
