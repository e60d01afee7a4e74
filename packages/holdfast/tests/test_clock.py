"""The timer on the wall clock: once, at its time, never after it was disarmed. With timerfd and without."""

import asyncio
import ctypes
import errno
import os
import sys
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from holdfast.local import clock as clock_module
from holdfast.local.clock import SystemClock, _LoopTimer

T = TypeVar("T")

START_MS = 1_778_700_600_000
linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has timerfd")


class Wall:
    """A wall clock on the loop's time, that can be set."""

    def __init__(self) -> None:
        self.set_by_ms = 0
        self.rung: list[float] = []
        self.timer = _LoopTimer(self.now, self.ring)

    def now(self) -> int:
        return START_MS + self.set_by_ms + round(asyncio.get_running_loop().time() * 1000)

    def ring(self) -> None:
        self.rung.append(asyncio.get_running_loop().time())


async def test_without_timerfd_the_bell_rings_once_at_its_time() -> None:
    """Within the 30 seconds after which the clock is checked anyway."""
    wall = Wall()
    wall.timer.ring_at(START_MS + 12_500)
    await asyncio.sleep(100)

    assert wall.rung == [12.5]


async def test_without_timerfd_the_clock_is_looked_at_after_thirty_seconds_at_most() -> None:
    """However far away the alarm is: the clock may be set in the meantime."""
    wall = Wall()
    wall.timer.ring_at(START_MS + 3_600_000)
    await asyncio.sleep(100)

    assert wall.rung == [30.0]


async def test_without_timerfd_a_time_that_has_passed_rings_at_once() -> None:
    """Not in the past, and not never."""
    wall = Wall()
    wall.timer.ring_at(START_MS - 10_000)
    await asyncio.sleep(1)

    assert wall.rung == [0.0]


@pytest.mark.parametrize("how", ["disarmed", "closed"])
async def test_without_timerfd_a_timer_that_is_disarmed_is_silent(how: str) -> None:
    """Even when the runtime has ended: its bell must not ring."""
    wall = Wall()
    wall.timer.ring_at(START_MS + 10_000)
    if how == "closed":
        wall.timer.close()
    else:
        wall.timer.ring_at(None)
    await asyncio.sleep(100)

    assert wall.rung == []


async def test_without_timerfd_a_new_time_replaces_the_old_one() -> None:
    """One timer, one time."""
    wall = Wall()
    wall.timer.ring_at(START_MS + 5_000)
    wall.timer.ring_at(START_MS + 10_000)
    await asyncio.sleep(100)

    assert wall.rung == [10.0]


async def in_real_time(bell: asyncio.Event, clock: SystemClock) -> tuple[int, int]:
    """Set it 60 ms ahead; return the clock's time when it rang, and the time that was set."""
    at = clock.now() + 60
    clock.ring_at(at + 10_000_000)
    clock.ring_at(at)
    async with asyncio.timeout(20):
        await bell.wait()
    return clock.now(), at


async def disarmed(bell: asyncio.Event, clock: SystemClock) -> bool:
    clock.ring_at(clock.now() + 30)
    clock.ring_at(None)
    await asyncio.sleep(0.1)
    return bell.is_set()


async def closed(bell: asyncio.Event, clock: SystemClock) -> bool:
    clock.ring_at(clock.now() + 30)
    clock.close()
    await asyncio.sleep(0.1)
    return bell.is_set()


def really(work: Callable[[asyncio.Event, SystemClock], Awaitable[T]]) -> T:
    """Run it on an ordinary loop, with the clock of this machine."""

    async def main() -> T:
        bell, clock = asyncio.Event(), SystemClock()
        clock.open(bell.set)
        try:
            return await work(bell, clock)
        finally:
            clock.close()

    return asyncio.run(main())


@pytest.fixture(params=["timerfd", "a timer of the loop"])
def timer(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With timerfd where the system has it, and without it."""
    if request.param != "timerfd":
        monkeypatch.setattr(ctypes, "CDLL", lambda *_arguments, **_options: object())


@pytest.mark.usefixtures("timer")
def test_the_bell_rings_at_the_time_that_was_set_last() -> None:
    """Not early, and not at the previous time."""
    rang_at, set_for = really(in_real_time)

    assert 0 <= rang_at - set_for < 4_000


@pytest.mark.usefixtures("timer")
@pytest.mark.parametrize("work", [disarmed, closed])
def test_a_timer_that_is_not_wanted_any_more_is_silent(
    work: Callable[[asyncio.Event, SystemClock], Awaitable[bool]],
) -> None:
    """Disarmed, or the runtime has ended."""
    assert really(work) is False


def test_a_system_that_refuses_timerfd_gets_a_timer_of_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sandbox may forbid the call: it returns -1, and alarms still ring."""

    class Refusing:
        def timerfd_create(self, *_arguments: int) -> int:
            return -1

    monkeypatch.setattr(ctypes, "CDLL", lambda *_arguments, **_options: Refusing())
    rang_at, set_for = really(in_real_time)

    assert 0 <= rang_at - set_for < 4_000


@linux
@pytest.mark.parametrize(("error", "rings"), [(OSError(errno.ECANCELED, "set"), 1), (BlockingIOError(), 0)])
def test_a_clock_that_was_set_rings_the_bell(monkeypatch: pytest.MonkeyPatch, error: OSError, rings: int) -> None:
    """The kernel reports it when the timer is read; a timer that has nothing to report rings nothing."""
    rung: list[int] = []

    async def main() -> None:
        clock = SystemClock()
        clock.open(lambda: rung.append(1))
        timer = clock._timer
        assert isinstance(timer, clock_module._TimerFd)

        def read(_fd: int, _count: int) -> bytes:
            raise error

        with monkeypatch.context() as patch:
            patch.setattr(os, "read", read)
            timer._on_readable()
        clock.close()

    asyncio.run(main())

    assert len(rung) == rings


@linux
def test_a_clock_that_was_set_before_the_timer_is_set_rings_the_bell(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel then refuses, although the timer is armed: the bell checks the clock."""
    rung: list[int] = []

    async def main() -> None:
        clock = SystemClock()
        clock.open(lambda: rung.append(1))
        timer = clock._timer
        assert isinstance(timer, clock_module._TimerFd)
        fd, libc = timer._fd, timer._libc

        class Refusing:
            def timerfd_settime(self, *_arguments: object) -> int:
                return -1

        monkeypatch.setattr(timer, "_libc", Refusing())
        clock.ring_at(clock.now() + 60_000)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        monkeypatch.setattr(timer, "_libc", libc)
        assert timer._fd == fd
        clock.close()

    asyncio.run(main())

    assert rung == [1]
