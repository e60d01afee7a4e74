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
from tocsin.scheduler.watch import FileProblem
from tocsin.settings import Settings
from tocsin.swaps.rules import Rules
from tocsin.upstream.lookups import LookUps


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """What a platform adds that is one long-lived process. Cloudflare's is not."""

    check_files: Callable[[], FileProblem | None] = lambda: None
    metrics: Callable[[], Mapping[str, float]] = dict
    reload: Callable[[], Awaitable[Reloaded]] | None = None  # None: settings are those of the deployment
    compress: bool = False  # a proxy or Cloudflare may compress responses itself
    simulator: str | None = None  # the path of a demo's simulator


@dataclass(slots=True)
class InForce:
    """What a reload replaces while the service runs."""

    settings: Settings
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
    process: Process = Process()
    posts_per_minute_max: int = 60  # of one client
    in_one_loop: bool = False  # all requests share one event loop, so one may wait for another's work
    look_ups: LookUps | None = None  # None: the object has the answers, and runs elsewhere
    closing: asyncio.Event = field(default_factory=asyncio.Event)  # when it is set, streams end

    @property
    def settings(self) -> Settings:
        return self.in_force.settings

    @property
    def rules(self) -> Rules:
        return self.in_force.rules

    async def newest_board(self) -> PublishedBoard:
        """The board that the object published; computed here only until it has published one."""
        return await self.board.read() or await board_at(self.db, self.kv, self.clock.now(), self.rules)
