"""Long computations as generators: each step takes a millisecond or two, so that other work can go on in between."""

import asyncio
import gc
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")

STEPS_AT_ONCE = 8
FREED_AT_ONCE = 10_000


def at_once(steps: Generator[None, None, T]) -> T:
    """The result, without a pause."""
    while True:
        try:
            next(steps)
        except StopIteration as ended:
            result: T = ended.value
            return result


async def with_pauses(steps: Generator[None, None, T], checkpoint: Callable[[], None] = lambda: None) -> T:
    """The result; the event loop does its other work every few steps. There are no threads on Cloudflare."""
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
    """Empty a long list in small steps: to free a million swaps takes most of a second."""
    while values:
        del values[-FREED_AT_ONCE:]
        await asyncio.sleep(0)


@contextmanager
def collector_paused() -> Iterator[None]:
    """No search for cycles: it would look at a million swaps again and again, seconds at a time, and find none."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
