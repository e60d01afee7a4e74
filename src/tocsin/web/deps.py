"""What the routes need of the service around them."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from tocsin.bindings import JSON, KV, Clock, Database, Logger
from tocsin.competition.rules import Rules


class SchedulerStub(Protocol):
    """A stub of SchedulerDO."""

    async def arm(self) -> JSON:
        """See to it that the alarm is set; harmless at any time."""

    async def status(self) -> JSON: ...
    async def refresh_now(self, task: str) -> JSON: ...
    async def pause_until(self, at_ms: int) -> JSON: ...
    async def resume(self) -> JSON: ...

    async def runs(self, task: str | None, limit: int) -> JSON:
        """`{runs: [...]}`, newest first."""

    async def events(self, after: int, wait_ms: int) -> JSON:
        """`{events: [{seq, at, event, ...}], next}`: what came after, waiting for it if there is nothing."""

    async def perform(self, job: str, argument: JSON) -> JSON: ...


@dataclass(frozen=True, slots=True)
class Keys:
    """Secrets that callers must know. None: the routes behind it refuse."""

    admin: str | None = field(default=None, repr=False)
    cron: str | None = field(default=None, repr=False)
    chainhook: tuple[str, ...] = field(default=(), repr=False)  # none: refused


@dataclass(frozen=True, slots=True)
class HealthSnapshot:
    """How the process is, without waiting for anything: a wedged loop must not be able to hide.

    `reasons` are the scheduler's own: a task that is overdue, disabled, or sees only failures.
    """

    loop_tick_age_s: float | None  # None: there is no process of ours, hence no loop that could be stuck
    store_error: str | None
    alarm_at: int | None
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WebDeps:
    """Handed to every route. `scheduler` gives a new stub each time: a stub does not outlive its object."""

    scheduler: Callable[[], SchedulerStub]
    kv: KV
    db: Database
    clock: Clock
    logger: Logger
    keys: Keys
    rules: Rules
    health: Callable[[], Awaitable[HealthSnapshot]]
    version: str
    instance: str = "v1"
    runtime_metrics: Callable[[], Mapping[str, int]] | None = None  # None: the platform counts for itself
    posts_per_minute_max: int = 60  # of one client
    closing: asyncio.Event = field(default_factory=asyncio.Event)  # set it, and streams end
