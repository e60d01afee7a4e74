"""Measure the cost of history: bytes, rows of D1, its share of a price run and a sweep, and the time to read a curve.

python bench/measure_history.py [--agents 1000] [--days 90] [--part bytes|share|curve]

Bytes and rows are the same in every run. Times are given as ratios to other work of the same process.
"""

import argparse
import asyncio
import random
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1] / "packages/holdfast/tests"))
from holdfast.local import sqlite_file
from holdfast.local.database import SqliteDatabase
from holdfast.testing.virtual_time import START_MS, run_virtual
from holdfast.types import Database
from holdfast_testing.stores import migrated, open_kv
from support.competition import chain_of, open_world
from support.history_rows import PlainSwap, add_swaps, add_traders
from support.market import Market
from support.pages_world import sample_row
from support.task_run import task_bench
from tocsin.board import capital as outlays
from tocsin.board import history as agent_days
from tocsin.board import publish as publish_board
from tocsin.board.publish import board_task
from tocsin.prices import store as series
from tocsin.prices.price import NO_FLOORS
from tocsin.prices.refresh import refresh_prices_task
from tocsin.prices.store import PricePoint
from tocsin.scheduler.task import ContextBindings, TaskContext
from tocsin.settings import Settings
from tocsin.swaps import COMPETITION_MIGRATIONS
from tocsin.swaps.sweep import sweep_task
from tocsin.swaps.values import value_swaps
from tocsin.upstream.limiter import task_session

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from tocsin.board.history import curves_at

DAY_MS = 86_400_000
HOUR_MS = 3_600_000
FIRST_DAY = 20_000
START_S = START_MS // 1000
TOKENS = 53
REFRESHES_A_DAY = 288
MONTH = 30
WRITTEN_INCLUDED, READ_INCLUDED = 50_000_000, 25_000_000_000  # rows of D1 in a month of the paid plan


async def fill_days(db: Database, agents: int, first: int, days: int) -> None:
    rng = random.Random(first)
    rows = [sample_row(rng, number, 0) for number in range(agents)]
    for hour in range(first * 24, (first + days) * 24):
        values = [(rng.uniform(10, 50_000), rng.gauss(0, 400)) for _ in rows]
        board = [
            agent_days_row(row, rank, hour, *value) for rank, (row, value) in enumerate(zip(rows, values, strict=True))
        ]
        await agent_days.append(db, board, FIRST_DAY * DAY_MS + hour * HOUR_MS + 4 * 60_000)


def agent_days_row(row: Any, rank: int, hour: int, volume: float, pnl: float) -> Any:
    return replace(
        row, rank=rank + 1, trade_count=40 + hour, volume_usd=volume, pnl_usd=pnl, pnl_at_trade_usd=pnl * 0.7
    )


async def fill_prices(db: Database, days: int) -> None:
    rng = random.Random(1)
    for number in range(days * REFRESHES_A_DAY):
        at = FIRST_DAY * DAY_MS + number * 300_000
        points = [
            PricePoint(f"SP.token-{token}::t", at, f"{rng.uniform(0.01, 9):.10g}", 6, "tenero", "250123.45", "18012.3")
            for token in range(TOKENS)
        ]
        await db.batch(series.append(db, points))


def size_of(path: Path) -> int:
    """The size of the database in bytes after it was compacted."""
    with closing(sqlite_file.connect(path)) as connection:
        connection.execute("VACUUM")
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        return int(pages * connection.execute("PRAGMA page_size").fetchone()[0])


async def grown(directory: Path, name: str, work: Callable[[SqliteDatabase], Awaitable[object]]) -> int:
    """The number of bytes that this work adds to a new database."""
    path = migrated(directory / f"{name}.sqlite", COMPETITION_MIGRATIONS)
    before = size_of(path)
    db = SqliteDatabase(path)
    await work(db)
    await db.close()
    return size_of(path) - before


async def bytes_and_rows(agents: int) -> None:
    with TemporaryDirectory() as name:
        directory, some, days = Path(name), 200, 10

        async def old_days(db: SqliteDatabase) -> None:
            await fill_days(db, some, 0, days)
            while (await agent_days.thin_out(db, (FIRST_DAY + days + 1) * DAY_MS, 1))[0]:
                pass

        hourly = await grown(directory, "hourly", lambda db: fill_days(db, some, 0, days)) / (some * days)
        daily = await grown(directory, "daily", old_days) / (some * days)
        point = await grown(directory, "prices", lambda db: fill_prices(db, 2)) / (2 * REFRESHES_A_DAY * TOKENS)
    kept_days = Settings().history_hourly_days
    prices_a_day = TOKENS * REFRESHES_A_DAY
    of_agents = agents * (kept_days * hourly + (365 - kept_days) * daily)
    of_prices = point * (kept_days * prices_a_day + (365 - kept_days) * TOKENS * 24)
    print(f"bytes of an agent's day: {hourly:.0f} hourly, {daily:.0f} when only its last point is kept")
    print(f"bytes of a price point: {point:.0f}; a day of {TOKENS} tokens: {point * prices_a_day / 1e6:.2f} MB")
    print(f"a year of {agents:,} agents: {of_agents / 1e6:.0f} MB, of {TOKENS} prices: {of_prices / 1e6:.0f} MB")
    rows(agents, prices_a_day)


def rows(agents: int, prices_a_day: int) -> None:
    """Rows of D1 in 30 days, as they are billed: no table of history has an index other than its key."""
    swaps = agents * 10  # a day
    written = {
        "points of agents": agents * 24,
        "days of agents that are thinned out": agents,
        "prices": prices_a_day,
        "prices that are thinned out": prices_a_day - TOKENS * 24,
        # Queued and taken, valued and summed; the capital: queued and taken, and the agent's row; one more index.
        f"values and capital of {swaps:,} swaps a day": swaps * (2 + 2 + 3 + 1),
    }
    publications = 288 + 96 + 1_440  # a day at most: price runs, sweeps, looks of the feed that found something
    read = {
        "the board: capital used and values": publications * agents * 3,
        "values and capital of new swaps": swaps * 12,
        "points of agents": agents * 24,
        "prices that are thinned out": prices_a_day * 2,
        "curves: 10,000 visits a day of 90 days": 10_000 * 90,
    }
    for name, parts, included in (("written", written, WRITTEN_INCLUDED), ("read", read, READ_INCLUDED)):
        total = sum(parts.values()) * MONTH
        print(f"rows {name} in a month: {total:,}, {total / included:.2%} of {included:,}")
        for part, count in parts.items():
            print(f"  {count * MONTH:>13,}  {part}")


class Stopwatch:
    """CPU time within the functions that belong to history."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def timed(self, work: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def measured(*arguments: Any, **options: Any) -> Any:
            began = time.process_time()
            try:
                return await work(*arguments, **options)
            finally:
                self.seconds += time.process_time() - began

        return measured


@contextmanager
def watched(watch: Stopwatch) -> Iterator[None]:
    """The functions of history, measured."""
    places = ((publish_board, "value_swaps"), (outlays, "capital"))
    before = [getattr(module, name) for module, name in places]
    for module, name in places:
        setattr(module, name, watch.timed(getattr(module, name)))
    try:
        yield
    finally:
        for (module, name), original in zip(places, before, strict=True):
            setattr(module, name, original)


async def share_of_price_run(directory: Path) -> float:
    """53 tokens, every price new in every run, and 430 agents on the board with 20 swaps each.

    The append is measured separately, with the same rows again.
    """
    names = [f"SP2XD7417HGPRTREMKF748VNEQPDRR0RMANB7X1NK.token-{n}::t" for n in range(TOKENS - 3)]
    market, rng, watch = Market([{}]), random.Random(1), Stopwatch()
    async with task_bench(directory, market) as bench:
        senders = [(f"SP{number}", number) for number in range(430)]
        await add_traders(bench.db, senders)
        swaps = (
            PlainSwap(n, senders[n % 430][0], rng.choice(names), n + 1, "stx", n + 2, START_S) for n in range(430 * 20)
        )
        await add_swaps(bench.db, swaps)
        for _ in range(20):
            await value_swaps(bench.db, bench.wired.clock.now() + DAY_MS, NO_FLOORS)
        price_run, total = (refresh_prices_task(Settings()), board_task(Settings())), 0.0
        market.pages = [dict.fromkeys(("stx", *names), 1.0)]
        for task in price_run:  # reads all swaps once
            await bench.run(task)
        await bench.wired.clock.sleep(300)
        for _ in range(40):
            market.pages = [{name: rng.uniform(0.9, 1.1) for name in ("stx", *names)}]
            began = time.process_time()
            with watched(watch):
                for task in price_run:
                    await bench.run(task)
            total += time.process_time() - began
            rows = await series.points_between(bench.db, names, bench.wired.clock.now(), bench.wired.clock.now())
            await bench.wired.clock.sleep(300)
            again = [point for points in rows.values() for point in points]
            began = time.process_time()
            at = bench.wired.clock.now() - 1
            points = [PricePoint(p.token_id, at, p.price_usd, 6, "tenero", None, None) for p in again]
            await bench.db.batch(series.append(bench.db, points))
            watch.seconds += time.process_time() - began
    return watch.seconds / (total - watch.seconds)


async def share_of_sweep(directory: Path) -> float:
    """430 wallets with five new swaps each, found, verified, recorded and published."""
    simulator, watch = chain_of(430), Stopwatch()
    async with open_world(directory, simulator) as world, open_kv(directory, world.clock) as kv:
        sweep_run = (sweep_task(Settings(), world.rules), board_task(Settings(), world.rules))
        total = 0.0
        for _ in range(2):
            for wallet in simulator.chain.wallets:
                simulator.chain.burst(wallet, 5)
            simulator.chain.mine()
            bindings = ContextBindings(world.clock, {"hiro": world.hiro}, world.db, kv)
            began = time.process_time()
            with watched(watch):
                for task in sweep_run:
                    await task.run(TaskContext(bindings, task_session(world.log), slice_ms=10**9))
            total += time.process_time() - began
            await world.clock.sleep(900)
    return watch.seconds / (total - watch.seconds)


def shares() -> None:
    with TemporaryDirectory() as name:
        price_run = run_virtual(share_of_price_run(Path(name)), real_threads=True)
    with TemporaryDirectory() as name:
        sweep = run_virtual(share_of_sweep(Path(name)), real_threads=True)
    print(f"history adds {price_run:.1%} to the CPU time of a price run, {sweep:.1%} to that of a sweep")


async def curves(agents: int, days: int) -> None:
    """Compared with reading the same number of rows without decoding them."""
    with TemporaryDirectory() as name:
        path = migrated(Path(name) / "db.sqlite", COMPETITION_MIGRATIONS)
        db = SqliteDatabase(path)
        await fill_days(db, agents, 0, days)
        first, last = FIRST_DAY * DAY_MS, (FIRST_DAY + days) * DAY_MS
        base = await timed(lambda: db.prepare("SELECT day, agent_id, last_point FROM agent_days").all())
        everybody = await timed(lambda: curves_at(db, [], last))
        one = await timed(lambda: agent_days.history_of(db, 12, first, last))
        await db.close()
    print(f"a curve of {agents:,} agents over {days} days: {everybody * 1000:.0f} ms, {everybody / base:.1f} times")
    print(f"as long as reading its rows ({base * 1000:.0f} ms); one agent hour by hour: {one / base:.3f} of that")


async def timed(work: Callable[[], Awaitable[object]]) -> float:
    seconds = []
    for _ in range(3):
        began = time.perf_counter()
        await work()
        seconds.append(time.perf_counter() - began)
    return median(seconds)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, default=1000)
    parser.add_argument("--days", type=int, default=90)
    parser.add_argument("--part", choices=("bytes", "share", "curve"))
    arguments = parser.parse_args()
    if arguments.part in {None, "bytes"}:
        asyncio.run(bytes_and_rows(arguments.agents))
    if arguments.part in {None, "share"}:
        shares()
    if arguments.part in {None, "curve"}:
        asyncio.run(curves(arguments.agents, arguments.days))
