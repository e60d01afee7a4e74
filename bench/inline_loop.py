"""Virtual time in which the work of threads is done on the loop: a busy machine then costs no waiting for them."""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import Any, TypeVar

from support.virtual_time import VirtualLoop

T = TypeVar("T")


class InlineLoop(VirtualLoop):
    """Time stands still while a thread works, so nothing can be seen of the difference but the order within it."""

    def run_in_executor(  # type: ignore[override]  # the stub's generics are narrower than we need
        self, _executor: Executor | None, func: Callable[..., T], *args: Any
    ) -> "asyncio.Future[T]":
        future: asyncio.Future[T] = self.create_future()
        self.call_soon(_settle, future, func, args)
        return future


def _settle(future: "asyncio.Future[T]", func: Callable[..., T], args: tuple[Any, ...]) -> None:
    if future.cancelled():
        return
    try:
        future.set_result(func(*args))
    except Exception as error:  # noqa: BLE001 - it belongs to the caller that waits
        future.set_exception(error)


def run_inline(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end in virtual time, without threads."""
    with asyncio.Runner(loop_factory=InlineLoop) as runner:
        return runner.run(main)
