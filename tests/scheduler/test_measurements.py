"""What the scheduler measures: runs, calls and the alarm, across instances and processes."""

import asyncio
from pathlib import Path

from holdfast_testing.virtual_time import VirtualClock
from support.scheduler import MINUTE, Job, scheduler
from support.scripted_fetch import Request, ScriptedFetch, response
from support.stored_states import QUOTAS, refresh_prices
from tocsin.fetch import FetchResponse
from tocsin.scheduler.stored import Measurements
from tocsin.scheduler.types import Histogram, Measures

PRICE = response({"data": {"address": "stx", "price_usd": 1, "decimals": 6}})


def test_a_histogram_counts_by_bounds_that_belong_to_the_lower_part() -> None:
    """As Prometheus has it: at most the bound; what is longer than all of them is counted last."""
    counted = Histogram([0.1, 1.0])
    for seconds in (0.05, 0.1, 0.2, 1.0, 7.5):
        counted.add(seconds)

    assert (counted.counts, round(counted.sum, 6)) == ([2, 2, 1], 8.85)


async def test_runs_calls_and_alarms_are_counted_across_restarts(tmp_path: Path) -> None:
    """By task, and by upstream and class of answer: two calls of three seconds, one of them limited."""
    answers = iter([PRICE, response({}, status=429, headers={"retry-after": "100"}), PRICE])

    async def reply(_request: Request) -> FetchResponse:
        await asyncio.sleep(3)
        return next(answers)

    clock, counted, again = VirtualClock(), Measurements().measures(), None
    for _ in range(2):
        job = Job("tenero", 5 * MINUTE, run=refresh_prices)
        async with scheduler(tmp_path, job, clock=clock, fetch=ScriptedFetch(reply), quotas=QUOTAS) as made:
            await asyncio.sleep(4 * 60)
            counted = await made.client().measures()
            both = await made.client().measured_status()
            assert (both.measures, both.status) == (counted, await made.client().status())
            made.reset()  # the object is built again
            again = await made.client().measures()

    assert again == counted
    assert sum(counted.run_seconds["tenero"].counts) == 2
    assert counted.run_seconds["tenero"].counts[4] == 2  # 2.5 to 5 s
    assert {kind: sum(found.counts) for kind, found in counted.call_seconds["tenero"].items()} == {
        "ok": 1,
        "limited": 1,
    }
    assert counted.call_seconds["tenero"]["ok"].sum == 3
    assert sum(counted.alarm_lateness.counts) >= 2
    assert counted.alarm_lateness.counts[0] >= 2  # virtual time is punctual


def test_counts_by_other_bounds_begin_again() -> None:
    """A release may change the bounds; the counts of the old ones would be wrong."""
    old = Histogram([1.0, 2.0], [5, 5, 5], 9.0)
    kept = Measurements(Measures({"sweep": old}, {"hiro": {"ok": old}}, old)).measures()

    assert kept.run_seconds == {}
    assert kept.call_seconds == {"hiro": {}}
    assert sum(kept.alarm_lateness.counts) == 0
