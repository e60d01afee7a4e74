"""One process of the real service, with simulated time, disk and upstreams."""

import os
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from holdfast.local.turns import output_gate
from holdfast.types import JSON, Level, Levels
from simulation.answers import RECEIVER_URL
from simulation.jobs import SITE_URL
from simulation.machine import SimulatedLoop
from support.simulated_fetch import HIRO_URL, TENERO_URL
from tocsin.app import Parts, tasks
from tocsin.commands.files import load_migrations
from tocsin.fetch import FetchResponse
from tocsin.logs import Redactor
from tocsin.scheduler.client import SchedulerClient
from tocsin.scheduler.scheduler_do import SchedulerDO
from tocsin.scheduler.task import Task
from tocsin.service import Machine, Service
from tocsin.settings import Settings

if TYPE_CHECKING:
    from simulation.history import History

BASE_URLS = {"hiro": HIRO_URL, "tenero": TENERO_URL}
LATENCY_S = (0.02, 0.3)
MIGRATIONS = load_migrations()


class ProcessLog(Levels):
    """A `Logger` that notifies the history as long as the process lives."""

    def __init__(self, process: "SimulatedProcess") -> None:
        self._process = process

    def _line(self, _level: Level, event: str, fields: dict[str, JSON]) -> None:
        if not self._process.disk.process_is_dead:
            try:
                self._process.history.logged(event, fields)
            except Exception as error:  # noqa: BLE001 - it must not reach the code that logs
                self._process.history.failed(error)


class Outlet:
    """A `Server` without a socket: clients of a history call the application itself."""

    url = "http://tocsin.test"
    app: ASGIApp

    async def start(self, app: ASGIApp, /) -> None:
        self.app = app

    async def stop(self) -> None:
        """Nothing is open."""

    def metrics(self) -> Mapping[str, float]:
        return {}


class SimulatedProcess(Service):
    """The service on a simulated machine. `lose` ends it as kill -9 does, `close` as SIGTERM does."""

    def __init__(self, history: "History", number: int) -> None:
        self.rng = Random(f"{history.plan.seed}:process:{number}")
        self.history = history
        self.clock = history.clock
        self.disk = history.disk
        self.is_open = False
        self._connections: list[sqlite3.Connection] = []
        self._files: list[int] = []
        self._outlet = Outlet()
        self.loop = SimulatedLoop(history.time, self.rng, history.disk)
        machine = Machine(
            clock=history.clock, fetch=self._fetch, logger=ProcessLog(self), redact=Redactor(), random=self.rng.random
        )
        settings = replace(history.settings, data_dir=str(history.directory))
        super().__init__(settings, machine, self._outlet, parts=Parts(self._tasks))

    @property
    def web(self) -> ASGIApp:
        return self._outlet.app

    async def open(self, pages: Sequence[BaseRoute] = (), simulator: str | None = None) -> None:
        await super().open(pages, simulator)
        self.is_open = True

    async def _open_stores(self) -> None:
        await super()._open_stores()
        self._files += [self._data._lock._fd, self._data._lock._directory_fd]
        threads = (self.db._reader, self.db._writer, self.kv._thread)
        self._connections += [*(thread._connection for thread in threads), self.kv._reader]

    async def _open_scheduler(self, simulator: str | None) -> None:
        await super()._open_scheduler(simulator)
        store, commits = self.runtime.store, []

        def at_step(step: str, connection: sqlite3.Connection) -> None:
            if step == "before commit":
                commits.append(self.disk.before("commit"))
                self.history.committing(connection)
            elif step == "after commit":
                self.disk.after(commits.pop())

        store.crash_point = at_step
        self._connections += [store._db, store._checkpointer]
        self._files.append(store._log_fd)

    def _tasks(self, settings: Settings) -> tuple[Task, ...]:
        """Return the tasks of the settings. Rounds are checked less often, so that days are cheap to simulate."""
        every_ms = int(self.history.plan.world.rounds_every_s * 1000)
        return tuple(replace(task, cadence_ms=every_ms) if task.name == "rounds" else task for task in tasks(settings))

    def instance(self, name: str) -> SchedulerClient:
        return SchedulerClient(self._stub(name))

    def effective_cadences(self) -> dict[str, int]:
        """Return the effective cadences of the scheduler's object; empty while it does not exist."""
        for live in self.runtime._live.values():
            scheduler = live._instance
            if isinstance(scheduler, SchedulerDO) and live.id.name == self.settings.instance:
                return {name: cadence.effective_ms for name, cadence in scheduler._cadences().items()}
        return {}

    async def reload(self, settings: Settings) -> None:
        """Apply the settings that a reload applies, as SIGHUP does."""
        self.settings = replace(settings, data_dir=self.settings.data_dir)
        await self.app.apply(self.app.configured(self.settings))

    async def _fetch(self, url: str, **options: Any) -> FetchResponse:
        await output_gate()
        if url.startswith(RECEIVER_URL):
            self.history.calling(url)
            return await self.history.outside.receiver.receive(url, **options)
        if url.startswith(SITE_URL):
            self.history.calling(url)
            return await self.history.site.receive(url, **options)
        self.history.fetching(url)
        fetch = self.history.outside.fetch
        fetch.latency_s = self.rng.uniform(*LATENCY_S)
        try:
            answer = await fetch(url, **options)
        except Exception as error:
            self.history.fetched(f"{url} {type(error).__name__}", 0, {})
            raise
        spoilt = self.history.outside.spoilt
        if spoilt.until_s > self.loop.time() and url.startswith(BASE_URLS[spoilt.upstream]):
            answer = spoilt.spoil(answer, url, self.rng)
        self.history.fetched(url, answer.status, answer.headers)
        return answer

    async def close(self) -> None:
        if not self.disk.process_is_dead:
            self.is_open = False
            await super().close()

    def lose(self) -> None:
        """Kill the process: none of its code runs any more, and the system closes its files."""
        self.is_open = False
        self.disk.process_is_dead = True
        self.clock.lose_process()
        self.loop.abandon()
        for connection in self._connections:
            with suppress(sqlite3.Error):
                connection.close()
        for file in self._files:
            with suppress(OSError):
                os.close(file)
