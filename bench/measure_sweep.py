"""Compare the sweep with the reference: the calls of a day, and the delay of its swaps.

It runs in virtual time with 60 ms per call, so the figures are reproducible.
"""

import sys
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1] / "packages/holdfast/tests"))

from holdfast.testing.virtual_time import VirtualClock, run_virtual
from stacks_simulator.chain import Chain
from stacks_simulator.rate_limits import HiroRateLimit
from stacks_simulator.simulator import Simulator
from stacks_simulator.traffic import Traffic, start_traffic
from support.competition import CADENCE_MS, World, number, open_world, sweep
from tocsin.upstream.budget import Quota

LATENCY_S = 0.06
HIRO_PLAN = Quota(second=20, minute=500, month=150_000)

# The minutes in which the reference reads all wallets once (measured for 430, modeled for 951).
# The mean delay is half of it.
REFERENCE_PASS_MIN = {430: 76.7, 951: 154.0}


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


if __name__ == "__main__":
    print("a day, sweeps every 15 min, under 20 calls a second, 500 a minute, 150,000 a month; minutes")
    print(f"{'wallets':>7}{'swaps':>8}{'calls':>8}{'mean':>8}{'max':>7}   reference: calls, mean, max")
    for size in REFERENCE_PASS_MIN:
        run_virtual(day(size), real_threads=True)
