"""Objects in virtual time, for tests: days pass at once, alarms ring on demand, the process dies at any commit.

`holdfast.testing.plugin` gives pytest the fixture `objects`, which is a `VirtualObjects`. `docs/testing.md` shows it.
"""

import asyncio
import shutil
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, Self, cast

from holdfast.errors import HoldfastError
from holdfast.local.open_objects import OBJECTS_FILE, Objects, StandardLogger, open_directory
from holdfast.local.runtime import LocalNamespace, Runtime, Stub
from holdfast.testing.virtual_time import VirtualClock
from holdfast.types import DurableObject

_SETTLE_S = 0.0001  # after an instant: everything that is due at it has happened


class ArmedAlarm(NamedTuple):
    """An alarm that is set: of which object, when it rings next, and how many runs have failed."""

    binding: str
    name: str | None
    due_at: int
    retry_count: int


class VirtualObjects(Objects):
    """Objects on a directory of their own, in virtual time. Every class is bound when it is first used.

    The seed determines everything that is random, such as the wait before a retry.
    """

    def __init__(self, directory: Path, *, seed: int = 0, start: str = "2026-05-13T19:30Z") -> None:
        super().__init__()
        self.clock = VirtualClock(int(datetime.fromisoformat(start).timestamp() * 1000))
        self.random = Random(seed)  # noqa: S311 - it must be predictable
        self.now = self.clock.now  # objects see it as `self.ctx.now()`
        self._directory = directory
        self._classes: dict[str, type[DurableObject]] = {}
        self._make_runtime()

    async def __aenter__(self) -> Self:
        self._data = open_directory(self._directory, now=self.clock.now(), logger=self._runtime.logger)
        await self._runtime.open()
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self._runtime.close()
        self._data.close()

    def _make_runtime(self) -> None:
        file, logger = self._directory / OBJECTS_FILE, StandardLogger()
        self._runtime = Runtime(file, clock=self.clock, logger=logger, env=self, chance=self.random.random)
        for name, cls in self._classes.items():
            del self._namespaces[cls], vars(self)[name]
            self._bind(self._runtime, name, cls)

    def bind(self, **bindings: Any) -> None:  # noqa: ANN401 - whatever the objects expect
        """Add attributes to `self.env` of the objects. A class becomes a namespace."""
        for name, value in bindings.items():
            if isinstance(value, type) and issubclass(value, DurableObject):
                self._bind(self._runtime, name, value)
                self._classes[name] = value
            else:
                setattr(self, name, value)

    def namespace(self, cls: type[DurableObject]) -> LocalNamespace:
        if cls not in self._namespaces:
            self.bind(**{cls.__name__: cls})
        return super().namespace(cls)

    async def advance(self, **duration: float) -> None:
        """Let time pass: `days=1, minutes=5`, as for a timedelta. All that becomes due meanwhile happens, in order."""
        loop = asyncio.get_running_loop()
        until = int(loop.time() * 1000 + 1e-3) / 1000 + timedelta(**duration).total_seconds()
        await asyncio.sleep(until + _SETTLE_S - loop.time())

    def alarms(self) -> list[ArmedAlarm]:
        """All alarms that are set, the next one first."""
        stored = self._runtime.store.read_alarms()
        return [ArmedAlarm(owner.namespace, owner.name, alarm.due_at, alarm.retry_count) for owner, alarm in stored]

    async def ring(self, stub: DurableObject) -> bool:
        """Ring the object's alarm now, and wait until its handler has ended. False if no alarm is set."""
        owner = cast("Stub", stub).id
        alarm = self._runtime.store.read_alarm(owner.hex)
        if alarm is not None:
            self._runtime.alarms.set(owner, None)
            task = self._runtime.ring(owner, alarm)
            if task is not None:  # it does not ring already
                await task
        return alarm is not None

    async def evict(self, stub: DurableObject) -> None:
        """Drop the object from memory when its work is done, as after ten idle seconds."""
        await self._runtime.evict(cast("Stub", stub).id)

    async def restart(self) -> None:
        """Stop the process and start it again. Stubs from before no longer work: get new ones."""
        await self.__aexit__()
        self._make_runtime()
        await self.__aenter__()

    async def reset(self) -> None:
        """Remove all objects with their entries and alarms. The time stays."""
        await self.__aexit__()
        shutil.rmtree(self._directory)
        self._make_runtime()
        await self.__aenter__()

    @asynccontextmanager
    async def crash_at(self, *, commit: int, written: bool = False) -> AsyncIterator[list[int]]:
        """Kill the process at this commit of the block, counted from 1, and start it again after the block.

        Nothing of the commit is written, but what the code did before, such as a request, has happened. With
        `written`, the commit is the last thing that happens. Errors that follow from the crash do not leave the block.
        The list that the block gets is empty until the process is killed.
        """
        crash, runtime = list[int](), self._runtime
        fatal_step, left = "after commit" if written else "before commit", commit

        def crash_point(step: str, _connection: sqlite3.Connection) -> None:
            nonlocal left
            left -= step == fatal_step
            if step == fatal_step and left == 0:
                crash.append(commit)
                runtime.kill()
                raise OSError("the process was killed")

        runtime.store.crash_point = crash_point
        try:
            yield crash
        except HoldfastError:
            if not crash:
                raise
        finally:
            left = 0
        if crash:
            await self.restart()
