"""Results that many requests need at the same time: each is computed once and kept."""

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class SharedResults(Generic[K, V]):
    """The newest results, by key.

    Where requests share a loop (`in_one_loop`), simultaneous requests wait for one computation. Elsewhere a request
    must not wait for work that another one began, so each computes its own.
    """

    def __init__(self, count_max: int, *, in_one_loop: bool) -> None:
        self._count_max = count_max
        self._in_one_loop = in_one_loop
        self._kept: dict[K, V] = {}
        self._computing: dict[K, asyncio.Task[V]] = {}
        self._forgotten = 0

    def get(self, key: K) -> V | None:
        return self._kept.get(key)

    def is_computing(self, key: K) -> bool:
        return key in self._computing

    def start(self, key: K, compute: Callable[[], Coroutine[Any, Any, V]]) -> None:
        """Compute a result for later requests. Only where requests share a loop."""
        self._task(key, compute)

    async def computed(self, key: K, compute: Callable[[], Coroutine[Any, Any, V]]) -> V:
        """A new result. Raises what `compute` raises."""
        if self._in_one_loop:
            return await asyncio.shield(self._task(key, compute))
        forgotten = self._forgotten
        value = await compute()
        if forgotten == self._forgotten:
            keep(self._kept, key, value, self._count_max)
        return value

    def forget(self) -> None:
        """Drop all results. Those being computed are outdated too: they may have missed the change."""
        self._forgotten += 1
        self._kept.clear()
        self._computing.clear()

    def _task(self, key: K, compute: Callable[[], Coroutine[Any, Any, V]]) -> "asyncio.Task[V]":
        task = self._computing.get(key)
        if task is None:
            task = self._computing[key] = asyncio.create_task(compute())
            task.add_done_callback(lambda done: self._ended(key, done))
        return task

    def _ended(self, key: K, task: "asyncio.Task[V]") -> None:
        """Keep the result, unless it has become outdated. An error is raised in the waiting requests."""
        failed = task.cancelled() or task.exception() is not None
        if self._computing.get(key) is task:
            del self._computing[key]
            if not failed:
                keep(self._kept, key, task.result(), self._count_max)


def keep(values: dict[K, V], key: K, value: V, count_max: int) -> None:
    """Add a value, and drop the oldest if there are too many."""
    values.pop(key, None)
    if len(values) >= count_max:
        del values[next(iter(values))]
    values[key] = value
