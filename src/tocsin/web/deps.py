"""What the routes need of the service around them."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from tocsin.bindings import KV, Clock, Database, Logger
from tocsin.competition.rules import Rules
from tocsin.scheduler.scheduler_client import SchedulerClient
from tocsin.scheduler.service_health import HealthSnapshot


@dataclass(frozen=True, slots=True)
class Keys:
    """Secrets that callers must know. Without one the routes behind it refuse."""

    admin: str | None = field(default=None, repr=False)
    cron: str | None = field(default=None, repr=False)
    chainhook: tuple[str, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class WebDeps:
    """Given to every route. `scheduler` makes a new client each time: a stub does not outlive its object."""

    scheduler: Callable[[], SchedulerClient]
    kv: KV
    db: Database
    clock: Clock
    logger: Logger
    keys: Keys
    rules: Rules
    health: Callable[[], Awaitable[HealthSnapshot]]
    version: str
    instance: str = "v1"
    runtime_metrics: Callable[[], Mapping[str, float]] | None = None  # None: the platform counts for itself
    posts_per_minute_max: int = 60  # of one client
    reads_per_minute_max: int = 300  # of one client; 0: no limit
    store_fault: Callable[[], str | None] = lambda: None  # why nothing may be written at the moment
    in_one_loop: bool = False  # all requests share one event loop, so one may wait for what another began
    closing: asyncio.Event = field(default_factory=asyncio.Event)  # when it is set, streams end
