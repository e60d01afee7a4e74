"""Replays the unnoticed deaths of the reference: how long until readiness and the webhook report them.

The numbers are those of the incidents in the project's history of the reference. Four of them are tested elsewhere: a
start without a visitor (3) in `test_service_process.py`, a run that was cut off (12) and its record (13) in
`scheduler/test_run.py`, and a second scheduler at the same time (15) in `test_service_wiring.py`.
"""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from stacks_simulator.faults import SimulatedFault
from support.competition import chain_of
from support.simulated_fetch import HIRO_URL, SimulatedFetch
from support.whole_service import PRICES_S, SWEEP_S, Spy, clock_of, service
from tocsin.prices.store import get_cached_token_prices
from tocsin.scheduler.health import health_of
from tocsin.scheduler.watch import HealthWatch


@pytest.mark.slow
@pytest.mark.parametrize(
    "fault",
    [
        SimulatedFault(kind="wrong_json", upstream="tenero"),
        SimulatedFault(kind="status", status=404, upstream="tenero"),
        SimulatedFault(kind="hang", upstream="tenero"),
    ],
)
async def test_5_prices_that_no_longer_come_are_told_within_a_cadence(tmp_path: Path, fault: SimulatedFault) -> None:
    """The board had no dollar values for days."""
    async with service(tmp_path) as made:
        await asyncio.sleep(10)
        made.simulator.faults.add(fault)
        while (await made.runs("tenero"))[-1].outcome == "ok":
            await asyncio.sleep(10)
        told_s = await made.until_not_ready(PRICES_S)
        kept = await get_cached_token_prices(made.kv, ["stx"])
        sweep = (await made.client().status()).tasks["sweep"]
        made.simulator.faults.clear()
        ready_s = await made.until_ready(PRICES_S)

    assert told_s <= PRICES_S
    assert kept["stx"].price_usd  # no good price is replaced by none
    assert sweep.condition == "ok"
    assert ready_s <= PRICES_S


async def test_6_a_task_that_is_switched_off_is_told_at_once(tmp_path: Path) -> None:
    """A flag was missing in the live deployment, and prices were skipped for six days."""
    async with service(tmp_path, tenero_enabled=False) as made:
        health = await made.health()
        await made.until_not_ready(60)

    assert (health.ready, health.state) == (False, "disabled")
    assert health.reasons == ["Token prices switched off (TOCSIN_TENERO_ENABLED)"]


@pytest.mark.slow
async def test_8_an_object_whose_storage_was_wiped_goes_on(tmp_path: Path) -> None:
    """All scheduled work stopped for weeks. Here the watch finds that no alarm is set, and sets it."""
    simulator = chain_of(3)
    async with service(tmp_path, simulator):
        await asyncio.sleep(60)
    with closing(sqlite3.connect(tmp_path / "objects.sqlite")) as objects, objects:
        objects.executescript("DELETE FROM entries; DELETE FROM alarms")
    async with service(tmp_path, simulator, arm=False) as made:
        clock = made.clock
        watch = HealthWatch(made.client, made.kv, clock)
        await watch.check()
        told = health_of(await watch.snapshot(), clock.now())
        await asyncio.sleep(60)
        healed, runs = await made.health(), await made.runs("sweep")

    assert told.reasons == ["no alarm is set: no task will run"]
    assert (healed.ready, healed.state) == (True, "ready")
    assert [run.outcome for run in runs] == ["ok"]  # of the new history


@pytest.mark.slow
async def test_10_an_upstream_that_treats_us_as_anonymous_and_limits_us_freezes_nothing_else(tmp_path: Path) -> None:
    """Every tick died after five retries of a hundred calls. Here a run makes few calls, ends, and reports why."""
    simulator = chain_of(100)
    clock = clock_of(simulator)
    spy = Spy(SimulatedFetch(simulator), clock)
    async with service(tmp_path, simulator, fetch=spy) as made:
        await asyncio.sleep(60)
        simulator.faults.add(SimulatedFault(kind="limited", upstream="hiro", retry_after=None))
        limited_at = clock.now()
        spy.calls.clear()
        await asyncio.sleep(SWEEP_S)
        told_s = await made.until_not_ready(SWEEP_S)
        runs = [run for run in await made.runs("feed") if run.started_at > limited_at]
        sweeps, prices = (await made.runs("sweep"))[1:], await made.runs("tenero")

    assert {run.outcome for run in runs} == {"limited"}
    assert {run.outcome for run in sweeps if run.calls} <= {"limited"}
    assert max(run.duration_ms or 0 for run in (*runs, *sweeps)) < 60_000
    assert len(spy.of(HIRO_URL)) <= 2 * len(runs)
    assert told_s <= SWEEP_S
    assert {run.outcome for run in prices} == {"ok"}


@pytest.mark.slow
async def test_14_an_alarm_that_does_not_ring_is_told_within_a_cadence(tmp_path: Path) -> None:
    """The trigger stopped firing after a deployment of the site."""
    async with service(tmp_path) as made:
        await asyncio.sleep(70)
        clock_of(made.simulator).close()  # nothing rings any more
        due_at = (await made.client().status()).next_alarm_at
        assert due_at is not None
        await asyncio.sleep((due_at - made.clock.now()) / 1000)
        told_s = await made.until_not_ready(PRICES_S, alerted=False)  # heartbeats end instead
        reason = (await made.health()).reasons[0]

    assert told_s <= 70
    assert reason.startswith("the alarm is ")
