"""Which lists find the swaps: the network's, or those of the contracts where Hiro does not serve it."""

from dataclasses import replace
from pathlib import Path

import pytest

from stacks_simulator.hiro_api import NetworkListState
from support.competition import World, feed, followed, number, sweep
from tocsin.fetch import FetchResponse
from tocsin.swaps.position import FeedState, Gap, MeasuredTraffic, Position, load_state, measured, save_state
from tocsin.swaps.rules import built_in

CONTRACTS = len(built_in().contracts)
NETWORK_LIST = "/extended/v3/transactions"
HOUR_S = 3_600
NOW = 1_778_700_600_000
MINUTE = 60_000
SWEEP_MS = 15 * MINUTE


async def trade(world: World) -> None:
    """Make a new swap in a block of its own."""
    world.simulator.advance()
    world.simulator.chain.swap(world.simulator.chain.wallets[0])
    world.simulator.chain.mine()


@pytest.mark.slow
@pytest.mark.parametrize("state", ["absent", "gone"])
async def test_without_the_list_the_contracts_lists_are_read(state: NetworkListState, tmp_path: Path) -> None:
    """The result has the reason; the list is asked for every hour, and followed when it is there again."""
    async with followed(tmp_path, 2) as (world, _):
        world.simulator.hiro.network_list = state
        left = await feed(world)
        await trade(world)
        swept = await sweep(world)
        found = len(await world.rows())
        before = world.calls()
        for _ in range(57):
            await feed(world, after_s=60)
        quiet = await feed(world, after_s=60)
        asked_within = world.calls() - before
        still = await feed(world, after_s=180)
        asked = world.calls() - before
        world.simulator.hiro.network_list = "served"
        back = await feed(world, after_s=HOUR_S)
        await trade(world)
        resumed = await feed(world, after_s=60)
        again = await sweep(world)
        await world.check()

    missing = "Hiro does not have the list of all transactions"
    assert (left.counters["way"], left.counters["reason"]) == ("contracts", missing)
    assert (left.error, left.incomplete, left.counters["completeUntilBlock"]) == (None, None, None)
    assert (swept.counters["way"], swept.counters["contractsScanned"]) == ("contracts", CONTRACTS)
    assert found == 1
    assert (asked_within, quiet.counters["way"], quiet.counters["reason"]) == (0, "contracts", missing)
    assert (asked, still.counters["way"]) == (1, "contracts")
    assert back.counters["way"] == "network"
    assert resumed.counters["inserted"] == 1
    assert (again.counters["way"], again.counters["contractsScanned"]) == ("network", CONTRACTS)
    changes = [line.fields["source"] for line in world.log.of("feed.source_changed")]
    assert changes == ["contracts", "network"]


@pytest.mark.slow
@pytest.mark.parametrize("state", ["absent", "gone"])
async def test_a_list_that_goes_away_while_much_is_unread(state: NetworkListState, tmp_path: Path) -> None:
    """However many gaps there are, the way changes within a few runs, and nothing is lost."""
    async with followed(tmp_path, 2) as (world, _):
        kept = await load_state(world.db)
        (anchor, *_) = kept.position.anchors
        gaps = tuple(Gap(f"{anchor.height + at}:0:1", (anchor.height + at, 1)) for at in range(20, 0, -2))
        now = world.clock.now()
        anchors = (*(replace(anchor, height=gap.bottom[0], tx_index=2) for gap in gaps), anchor)
        await save_state(world.db, replace(kept, position=Position(anchors, gaps)), now).run()
        await trade(world)
        world.simulator.hiro.network_list = state
        for _ in range(4):
            await feed(world)
            await world.clock.sleep(60)
        result = await feed(world)
        await sweep(world)
        await world.check()

    assert len(gaps) == 10
    assert result.counters["way"] == "contracts"


@pytest.mark.slow
async def test_a_list_that_fails_stays_the_way_and_the_sweep_takes_over(tmp_path: Path) -> None:
    """Errors and HTML do not mean that the list is gone. Without a look for half an hour the contracts are read."""
    async with followed(tmp_path, 2) as (world, _):

        def failing(url: str) -> FetchResponse | None:
            page = FetchResponse(500 + 2 * (len(url) % 2), {}, b"<html>Just a moment...</html>")
            return page if f"{NETWORK_LIST}?" in url else None

        ways = []
        with world.answering(failing):
            for _ in range(5):
                await trade(world)
                await feed(world)
                swept = await sweep(world)
                ways.append((swept.counters["way"], len(await world.rows())))
                await world.clock.sleep(900)
        result = await feed(world)
        back = await sweep(world)
        await world.check()

    assert [way for way, _ in ways] == ["network", "network", "contracts", "contracts", "contracts"]
    assert [found for _, found in ways][2:] == [3, 4, 5]
    assert (result.counters["way"], result.incomplete) == ("network", None)
    assert back.counters["way"] == "network"


async def test_a_sweep_by_hand_reads_all_contracts(tmp_path: Path) -> None:
    async with followed(tmp_path, 2) as (world, _):
        await feed(world)
        usual = await sweep(world, after_s=900)
        by_hand = await sweep(world, world.run(by_hand=True))

    assert number(usual.counters, "contractsScanned") <= 1
    assert (by_hand.counters["way"], by_hand.counters["contractsScanned"]) == ("contracts", CONTRACTS)


@pytest.mark.parametrize("stored", ['{"position": 7}', '{"position": '])
async def test_a_state_that_cannot_be_read_is_begun_again(stored: str, tmp_path: Path) -> None:
    """As if the feed had never run: it restarts at the head, and the sweep reads everything."""
    async with followed(tmp_path, 1) as (world, _):
        statement = "UPDATE competition_state SET value = ? WHERE key = 'competition_feed'"
        await world.db.prepare(statement).bind(stored).run()
        state = await load_state(world.db)
        swept = await sweep(world)
        result = await feed(world, after_s=60)

    assert state == FeedState()
    assert swept.counters["way"] == "contracts"
    assert (result.counters["pages"], result.counters["completeUntilBlock"]) == (1, None)


def test_traffic_is_measured_after_ten_minutes_and_then_every_hour() -> None:
    """By the length of the list; a list that became shorter or a clock that was set back begins again."""
    first = measured(None, NOW, 1_000)
    early = measured(first, NOW + 10 * MINUTE - 1, 1_100)
    known = measured(first, NOW + 10 * MINUTE, 1_100)

    assert (first, early) == (MeasuredTraffic(NOW, 1_000), first)
    assert known == MeasuredTraffic(NOW + 10 * MINUTE, 1_100, 14_400)
    assert measured(known, NOW + 70 * MINUTE - 1, 9_999) == known
    assert measured(known, NOW + 70 * MINUTE, 1_700) == MeasuredTraffic(NOW + 70 * MINUTE, 1_700, 14_400)
    assert measured(known, NOW + 70 * MINUTE, 1_099) == MeasuredTraffic(NOW + 70 * MINUTE, 1_099, 14_400)
    assert measured(known, NOW, 1_100) == MeasuredTraffic(NOW, 1_100, 14_400)
    assert measured(known, NOW + 70 * MINUTE, 1_100) == MeasuredTraffic(NOW + 70 * MINUTE, 1_100, 0)


@pytest.mark.parametrize(
    ("state", "age_ms", "sweep_ms", "relied"),
    [
        (FeedState(complete_at=NOW), 30 * MINUTE, SWEEP_MS, True),
        (FeedState(complete_at=NOW), 30 * MINUTE + 1, SWEEP_MS, False),
        (FeedState(complete_at=NOW), 3 * MINUTE, MINUTE, True),
        (FeedState(complete_at=NOW), 3 * MINUTE + 1, MINUTE, False),
        (FeedState(limited_at=NOW), 30 * MINUTE, SWEEP_MS, True),
        (FeedState(complete_at=NOW), -1, SWEEP_MS, False),
        (FeedState(complete_at=NOW, source="contracts"), 0, SWEEP_MS, False),
        (FeedState(), 0, SWEEP_MS, False),
    ],
)
def test_the_sweep_relies_on_the_feed_for_two_of_its_cadences(
    state: FeedState, age_ms: int, sweep_ms: int, *, relied: bool
) -> None:
    """Three minutes at least; then it reads the contracts' lists itself."""
    assert state.finds_swaps(NOW + age_ms, sweep_ms) is relied
