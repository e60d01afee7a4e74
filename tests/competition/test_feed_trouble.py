"""The feed under faults: reorgs, rejected cursors, and pages that break Hiro's contract."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stacks_simulator.faults import SimulatedFault
from support.changed_fetch import ChangedFetch
from support.competition import World, as_rows, chain_of, feed, number, open_world, started, sweep
from tocsin.fetch import FetchResponse
from tocsin.settings import Settings
from tocsin.swaps import store as totals
from tocsin.swaps.feed_state import load_state, save_state, set_value
from tocsin.swaps.proof import completeness
from tocsin.swaps.rules import built_in
from tocsin.text import utc_time

CONTRACTS = len(built_in().contracts)
NETWORK_LIST = "/extended/v3/transactions"


def many(world: World, count: int = 130) -> None:
    """More transactions of strangers than a page holds."""
    world.simulator.chain.dust(world.simulator.chain.strangers[1], count)
    world.simulator.chain.mine()


@pytest.mark.slow
@pytest.mark.parametrize("fate", ["dropped", "forked", "vanished"])
async def test_the_feed_alone_withdraws_a_swap_that_a_reorg_removed(fate: Any, tmp_path: Path) -> None:
    """It is no longer in the list, and the lookup confirms it; mined again, it is back."""
    async with open_world(tmp_path, chain_of(2)) as world:
        chain = world.simulator.chain
        await started(world)
        sent = [chain.swap(wallet) for wallet in chain.wallets]
        chain.mine()
        await feed(world)
        before = await world.rows()
        chain.reorg(3, fate)
        many(world, 3)
        await world.clock.sleep(60)
        result = await feed(world)
        after, drift = await world.rows(), await totals.drift(world.db)
        for tx in sent:
            chain.rebroadcast(tx)
        chain.mine()
        await world.clock.sleep(120)
        await feed(world)
        back = await world.rows()

    assert len(before) == 2
    assert (after, drift) == ([], {})
    assert result.counters["withdrawn"] == 2
    assert back == as_rows(chain.truth())
    assert len(back) == 2


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["simple", "sponsored"])
async def test_a_swap_that_is_mined_in_another_block_is_moved(kind: str, tmp_path: Path) -> None:
    """Its block is the new one, and it is not counted twice."""
    async with open_world(tmp_path, chain_of(2)) as world:
        chain = world.simulator.chain
        await started(world)
        tx = chain.swap(chain.wallets[0], kind)
        first = chain.mine()
        await feed(world)
        chain.reorg(5, "dropped")
        many(world, 3)
        await world.clock.sleep(60)
        chain.rebroadcast(tx)
        second = chain.mine()
        result = await feed(world)
        blocks = await world.all("SELECT block_height, block_hash FROM swaps")
        rows, drift = await world.rows(), await totals.drift(world.db)

    assert first.hash != second.hash
    assert blocks == [{"block_height": second.height, "block_hash": second.hash}]
    assert rows == as_rows(chain.truth())
    assert (drift, result.counters["missingNonces"]) == ({}, 0)


async def test_a_reorg_deeper_than_everything_read_restarts_the_feed(tmp_path: Path) -> None:
    """It is logged, and the sweep reads all contracts' lists again: the swaps that the new chain has below the head."""
    async with open_world(tmp_path, chain_of(3)) as world:
        chain = world.simulator.chain
        many(world, 200)
        await world.clock.sleep(60)
        world.simulator.advance()
        await started(world)
        for wallet in chain.wallets:
            chain.swap(wallet)
        chain.mine()
        await feed(world)
        gone = await world.rows()
        chain.reorg(chain.tip_height - chain.blocks[0].height, "vanished")
        chain.swap(chain.wallets[0])
        chain.mine()
        many(world)
        await world.clock.sleep(60)
        known = await world.all("SELECT wallet FROM nonces")
        first = await feed(world)
        forgotten = await world.all("SELECT wallet FROM nonces")
        swept = await sweep(world)
        rows, drift = await world.rows(), await totals.drift(world.db)
        await world.clock.sleep(60)
        second = await feed(world)

    assert len(gone) == 3
    assert (len(known), forgotten) == (3, [])  # those seen before the unread stretch prove nothing
    assert len(world.log.of("feed.restarted")) == 1
    assert (first.counters["pages"], first.counters["completeUntilBlock"]) == (3, None)
    assert swept.counters["contractsScanned"] == CONTRACTS
    assert (rows, drift) == (as_rows(chain.truth()), {})
    assert len(rows) == 1
    assert second.counters["completeUntilBlock"] == chain.blocks[-1].height


async def test_a_long_way_is_read_in_one_run(tmp_path: Path) -> None:
    """Two hundred transactions are four pages and one; nothing is left for later."""
    async with open_world(tmp_path, chain_of(2)) as world:
        chain = world.simulator.chain
        await started(world)
        chain.swap(chain.wallets[0])
        many(world, 199)
        result = await feed(world)
        rows = await world.rows()

    assert (result.counters["pages"], result.counters["transactions"]) == (5, 200)
    assert (result.incomplete, result.counters["blocksBehind"]) == (None, 0)
    assert rows == as_rows(chain.truth())


@pytest.mark.slow
@pytest.mark.parametrize("status", [404, 400])
async def test_a_cursor_that_is_not_accepted_is_given_up(status: int, tmp_path: Path) -> None:
    """The run says so and is not complete; the next one reads from the head again and misses nothing."""
    async with open_world(tmp_path, chain_of(2)) as world:
        chain = world.simulator.chain
        await started(world)
        chain.swap(chain.wallets[0])
        many(world)
        whole = world.hiro.client._fetch

        async def refusing(url: str, **options: Any) -> FetchResponse:
            if NETWORK_LIST in url and "cursor" in url:
                return FetchResponse(status, {}, b'{"statusCode":404,"message":"Cursor not found"}')
            return await whole(url, **options)

        world.hiro.client._fetch = refusing
        first = await feed(world)
        early = await world.rows()
        world.hiro.client._fetch = whole
        await world.clock.sleep(60)
        second = await feed(world)
        rows = await world.rows()

    assert early == []
    assert first.incomplete is not None
    assert "does not accept its own cursor" in first.incomplete
    assert (first.error, second.error, second.incomplete) == (None, None, None)
    assert rows == as_rows(chain.truth())
    assert len(rows) == 1


async def test_a_page_that_repeats_is_refused(tmp_path: Path) -> None:
    """A server that ignores the cursor costs two calls a run, not forty, and nothing is lost."""
    simulator = chain_of(2)
    async with open_world(tmp_path, simulator) as world:
        chain = simulator.chain
        await started(world)
        chain.swap(chain.wallets[0])
        many(world)
        whole = world.hiro.client._fetch

        async def circling(url: str, **options: Any) -> FetchResponse:
            return await whole(url.split("&cursor", maxsplit=1)[0] if NETWORK_LIST in url else url, **options)

        world.hiro.client._fetch = circling
        before = world.calls()
        first = await feed(world)
        made = world.calls() - before
        world.hiro.client._fetch = whole
        await world.clock.sleep(60)
        second = await feed(world)
        rows = await world.rows()

    assert made == 2
    assert first.incomplete is not None
    assert first.incomplete == (
        "the network's list: hiro broke its contract: its cursor does not lead further down the list:"
        " the list is read from its head again"
    )
    assert (second.incomplete, second.counters["blocksBehind"]) == (None, 0)
    assert rows == as_rows(chain.truth())


def poison_cursor(_: str, body: dict[str, Any]) -> None:
    """Make a page's cursor lead to the page itself."""
    body["cursor"]["next"] = body["cursor"]["current"]


def empty_page(url: str, body: dict[str, Any]) -> None:
    """Empty all pages but the first."""
    if "cursor=" in url:
        body |= {"results": [], "total": 0, "cursor": {"next": None, "previous": None, "current": None}}


@pytest.mark.parametrize("wrong", [poison_cursor, empty_page])
async def test_one_wrong_page_does_not_stop_the_feed(wrong: Any, tmp_path: Path) -> None:
    """It was wrong once: its gap is dropped, and the next run reads everything from the head."""
    simulator = chain_of(2)
    fetch = ChangedFetch(simulator, NETWORK_LIST + "?")
    async with open_world(tmp_path, simulator, fetch=lambda _: fetch) as world:
        chain = simulator.chain
        await started(world)
        chain.swap(chain.wallets[0])
        many(world)
        fetch.change = wrong
        first = await feed(world)
        proof = await completeness(world.db, world.rules, feed_runs=True)
        fetch.change = None
        await world.clock.sleep(60)
        chain.swap(chain.wallets[1])
        chain.mine()
        second = await feed(world)
        rows = await world.rows()

    assert first.incomplete is not None
    assert first.incomplete.endswith("the list is read from its head again")
    assert proof.obstacle == "a part of the network's list is unread"
    (line,) = world.log.of("feed.gap_dropped")
    assert line.fields["block"] == chain.blocks[-2].height
    assert (second.incomplete, second.counters["inserted"]) == (None, 2)
    assert rows == as_rows(chain.truth())


EMPTY = b'{"limit":50,"total":0,"results":[],"cursor":{"next":null,"previous":null,"current":null}}'


@pytest.mark.parametrize("wrong", ["fails", "repeats the head", "is empty"])
async def test_a_gap_that_cannot_be_read_does_not_prevent_the_look(wrong: str, tmp_path: Path) -> None:
    """A swap at the head is found by the run whose gap fails, and the right answer then fills the gap."""
    async with open_world(tmp_path, chain_of(2)) as world:
        chain = world.simulator.chain
        await started(world)
        chain.swap(chain.wallets[0])
        many(world)
        whole, answer = world.hiro.client._fetch, "fails"
        pages_of_gaps: list[str] = []

        async def changed(url: str, **options: Any) -> FetchResponse:
            if f"{NETWORK_LIST}?" not in url or "cursor=" not in url or answer == "right":
                return await whole(url, **options)
            pages_of_gaps.append(answer)
            if answer == "repeats the head":
                return await whole(url.split("&cursor", maxsplit=1)[0], **options)
            return FetchResponse(200, {}, EMPTY) if answer == "is empty" else FetchResponse(503, {}, b"{}")

        world.hiro.client._fetch = changed
        await feed(world)
        left = (await load_state(world.db)).mark.gaps
        answer = wrong
        await world.clock.sleep(60)
        world.simulator.advance()
        later = chain.swap(chain.wallets[1])
        chain.mine()
        failed = await feed(world)
        early = await world.rows()
        answer = "right"
        await world.clock.sleep(60)
        healed = await feed(world)
        rows, state = await world.rows(), await load_state(world.db)

    assert len(left) == 1
    assert state.newest_s == chain.blocks[-1].time_s  # of the head, not of the page that was read last
    assert failed.incomplete is not None
    assert wrong == "fails" or pages_of_gaps.count(wrong) == 1  # it is not tried twice in a run
    assert [row["txid"] for row in early] == [later.tx_id]
    assert (healed.incomplete, healed.counters["inserted"]) == (None, 1)
    assert rows == as_rows(chain.truth())


@pytest.mark.parametrize(("ahead_ms", "is_kept"), [(0, True), (1, False)])
async def test_a_time_of_a_clock_that_was_ahead_is_not_kept(ahead_ms: int, is_kept: bool, tmp_path: Path) -> None:
    """A look that leaves a gap does not count as complete; the last complete one was not in the future."""
    async with open_world(tmp_path, chain_of(1)) as world:
        await started(world)
        many(world)
        now, state = world.clock.now(), await load_state(world.db)
        complete_at = now + ahead_ms
        await save_state(world.db, replace(state, complete_at=complete_at), now).run()
        world.simulator.faults.add(SimulatedFault(kind="empty_page", path=NETWORK_LIST))
        await feed(world)
        kept = (await load_state(world.db)).complete_at

    assert kept == (complete_at if is_kept else None)


@pytest.mark.parametrize(("ago_ms", "gap_first"), [(0, True), (299_999, True), (300_000, False), (-1, False)])
async def test_for_five_minutes_a_page_of_the_gap_comes_before_the_look(
    ago_ms: int, gap_first: bool, tmp_path: Path
) -> None:
    """Then the head has its turn; also if the clock was set back since the last look."""
    async with open_world(tmp_path, chain_of(1)) as world:
        await started(world)
        many(world, 260)
        whole, fails = world.hiro.client._fetch, True

        async def failing(url: str, **options: Any) -> FetchResponse:
            if fails and "cursor=" in url:
                return FetchResponse(503, {}, b"{}")
            return await whole(url, **options)

        world.hiro.client._fetch = failing
        await feed(world)
        fails = False
        now, state = world.clock.now(), await load_state(world.db)
        await save_state(world.db, replace(state, looked_at=now - ago_ms), now).run()
        before = len(world.simulator.requests)
        result = await feed(world)

    assert len(state.mark.gaps) == 1
    queries = [request.query for request in list(world.simulator.requests)[before:]]
    assert ["cursor=" in query for query in queries[:2]] == [gap_first, not gap_first]
    assert result.incomplete is None


@pytest.mark.slow
@pytest.mark.parametrize("where", ["head", "cursor"])
async def test_an_empty_page_is_refused(where: str, tmp_path: Path) -> None:
    """A list that was long and is now empty is wrong. It costs one or two calls, and does not count as a look."""
    simulator = chain_of(2)
    fetch = ChangedFetch(simulator, NETWORK_LIST + "?")

    def emptied(url: str, body: dict[str, Any]) -> None:
        if ("cursor=" in url) == (where == "cursor"):
            body |= {"results": [], "total": 0, "cursor": {"next": None, "previous": None, "current": None}}

    async with open_world(tmp_path, simulator, fetch=lambda _: fetch) as world:
        chain = simulator.chain
        await started(world)
        chain.swap(chain.wallets[0])
        many(world)
        fetch.change = emptied
        before = world.calls()
        first = await feed(world)
        made = world.calls() - before
        await world.clock.sleep(1_801)
        swept = await sweep(world)
        found = await world.rows()
        fetch.change = lambda _, __: None
        many(world, 1)
        second = await feed(world)
        rows = await world.rows()

    assert made == (1 if where == "head" else 2)
    assert first.incomplete is not None
    assert "the list of all transactions ends too early" in first.incomplete
    assert swept.counters["way"] == "contracts"
    assert found == rows == as_rows(chain.truth())
    assert second.incomplete is None


async def test_a_list_that_is_cut_short_is_refused(tmp_path: Path) -> None:
    """Two rows and no cursor, while we know of older ones: nothing below is taken for gone."""
    simulator = chain_of(2)
    fetch = ChangedFetch(simulator, NETWORK_LIST + "?")

    def cut(_: str, body: dict[str, Any]) -> None:
        body["results"] = body["results"][:2]
        body["cursor"]["next"] = None

    async with open_world(tmp_path, simulator, fetch=lambda _: fetch) as world:
        chain = simulator.chain
        await started(world)
        many(world, 10)
        chain.swap(chain.wallets[0])
        chain.mine()
        fetch.change = cut
        first = await feed(world)
        fetch.change = lambda _, __: None
        second = await feed(world, world.run(by_hand=True))
        rows = await world.rows()

    assert first.incomplete is not None
    assert "ends too early" in first.incomplete
    assert (second.incomplete, second.counters["withdrawn"]) == (None, 0)
    assert rows == as_rows(chain.truth())


@pytest.mark.slow
async def test_a_row_that_cannot_be_read_is_looked_up(tmp_path: Path) -> None:
    """It may be a swap: its transaction is queued, and recorded from the lookup. The others are read."""
    simulator = chain_of(3)
    fetch = ChangedFetch(simulator, NETWORK_LIST + "?")
    async with open_world(tmp_path, simulator, fetch=lambda _: fetch) as world:
        chain = simulator.chain
        await started(world)
        sent = [chain.swap(wallet) for wallet in chain.wallets]
        chain.mine()

        def spoilt(_: str, body: dict[str, Any]) -> None:
            for row in body["results"]:
                if row["tx_id"] == sent[1].tx_id:
                    row["block"] = "none"

        fetch.change = spoilt
        result = await feed(world)
        rows = await world.rows()

    assert result.incomplete is None
    assert rows == as_rows(chain.truth())
    assert len(rows) == 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (SimulatedFault(kind="wrong_json", path=NETWORK_LIST), "not JSON"),
        (SimulatedFault(kind="truncated", path=NETWORK_LIST), "not JSON"),
        (SimulatedFault(kind="status", status=503, path=NETWORK_LIST), "answered 503"),
        (SimulatedFault(kind="hang", path=NETWORK_LIST), "gave no answer"),
        (SimulatedFault(kind="limited", retry_after=600, path=NETWORK_LIST), ""),
    ],
)
async def test_a_list_that_cannot_be_read_says_why_and_loses_nothing(
    fault: SimulatedFault, words: str, tmp_path: Path
) -> None:
    """The run is not complete, the way stays the network's, and the next good look has everything."""
    async with open_world(tmp_path, chain_of(2)) as world:
        chain = world.simulator.chain
        await started(world)
        chain.swap(chain.wallets[0])
        many(world)
        world.simulator.faults.add(fault)
        first = await feed(world)
        world.simulator.faults.clear()
        await world.clock.sleep(900)
        second = await feed(world)
        rows = await world.rows()

    assert (first.limited_until is not None) == (fault.kind == "limited")
    assert first.incomplete is not None
    assert words in first.incomplete
    assert (first.counters["pages"], first.counters["way"]) == (0, "network")
    assert (second.error, second.incomplete) == (None, None)
    assert number(second.counters, "inserted") == 1
    assert rows == as_rows(chain.truth())


async def test_a_refused_key_is_a_failure(tmp_path: Path) -> None:
    async with open_world(tmp_path, chain_of(1)) as world:
        world.simulator.faults.add(SimulatedFault(kind="status", status=403))
        result = await feed(world)

    assert result.error_kind == "Unauthorised"
    assert result.error is not None


async def test_an_old_block_makes_a_run_incomplete(tmp_path: Path) -> None:
    """Hiro answers at once, but has stopped: half an hour is allowed, a second more is told, and proves nothing."""
    async with open_world(tmp_path, chain_of(2)) as world:
        chain = world.simulator.chain
        await started(world)
        block = chain.mine(chain.swap(chain.wallets[0]))
        ended = []
        for age_s in (1_800, 1_801, 2_820):
            await world.clock.sleep(block.time_s + age_s - world.clock.now() / 1000)
            result = await feed(world)
            proof = await completeness(world.db, world.rules, feed_runs=True)
            ended.append((result.incomplete, proof.as_of, proof.obstacle))
        longer = await feed(world, settings=Settings(block_age_max=3_600_000))
        begun_again = chain.mine(chain.swap(chain.wallets[1]))
        healed = await feed(world)
        proof = await completeness(world.db, world.rules, feed_runs=True)
        rows = await world.rows()

    complete_at = (block.time_s + 1_800) * 1000
    old = f"the newest block that Hiro lists is of {utc_time(block.time_s * 1000)}"
    assert ended == [
        (None, complete_at, None),
        ("Hiro's newest block is 30m 1s old", complete_at, old),
        ("Hiro's newest block is 47m old", complete_at, old),
    ]
    assert (longer.incomplete, healed.incomplete) == (None, None)
    assert (proof.until_block, proof.obstacle) == (begun_again.height, None)
    assert rows == as_rows(chain.truth())


async def test_a_list_whose_etag_is_stuck_hides_nothing(tmp_path: Path) -> None:
    """Whoever sends that ETag gets a 304 although new blocks have come; the feed does not."""
    async with open_world(tmp_path, chain_of(2)) as world:
        chain = world.simulator.chain
        await started(world)
        await feed(world)
        world.simulator.hiro.etag_stuck = True
        found = []
        for _ in range(3):
            await world.clock.sleep(60)
            chain.mine(chain.swap(chain.wallets[0]))
            found.append((await feed(world)).counters["inserted"])

    assert found == [1, 1, 1]


async def test_the_state_of_an_earlier_release_is_continued(tmp_path: Path) -> None:
    """It has an ETag and the word quiet, which mean nothing any more; the mark is kept."""
    async with open_world(tmp_path, chain_of(2)) as world:
        await started(world)
        state = await load_state(world.db)
        stored = {**state.to_json(), "etag": '"0xa2"', "quiet": True}
        del stored["newest_s"]
        await set_value(world.db, "competition_feed", json.dumps(stored), 1).run()
        result = await feed(world)
        loaded = await load_state(world.db)

    assert result.incomplete is None
    assert (loaded.started_at, loaded.mark) == (state.started_at, state.mark)
