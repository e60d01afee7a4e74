"""The block up to which the record is proven complete: with and without a run."""

from dataclasses import replace
from pathlib import Path

import pytest

from stacks_simulator.addresses import address_of
from stacks_simulator.faults import SimulatedFault
from stacks_simulator.traffic import start_tenures
from stacks_simulator.wallets import Wallet
from support.competition import World, chain_of, feed, followed, open_world, register, started, sweep
from support.world import tocsin_in
from tocsin.scheduler.types import Completeness
from tocsin.swaps.position import Anchor, FeedState, Gap, Position
from tocsin.swaps.proof import Proof, completeness
from tocsin.swaps.rules import Rules

VERIFYING = SimulatedFault(kind="status", status=503, upstream="hiro", path="tx/multiple")
NOW = 1_778_700_600_000


async def claim(world: World, rules: Rules | None = None) -> Completeness:
    """Return what visitors see now."""
    return await completeness(world.db, rules or world.rules, feed_runs=True)


async def looked(world: World) -> int:
    """After another block and a look at it: the newest block."""
    chain = world.simulator.chain
    chain.transfer(chain.strangers[0], chain.strangers[1], 1)
    chain.mine()
    await feed(world, after_s=120)
    return chain.blocks[-1].height


async def test_the_claim_is_the_newest_block_and_outlives_the_process(tmp_path: Path) -> None:
    simulator = chain_of(3)
    async with open_world(tmp_path, simulator) as world:
        before = await claim(world)
        await started(world)
        newest = await looked(world)
        proven = await claim(world)
    async with open_world(tmp_path, simulator) as world:
        after = await claim(world)

    assert (before.until_block, before.obstacle) == (None, "the network's list was not read yet")
    assert proven == Completeness(newest, proven.as_of, 0, None)
    assert proven.as_of is not None
    assert after == proven


@pytest.mark.slow
async def test_what_waits_to_be_verified_is_not_on_record(tmp_path: Path) -> None:
    """The list showed it, and it could not be verified: the record is proven below its block, and no further."""
    async with followed(tmp_path, 3) as (world, chain):
        await looked(world)
        world.simulator.faults.add(VERIFYING)
        [swap] = world.trade(chain.wallets[0], kind="simple")
        await looked(world)
        assert swap.block is not None
        waiting, result = await claim(world), await feed(world)
        world.simulator.faults.clear()
        start_tenures(chain)
        await world.clock.sleep(3_600)
        newest = await looked(world)
        recorded, verified = len(await world.rows()), await claim(world)

    assert waiting.until_block == swap.block.height - 1
    assert waiting.obstacle == "transactions that wait to be verified: 1"
    assert result.counters["completeUntilBlock"] == swap.block.height - 1
    assert (recorded, verified.until_block, verified.obstacle) == (1, newest, None)


async def test_a_transaction_that_left_the_chain_holds_nothing_back(tmp_path: Path) -> None:
    """It was listed, then a reorg took it; as a candidate it may come back for a week."""
    async with followed(tmp_path, 3) as (world, chain):
        await looked(world)
        world.simulator.faults.add(VERIFYING)
        [swap] = world.trade(chain.wallets[0], kind="simple")
        await looked(world)
        held = await claim(world)
        world.simulator.faults.clear()
        chain.reorg(chain.tip_height - chain.blocks[-2].height + 1, "dropped")
        start_tenures(chain)
        await world.clock.sleep(3_600)
        newest = await looked(world)
        queued = await world.all("SELECT txid FROM candidates")
        proven = await claim(world)

    assert swap.state == "dropped"
    assert held.until_block is not None
    assert held.until_block < newest
    assert [row["txid"] for row in queued] == [swap.tx_id]
    assert (proven.until_block, proven.obstacle) == (newest, None)


async def test_a_wallet_that_becomes_eligible_ends_the_claim_before_any_run(tmp_path: Path) -> None:
    async with followed(tmp_path, 3) as (world, _):
        await looked(world)
        before = await claim(world)
        await register(world.db, [Wallet(address_of("new"), "eligible", erc8004_agent_id=99)])
        after = await claim(world)
        await sweep(world)
        newest = await looked(world)
        read = await claim(world)

    assert before.until_block is not None
    assert (after.until_block, after.obstacle) == (None, "not all lists of contracts and wallets were read yet")
    assert read.until_block == newest


async def test_without_the_networks_list_nothing_is_claimed(tmp_path: Path) -> None:
    """Hiro does not have it, or the feed is switched off: what was proven before may have changed since."""
    async with followed(tmp_path, 3) as (world, _):
        await looked(world)
        off = await completeness(world.db, world.rules, feed_runs=False)
        world.simulator.hiro.network_list = "gone"
        await looked(world)
        gone = await claim(world)

    assert off.until_block is None
    assert off.obstacle == (
        "the feed does not run (it needs TOCSIN_FEED_ENABLED and TOCSIN_SWEEP_ENABLED),"
        " and the sweep alone cannot tell what a list leaves out"
    )
    assert gone.until_block is None
    assert gone.obstacle == ("the network's list is not followed: Hiro does not have the list of all transactions")


@pytest.mark.slow
@pytest.mark.parametrize("feed_runs", [True, False])
async def test_the_board_says_it_to_everybody(tmp_path: Path, feed_runs: bool) -> None:
    async with followed(tmp_path, 3) as (world, _):
        newest = await looked(world)
    async with tocsin_in(tmp_path, simulator=world.simulator, feed_enabled=feed_runs) as made:
        made.built.in_force.rules = world.rules
        answer = await made.get("/api/competition/leaderboard")

    complete = answer.json()["complete"]
    assert complete["untilBlock"] == (newest if feed_runs else None)
    assert (complete["obstacle"] is None) == feed_runs


# The proof


READ = Position(tuple(Anchor(f"0x{height}", f"0xb{height}", height, 0) for height in (100, 90)))
BEHIND = replace(READ, gaps=(Gap("cursor", (95, 0)),))


@pytest.mark.parametrize(
    ("proof", "block"),
    [
        (Proof(True, 0, None, 0, None), 100),
        (Proof(True, 1, 80, 0, None), 80),
        (Proof(True, 1, 80, 1, 70), 70),
        (Proof(True, 0, None, 1, 99), 99),
        (Proof(True, 1, 0, 0, None), None),
        (Proof(True, 1, 1, 0, None), 1),
        (Proof(False, 0, None, 0, None), None),
    ],
)
def test_the_record_is_proven_up_to_the_least_of_its_limits(proof: Proof, block: int | None) -> None:
    """What was read, what has all its nonces, what is verified; a block that does not exist proves nothing."""
    assert proof.until_block(FeedState(position=READ)) == block
    assert proof.until_block(FeedState(position=READ, source="contracts")) is None
    assert proof.until_block(FeedState()) is None


def test_what_keeps_the_proof_from_the_newest_block_is_named() -> None:
    """Everything that does, in one sentence."""
    state = FeedState(position=BEHIND, started_at=NOW, looked_at=NOW - 5, complete_at=NOW - 5, newest_s=1_778_786_400)
    told = Proof(True, 2, 80, 3, 70).completeness(state)

    assert (told.until_block, told.as_of, told.missing_nonces) == (70, NOW - 5, 2)
    assert told.obstacle == (
        "a part of the network's list is unread, transactions of eligible wallets that no list has shown: 2,"
        " transactions that wait to be verified: 3"
    )
    proven = Proof(True, 0, None, 0, None)
    read = replace(state, position=READ)
    assert proven.completeness(read).obstacle is None
    old = proven.completeness(replace(read, looked_at=NOW)).obstacle
    assert old == "the newest block that Hiro lists is of 2026-05-14 19:20 UTC"
    dropped = proven.completeness(replace(read, looked_at=None)).obstacle
    assert dropped == "a part of the network's list is unread"
    unread = Proof(False, 0, None, 0, None).completeness(state).obstacle
    assert unread == "not all lists of contracts and wallets were read yet"
