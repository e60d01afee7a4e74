"""Feed and sweep run at the same time: nothing is lost between them."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stacks_simulator.calls import MULTIHOP_ROUTER
from support.competition import as_rows, chain_of, feed, number, open_world, started, sweep
from tocsin.swaps.feed_state import FeedState, load_state, save_state
from tocsin.swaps.sweep import Sweep


async def test_feed_and_sweep_at_the_same_time_do_not_verify_the_same(tmp_path: Path) -> None:
    """Each run leaves alone what the other is verifying: each swap is requested once."""
    async with open_world(tmp_path, chain_of(6), latency_s=0.2) as world:
        chain = world.simulator.chain
        await started(world)
        for wallet in chain.wallets:
            chain.burst(wallet, 10)
        chain.mine()
        before = len(world.simulator.requests)
        both = await asyncio.gather(feed(world), sweep(world, world.run(by_hand=True)))
        asked = [request.query for request in list(world.simulator.requests)[before:]]
        rows = await world.rows()

    asked_ids = "".join(asked)
    assert all(asked_ids.count(row["txid"]) == 1 for row in rows)
    assert sum(number(result.counters, "inserted") for result in both) == 60
    assert rows == as_rows(chain.truth())


@pytest.mark.slow
async def test_a_list_counts_as_read_from_when_its_walk_began(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The feed begins while a contract's list is read: the swaps between its first page and the feed are found."""
    async with open_world(tmp_path, chain_of(2)) as world:
        chain = world.simulator.chain
        chain.burst(chain.wallets[0], 120, "multihop")
        chain.mine()
        whole = world.hiro.principal_transactions
        begun = False

        async def beginning(principal: str, session: Any, cursor: str | None = None) -> Any:
            nonlocal begun
            if principal == MULTIHOP_ROUTER and cursor is not None and not begun:
                begun = True
                await world.clock.sleep(5)
                world.simulator.advance()
                chain.swap(chain.wallets[1], "multihop")
                chain.mine()
                chain.dust(chain.strangers[0], 130)
                chain.mine()
                await feed(world)
                await world.clock.sleep(5)
            return await whole(principal, session, cursor)

        monkeypatch.setattr(world.hiro, "principal_transactions", beginning)
        await sweep(world)
        early = len(await world.rows())
        await world.clock.sleep(120)
        unproven = await feed(world)
        await world.clock.sleep(780)
        await sweep(world)
        rows = await world.rows()
        await world.clock.sleep(120)
        proven = await feed(world)

    assert early == 120
    assert unproven.counters["completeUntilBlock"] is None
    assert rows == as_rows(chain.truth())
    assert len(rows) == 121
    assert proven.counters["completeUntilBlock"] == chain.blocks[-1].height


async def test_a_sweep_asks_for_another_if_the_first_look_came_later(tmp_path: Path) -> None:
    """Lists that were read before the feed's first look prove nothing. Without a look, only the first sweep asks."""
    async with open_world(tmp_path, chain_of(2)) as world:
        now = world.clock.now
        without_look = [(await sweep(world)).wake_at, now() + 60_000]
        second = (await sweep(world)).wake_at
        await world.clock.sleep(1)
        await feed(world)
        made = Sweep(world.run(), world.rules, cadence_ms=900_000, feed_ms=60_000)
        await made.prepare()
        needed = [await made.needed_again_at(), now() + 60_000]
        await save_state(world.db, replace(await load_state(world.db), started_at=now() + 1), now()).run()
        ahead = await made.needed_again_at()
        await save_state(world.db, replace(await load_state(world.db), started_at=now()), now()).run()
        proving = await sweep(world)
        alone = Sweep(world.run(), world.rules, cadence_ms=900_000)
        await alone.prepare()
        switched_off = await alone.needed_again_at()
        await save_state(world.db, FeedState(way="contracts", started_at=now()), now()).run()
        other_way = await made.needed_again_at()

    assert without_look[0] == without_look[1]
    assert needed[0] == needed[1]
    assert (second, ahead, switched_off, other_way) == (None, None, None, None)
    assert (proving.counters["contractsRead"], proving.wake_at) == (40, None)


async def test_a_sweep_vouches_for_the_time_at_which_it_began(tmp_path: Path) -> None:
    """It took minutes, and a list that was read first may lack what was mined since."""
    async with open_world(tmp_path, chain_of(2), latency_s=7.0) as world:
        began_at = world.clock.now()
        result = await sweep(world)
        took_ms = world.clock.now() - began_at
        swept_at = await world.all("SELECT value FROM competition_state WHERE key = 'competition_swept_at'")

    assert (result.error, result.incomplete) == (None, None)
    assert took_ms > 40_000
    assert swept_at == [{"value": str(began_at)}]
