"""The board at 10,000, 100,000 and 1,000,000 swaps: time, rows read, and the cost of keeping its totals.

python bench/measure_board.py [--sizes 10000,100000,1000000] [--rounds 15]

430 agents trade 36 pairs, as in the measurements of the reference, whose query takes 91 ms, 656 ms and 4.33 s
and reads every swap four times.
"""

import argparse
import asyncio
import json
import random
import sqlite3
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from holdfast.local import sqlite_file
from holdfast.local.database import SqliteDatabase
from holdfast.local.migrations import load, migrate
from holdfast.types import Database
from stacks_simulator.addresses import address_of
from stacks_simulator.tokens import TRADED_TOKENS
from tocsin.board import board
from tocsin.stacks import ContractCall, MinedAt, Transaction
from tocsin.swaps import COMPETITION_MIGRATIONS
from tocsin.swaps import store as swap_store
from tocsin.swaps.rules import AllowList, Rules
from tocsin.swaps.store import NewSwap
from tocsin.swaps.swap import Swap
from tocsin.swaps.trades import trades_of

AGENTS = 430
PAIRS = 36
RULES = Rules(AllowList({}), start_s=0)
DIRECTIONS = [(a.id, b.id) for a in TRADED_TOKENS for b in TRADED_TOKENS if a != b][::4][:PAIRS]
UNITS = {token.id: token.base_price / 10**token.decimals for token in TRADED_TOKENS}
BATCH = 20  # swaps per transaction, as the sweep writes them
BULK = 2_000
ACTIVE_TOKENS = "SELECT token FROM token_totals ORDER BY trades DESC, token LIMIT 50"

_rng = random.Random(1)


def agent(number: int) -> str:
    return address_of(f"agent {number}")


def swaps(count: int, first: int) -> Iterator[NewSwap]:
    for number in range(first, first + count):
        token_in, token_out = DIRECTIONS[_rng.randrange(PAIRS)]
        mined = MinedAt(8_000_000 + number, f"0x{number:064x}", 0, 1_778_700_600 + number)
        sender = agent(_rng.randrange(AGENTS))
        call = ContractCall("SP.pool", "swap-x-for-y")
        transaction = Transaction(
            f"0x{number:064x}", sender, False, 3000, "success", "contract_call", call, mined, True, 3
        )
        amounts = (_rng.randrange(1, 10**12), _rng.randrange(1, 10**30))
        yield NewSwap(transaction, Swap(token_in, amounts[0], token_out, amounts[1]), "cron")


async def fill(db: Database, count: int, first: int, batch: int) -> float:
    """Record `count` more swaps as the sweep does, and return the swaps per second."""
    rows = list(swaps(count, first))
    started_at = time.perf_counter()
    for at in range(0, count, batch):
        await db.batch(swap_store.record(db, rows[at : at + batch], RULES, 0))
    return count / (time.perf_counter() - started_at)


async def view(db: Database) -> board.BoardPage:
    """The first page by profit, computed from the database."""
    return board.page_of(await board.all_rows(db, UNITS), board.BoardQuery("pnl"))


async def timed(rounds: int, work: Callable[[], Awaitable[object]]) -> tuple[float, float]:
    """The medians of wall time and of CPU time, in ms."""
    await work()
    wall_ms, cpu_ms = [], []
    for _ in range(rounds):
        wall, cpu = time.perf_counter(), time.process_time()
        await work()
        wall_ms.append((time.perf_counter() - wall) * 1000)
        cpu_ms.append((time.process_time() - cpu) * 1000)
    return median(wall_ms), median(cpu_ms)


def rows_read(path: Path) -> int:
    """The rows that the board's queries read: every total once, without the newest swap of each agent.

    A query plan that reads other swaps is an error.
    """
    with closing(sqlite3.connect(path)) as connection:
        plans = [
            row[3]
            for sql in (board.SQL["agents"], board.SQL["values_of_wallets"], ACTIVE_TOKENS)
            for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", ("[]",) * sql.count("?"))
        ]
        seek = "swaps_by_sender (sender=? AND burn_block_time=?)"  # the newest swap of each agent
        assert not any("swaps" in plan and seek not in plan for plan in plans), plans
        totals = ("sender_totals", "pair_totals", "sender_values", "outlays")
        return sum(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in totals)


async def fill_without_totals(path: Path) -> float:
    """The same swaps, written in the same way, without the triggers that keep the totals."""
    create_database(path, "DROP TRIGGER swap_counted", "DROP TRIGGER swap_followed")
    db = SqliteDatabase(path)
    await register(db)
    rate = await fill(db, BULK, 0, BATCH)
    await db.close()
    return rate


def create_database(path: Path, *changes: str) -> None:
    sqlite_file.create(path)
    with closing(sqlite_file.connect(path)) as connection:
        migrate(connection, load(COMPETITION_MIGRATIONS), path.name, now=0)
        for change in changes:
            connection.execute(change)


INSERT_AGENTS = """
INSERT INTO agents (btc_address, stx_address, erc8004_agent_id)
SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]')
FROM json_each(?)"""


async def register(db: Database) -> None:
    agents = json.dumps([[f"bc1q{n}", agent(n), n + 1] for n in range(AGENTS)])
    claims = "INSERT INTO claims (btc_address, status) SELECT btc_address, 'verified' FROM agents"
    await db.batch([db.prepare(INSERT_AGENTS).bind(agents), db.prepare(claims)])


async def main(sizes: list[int], rounds: int) -> None:
    with TemporaryDirectory() as directory:
        path = Path(directory) / "db.sqlite"
        create_database(path)
        db = SqliteDatabase(path)
        await register(db)
        print(f"{'swaps':>9}{'board ms':>10}{'CPU':>7}{'rows read':>11}{'trades ms':>11}{'tokens ms':>11}", end="")
        print(f"{'inserts/s':>11}{'untotalled':>12}")
        stored = 0
        for size in sizes:
            await fill(db, size - stored - BULK, stored, BULK)
            rate = await fill(db, BULK, size - BULK, BATCH)
            stored = size
            await board.all_rows(db, UNITS, follow_max=10 * size)  # the capital used, as the tasks keep it
            board_ms, cpu_ms = await timed(rounds, lambda: view(db))
            trades_ms, _ = await timed(rounds, lambda: trades_of(db, agent(7)))
            tokens_ms, _ = await timed(rounds, lambda: db.prepare(ACTIVE_TOKENS).all())
            bare_rate = await fill_without_totals(Path(directory) / f"{size}.sqlite")
            rows = rows_read(path)
            figures: list[Any] = [size, board_ms, cpu_ms, rows, trades_ms, tokens_ms, rate, bare_rate]
            print("{:>9,}{:>10.1f}{:>7.1f}{:>11,}{:>11.2f}{:>11.2f}{:>11,.0f}{:>12,.0f}".format(*figures))
        await db.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="10000,100000,1000000")
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    asyncio.run(main([int(size) for size in arguments.sizes.split(",")], arguments.rounds))
