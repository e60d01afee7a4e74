"""The way swaps are found: the network's list while it is served and costs less, else the contracts' lists."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stacks_simulator.simulator import Simulator
from stacks_simulator.traffic import Traffic, start_traffic
from support.competition import World, as_rows, chain_of, feed, follow, number, open_world, started, sweep
from support.simulated_fetch import SimulatedFetch
from tocsin.fetch import FetchResponse
from tocsin.swaps.feed_state import FeedGap, FeedState, MeasuredTraffic, choose_way, load_state, measured, save_state
from tocsin.swaps.rules import built_in

CONTRACTS = len(built_in().contracts)
NETWORK_LIST = "/extended/v3/transactions"
HOUR_S = 3_600
QUARTER_MS = 900_000  # 96 sweeps a day: forty contracts are 3,840 calls


async def trade(world: World) -> None:
    """Make a new swap in a block of its own."""
    world.simulator.advance()
    world.simulator.chain.swap(world.simulator.chain.wallets[0])
    world.simulator.chain.mine()


@pytest.mark.slow
@pytest.mark.parametrize("state", ["absent", "gone"])
async def test_without_the_list_the_contracts_lists_are_read(state: str, tmp_path: Path) -> None:
    """The result has the reason; the list is asked for every hour, and followed when its traffic is known again."""
    async with open_world(tmp_path, chain_of(2)) as world:
        await started(world)
        world.simulator.hiro.set_network_list(state)
        left = await feed(world)
        await trade(world)
        swept = await sweep(world)
        found = len(await world.rows())
        before = world.calls()
        for _ in range(57):
            await world.clock.sleep(60)
            await feed(world)
        await world.clock.sleep(60)
        quiet = await feed(world)
        asked_within = world.calls() - before
        await world.clock.sleep(180)
        still = await feed(world)
        asked = world.calls() - before
        world.simulator.hiro.set_network_list("served")
        await world.clock.sleep(HOUR_S)
        await feed(world)  # the first look reads the length of the list, the next one shows the traffic
        await world.clock.sleep(HOUR_S)
        back = await feed(world)
        await trade(world)
        await world.clock.sleep(60)
        followed = await feed(world)
        again = await sweep(world)
        rows = await world.rows()

    missing = "Hiro does not have the list of all transactions"
    assert (left.counters["way"], left.counters["reason"]) == ("contracts", missing)
    assert (left.error, left.incomplete, left.counters["completeUntilBlock"]) == (None, None, None)
    assert (swept.counters["way"], swept.counters["contractsScanned"]) == ("contracts", CONTRACTS)
    assert found == 1
    assert (asked_within, quiet.counters["way"], quiet.counters["reason"]) == (0, "contracts", missing)
    assert (asked, still.counters["way"]) == (1, "contracts")
    assert back.counters["way"] == "network"
    assert followed.counters["inserted"] == 1
    assert (again.counters["way"], again.counters["contractsScanned"]) == ("network", CONTRACTS)
    assert rows == as_rows(world.simulator.chain.truth())
    changes = [line.fields["way"] for line in world.log.of("feed.way_changed")]
    assert changes == ["contracts", "network"]


@pytest.mark.slow
@pytest.mark.parametrize("state", ["absent", "gone"])
async def test_a_list_that_goes_away_while_much_is_unread(state: str, tmp_path: Path) -> None:
    """However many gaps there are, the way changes within a few runs, and nothing is lost."""
    async with open_world(tmp_path, chain_of(2)) as world:
        await started(world)
        kept = await load_state(world.db)
        (anchor, *_) = kept.mark.anchors
        gaps = tuple(FeedGap(f"{anchor.height + at}:0:1", (anchor.height + at, 1)) for at in range(20, 0, -2))
        now = world.clock.now()
        anchors = (*(replace(anchor, height=gap.bottom[0], tx_index=2) for gap in gaps), anchor)
        await save_state(world.db, replace(kept, mark=replace(kept.mark, gaps=gaps, anchors=anchors)), now).run()
        await trade(world)
        world.simulator.hiro.set_network_list(state)
        for _ in range(4):
            await feed(world)
            await world.clock.sleep(60)
        result = await feed(world)
        await sweep(world)
        rows = await world.rows()

    assert len(gaps) == 10
    assert result.counters["way"] == "contracts"
    assert rows == as_rows(world.simulator.chain.truth())


@pytest.mark.slow
async def test_a_list_that_fails_stays_the_way_and_the_sweep_takes_over(tmp_path: Path) -> None:
    """Errors and HTML do not mean that the list is gone. Without a look for half an hour the contracts are read."""
    async with open_world(tmp_path, chain_of(2)) as world:
        await started(world)
        whole = world.hiro.client._fetch

        async def failing(url: str, **options: Any) -> FetchResponse:
            if f"{NETWORK_LIST}?" in url:
                return FetchResponse(500 + 2 * (len(url) % 2), {}, b"<html>Just a moment...</html>")
            return await whole(url, **options)

        world.hiro.client._fetch = failing
        ways = []
        for _ in range(5):
            await trade(world)
            await feed(world)
            swept = await sweep(world)
            ways.append((swept.counters["way"], len(await world.rows())))
            await world.clock.sleep(900)
        world.hiro.client._fetch = whole
        result = await feed(world)
        back = await sweep(world)
        rows = await world.rows()

    assert [way for way, _ in ways] == ["network", "network", "contracts", "contracts", "contracts"]
    assert [found for _, found in ways][2:] == [3, 4, 5]
    assert (result.counters["way"], result.incomplete) == ("network", None)
    assert back.counters["way"] == "network"
    assert rows == as_rows(world.simulator.chain.truth())


@pytest.mark.slow
async def test_a_feed_that_does_not_run_leaves_the_contracts_to_the_sweep(tmp_path: Path) -> None:
    """Paused, or broken: two of the sweep's cadences are trusted, no more."""
    async with open_world(tmp_path, chain_of(2)) as world:
        await started(world)
        await feed(world)
        ways = []
        for _ in range(3):
            await world.clock.sleep(900)
            ways.append((await sweep(world)).counters["way"])
        await trade(world)
        await sweep(world)
        rows = await world.rows()

    assert ways == ["network", "network", "contracts"]
    assert rows == as_rows(world.simulator.chain.truth())


async def test_a_sweep_by_hand_reads_all_contracts(tmp_path: Path) -> None:
    async with open_world(tmp_path, chain_of(2)) as world:
        await started(world)
        await feed(world)
        await world.clock.sleep(900)
        usual = await sweep(world)
        by_hand = await sweep(world, world.run(by_hand=True))

    assert number(usual.counters, "contractsScanned") <= 1
    assert (by_hand.counters["way"], by_hand.counters["contractsScanned"]) == ("contracts", CONTRACTS)


class BusyFetch:
    """Hiro, whose network's list grows by this many transactions a day, as its total says."""

    def __init__(self, simulator: Simulator) -> None:
        self._fetch = SimulatedFetch(simulator)
        self._clock = simulator.clock
        self.per_day = 0.0
        self._since = 0
        self._base = 1_000_000.0

    def set(self, per_day: float) -> None:
        """Let the list grow at another rate."""
        self._base, self._since = self._total(), self._clock.now()
        self.per_day = per_day

    def _total(self) -> float:
        elapsed = self._clock.now() - self._since if self._since else 0
        return self._base + self.per_day * elapsed / 86_400_000

    async def __call__(self, url: str, **options: Any) -> FetchResponse:
        answer = await self._fetch(url, **options)
        if f"{NETWORK_LIST}?" not in url or answer.status != 200:
            return answer
        body = json.loads(answer.body)
        body["total"] = int(self._total())
        return FetchResponse(200, answer.headers, json.dumps(body).encode())


@pytest.mark.slow
async def test_a_network_that_is_too_busy_is_left_and_found_again(tmp_path: Path) -> None:
    """A million transactions a day would be 20,000 calls; the contracts' lists are 4,000. A calm one is followed."""
    simulator = chain_of(2)
    fetch = BusyFetch(simulator)
    async with open_world(tmp_path, simulator, fetch=lambda _: fetch) as world:
        await started(world)
        others = Traffic(swaps=3, strangers=0, transfers=0, floods=0, reorgs=0, network=60)
        start_traffic(simulator.chain, others)
        fetch.set(1_000_000.0)
        busy = [(await follow(world, 60))[-1].counters["way"] for _ in range(4)]
        fetch.set(20_000.0)
        last = (await follow(world, 5 * 60))[-1]
        rows = await world.rows()
        swept = await sweep(world)

    assert busy == ["contracts"] * 4
    assert last.counters["way"] == "network"
    assert [line.fields["way"] for line in world.log.of("feed.way_changed")] == ["contracts", "network"]
    assert 15_000 < number(last.counters, "transactionsPerDay") < 25_000
    assert "transactions a day are" in str(last.counters["reason"])
    assert swept.counters["way"] == "network"
    assert rows == as_rows(simulator.chain.truth())
    assert len(rows) > 10


@pytest.mark.parametrize(
    ("way", "per_day", "chosen"),
    [
        ("network", None, "network"),
        ("contracts", None, "contracts"),
        ("network", 0, "network"),
        ("network", 235_100, "network"),  # 4,702 + 96 calls: just below 1.25 x 3,840
        ("network", 235_300, "contracts"),
        ("contracts", 235_300, "contracts"),
        ("contracts", 187_200, "contracts"),  # between the bounds the way stays
        ("network", 187_200, "network"),
        ("contracts", 148_900, "contracts"),  # 2,978 + 96: just above 0.8 x 3,840
        ("contracts", 148_700, "network"),
    ],
)
def test_the_way_is_left_and_returned_to_at_different_costs(way: Any, per_day: int | None, chosen: str) -> None:
    """Forty contracts, a sweep every quarter of an hour."""
    assert choose_way(way, per_day, 40, QUARTER_MS)[0] == chosen


def test_a_traffic_between_the_bounds_changes_nothing_ever() -> None:
    """From either side, a rate that swings between the bounds keeps the way."""
    for way in ("network", "contracts"):
        for per_day in (150_000, 230_000, 150_000, 230_000):
            assert choose_way(way, per_day, 40, QUARTER_MS)[0] == way


def test_traffic_is_measured_over_ten_minutes_first_and_then_over_hours() -> None:
    """Shorter times say little; a list that became shorter is measured from there."""
    first = measured(None, 0, 1_000)
    assert first == MeasuredTraffic(0, 1_000, None)
    assert measured(first, 599_999, 2_000) == first
    second = measured(first, 600_000, 1_100)
    assert second == MeasuredTraffic(600_000, 1_100, 14_400)
    assert measured(second, 4_199_999, 9_000) == second
    assert measured(second, 4_200_000, 2_100) == MeasuredTraffic(4_200_000, 2_100, 24_000)
    assert measured(second, 4_200_000, 900) == MeasuredTraffic(4_200_000, 900, 14_400)
    assert measured(second, 500_000, 2_000) == MeasuredTraffic(500_000, 2_000, 14_400)


@pytest.mark.parametrize("stored", ['{"mark": 7}', '{"mark": '])
async def test_a_state_that_cannot_be_read_is_begun_again(stored: str, tmp_path: Path) -> None:
    """As if the feed had never run: it restarts at the head, and the sweep reads everything."""
    async with open_world(tmp_path, chain_of(1)) as world:
        await started(world)
        statement = "UPDATE competition_state SET value = ? WHERE key = 'competition_feed'"
        await world.db.prepare(statement).bind(stored).run()
        state = await load_state(world.db)
        swept = await sweep(world)
        await world.clock.sleep(60)
        result = await feed(world)

    assert state == FeedState()
    assert swept.counters["way"] == "contracts"
    assert (result.counters["pages"], result.counters["completeUntilBlock"]) == (1, None)
