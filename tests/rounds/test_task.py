"""The task `rounds`: a round ends by itself, on time, once, and with everything that belongs to it."""

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from support.round_world import AGENTS, END_S, GRACE_S, ROUND_ID, START_S, STSTX, round_world, txid
from support.watched_database import Moment, WatchedDatabase, counting
from tocsin.prices.store import PricePoint, append
from tocsin.rounds.round import next_look
from tocsin.rounds.store import latest_result, round_detail, the_round

MINUTE_S = 60


async def test_a_round_ends_by_itself(tmp_path: Path) -> None:
    """It is closed when its grace ends, and finalized as soon as the chain was read since. The alarm is set for it."""
    async with round_world(tmp_path) as world:
        before = await world.run(START_S)
        too_early = await world.run(GRACE_S - 1)
        waits = await world.run(GRACE_S)
        waiting = await world.all("SELECT status, waiting_reason FROM competition_rounds")
        await world.swept(GRACE_S + 5)
        done = await world.run(GRACE_S + MINUTE_S)
        results = await world.results("erc8004_agent_id, pnl_usd, volume_usd")
        found = await world.results("result_json")
        rewards = await world.all("SELECT category, amount_sats FROM competition_rewards")
        again = await world.run(GRACE_S + 2 * MINUTE_S)

    assert before.wake_at == GRACE_S * 1000
    assert (waits.counters["closed"], waits.incomplete) == (1, None)
    assert waits.wake_at == (GRACE_S + 10) * 1000
    assert waiting[0]["status"] == "closed"
    assert waiting[0]["waiting_reason"].startswith("the chain was not read completely since the grace ended")
    assert (too_early.counters["closed"], waits.counters["closed"]) == (0, 1)
    assert (done.counters["captured"], done.counters["finalized"], done.wake_at) == (1, 1, None)
    assert results == [(10, 10.0, 75.0), (12, 0.0, 10.0), (11, -10.0, 200.0)]
    assert found[0] == ('{"source_counts":{"agent":0,"cron":1,"chainhook":0},"unpriced_tokens":[]}',)
    assert {row["category"]: row["amount_sats"] for row in rewards} == {"overall_pnl": 5_000, "volume": 3_000}
    assert again.counters["finalized"] == 0
    assert world.log.named("round.closed") == [{"round": ROUND_ID, "late_ms": 0}]
    assert [each["agents"] for each in world.log.named("round.finalized")] == [3]


async def test_a_waiting_round_is_looked_at_soon_and_then_less_often(tmp_path: Path) -> None:
    """What it waits for is often there seconds after the grace; after 15 minutes the cadence is enough."""
    async with round_world(tmp_path) as world:
        at_s, looks = GRACE_S, []
        while (result := await world.run(at_s)).wake_at is not None:
            at_s = result.wake_at // 1000
            looks.append(at_s - GRACE_S)

    assert looks[:6] == [10, 20, 40, 80, 140, 200]
    assert looks[-1] == 920


async def test_a_round_says_why_it_waits_and_for_how_long_it_is_told(tmp_path: Path) -> None:
    """A sweep from before the grace does not count. After 15 minutes the run is incomplete, with the reason."""
    async with round_world(tmp_path) as world:
        await world.swept(GRACE_S - 1)
        await world.run(GRACE_S)
        soon = await world.run(GRACE_S + 14 * MINUTE_S)
        late = await world.run(GRACE_S + 15 * MINUTE_S)
        lines = world.log.named("round.waiting")

    assert (soon.incomplete, soon.wake_at) == (None, (GRACE_S + 15 * MINUTE_S) * 1000)
    assert late.incomplete is not None
    assert late.incomplete.startswith(f"{ROUND_ID} waits: the chain was not read completely")
    assert (late.wake_at, len(lines)) == (None, 1)


async def test_a_clock_that_is_set_back_makes_no_wait_shorter(tmp_path: Path) -> None:
    """The round began to wait while the clock was a day ahead: this is reported 15 minutes later, not a day later."""
    async with round_world(tmp_path) as world:
        await world.run(GRACE_S + 86_400)
        soon = await world.run(GRACE_S + 60)
        late = await world.run(GRACE_S + 60 + 15 * MINUTE_S)

    assert soon.incomplete is None
    assert late.incomplete is not None


@pytest.mark.parametrize("at_s", [START_S + 3_600, GRACE_S - 1])
async def test_a_round_that_a_wrong_clock_closed_is_open_again(tmp_path: Path, at_s: int) -> None:
    """What is traded until its end counts; an operator cannot capture it sooner either, nor in its grace."""
    async with round_world(tmp_path) as world:
        await world.run(GRACE_S + 60)  # the clock is days ahead, and nothing was read there
        await world.swept(at_s)
        await world.run(at_s)
        corrected = await world.status(ROUND_ID)
        forced = await world.act("snapshot", roundId=ROUND_ID, force=True, reason="now")
        await world.swap(40, 0, ("stx", 10), (STSTX, 10), at_s=START_S + 7_200)
        await world.swept(GRACE_S + 60)
        await world.run(GRACE_S + 60)
        captured = await world.all("SELECT txid FROM competition_round_swaps")

        assert corrected == "open"
        assert world.log.named("round.opened_again")
        assert not forced.ok
        assert len(captured) == 4
        assert await world.status(ROUND_ID) == "finalized"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("block", "waits"), [(0, True), (500, False), (901, True), (1_001, True), (1_399, True), (1_500, False)]
)
async def test_what_waits_to_be_verified_holds_a_round_up(tmp_path: Path, block: int, waits: bool) -> None:
    """Only if it may lie within the round: other swaps show that 900 came before its start, and 1,400 after its end."""
    async with round_world(tmp_path) as world:
        await world.swap(-100, 0, ("stx", 1), (STSTX, 1), at_s=START_S - 7_201)
        await world.swap(400, 0, ("stx", 1), (STSTX, 1), at_s=END_S + 7_200)
        await world.swept(GRACE_S)
        await world.candidate(999, block)
        result = await world.run(GRACE_S)

    assert result.counters["waiting"] == ({ROUND_ID: "transactions that wait to be verified: 1"} if waits else {})


async def test_a_round_waits_for_the_prices_of_its_end(tmp_path: Path) -> None:
    """Prices from before and after do not count. An operator may set one, with a reason that is published."""
    async with round_world(tmp_path) as world:
        await world.execute("DELETE FROM price_points")
        await world.prices_around(END_S - 86_400, stx="1", ststx="1")
        await world.swept(GRACE_S)
        waits = await world.run(GRACE_S)
        ahead = await world.act("finalize", roundId=ROUND_ID, dry_run=True)
        refused = await world.act("snapshot", roundId=ROUND_ID)
        await world.act("price", roundId=ROUND_ID, tokenId="stx", priceUsd="2", decimals=6, reason="Tenero was down")
        done = await world.run(GRACE_S + MINUTE_S)
        prices = await world.all("SELECT token_id, price_usd, source, reason FROM competition_round_price_snapshots")

    assert "the price of stx at the end is not known" in str(waits.counters["waiting"])
    assert "the price of stx at the end is not known" in str(ahead.detail)
    assert (refused.http_status, refused.code) == (503, "empty_price_cache")
    assert done.counters["finalized"] == 1
    assert prices == [{"token_id": "stx", "price_usd": 2.0, "source": "manual_admin", "reason": "Tenero was down"}]


async def test_a_round_waits_until_its_swaps_are_valued(tmp_path: Path) -> None:
    """An operator's snapshot waits; the task values them first, and captures the round."""
    async with round_world(tmp_path) as world:
        await world.swept(GRACE_S)
        await world.swap(11, 0, ("stx", 1), (STSTX, 1))
        await world.closed()
        by_hand = await world.act("snapshot", roundId=ROUND_ID)
        await world.run(GRACE_S)

        assert (by_hand.ok, by_hand.code) == (False, "data_incomplete")
        assert "swaps that wait to be valued at the prices of their time: 1" in (by_hand.detail or "")
        assert await world.status() == "finalized"


async def test_a_round_that_is_stuck_holds_up_no_other(tmp_path: Path) -> None:
    """Its problem is what it waits for, and the run says so at once. It can be made void."""
    async with round_world(tmp_path) as world:
        await world.act("add", roundId="other", startsAt=START_S, endsAt=END_S + 60, graceS=GRACE_S - END_S - 60)
        await world.impossible_price()
        await world.swept(GRACE_S)
        first = await world.run(GRACE_S)
        statuses = (await world.status(), await world.status("other"))
        await world.unswap(1)
        second = await world.run(GRACE_S + 300)
        waits = "SELECT waiting_reason, waiting_since FROM competition_rounds WHERE round_id = ?"
        listed = await world.all(waits, ROUND_ID)
        void = await world.act("void", roundId=ROUND_ID, reason="a price of 0")
        third = await world.run(GRACE_S + 600)

    problem = "its next step failed: A price is above 0. A token without one is left out."
    assert statuses == ("finalizing", "finalized")
    assert first.incomplete == f"{ROUND_ID} waits: {problem}"
    assert first.counters["waiting"] == {ROUND_ID: problem}
    assert (second.incomplete, second.counters["discrepancies"]) == (first.incomplete, 1)
    assert listed == [{"waiting_reason": problem, "waiting_since": GRACE_S * 1000}]
    assert world.log.named("round.waiting") == [{"round": ROUND_ID, "reason": problem}]
    assert (void.ok, third.incomplete, third.counters["waiting"]) == (True, None, {})


async def test_a_step_that_failed_once_leaves_no_trace(tmp_path: Path) -> None:
    """When the next run succeeds, the round waits for nothing."""
    async with round_world(tmp_path) as world:
        await world.swept(GRACE_S)
        await world.closed(captured=True)
        prices = "UPDATE competition_round_price_snapshots SET price_usd_exact = ?"
        await world.execute(prices, "0")
        stuck = await world.run(GRACE_S + 300)
        await world.execute(prices, "1")
        done = await world.run(GRACE_S + 600)
        row = await world.all("SELECT status, waiting_reason, waiting_since FROM competition_rounds")

    assert stuck.incomplete is not None
    assert (done.incomplete, done.counters["finalized"]) == (None, 1)
    assert row == [{"status": "finalized", "waiting_reason": None, "waiting_since": None}]


async def test_the_task_is_woken_only_for_what_lies_ahead(tmp_path: Path) -> None:
    """A grace that ends at this moment is done in this run; a wake-up for now would repeat it for ever."""
    async with round_world(tmp_path) as world:
        round_ = await the_round(world.db, ROUND_ID)
    later = replace(round_, grace_ends_at=GRACE_S + 60)

    before, now = (GRACE_S - 1) * 1000, GRACE_S * 1000
    assert next_look([round_], before, before, None) == GRACE_S * 1000
    assert next_look([round_], now, now, None) is None
    assert next_look([round_, later], now, now, None) == (GRACE_S + 60) * 1000


# Rounds that wait for prices or for the chain


async def test_a_grace_that_ends_during_a_run_wakes_the_task_at_once(tmp_path: Path) -> None:
    """The run had found it too early to close the round: the next slot would be five minutes late."""
    async with round_world(tmp_path) as world:
        await world.swept(GRACE_S)
        world.clock.at_s = GRACE_S - 1

        async def hook(number: int, moment: Moment) -> None:
            if (number, moment) == (2, "before"):
                world.clock.at_s = GRACE_S + 1

        world.wrapped = WatchedDatabase(world.db, hook)
        looked = await world.run()

        assert (await world.status(), looked.wake_at) == ("open", GRACE_S * 1000)


@pytest.mark.parametrize("lacks", ["a sweep", "prices", "both"])
async def test_rounds_that_wait_are_looked_at_with_few_queries(tmp_path: Path, lacks: str) -> None:
    """They may wait for hours: at most four queries each, next to three for all of them."""
    async with round_world(tmp_path) as world:
        await world.add_round(roundId="second")
        await world.add_round(roundId="third")
        if lacks != "a sweep":
            await world.execute("DELETE FROM price_points")
        if lacks == "prices":
            await world.swept(GRACE_S)
        await world.run(GRACE_S)
        await world.run(GRACE_S + MINUTE_S)
        watched = world.wrapped = counting(world.db)
        waits = await world.run(GRACE_S + 2 * MINUTE_S)

    assert isinstance(waits.counters["waiting"], dict)
    assert sorted(waits.counters["waiting"]) == sorted([ROUND_ID, "second", "third"])
    assert watched.calls <= 3 + 3 * {"a sweep": 2, "prices": 5, "both": 2}[lacks]


async def test_a_price_that_cannot_be_read_holds_up_no_other_round(tmp_path: Path) -> None:
    async with round_world(tmp_path) as world:
        await world.execute("DELETE FROM price_points")
        await world.add_round(roundId="second", endsAt=END_S - 86_400, graceEndsAt=GRACE_S - 86_400)
        await world.swept(GRACE_S)
        await world.run(GRACE_S)
        for minutes in range(0, 65, 5):
            await world.price("stx", "oops", END_S - minutes * MINUTE_S)
        await world.prices_around(END_S - 86_400, stx="1")
        await world.run(GRACE_S + MINUTE_S)
        rounds = await world.all("SELECT round_id, status, waiting_reason FROM competition_rounds ORDER BY 1")

    found = {row["round_id"]: (row["status"], row["waiting_reason"]) for row in rounds}
    assert found["second"] == ("finalized", None)
    assert found[ROUND_ID][0] == "closed"
    assert "'oops'" in found[ROUND_ID][1]


# After the result


@pytest.mark.slow
async def test_ten_thousand_later_changes_change_no_byte(tmp_path: Path) -> None:
    """Price moves before and after the end, late swaps, reorgs and lost agents: the result stays the same."""
    random = Random(16)
    async with round_world(tmp_path) as world:
        await world.finalized()
        expected = await world.everything()
        moves, kept = 0, set(range(1, 4))
        while moves < 10_000:
            points = random.randrange(1, 200)
            for token in ("stx", STSTX):
                at_ms = (END_S + random.randrange(-7_200, 86_400)) * 1000
                prices = [
                    PricePoint(token, at_ms + place, str(random.randrange(1, 500)), 6, "tenero", "20000", "700")
                    for place in range(points)
                ]
                await world.db.batch(append(world.db, prices))
            moves += 2 * points
            number = random.randrange(1, 60)
            if number in kept:
                await world.unswap(number)
                kept.discard(number)
            else:
                agent, given, gotten = random.randrange(3), random.randrange(1, 900), random.randrange(1, 900)
                at_s = random.randrange(START_S, END_S)
                await world.swap(number, agent, ("stx", given), (STSTX, gotten), at_s)
                kept.add(number)
            moves += 1
            if random.random() < 0.2:
                await world.run(GRACE_S + moves)

        assert await world.everything() == expected
    assert world.log.named("round.discrepancy")


async def test_what_differs_later_is_told(tmp_path: Path) -> None:
    """A late swap, a withdrawn one, a moved one, and an agent that is no longer eligible."""
    async with round_world(tmp_path) as world:
        await world.finalized()
        await world.swap(50, 0, ("stx", 1), (STSTX, 500), at_s=START_S + 5)
        await world.unswap(1)
        await world.unswap(2)
        await world.swap(2, 1, ("stx", 200), (STSTX, 191))
        await world.unswap(3)
        await world.swap(3, 2, ("stx", 10), (STSTX, 10))  # the same again
        await world.swap(60, 0, ("stx", 1), (STSTX, 1), at_s=END_S)  # not within the round
        await world.claim(2, "failed")
        result = await world.run(GRACE_S + 300)
        again = await world.run(GRACE_S + 600)
        detail = await round_detail(world.db, ROUND_ID)

    assert (result.counters["discrepancies"], again.counters["discrepancies"]) == (4, 0)
    assert [(each.subject, each.kind) for each in detail.discrepancies] == [
        (txid(1), "withdrawn"),
        (txid(2), "changed"),
        (txid(50), "late"),
        (AGENTS[2], "agent_ineligible"),
    ]
    assert detail.discrepancies[1].detail == "amount_out 190000000 is now 191000000"
    assert [(row.erc8004_agent_id, row.pnl_usd) for row in detail.results] == [(10, 10.0), (12, 0.0), (11, -10.0)]


async def test_each_wallet_of_an_agent_is_looked_at(tmp_path: Path) -> None:
    """A second wallet that counted and loses its claim is a discrepancy, one that did not trade is none.

    The newest result is found by each wallet that counts in it.
    """
    async with round_world(tmp_path) as world:
        await world.execute("UPDATE agents SET erc8004_agent_id = 10")
        await world.unswap(3)
        await world.finalized()
        placed = await round_detail(world.db, ROUND_ID)
        before = [await latest_result(world.db, wallet) for wallet in AGENTS]
        await world.execute("UPDATE claims SET status = 'failed' WHERE btc_address <> 'bc1q0'")
        await world.run(GRACE_S + 300)
        after = await round_detail(world.db, ROUND_ID)
        unregistered = await latest_result(world.db, AGENTS[1])

    (result,) = placed.results
    assert (result.stx_address, result.exact.wallets) == (AGENTS[0], [AGENTS[0], AGENTS[1]])
    assert before == [result, result, None]
    assert [(each.subject, each.kind) for each in after.discrepancies] == [(AGENTS[1], "agent_ineligible")]
    assert unregistered == result


async def test_what_is_as_it_was_again_is_no_discrepancy(tmp_path: Path) -> None:
    """A reorg takes a swap away, and the next block brings it back; an agent's claim is verified again."""
    async with round_world(tmp_path) as world:
        await world.finalized()
        await world.unswap(1)
        await world.claim(2, "failed")
        await world.run(GRACE_S + 300)
        away = await round_detail(world.db, ROUND_ID)
        await world.swap(1, 0, ("stx", 75), (STSTX, 85))
        await world.claim(2, "verified")
        await world.run(GRACE_S + 600)
        back = await round_detail(world.db, ROUND_ID)

    assert [each.kind for each in away.discrepancies] == ["withdrawn", "agent_ineligible"]
    assert back.discrepancies == []


async def test_what_differs_after_a_prize_was_paid_is_told(tmp_path: Path) -> None:
    """Whether some were paid or all."""
    async with round_world(tmp_path) as world:
        await world.finalized()
        told = []
        for number, category in enumerate(("overall_pnl", "volume", "return")):
            await world.act("pay", roundId=ROUND_ID, category=category, payoutTxid="ab" * 32)
            await world.swap(50 + number, 0, ("stx", 1), (STSTX, 500), at_s=START_S + 5)
            await world.run(GRACE_S + 300 * (number + 1))
            told.append((await world.status(), len((await round_detail(world.db, ROUND_ID)).discrepancies)))

    assert [count for _, count in told] == [1, 2, 3]
    assert (told[0][0], told[-1][0]) == ("partially_paid", "paid")
