"""Tocsin as `tocsin.app.build` makes it: real stores, the scheduler's real object, and a simulated chain.

What a test cannot reach with settings and a platform, it changes with `with_deps`.
"""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, fields, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any, TypeVar

from holdfast.errors import ObjectReset
from holdfast.local.kv import SqliteKV
from holdfast.testing.virtual_time import VirtualClock
from holdfast.types import Clock, Database
from holdfast_testing.captured_log import CapturedLog
from holdfast_testing.stores import open_kv
from stacks_simulator.simulator import Simulator
from support import asgi
from support.asgi import Answer
from support.local_store import open_competition
from support.scheduler import Scheduler, store_entries
from support.simulated import quiet_simulator
from support.simulated_fetch import SimulatedFetch
from tocsin.app import App, Platform, build
from tocsin.fetch import Fetch
from tocsin.scheduler.client import SchedulerClient
from tocsin.settings import AccessKey, Role, Settings
from tocsin.upstream.budget import Quota
from tocsin.web.app import WebApp
from tocsin.web.deps import InForce, Process, WebDeps
from tocsin.web.pages import page_routes

T = TypeVar("T")
static_pages = cache(page_routes)  # the same files for every application

ADMIN_KEY = "adm1n-k3y-of-a-test"
CRON_SECRET = "cr0n-s3cret-of-a-test"
CHAINHOOK_SECRET = "ch41n-s3cret-of-a-test"
OLD_CHAINHOOK_SECRET = "0ld-s3cret-of-a-test"
VIEWER_KEY = "v13wer-k3y-of-a-test"


def named_keys(*secrets: str, name: str = "admin", role: Role = "operator") -> tuple[AccessKey, ...]:
    return tuple(AccessKey(name, role, secret) for secret in secrets)


SETTINGS = Settings(
    admin_key=named_keys(ADMIN_KEY, name="alice"),
    viewer_key=named_keys(VIEWER_KEY, name="carol", role="viewer"),
    cron_secret=named_keys(CRON_SECRET, name="cron", role="cron"),
    chainhook_secret=named_keys(CHAINHOOK_SECRET, OLD_CHAINHOOK_SECRET, name="chainhook", role="chainhook"),
)
KEY = {"x-admin-key": ADMIN_KEY}
VIEWER = {"x-admin-key": VIEWER_KEY}
JSON_TYPE = {"content-type": "application/json"}


class FailingStub:
    """In the place of an object that does not answer."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __getattr__(self, _method: str) -> Callable[..., Awaitable[Any]]:
        async def fail(*_arguments: object) -> None:
            raise self.error

        return fail


FAILING = FailingStub(ObjectReset("the object was reset"))


class Silent(VirtualClock):
    """Another clock of which no alarm rings: a task runs only when a test asks for it."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.now, self.monotonic, self.sleep = clock.now, clock.monotonic, clock.sleep  # type: ignore[method-assign]

    def open(self, bell: Callable[[], None]) -> None:
        """Leave the bell alone."""


@dataclass
class Tocsin:
    """The application in one process, and what is around it."""

    built: App
    db: Database
    kv: SqliteKV
    clock: Clock
    log: CapturedLog
    simulator: Simulator
    held: Scheduler | None  # the scheduler's object; None if a test put a stub in its place

    @cached_property
    def app(self) -> WebApp:
        """The web application with its pages, made by the first request."""
        return WebApp(self.deps, static_pages())

    @property
    def deps(self) -> WebDeps:
        return self.built.deps

    def with_deps(self, **changes: Any) -> WebApp:
        """Change what the routes are given; return a new web application."""
        self.built.deps = replace(self.deps, **changes)
        self.app = WebApp(self.deps, static_pages())
        return self.app

    def with_settings(self, **changes: Any) -> WebApp:
        return self.with_deps(in_force=InForce(replace(self.deps.settings, **changes), self.deps.rules))

    def extended(self, made: Callable[..., T], **more: Any) -> T:
        """Return the same Tocsin as a subclass that has these fields too."""
        return made(**{each.name: getattr(self, each.name) for each in fields(Tocsin)}, **more)

    def client(self) -> SchedulerClient:
        return self.built.scheduler()

    @property
    def scheduler(self) -> Scheduler:
        assert self.held is not None
        return self.held

    async def ask(self, target: str, **request: Any) -> Answer:
        """Send a request, as `support.asgi.ask` does."""
        return await asgi.ask(self.app, target, **request)

    async def get(self, target: str, **headers: str) -> Answer:
        return await self.ask(target, headers=headers)

    async def post(self, target: str, body: Any, headers: dict[str, str] | None = None) -> Answer:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await self.ask(target, method="POST", headers=headers or JSON_TYPE, body=data)

    async def act(self, query: str, key: str = ADMIN_KEY) -> Answer:
        """Send an operator's action."""
        return await self.ask(f"/api/admin/scheduler?{query}", method="POST", headers={"x-admin-key": key})

    async def submit(self, txid: str) -> Answer:
        return await self.post("/api/competition/trades", {"txid": txid})


def settings_of(simulator: Simulator, plan: Quota) -> dict[str, Any]:
    """The campaign of the chain, and these calls to Hiro."""
    return {
        "competition_start": simulator.chain.campaign.start_s,
        "competition_end": simulator.chain.campaign.end_s,
        "hiro_plan_second": plan.second,
        "hiro_plan_minute": plan.minute,
        "hiro_plan_month": plan.month,
        "hiro_plan_cap": plan.is_cap,
    }


@asynccontextmanager
async def tocsin_in(
    directory: Path,
    *,
    clock: Clock | None = None,
    simulator: Simulator | None = None,
    process: Process | None = None,
    fetch: Callable[[Simulator], Fetch] = SimulatedFetch,
    stub: object = None,
    db: Database | None = None,
    log: CapturedLog | None = None,
    stored: Mapping[str, Any] | None = None,
    arm: bool = False,
    **settings: Any,
) -> AsyncIterator[Tocsin]:
    """Open Tocsin on the data in a directory, in virtual time unless a clock is given. By other clocks no alarm rings.

    `stub` takes the place of the scheduler's object. `stored` has entries that the object finds in its storage. Without
    `arm`, no task runs by itself. `settings` replace some of `SETTINGS`.
    """
    clock = simulator.clock if simulator else clock or VirtualClock()
    simulator, log = simulator or quiet_simulator(clock), log or CapturedLog()
    async with AsyncExitStack() as stack:
        if db is None:
            db = await stack.enter_async_context(open_competition(directory))
        kv = await stack.enter_async_context(open_kv(directory, clock))
        platform = Platform(
            clock=clock,
            fetch=fetch(simulator),
            logger=log,
            db=db,
            kv=kv,
            stub=lambda name: stub or made.scheduler.stub(name),
            random=lambda: 0.5,
            process=process,
        )
        built = build(platform, replace(SETTINGS, **settings))
        made = Tocsin(built, db, kv, clock, log, simulator, None)
        if stub is None:
            alarm_clock = clock if isinstance(clock, VirtualClock) else Silent(clock)
            if stored is not None:
                await store_entries(directory, alarm_clock, stored)
            made.held = Scheduler(directory, built.env, alarm_clock, log)
            await made.held.runtime.open()
            stack.push_async_callback(made.held.runtime.close)
        if arm:
            await built.scheduler().arm()
        yield made
