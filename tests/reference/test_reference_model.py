"""The model of the reference behaves as measured: the reference's own cases, and the probes of its baseline.

The figures are those that were measured on the real code; docs/reference-month.md has some of them side by side.
"""

import asyncio
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import pytest
from month_services import CountingSimulator
from reference_model import ReferenceModel
from reference_rules import ReferenceRefusal, ReferenceSwap, parse_legs, verify_fetched

from holdfast.testing.virtual_time import VirtualClock
from stacks_simulator.chain import Chain
from stacks_simulator.faults import SimulatedFault
from stacks_simulator.rate_limits import UNLIMITED, HiroRateLimit, TeneroRateLimit
from stacks_simulator.tokens import FILLER_TOKENS
from stacks_simulator.truth import COMPETITION_START_S
from support.reference_cases import PARSE_CASES, VERIFY_CASES
from support.simulated_fetch import SimulatedFetch
from tocsin.swaps.rules import built_in

LIMITED = SimulatedFault(kind="limited", upstream="hiro", retry_after=None)


def model_of(wallets: int) -> tuple[ReferenceModel, CountingSimulator]:
    clock = VirtualClock()
    chain = Chain(seed=1, start_ms=clock.now(), wallets=wallets)
    simulator = CountingSimulator(chain, clock)
    simulator.hiro_rate_limit = HiroRateLimit(UNLIMITED, UNLIMITED)
    simulator.tenero_rate_limit = TeneroRateLimit(UNLIMITED, UNLIMITED)
    fetch = SimulatedFetch(simulator, latency_s=0.06)
    contracts = built_in().contracts
    return ReferenceModel(fetch, clock, chain.wallets, contracts, chain.campaign.start_s), simulator


def asked(simulator: CountingSimulator, part: str) -> list[str]:
    return [request.path for request in simulator.requests if part in request.path]


def eligible(simulator: CountingSimulator) -> str:
    return next(wallet.address for wallet in simulator.chain.wallets if wallet.tier == "eligible")


@pytest.mark.parametrize("case", PARSE_CASES, ids=lambda case: str(case["name"]))
def test_it_reads_legs_as_the_reference_does(case: Mapping[str, Any]) -> None:
    expected, parsed = case["expected"], parse_legs(case["tx"])

    assert isinstance(parsed, ReferenceSwap) == expected["ok"]
    if isinstance(parsed, ReferenceSwap):
        names = ("token_in", "amount_in", "token_out", "amount_out")
        assert {name: getattr(parsed, name) for name in names} == {name: expected[name] for name in names}


FETCHED = [
    case
    for case in VERIFY_CASES
    if case["hiro"] and case["hiro"].get("status") == 200
    if not case["db"]["fail_on"] and not case["db"]["existing_row"]
]


@pytest.mark.parametrize("case", FETCHED, ids=lambda case: str(case["name"]))
def test_it_verifies_in_the_order_of_the_reference(case: Mapping[str, Any]) -> None:
    sender, tx, expected = case["db"]["sender"], case["hiro"]["body"], case["expected"]
    tier = "eligible" if sender["has_identity"] else "genesis"
    tiers = {tx["sender_address"]: tier if sender["genesis"] else "registered"} if sender["registered"] else {}

    verdict = verify_fetched(tx, COMPETITION_START_S, tiers, built_in().contracts)

    if expected["status"] == "pending":
        assert verdict is None
    elif expected["status"] == "rejected":
        assert verdict == ReferenceRefusal(expected["code"])
    else:
        assert isinstance(verdict, ReferenceSwap)


async def test_a_sweep_without_activity_takes_6_seconds_and_100_calls() -> None:
    model, simulator = model_of(100)
    await model._sweep()

    assert len(asked(simulator, "/address/")) == 100
    assert 5.9 < simulator.clock.monotonic() < 6.4  # measured: 6.30


async def test_limited_by_hiro_every_attempt_visits_the_same_58_wallets() -> None:
    """The runtime ends the handler after fifteen minutes, and the cursor is written at the end only."""
    model, simulator = model_of(230)
    simulator.faults.add(LIMITED)
    model.visit()
    running = asyncio.ensure_future(model.run())
    await asyncio.sleep(300 + 2 * 900 + 10)
    running.cancel()

    lists = asked(simulator, "/address/")
    assert len(set(lists)) in {58, 59}  # measured: 58, the next one being tried when the time is over
    assert model.data.cursor is None
    assert not model.names_trouble("swaps")
    assert (model.state.alarm_at, model.state.last_run_at.get("swaps")) == (None, None)


@pytest.mark.parametrize(
    ("fault", "measured_s"),
    [
        (LIMITED, 15.4),
        (SimulatedFault(kind="limited", upstream="hiro", retry_after=60), 120.6),
        (SimulatedFault(kind="status", status=503, upstream="hiro"), 1.73),
        (SimulatedFault(kind="hang", upstream="hiro"), 25.6),
    ],
)
async def test_a_wallet_takes_as_long_as_measured(fault: SimulatedFault, measured_s: float) -> None:
    model, simulator = model_of(1)
    simulator.faults.add(fault)
    await model._sweep()

    assert simulator.clock.monotonic() == pytest.approx(measured_s, rel=0.03)
    assert not model.names_trouble("swaps")  # counted as a success
    assert "swaps" not in model.useful_at


async def test_a_hanging_tenero_delays_the_sweep_by_332_seconds() -> None:
    """Thirteen priced tokens, each tried three times."""
    model, simulator = model_of(1)
    priced = tuple(token.id for token in FILLER_TOKENS[:12])
    model._tokens = lambda: ("stx", *priced)  # type: ignore[method-assign]  # as if agents had traded these
    simulator.faults.add(SimulatedFault(kind="hang", upstream="tenero"))

    await model._refresh_prices()

    assert len(asked(simulator, "/v1/stacks/tokens")) == 39
    assert simulator.clock.monotonic() == pytest.approx(332, rel=0.01)
    assert model.names_trouble("prices")


async def test_of_40_swaps_between_two_visits_15_are_lost_for_good() -> None:
    """Its list shows the newest 25, and nothing remembers where the last visit ended."""
    model, simulator = model_of(3)
    simulator.chain.burst(eligible(simulator), 40)
    simulator.chain.mine()
    for _ in range(3):
        await model._sweep()

    assert len(simulator.chain.truth()) == 40
    assert len(model.data.swaps) == 25


async def test_dust_hides_a_rivals_swaps() -> None:
    model, simulator = model_of(3)
    wallet = eligible(simulator)
    simulator.chain.burst(wallet, 2)
    simulator.chain.mine()
    simulator.chain.dust(wallet, 30)
    simulator.chain.mine()
    await model._sweep()

    assert (len(simulator.chain.truth()), len(model.data.swaps)) == (2, 0)


async def test_a_failed_list_is_an_empty_one_and_the_cursor_moves_on() -> None:
    model, simulator = model_of(120)
    simulator.faults.add(SimulatedFault(kind="status", status=503, upstream="hiro"))
    await model._sweep()

    assert model.data.cursor == sorted(wallet.address for wallet in simulator.chain.wallets)[99]
    assert not model.names_trouble("swaps")


async def test_refused_and_aborted_transactions_are_asked_for_again() -> None:
    model, simulator = model_of(3)
    simulator.chain.swap(eligible(simulator), "abort_by_response")
    simulator.chain.mine()
    await model._sweep()
    await model._sweep()

    assert len(asked(simulator, "/v1/tx/")) == 2


async def test_a_price_of_zero_replaces_a_good_one() -> None:
    model, simulator = model_of(1)
    await model._refresh_prices()
    good = model.data.prices["stx"].usd
    simulator.tenero.quote("stx", "zero")
    await model._refresh_prices()

    assert good
    assert model.data.prices["stx"].usd is None
    assert not model.names_trouble("prices")


async def test_without_a_visitor_a_wiped_object_does_nothing() -> None:
    model, simulator = model_of(1)
    model.visit()
    running = asyncio.ensure_future(model.run())
    await asyncio.sleep(3_600)
    model.wipe()
    before = len(simulator.requests)
    await asyncio.sleep(24 * 3_600)
    silent = len(simulator.requests)
    model.visit()
    await asyncio.sleep(600)
    running.cancel()

    assert before > 0
    assert silent == before
    assert len(simulator.requests) > silent


@pytest.mark.slow
async def test_the_period_of_the_sweep_is_its_interval_and_the_work() -> None:
    """With 430 wallets a lap took 76.7 minutes."""
    model, simulator = model_of(430)
    model.visit()
    running = asyncio.ensure_future(model.run())
    await asyncio.sleep(4 * 3_600)
    running.cancel()
    first = min(wallet.address for wallet in simulator.chain.wallets)
    visits = [request.at_ms for request in simulator.requests if first in request.path]

    laps = [(later - earlier) / 60_000 for earlier, later in pairwise(visits)]
    assert len(laps) == 3
    assert all(75 < lap < 77 for lap in laps)


@pytest.mark.slow
async def test_seven_deaths_in_a_row_drop_the_alarm() -> None:
    model, simulator = model_of(230)
    simulator.faults.add(LIMITED)
    model.visit()
    running = asyncio.ensure_future(model.run())
    await asyncio.sleep(300 + 7 * 900 + 300)
    calls = len(simulator.requests)
    await asyncio.sleep(6 * 3_600)
    running.cancel()

    assert len(simulator.requests) == calls
    assert model.state.alarm_at is None
    assert not model.names_trouble("swaps")
