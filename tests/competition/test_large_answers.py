"""Answers of Hiro that are too large to read: requested at once in smaller parts, so that no swap waits."""

from pathlib import Path
from typing import Any

import pytest

from stacks_simulator.simulator import Simulator
from support.competition import as_rows, chain_of, open_world, sweep
from support.simulated_fetch import SimulatedFetch
from tocsin.fetch import FetchResponse


def cut_at(body_max: int) -> type[SimulatedFetch]:
    class CutFetch(SimulatedFetch):
        """Refuses answers of more than `body_max` bytes."""

        async def __call__(self, url: str, **options: Any) -> FetchResponse:
            return await super().__call__(url, **{**options, "body_max": body_max})

    return CutFetch


def busy_chain() -> Simulator:
    """Forty trades whose answers are long, over a few blocks."""
    simulator = chain_of(3)
    for number in range(40):
        simulator.chain.swap(simulator.chain.wallets[number % 3], kind="multibin")
        if number % 10 == 9:
            simulator.chain.mine()
    return simulator


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body_max", "calls"),
    [
        (4 * 1024 * 1024, 2),  # twenty each
        (400_000, 6),  # twenty are too many, ten are not
    ],
)
async def test_a_large_batch_is_halved_at_once(body_max: int, calls: int, tmp_path: Path) -> None:
    async with open_world(tmp_path, busy_chain(), fetch=cut_at(body_max)) as world:
        result = await sweep(world)
        rows = await world.rows()
        asked = world.calls("tx/multiple")

    assert rows == as_rows(world.simulator.chain.truth())
    assert (len(rows), result.counters["failed"], result.error, result.incomplete) == (40, 0, None, None)
    assert asked == calls


@pytest.mark.slow
async def test_a_single_transaction_that_is_too_large_is_read_without_its_events(tmp_path: Path) -> None:
    """Its balance changes show what it moved."""
    async with open_world(tmp_path, busy_chain(), fetch=cut_at(45_000)) as world:
        result = await sweep(world)
        rows = await world.rows()
        asked = world.calls("balance-changes")

    assert rows == as_rows(world.simulator.chain.truth())
    assert (len(rows), result.counters["failed"], result.error) == (40, 0, None)
    assert asked > 0
