"""Runs of one task without a scheduler: a real `TaskContext` on bindings that a test chooses."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from holdfast.types import KV, Database
from holdfast_testing.stores import open_kv
from support.local_store import open_competition
from support.scripted_fetch import Handler
from support.upstreams import ROOMY, Wired, wired_tenero
from tocsin.scheduler.task import ContextBindings, Task, TaskContext, TaskResult
from tocsin.shape import FreeForm
from tocsin.upstream.budget import Quota
from tocsin.upstream.limiter import task_session

_COUNT = "INSERT INTO token_totals VALUES (?, 1) ON CONFLICT (token) DO UPDATE SET trades = trades + 1"


@dataclass
class TaskBench:
    """Stores, a Tenero client and a clock that outlive one run."""

    db: Database
    kv: KV
    wired: Wired
    progress: list[tuple[int, int, FreeForm]] = field(default_factory=list)  # every report: done, total, counters

    def context(self, task: Task, stop_after: int | None = None) -> TaskContext:
        """Return a context for one run; after this many checkpoints the next one stops it, like a pause."""
        checkpoints = count(1)

        def stop_reason() -> str | None:
            is_over = stop_after is not None and next(checkpoints) > stop_after
            return "the scheduler is paused" if is_over else None

        def on_progress(context: TaskContext) -> None:
            self.progress.append((context.done, context.total, dict(context.counters)))

        bindings = ContextBindings(self.wired.clock, {"tenero": self.wired.tenero}, self.db, self.kv)
        return TaskContext(
            bindings,
            task_session(self.wired.log),
            slice_ms=task.slice_ms,
            stop_reason=stop_reason,
            on_progress=on_progress,
        )

    async def run(self, task: Task) -> TaskResult:
        return await task.run(self.context(task))

    async def traded(self, *pairs: tuple[str, str]) -> None:
        """Count swaps, each of one token into another, as the competition's own table does."""
        await count_trades(self.db, *pairs)


async def count_trades(db: Database, *pairs: tuple[str, str]) -> None:
    await db.batch([db.prepare(_COUNT).bind(token) for pair in pairs for token in pair])


@asynccontextmanager
async def task_bench(directory: Path, handler: Handler, quota: Quota = ROOMY) -> AsyncIterator[TaskBench]:
    wired = wired_tenero(handler, quota)
    async with open_competition(directory) as db, open_kv(directory, wired.clock) as kv:
        yield TaskBench(db, kv, wired)
