"""A runtime in virtual time with one class of objects, such as a plain register."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from holdfast.local.runtime import LocalNamespace, Runtime
from holdfast.testing.virtual_time import VirtualClock
from holdfast.types import DurableObject
from holdfast_testing.captured_log import CapturedLog
from holdfast_testing.stores import make_objects_file


class Register(DurableObject):
    """Writes and reads entries."""

    async def put(self, key: str, value: Any) -> None:
        await self.ctx.storage.put(key, value)

    async def get(self, key: str) -> Any:
        return await self.ctx.storage.get(key)

    async def all(self) -> Any:
        return await self.ctx.storage.list()


class Objects:
    """The runtime, its clock and log, and stubs by name."""

    def __init__(self, directory: Path, cls: type[DurableObject], clock: VirtualClock | None, **options: Any) -> None:
        self.clock = clock or VirtualClock()
        self.log = CapturedLog()
        self.env = SimpleNamespace(now=self.clock.now)
        self.runtime = Runtime(make_objects_file(directory), clock=self.clock, logger=self.log, env=self.env, **options)
        self.namespace: LocalNamespace = self.runtime.namespace("TEST", cls)
        self.env.TEST = self.namespace

    def stub(self, name: str = "x") -> Any:
        return self.namespace.get_by_name(name)


@asynccontextmanager
async def objects(
    directory: Path,
    cls: type[DurableObject],
    *,
    clock: VirtualClock | None = None,
    on_exhausted: Callable[..., Awaitable[None]] | None = None,
    chance: Callable[[], float] = lambda: 0.5,
) -> AsyncIterator[Objects]:
    made = Objects(directory, cls, clock, on_exhausted=on_exhausted, chance=chance)
    await made.runtime.open()
    try:
        yield made
    finally:
        await made.runtime.close()
