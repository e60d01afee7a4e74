"""The task `feed`: calls a month, the delay of swaps, a list with omissions, and a throttle.

python bench/measure_feed.py                  all tables
python bench/measure_feed.py --part month     one of them: month, omissions, throttle

The real scheduler runs in virtual time with 60 ms per call, under Hiro's plan of 20 calls a second, 500 a minute and
150,000 a month. The figures are reproducible. A month is 30 days.

The measurement begins when no wallet is unread and the contracts' lists have their turns, and lasts a whole turn. Until
then the rest of the network is silent, which does not affect the lists of contracts and wallets.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1] / "packages/holdfast/tests"))

from feed_service import KINDS, WITHOUT_FEED, Costs, Service, every, join_network, mined_ms, new_chain, serving, warm_up

from holdfast.testing.virtual_time import VirtualClock, run_virtual
from stacks_simulator.chain import Chain
from support.whole_service import Throttle
from tocsin.scheduler.types import RunRecord

CONSOLE = Console(width=130)
HOUR_S = 3_600
SIZES = (430, 951)
TURN_H = 24  # of all contracts' lists, with looks every minute
SLOW_TURN_H = 101  # with looks every 15 minutes
COLD_START_H = 2  # all lists are read once
SETTLE_H = 1  # after the rest of the network has begun
OMITTED_SHARE = 0.01


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


PARTS = {"month": print_month, "omissions": print_omissions, "throttle": print_throttle}


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
