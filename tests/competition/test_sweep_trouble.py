"""The sweep under faults: a unit that fails is retried, an error that every unit would meet ends the run."""

from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import StoreUnavailable
from stacks_simulator.faults import SimulatedFault
from support.competition import PAUSED, as_rows, chain_of, number, open_world, sweep, sweep_within
from tocsin.errors import RunStopped
from tocsin.swaps.rules import built_in

CONTRACTS = len(built_in().contracts)


async def test_a_list_that_fails_is_counted_and_read_next_time(tmp_path: Path) -> None:
    """A wallet whose list cannot be read is a failed wallet, not an empty one; the others are read."""
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

    assert (first.counters["failedWallets"], first.counters["scanned"], first.error) == (1, 3, None)
    assert marks == [{"failures": 1, "walked_at": None}]
    assert second.counters["failedWallets"] == 0
    assert visited == 1
    assert world.log.named("sweep.unit_failed")[0]["unit"] == bad


@pytest.mark.slow
async def test_a_contract_that_fails_loses_nothing(tmp_path: Path) -> None:
    """Its swaps are found when its list can be read again, however many there are by then."""
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

    assert first.error is not None
    assert first.error.startswith("no contract's list could be read; S")
    assert "hiro broke its contract: not JSON" in first.error
    assert first.counters["failedContracts"] == CONTRACTS
    assert second.error is None
    assert rows == as_rows(chain.truth())
    assert len(rows) == len(sent) + 120


@pytest.mark.slow
@pytest.mark.parametrize("path", ["tx/multiple", "/v3/"])
async def test_a_404_of_the_route_itself_says_nothing_of_swaps(path: str, tmp_path: Path) -> None:
    """For days every run reports a failure, and afterwards nothing is missing."""
    async with open_world(tmp_path, chain_of(2)) as world:
        chain = world.simulator.chain
        chain.burst(chain.wallets[0], 5)
        chain.mine()
        gone = '{"error": "not here"}'
        world.simulator.faults.add(SimulatedFault(kind="status", status=404, path=path, body=gone))
        for _ in range(60):
            result = await sweep(world)
            assert result.error or result.counters["failed"], result
            await world.clock.sleep(3 * 3600)
        world.simulator.faults.clear()
        await world.clock.sleep(6 * 3600)
        await sweep(world)
        rows = await world.rows()

    assert rows == as_rows(chain.truth())
    assert len(rows) == 5


async def test_a_404_for_a_list_is_not_an_empty_list(tmp_path: Path) -> None:
    """Hiro gives this answer for two contracts: the sweep is not complete, and a later one finds their swaps."""
    async with open_world(tmp_path, chain_of(1)) as world:
        chain = world.simulator.chain
        chain.swap(chain.wallets[0], "multihop")
        chain.mine()
        [swap] = chain.truth()
        others = sorted(set(world.rules.allowlist.contracts) - {swap.contract_id})
        for principal in (swap.contract_id, others[0], swap.sender):
            world.simulator.faults.add(SimulatedFault(kind="status", status=404, path=f"/{principal}/"))
        first, missing = await sweep(world), await world.rows()
        world.simulator.faults.clear()
        second, rows = await sweep(world), await world.rows()

    assert first.counters["failedContracts"] == 2
    assert first.incomplete is not None
    assert "404" in first.incomplete
    assert missing == []
    assert second.incomplete is None
    assert rows == as_rows(chain.truth())


@pytest.mark.slow
async def test_a_429_ends_the_run_with_the_time_to_try_again(tmp_path: Path) -> None:
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
    assert first.limited_until >= number(first.counters, "startedAt") + 600_000
    assert first.error is None
    assert first.counters["failedWallets"] == 0
    assert made <= 6
    assert queued == 20
    assert rows == as_rows(chain.truth())


@pytest.mark.parametrize(
    ("fault", "message", "kind"),
    [
        (SimulatedFault(kind="status", status=403), "refuses our key", "Unauthorised"),
        (SimulatedFault(kind="status", status=410), "switched this endpoint off", "Gone"),
        (SimulatedFault(kind="hang"), "gave no answer", "Unavailable"),
        (SimulatedFault(kind="status", status=503), "answered 503", "Unavailable"),
    ],
)
async def test_an_error_that_every_unit_would_meet_ends_the_run_as_a_failure(
    fault: SimulatedFault, message: str, kind: str, tmp_path: Path
) -> None:
    """A refused key, an endpoint that is gone, an upstream that is down: few calls, and the reason."""
    async with open_world(tmp_path, chain_of(20)) as world:
        world.simulator.faults.add(fault)
        result = await sweep(world)

    assert result.error is not None
    assert message in result.error
    assert result.error_kind == kind
    assert result.limited_until is None
    assert world.calls() <= 40
    assert number(result.counters, "scanned") <= 2  # of the first six lists one is a wallet's


@pytest.mark.slow
async def test_a_pause_stops_between_two_units(tmp_path: Path) -> None:
    """Wherever it stops, what was done is kept, and the next run finds the rest."""
    async with open_world(tmp_path, chain_of(8)) as world:
        chain = world.simulator.chain
        for wallet in chain.wallets:
            chain.burst(wallet, 3)
        chain.mine()
        stops: list[RunStopped] = []
        for stop_after in range(0, 70, 7):
            context = world.run(stop_after=stop_after)
            try:
                await sweep(world, context)
            except RunStopped as stopped:
                stops.append(stopped)
        await sweep(world)
        rows = await world.rows()

    assert len(stops) >= 5
    assert {(stopped.outcome, str(stopped)) for stopped in stops} == {("stopped", PAUSED)}
    assert rows == as_rows(chain.truth())


@pytest.mark.slow
async def test_a_run_whose_slice_is_nearly_over_is_partial(tmp_path: Path) -> None:
    """No new unit begins; the record has the reason and the counters so far, and later runs do the rest."""
    async with open_world(tmp_path, chain_of(60), latency_s=2.0) as world:
        chain = world.simulator.chain
        for wallet in chain.wallets:
            chain.burst(wallet, 2)
        chain.mine()
        first = await sweep_within(world, 40.0)
        kept = await world.rows()
        later = [await sweep_within(world, 40.0) for _ in range(6)]
        rows = await world.rows()

    assert (first.outcome, first.reason, first.error) == ("partial", "its time slice of 40 s is nearly over", None)
    assert first.duration_ms is not None
    assert 20_000 <= first.duration_ms < 40_000
    assert first.result["contractsScanned"] == CONTRACTS
    assert 0 < len(kept) == first.result["inserted"]
    assert later[-1].outcome == "ok"
    assert rows == as_rows(chain.truth())


async def test_a_short_slice_is_used_and_a_useless_one_is_not_a_success(tmp_path: Path) -> None:
    """Nine seconds are enough to sweep; a run that could read nothing makes no call and is partial, not ok."""
    async with open_world(tmp_path, chain_of(2)) as world:
        chain = world.simulator.chain
        chain.burst(chain.wallets[0], 3)
        chain.mine()
        short = await sweep_within(world, 9.0)
        calls = world.calls()
        late = world.run(slice_s=1.0)
        await world.clock.sleep(0.9)
        with pytest.raises(RunStopped, match="its time slice of 1 s is nearly over") as stopped:
            await sweep(world, late)
        rows = await world.rows()

    assert (short.outcome, short.result["contractsScanned"]) == ("ok", CONTRACTS)
    assert rows == as_rows(chain.truth())
    assert stopped.value.outcome == "partial"
    assert (world.calls(), late.done, late.counters) == (calls, 0, {})


async def test_a_store_that_fails_ends_the_run(tmp_path: Path) -> None:
    """The platform retries a database error: it passes through the run unchanged."""
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
        world.db.batch = batch  # type: ignore[method-assign]  # and is emptied
        await sweep(world)
        rows = await world.rows()

    assert rows == as_rows(world.simulator.chain.truth())


@pytest.mark.slow
async def test_a_transaction_that_trips_our_code_harms_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is counted as verify_threw and tried again; the others of its group are verified without it."""
    async with open_world(tmp_path, chain_of(1)) as world:
        chain = world.simulator.chain
        sent = chain.burst(chain.wallets[0], 20)
        chain.mine()
        poison = sent[7].tx_id
        whole = world.hiro.transactions_with_events

        async def tripping(txids: Any, session: Any, **options: Any) -> Any:
            if poison in txids:
                raise ZeroDivisionError
            return await whole(txids, session, **options)

        monkeypatch.setattr(world.hiro, "transactions_with_events", tripping)
        first = await sweep(world)
        for _ in range(6):
            await world.clock.sleep(900)
            await sweep(world)
        rows = await world.rows()

    reasons = first.counters["rejectionReasons"]
    assert isinstance(reasons, dict)
    assert set(reasons) == {"verify_threw"}
    assert first.error is None
    assert {row["txid"] for row in rows} == {tx.tx_id for tx in sent} - {poison}
    assert world.log.named("sweep.unit_threw")


async def test_a_cursor_that_is_not_accepted_is_given_up(tmp_path: Path) -> None:
    """A walk that cannot continue where it was cut off begins at the head again, and misses nothing."""
    async with open_world(tmp_path, chain_of(2)) as world:
        chain = world.simulator.chain
        chain.burst(chain.wallets[0], 70, "multihop")
        chain.mine()
        await sweep(world)
        await world.db.prepare("DELETE FROM swaps").run()
        gap = '{"cursor": "text", "bottom": [9007199254740991, 0], "top": null}'
        await world.db.prepare("UPDATE marks SET gap_json = ?, anchor_json = NULL").bind(gap).run()
        result = await sweep(world)
        rows = await world.rows()

    assert result.counters["failedContracts"] == 0
    assert rows == as_rows(chain.truth())


async def test_a_list_that_goes_in_circles_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An upstream whose cursors do not lead on costs a few calls, not the whole run."""
    async with open_world(tmp_path, chain_of(1)) as world:
        chain = world.simulator.chain
        chain.burst(chain.wallets[0], 120, "multihop")
        chain.mine()
        whole = world.hiro.principal_transactions

        async def circling(principal: str, session: Any, cursor: str | None = None) -> Any:
            return await whole(principal, session, None)

        monkeypatch.setattr(world.hiro, "principal_transactions", circling)
        result = await sweep(world)

    assert result.counters["failedContracts"] == 1
    assert result.counters["failedWallets"] == 1
    assert world.calls() <= CONTRACTS + 20


async def test_a_swap_that_needs_another_call_holds_up_no_other(tmp_path: Path) -> None:
    """Where that call gets no answer, the others of its group are recorded, and it is asked for again later."""
    async with open_world(tmp_path, chain_of(1)) as world:
        chain = world.simulator.chain
        sent = [chain.swap(chain.wallets[0], "multibin") for _ in range(15)]
        chain.mine()
        short = {tx.tx_id for tx in sent if len(tx.events) <= 100}
        assert 0 < len(short) < 15
        world.simulator.faults.add(SimulatedFault(kind="limited", path="balance-changes", retry_after=900))
        await sweep(world)
        without = {row["txid"] for row in await world.rows()}
        world.simulator.faults.clear()
        for _ in range(3):
            await world.clock.sleep(1_800)
            await sweep(world)
        rows = await world.rows()

    assert without == short
    assert rows == as_rows(chain.truth())
