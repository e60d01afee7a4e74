"""The timer on the wall clock: once, at its time, never after it was closed, and not late for ever if it was set."""

import asyncio

import pytest

from holdfast.local.clock import SystemClock

START_MS = 1_778_700_600_000


class Wall(SystemClock):
    """A wall clock on the loop's time, and when its bell rang."""

    def __init__(self) -> None:
        super().__init__()
        self.rung: list[float] = []
        self.open(lambda: self.rung.append(asyncio.get_running_loop().time()))

    def now(self) -> int:
        return START_MS + round(asyncio.get_running_loop().time() * 1000)


@pytest.mark.parametrize(
    ("times_ms", "rung"),
    [
        ([12_500], [12.5]),
        ([-10_000], [0.0]),  # not in the past, and not never
        ([3_600_000], [30.0]),  # however far away: the clock may be set meanwhile
        ([5_000, 10_000], [10.0]),
    ],
    ids=["soon", "past", "far", "replaced"],
)
async def test_the_bell_rings_once_at_the_time_that_was_set_last(times_ms: list[int], rung: list[float]) -> None:
    """Within the 30 seconds after which the clock is checked anyway."""
    wall = Wall()
    for at_ms in times_ms:
        wall.ring_at(START_MS + at_ms)
    await asyncio.sleep(100)

    assert wall.rung == rung


async def test_a_clock_that_was_closed_is_silent() -> None:
    """The runtime has ended: its bell must not ring, nor be set again."""
    wall = Wall()
    wall.ring_at(START_MS + 10_000)
    wall.close()
    wall.ring_at(START_MS + 10_000)
    await asyncio.sleep(100)

    assert wall.rung == []


def test_the_bell_rings_in_real_time() -> None:
    """Not early, except by what the two clocks differ."""

    async def main() -> int:
        bell, clock = asyncio.Event(), SystemClock()
        clock.open(bell.set)
        at = clock.now() + 60
        clock.ring_at(at)
        await bell.wait()
        return clock.now() - at

    assert asyncio.run(main()) > -10  # the loop measures by the monotonic clock
