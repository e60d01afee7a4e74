"""The board and time: what later prices, churning and thin tokens do to it, by the real tasks."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from holdfast_testing.virtual_time import START_MS
from support.history_rows import PlainSwap, add_swaps, add_traders
from support.market import Market
from support.task_run import TaskBench, task_bench
from tocsin.app import tasks
from tocsin.board.published import BoardReader, PublishedBoard
from tocsin.board.types import BoardRow
from tocsin.prices.store import PricePoint, append
from tocsin.settings import Settings

START_S = START_MS // 1000
HOUR_S = 3_600
HONEST, OTHER, THIRD = "SP1", "SP2", "SP3"
A = "SP2XD7417HGPRTREMKF748VNEQPDRR0RMANB7X1NK.token-a::a"
UNIT = 10**6


@asynccontextmanager
async def competition(directory: Path, market: Market) -> AsyncIterator[TaskBench]:
    async with task_bench(directory, market) as bench:
        await add_traders(bench.db, [(HONEST, 1), (OTHER, 2), (THIRD, 3)])
        yield bench


async def refreshed(bench: TaskBench, settings: Settings | None = None) -> PublishedBoard:
    """The board after a run of the price task."""
    settings = settings or Settings()
    await bench.run(tasks(settings)[0])
    board = await BoardReader(bench.kv).read()
    assert board is not None
    return board


def by_sender(board: PublishedBoard) -> dict[str, BoardRow]:
    return {row.stx_address: row for row in board.rows}


@pytest.mark.slow
async def test_a_price_after_the_end_changes_nothing(tmp_path: Path) -> None:
    """STX from 0.85 to 0.60 after the end: every rank and figure stays. Without an end the P&L would be +250."""
    market = Market([{"stx": 0.85, A: 0.85}])
    settings = Settings(competition_end=START_S + 2 * HOUR_S)
    async with competition(tmp_path, market) as bench:
        swaps = [PlainSwap(1, HONEST, "stx", 1_000 * UNIT, A, 1_000 * UNIT, START_S)]
        await add_swaps(bench.db, swaps)
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
    market = Market([{"stx": 1.0, A: 1.0}])
    settings = Settings(competition_end=START_S + 2 * HOUR_S)
    async with competition(tmp_path, market) as bench:
        await add_swaps(bench.db, [PlainSwap(1, HONEST, "stx", 100 * UNIT, A, 100 * UNIT, START_S)])
        for number in range(25):
            market.pages = [{"stx": 1.0, A: 4.0 if number >= 20 else 1.0}]
            await refreshed(bench, settings)
            await bench.wired.clock.sleep(300)
        board = await refreshed(bench, settings)

    assert (board.final, board.rows[0].pnl_usd) == (True, 0.0)


@pytest.mark.parametrize(("seconds", "is_final"), [(-1, False), (0, True)])
async def test_the_board_is_final_from_the_end_on(tmp_path: Path, seconds: int, is_final: bool) -> None:
    market = Market([{"stx": 1.0, A: 1.0}])
    async with competition(tmp_path, market) as bench:
        await add_swaps(bench.db, [PlainSwap(1, HONEST, "stx", 100 * UNIT, A, 100 * UNIT, START_S)])
        points = [PricePoint("stx", (START_S - HOUR_S) * 1000, "1", 6, "tenero", "250000", "18000")]
        await bench.db.batch(append(bench.db, points))
        board = await refreshed(bench, Settings(competition_start=1, competition_end=START_S - seconds))

    assert board.final == is_final


async def test_pegs_alone_make_no_final_board(tmp_path: Path) -> None:
    """They are always in force. Without a price of the end that was recorded, the board stays at current prices."""
    usda = "SP2C2YFP12AJZB4MABJBAJ55XECVS7E4PMMZ89YZR.usda-token::usda"
    market = Market([{"stx": 1.0}])
    async with competition(tmp_path, market) as bench:
        await add_swaps(bench.db, [PlainSwap(1, HONEST, "stx", UNIT, usda, 2 * UNIT, START_S - 9 * HOUR_S)])
        board = await refreshed(bench, Settings(competition_start=1, competition_end=START_S - 8 * HOUR_S))

    assert not board.final
    assert [row.pnl_usd for row in board.rows] == [1.0]


async def test_two_hundred_churning_swaps_are_not_first(tmp_path: Path) -> None:
    """By default an agent with one good trade ranks above one that traded back and forth all day."""
    market = Market([{"stx": 1.0, A: 1.0}])
    async with competition(tmp_path, market) as bench:
        there_and_back = (("stx", UNIT, A, UNIT), (A, UNIT, "stx", UNIT))
        churn = [PlainSwap(n, OTHER, *there_and_back[n % 2], START_S) for n in range(200)]
        await add_swaps(bench.db, [*churn, PlainSwap(900, HONEST, "stx", 100 * UNIT, A, 101 * UNIT, START_S)])
        board = await refreshed(bench)

    assert [(row.stx_address, row.rank, row.trade_count) for row in board.rows] == [(HONEST, 1, 1), (OTHER, 2, 200)]
    assert by_sender(board)[HONEST].pnl_percent == pytest.approx(1.0)
    assert by_sender(board)[OTHER].capital_usd == 1.0  # went out and came back: the capital of one trade


@pytest.mark.parametrize("pool", [(4_000.0, 18_000.0), (250_000.0, 20.0), (None, 18_000.0)])
async def test_a_thin_token_does_not_count(tmp_path: Path, pool: tuple[float | None, float | None]) -> None:
    """$8.50 into a token quoted at four times its price, which nobody pays: no P&L, and the token is named as thin."""
    market = Market([{"stx": 0.85, A: 3.4}])
    market.pools = {A: pool}
    async with competition(tmp_path, market) as bench:
        gamble = PlainSwap(1, OTHER, "stx", 10 * UNIT, A, 10 * UNIT, START_S)
        mixed = [
            PlainSwap(2, HONEST, "stx", 10 * UNIT, A, 10 * UNIT, START_S),
            PlainSwap(3, HONEST, "stx", 10 * UNIT, "stx.never::priced", 10, START_S),
        ]
        await add_swaps(bench.db, [gamble, *mixed])
        board = await refreshed(bench)
        deep = await refreshed(bench, Settings(min_liquidity_usd=0.0, min_day_volume_usd=0.0))

    row, other = by_sender(board)[OTHER], by_sender(board)[HONEST]
    assert (row.pnl_usd, row.pnl_percent, row.pnl_at_trade_usd, row.capital_usd) == (None,) * 4
    assert (row.thin_tokens, row.unpriced_tokens, row.valued_trade_count) == ([A], [], 0)
    assert (other.thin_tokens, other.unpriced_tokens) == ([A], ["stx.never::priced"])
    assert by_sender(deep)[OTHER].pnl_percent == pytest.approx(300.0)


async def test_a_swap_worth_more_than_its_pool_does_not_count(tmp_path: Path) -> None:
    """One unit for 10^39 of a token that its sender mints: no P&L, no capital, and not the first rank."""
    market = Market([{"stx": 1.0, A: 1.0}])
    async with competition(tmp_path, market) as bench:
        minted = PlainSwap(1, OTHER, "stx", 1, A, 10**39, START_S)
        await add_swaps(bench.db, [minted, PlainSwap(2, HONEST, "stx", 100 * UNIT, A, 101 * UNIT, START_S)])
        await add_swaps(bench.db, [PlainSwap(3, THIRD, "stx", 10 * UNIT, A, 10 * UNIT, START_S)])
        await add_swaps(bench.db, [PlainSwap(4, THIRD, "stx", 1, A, 10**39, START_S)])
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
    market = Market([{"stx": 1.0, A: 1.0}])
    async with competition(tmp_path, market) as bench:
        await add_swaps(bench.db, [PlainSwap(1, HONEST, "stx", 7 * UNIT, A, 70 * UNIT, START_S - 3 * HOUR_S)])
        await add_swaps(bench.db, [PlainSwap(2, HONEST, "stx", 3 * UNIT, A, 3 * UNIT, START_S)])
        before = await refreshed(bench)
        await bench.db.prepare(
            "INSERT INTO excess_swaps SELECT txid, sender, token_in, amount_in, token_out, amount_out,"
            " burn_block_time, '7', NULL, '70', NULL FROM swaps WHERE block_height = 1"
        ).run()
        await bench.wired.clock.sleep(300)
        after = await refreshed(bench)

    assert [(row.pnl_usd, row.capital_usd, row.excess_trade_count) for row in before.rows] == [(63.0, 10.0, 0)]
    assert [(row.pnl_usd, row.capital_usd, row.excess_trade_count) for row in after.rows] == [(0.0, 3.0, 1)]


async def test_a_jump_to_a_thin_price_is_never_believed(tmp_path: Path) -> None:
    """The token was worth $0.01 in a real pool; then its pool is emptied and it is quoted at $500, again and again."""
    market = Market([{"stx": 0.85, A: 0.01}])
    async with competition(tmp_path, market) as bench:
        await add_swaps(bench.db, [PlainSwap(1, OTHER, "stx", 10 * UNIT, A, 850 * UNIT, START_S)])
        before = await refreshed(bench)
        market.pages = [{"stx": 0.85, A: 500.0}]
        market.pools = {A: (500.0, 1_000_000.0)}
        boards = []
        for _ in range(4):
            await bench.wired.clock.sleep(300)
            boards.append(await refreshed(bench))

    assert before.rows[0].pnl_usd == 0.0
    assert [(board.rows[0].pnl_usd, board.rows[0].thin_tokens) for board in boards] == [(0.0, []), *[(None, [A])] * 3]


async def test_values_at_the_time_of_the_trade_stay(tmp_path: Path) -> None:
    """The two P&Ls differ when prices move: one uses current prices, the other those at the time of the trade."""
    market = Market([{"stx": 1.0, A: 1.0}])
    async with competition(tmp_path, market) as bench:
        await refreshed(bench)
        await add_swaps(bench.db, [PlainSwap(1, HONEST, "stx", 100 * UNIT, A, 110 * UNIT, START_S + 60)])
        await bench.wired.clock.sleep(300)
        at_first = await refreshed(bench)
        market.pages = [{"stx": 1.0, A: 0.5}]
        later = await refreshed(bench)

    (before,), (after,) = at_first.rows, later.rows
    assert (before.pnl_usd, before.pnl_at_trade_usd, before.valued_trade_count) == (10.0, 10.0, 1)
    assert (after.pnl_usd, after.pnl_at_trade_usd, after.pnl_percent) == (-45.0, 10.0, -45.0)
