"""The feed in the whole service, in virtual time: when a swap is recorded, and what happens when the list fails."""

import asyncio
import re
from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from stacks_simulator.faults import SimulatedFault
from stacks_simulator.hiro_api import NetworkListState
from stacks_simulator.simulator import Simulator
from stacks_simulator.traffic import Traffic, start_traffic
from support.competition import chain_of
from support.simulated_fetch import HIRO_URL, SimulatedFetch
from support.whole_service import SWEEP_S, Service, Spy, Throttle, clock_of, service
from tocsin.fetch import FetchResponse
from tocsin.shape import FreeForm
from tocsin.swaps.feed import ASK_AGAIN_MS
from tocsin.swaps.position import list_ages
from tocsin.upstream.budget import Quota

MINUTE_S, HOUR_S = 60, 3_600
THE_LIST = "/extended/v3/transactions"
BEGUN_S = SWEEP_S + MINUTE_S  # the feed has begun, and a sweep has relied on it
BOUND_S = 2 * SWEEP_S  # without a complete run of the feed for longer, the service is not ready


def busy(*, swaps: float = 60, network: float = 600) -> Simulator:
    """Return a chain on which everybody trades, without reorgs."""
    simulator = chain_of(3)
    traffic = Traffic(swaps=swaps, network=network, floods=0, reorgs=0, kinds={"simple": 1})
    start_traffic(simulator.chain, traffic)
    return simulator


async def lateness(made: Service) -> list[float]:
    """Return the seconds from the block of each swap until it was recorded, the longest last."""
    rows = (await made.db.prepare("SELECT txid, recorded_at FROM swaps").all()).results
    blocks = {row["txid"]: made.simulator.chain.transactions[row["txid"]].block for row in rows}
    late = [row["recorded_at"] / 1000 - block.time_s for row in rows if (block := blocks[row["txid"]])]
    return sorted(late)


async def feed_result(made: Service) -> FreeForm:
    """Return the result of the feed's last run from the status."""
    result = (await made.client().status()).last_result["feed"]
    assert result is not None
    return result


def most_within(calls: Iterable[int], window_s: int) -> int:
    times = list(calls)
    return max(sum(0 <= other - at < window_s * 1000 for other in times) for at in times)


@pytest.mark.slow
async def test_a_swap_is_on_record_within_a_minute_of_its_block(tmp_path: Path) -> None:
    """Two hours of swaps."""
    simulator = busy()
    fetch = SimulatedFetch(simulator, latency_s=0.2)
    async with service(tmp_path, simulator, fetch=fetch) as made:
        await asyncio.sleep(2 * HOUR_S)
        late, result, health = await lateness(made), await feed_result(made), await made.health()
        outcomes = {run.outcome for run in await made.runs("feed")}

    assert len(late) > 100
    assert late[-1] <= MINUTE_S + 2
    assert (result["way"], result["blocksBehind"], result["missingNonces"]) == ("network", 0, 0)
    assert outcomes == {"ok"}
    assert (health.ready, health.state) == (True, "ready")


@pytest.mark.slow
@pytest.mark.parametrize("later_s", [0.0, 0.05, 2.0, 7.0])
async def test_the_first_proof_does_not_wait_for_the_next_slot_of_the_sweep(tmp_path: Path, later_s: float) -> None:
    """Feed and sweep begin together: the lists that were answered before the first look are read once more."""
    simulator = busy()
    simulated = SimulatedFetch(simulator, latency_s=0.06)

    async def slow_list(url: str, **options: Any) -> FetchResponse:
        if f"{THE_LIST}?" in url:
            await asyncio.sleep(later_s)
        return await simulated(url, **options)

    fetch = Spy(slow_list, clock_of(simulator))
    async with service(tmp_path, simulator, fetch=fetch) as made:
        await asyncio.sleep(4 * MINUTE_S)
        result = await feed_result(made)
        sweeps = [(run.outcome, run.result["contractsRead"]) for run in await made.runs("sweep")]
        lists = sum("/principals/" in url for _, url in fetch.calls)
        await asyncio.sleep(2 * SWEEP_S)
        later = [run.trigger for run in await made.runs("sweep")][len(sweeps) :]

    assert result["completeUntilBlock"] is not None
    assert sweeps[0] == ("ok", 40)
    assert len(sweeps) <= 2
    assert lists <= 2 * 40 + 3
    assert later == ["alarm", "alarm"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "fault",
    [
        SimulatedFault(kind="status", status=500, path=THE_LIST),
        SimulatedFault(kind="hang", path=THE_LIST),
        SimulatedFault(kind="wrong_json", path=THE_LIST),
    ],
    ids=lambda fault: fault.kind,
)
async def test_the_sweep_takes_over_from_a_list_that_fails_for_hours(tmp_path: Path, fault: SimulatedFault) -> None:
    """Only the network's list fails: readiness shows it, and the contracts' lists have every swap."""
    simulator = busy()
    async with service(tmp_path, simulator) as made:
        await asyncio.sleep(BEGUN_S)
        simulator.faults.add(fault)
        failed_at = simulator.clock.now()
        told_s = await made.until_not_ready(BOUND_S + 2 * MINUTE_S)
        health = await made.health()
        await asyncio.sleep(HOUR_S)
        late, runs = await lateness(made), await made.runs("feed")
        sweeps = [run for run in await made.runs("sweep") if run.started_at > failed_at + BOUND_S * 1000]
        simulator.faults.clear()
        ready_s = await made.until_ready(BOUND_S)
        await asyncio.sleep(SWEEP_S)
        after, again = (await made.runs("sweep"))[-1], await lateness(made)

    assert BOUND_S - 2 * MINUTE_S <= told_s <= BOUND_S + MINUTE_S
    assert health.state == "overdue"
    assert health.reasons[0].startswith("Transaction feed overdue, no complete run for 3")
    assert {run.outcome for run in runs if run.started_at > failed_at} == {"partial"}
    assert {(run.outcome, run.result["way"], run.result["contractsRead"]) for run in sweeps} == {
        ("ok", "contracts", 40)
    }
    assert late[-1] <= BOUND_S + SWEEP_S + MINUTE_S
    assert ready_s <= 3 * MINUTE_S
    assert again[-1] == late[-1]  # nothing was found later still
    assert (after.result["way"], after.result["contractsRead"]) == ("network", 0)


@pytest.mark.slow
async def test_a_gap_that_cannot_be_filled_does_not_hide_behind_looks_at_the_head(tmp_path: Path) -> None:
    """The head is answered, what follows it is not: the sweep must not rely on a list with a gap."""
    simulator = busy()
    fetch = SimulatedFetch(simulator)

    async def without_pages(url: str, **options: Any) -> FetchResponse:
        if f"{THE_LIST}?" in url and "cursor=" in url:
            return FetchResponse(500, {}, b"{}")
        return await fetch(url, **options)

    async with service(tmp_path, simulator, fetch=without_pages) as made:
        await asyncio.sleep(BEGUN_S)
        simulator.faults.add(SimulatedFault(kind="cut", path=THE_LIST))
        await asyncio.sleep(10 * MINUTE_S)  # a hundred transactions: two pages
        simulator.faults.clear()
        told_s = await made.until_not_ready(BOUND_S)
        health = await made.health()
        await asyncio.sleep(HOUR_S)
        late, result = await lateness(made), await feed_result(made)

    assert told_s <= BOUND_S
    assert "blocks behind" in health.reasons[0]
    assert late[-1] <= BOUND_S + SWEEP_S + MINUTE_S
    assert int(str(result["blocksBehind"])) > 0


@pytest.mark.slow
@pytest.mark.parametrize("state", ["absent", "gone"])
async def test_without_the_list_the_contracts_lists_are_read_and_the_service_is_ready(
    tmp_path: Path, state: NetworkListState
) -> None:
    """An older server, or one that has switched it off: the status says which way is used, and why."""
    simulator = busy()
    fetch = Spy(SimulatedFetch(simulator), clock_of(simulator))
    states: Counter[str] = Counter()
    async with service(tmp_path, simulator, fetch=fetch) as made:
        await asyncio.sleep(BEGUN_S)
        simulator.hiro.network_list = state
        absent_at = simulator.clock.now()
        for _ in range(2 * 60):
            await asyncio.sleep(MINUTE_S)
            states[(await made.health()).state] += 1
        result, late = await feed_result(made), await lateness(made)
        asked = [at for at, url in fetch.calls if f"{THE_LIST}?" in url and at > absent_at]
        simulator.hiro.network_list = "served"
        await asyncio.sleep(2 * ASK_AGAIN_MS / 1000 + MINUTE_S)  # one to measure the traffic from
        back = await feed_result(made)

    assert states == {"ready": 2 * 60}
    assert (result["way"], result["reason"]) == ("contracts", "Hiro does not have the list of all transactions")
    assert len(asked) <= 3  # once an hour
    assert late[-1] <= SWEEP_S + MINUTE_S
    assert (back["way"], back["blocksBehind"]) == ("network", 0)


@pytest.mark.slow
async def test_a_list_that_fails_while_the_other_way_is_used_makes_nothing_late(tmp_path: Path) -> None:
    """A failure to measure the cost of the network's list is not worth an alert: the sweep finds the swaps."""
    simulator = busy()
    fetch = Spy(SimulatedFetch(simulator), clock_of(simulator))
    async with service(tmp_path, simulator, fetch=fetch) as made:
        simulator.hiro.network_list = "absent"
        await asyncio.sleep(5 * MINUTE_S)
        simulator.faults.add(SimulatedFault(kind="status", status=500, path=THE_LIST))
        failed_at = simulator.clock.now()
        ready = []
        for _ in range(3 * 60):
            await asyncio.sleep(MINUTE_S)
            ready.append((await made.health()).ready)
        asked = [at for at, url in fetch.calls if f"{THE_LIST}?" in url and at > failed_at]
        late = await lateness(made)

    assert all(ready)
    assert len(asked) <= 4 * 3  # once an hour, with its retries
    assert late[-1] <= SWEEP_S + MINUTE_S


@pytest.mark.slow
async def test_one_contract_whose_list_always_fails_leaves_the_others_their_turns(tmp_path: Path) -> None:
    """For more than a day: the proof of 39 contracts goes on, and sweeps without anything to read are complete."""
    simulator = chain_of(3)
    async with service(tmp_path, simulator, feed_cadence=216_000, tenero_cadence=6 * HOUR_S * 1000) as made:
        await asyncio.sleep(HOUR_S)
        contract = sorted(made.deps.rules.allowlist.contracts)[7]
        simulator.faults.add(SimulatedFault(kind="status", status=500, path=f"{contract}/transactions"))
        await asyncio.sleep(38 * HOUR_S)
        ages = await list_ages(made.db, made.deps.rules.allowlist.contracts)
        failed = [run for run in await made.runs("sweep") if run.outcome != "ok"]

    oldest, *others = ((name, (simulator.clock.now() - (at or 0)) / 1000) for name, at in ages.items())
    assert oldest[0] == contract
    assert oldest[1] > 37 * HOUR_S
    assert max(age_s for _, age_s in others) < 25 * HOUR_S  # 400 looks are a day at this cadence
    assert failed
    assert {run.outcome for run in failed} <= {"failed", "partial"}
    assert all("hiro answered 500" in f"{run.error} {run.reason}" for run in failed)


@pytest.mark.slow
@pytest.mark.parametrize("retry_after", [2, 30, None])
async def test_a_storm_of_429_is_told_costs_little_and_loses_nothing(tmp_path: Path, retry_after: int | None) -> None:
    """Every call to Hiro is refused for an hour."""
    simulator = busy()
    spy = Spy(SimulatedFetch(simulator), clock_of(simulator))
    async with service(tmp_path, simulator, fetch=spy) as made:
        await asyncio.sleep(BEGUN_S)
        simulator.faults.add(SimulatedFault(kind="limited", upstream="hiro", retry_after=retry_after))
        began_at = simulator.clock.now()
        told_s = await made.until_not_ready(BOUND_S)
        await asyncio.sleep(HOUR_S)
        calls = [at for at in spy.of(HIRO_URL) if at >= began_at]
        runs = [run for run in await made.runs("feed") if run.started_at >= began_at]
        simulator.faults.clear()
        ready_s = await made.until_ready(BOUND_S)
        await asyncio.sleep(2 * MINUTE_S)
        late, behind = await lateness(made), (await feed_result(made))["blocksBehind"]

    assert told_s <= BOUND_S
    assert {run.outcome for run in runs} == {"limited"}
    assert len(calls) <= 60
    assert ready_s <= 10 * MINUTE_S  # the longest back-off
    assert late[-1] <= HOUR_S + told_s + ready_s + 2 * MINUTE_S
    assert behind == 0


@pytest.mark.slow
async def test_with_one_call_a_minute_it_makes_progress_and_says_how_far_behind_it_is(tmp_path: Path) -> None:
    """Too few calls for everything: neither the newest blocks nor the skipped ones wait forever."""
    simulator = busy(swaps=6, network=600)
    clock = clock_of(simulator)
    throttle = Throttle(SimulatedFetch(simulator), clock, 1_000, MINUTE_S)
    behind = []
    async with service(tmp_path, simulator, fetch=throttle) as made:
        await asyncio.sleep(BEGUN_S)
        throttle.calls = 0
        await asyncio.sleep(20 * MINUTE_S)  # two hundred transactions: more than a page
        throttle.calls = 1
        for _ in range(3 * 60):
            await asyncio.sleep(MINUTE_S)
            result, health = await feed_result(made), await made.health()
            behind.append(int(str(result["blocksBehind"])))
            if result["blocksBehind"]:
                told = " ".join([*health.reasons, *health.notes])
                assert re.search(r"the network's list is read up to block \d+, [\d,]+ blocks behind", told)
        late, missing, outcomes = await lateness(made), await made.missing(), await made.runs("sweep")
        throttle.calls = 1_000
        ready_s = await made.until_ready(BOUND_S)
        await asyncio.sleep(2 * MINUTE_S)
        in_the_end = (await made.missing(), (await feed_result(made))["blocksBehind"])

    assert max(behind) >= 200  # of five seconds each
    assert behind[60:] == [0] * len(behind[60:])
    assert late[-1] <= HOUR_S
    assert missing <= 1
    assert outcomes
    assert ready_s <= SWEEP_S
    assert in_the_end == (0, 0)


@pytest.mark.slow
@pytest.mark.parametrize("latency_s", [0.06, 3.0])
async def test_restarted_every_45_seconds_it_keeps_looking(tmp_path: Path, latency_s: float) -> None:
    """For an hour, with a small plan: no window is exceeded, and no look is put off for long."""
    simulator = busy(swaps=6, network=60)
    spy = Spy(SimulatedFetch(simulator, latency_s=latency_s), clock_of(simulator))
    quotas = {"hiro": Quota(second=3, minute=6, is_cap=True)}  # five a minute are for tasks
    late: list[float] = []
    for _ in range(HOUR_S // 45):
        async with service(tmp_path, simulator, fetch=spy, quotas=quotas) as made:
            await asyncio.sleep(45)
            late = await lateness(made)

    looks = [at for at, url in spy.calls if f"{THE_LIST}?" in url]
    calls = spy.of(HIRO_URL)
    assert most_within(calls, MINUTE_S) <= 6
    assert most_within(calls, 1) <= 3
    waits_s = [(after - before) / 1000 for before, after in pairwise(looks)]
    assert max(waits_s) <= 6 * MINUTE_S  # while a sweep, cut off as often, reads every list
    assert sum(wait_s > MINUTE_S for wait_s in waits_s) <= 8
    assert late[-1] <= 8 * MINUTE_S


@pytest.mark.slow
async def test_with_a_sweep_more_often_than_looks_it_is_still_relied_on(tmp_path: Path) -> None:
    """Looks are further apart than sweeps, and nothing is wrong."""
    async with service(tmp_path, chain_of(3), feed_cadence=60_000, sweep_cadence=20_000, sweep_slice=15_000) as made:
        await asyncio.sleep(10 * MINUTE_S)
        ways = {run.result["way"] for run in (await made.runs("sweep"))[1:]}

    assert ways == {"network"}


@pytest.mark.slow
async def test_paused_and_resumed_it_reads_what_was_mined_meanwhile(tmp_path: Path) -> None:
    """No calls during the pause, readiness shows when it is too long, and one run reads everything."""
    simulator = busy()
    spy = Spy(SimulatedFetch(simulator), clock_of(simulator))
    async with service(tmp_path, simulator, fetch=spy) as made:
        await asyncio.sleep(BEGUN_S)
        client = made.client()
        await client.pause_until(simulator.clock.now() + 2 * HOUR_S * 1000)
        spy.calls.clear()
        await asyncio.sleep(HOUR_S)
        paused, during = await made.health(), len(spy.of(HIRO_URL))
        await client.resume()
        await asyncio.sleep(MINUTE_S)
        feed = next(run for run in reversed(await made.runs("feed")) if int(str(run.result["pages"])) > 1)
        sweep = (await made.runs("sweep"))[-1]
        late, result, health = await lateness(made), await feed_result(made), await made.health()

    assert during == 0
    assert (paused.ready, paused.state) == (False, "overdue")
    assert (feed.outcome, feed.result["way"]) == ("ok", "network")
    assert int(str(feed.result["pages"])) > 10
    assert (sweep.outcome, sweep.result["way"]) == ("ok", "contracts")  # it did not wait for the feed
    assert int(str(feed.result["inserted"])) + int(str(sweep.result["inserted"])) > 30
    assert late[-1] <= HOUR_S + 3 * MINUTE_S
    assert (result["blocksBehind"], health.state) == (0, "ready")


@pytest.mark.slow
async def test_feed_and_sweep_in_the_same_alarm_verify_each_transaction_once(tmp_path: Path) -> None:
    """Two hours of many swaps, with a slow upstream."""
    simulator = busy(swaps=300)
    spy = Spy(SimulatedFetch(simulator, latency_s=0.3), clock_of(simulator))
    async with service(tmp_path, simulator, fetch=spy) as made:
        await asyncio.sleep(2 * HOUR_S)
        slots = {task: {run.slot_at for run in await made.runs(task)} for task in ("feed", "sweep")}
        recorded = (await made.db.prepare("SELECT txid FROM swaps").all()).results

    asked = Counter(
        txid
        for _, url in spy.calls
        if "tx/multiple" in url
        for txid in url.partition("tx_id=")[2].replace("%2C", ",").split(",")
    )
    assert len(slots["feed"] & slots["sweep"]) >= 8
    assert len(recorded) > 400
    assert {row["txid"] for row in recorded} <= set(asked)
    assert set(asked.values()) == {1}


@pytest.mark.slow
async def test_a_feed_that_is_switched_on_later_follows_the_list_from_its_first_look_on(tmp_path: Path) -> None:
    """The sweep alone has left no state of it: the first sweep after the first look reads every contract once."""
    simulator = busy()
    async with service(tmp_path, simulator, feed_enabled=False):
        await asyncio.sleep(BEGUN_S)
    await asyncio.sleep(10 * MINUTE_S)
    async with service(tmp_path, simulator) as made:
        await asyncio.sleep(HOUR_S)
        sweeps = [run for run in await made.runs("sweep") if "way" in run.result][-4:]
        late, result, health = await lateness(made), await feed_result(made), await made.health()

    read = [run.result["contractsRead"] for run in sweeps]
    assert read.count(40) == 1
    assert sum(int(str(each)) for each in read) <= 42  # and one list in turn
    assert late[-1] <= SWEEP_S + 10 * MINUTE_S
    assert result["completeUntilBlock"] is not None
    assert (health.ready, health.state) == (True, "ready")
