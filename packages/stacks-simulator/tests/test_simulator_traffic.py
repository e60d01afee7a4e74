"""The traffic of the rest of the network."""

from typing import Any

import pytest

from holdfast.testing.virtual_time import START_MS
from stacks_simulator.calls import LISTED_CALLS
from stacks_simulator.chain import Chain
from stacks_simulator.chain_records import SimulatedCall, TokenTransfer
from stacks_simulator.serve import SimulatorOptions, build_simulator
from stacks_simulator.traffic import Traffic, start_traffic
from support.simulated import HandClock

HOUR_MS = 3_600_000
DAILY = 20_000
HOURS = 6


def network_only(hourly: float) -> Traffic:
    return Traffic(swaps=0, strangers=0, transfers=0, floods=0, reorgs=0, network=hourly)


@pytest.mark.slow
def test_the_network_makes_its_number_of_transactions() -> None:
    """Six hours have 5,000 within a few percent, half of them transfers, and none of them is a swap."""
    chain = Chain(seed=1, start_ms=START_MS)
    start_traffic(chain, network_only(DAILY / 24))
    chain.advance(START_MS + HOURS * HOUR_MS)

    transactions = list(chain.transactions.values())
    calls = [tx.payload for tx in transactions if isinstance(tx.payload, SimulatedCall)]
    senders = {tx.sender for tx in transactions}
    others = {wallet.address for wallet in (*chain.wallets, *chain.strangers)}
    assert len(transactions) == pytest.approx(DAILY * HOURS / 24, rel=0.03)
    assert len(chain.index.all) == pytest.approx(DAILY * HOURS / 24, rel=0.03)
    assert len(calls) == pytest.approx(len(transactions) / 2, rel=0.05)
    assert {call.contract for call in calls}.isdisjoint(LISTED_CALLS)
    assert all(len(tx.events) == 1 and tx.swap is None for tx in transactions)
    assert len(senders) > 1_700
    assert senders.isdisjoint(others)
    assert len(chain.strangers) == 40


@pytest.mark.slow
def test_the_network_is_the_same_for_the_same_seed() -> None:
    """In one step or in many; another seed gives another network."""

    def history(seed: int, steps: int) -> list[Any]:
        chain = Chain(seed=seed, start_ms=START_MS)
        start_traffic(chain, Traffic(reorgs=20, network=1_000))
        for step in range(1, steps + 1):
            chain.advance(START_MS + step * HOUR_MS // steps)
        return [(tx.tx_id, tx.sender, tx.payload, tx.nonce, tx.position) for tx in chain.index.all]

    at_once = history(1, 1)
    assert at_once == history(1, 7)
    assert at_once != history(2, 1)


@pytest.mark.slow
def test_the_network_does_not_change_other_traffic() -> None:
    """The same swaps are broadcast at the same times with and without the rest of the network."""

    def swaps(network: float) -> list[Any]:
        chain = Chain(seed=5, start_ms=START_MS, wallets=5)
        start_traffic(chain, Traffic(reorgs=0, network=network))
        chain.advance(START_MS + HOUR_MS)
        known = {wallet.address for wallet in (*chain.wallets, *chain.strangers)}
        own = [tx for tx in chain.transactions.values() if tx.sender in known]
        return [(tx.received_ms, tx.sender, tx.payload, tx.events, tx.fee, tx.outcome) for tx in own]

    assert len(swaps(0)) > 100
    assert swaps(0) == swaps(1_000)


def test_a_served_simulator_has_a_network() -> None:
    """From its start on, not in its history, and not with a rate of 0."""
    clock = HandClock()

    def transfers(network: float) -> int:
        clock.now_ms = START_MS
        options = SimulatorOptions(wallets=3, history_hours=1, traffic=network_only(0), network=network)
        simulator = build_simulator(options, clock)
        assert simulator.chain.transactions == {}
        clock.now_ms += 10 * HOUR_MS
        simulator.advance()
        return sum(isinstance(tx.payload, TokenTransfer) for tx in simulator.chain.transactions.values())

    assert transfers(SimulatorOptions().network) > 100
    assert transfers(0) == 0
