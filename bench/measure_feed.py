"""The task `feed`: calls a month, the delay of swaps, growth, a list with omissions, a throttle, CPU and memory.

python bench/measure_feed.py                  all tables
python bench/measure_feed.py --part month     one of them: month, growth, omissions, throttle, rows

The real scheduler runs in virtual time with 60 ms per call, under Hiro's plan of 20 calls a second, 500 a minute and
150,000 a month. The figures are reproducible, except for CPU and memory. A month is 30 days.

The measurement begins when no wallet is unread and the contracts' lists have their turns, and lasts a whole turn. Until
then the rest of the network is silent, which does not affect the lists of contracts and wallets.
"""

import argparse
import gc
import sys
import time
import tracemalloc
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1] / "packages/holdfast/tests"))

from feed_service import (
    KINDS,
    WITHOUT_FEED,
    Costs,
    Service,
    every,
    join_network,
    kind_of,
    mark_as_read,
    mined_ms,
    new_chain,
    register_silent,
    serving,
    warm_up,
)

from holdfast.testing.virtual_time import VirtualClock, run_virtual
from stacks_simulator.addresses import address_of
from stacks_simulator.chain import Chain
from support.local_store import open_competition
from support.whole_service import Throttle
from tocsin.scheduler.types import RunRecord
from tocsin.swaps.rules import AllowList, Rules, built_in
from tocsin.upstream.hiro import LIST_PAGE

CONSOLE = Console(width=130)
HOUR_S = 3_600
SIZES = (430, 951)
TURN_H = 24  # of all contracts' lists, with looks every minute
SLOW_TURN_H = 101  # with looks every 15 minutes
COLD_START_H = 2  # all lists are read once
SETTLE_H = 1  # after the rest of the network has begun
OMITTED_SHARE = 0.01
BACKLOG = 200_000
NOT_OURS = [tracemalloc.Filter(False, f"*{part}*") for part in ("/simulator/", "tracemalloc.py")]


def goal(value: float, limit: float) -> str:
    return f"≤ {limit:,g}" + ("" if value <= limit else " missed")


# Calls a month and the delay of swaps


async def month(scratch: Path, wallets: int) -> dict[str, Costs]:
    """Three services on one chain: looks every minute, every 15 minutes, and without the feed."""
    clock, costs = VirtualClock(), {}
    chain = new_chain(clock, wallets)
    async with serving(chain, every(900)) as slow, AsyncExitStack() as stack:
        await clock.sleep((SLOW_TURN_H - TURN_H) * HOUR_S)
        await warm_up(chain, clock, TURN_H, scratch)
        fast = await stack.enter_async_context(serving(chain, every(60), warm=scratch))
        old = await stack.enter_async_context(serving(chain, WITHOUT_FEED, warm=scratch))
        await begin(clock, chain, fast, slow, old)
        await clock.sleep(TURN_H * HOUR_S)
        costs["every minute"], costs["without the feed"] = await fast.costs(), await old.costs()
        await stack.aclose()
        await clock.sleep((SLOW_TURN_H - TURN_H) * HOUR_S)
        costs["every 15 minutes"] = await slow.costs()
    return costs


async def begin(clock: VirtualClock, chain: Chain, *services: Service) -> None:
    """Start the rest of the network, and then the measurement."""
    join_network(chain, clock)
    await clock.sleep(SETTLE_H * HOUR_S)
    for service in services:
        service.begin()


def print_month() -> None:
    table = Table("", "calls in 30 days", "goal", "mean s", "goal", "max s", "goal", "swaps", "missing", "wrong")
    split = Table("calls in 30 days", *KINDS[:-1], "all", "hours", "network a day")
    for wallets in SIZES:
        with TemporaryDirectory() as scratch:
            costs = run_virtual(month(Path(scratch), wallets), real_threads=True)
        for name, limit in (("every minute", 75_000), ("every 15 minutes", 20_000), ("without the feed", None)):
            each, title = costs[name], f"{wallets} wallets, {name}"
            delay, longest = mean(each.delays_s), max(each.delays_s)
            is_fast = name == "every minute"
            table.add_row(
                title,
                f"{each.monthly:,}",
                "" if limit is None else goal(each.monthly, limit),
                f"{delay:.1f}",
                goal(delay, 60) if is_fast else "",
                f"{longest:.1f}",
                goal(longest, 180) if is_fast else "",
                *map(str, (len(each.delays_s), each.missing, each.wrong)),
            )
            kinds = [f"{each.monthly_of(kind):,}" for kind in KINDS[:-1]]
            daily = each.network / each.hours * 24
            split.add_row(title, *kinds, f"{each.monthly:,}", f"{each.hours:.0f}", f"{daily:,.0f}")
    CONSOLE.print(table, split)


# Growth


async def growth(scratch: Path) -> dict[str, Costs]:
    """Three services on one chain: as it is, with many contracts that nobody calls, and with many silent wallets.

    The new lists are marked as read: the initial cost of reading them is not measured.
    """
    clock = VirtualClock()
    chain = new_chain(clock, SIZES[0])
    idle = [f"{address_of(f'idle:{number}')}.pool" for number in range(3_960)]
    listed = built_in().plus(AllowList(dict.fromkeys(idle, frozenset({"swap"}))))
    rules = Rules(listed, chain.campaign.start_s, chain.campaign.end_s)
    silent = [address_of(f"silent:{number}") for number in range(100_000 - SIZES[0])]
    await warm_up(chain, clock, TURN_H, scratch)
    async with AsyncExitStack() as stack:
        base = await stack.enter_async_context(serving(chain, every(60), warm=scratch))
        wallets = await stack.enter_async_context(serving(chain, every(60), warm=scratch))
        async with open_competition(scratch) as db:
            await mark_as_read(db, rules, idle, clock.now(), TURN_H * HOUR_S * 1000 - 60_000)
        contracts = await stack.enter_async_context(serving(chain, every(60), rules=rules, warm=scratch))
        await register_silent(wallets, silent)
        services = (base, contracts, wallets)
        await begin(clock, chain, *services)
        await clock.sleep(TURN_H * HOUR_S)
        names = ("40 contracts, 430 wallets", "4,000 contracts, 430 wallets", "40 contracts, 100,000 wallets")
        return {name: await service.costs() for name, service in zip(names, services, strict=True)}


def print_growth() -> None:
    with TemporaryDirectory() as scratch:
        costs = run_virtual(growth(Path(scratch)), real_threads=True)
    table = Table("looks every minute", "calls in 30 days", "compared", "goal", *KINDS[:-1], "mean s", "missing")
    base = next(iter(costs.values())).monthly
    for name, each in costs.items():
        kinds = [f"{each.monthly_of(kind):,}" for kind in KINDS[:-1]]
        ratio = each.monthly / base - 1
        table.add_row(
            name, f"{each.monthly:,}", f"{ratio:+.1%}", "± 3 %" + ("" if abs(ratio) <= 0.03 else " missed"), *kinds,
            f"{mean(each.delays_s):.1f}", str(each.missing),
        )  # fmt: skip
    CONSOLE.print(table)


# A list that omits transactions


async def omissions(scratch: Path) -> tuple[Costs, Costs, list[float], int]:
    """Three days, and one more to find what was omitted in the last hours."""
    clock = VirtualClock()
    chain = new_chain(clock, SIZES[0])
    await warm_up(chain, clock, TURN_H, scratch)
    async with serving(chain, every(60), warm=scratch, omitted_share=OMITTED_SHARE) as holed:
        async with serving(chain, every(60), warm=scratch) as whole:
            await begin(clock, chain, whole, holed)
            began = clock.now()
            await clock.sleep(72 * HOUR_S)
            ended = clock.now()
            costs = await whole.costs(), await holed.costs()
        await clock.sleep(24 * HOUR_S)
        recorded = await holed.recorded()
        omitted = [
            tx
            for tx in (chain.transactions[swap.txid] for swap in chain.truth())
            if began <= mined_ms(tx) < ended and is_omitted(tx.tx_id)
        ]
        found = [(recorded[tx.tx_id] - mined_ms(tx)) / 3_600_000 for tx in omitted if tx.tx_id in recorded]
    return *costs, found, len(omitted)


def is_omitted(txid: str) -> bool:
    """Whether the simulator's list omits it."""
    return int(txid[2:14], 16) < OMITTED_SHARE * 16**12


def print_omissions() -> None:
    with TemporaryDirectory() as scratch:
        whole, holed, found_h, count = run_virtual(omissions(Path(scratch)), real_threads=True)
    ratio, longest = holed.calls / whole.calls - 1, max(found_h)
    table = Table("430 wallets, 3 days, the list omits 1 %", "", "goal")
    table.add_row("omitted swaps, and found of them", f"{count}, {len(found_h)}", "all")
    table.add_row("hours until found: median", f"{sorted(found_h)[len(found_h) // 2]:.1f}", "")
    table.add_row("hours until found: longest", f"{longest:.1f}", goal(longest, 24))
    table.add_row("calls with and without omissions", f"{holed.calls:,}, {whole.calls:,}", "")
    table.add_row("more calls", f"{ratio:+.1%}", goal(ratio * 100, 3) + " %")
    table.add_row("of them for wallets' lists", f"{holed.kinds[KINDS[3]] - whole.kinds[KINDS[3]]:+,}", "")
    CONSOLE.print(table)


# A throttle


async def throttle(hours: int) -> list[tuple[str, ...]]:
    """Allow one call a minute for some hours, then remove the throttle."""
    clock, throttles = VirtualClock(), []
    chain = new_chain(clock, SIZES[0])

    def wrap(fetch: object) -> Throttle:
        throttles.append(Throttle(fetch, clock, calls=10_000, window_s=60))  # type: ignore[arg-type]  # a Fetch
        return throttles[0]

    rows = []
    async with serving(chain, every(60), wrap=wrap) as service:
        await clock.sleep(COLD_START_H * HOUR_S)
        await begin(clock, chain, service)
        await service.new_runs("feed")
        for hour in range(hours + 2):
            throttles[0].calls = 1 if hour < hours else 10_000
            calls = len(service.simulator.requests)
            await clock.sleep(HOUR_S)
            runs = await service.new_runs("feed")
            read = rows_read(runs)
            made = len(service.simulator.requests) - calls
            costs = await service.costs()
            service.begin()
            name = f"{hour + 1}, throttled" if hour < hours else f"{hour + 1}"
            late = f"{mean(costs.delays_s):.0f}, {max(costs.delays_s):.0f}" if costs.delays_s else ""
            rows.append(
                (
                    name,
                    *map(str, (made, costs.network, read, runs[-1].result["blocksBehind"])),
                    late,
                    str(costs.missing),
                )
            )
    return rows


def print_throttle() -> None:
    table = Table(
        "hour", "calls", "new transactions", "read", "blocks behind at its end", "swaps recorded: mean, max s",
        "missing for 20 min",
    )  # fmt: skip
    for row in run_virtual(throttle(8), real_threads=True):
        table.add_row(*row)
    CONSOLE.print(table)


def rows_read(runs: Sequence[RunRecord]) -> int:
    return sum(int(str(run.result["transactions"])) for run in runs)


# CPU and memory


@dataclass
class Memory:
    """The memory of Python objects: held between runs, and in addition during a run."""

    chain: Chain
    held_mb: list[float] = field(default_factory=list)
    more_mb: list[float] = field(default_factory=list)

    def measure(self, share: float) -> None:
        """Measure after a run, when this share of the backlog is read. Held memory: at a tenth and at the end."""
        now, peak = tracemalloc.get_traced_memory()
        self.more_mb.append((peak - now) / 1e6)
        if share >= (0.1, 1.0)[len(self.held_mb)]:
            for transaction in self.chain.index.all:
                transaction.rendered.clear()  # its parts may reuse our freed memory, and would count as ours
            gc.collect()
            traces = tracemalloc.take_snapshot().filter_traces(NOT_OURS)
            self.held_mb.append(sum(each.size for each in traces.traces) / 1e6)
        tracemalloc.reset_peak()


async def away(chain: Chain, clock: VirtualClock, count: int) -> None:
    """Wait until this many transactions have arrived, at 20,000 a day."""
    before = len(chain.index.all)
    while len(chain.index.all) < before + count:
        await clock.sleep(HOUR_S)
        chain.advance(clock.now())


async def rows() -> tuple[float, float, Memory]:
    """CPU ms per 1,000 rows without the simulator's, the simulator's own, and memory."""
    clock = VirtualClock()
    chain = new_chain(clock, SIZES[0])
    memory = Memory(chain)
    with TemporaryDirectory() as scratch:
        directory = Path(scratch)
        async with serving(chain, every(60), directory=directory) as service:
            await clock.sleep(COLD_START_H * HOUR_S)
            await begin(clock, chain, service)
        ours, simulator, read = await read_backlog(chain, clock, directory, BACKLOG // 10)
        tracemalloc.start()  # what the chain already holds is not traced
        await read_backlog(chain, clock, directory, BACKLOG, memory)
        tracemalloc.stop()
    return ours / read * 1e6, simulator / read * 1e6, memory


async def read_backlog(
    chain: Chain, clock: VirtualClock, directory: Path, count: int, memory: Memory | None = None
) -> tuple[float, float, int]:
    """The service comes back after a downtime and reads: CPU seconds of it and of the simulator, and the rows."""
    await away(chain, clock, count)
    if memory is not None:
        tracemalloc.clear_traces()
    read, began = 0, time.process_time()
    async with serving(chain, every(60), directory=directory) as service:
        while read < count:
            await clock.sleep(60)
            pages = sum(kind_of(request) == KINDS[0] for request in service.simulator.requests)
            read += pages * LIST_PAGE  # asking for runs would make the object load all of them
            service.simulator.requests.clear()  # they also take memory
            if memory is not None:
                memory.measure(read / count)
        simulator_s = service.simulator.cpu_s
    return time.process_time() - began - simulator_s, simulator_s, read


def print_rows() -> None:
    ours, simulator, memory = run_virtual(rows(), real_threads=True)
    table = Table(f"a backlog of {BACKLOG:,} transactions", "", "goal")
    table.add_row("CPU ms per 1,000 rows read: the service", f"{ours:.0f}", "")
    table.add_row("CPU ms per 1,000 rows read: the simulator", f"{simulator:.0f}", "")
    early, late = memory.held_mb[0], memory.held_mb[-1]
    table.add_row("MB held after a tenth, without the simulator", f"{early:.1f}", "")
    table.add_row("MB held after all of it", f"{late:.1f}", goal(late, round(early + 1, 1)))
    table.add_row("MB more during a run, the simulator's included", f"{max(memory.more_mb):.1f}", "")
    CONSOLE.print(table)


PARTS = {
    "month": print_month,
    "growth": print_growth,
    "omissions": print_omissions,
    "throttle": print_throttle,
    "rows": print_rows,
}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=PARTS)
    chosen = parser.parse_args(arguments).part
    for name, part in PARTS.items():
        if chosen in {None, name}:
            began = time.process_time()
            part()
            CONSOLE.print(f"{name}: {time.process_time() - began:.0f} s of CPU\n")


if __name__ == "__main__":
    main()
