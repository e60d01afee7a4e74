"""The board in KV: when tasks publish it, and what prices, time and thin tokens do to it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.local.kv import SqliteKV
from holdfast.testing.virtual_time import START_MS
from holdfast_testing.stores import open_kv
from stacks_simulator.tokens import STSTX, STX
from support.competition import World, chain_of, leaderboard, open_world, sweep
from support.history_rows import PlainSwap, add_swaps, add_traders, mark_excessive
from support.market import Market
from support.task_run import TaskBench, task_bench
from tocsin.board.board import KEY, BoardQuery, BoardReader, PublishedBoard, page_of
from tocsin.board.publish import board_task
from tocsin.board.types import BoardRow
from tocsin.prices.refresh import refresh_prices_task
from tocsin.prices.store import (
    CachedPrice,
    PricePoint,
    append,
    prices_of,
    put_token_price,
    tracked_tokens,
    traded_tokens,
)
from tocsin.scheduler.task import ContextBindings, TaskContext
from tocsin.settings import Settings
from tocsin.shape import FreeForm
from tocsin.upstream.limiter import task_session


def context_of(world: World, kv: SqliteKV) -> TaskContext:
    bindings = ContextBindings(world.clock, {"hiro": world.hiro}, world.db, kv)
    return TaskContext(bindings, task_session(world.log), slice_ms=600_000)


async def published(world: World, kv: SqliteKV) -> PublishedBoard:
    """The board after a run of its task."""
    await board_task(Settings(), world.rules).run(context_of(world, kv))
    board = await BoardReader(kv).read()
    assert board is not None
    return board


async def test_the_board_shows_what_the_database_has(tmp_path: Path) -> None:
    """Every order and page cut from it is the one that the database gives."""
    async with open_world(tmp_path, chain_of(7)) as world, open_kv(tmp_path, world.clock) as kv:
        chain = world.simulator.chain
        for number, wallet in enumerate(chain.wallets):
            chain.burst(wallet, number + 1)
        chain.mine()
        await sweep(world)
        board = await published(world, kv)
        prices = await prices_of(kv, tracked_tokens(await traded_tokens(world.db)), world.clock.now())
        for sort in ("trades", "volume", "pnl", "latest"):
            for direction in ("asc", "desc"):
                plain = [replace(row, sparkline=[]) for row in board.rows]
                page = page_of(plain, BoardQuery(sort, direction, 3))
                assert page == await leaderboard(world.db, prices, sort=sort, direction=direction, limit=3)
                rest = page_of(board.rows, BoardQuery(sort, direction, 9, page.next))
                assert len(page.rows + rest.rows) == 7

    assert sorted(row.trade_count for row in board.rows) == [1, 2, 3, 4, 5, 6, 7]
    assert [row.rank for row in board.rows] == [1, 2, 3, 4, 5, 6, 7]
    assert board.as_of == world.clock.now()
    assert {len(row.sparkline) for row in board.rows} == {29}


@pytest.mark.parametrize(
    ("task", "counters", "is_woken"),
    [
        ("tenero", {}, True),
        ("sweep", {"inserted": 0, "withdrawn": 0}, True),
        ("feed", {"inserted": 0, "withdrawn": 0}, False),
        ("feed", {"inserted": 1, "withdrawn": 0}, True),
        ("feed", {"inserted": 0, "withdrawn": 2}, True),
        ("rounds", {"added": 1}, False),
        ("board", {"agents": 7}, False),
    ],
)
def test_new_prices_and_swaps_wake_the_board(task: str, counters: FreeForm, is_woken: bool) -> None:
    """Also those of a run that was stopped."""
    assert board_task(Settings()).woken_by(task, counters) is is_woken


async def test_a_submitted_swap_is_valued_before_it_is_on_the_board(tmp_path: Path) -> None:
    """One unit for 10^38 is never shown as a gain, not even until the next task runs."""
    async with open_world(tmp_path, chain_of(1)) as world, open_kv(tmp_path, world.clock) as kv:
        chain, now = world.simulator.chain, world.clock.now()
        chain.swap(token_in=STX.id, token_out=STSTX.id, amount_in=1, amount_out=10**38)
        chain.mine()
        await sweep(world)
        for token in (STX, STSTX):
            await put_token_price(kv, token.id, CachedPrice(1.0, 6, now, liquidity_usd=250_000.0))
        points = [PricePoint(token.id, now - 1, "1", 6, "tenero", "250000", None) for token in (STX, STSTX)]
        await world.db.batch(append(world.db, points))
        board = await published(world, kv)

    assert [(row.pnl_usd, row.excess_trade_count) for row in board.rows] == [(None, 1)]


async def test_a_board_that_cannot_be_read_counts_as_none(tmp_path: Path) -> None:
    """Of another release, or damaged: then it is computed."""
    async with open_world(tmp_path) as world, open_kv(tmp_path, world.clock) as kv:
        for text in ("", "{", '{"rows": 1}', "[]"):
            await kv.put(KEY, text)
            assert await BoardReader(kv).read() is None


# What later prices, churning and thin tokens do to the board, by the real tasks

START_S = START_MS // 1000


HOUR_S = 3_600
HONEST, OTHER, THIRD = "SP1", "SP2", "SP3"
A = "SP2XD7417HGPRTREMKF748VNEQPDRR0RMANB7X1NK.token-a::a"
UNIT = 10**6
EVEN: dict[str, float | None] = {"stx": 1.0, A: 1.0}


@asynccontextmanager
async def competition(directory: Path, market: Market, *swaps: PlainSwap) -> AsyncIterator[TaskBench]:
    async with task_bench(directory, market) as bench:
        await add_traders(bench.db, [(HONEST, 1), (OTHER, 2), (THIRD, 3)])
        await add_swaps(bench.db, swaps)
        yield bench


async def refreshed(bench: TaskBench, settings: Settings | None = None, *, after_s: float = 0) -> PublishedBoard:
    """The board after a refresh of the prices."""
    await bench.wired.clock.sleep(after_s)
    for task in (refresh_prices_task, board_task):
        await bench.run(task(settings or Settings()))
    board = await BoardReader(bench.kv).read()
    assert board is not None
    return board


def bought(number: int, sender: str, stx: float, tokens: float, at_s: int = START_S) -> PlainSwap:
    """A swap of STX for A."""
    return PlainSwap(number, sender, "stx", int(stx * UNIT), A, int(tokens * UNIT), at_s)


def by_sender(board: PublishedBoard) -> dict[str, BoardRow]:
    return {row.stx_address: row for row in board.rows}


@pytest.mark.slow
async def test_a_price_after_the_end_changes_nothing(tmp_path: Path) -> None:
    """STX from 0.85 to 0.60 after the end: every rank and figure stays. Without an end the P&L would be +250."""
    market = Market([{"stx": 0.85, A: 0.85}])
    settings = Settings(competition_end=START_S + 2 * HOUR_S)
    async with competition(tmp_path, market, bought(1, HONEST, 1_000, 1_000)) as bench:
        for _ in range(24):
            await refreshed(bench, settings)
            await bench.wired.clock.sleep(300)
        last = await refreshed(bench, settings)
        boards = []
        for price in (0.60, 0.60, 0.60, 3.0):
            market.pages = [{"stx": price, A: 0.85}]
            boards.append(await refreshed(bench, settings))
            await bench.wired.clock.sleep(300)
        without_end = await refreshed(bench)

    assert [board.rows for board in boards] == [last.rows] * 4
    assert {(board.final, board.prices_as_of) for board in boards} == {(True, (START_S + 2 * HOUR_S) * 1000)}
    (row,) = last.rows
    assert (row.volume_usd, row.pnl_usd, row.pnl_at_trade_usd) == (850.0, 0.0, 0.0)
    assert not without_end.final
    assert without_end.rows[0].pnl_usd == pytest.approx(850 - 3_000)
    assert without_end.rows[0].pnl_at_trade_usd == 0.0  # of its own time, whatever comes later


@pytest.mark.slow
async def test_a_spike_at_the_end_changes_nothing(tmp_path: Path) -> None:
    """The prices of the end are those of its last hour, not of its last minutes."""
    market = Market([EVEN])
    settings = Settings(competition_end=START_S + 2 * HOUR_S)
    async with competition(tmp_path, market, bought(1, HONEST, 100, 100)) as bench:
        for number in range(25):
            market.pages = [{"stx": 1.0, A: 4.0 if number >= 20 else 1.0}]
            await refreshed(bench, settings)
            await bench.wired.clock.sleep(300)
        board = await refreshed(bench, settings)

    assert (board.final, board.rows[0].pnl_usd) == (True, 0.0)


@pytest.mark.parametrize(("seconds", "is_final"), [(-1, False), (0, True)])
async def test_the_board_is_final_from_the_end_on(tmp_path: Path, seconds: int, is_final: bool) -> None:
    market = Market([EVEN])
    async with competition(tmp_path, market, bought(1, HONEST, 100, 100)) as bench:
        points = [PricePoint("stx", (START_S - HOUR_S) * 1000, "1", 6, "tenero", "250000", "18000")]
        await bench.db.batch(append(bench.db, points))
        board = await refreshed(bench, Settings(competition_start=1, competition_end=START_S - seconds))

    assert board.final == is_final


async def test_pegs_alone_make_no_final_board(tmp_path: Path) -> None:
    """They are always in force. Without a price of the end that was recorded, the board stays at current prices."""
    usda = "SP2C2YFP12AJZB4MABJBAJ55XECVS7E4PMMZ89YZR.usda-token::usda"
    swap = PlainSwap(1, HONEST, "stx", UNIT, usda, 2 * UNIT, START_S - 9 * HOUR_S)
    async with competition(tmp_path, Market([{"stx": 1.0}]), swap) as bench:
        board = await refreshed(bench, Settings(competition_start=1, competition_end=START_S - 8 * HOUR_S))

    assert not board.final
    assert [row.pnl_usd for row in board.rows] == [1.0]


async def test_two_hundred_churning_swaps_are_not_first(tmp_path: Path) -> None:
    """By default an agent with one good trade ranks above one that traded back and forth all day."""
    there_and_back = (("stx", UNIT, A, UNIT), (A, UNIT, "stx", UNIT))
    churn = [PlainSwap(n, OTHER, *there_and_back[n % 2], START_S) for n in range(200)]
    async with competition(tmp_path, Market([EVEN]), *churn, bought(900, HONEST, 100, 101)) as bench:
        board = await refreshed(bench)

    assert [(row.stx_address, row.rank, row.trade_count) for row in board.rows] == [(HONEST, 1, 1), (OTHER, 2, 200)]
    assert by_sender(board)[HONEST].pnl_percent == pytest.approx(1.0)
    assert by_sender(board)[OTHER].capital_usd == 1.0  # went out and came back: the capital of one trade


@pytest.mark.parametrize("pool", [(4_000.0, 18_000.0), (250_000.0, 20.0), (None, 18_000.0)])
async def test_a_thin_token_does_not_count(tmp_path: Path, pool: tuple[float | None, float | None]) -> None:
    """$8.50 into a token quoted at four times its price, which nobody pays: no P&L, and the token is named as thin."""
    market = Market([{"stx": 0.85, A: 3.4}])
    market.pools = {A: pool}
    unpriced = PlainSwap(3, HONEST, "stx", 10 * UNIT, "stx.never::priced", 10, START_S)
    swaps = (bought(1, OTHER, 10, 10), bought(2, HONEST, 10, 10), unpriced)
    async with competition(tmp_path, market, *swaps) as bench:
        board = await refreshed(bench)
        deep = await refreshed(bench, Settings(min_liquidity_usd=0.0, min_day_volume_usd=0.0))

    row, other = by_sender(board)[OTHER], by_sender(board)[HONEST]
    assert (row.pnl_usd, row.pnl_percent, row.pnl_at_trade_usd, row.capital_usd) == (None,) * 4
    assert (row.thin_tokens, row.unpriced_tokens, row.valued_trade_count) == ([A], [], 0)
    assert (other.thin_tokens, other.unpriced_tokens) == ([A], ["stx.never::priced"])
    assert by_sender(deep)[OTHER].pnl_percent == pytest.approx(300.0)


async def test_a_swap_worth_more_than_its_pool_does_not_count(tmp_path: Path) -> None:
    """One unit for 10^39 of a token that its sender mints: no P&L, no capital, and not the first rank."""
    minted = [PlainSwap(number, sender, "stx", 1, A, 10**39, START_S) for number, sender in ((1, OTHER), (4, THIRD))]
    swaps = (bought(2, HONEST, 100, 101), bought(3, THIRD, 10, 10), *minted)
    async with competition(tmp_path, Market([EVEN]), *swaps) as bench:
        board = await refreshed(bench)

    assert [(row.stx_address, row.pnl_usd, row.capital_usd) for row in board.rows] == [
        (HONEST, 1.0, 100.0),
        (THIRD, 0.0, 10.0),
        (OTHER, None, None),
    ]
    assert [
        (row.trade_count, row.valued_trade_count, row.uncounted_trade_count, row.excess_trade_count)
        for row in board.rows
    ] == [(1, 1, 0, 0), (2, 1, 1, 1), (1, 0, 1, 1)]


async def test_an_excess_that_is_known_later_leaves_the_board(tmp_path: Path) -> None:
    """Until its price is known, a swap counts; then the capital is computed again without it."""
    swaps = (bought(1, HONEST, 7, 70, START_S - 3 * HOUR_S), bought(2, HONEST, 3, 3))
    async with competition(tmp_path, Market([EVEN]), *swaps) as bench:
        before = await refreshed(bench)
        await mark_excessive(bench.db, 1)
        after = await refreshed(bench, after_s=300)

    assert [(row.pnl_usd, row.capital_usd, row.excess_trade_count) for row in before.rows] == [(63.0, 10.0, 0)]
    assert [(row.pnl_usd, row.capital_usd, row.excess_trade_count) for row in after.rows] == [(0.0, 3.0, 1)]


async def test_a_jump_to_a_thin_price_is_never_believed(tmp_path: Path) -> None:
    """The token was worth $0.01 in a real pool; then its pool is emptied and it is quoted at $500, again and again."""
    market = Market([{"stx": 0.85, A: 0.01}])
    async with competition(tmp_path, market, bought(1, OTHER, 10, 850)) as bench:
        before = await refreshed(bench)
        market.pages = [{"stx": 0.85, A: 500.0}]
        market.pools = {A: (500.0, 1_000_000.0)}
        boards = [await refreshed(bench, after_s=300) for _ in range(4)]

    assert before.rows[0].pnl_usd == 0.0
    assert [(board.rows[0].pnl_usd, board.rows[0].thin_tokens) for board in boards] == [(0.0, []), *[(None, [A])] * 3]


async def test_values_at_the_time_of_the_trade_stay(tmp_path: Path) -> None:
    """The two P&Ls differ when prices move: one uses current prices, the other those at the time of the trade."""
    market = Market([EVEN])
    async with competition(tmp_path, market) as bench:
        await refreshed(bench)
        await add_swaps(bench.db, [bought(1, HONEST, 100, 110, START_S + 60)])
        at_first = await refreshed(bench, after_s=300)
        market.pages = [{"stx": 1.0, A: 0.5}]
        later = await refreshed(bench)

    (before,), (after,) = at_first.rows, later.rows
    assert (before.pnl_usd, before.pnl_at_trade_usd, before.valued_trade_count) == (10.0, 10.0, 1)
    assert (after.pnl_usd, after.pnl_at_trade_usd, after.pnl_percent) == (-45.0, 10.0, -45.0)
