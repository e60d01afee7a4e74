"""The composition: what the scheduler's object and the routes are given, on every platform.

`build` is the only place that makes them. A platform opens a `Platform`; the service, the Worker, the simulation, the
benchmarks and the tests build the application on it.

To add a task, add a line to `tasks`; see docs/tasks.md.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from holdfast.types import KV, Clock, Database, Logger
from tocsin.board.board import ROUND_KEY, BoardReader
from tocsin.board.history import snapshot_task
from tocsin.board.publish import board_task
from tocsin.fetch import Fetch
from tocsin.prices.refresh import refresh_prices_task
from tocsin.rounds.actions import round_jobs
from tocsin.rounds.task import feed_runs, rounds_task
from tocsin.scheduler.alerts import ProcessAlerts
from tocsin.scheduler.client import SchedulerClient
from tocsin.scheduler.config import SchedulerEnv
from tocsin.scheduler.health import HealthSnapshot
from tocsin.scheduler.task import RequestJob, Task
from tocsin.scheduler.watch import HealthWatch, ask_scheduler
from tocsin.settings import Settings
from tocsin.swaps.chainhook import watch_chainhook_tasks
from tocsin.swaps.feed import follow_network_tasks
from tocsin.swaps.rules import Rules, rules_of
from tocsin.swaps.submit import competition_jobs
from tocsin.swaps.sweep import sweep_task
from tocsin.upstream.client import Upstream
from tocsin.upstream.lookups import LookUps
from tocsin.upstream.registry import upstreams
from tocsin.web.app import WebApp
from tocsin.web.deps import InForce, Process, WebDeps


def tasks(settings: Settings) -> tuple[Task, ...]:
    """All tasks, configured by the settings."""
    return (
        refresh_prices_task(settings),
        *follow_network_tasks(settings),
        sweep_task(settings),
        board_task(settings),
        snapshot_task(settings),
        *watch_chainhook_tasks(settings),
        rounds_task(settings),
    )


def request_jobs(settings: Settings) -> Mapping[str, RequestJob]:
    """The request jobs, by name."""
    rules = rules_of(settings)
    return {**competition_jobs(rules), **round_jobs(rules, feed_runs=feed_runs(settings))}


def job_secrets(settings: Settings) -> Mapping[str, str]:
    """The keys that sign the calls of jobs. While one replaces another with its name, the first one signs."""
    return {key.name: key.secret for key in reversed(settings.job_secrets)}


@dataclass(frozen=True, slots=True)
class Parts:
    """The tasks, request jobs and upstreams of a scheduler, by its settings. A deployment may have its own."""

    tasks: Callable[[Settings], Sequence[Task]] = tasks
    request_jobs: Callable[[Settings], Mapping[str, RequestJob]] = request_jobs
    upstreams: Callable[[Settings], Mapping[str, Upstream]] = upstreams


@dataclass(frozen=True, slots=True)
class Configured:
    """What the settings give that a reload can replace."""

    settings: Settings
    rules: Rules
    tasks: Sequence[Task]
    request_jobs: Mapping[str, RequestJob]


@dataclass(frozen=True, slots=True, kw_only=True)
class Platform:
    """What the application runs on.

    `stub` makes a new stub of the scheduler's object with a name. `mask` removes the secrets from a text. `unusable`
    says why a store cannot be used at all.
    """

    clock: Clock
    fetch: Fetch
    logger: Logger
    db: Database
    kv: KV
    stub: Callable[[str], Any]
    mask: Callable[[str], str] = str
    random: Callable[[], float] = random.random
    unusable: str | None = None
    process: Process | None = None


class App:
    """The application on a platform. Its parts are made when they are first used: Cloudflare runs them apart."""

    def __init__(self, platform: Platform, settings: Settings, parts: Parts) -> None:
        self.platform = platform
        self._parts = parts
        self.in_force = InForce(settings, rules_of(settings))
        self._look_ups = LookUps()

    @property
    def settings(self) -> Settings:
        return self.in_force.settings

    def scheduler(self) -> SchedulerClient:
        """Make a client with a new stub: a stub no longer works after its object was reset."""
        return SchedulerClient(self.platform.stub(self.settings.instance))

    @cached_property
    def env(self) -> SchedulerEnv:
        """The environment of the scheduler's object."""
        platform, settings = self.platform, self.settings
        return SchedulerEnv(
            fetch=platform.fetch,
            clock=platform.clock,
            logger=platform.logger,
            random=platform.random,
            settings=settings,
            upstreams=self._parts.upstreams(settings),
            tasks=self._parts.tasks(settings),
            request_jobs=self._parts.request_jobs(settings),
            job_secrets=job_secrets(settings),
            DB=platform.db,
            KV=platform.kv,
            mask=platform.mask,
            look_ups=self._look_ups,
        )

    @cached_property
    def health(self) -> HealthWatch:
        """The watch over this process, whose results `/readyz` shows. The process runs it."""
        assert self.platform.process is not None
        return HealthWatch(
            self.scheduler,
            self.platform.kv,
            self.platform.clock,
            self.platform.process.check_files,
            ProcessAlerts(self.env).check,
        )

    @cached_property
    def deps(self) -> WebDeps:
        """What the routes are given."""
        platform, watched = self.platform, self.platform.process is not None
        return WebDeps(
            scheduler=self.scheduler,
            kv=platform.kv,
            db=platform.db,
            board=BoardReader(platform.kv),
            round_board=BoardReader(platform.kv, ROUND_KEY),
            clock=platform.clock,
            logger=platform.logger,
            in_force=self.in_force,
            health=self.health.snapshot if watched else self._ask_health,
            in_one_loop=watched,
            process=platform.process or Process(),
            look_ups=self._look_ups if watched else None,
        )

    def web(self, routes: Sequence[BaseRoute] = ()) -> ASGIApp:
        """Make the web application, with routes after those of the API."""
        return WebApp(self.deps, routes)

    def configured(self, settings: Settings) -> Configured:
        """Make what a reload replaces; raises if a setting is wrong."""
        return Configured(settings, rules_of(settings), self._parts.tasks(settings), self._parts.request_jobs(settings))

    async def apply(self, new: Configured) -> None:
        """Replace tasks, jobs, rules and keys: all of them, or none if the object refuses them."""
        env = self.env
        before = env.tasks, env.request_jobs, env.job_secrets
        env.tasks, env.request_jobs, env.job_secrets = new.tasks, new.request_jobs, job_secrets(new.settings)
        try:
            await self.scheduler().reload()
        except BaseException:
            env.tasks, env.request_jobs, env.job_secrets = before
            raise
        self.in_force.settings, self.in_force.rules = new.settings, new.rules

    async def _ask_health(self) -> HealthSnapshot:
        """Ask the scheduler itself, because there is no process to watch."""
        status, measures, error = await ask_scheduler(self.scheduler)
        return HealthSnapshot(None, self.platform.unusable, status, error, measures=measures)


def build(platform: Platform, settings: Settings, parts: Parts = Parts()) -> App:  # noqa: B008 - it is frozen
    """Build the application. `parts` are those of the service, unless a deployment has its own."""
    return App(platform, settings, parts)
