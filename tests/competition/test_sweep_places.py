"""Where a sweep continues: after a change of the rules, a limit in the middle, more work than fits into one."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stacks_simulator.chain_records import ChainTransaction
from stacks_simulator.faults import SimulatedFault
from support.competition import World, as_rows, chain_of, open_world, sweep
from support.simulated_fetch import SimulatedFetch
from tocsin.fetch import FetchResponse
from tocsin.swaps import sweep as sweep_module
from tocsin.swaps.rules import Rules
from tocsin.swaps.sweep import CURSOR, Sweep, _DailyPass
from tocsin.swaps.walk import Visits
from tocsin.upstream.answer import Malformed

HOUR_S = 3_600
HALF_A_DAY_MS = 12 * 3_600_000


async def test_an_earlier_start_finds_the_swaps_from_there_on(tmp_path: Path) -> None:
    """A mark is void under other rules: the part before the start was never checked."""
    async with open_world(tmp_path, chain_of(2)) as world:
        chain = world.simulator.chain
        for _ in range(4):
            chain.swap(chain.wallets[0], "multihop")  # all of one contract, whose list has a mark
            chain.mine()
            await world.clock.sleep(HOUR_S)
            world.simulator.advance()
        await sweep(world, rules=world.rules)
        times = [row["burn_block_time"] for row in await world.rows()]
        await world.db.batch([world.db.prepare(f"DELETE FROM {table}") for table in ("swaps", "marks")])
        await sweep(world, rules=Rules(world.rules.allowlist, times[2]))
        late = await world.rows()
        await sweep(world)
        all_of_them = await world.rows()

    assert len({row["contract_id"] for row in all_of_them}) == 1
    assert [row["burn_block_time"] for row in late] == times[2:]
    assert all_of_them == as_rows(chain.truth())
    assert len(all_of_them) == 4


class WithoutBalanceChanges(SimulatedFetch):
    """A Hiro whose balance changes are empty: not indexed yet, or no longer there."""

    async def __call__(self, url: str, **options: Any) -> FetchResponse:
        answer = await super().__call__(url, **options)
        if "/balance-changes" not in url:
            return answer
        body = {**json.loads(answer.body), "results": [], "total": 0}
        body["cursor"] = {"next": None, "previous": None, "current": None}
        return replace(answer, body=json.dumps(body).encode())


async def test_a_long_route_without_balance_changes_is_read_from_its_events(tmp_path: Path) -> None:
    """With hundreds of events and no balance changes, all its events are read, page by page."""
    async with open_world(tmp_path, fetch=WithoutBalanceChanges) as world:
        chain = world.simulator.chain
        tx: ChainTransaction = chain.swap(chain.wallets[0], "multibin")
        while len(tx.events) <= 200:
            tx = chain.swap(chain.wallets[0], "multibin")
        chain.mine(tx)
        await sweep(world)
        rows = await world.rows()
        asked = world.calls("balance-changes")

    assert asked == 1
    assert tx.tx_id in {row["txid"] for row in rows}
    assert rows == as_rows(chain.truth())


@pytest.mark.parametrize("pages_left", [1, 4, 5, 6, 10])
async def test_after_what_was_left_over_a_list_is_read_from_its_head(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pages_left: int
) -> None:
    """However many pages that was, even if it ends where a turn of five pages does."""
    async with open_world(tmp_path, chain_of(1)) as world:
        chain = world.simulator.chain
        swap = chain.swap(chain.wallets[0], "multihop")
        chain.burst(chain.wallets[0], 50 * (1 + pages_left) - 1, "multihop")
        chain.mine()
        await world.clock.sleep(HOUR_S)  # it is deep enough to continue from there
        world.simulator.advance()
        [contract] = {row.contract_id for row in chain.truth() if row.txid == swap.tx_id}
        whole = world.hiro.principal_transactions

        async def first_page(principal: str, session: Any, cursor: str | None = None) -> Any:
            return Malformed("no more") if cursor else await whole(principal, session)

        with monkeypatch.context() as patch:
            patch.setattr(world.hiro, "principal_transactions", first_page)
            await sweep(world)
        await world.clock.sleep(HOUR_S)
        chain.burst(chain.wallets[0], 3, "multihop")
        chain.mine()
        world.simulator.advance()
        began_at = world.clock.now()
        result = await sweep(world)
        [mark] = await world.all("SELECT walked_at, gap_json FROM marks WHERE principal = ?", contract)
        rows = await world.rows()

    assert result.incomplete is None
    assert mark["walked_at"] >= began_at
    assert mark["gap_json"] is None
    assert rows == as_rows(chain.truth())


async def half_a_pass(world: World) -> None:
    """A sweep whose part of the daily pass is half of the wallets."""
    await Sweep(world.run(), world.rules, cadence_ms=HALF_A_DAY_MS).run()


@pytest.mark.slow
async def test_a_wallet_that_a_limited_sweep_did_not_read_is_read_by_the_next(tmp_path: Path) -> None:
    """The cursor stays before it, and it is not the wallet's failure."""
    async with open_world(tmp_path, chain_of(4)) as world:
        first, second, *_ = sorted(wallet.address for wallet in world.simulator.chain.wallets)
        await half_a_pass(world)
        await half_a_pass(world)  # all were read, and a new pass begins
        world.simulator.faults.add(SimulatedFault(kind="status", status=429, path=first))
        await half_a_pass(world)
        cursor = await world.all("SELECT value FROM competition_state WHERE key = ?", CURSOR)
        failures = await world.all("SELECT failures FROM marks WHERE principal = ?", first)
        world.simulator.faults.clear()
        await world.clock.sleep(HOUR_S)
        world.simulator.requests.clear()
        await half_a_pass(world)

    assert cursor == []
    assert failures == [{"failures": 0}]
    assert (world.calls(first), world.calls(second)) == (1, 1)


def test_the_cursor_passes_only_wallets_that_were_read() -> None:
    """Visits end in any order: the cursor is where all before it are done."""
    daily = _DailyPass(Visits((), ("a", "b", "c"), ends_pass=True))

    assert [daily.ended("c"), daily.ended("a")] == [None, "a"]
    assert not daily.is_over
    assert daily.ended("b") == "c"
    assert daily.is_over


@pytest.mark.slow
async def test_more_retracted_swaps_than_fit_into_one_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next sweeps continue until none is left that does not count."""
    monkeypatch.setattr(sweep_module, "RETRACTED_MAX", 2)
    async with open_world(tmp_path, chain_of(1)) as world:
        chain = world.simulator.chain
        for _ in range(5):
            chain.swap(chain.wallets[0])
            chain.mine()
            await world.clock.sleep(HOUR_S)
            world.simulator.advance()
        await sweep(world)
        last = (await world.rows())[-1]
        tight = Rules(world.rules.allowlist, last["burn_block_time"])
        left = []
        for _ in range(3):
            await sweep(world, rules=tight)
            left.append(len(await world.rows()))

    assert left == [3, 1, 1]
