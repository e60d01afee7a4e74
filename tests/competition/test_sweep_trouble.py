"""The sweep in trouble: what fails is counted and comes again, what befalls everybody ends the run."""

from pathlib import Path
from typing import Any

import pytest

from support.competition import as_rows, chain_of, open_world, sweep
from tocsin.competition.allowlist import built_in
from tocsin.competition.sweep import Sweep
from tocsin.errors import RunStopped, StoreUnavailable
from tocsin.simulator.faults import SimulatedFault

CONTRACTS = len(built_in().contracts)


async def test_a_list_that_fails_is_counted_and_read_next_time(tmp_path: Path) -> None:
    """A wallet whose list cannot be read is a failed wallet, not an empty one; the others go on."""
    async with open_world(tmp_path, chain_of(3)) as world:
        chain = world.simulator.chain
        bad = sorted(wallet.address for wallet in chain.wallets)[1]
        world.simulator.faults.add(SimulatedFault(kind="truncated", path=bad))
        first = await sweep(world)
        marks = await world.all("SELECT failures, walked_at FROM marks WHERE principal = ?", bad)
        world.simulator.faults.clear()
        world.simulator.requests.clear()
        await world.clock.sleep(900)
        second = await sweep(world)
        visited = world.calls(bad)

    assert (first.result["failedWallets"], first.result["scanned"], first.error) == (1, 3, None)
    assert marks == [{"failures": 1, "walked_at": None}]
    assert second.result["failedWallets"] == 0
    assert visited == 1
    assert world.log.named("sweep.unit_failed")[0]["unit"] == bad


async def test_a_contract_that_fails_loses_nothing(tmp_path: Path) -> None:
    """Its swaps are found when its list can be read again, however many came meanwhile."""
    async with open_world(tmp_path, chain_of(2)) as world:
        chain = world.simulator.chain
        sent = chain.burst(chain.wallets[0], 5)
        chain.mine()
        world.simulator.faults.add(SimulatedFault(kind="wrong_json", path="/transactions"))
        first = await sweep(world)
        chain.burst(chain.wallets[1], 120)
        chain.mine()
        world.simulator.faults.clear()
        second = await sweep(world)
        rows = await world.rows()

    assert first.error == "not one contract's list could be read"
    assert first.result["failedContracts"] == CONTRACTS
    assert second.error is None
    assert rows == as_rows(chain.truth())
    assert len(rows) == len(sent) + 120


@pytest.mark.parametrize("path", ["tx/multiple", "/v3/"])
async def test_a_404_of_the_route_itself_says_nothing_of_swaps(path: str, tmp_path: Path) -> None:
    """For days: every run says that it failed, and when it is over nothing is missing."""
    async with open_world(tmp_path, chain_of(2)) as world:
        chain = world.simulator.chain
        chain.burst(chain.wallets[0], 5)
        chain.mine()
        gone = '{"error": "not here"}'
        world.simulator.faults.add(SimulatedFault(kind="status", status=404, path=path, body=gone))
        for _ in range(60):
            outcome = await sweep(world)
            assert outcome.error or outcome.result["failed"], outcome
            await world.clock.sleep(3 * 3600)
        world.simulator.faults.clear()
        await world.clock.sleep(6 * 3600)
        await sweep(world)
        rows = await world.rows()

    assert rows == as_rows(chain.truth())
    assert len(rows) == 5


async def test_a_429_ends_the_run_with_the_time_to_come_back(tmp_path: Path) -> None:
    """No call follows, nothing is counted as failed, and what was found before stays queued."""
    async with open_world(tmp_path, chain_of(20)) as world:
        chain = world.simulator.chain
        for wallet in chain.wallets:
            chain.swap(wallet)
        chain.mine()
        world.simulator.faults.add(SimulatedFault(kind="limited", path="tx/multiple", retry_after=600))
        first = await sweep(world)
        made = world.calls("tx/multiple")
        queued = (await world.all("SELECT count(*) AS n FROM candidates"))[0]["n"]
        world.simulator.faults.clear()
        await world.clock.sleep(900)
        await sweep(world)
        rows = await world.rows()

    assert first.limited_until is not None
    assert first.limited_until >= first.result["startedAt"] + 600_000
    assert first.error is None
    assert first.result["failedWallets"] == 0
    assert made <= 6
    assert queued == 20
    assert rows == as_rows(chain.truth())


@pytest.mark.parametrize(
    ("fault", "said", "kind"),
    [
        (SimulatedFault(kind="status", status=403), "refuses our key", "Unauthorised"),
        (SimulatedFault(kind="status", status=410), "switched this endpoint off", "Gone"),
        (SimulatedFault(kind="hang"), "gave no answer", "Unavailable"),
        (SimulatedFault(kind="status", status=503), "answered 503", "Unavailable"),
    ],
)
async def test_what_befalls_everybody_ends_the_run_as_a_failure(
    fault: SimulatedFault, said: str, kind: str, tmp_path: Path
) -> None:
    """A refused key, an endpoint that is gone, an upstream that is down: few calls, and the reason."""
    async with open_world(tmp_path, chain_of(20)) as world:
        world.simulator.faults.add(fault)
        outcome = await sweep(world)

    assert outcome.error is not None
    assert said in outcome.error
    assert outcome.error_class == kind
    assert outcome.limited_until is None
    assert world.calls() <= 40
    assert outcome.result["scanned"] == 0


async def test_a_pause_stops_between_two_units(tmp_path: Path) -> None:
    """Wherever it stops, what was done is kept and the next run finds the rest."""
    async with open_world(tmp_path, chain_of(8)) as world:
        chain = world.simulator.chain
        for wallet in chain.wallets:
            chain.burst(wallet, 3)
        chain.mine()
        stops = 0
        for stop_after in range(0, 70, 7):
            context = world.run(stop_after=stop_after)
            try:
                await sweep(world, context)
            except RunStopped:
                stops += 1
        await sweep(world)
        rows = await world.rows()

    assert stops >= 5
    assert rows == as_rows(chain.truth())


async def test_a_run_ends_by_itself_before_its_slice(tmp_path: Path) -> None:
    """With little time left no new unit is begun; that is no failure, and the next run goes on."""
    async with open_world(tmp_path, chain_of(40), latency_s=2.0) as world:
        chain = world.simulator.chain
        for wallet in chain.wallets:
            chain.burst(wallet, 2)
        chain.mine()
        cut = await sweep(world, world.run(slice_s=40.0))
        took_s = cut.result["durationMs"] / 1000
        for _ in range(6):
            await sweep(world, world.run(slice_s=40.0))
        rows = await world.rows()

    assert (cut.error, cut.limited_until) == (None, None)
    assert 20 <= took_s < 40
    assert rows == as_rows(chain.truth())


async def test_a_short_slice_is_used_and_a_useless_one_is_a_failure(tmp_path: Path) -> None:
    """Nine seconds are enough to sweep; a run that could read nothing must not pass for a good one."""
    async with open_world(tmp_path, chain_of(2)) as world:
        chain = world.simulator.chain
        chain.burst(chain.wallets[0], 3)
        chain.mine()
        short = await sweep(world, world.run(slice_s=9.0))
        context = world.run(slice_s=1.0)
        late = Sweep(context, world.rules, cadence_ms=900_000)
        await world.clock.sleep(0.9)
        await late.run()
        rows = await world.rows()

    assert (short.error, short.result["contractsScanned"]) == (None, CONTRACTS)
    assert rows == as_rows(chain.truth())
    assert late.ending.error == "the time slice was over before anything was read"


async def test_a_store_that_fails_ends_the_run(tmp_path: Path) -> None:
    """A database error is the platform's to retry: it leaves the run as it is."""
    async with open_world(tmp_path, chain_of(4)) as world:
        for wallet in world.simulator.chain.wallets:
            world.simulator.chain.swap(wallet)
        world.simulator.chain.mine()
        batch = world.db.batch
        calls = 0

        async def failing(statements: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls > 20:
                raise StoreUnavailable("the disk is full")
            return await batch(statements)

        world.db.batch = failing  # type: ignore[method-assign]  # a disk that fills up
        with pytest.raises(StoreUnavailable):
            await sweep(world)
        world.db.batch = batch  # type: ignore[method-assign]  # and is mended
        await sweep(world)
        rows = await world.rows()

    assert rows == as_rows(world.simulator.chain.truth())


async def test_a_transaction_that_trips_our_code_harms_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is counted as verify_threw and tried again; the twenty beside it are settled without it."""
    async with open_world(tmp_path, chain_of(1)) as world:
        chain = world.simulator.chain
        sent = chain.burst(chain.wallets[0], 20)
        chain.mine()
        poison = sent[7].tx_id
        whole = world.hiro.transactions_with_events

        async def tripping(txids: Any, session: Any) -> Any:
            if poison in txids:
                raise ZeroDivisionError
            return await whole(txids, session)

        monkeypatch.setattr(world.hiro, "transactions_with_events", tripping)
        first = await sweep(world)
        for _ in range(6):
            await world.clock.sleep(900)
            await sweep(world)
        rows = await world.rows()

    assert set(first.result["rejectionReasons"]) == {"verify_threw"}
    assert first.error is None
    assert {row["txid"] for row in rows} == {tx.tx_id for tx in sent} - {poison}
    assert world.log.named("sweep.unit_threw")


async def test_a_cursor_that_is_no_good_is_given_up(tmp_path: Path) -> None:
    """A walk that cannot go on where it was cut off begins at the head again, and misses nothing."""
    async with open_world(tmp_path, chain_of(2)) as world:
        chain = world.simulator.chain
        chain.burst(chain.wallets[0], 70, "multihop")
        chain.mine()
        await sweep(world)
        await world.db.prepare("DELETE FROM swaps").run()
        gap = '{"cursor": "text", "bottom": [9007199254740991, 0], "top": null}'
        await world.db.prepare("UPDATE marks SET gap_json = ?, anchor_json = NULL").bind(gap).run()
        outcome = await sweep(world)
        rows = await world.rows()

    assert outcome.result["failedContracts"] == 0
    assert rows == as_rows(chain.truth())


async def test_a_list_that_turns_in_circles_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An upstream whose cursors do not lead on costs a few calls, not the whole run."""
    async with open_world(tmp_path, chain_of(1)) as world:
        chain = world.simulator.chain
        chain.burst(chain.wallets[0], 120, "multihop")
        chain.mine()
        whole = world.hiro.principal_transactions

        async def circling(principal: str, session: Any, cursor: str | None = None) -> Any:
            return await whole(principal, session, None)

        monkeypatch.setattr(world.hiro, "principal_transactions", circling)
        outcome = await sweep(world)

    assert outcome.result["failedContracts"] == 1
    assert outcome.result["failedWallets"] == 1
    assert world.calls() <= CONTRACTS + 20
