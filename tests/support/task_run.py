"""A run of one task, as the scheduler would start it, on bindings that a test chooses."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from support.captured_log import CapturedLog
from support.local_store import open_database, open_kv
from support.scripted_fetch import Handler
from support.upstreams import ROOMY, Wired, wired_tenero
from support.virtual_time import VirtualClock
from tocsin.bindings import JSON, KV, Database
from tocsin.budget.budget import Quota
from tocsin.budget.call_session import CallSession, task_session
from tocsin.errors import RunStopped
from tocsin.scheduler.task import Outcome, Task
from tocsin.upstream.hiro import HiroClient
from tocsin.upstream.tenero import TeneroClient

TRADED = "CREATE TABLE token_totals (token TEXT PRIMARY KEY NOT NULL, trades INTEGER NOT NULL) WITHOUT ROWID"
_COUNT = "INSERT INTO token_totals VALUES (?, 1) ON CONFLICT (token) DO UPDATE SET trades = trades + 1"


@dataclass
class RunContext:
    """A `TaskContext`. `stop_after` checkpoints it ends the run, as a pause does."""

    db: Database
    kv: KV
    wired: Wired
    started_at: int
    session: CallSession
    ends: float
    stop_after: int | None = None
    checkpoints: int = 0
    shown: list[tuple[int, int, dict[str, JSON]]] = field(default_factory=list)

    @property
    def hiro(self) -> HiroClient:
        return self.wired.hiro

    @property
    def tenero(self) -> TeneroClient:
        return self.wired.tenero

    @property
    def clock(self) -> VirtualClock:
        return self.wired.clock

    @property
    def logger(self) -> CapturedLog:
        return self.wired.log

    def time_left_s(self) -> float:
        return self.ends - self.clock.monotonic()

    def progress(self, done: int, total: int, /, **counters: JSON) -> None:
        self.shown.append((done, total, counters))

    def checkpoint(self) -> None:
        self.checkpoints += 1
        if self.stop_after is not None and self.checkpoints > self.stop_after:
            raise RunStopped("paused")


@dataclass
class Bench:
    """Stores, a wire and a clock that live longer than one run."""

    db: Database
    kv: KV
    wired: Wired

    def context(self, task: Task, stop_after: int | None = None) -> RunContext:
        clock = self.wired.clock
        return RunContext(
            self.db,
            self.kv,
            self.wired,
            clock.now(),
            task_session(self.wired.log),
            clock.monotonic() + task.slice_ms / 1000,
            stop_after,
        )

    async def run(self, task: Task) -> Outcome:
        return await task.run(self.context(task))

    async def traded(self, *pairs: tuple[str, str]) -> None:
        """Count swaps, each of one token into another, as the competition's own table does."""
        await count_trades(self.db, *pairs)


async def count_trades(db: Database, *pairs: tuple[str, str]) -> None:
    await db.batch([db.prepare(_COUNT).bind(token) for pair in pairs for token in pair])


@asynccontextmanager
async def task_bench(directory: Path, handler: Handler, plan: Quota = ROOMY) -> AsyncIterator[Bench]:
    wired = wired_tenero(handler, plan)
    async with open_database(directory, TRADED) as db, open_kv(directory, wired.clock) as kv:
        yield Bench(db, kv, wired)
