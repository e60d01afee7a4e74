"""Long computations as generators: each step takes a millisecond or two, so other work can run in between."""

import asyncio
import gc
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")

STEPS_AT_ONCE = 8
FREED_AT_ONCE = 10_000


def at_once(steps: Generator[None, None, T]) -> T:
    """Return the result without pausing."""
    while True:
        try:
            next(steps)
        except StopIteration as ended:
            result: T = ended.value
            return result


async def with_pauses(steps: Generator[None, None, T], checkpoint: Callable[[], None] = lambda: None) -> T:
    """Return the result, letting the event loop do other work every few steps. Cloudflare has no threads."""
    while True:
        try:
            for _ in range(STEPS_AT_ONCE):
                next(steps)
        except StopIteration as ended:
            result: T = ended.value
            return result
        await asyncio.sleep(0)
        checkpoint()


async def free(values: list[T]) -> None:
    """Empty a long list in small steps: freeing a million swaps takes most of a second."""
    while values:
        del values[-FREED_AT_ONCE:]
        await asyncio.sleep(0)


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pause garbage collection: it would scan a million swaps again and again, for seconds, and find no cycles."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
