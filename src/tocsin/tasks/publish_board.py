"""Publishes the board after a run or a request that may have changed it."""

from collections.abc import Callable
from dataclasses import replace

from tocsin.bindings import JSON, KV, Database
from tocsin.competition.board import all_rows
from tocsin.competition.published_board import PublishedBoard, publish
from tocsin.competition.totals import traded_tokens
from tocsin.errors import RunStopped
from tocsin.prices.pricing import prices_of
from tocsin.prices.tracked_tokens import tracked_tokens
from tocsin.scheduler.task import RequestJob, Task, TaskResult
from tocsin.scheduler.work_context import TaskContext, WorkContext

CHANGES = ("inserted", "withdrawn")  # counters of swaps that came or went


async def board_at(db: Database, kv: KV, now: int) -> PublishedBoard:
    """The board at the cached prices."""
    prices = await prices_of(kv, tracked_tokens(await traded_tokens(db)), now)
    fetched = [price.fetched_at for price in prices.values() if price.fetched_at is not None]
    return PublishedBoard(await all_rows(db, prices), now, max(fetched, default=None))


async def publish_board(context: WorkContext) -> None:
    await publish(context.kv, await board_at(context.db, context.kv, context.clock.now()))


def publishing(task: Task, *, always: bool) -> Task:
    """The task, which publishes the board after each run, or after those that recorded or withdrew a swap."""

    async def run(context: TaskContext) -> TaskResult:
        try:
            result = await task.run(context)
        except RunStopped:
            await publish_board(context)
            raise
        if always or any(result.counters.get(name) for name in CHANGES):
            await publish_board(context)
        return result

    return replace(task, run=run)


def publishing_job(job: RequestJob, changed: Callable[[JSON], bool]) -> RequestJob:
    """The job, which publishes the board when its answer says that something changed."""

    async def run(context: WorkContext, argument: JSON) -> JSON:
        answer = await job(context, argument)
        if changed(answer):
            await publish_board(context)
        return answer

    return run
