"""What the scheduler measures: runs, calls and the alarm, across instances and processes."""

import asyncio
from pathlib import Path

import pytest

from holdfast.testing.virtual_time import VirtualClock
from support.scheduler import QUOTAS, ended_run, prices, refresh_prices, scheduler
from support.scripted_fetch import Request, ScriptedFetch, response
from tocsin.fetch import FetchResponse
from tocsin.scheduler.types import Histogram, Measures

PRICE = response({"data": {"address": "stx", "price_usd": 1, "decimals": 6}})


def test_a_bound_of_a_histogram_belongs_to_the_lower_part() -> None:
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

    clock, counted, again = VirtualClock(), Measures(), None
    for _ in range(2):
        job = prices(refresh_prices)
        async with scheduler(tmp_path, job, clock=clock, fetch=ScriptedFetch(reply), quotas=QUOTAS) as made:
            await asyncio.sleep(4 * 60)
            both = await made.client().measured_status()
            assert both.status == await made.status()
            made.reset()  # the object is built again
            counted, again = both.measures, (await made.client().measured_status()).measures

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


OLD = Histogram([1.0, 2.0], [5, 5, 5], 9.0)


@pytest.mark.parametrize("old", [Measures({"sweep": OLD}), Measures({}, {"hiro": {"ok": OLD}}), Measures({}, {}, OLD)])
def test_counts_with_other_bounds_start_over(old: Measures) -> None:
    """A release may change the bounds; the counts of the old ones would be wrong."""
    assert Measures.from_json(old.to_json()) == Measures()


def test_the_bounds_of_the_histograms() -> None:
    """Dashboards and alert rules depend on them: a change affects everybody who measures."""
    measures = Measures()
    measures.run_ended(ended_run(1))
    measures.call_answered("hiro", "ok", 0.07)
    for late_ms in (-5_000, 0, 30):
        measures.alarm_rang(late_ms)

    runs, calls = measures.run_seconds["tenero"], measures.call_seconds["hiro"]["ok"]
    assert runs.bounds == [0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600]
    assert (runs.counts[0], runs.sum) == (1, 0.1)
    assert calls.bounds == [0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 8]
    assert measures.alarm_lateness.bounds == [0.01, 0.05, 0.1, 0.5, 1, 5, 15, 60, 300]
    assert (measures.alarm_lateness.counts[:2], measures.alarm_lateness.sum) == ([2, 1], 0.03)


def test_a_run_that_was_cut_off_is_not_measured() -> None:
    """Nobody knows how long it took."""
    measures = Measures()
    measures.run_ended(ended_run(1, outcome="interrupted"))

    assert measures == Measures()
