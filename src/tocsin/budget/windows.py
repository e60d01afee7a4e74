"""A sliding window: at most `limit` calls in any stretch of its length, wherever the stretch begins.

Calls are counted in slots a fraction of the window long, and a slot counts for as long as any part of it
lies in the window. That is a slot's length too careful, never too bold, whichever way the upstream counts.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

from tocsin.budget.limiter import Lane


class Moment(NamedTuple):
    """Now, on two clocks: the wall's for months, a steady one for everything shorter.

    Whoever sets the wall clock does not move the steady one, so no jump can empty a window.
    """

    wall_ms: int
    monotonic_ms: int


class LaneCounts(NamedTuple):
    """Calls in a window: by tasks, by requests, and by others, as far as the upstream told."""

    tasks: int
    requests: int
    others: int


Bucket: TypeAlias = tuple[int, int, int, int]  # number, tasks, requests, others


@dataclass(frozen=True, slots=True)
class SlidingWindow:
    """The calls of the last `length_ms`, oldest slot first."""

    length_ms: int
    bucket_ms: int
    slots: tuple[Bucket, ...] = ()

    def tally(self, monotonic_ms: int) -> LaneCounts:
        tasks = requests = others = 0
        for _, by_tasks, by_requests, by_others in self._live(monotonic_ms):
            tasks += by_tasks
            requests += by_requests
            others += by_others
        return LaneCounts(tasks, requests, others)

    def plus(self, monotonic_ms: int, tasks: int = 0, requests: int = 0, others: int = 0) -> "SlidingWindow":
        """Count calls made now."""
        live = self._live(monotonic_ms)
        number = monotonic_ms // self.bucket_ms
        if live and live[-1][0] >= number:
            number, by_tasks, by_requests, by_others = live[-1]
            live, tasks, requests, others = (
                live[:-1],
                tasks + by_tasks,
                requests + by_requests,
                others + by_others,
            )
        return replace(self, slots=(*live, (number, tasks, requests, others)))

    def wait_ms(self, lane: Lane, limit: int, lane_max: int, monotonic_ms: int) -> int:
        """How long until a call of this lane fits: into the limit, and into what the lane may have of it."""
        column = 1 if lane is Lane.TASK else 2
        live = self._live(monotonic_ms)
        of_lane = sum(slot[column] for slot in live)
        total = sum(slot[1] + slot[2] + slot[3] for slot in live)
        wait_ms = 0
        for slot in live:
            if total < limit and of_lane < lane_max:
                break
            of_lane -= slot[column]
            total -= slot[1] + slot[2] + slot[3]
            wait_ms = (slot[0] + 1) * self.bucket_ms + self.length_ms - monotonic_ms
        return wait_ms

    def reconcile(self, limit: int, remaining: int, monotonic_ms: int) -> "SlidingWindow":
        """The upstream says how many calls remain: if fewer than by our count, others made the rest."""
        unknown = limit - remaining - sum(self.tally(monotonic_ms))
        return self.plus(monotonic_ms, others=unknown) if unknown > 0 else self

    def restarted(self, monotonic_ms: int) -> "SlidingWindow":
        """After a restart nobody knows how much time has passed: every call counts as just made."""
        tasks = sum(slot[1] for slot in self.slots)
        requests = sum(slot[2] for slot in self.slots)
        others = sum(slot[3] for slot in self.slots)
        return replace(self, slots=()).plus(monotonic_ms, tasks, requests, others)

    def _live(self, monotonic_ms: int) -> tuple[Bucket, ...]:
        oldest = (monotonic_ms - self.length_ms) // self.bucket_ms  # the first slot with a part in the window
        if not self.slots or self.slots[0][0] >= oldest:
            return self.slots
        return tuple(slot for slot in self.slots if slot[0] >= oldest)


def reserve_of(limit: int, share: float) -> int:
    """How many of `limit` calls are kept for requests: at least one of two, never all."""
    return min(limit - 1, max(1, int(limit * share))) if share > 0 else 0


def lane_max(lane: Lane, limit: int, share: float) -> int:
    """How many of `limit` calls a lane may have: tasks all but the reserve, requests half of it."""
    return limit - reserve_of(limit, share) if lane is Lane.TASK else limit - limit // 2
