"""A sweep stays within the subrequests of one invocation on Cloudflare: it stops in time and loses nothing."""

import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pytest

from holdfast.subrequests import RESERVED_FOR_STORES, SUBREQUESTS_MAX, invocation, spend_on_store
from holdfast.testing.virtual_time import START_MS, VirtualClock
from holdfast.types import Database, DBResult
from stacks_simulator.rate_limits import UNLIMITED, HiroRateLimit, TeneroRateLimit
from stacks_simulator.simulator import Simulator
from support.competition import World, as_rows, number, open_world, sweep
from support.simulated import lively_chain
from support.simulated_fetch import SimulatedFetch
from tocsin.errors import RunStopped
from tocsin.fetch import FetchResponse, spend_on_fetch
from tocsin.scheduler.task import TaskResult
from tocsin.settings import Settings
from tocsin.swaps.feed import PAGES_MAX, VISITS_MAX, follow_network_tasks
from tocsin.upstream.hiro import LIST_PAGE

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
    """Return a chain after hours of traffic, which stands still from now on."""
    chain = lively_chain(wallets=wallets, hours=hours)
    clock = VirtualClock(START_MS + int(hours * HOUR_MS))
    limits = HiroRateLimit(UNLIMITED, UNLIMITED), TeneroRateLimit(UNLIMITED, UNLIMITED)
    return Simulator(chain, clock, speed=0, hiro_rate_limit=limits[0], tenero_rate_limit=limits[1])


async def feed(world: World) -> TaskResult:
    """One run of the feed."""
    [task] = follow_network_tasks(Settings(), world.rules)
    return await task.run(world.run())


@pytest.mark.slow
async def test_a_sweep_over_the_bound_is_partial_and_continues_at_the_next_ring(tmp_path: Path) -> None:
    """Each ring of the alarm stays within the bound, and together they find every swap."""
    limit, spent = RESERVED_FOR_STORES + 250, []
    outcomes: set[str] = set()
    async with open_world(tmp_path, lively(2), fetch=CountingFetch, wrap=CountingDatabase) as world:
        for _ in range(RINGS_MAX):
            with invocation(limit) as account:
                try:
                    await sweep(world)
                except RunStopped as stopped:
                    outcomes.add(stopped.outcome)
                else:
                    break
            spent.append(account.spent)
        assert await world.rows() == as_rows(world.simulator.truth())
    assert 1 < len(spent) < RINGS_MAX
    assert outcomes == {"partial"}
    assert all(limit - RESERVED_FOR_STORES <= count <= limit for count in spent)


@pytest.mark.slow
async def test_the_lists_of_all_contracts_leave_room_for_their_swaps(tmp_path: Path) -> None:
    """A sweep that finds nothing new spends less than a third, so that there is room to verify what one finds."""
    async with open_world(tmp_path, lively(0.1), fetch=CountingFetch, wrap=CountingDatabase) as world:
        await sweep(world)
        with invocation() as account:
            await sweep(world)
    assert account.spent < (account.limit - RESERVED_FOR_STORES) / 3


@pytest.mark.slow
async def test_the_longest_look_at_the_network_stays_within_the_bound(tmp_path: Path) -> None:
    """As many pages and visits as a run may make, and every swap verified; a sweep in the same alarm fits too."""
    simulator = lively(0.1)
    chain, eligible = simulator.chain, [w for w in simulator.chain.wallets if w.tier == "eligible"]
    async with open_world(tmp_path, simulator, fetch=CountingFetch, wrap=CountingDatabase) as world:
        await feed(world)
        with invocation() as all_lists:
            await sweep(world)
        await world.clock.sleep(120)
        with invocation() as quiet_feed:
            await feed(world)
        with invocation() as quiet_sweep:
            await sweep(world)
        for _ in range(2 * PAGES_MAX):
            for wallet in eligible:
                chain.swap(wallet)
            chain.dust(chain.strangers[0], LIST_PAGE - len(eligible))
            chain.mine()
        simulator.hiro.omitted_share = 0.2  # wallets lack nonces
        looks = []
        for _ in range(4):
            await world.clock.sleep(120)
            with invocation() as account:
                looks.append((account, (await feed(world)).counters))
        simulator.hiro.omitted_share = 0.0
        await sweep(world)
        missing = len(simulator.truth()) - len(await world.rows())

    longest = max(account.spent for account, _ in looks)
    bound = SUBREQUESTS_MAX - RESERVED_FOR_STORES
    assert number(looks[0][1], "pages") == PAGES_MAX
    assert number(looks[0][1], "inserted") > 300
    assert max(number(counters, "visited") for _, counters in looks) == VISITS_MAX
    assert longest + all_lists.spent <= bound  # even with a sweep of all lists in the same alarm
    assert max(quiet_feed.spent, quiet_sweep.spent) <= 11
    assert missing == 0


class Replay:
    """Repeats the answers of the first run, so that in the second run only the sweep itself needs memory."""

    def __init__(self, simulator: Simulator) -> None:
        self._fetch = SimulatedFetch(simulator)
        self._known: dict[str, FetchResponse] = {}

    async def __call__(self, url: str, **options: Any) -> FetchResponse:
        if url not in self._known:
            self._known[url] = await self._fetch(url, **options)
        return self._known[url]


@pytest.mark.slow
async def test_a_sweep_needs_no_more_memory_for_more_transactions(tmp_path: Path) -> None:
    """Lists are read page by page, the queue a thousand at a time: four times as many need hardly more memory."""
    few, many = [await _peak(tmp_path, hours) for hours in (0.5, 2)]
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
            tracemalloc.start()
            try:
                result = await sweep(world)
                return Peak(tracemalloc.get_traced_memory()[1], number(result.counters, "inserted"))
            finally:
                tracemalloc.stop()
