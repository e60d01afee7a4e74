"""A sweep within what one invocation on Cloudflare may ask for: it stops in time, and loses nothing."""

import tracemalloc
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from support.competition import as_rows, open_world, sweep
from support.simulated import lively_chain
from support.virtual_time import START_MS, VirtualClock
from tocsin.bindings import Database, DBResult, FetchResponse
from tocsin.errors import RunStopped
from tocsin.platform.cloudflare.subrequests import (
    RESERVED_FOR_STORES,
    invocation,
    spend_on_fetch,
    spend_on_store,
)
from tocsin.simulator.rate_limits import UNLIMITED, HiroRateLimit, TeneroRateLimit
from tocsin.simulator.simulated_fetch import SimulatedFetch
from tocsin.simulator.simulator import Simulator

HOUR_MS = 3_600_000
RINGS_MAX = 50
MB = 1024 * 1024


class CountingFetch:
    """The simulated wire, counted as `CloudflareFetch` counts."""

    def __init__(self, simulator: Simulator) -> None:
        self._fetch = SimulatedFetch(simulator)

    async def __call__(self, url: str, **options: Any) -> FetchResponse:
        spend_on_fetch()
        return await self._fetch(url, **options)


class CountingDatabase:
    """SQLite, counted as `D1Database` counts: a batch is one call, and so is a statement."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._batch = database.batch
        database.batch = self.batch  # type: ignore[method-assign]  # statements run as batches of one

    def prepare(self, sql: str) -> Any:
        return self._database.prepare(sql)

    async def batch(self, statements: Sequence[Any]) -> list[DBResult]:
        if statements:
            spend_on_store()
        return await self._batch(statements)


def lively(hours: float, wallets: int = 12) -> Simulator:
    """A chain with hours of traffic behind it, which stands still from now on."""
    chain = lively_chain(wallets=wallets, hours=hours)
    clock = VirtualClock(START_MS + int(hours * HOUR_MS))
    limits = HiroRateLimit(UNLIMITED, UNLIMITED), TeneroRateLimit(UNLIMITED, UNLIMITED)
    return Simulator(chain, clock, speed=0, hiro_rate_limit=limits[0], tenero_rate_limit=limits[1])


async def test_a_sweep_over_the_bound_stops_and_goes_on_at_the_next_ring(tmp_path: Path) -> None:
    """As a pause would stop it: each ring keeps within the bound, and together they find every swap."""
    limit, spent = RESERVED_FOR_STORES + 250, []
    async with open_world(tmp_path, lively(2), fetch=CountingFetch, wrap=CountingDatabase) as world:
        for _ in range(RINGS_MAX):
            with invocation(limit) as account, suppress(RunStopped):
                await sweep(world)
                break
            spent.append(account.spent)
        assert await world.rows() == as_rows(world.simulator.truth())
    assert 1 < len(spent) < RINGS_MAX
    assert all(limit - RESERVED_FOR_STORES <= count <= limit for count in spent)


async def test_the_lists_of_all_contracts_leave_room_for_their_swaps(tmp_path: Path) -> None:
    """Without news a sweep costs a part of the bound only, so that it always comes to what it found."""
    async with open_world(tmp_path, lively(0.1), fetch=CountingFetch, wrap=CountingDatabase) as world:
        await sweep(world)
        with invocation() as account:
            await sweep(world)
    assert account.spent < (account.limit - RESERVED_FOR_STORES) / 3


class Replay:
    """What the wire answered the first time, so that the second time only the sweep itself needs memory."""

    def __init__(self, simulator: Simulator) -> None:
        self._fetch = SimulatedFetch(simulator)
        self._known: dict[str, FetchResponse] = {}

    async def __call__(self, url: str, **options: Any) -> FetchResponse:
        if url not in self._known:
            self._known[url] = await self._fetch(url, **options)
        return self._known[url]


class Nothing(list[Any]):
    """Where progress is shown to nobody."""

    def append(self, _shown: Any) -> None:
        pass


async def test_a_sweep_needs_no_more_memory_for_more_transactions(tmp_path: Path) -> None:
    """Lists are taken page by page, the queue a thousand at a time: four times as many cost hardly more."""
    few, many = [await _peak(tmp_path, hours) for hours in (1, 4)]
    assert few.inserted * 3 < many.inserted
    assert few.bytes < 2 * MB
    assert many.bytes < few.bytes + MB


class Peak(NamedTuple):
    """The memory of one sweep, and what it did."""

    bytes: int
    inserted: int


async def _peak(tmp_path: Path, hours: float) -> Peak:
    with TemporaryDirectory(dir=tmp_path) as directory:
        async with open_world(Path(directory), lively(hours), fetch=Replay) as world:
            await sweep(world)
            tables = ("marks", "swaps", "refusals", "candidates", "competition_state")
            await world.db.batch([world.db.prepare(f"DELETE FROM {table}") for table in tables])
            context = world.run()
            context.shown = Nothing()
            tracemalloc.start()
            try:
                outcome = await sweep(world, context)
                return Peak(tracemalloc.get_traced_memory()[1], outcome.result["inserted"])
            finally:
                tracemalloc.stop()
