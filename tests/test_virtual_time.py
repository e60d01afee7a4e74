"""The virtual loop keeps order, jumps over waiting, and waits for real threads."""

import asyncio
import threading

import pytest

from support.virtual_time import START_MS, VirtualClock


async def test_a_day_passes_in_no_time_and_in_order() -> None:
    """Timers fire in the order of their times, at exactly their times."""
    clock = VirtualClock()
    seen: list[tuple[str, int]] = []

    async def wait(name: str, seconds: float) -> None:
        await clock.sleep(seconds)
        seen.append((name, clock.now() - START_MS))

    await asyncio.gather(wait("day", 86_400), wait("hour", 3600), wait("now", 0))

    assert seen == [("now", 0), ("hour", 3_600_000), ("day", 86_400_000)]


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


async def test_a_deadlock_is_an_error_not_a_hang() -> None:
    """With nothing left to wait for, the loop raises."""
    with pytest.raises(RuntimeError, match="stands still"):
        asyncio.get_running_loop()._selector.select(None)  # type: ignore[attr-defined]
