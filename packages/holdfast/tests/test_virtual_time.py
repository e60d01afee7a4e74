"""The virtual loop keeps order, jumps over waiting, runs jobs itself, and waits for real threads."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from holdfast.testing.virtual_time import START_MS, VirtualClock


async def test_a_day_passes_in_no_time_and_in_order() -> None:
    """Timers fire in the order of their times, at exactly their times."""
    clock = VirtualClock()
    seen: list[tuple[str, int]] = []

    async def wait(name: str, seconds: float) -> None:
        await clock.sleep(seconds)
        seen.append((name, clock.now() - START_MS))

    await asyncio.gather(wait("day", 86_400), wait("hour", 3600), wait("now", 0))

    assert seen == [("now", 0), ("hour", 3_600_000), ("day", 86_400_000)]


async def test_timers_fire_at_their_times_for_years() -> None:
    """Where two floats are further apart than the loop's resolution, too."""
    clock = VirtualClock()
    seen = []
    for _ in range(1000):
        await clock.sleep(86_400.003)
        seen.append(clock.now() - START_MS)

    assert seen == [86_400_003 * n for n in range(1, 1001)]


async def test_time_stands_still_while_a_thread_works() -> None:
    """A thread takes no virtual time, however long the other timers are."""
    loop = asyncio.get_running_loop()
    gate = threading.Event()
    timer = loop.call_later(5, lambda: None)
    job = loop.run_in_executor(None, gate.wait, 10)
    gate.set()
    await job
    timer.cancel()

    assert loop.time() == 0


async def test_a_job_of_an_executor_runs_on_the_loop() -> None:
    """One iteration later; a cancelled one never runs, and an error reaches the caller."""
    loop = asyncio.get_running_loop()
    ran: list[int] = []
    with ThreadPoolExecutor(1) as pool:
        job, cancelled = (loop.run_in_executor(pool, threading.get_ident), loop.run_in_executor(pool, ran.append, 1))
        failing = loop.run_in_executor(pool, int, "x")
        cancelled.cancel()
        assert not job.done()

        assert await job == threading.get_ident()
        with pytest.raises(ValueError, match="invalid literal"):
            await failing
    assert ran == []


@pytest.mark.holdfast(real_threads=True)
async def test_a_job_runs_in_its_thread_if_the_test_asks_for_that() -> None:
    """As in the service."""
    with ThreadPoolExecutor(1) as pool:
        job = asyncio.get_running_loop().run_in_executor(pool, threading.get_ident)
        assert await job != threading.get_ident()


async def test_a_deadlock_is_an_error_not_a_hang() -> None:
    """With nothing left to wait for, the loop raises."""
    with pytest.raises(RuntimeError, match="stands still"):
        asyncio.get_running_loop()._selector.select(None)  # type: ignore[attr-defined]
