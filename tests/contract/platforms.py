"""Both platforms for the contract suite: objects by name, and one scheduler."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from cloudflare.tasks_under_test import tasks
from contract.cases import CASES
from contract.contract_do import ContractDO
from holdfast.local.runtime import Runtime
from holdfast.types import JSON
from stacks_simulator.simulator import Simulator
from support.captured_log import CapturedLog
from support.local_store import make_objects_file, open_competition, open_database, open_kv
from support.objects import objects
from support.simulated import quiet_simulator
from support.simulated_fetch import HIRO_URL, TENERO_URL, SimulatedFetch
from support.virtual_time import VirtualClock
from support.workerd import Workerd
from tocsin import app
from tocsin.scheduler.scheduler_do import SchedulerDO
from tocsin.settings import AccessKey, Settings


class World(Protocol):
    """Gives access to the objects of a test."""

    async def call(self, name: str, method: str, *arguments: JSON) -> Any: ...


class Platform(Protocol):
    """One of the two platforms."""

    def contract(self) -> Any:
        """A context manager that gives a World of ContractDO."""

    def scheduler(self) -> Any:
        """A context manager that gives a World of SchedulerDO."""


class _Local:
    def __init__(self, namespace: Any) -> None:
        self._namespace = namespace

    async def call(self, name: str, method: str, *arguments: JSON) -> Any:
        return await getattr(self._namespace.get_by_name(name), method)(*arguments)


class LocalPlatform:
    """Our own runtime, in process and in virtual time."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    @asynccontextmanager
    async def contract(self) -> AsyncIterator[World]:
        clock = VirtualClock()
        async with (
            open_database(self._directory) as database,
            open_kv(self._directory, clock) as kv,
            objects(self._directory, ContractDO, clock=clock) as made,
        ):
            made.env.clock, made.env.cases, made.env.DB, made.env.KV = clock, CASES, database, kv
            yield _Local(made.namespace)

    @asynccontextmanager
    async def scheduler(self) -> AsyncIterator[World]:
        async with open_scheduler(self._directory, quiet_simulator(VirtualClock())) as made:
            yield _Local(made.namespace)


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
        runtime = Runtime(make_objects_file(directory), clock=clock, logger=log, env=made.env)
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

    def __init__(self, workerd: Workerd, test: str) -> None:
        self._workerd = workerd
        self._test = test

    @asynccontextmanager
    async def contract(self) -> AsyncIterator[World]:
        yield _Remote(self._workerd, "CONTRACT", f" of {self._test}")

    @asynccontextmanager
    async def scheduler(self) -> AsyncIterator[World]:
        yield _Remote(self._workerd, "SCHEDULER", "")
