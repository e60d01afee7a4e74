"""The current time on two clocks, and the time between two moments. Pure, except for `moment_of`.

The wall clock may be set at any time. The monotonic clock only runs forward, and the processes of one machine share
it until the next reboot; `boot_id` identifies that period. So a duration between two processes is exact within a boot,
whatever happens to the wall clock.
"""

from typing import NamedTuple

from holdfast.types import Clock

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS


class Moment(NamedTuple):
    """A moment: the wall clock for months and for people, the monotonic clock for everything else.

    `boot_id` is empty if it is unknown: then moments of another process can be compared only by the wall clock.
    """

    wall_ms: int
    monotonic_ms: int
    boot_id: str = ""

    def same_boot(self, earlier: "Moment") -> bool:
        """Whether the monotonic times of the two moments can be compared."""
        return bool(self.boot_id) and (self.boot_id == earlier.boot_id and self.monotonic_ms >= earlier.monotonic_ms)

    def since(self, earlier: "Moment") -> int:
        """Milliseconds since a moment of another process: exact within a boot, otherwise by the wall clock."""
        if self.same_boot(earlier):
            return self.monotonic_ms - earlier.monotonic_ms
        return max(0, self.wall_ms - earlier.wall_ms)


def moment_of(clock: Clock) -> Moment:
    return Moment(clock.now(), int(clock.monotonic() * 1000), clock.boot_id)
