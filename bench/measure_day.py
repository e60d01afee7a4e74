"""The cost of a day on Cloudflare: operations of KV and D1, requests and rows of the object, and the plan.

python bench/measure_day.py [--wallets 430,951] [--hours 24] [--swaps-an-hour 300]

A day runs in virtual time on the local platform, and every call to a store is counted: 13 traded tokens are
priced every five minutes, the network's list with its 20,000 transactions a day is followed every minute, and
the sweep runs every fifteen. Only D1 can count the rows that it bills (rows visited, with indexes), so all
statements of the day, and of the hour before it, are replayed on the real D1.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1] / "packages/holdfast/tests"))

from null_logger import NullLogger

from holdfast.local.database import SqliteDatabase
from holdfast.local.kv import SqliteKV
from holdfast.local.runtime import Runtime
from holdfast.testing.virtual_time import VirtualClock, run_virtual
from holdfast.types import JSON, Clock, Database, DBResult
from holdfast_testing.stores import make_objects_file, open_kv
from stacks_simulator.chain import Chain
from stacks_simulator.simulator import Simulator
from stacks_simulator.traffic import Traffic, start_traffic
from support.competition import leaderboard, register
from support.local_store import open_competition
from support.simulated_fetch import HIRO_URL, TENERO_URL, SimulatedFetch
from support.workerd import MODULES, Workerd, running
from tocsin.app import Platform, build
from tocsin.prices.store import prices_of, supported_tokens, tracked_tokens, traded_tokens
from tocsin.scheduler.scheduler_do import SchedulerDO
from tocsin.settings import Settings

WARM_UP_S = 3_600
DAYS = 30
NETWORK_AN_HOUR = 375  # about 20,000 transactions a day with the others
Batch = list[tuple[str, Sequence[Any]]]

# Included in Workers Paid, per month; more costs extra.
PLAN = {
    "KV writes": 1_000_000,
    "KV reads": 10_000_000,
    "D1 rows read": 25_000_000_000,
    "D1 rows written": 50_000_000,
    "object requests": 1_000_000,
    "object rows written": 50_000_000,
    "object rows read": 25_000_000_000,
}


@dataclass
class Day:
    """The operations of a day; batches before `begins` belong to the hour before it."""

    counts: Counter[str] = field(default_factory=Counter)
    batches: list[Batch] = field(default_factory=list)
    begins: int = 0
    board: list[Batch] = field(default_factory=list)
    swaps: int = 0

    def begin(self) -> None:
        self.counts.clear()
        self.begins = len(self.batches)


class CountingKV(SqliteKV):
    """A KV that counts its operations. Bulk reads are billed by key."""

    def __init__(self, inner: SqliteKV, day: Day) -> None:
        self._inner, self._day = inner, day

    async def get(self, key: str) -> str | None:
        self._day.counts["KV reads"] += 1
        return await self._inner.get(key)

    async def get_many(self, keys: Sequence[str]) -> dict[str, str]:
        self._day.counts["KV reads"] += len(keys)
        return await self._inner.get_many(keys)

    async def put(self, key: str, value: str, *, expiration_ttl: int | None = None) -> None:
        self._day.counts["KV writes"] += 1
        await self._inner.put(key, value, expiration_ttl=expiration_ttl)


class CountingStorage:
    """An object's storage that counts rows; each key is a row."""

    def __init__(self, inner: Any, day: Day) -> None:
        self._inner, self._day = inner, day

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def get(self, key: Any) -> Any:
        self._day.counts["object rows read"] += 1 if isinstance(key, str) else len(key)
        return self._inner.get(key)

    async def list(self, **options: Any) -> dict[str, Any]:
        rows: dict[str, Any] = await self._inner.list(**options)
        self._day.counts["object rows read"] += len(rows)
        return rows

    def put(self, key: Any, *value: JSON) -> Any:
        self._day.counts["object rows written"] += 1 if isinstance(key, str) else len(key)
        return self._inner.put(key, *value)

    def delete(self, key: Any) -> Any:
        self._day.counts["object rows written"] += 1 if isinstance(key, str) else len(key)
        return self._inner.delete(key)

    def set_alarm(self, at: Any) -> Any:
        self._day.counts["object rows written"] += 1
        return self._inner.set_alarm(at)


class CountingContext:
    """A `ctx` with a counting storage."""

    def __init__(self, inner: Any, day: Day) -> None:
        self._inner = inner
        self.storage: Any = CountingStorage(inner.storage, day)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def counting_scheduler(day: Day) -> type[SchedulerDO]:
    class Counting(SchedulerDO):
        """The scheduler that counts requests: rings of the alarm and calls by the cron trigger."""

        def __init__(self, ctx: Any, env: Any) -> None:
            super().__init__(CountingContext(ctx, day), env)

        async def alarm(self, info: Any = None) -> None:
            day.counts["object requests"] += 1
            await super().alarm(info)

        async def arm(self) -> int | None:
            day.counts["object requests"] += 1
            return await super().arm()

    return Counting


def record(database: SqliteDatabase, day: Day) -> None:
    execute = database.batch

    async def batch(statements: Sequence[Any]) -> list[DBResult]:
        if statements:
            day.batches.append([(statement.sql, list(statement.values)) for statement in statements])
        return await execute(statements)

    database.batch = batch  # type: ignore[method-assign]  # statements run as batches of one


async def run_day(directory: Path, wallets: int, seconds: float, swaps_an_hour: float) -> Day:
    day, clock, logger = Day(), VirtualClock(), NullLogger()
    chain = Chain(seed=1, start_ms=clock.now(), wallets=wallets)
    start_traffic(chain, Traffic(swaps=swaps_an_hour, network=NETWORK_AN_HOUR))
    settings = Settings(hiro_api_url=HIRO_URL, tenero_api_url=TENERO_URL, hiro_api_key="bench", tenero_api_key="bench")
    async with open_competition(directory) as database, open_kv(directory, clock) as store:
        record(database, day)
        kv = CountingKV(store, day)
        await register(database, chain.wallets)
        platform = Platform(
            clock=clock,
            fetch=SimulatedFetch(Simulator(chain, clock)),
            logger=logger,
            db=database,
            kv=kv,
            stub=lambda name: namespace.get_by_name(name),  # noqa: PLW0108 - it is made below
            random=lambda: 0.5,
        )
        env = build(platform, settings).env
        runtime = Runtime(make_objects_file(directory), clock=clock, logger=logger, env=env)
        namespace = runtime.namespace("SCHEDULER", counting_scheduler(day))
        await runtime.open()
        await namespace.get_by_name("v1").arm()
        await clock.sleep(WARM_UP_S)
        day.begin()
        for _ in range(int(seconds // 300)):
            await clock.sleep(300)
            await namespace.get_by_name("v1").arm()  # the cron trigger
        await runtime.close()
        await _visit(database, kv, clock, day)
    return day


async def _visit(database: Database, kv: CountingKV, clock: Clock, day: Day) -> None:
    """View the prices and the board once, without counting either for the day."""
    [swaps] = (await database.prepare("SELECT count(*) AS n FROM swaps").all()).results
    batch_count, reads = len(day.batches) - 1, day.counts["KV reads"]  # without the query above
    await prices_of(kv, await supported_tokens(kv), clock.now())
    price_reads = day.counts["KV reads"] - reads
    tokens = tracked_tokens(await traded_tokens(database))
    await leaderboard(database, await prices_of(kv, tokens, clock.now()))
    day.counts["KV reads"] = reads
    day.counts["KV reads of a price page"] = price_reads
    day.swaps, day.board = swaps["n"], day.batches[batch_count + 1 :]
    day.batches = day.batches[:batch_count]


def cost(workerd: Workerd, batches: Sequence[Batch]) -> tuple[int, int]:
    """The rows that D1 reads and writes for these batches."""
    costs = [workerd.cost(batch) for batch in batches]
    return sum(read for read, _ in costs), sum(written for _, written in costs)


def measure(wallets: int, hours: float, swaps_an_hour: float) -> Day:
    with TemporaryDirectory() as scratch:
        (local := Path(scratch) / "local").mkdir()
        day = run_virtual(run_day(local, wallets, hours * 3_600, swaps_an_hour), real_threads=True)
        with running(Path(scratch) / "workerd", {}, optimized=True) as workerd:
            workerd.migrate()
            cost(workerd, day.batches[: day.begins])
            billed = cost(workerd, day.batches[day.begins :])
            board = cost(workerd, day.board)
    day.counts["D1 rows read"], day.counts["D1 rows written"] = billed
    day.counts["D1 calls a day"] = len(day.batches) - day.begins
    day.counts["D1 rows read by a view of the board"] = board[0]
    for name in PLAN:
        day.counts[name] = round(day.counts[name] * 24 / hours)
    return day


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wallets", default="430,951")
    parser.add_argument("--hours", type=float, default=24)
    parser.add_argument("--swaps-an-hour", type=float, default=300)
    arguments = parser.parse_args()
    console = Console(width=120)
    if not MODULES.exists():
        console.print("workerd is not installed: run `make test` on a machine with npm")
        return
    table = Table("per month", "included", title="A month on Cloudflare, from a simulated day")
    sizes = [int(size) for size in arguments.wallets.split(",")]
    days = [measure(size, arguments.hours, arguments.swaps_an_hour) for size in sizes]
    for size, day in zip(sizes, days, strict=True):
        table.add_column(f"{size} wallets, {day.swaps} swaps")
    for name, included in PLAN.items():
        cells = [f"{day.counts[name] * DAYS:,} ({day.counts[name] * DAYS / included:.2%})" for day in days]
        table.add_row(name, f"{included:,}", *cells)
    for name in ("D1 calls a day", "D1 rows read by a view of the board", "KV reads of a price page"):
        table.add_row(name, "", *[f"{day.counts[name]:,}" for day in days])
    console.print(table)


if __name__ == "__main__":
    main()
