"""What the service reports about itself while its upstreams fail, in virtual time: replays of known faults.

The time until `/readyz` and the webhook report it is counted from the first run that met the fault.
"""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from stacks_simulator.faults import SimulatedFault
from support.competition import chain_of
from support.simulated_fetch import HIRO_URL, SimulatedFetch
from support.whole_service import PRICES_S, SWEEP_S, Spy, Throttle, clock_of, service
from tocsin.swaps.position import list_ages
from tocsin.upstream.budget import Quota


@pytest.mark.slow
async def test_a_sweep_of_which_every_call_is_limited_is_not_a_success(tmp_path: Path) -> None:
    """The silent rate limit: no run is ok, none renews the last success, and readiness shows it within a cadence."""
    async with service(tmp_path, feed_enabled=False) as made:
        await asyncio.sleep(60)
        complete_at = (await made.client().status()).tasks["sweep"].last_success_at
        made.simulator.faults.add(SimulatedFault(kind="limited", upstream="hiro", retry_after=2))
        made.simulator.chain.burst(made.simulator.chain.wallets[0], 11)
        made.simulator.chain.mine()
        await asyncio.sleep(SWEEP_S + 30)  # the run ends when its upstream asks it to wait for longer than a minute
        first = await made.health()
        told_s = await made.until_not_ready(SWEEP_S)
        reason = (await made.health()).reasons[0]
        await asyncio.sleep(4 * SWEEP_S)
        during, status = (await made.runs("sweep"))[1:], await made.client().status()
        made.simulator.faults.clear()
        ready_s = await made.until_ready(SWEEP_S)
        missing = await made.missing()

    assert (first.ready, first.state) == (True, "limited")
    assert first.notes[0].startswith("Swap sweep limited: hiro")
    assert told_s <= SWEEP_S
    assert reason.startswith("Swap sweep failed 3 times: hiro")
    assert {run.outcome for run in during} == {"limited"}
    assert status.tasks["sweep"].last_success_at == complete_at
    assert (status.tasks["sweep"].failing, status.tasks["tenero"].condition) == (True, "ok")
    assert ready_s <= SWEEP_S
    assert missing == 0


@pytest.mark.slow
@pytest.mark.parametrize(("calls", "window_s"), [(15, SWEEP_S), (1, 60)])
async def test_a_throttled_sweep_makes_progress_and_says_that_it_is_not_complete(
    tmp_path: Path, calls: int, window_s: int
) -> None:
    """Fifteen calls per cadence for 40 lists: every swap is stored within seven cadences, and no run is ok."""
    simulator = chain_of(3)
    throttle = Throttle(SimulatedFetch(simulator), clock_of(simulator), calls, window_s)
    async with service(tmp_path, simulator, fetch=throttle, feed_enabled=False) as made:
        chain = simulator.chain
        for _ in range(10):
            for wallet in chain.wallets:
                chain.swap(wallet)
        chain.mine()
        missing = []
        for _ in range(7):
            await asyncio.sleep(SWEEP_S)
            missing.append(await made.missing())
        runs, health = await made.runs("sweep"), await made.health()
        ages = await list_ages(made.db, made.deps.rules.allowlist.contracts)

    assert None not in ages.values()  # wallets' lists show these swaps too: the contracts' must have had their turn
    assert missing[1] < 30  # the second run records what the first one found
    assert missing[-1] == 0
    assert "ok" not in {run.outcome for run in runs}
    assert (health.ready, health.state) == (False, "overdue")


@pytest.mark.slow
@pytest.mark.parametrize(("every_s", "minutes"), [(5, 10), (45, 60), (70, 60)])
async def test_restarted_over_and_over_it_spends_what_it_may_and_no_more(
    tmp_path: Path, every_s: int, minutes: int
) -> None:
    """Some fifty restarts or more: no window is exceeded, and at least 80 % of the affordable calls are made."""
    simulator = chain_of(400)
    spy = Spy(SimulatedFetch(simulator, latency_s=0.06), clock_of(simulator))
    quotas = {"hiro": Quota(second=3, minute=6, is_cap=True)}  # five a minute are for tasks
    for _ in range(minutes * 60 // every_s):
        async with service(tmp_path, simulator, fetch=spy, quotas=quotas):
            await asyncio.sleep(every_s)

    calls = spy.of(HIRO_URL)
    assert max(sum(0 <= other - at < 60_000 for other in calls) for at in calls) <= 6
    assert max(sum(0 <= other - at < 1_000 for other in calls) for at in calls) <= 3
    assert len(calls) >= 0.8 * 5 * minutes


@pytest.mark.slow
async def test_a_refresh_sends_one_call_through_a_closed_limiter_and_success_opens_it(tmp_path: Path) -> None:
    """One 429 with a wrong Retry-After must not keep an operator from trying."""
    simulator = chain_of(3)
    spy = Spy(SimulatedFetch(simulator), clock_of(simulator))
    async with service(tmp_path, simulator, fetch=spy) as made:
        await asyncio.sleep(60)
        fault = SimulatedFault(kind="limited", upstream="hiro", retry_after=86_400)
        simulator.faults.add(fault)
        await asyncio.sleep(SWEEP_S)
        spy.calls.clear()
        limited = await made.client().refresh("sweep")
        probes = len(spy.of(HIRO_URL))
        closed_until = (await made.client().status()).budgets["hiro"].closed_until
        simulator.faults.clear()
        opened = await made.client().refresh("sweep")
        status = await made.client().status()

    assert (limited.run.outcome, probes) == ("limited", 1)
    assert closed_until is not None
    assert (opened.run.outcome, opened.summary["contractsRead"]) == ("ok", 40)
    assert status.budgets["hiro"].closed_until is None
    assert status.next_run_after["sweep"] is None


@pytest.mark.slow
async def test_a_clock_that_is_set_back_moves_no_back_off_and_hides_no_failure(tmp_path: Path) -> None:
    """Half a minute stays half a minute, and a success does not become younger."""
    async with service(tmp_path) as made:
        clock = clock_of(made.simulator)
        await asyncio.sleep(10)
        made.simulator.faults.add(SimulatedFault(kind="limited", upstream="tenero", retry_after=400))
        await asyncio.sleep(PRICES_S)
        held_ms = ((await made.client().status()).next_run_after["tenero"] or 0) - clock.now()
        clock.jump(-5 * 3_600_000)
        status = await made.client().status()
        still_held_ms = (status.next_run_after["tenero"] or 0) - clock.now()
        last_success_at = status.tasks["tenero"].last_success_at
        told_s = await made.until_not_ready(2 * PRICES_S)
        made.simulator.faults.clear()
        ready_s = await made.until_ready(2 * PRICES_S)

    assert 380_000 <= held_ms == still_held_ms <= 400_000
    assert last_success_at is not None
    assert last_success_at < status.now
    assert told_s <= PRICES_S + 30  # the alarm was set by the clock that jumped
    assert ready_s <= 2 * PRICES_S


@pytest.mark.slow
async def test_a_call_without_events_is_asked_for_again(tmp_path: Path) -> None:
    """An index that lags shows a swap without its transfers: unknown, not refused."""
    simulator = chain_of(3)
    spy = Spy(SimulatedFetch(simulator), clock_of(simulator))
    async with service(tmp_path, simulator, fetch=spy) as made:
        await asyncio.sleep(60)
        spy.events_hidden = True
        simulator.chain.burst(simulator.chain.wallets[0], 3)
        simulator.chain.mine()
        await asyncio.sleep(SWEEP_S)
        refused = (await made.db.prepare("SELECT txid FROM refusals").all()).results
        hidden = await made.missing()
        spy.events_hidden = False
        await asyncio.sleep(SWEEP_S + 120)
        missing = await made.missing()

    assert (refused, hidden, missing) == ([], 3, 0)


@pytest.mark.slow
async def test_a_refusal_that_rests_on_a_wrong_answer_is_looked_at_again_within_a_day(tmp_path: Path) -> None:
    """Hidden for hours, it is refused. A day later it is verified again."""
    simulator = chain_of(3)
    spy = Spy(SimulatedFetch(simulator), clock_of(simulator), events_hidden=True)
    rarely: dict[str, Any] = {"tenero_cadence": 6 * 3_600_000, "feed_cadence": SWEEP_S * 1000}  # neither matters here
    async with service(tmp_path, simulator, fetch=spy, **rarely) as made:
        await asyncio.sleep(60)
        simulator.chain.burst(simulator.chain.wallets[0], 3)
        simulator.chain.mine()
        await asyncio.sleep(12 * SWEEP_S)
        refused = len((await made.db.prepare("SELECT txid FROM refusals").all()).results)
        spy.events_hidden = False
        await asyncio.sleep(86_400)
        missing = await made.missing()

    assert (refused, missing) == (3, 0)


@pytest.mark.slow
async def test_one_list_that_fails_for_ever_is_told_with_its_age(tmp_path: Path) -> None:
    """39 of 40 is not everything: the run is partial, and the list is the oldest one in the status."""
    async with service(tmp_path, feed_enabled=False) as made:
        await asyncio.sleep(60)
        contract = sorted(made.deps.rules.allowlist.contracts)[7]
        made.simulator.faults.add(SimulatedFault(kind="status", status=500, path=f"{contract}/transactions"))
        await asyncio.sleep(SWEEP_S + 30)  # the run ends when its upstream asks it to wait for longer than a minute
        first = await made.health()
        told_s = await made.until_not_ready(SWEEP_S)
        runs = await made.runs("sweep")
        oldest = next(iter((await list_ages(made.db, made.deps.rules.allowlist.contracts)).items()))

    assert (first.ready, first.state) == (True, "partial")
    assert told_s <= SWEEP_S
    assert {run.outcome for run in runs[1:]} == {"partial"}
    assert runs[1].reason is not None
    assert runs[1].reason.startswith(f"{contract}: hiro answered 500 (39 of 40 contracts' lists were read")
    assert oldest == (contract, runs[0].started_at)


@pytest.mark.slow
async def test_a_permit_that_our_own_budget_refuses_is_not_a_failure(tmp_path: Path) -> None:
    """An operator's refreshes do not make the service unready; a larger plan after a restart ends the wait."""
    simulator = chain_of(1)
    small, large = Quota(minute=10, month=20), Quota(minute=100, month=50_000)
    async with service(tmp_path, simulator, quotas={"tenero": small}) as made:
        await asyncio.sleep(30)
        results = [await made.client().refresh("tenero") for _ in range(13)]
        status, health = await made.client().status(), await made.health()
    async with service(tmp_path, simulator, quotas={"tenero": large}) as made:
        await asyncio.sleep(1)
        cleared = await made.client().status()

    refused = [result.run for result in results if result.run.outcome == "limited"]
    assert len(refused) >= 10
    assert refused[-1].reason is not None
    assert "paced: " in refused[-1].reason
    assert ", next call 2026-05-" in refused[-1].reason
    assert status.consecutive_failures["tenero"] == 0
    assert (health.ready, health.state) == (True, "limited")
    assert status.next_run_after["tenero"] is not None
    assert cleared.next_run_after["tenero"] is None
    assert cleared.tasks["tenero"].effective_cadence_ms == PRICES_S * 1000
