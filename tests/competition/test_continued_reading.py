"""Lists that one run does not finish, and candidates that one look does not settle: what the next run does."""

from pathlib import Path
from typing import Any

import pytest

from stacks_simulator.faults import FaultKind, SimulatedFault
from stacks_simulator.traffic import start_tenures
from support.changed_fetch import ChangedFetch
from support.competition import World, as_rows, chain_of, feed, open_world, started, sweep
from tocsin.errors import NoAnswer
from tocsin.swaps import lists as nonces
from tocsin.swaps import store as swap_store
from tocsin.swaps.lists import ListReader
from tocsin.swaps.store import Candidate
from tocsin.swaps.sweep import Sweep
from tocsin.upstream.answer import BadRequest

MINUTE_MS = 60_000
SWEEP_MS = 15 * MINUTE_MS


async def test_a_transaction_that_cannot_be_read_is_asked_for_less_and_less_often(tmp_path: Path) -> None:
    """Each look counts: after 5 minutes, then 10, then 20. It is neither refused nor dismissed."""
    simulator = chain_of(1)
    fetch = ChangedFetch(simulator, "/tx/multiple")
    async with open_world(tmp_path, simulator, fetch=lambda _: fetch) as world:
        chain = simulator.chain
        tx = chain.swap(chain.wallets[0])
        chain.mine()

        def unreadable(_url: str, body: dict[str, Any]) -> None:
            body[tx.tx_id]["result"]["burn_block_time"] = 10**15

        fetch.change = unreadable
        # Another one can be read, in the same answer: Hiro does not know it.
        txids = (tx.tx_id, f"0x{'ab' * 32}")
        candidates = [Candidate(txid, "agent", rank=swap_store.SUBMITTED) for txid in txids]
        await world.db.batch(swap_store.enqueue(world.db, candidates, world.clock.now()))
        waits = []
        for attempts in (1, 2, 3):
            made = Sweep(world.run(), world.rules, cadence_ms=SWEEP_MS)
            await made.verify_queued()
            [row] = await world.all("SELECT attempts, due_at FROM candidates WHERE txid = ?", tx.tx_id)
            assert (row["attempts"], made.counts.tally.failed) == (attempts, 1)
            waits.append((row["due_at"] - world.clock.now()) / MINUTE_MS)
            await world.clock.sleep((row["due_at"] - world.clock.now()) / 1000)
        fetch.change = None
        await sweep(world)
        rows = await world.rows()

    assert waits == [5, 10, 20]
    assert rows == as_rows(chain.truth())


@pytest.mark.parametrize(
    ("kind", "attempts", "waits"), [("wrong_json", [1, 2, 3], [1, 4, 25]), ("status", [0, 0, 0], [1, 1, 1])]
)
async def test_a_group_without_an_answer_is_asked_for_again(
    kind: FaultKind, attempts: list[int], waits: list[int], tmp_path: Path
) -> None:
    """After a minute. A broken answer may be the transaction's own, so it counts as an attempt; an outage does not."""
    async with open_world(tmp_path, chain_of(1)) as world:
        chain = world.simulator.chain
        tx = chain.swap(chain.wallets[0])
        chain.mine()
        await world.db.batch(swap_store.enqueue(world.db, [Candidate(tx.tx_id, "agent")], world.clock.now()))
        world.simulator.faults.add(SimulatedFault(kind=kind, status=500, path="/tx/multiple"))
        seen = []
        for _ in range(3):
            made = Sweep(world.run(), world.rules, cadence_ms=SWEEP_MS)
            await made.verify_queued()
            [row] = await world.all("SELECT attempts, due_at FROM candidates")
            seen.append((row["attempts"], (row["due_at"] - world.clock.now()) / MINUTE_MS))
            await world.clock.sleep((row["due_at"] - world.clock.now()) / 1000)

    assert seen == list(zip(attempts, waits, strict=True))


async def test_one_sweep_reads_twenty_pages_of_a_wallet(tmp_path: Path) -> None:
    """The rest of a flood waits for the next sweep, which goes on where this one stopped."""
    async with open_world(tmp_path, chain_of(1)) as world:
        chain = world.simulator.chain
        wallet = chain.wallets[0].address
        chain.swap(chain.wallets[0])
        chain.mine()
        await world.clock.sleep(3_600)
        world.simulator.advance()
        chain.dust(wallet, 1_070)
        chain.mine()
        await world.clock.sleep(3_600)
        world.simulator.advance()
        pages = []
        for _ in range(2):
            before = world.calls(f"/{wallet}/transactions")
            made = Sweep(world.run(), world.rules, cadence_ms=SWEEP_MS)
            await made.prepare()
            await made.read_lists((), made.visits())
            pages.append(world.calls(f"/{wallet}/transactions") - before)
            await world.clock.sleep(900)
        rows = await world.rows()

    assert pages == [20, 3]  # 22 pages, and the head of the list once more
    assert rows == as_rows(chain.truth())
    assert len(rows) == 1


async def test_while_the_network_is_followed_a_wallet_has_its_turn_every_six_hours(tmp_path: Path) -> None:
    """In one of 24 sweeps, by the number of the slot; the others read no wallet's list."""
    async with open_world(tmp_path, chain_of(3)) as world:
        await started(world)
        start_tenures(world.simulator.chain)
        visited = []
        for _ in range(48):
            await world.clock.sleep((SWEEP_MS - world.clock.now() % SWEEP_MS) / 1000)
            await feed(world)
            made = Sweep(world.run(), world.rules, cadence_ms=SWEEP_MS, feed_ms=MINUTE_MS)
            await made.prepare()
            slot = world.clock.now() // SWEEP_MS
            visited.append((slot % 24, len(made.visits().daily_pass)))

    assert [remainder for remainder, count in visited if count == 1] == [0, 0]
    assert sum(count for _, count in visited) == 2


async def lacking_wallet(world: World) -> str:
    """A wallet with a missing nonce, which its own list shows on the seventh page."""
    chain = world.simulator.chain
    wallet = chain.wallets[0]
    hidden = chain.swap(wallet)
    chain.mine()
    await world.clock.sleep(3_600)
    world.simulator.advance()
    chain.dust(wallet.address, 320)
    chain.swap(wallet)
    chain.mine()
    await world.clock.sleep(3_600)
    world.simulator.advance()
    world.simulator.hiro._is_listed = lambda tx: tx is not hidden  # type: ignore[method-assign]  # of our choice
    return wallet.address


async def test_a_wallet_whose_list_is_not_finished_is_visited_again(tmp_path: Path) -> None:
    """Five pages in each run. Only a list that was read to its end without the transaction counts as lagging."""
    async with open_world(tmp_path, chain_of(2)) as world:
        chain = world.simulator.chain
        for each in chain.wallets:
            chain.transfer(each, chain.strangers[0], 5)
        await started(world)
        wallet = await lacking_wallet(world)
        pages, failures = [], []
        for _ in range(3):
            before = world.calls(f"/{wallet}/transactions")
            await feed(world)
            pages.append(world.calls(f"/{wallet}/transactions") - before)
            failures += [
                row["failures"] for row in await world.all("SELECT failures FROM marks WHERE principal = ?", wallet)
            ]
            await world.clock.sleep(60)
        lacking = await nonces.lacking(world.db, 5, world.clock.now())
        rows = await world.rows()

    assert pages[0] == 5
    assert pages[1] > 0
    assert pages[2] == 0
    assert failures == [0, 0, 0]
    assert lacking == {}
    assert rows == as_rows(chain.truth())


async def test_a_head_that_is_refused_after_the_rest_is_asked_for_once(tmp_path: Path) -> None:
    """A refused cursor may be outdated, so the list is read from its head; a refused head is a failure at once."""
    async with open_world(tmp_path, chain_of(1)) as world:
        chain = world.simulator.chain
        chain.burst(chain.wallets[0], 110, "multihop")
        chain.mine()
        [contract] = {swap.contract_id for swap in chain.truth()}
        await world.clock.sleep(3_600)
        world.simulator.advance()
        marks: dict[str, Any] = {}
        first = ListReader(world.run(), world.rules, {}, marks)
        async for _ in first.pages(contract, pages_max=1):
            pass
        assert first.unfinished == {contract}
        await world.clock.sleep(900)
        asked: list[str | None] = []
        whole = world.hiro.principal_transactions

        async def without_head(principal: str, session: Any, cursor: str | None = None) -> Any:
            asked.append(cursor)
            return await whole(principal, session, cursor) if cursor else BadRequest("no head", 400)

        world.hiro.principal_transactions = without_head  # type: ignore[method-assign]  # a head that is refused
        second = ListReader(world.run(), world.rules, {}, marks)
        try:
            async for _ in second.pages(contract):
                pass
        except NoAnswer as error:
            refused = str(error)
        else:
            refused = ""

    assert "no head" in refused
    assert [cursor is None for cursor in asked] == [False, False, True]
