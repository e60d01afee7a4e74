"""Both platforms: the objects of the contract by name, and one scheduler."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import contract.suite
from cloudflare.tasks_under_test import tasks
from contract.suite import LocalWorld, World
from holdfast.local.runtime import Runtime
from holdfast.testing.virtual_time import VirtualClock
from holdfast.types import JSON
from holdfast_testing.captured_log import CapturedLog
from holdfast_testing.stores import make_objects_file, open_kv
from stacks_simulator.simulator import Simulator
from support.local_store import open_competition
from support.simulated import quiet_simulator
from support.simulated_fetch import HIRO_URL, TENERO_URL, SimulatedFetch
from support.workerd import Workerd
from tocsin import app
from tocsin.scheduler.scheduler_do import SchedulerDO
from tocsin.settings import AccessKey, Settings


class Platform(contract.suite.Platform, Protocol):
    """One of the two platforms."""

    def scheduler(self) -> AbstractAsyncContextManager[World]: ...


class LocalPlatform(contract.suite.LocalPlatform):
    """Our own runtime, in process and in virtual time."""

    @asynccontextmanager
    async def scheduler(self) -> AsyncIterator[World]:
        async with open_scheduler(self.directory, quiet_simulator(VirtualClock())) as made:
            yield LocalWorld(made.namespace)


@dataclass(frozen=True)
class LocalScheduler:
    """The scheduler of the local platform, and its application."""

    namespace: Any
    app: app.App


@asynccontextmanager
async def open_scheduler(
    directory: Path, simulator: Simulator, cls: type[SchedulerDO] = SchedulerDO, admin_key: tuple[AccessKey, ...] = ()
) -> AsyncIterator[LocalScheduler]:
    """In virtual time, with the tasks that the Worker under test has."""
    clock, log = simulator.clock, CapturedLog()
    assert isinstance(clock, VirtualClock)
    settings = Settings(hiro_api_url=HIRO_URL, tenero_api_url=TENERO_URL, admin_key=admin_key)
    async with open_competition(directory) as database, open_kv(directory, clock) as kv:
        platform = app.Platform(
            clock=clock,
            fetch=SimulatedFetch(simulator),
            logger=log,
            db=database,
            kv=kv,
            stub=lambda name: namespace.get_by_name(name),  # noqa: PLW0108 - it is made below
            random=lambda: 0.5,
        )
        made = app.build(platform, settings, app.Parts(tasks))
        runtime = Runtime(make_objects_file(directory), clock=clock, logger=log, env=made.env, idle_s=None)
        namespace = runtime.namespace("SCHEDULER", cls)
        await runtime.open()
        try:
            yield LocalScheduler(namespace, made)
        finally:
            await runtime.close()


class _Remote:
    def __init__(self, workerd: Workerd, namespace: str, suffix: str) -> None:
        self._workerd = workerd
        self._namespace = namespace
        self._suffix = suffix

    async def call(self, name: str, method: str, *arguments: JSON) -> Any:
        # This blocks the loop of virtual time, where nothing else runs.
        return self._workerd.call(self._namespace, name + self._suffix, method, *arguments)


class WorkerdPlatform:
    """The real runtime, in real time. All tests of a session share it, so each has its own objects."""

    rounds_numbers = True

    def __init__(self, workerd: Workerd, test: str) -> None:
        self._workerd = workerd
        self._test = test

    @asynccontextmanager
    async def contract(self) -> AsyncIterator[World]:
        yield _Remote(self._workerd, "CONTRACT", f" of {self._test}")

    @asynccontextmanager
    async def scheduler(self) -> AsyncIterator[World]:
        yield _Remote(self._workerd, "SCHEDULER", "")
