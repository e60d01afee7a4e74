"""A run of one task, as the scheduler would start it, on bindings that a test chooses."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.captured_log import CapturedLog
from support.local_store import open_database, open_kv
from support.scripted_fetch import Handler
from support.upstreams import ROOMY, Wired, wired_tenero
from support.virtual_time import VirtualClock
from tocsin.bindings import JSON, KV, Database
from tocsin.errors import RunStopped
from tocsin.scheduler.budget import Plan
from tocsin.scheduler.task import Outcome, Task
from tocsin.upstream.errand import Errand, task_errand
from tocsin.upstream.hiro import HiroClient
from tocsin.upstream.tenero import TeneroClient

SWAPS = """
CREATE TABLE swaps (
  txid TEXT PRIMARY KEY, token_in TEXT, token_out TEXT, tx_status TEXT NOT NULL, source TEXT NOT NULL
)"""


@dataclass
class RunContext:
    """A `TaskContext`. `stop_after` checkpoints it ends the run, as a pause does."""

    db: Database
    kv: KV
    wired: Wired
    started_at: int
    errand: Errand
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
            task_errand(self.wired.log),
            clock.monotonic() + task.slice_ms / 1000,
            stop_after,
        )

    async def run(self, task: Task) -> Outcome:
        return await task.run(self.context(task))

    async def traded(self, *pairs: tuple[str, str], status: str = "success", source: str = "agent") -> None:
        """Store swaps, each of one token into another."""
        first = (await self.db.prepare("SELECT COUNT(*) AS n FROM swaps").all()).results[0]["n"]
        insert = self.db.prepare("INSERT INTO swaps VALUES (?, ?, ?, ?, ?)")
        rows: list[Any] = [
            insert.bind(f"0x{first + n}", token_in, token_out, status, source)
            for n, (token_in, token_out) in enumerate(pairs)
        ]
        await self.db.batch(rows)


@asynccontextmanager
async def task_bench(directory: Path, handler: Handler, plan: Plan = ROOMY) -> AsyncIterator[Bench]:
    wired = wired_tenero(handler, plan)
    async with open_database(directory, SWAPS) as db, open_kv(directory, wired.clock) as kv:
        yield Bench(db, kv, wired)
