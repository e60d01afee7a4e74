"""Real processes: killed, stopped and resumed, started twice."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.local.clock import SystemClock

ROOT = Path(__file__).parents[3]


class Heartbeat:
    """The example of the docs, run as a reader would."""

    def __init__(self, directory: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "examples.heartbeat", str(directory)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def beats(self, count: int) -> list[int]:
        assert self.process.stdout is not None
        return [int(self.process.stdout.readline().split()[1]) for _ in range(count)]

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@contextlib.contextmanager
def heartbeat(directory: Path) -> Iterator[Heartbeat]:
    running = Heartbeat(directory)
    try:
        yield running
    finally:
        running.kill()


@pytest.mark.slow
def test_the_example_survives_kill_9(tmp_path: Path) -> None:
    """It continues counting where it stopped, and rings without a call."""
    with heartbeat(tmp_path) as first:
        assert first.beats(2) == [1, 2]
    with heartbeat(tmp_path) as second:
        third, fourth = second.beats(2)

    assert third >= 3  # the first may have beaten once more before the kill arrived
    assert fourth == third + 1


@pytest.mark.slow
def test_a_second_process_is_refused_with_the_reason(tmp_path: Path) -> None:
    """Two processes on one directory would be two writers. The message contains the id of the first."""
    with heartbeat(tmp_path) as first:
        first.beats(1)
        second = subprocess.run(
            [sys.executable, "-m", "examples.heartbeat", str(tmp_path)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )

        assert second.returncode == 1
        assert str(first.process.pid) in second.stderr.splitlines()[-1]
        assert str(tmp_path) in second.stderr.splitlines()[-1]


@pytest.mark.slow
def test_a_stopped_process_catches_up_once_per_alarm(tmp_path: Path) -> None:
    """After a SIGSTOP of three seconds each alarm rings once, late, and none is lost or repeated."""
    with heartbeat(tmp_path) as running:
        running.beats(1)
        os.kill(running.process.pid, signal.SIGSTOP)
        time.sleep(3)  # real time: this tests the timer of the kernel
        os.kill(running.process.pid, signal.SIGCONT)
        caught_up = running.beats(5)

    assert caught_up == [2, 3, 4, 5, 6]


async def _ring(bell_rings: list[float]) -> None:
    import asyncio

    clock = SystemClock()
    rung = asyncio.Event()

    def bell() -> None:
        bell_rings.append(time.time() * 1000)
        rung.set()

    clock.open(bell)
    try:
        clock.ring_at(clock.now() + 10_000_000)
        clock.ring_at(clock.now() + 30)
        await asyncio.wait_for(rung.wait(), 10)
        bell_rings.append(clock.now())
    finally:
        clock.close()


@pytest.mark.skipif(sys.platform != "linux", reason="timerfd is Linux's")
def test_the_kernel_timer_rings_at_the_last_time_that_was_set() -> None:
    """A later setting replaces an earlier one. It never rings before its time."""
    import asyncio

    rings: list[float] = []
    began_at = time.time() * 1000
    asyncio.run(_ring(rings))

    assert len(rings) == 2
    assert rings[0] >= int(began_at) + 30
