"""Measure the bytes of history: of agents and of prices. They are the same in every run.

python bench/measure_history.py [--agents 1000]
"""

import argparse
import asyncio
import random
import sys
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1] / "packages/holdfast/tests"))
from holdfast.local import sqlite_file
from holdfast.local.database import SqliteDatabase
from holdfast.types import Database
from holdfast_testing.stores import migrated
from support.pages_world import sample_row
from tocsin.board import history as agent_days
from tocsin.prices import store as series
from tocsin.prices.store import PricePoint
from tocsin.settings import Settings
from tocsin.swaps import COMPETITION_MIGRATIONS

DAY_MS = 86_400_000
HOUR_MS = 3_600_000
FIRST_DAY = 20_000
TOKENS = 53
REFRESHES_A_DAY = 288


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


async def measure(agents: int) -> None:
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


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, default=1000)
    asyncio.run(measure(parser.parse_args().agents))
