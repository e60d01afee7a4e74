"""A sliding window: at most `limit` calls in any period of its length, whenever the period begins.

Calls are counted in buckets, each a fraction of the window long. A bucket counts for as long as any part of it lies in
the window. So the count may be too high by up to one bucket, and is never too low.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

from tocsin.budget.limiter import Lane


class LaneCounts(NamedTuple):
    """Calls in a window: by tasks, by requests, and by others if the upstream reported them."""

    tasks: int
    requests: int
    others: int


Bucket: TypeAlias = tuple[int, int, int, int]  # number, calls by tasks, by requests, by others


@dataclass(frozen=True, slots=True)
class SlidingWindow:
    """The calls of the last `length_ms`, oldest bucket first."""

    length_ms: int
    bucket_ms: int
    buckets: tuple[Bucket, ...] = ()

    def counts(self, monotonic_ms: int) -> LaneCounts:
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
            live = live[:-1]
            tasks, requests, others = tasks + by_tasks, requests + by_requests, others + by_others
        return replace(self, buckets=(*live, (number, tasks, requests, others)))

    def wait_ms(self, lane: Lane, limit: int, lane_max: int, monotonic_ms: int) -> int:
        """How long until a call of this lane fits into the limit and into the lane's part of it."""
        column = 1 if lane is Lane.TASK else 2
        live = self._live(monotonic_ms)
        of_lane = sum(bucket[column] for bucket in live)
        total = sum(bucket[1] + bucket[2] + bucket[3] for bucket in live)
        wait_ms = 0
        for bucket in live:
            if total < limit and of_lane < lane_max:
                break
            of_lane -= bucket[column]
            total -= bucket[1] + bucket[2] + bucket[3]
            wait_ms = (bucket[0] + 1) * self.bucket_ms + self.length_ms - monotonic_ms
        return wait_ms

    def reconcile(self, limit: int, remaining: int, monotonic_ms: int) -> "SlidingWindow":
        """Apply the remaining calls that the upstream reports. If more were used than we counted, others made them."""
        unknown = limit - remaining - sum(self.counts(monotonic_ms))
        return self.plus(monotonic_ms, others=unknown) if unknown > 0 else self

    def restarted(self, monotonic_ms: int) -> "SlidingWindow":
        """The window after a reboot: the elapsed time is unknown, so every call counts as just made."""
        tasks = sum(bucket[1] for bucket in self.buckets)
        requests = sum(bucket[2] for bucket in self.buckets)
        others = sum(bucket[3] for bucket in self.buckets)
        return replace(self, buckets=()).plus(monotonic_ms, tasks, requests, others)

    def _live(self, monotonic_ms: int) -> tuple[Bucket, ...]:
        oldest = (monotonic_ms - self.length_ms) // self.bucket_ms  # the first with a part in the window
        if not self.buckets or self.buckets[0][0] >= oldest:
            return self.buckets
        return tuple(bucket for bucket in self.buckets if bucket[0] >= oldest)


def reserve_of(limit: int, share: float) -> int:
    """How many of `limit` calls are reserved for requests: at least one if the limit is two or more, never all."""
    return min(limit - 1, max(1, int(limit * share))) if share > 0 else 0


def lane_max(lane: Lane, limit: int, share: float) -> int:
    """How many of `limit` calls a lane may make: tasks all but the reserve, requests half of the limit, rounded up."""
    return limit - reserve_of(limit, share) if lane is Lane.TASK else limit - limit // 2
