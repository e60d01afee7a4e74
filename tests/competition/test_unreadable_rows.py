"""A row that breaks Hiro's contract: its transaction is unknown and requested again, the others are read."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from stacks_simulator.simulator import Simulator
from support.competition import as_rows, chain_of, open_world, sweep
from support.simulated_fetch import SimulatedFetch
from tocsin.fetch import FetchResponse
from tocsin.swaps.submit import SubmissionLane, submit

IMPOSSIBLE = 10**15
HOURS_7 = 7 * 3600


class SpoilingFetch:
    """Hiro, with another burn block time for one transaction, wherever it is shown."""

    def __init__(self, simulator: Simulator) -> None:
        self._fetch = SimulatedFetch(simulator)
        self.spoiled: dict[str, int] = {}

    async def __call__(
        self,
        url: str,
        *,
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        timeout_s: float = 8.0,
        body_max: int = 8 * 1024 * 1024,
    ) -> FetchResponse:
        answer = await self._fetch(
            url, method=method, headers=headers, body=body, timeout_s=timeout_s, body_max=body_max
        )
        if not self.spoiled or answer.status != 200:
            return answer
        value = json.loads(answer.body)
        self._spoil(value)
        return FetchResponse(answer.status, answer.headers, json.dumps(value).encode())

    def _spoil(self, value: Any) -> None:
        if isinstance(value, dict):
            time = self.spoiled.get(value.get("tx_id", ""))
            if time is not None:
                value |= {"burn_block_time": time, "bitcoin_block": {"height": 1, "time": time}}
        for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
            self._spoil(inner)


@pytest.mark.slow
@pytest.mark.parametrize("time", [IMPOSSIBLE, 1_778_700_600_000, 0])
async def test_a_swap_with_an_impossible_time_does_not_hide_the_others(time: int, tmp_path: Path) -> None:
    """It is neither recorded nor refused, and is recorded once Hiro shows its time."""
    simulator = chain_of(2)
    fetch = SpoilingFetch(simulator)
    async with open_world(tmp_path, simulator, fetch=lambda _: fetch) as world:
        chain = simulator.chain
        sent = chain.burst(chain.wallets[0], 5)
        chain.mine()
        bad = sent[2].tx_id
        fetch.spoiled = {bad: time}
        first = await sweep(world)
        others = await world.rows()
        queued = await world.all("SELECT txid FROM candidates")
        refused = await world.all("SELECT txid FROM refusals")
        fetch.spoiled = {}
        await world.clock.sleep(HOURS_7)
        await sweep(world)
        rows = await world.rows()

    assert first.error is None
    assert (first.counters["inserted"], first.counters["failed"]) == (4, 1)
    assert others == [row for row in as_rows(chain.truth()) if row["txid"] != bad]
    assert queued == [{"txid": bad}]
    assert refused == []
    assert rows == as_rows(chain.truth())


@pytest.mark.slow
async def test_a_recorded_swap_stays_while_its_row_cannot_be_read(tmp_path: Path) -> None:
    """There is no sign that it left the chain, however long Hiro's answer stays wrong."""
    simulator = chain_of(1)
    fetch = SpoilingFetch(simulator)
    async with open_world(tmp_path, simulator, fetch=lambda _: fetch) as world:
        chain = simulator.chain
        sent = chain.burst(chain.wallets[0], 3)
        chain.mine()
        await sweep(world)
        fetch.spoiled = {sent[1].tx_id: IMPOSSIBLE}
        for _ in range(40):
            await world.clock.sleep(HOURS_7)
            await sweep(world)
        rows = await world.rows()

    assert rows == as_rows(chain.truth())
    assert len(rows) == 3
    assert world.log.named("swap.withdrawn") == []
    assert world.log.named("candidate.dismissed") == []


async def test_a_submitted_trade_with_an_impossible_time_may_be_submitted_again(tmp_path: Path) -> None:
    """The answer is "Hiro could not be asked", not a stored refusal."""
    simulator = chain_of(1)
    fetch = SpoilingFetch(simulator)
    async with open_world(tmp_path, simulator, fetch=lambda _: fetch) as world:
        chain = simulator.chain
        (sent,) = chain.burst(chain.wallets[0], 1)
        chain.mine()
        fetch.spoiled = {sent.tx_id: IMPOSSIBLE}
        first = await submit(world.request(), world.rules, {"txid": sent.tx_id}, SubmissionLane())
        kept = await world.all("SELECT txid FROM refusals UNION ALL SELECT txid FROM swaps")
        fetch.spoiled = {}
        second = await submit(world.request(), world.rules, {"txid": sent.tx_id}, SubmissionLane())

    assert (first.code, first.retryable) == ("tx_fetch_failed", True)
    assert kept == []
    assert second.http_status == 200
