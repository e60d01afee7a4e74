"""The board in KV: published when something changed, and what a visitor sees."""

from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.local.kv import SqliteKV
from holdfast.types import JSON
from holdfast_testing.stores import open_kv
from stacks_simulator.tokens import STSTX, STX
from support.competition import World, chain_of, leaderboard, open_world, sweep
from tocsin.board.board import board_query, page_of
from tocsin.board.publish import publishing, publishing_job
from tocsin.board.published import KEY, BoardReader
from tocsin.errors import RunStopped
from tocsin.prices.store import CachedPrice, PricePoint, append, prices_of, put_token_price
from tocsin.prices.tokens import tracked_tokens, traded_tokens
from tocsin.scheduler.task import ContextBindings, Task, TaskContext, TaskResult, WorkContext
from tocsin.settings import Settings
from tocsin.swaps.rules import rules_of
from tocsin.swaps.sweep import sweep_task
from tocsin.upstream.limiter import task_session


def context_of(world: World, kv: SqliteKV) -> TaskContext:
    bindings = ContextBindings(world.clock, {"hiro": world.hiro}, world.db, kv)
    return TaskContext(bindings, task_session(world.log), slice_ms=600_000)


def task_with(result: TaskResult | Exception) -> Task:
    async def run(_context: TaskContext) -> TaskResult:
        if isinstance(result, Exception):
            raise result
        return result

    return Task(name="feed", cadence_ms=60_000, slice_ms=50_000, run=run)


async def test_a_sweep_publishes_what_the_database_has(tmp_path: Path) -> None:
    """Every order and page cut from it is the one that the database gives."""
    async with open_world(tmp_path, chain_of(7)) as world, open_kv(tmp_path, world.clock) as kv:
        chain = world.simulator.chain
        for number, wallet in enumerate(chain.wallets):
            chain.burst(wallet, number + 1)
        chain.mine()
        task = publishing(sweep_task(Settings(), world.rules), world.rules, always=True)
        await task.run(context_of(world, kv))
        published = await BoardReader(kv).read()
        assert published is not None
        prices = await prices_of(kv, tracked_tokens(await traded_tokens(world.db)), world.clock.now())
        for sort in ("trades", "volume", "pnl", "latest"):
            for direction in ("asc", "desc"):
                plain = [replace(row, sparkline=[]) for row in published.rows]
                page = page_of(plain, board_query(sort, direction, 3))
                assert page == await leaderboard(world.db, prices, sort=sort, direction=direction, limit=3)
                rest = page_of(published.rows, board_query(sort, direction, 9, page.next))
                assert len(page.rows + rest.rows) == 7

    assert sorted(row.trade_count for row in published.rows) == [1, 2, 3, 4, 5, 6, 7]
    assert [row.rank for row in published.rows] == [1, 2, 3, 4, 5, 6, 7]
    assert published.as_of == world.clock.now()
    assert {len(row.sparkline) for row in published.rows} == {29}


@pytest.mark.parametrize(
    ("result", "published"),
    [
        (TaskResult({"inserted": 0, "withdrawn": 0}), False),
        (TaskResult({"inserted": 1, "withdrawn": 0}), True),
        (TaskResult({"inserted": 0, "withdrawn": 2}), True),
        (RunStopped("paused"), True),
    ],
)
async def test_a_run_without_a_change_publishes_nothing(
    tmp_path: Path, result: TaskResult | Exception, published: bool
) -> None:
    """One that was stopped may have recorded something."""
    async with open_world(tmp_path) as world, open_kv(tmp_path, world.clock) as kv:
        try:
            await publishing(task_with(result), world.rules, always=False).run(context_of(world, kv))
        except RunStopped:
            assert isinstance(result, RunStopped)
        text = await kv.get(KEY)

    assert (text is not None) is published


async def test_a_request_that_recorded_something_publishes(tmp_path: Path) -> None:
    """So an agent sees its own trade."""

    async def job(_context: WorkContext, argument: JSON) -> JSON:
        return argument

    async with open_world(tmp_path) as world, open_kv(tmp_path, world.clock) as kv:
        made = publishing_job(job, world.rules, lambda answer: answer == "new")
        await made(context_of(world, kv), "old")
        before = await kv.get(KEY)
        await made(context_of(world, kv), "new")
        after = await kv.get(KEY)

    assert before is None
    assert after is not None


async def test_a_submitted_swap_is_valued_before_it_is_on_the_board(tmp_path: Path) -> None:
    """One unit for 10^38 is never shown as a gain, not even until the next task runs."""

    async def job(_context: WorkContext, argument: JSON) -> JSON:
        return argument

    async with open_world(tmp_path, chain_of(1)) as world, open_kv(tmp_path, world.clock) as kv:
        chain, now = world.simulator.chain, world.clock.now()
        chain.swap(token_in=STX.id, token_out=STSTX.id, amount_in=1, amount_out=10**38)
        chain.mine()
        await sweep(world)
        for token in (STX, STSTX):
            await put_token_price(kv, token.id, CachedPrice(1.0, 6, now, liquidity_usd=250_000.0))
        points = [PricePoint(token.id, now - 1, "1", 6, "tenero", "250000", None) for token in (STX, STSTX)]
        await world.db.batch(append(world.db, points))
        made = publishing_job(job, world.rules, lambda _: True)
        await made(context_of(world, kv), None)
        board = await BoardReader(kv).read()

    assert board is not None
    assert [(row.pnl_usd, row.excess_trade_count) for row in board.rows] == [(None, 1)]


async def test_a_board_that_cannot_be_read_counts_as_none(tmp_path: Path) -> None:
    """Of another release, or damaged: then it is computed."""
    async with open_world(tmp_path) as world, open_kv(tmp_path, world.clock) as kv:
        for text in ("", "{", '{"rows": 1}', "[]"):
            await kv.put(KEY, text)
            assert await BoardReader(kv).read() is None


def test_tasks_keep_everything_else() -> None:
    """Only the run of a task is another."""
    task = sweep_task(Settings())

    assert replace(publishing(task, rules_of(Settings()), always=True), run=task.run) == task
