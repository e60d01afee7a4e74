"""Compare the sweep with the reference: calls and time per page of wallets, and the delay of swaps in a day.

python bench/measure_sweep.py               both tables
python bench/measure_sweep.py --part day    one of them: pages or day

It runs in virtual time with 60 ms per call, so the figures are reproducible.
"""

import argparse
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1] / "packages/holdfast/tests"))

from holdfast.testing.virtual_time import VirtualClock, run_virtual
from stacks_simulator.chain import Chain
from stacks_simulator.rate_limits import UNLIMITED, HiroRateLimit
from stacks_simulator.simulator import Simulator
from stacks_simulator.traffic import Traffic, start_traffic
from support.competition import CADENCE_MS, World, chain_of, number, open_world, sweep
from tocsin.swaps.rules import built_in
from tocsin.swaps.sweep import Sweep
from tocsin.upstream.budget import Quota

LATENCY_S = 0.06
WALLETS = 430
HIRO_PLAN = Quota(second=20, minute=500, month=150_000)

# Measured on the reference with the same load and latency: seconds and calls for a page of 100 wallets.
REFERENCE_PAGES = {"cold": (54.95, 800), "warm": (20.94, 300), "quiet": (6.30, 100)}
# The minutes in which the reference reads all wallets once (measured for 430, modeled for 951).
# The mean delay is half of it.
REFERENCE_PASS_MIN = {430: 76.7, 951: 154.0}


@dataclass(frozen=True)
class PartCost:
    """The cost of a part of a sweep."""

    calls: int
    seconds: float
    cpu_s: float
    inserted: int


async def measure(world: World, part: Callable[[Sweep], Awaitable[None]]) -> PartCost:
    calls, started_at, cpu = len(world.simulator.requests), world.clock.monotonic(), time.process_time()
    run = Sweep(world.run(), world.rules, cadence_ms=CADENCE_MS)
    await run.prepare()
    await part(run)
    return PartCost(
        len(world.simulator.requests) - calls,
        world.clock.monotonic() - started_at,
        time.process_time() - cpu,
        run.counts.tally.inserted,
    )


def reference_load() -> Simulator:
    """A chain with 25 transactions per wallet: 5 swaps, 1 aborted, 18 others, and 1 that stays pending."""
    simulator = chain_of(WALLETS)
    chain = simulator.chain
    for wallet in chain.wallets:
        chain.burst(wallet, 5)
        chain.swap(wallet, "abort_by_response")
        chain.dust(wallet, 18)
        chain.swap(wallet, wait_ms=None)
    return simulator


async def pages(plan: Quota | None) -> None:
    """Read the lists of wallets, like the reference, then those of contracts with all wallets' swaps."""
    simulator = reference_load()
    simulator.hiro_rate_limit = HiroRateLimit(UNLIMITED, UNLIMITED) if plan is None else HiroRateLimit()
    await simulator.clock.sleep(3_600)
    simulator.advance()
    with TemporaryDirectory() as directory:
        limits = {} if plan is None else {"plan": plan}
        async with open_world(Path(directory), simulator, latency_s=LATENCY_S, **limits) as world:  # type: ignore[arg-type]  # one optional argument
            hundred = sorted(wallet.address for wallet in simulator.chain.wallets)[:100]

            async def wallets(run: Sweep) -> None:
                await run.read_lists((), hundred)
                await run.verify_queued()

            async def contracts(run: Sweep) -> None:
                await run.read_lists(built_in().contracts, ())
                await run.verify_queued()

            rows = [
                ("100 wallets, cold", "cold", await measure(world, wallets)),
                ("100 wallets, warm", "warm", await measure(world, wallets)),
                ("40 contracts (all 430 wallets), cold", "", await measure(world, contracts)),
                ("40 contracts (all 430 wallets), quiet", "quiet", await measure(world, contracts)),
            ]
    print("\nplan: " + ("none" if plan is None else f"{plan.second} a second, {plan.minute} a minute"))
    print(f"{'':<40}{'calls':>7}{'seconds':>9}{'CPU s':>7}{'inserted':>10}   reference")
    for name, key, cost in rows:
        seconds, calls = REFERENCE_PAGES.get(key, (None, None))
        reference = "" if seconds is None else f"{calls} calls, {seconds} s (100 wallets)"
        print(f"{name:<40}{cost.calls:>7}{cost.seconds:>9.2f}{cost.cpu_s:>7.2f}{cost.inserted:>10}   {reference}")


async def day(wallets: int) -> None:
    """A day of traffic under Hiro's limits: the delay from the block to the row, in minutes."""
    clock = VirtualClock()
    chain = Chain(seed=1, start_ms=clock.now(), wallets=wallets)
    start_traffic(chain, Traffic(swaps=60, strangers=60, transfers=90, floods=0.2, reorgs=0.25))
    simulator = Simulator(chain, clock, hiro_rate_limit=HiroRateLimit())
    with TemporaryDirectory() as directory:
        async with open_world(Path(directory), simulator, plan=HIRO_PLAN, latency_s=LATENCY_S) as world:
            await warm_up(world)
            start_ms, first_call = clock.now(), len(simulator.requests)
            for slot in range(1, 97):
                await sweep(world)
                await clock.sleep(max(0.0, (start_ms + slot * CADENCE_MS - clock.now()) / 1000))
            calls = len(simulator.requests) - first_call
            delays = await delays_min(world, start_ms)
            refusals = await world.all("SELECT count(*) AS n FROM refusals WHERE refused_at >= ?", start_ms)
    pass_min = REFERENCE_PASS_MIN[wallets]
    lists = wallets * 24 * 60 / pass_min
    reference = lists + len(delays) + refusals[0]["n"]
    print(
        f"{wallets:>7}{len(delays):>8}{calls:>8}{mean(delays):>8.1f}{max(delays):>7.1f}"
        f"   {reference:,.0f} calls ({lists:,.0f} lists, one per listed call), "
        f"{pass_min / 2:.1f}, {pass_min:.0f}"
    )


async def warm_up(world: World) -> None:
    """Run the first sweeps, which read every wallet for the first time."""
    while number((await sweep(world)).counters, "scanned") >= 100:
        await world.clock.sleep(900)
    await world.clock.sleep(900)


async def delays_min(world: World, since_ms: int) -> list[float]:
    rows = await world.all("SELECT txid, recorded_at FROM swaps WHERE recorded_at >= ?", since_ms)
    transactions = world.simulator.chain.transactions
    blocks = [(row["recorded_at"], transactions[row["txid"]].block) for row in rows]
    return [(at - block.time_s * 1000) / 60_000 for at, block in blocks if block is not None]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=("pages", "day"))
    part = parser.parse_args().part
    if part in {None, "pages"}:
        run_virtual(pages(None), real_threads=True)
        run_virtual(pages(HIRO_PLAN), real_threads=True)
    if part in {None, "day"}:
        print("\na day, sweeps every 15 min, under 20 calls a second, 500 a minute, 150,000 a month; minutes")
        print(f"{'wallets':>7}{'swaps':>8}{'calls':>8}{'mean':>8}{'max':>7}   reference: calls, mean, max")
        for wallets in REFERENCE_PASS_MIN:
            run_virtual(day(wallets), real_threads=True)


if __name__ == "__main__":
    main()
