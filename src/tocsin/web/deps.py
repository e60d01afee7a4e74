"""What the routes are given."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from holdfast.types import KV, Clock, Database, Logger
from tocsin.board.board import BoardReader, PublishedBoard
from tocsin.board.publish import board_at
from tocsin.scheduler.client import SchedulerClient
from tocsin.scheduler.health import HealthSnapshot
from tocsin.scheduler.types import Reloaded
from tocsin.settings import AccessKey, LookupPath, Settings
from tocsin.swaps.rules import Rules
from tocsin.upstream.lookups import LookUps


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys that callers must send. Routes whose key is not set refuse every request."""

    admin: tuple[AccessKey, ...] = ()  # of operators and of viewers
    cron: tuple[AccessKey, ...] = ()
    chainhook: tuple[AccessKey, ...] = ()
    lookup: tuple[AccessKey, ...] = ()


def keys_of(settings: Settings) -> Keys:
    admin = (*settings.admin_key, *settings.viewer_key)
    return Keys(admin, settings.cron_secret, settings.chainhook_secret, settings.lookup_key)


@dataclass(slots=True)
class InForce:
    """The parts that a reload replaces while the service runs."""

    keys: Keys
    rules: Rules


@dataclass(frozen=True, slots=True, kw_only=True)
class WebDeps:
    """Given to every route. `scheduler` makes a new client each time: a stub does not outlive its object."""

    scheduler: Callable[[], SchedulerClient]
    kv: KV
    db: Database
    board: BoardReader
    round_board: BoardReader
    clock: Clock
    logger: Logger
    in_force: InForce
    health: Callable[[], Awaitable[HealthSnapshot]]
    version: str
    instance: str = "v1"
    runtime_metrics: Callable[[], Mapping[str, float]] | None = None  # None: the platform has its own metrics
    posts_per_minute_max: int = 60  # of one client
    reads_per_minute_max: int = 300  # of one client; 0: no limit
    store_fault: Callable[[], str | None] = lambda: None  # why nothing may be written at the moment
    public_url: str | None = None  # where visitors reach the service, without a slash at the end
    origins: tuple[str, ...] = ("*",)  # other sites whose pages may read the public API
    compress: bool = False  # Cloudflare compresses responses itself
    simulator: str | None = None  # the path of a demo's simulator
    in_one_loop: bool = False  # all requests share one event loop, so one may wait for another's work
    reload: Callable[[], Awaitable[Reloaded]] | None = None  # None: the platform gives settings to a new deployment
    lookup_paths: tuple[LookupPath, ...] = ()
    look_ups: LookUps | None = None  # None: the object has the answers, and runs elsewhere
    closing: asyncio.Event = field(default_factory=asyncio.Event)  # when it is set, streams end

    @property
    def keys(self) -> Keys:
        return self.in_force.keys

    @property
    def rules(self) -> Rules:
        return self.in_force.rules

    async def newest_board(self) -> PublishedBoard:
        """The board that the object published; computed here only until it has published one."""
        return await self.board.read() or await board_at(self.db, self.kv, self.clock.now(), self.rules)
