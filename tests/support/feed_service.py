"""Helpers for tests of the feed in the whole service: a busy chain, the lateness of swaps, the feed's status."""

from collections.abc import Iterable

from holdfast_testing.virtual_time import VirtualClock
from stacks_simulator.simulator import Simulator
from stacks_simulator.traffic import Traffic, start_traffic
from support.competition import chain_of
from support.whole_service import Service
from tocsin.shape import FreeForm


def busy(*, swaps: float = 60, network: float = 600) -> Simulator:
    """Return a chain on which everybody trades, without reorgs."""
    simulator = chain_of(3)
    traffic = Traffic(swaps=swaps, network=network, floods=0, reorgs=0, kinds={"simple": 1})
    start_traffic(simulator.chain, traffic)
    return simulator


def clock_of(simulator: Simulator) -> VirtualClock:
    assert isinstance(simulator.clock, VirtualClock)
    return simulator.clock


async def lateness(made: Service) -> list[float]:
    """Return the seconds from the block of each swap until it was recorded, the longest last."""
    rows = (await made.db.prepare("SELECT txid, recorded_at FROM swaps").all()).results
    blocks = {row["txid"]: made.simulator.chain.transactions[row["txid"]].block for row in rows}
    late = [row["recorded_at"] / 1000 - block.time_s for row in rows if (block := blocks[row["txid"]])]
    return sorted(late)


async def feed_result(made: Service) -> FreeForm:
    """Return the result of the feed's last run from the status."""
    result = (await made.scheduler.client().status()).last_result["feed"]
    assert result is not None
    return result


def most_within(calls: Iterable[int], window_s: int) -> int:
    times = list(calls)
    return max(sum(0 <= other - at < window_s * 1000 for other in times) for at in times)
