"""The task `rounds`: a round ends by itself, on time, once, and with everything that belongs to it."""

import json
from pathlib import Path
from typing import Any

import pytest

from support.round_world import AGENTS, END_S, GRACE_S, ROUND_ID, START_S, STSTX, round_world, txid
from tocsin.rounds.file import lines_of, read_round_file, recount
from tocsin.rounds.round import RoundOutcome
from tocsin.swaps.values import SwapWorth

MINUTE_S = 60
WEEK_S = 7 * 86_400


async def test_a_round_ends_by_itself(tmp_path: Path) -> None:
    """It is closed when its grace ends, and finalized as soon as the chain was read since. The alarm is set for it."""
    async with round_world(tmp_path) as world:
        before = await world.run(START_S)
        too_early = await world.run(GRACE_S - 1)
        waits = await world.run(GRACE_S)
        waiting = await world.all("SELECT status, waiting_reason FROM competition_rounds")
        await world.swept(GRACE_S + 5)
        done = await world.run(GRACE_S + MINUTE_S)
        results = await world.all("SELECT * FROM competition_round_results ORDER BY rank")
        rewards = await world.all("SELECT category, stx_address, amount_sats FROM competition_rewards")
        again = await world.run(GRACE_S + 2 * MINUTE_S)

    assert before.wake_at == GRACE_S * 1000
    assert (waits.counters["closed"], waits.incomplete) == (1, None)
    assert waits.wake_at == (GRACE_S + 10) * 1000
    assert waiting[0]["status"] == "closed"
    assert waiting[0]["waiting_reason"].startswith("the chain was not read completely since the grace ended")
    assert (too_early.counters["closed"], waits.counters["closed"]) == (0, 1)
    assert (done.counters["captured"], done.counters["finalized"], done.wake_at) == (1, 1, None)
    assert [(row["erc8004_agent_id"], row["pnl_usd"], row["volume_usd"]) for row in results] == [
        (10, 10.0, 75.0),
        (12, 0.0, 10.0),
        (11, -10.0, 200.0),
    ]
    assert results[0]["result_json"] == '{"source_counts":{"agent":0,"cron":1,"chainhook":0},"unpriced_tokens":[]}'
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


async def test_a_round_that_a_wrong_clock_closed_is_open_again(tmp_path: Path) -> None:
    """What is traded until its end counts; an operator cannot capture it sooner either."""
    async with round_world(tmp_path) as world:
        await world.run(GRACE_S + 60)  # the clock is days ahead, and nothing was read there
        await world.swept(START_S + 3_600)
        await world.run(START_S + 3_600)
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
        await (
            world.db.prepare(
                "INSERT INTO candidates (txid, source, added_at, due_at, block_height) VALUES (?, 'cron', 0, 0, ?)"
            )
            .bind(txid(999), block)
            .run()
        )
        result = await world.run(GRACE_S)

    assert bool(result.counters["waiting"]) is waits
    if waits:
        assert result.counters["waiting"] == {ROUND_ID: "transactions that wait to be verified: 1"}


async def test_a_round_waits_for_the_prices_of_its_end(tmp_path: Path) -> None:
    """Prices from before and after do not count. An operator may set one, with a reason that is published."""
    async with round_world(tmp_path) as world:
        await world.db.prepare("DELETE FROM price_points").run()
        await world.prices_around(END_S - 86_400, stx="1", ststx="1")
        await world.swept(GRACE_S)
        waits = await world.run(GRACE_S)
        refused = await world.act("snapshot", roundId=ROUND_ID)
        await world.act("price", roundId=ROUND_ID, tokenId="stx", priceUsd="2", decimals=6, reason="Tenero was down")
        done = await world.run(GRACE_S + MINUTE_S)
        prices = await world.all("SELECT token_id, price_usd, source, reason FROM competition_round_price_snapshots")

    assert "the price of stx at the end is not known" in str(waits.counters["waiting"])
    assert (refused.http_status, refused.code) == (503, "empty_price_cache")
    assert done.counters["finalized"] == 1
    assert prices == [{"token_id": "stx", "price_usd": 2.0, "source": "manual_admin", "reason": "Tenero was down"}]


async def test_other_decimals_than_those_of_the_prices_are_refused(tmp_path: Path) -> None:
    """They would change the sums; then nothing is captured. Those of the prices, and unknown tokens, are accepted."""
    async with round_world(tmp_path) as world:
        await world.swept(GRACE_S)
        world.clock.at_s = GRACE_S
        await world.act("close", roundId=ROUND_ID)
        wrong = await world.act("snapshot", roundId=ROUND_ID, decimalsMap={"stx": 6, STSTX: 8})
        unknown = f"{AGENTS[0]}.a-token::a"
        status = await world.status()
        right = await world.act("snapshot", roundId=ROUND_ID, decimalsMap={"stx": 6, STSTX: 6, unknown: 3})

    assert (wrong.ok, wrong.http_status, wrong.code, status) == (False, 409, "wrong_decimals", "closed")
    assert wrong.detail == (f"{STSTX} has 6 decimals, not 8: amounts would count wrong. Leave its decimals out.")
    assert right.ok


async def test_only_swaps_within_the_round_count(tmp_path: Path) -> None:
    """From its start until before its end, and only of agents that are eligible."""
    async with round_world(tmp_path) as world:
        await world.swap(10, 0, ("stx", 1), (STSTX, 1_000), at_s=START_S - 1)
        await world.swap(11, 0, ("stx", 1), (STSTX, 5), at_s=START_S)
        await world.swap(12, 0, ("stx", 2), (STSTX, 7), at_s=END_S - 1)
        await world.swap(13, 0, ("stx", 1), (STSTX, 1_000), at_s=END_S)
        await world.db.prepare("UPDATE claims SET status = 'failed' WHERE btc_address = 'bc1q1'").run()
        await world.swept(GRACE_S)
        await world.run(GRACE_S)
        results = await world.all(
            "SELECT erc8004_agent_id, trade_count, pnl_usd FROM competition_round_results ORDER BY rank"
        )

    assert results == [
        {"erc8004_agent_id": 10, "trade_count": 3, "pnl_usd": 19.0},
        {"erc8004_agent_id": 12, "trade_count": 1, "pnl_usd": 0.0},
    ]


async def test_an_excessive_swap_is_captured_and_has_no_value(tmp_path: Path) -> None:
    """At the prices of its time, not of the end. The file shows why, and recounts to the same result."""
    async with round_world(tmp_path) as world:
        for token, price in (("stx", "1"), (STSTX, "10")):
            await world.price(token, price, START_S)
        await world.swap(11, 1, ("stx", 10), (STSTX, 6))  # 10 USD for 60 USD; 6 USD at the end
        await world.swap(12, 2, ("stx", 1_000), (STSTX, 400))
        await world.swept(GRACE_S)
        await world.run(GRACE_S)
        results = await world.all(
            "SELECT erc8004_agent_id, trade_count, priced_trade_count, pnl_usd FROM competition_round_results"
        )
        parts = await world.all("SELECT text FROM competition_round_files ORDER BY part")
        flags = await world.all("SELECT flag_json FROM competition_round_flags WHERE kind = 'excess'")

    # Of the swaps of the world, the first two of 85 and 190 stSTX for 75 and 200 STX were excessive at that price too.
    assert results == [
        {"erc8004_agent_id": 12, "trade_count": 2, "priced_trade_count": 1, "pnl_usd": -600.0},
        {"erc8004_agent_id": 10, "trade_count": 1, "priced_trade_count": 0, "pnl_usd": 0.0},
        {"erc8004_agent_id": 11, "trade_count": 2, "priced_trade_count": 0, "pnl_usd": 0.0},
    ]
    read = read_round_file(lines_of([part["text"] for part in parts]))
    assert len(read.inputs.excesses) == 4
    assert read.inputs.excesses[3] == SwapWorth(txid(11), "10", "20000", "60", "20000")
    assert recount(read).same
    assert json.loads(flags[1]["flag_json"]) == {
        "erc8004_agent_id": 11,
        "kind": "excess",
        "reason": "2 of 2 trades were worth more than a pool can pay; it received 1,900.00 USD for 200.00 USD, which"
        " is more than 5 times as much",
        "txids": [txid(2), txid(11)],
        "excludes_from": [],
        "cleared": False,
    }


async def test_a_round_waits_until_its_swaps_are_valued(tmp_path: Path) -> None:
    """An operator's snapshot waits; the task values them first, and captures the round."""
    async with round_world(tmp_path) as world:
        await world.swept(GRACE_S)
        await world.swap(11, 0, ("stx", 1), (STSTX, 1))
        world.clock.at_s = GRACE_S
        await world.act("close", roundId=ROUND_ID)
        by_hand = await world.act("snapshot", roundId=ROUND_ID)
        await world.run(GRACE_S)

        assert (by_hand.ok, by_hand.code) == (False, "data_incomplete")
        assert "swaps that wait to be valued at the prices of their time: 1" in (by_hand.detail or "")
        assert await world.status() == "finalized"


async def test_an_excess_that_is_found_after_the_preparation_is_in_the_result(tmp_path: Path) -> None:
    """A prepared result is used only if it was computed from the same excesses."""
    async with round_world(tmp_path) as world:
        await world.swept(GRACE_S)
        await world.run(END_S + 2_000)
        prepared = await world.all("SELECT state FROM competition_round_preparations")
        await (
            world.db.prepare(
                "INSERT INTO excess_swaps SELECT txid, sender, token_in, amount_in, token_out, amount_out,"
                " burn_block_time, '75', NULL, '850', NULL FROM swaps WHERE txid = ?"
            )
            .bind(txid(1))
            .run()
        )
        await world.run(GRACE_S)
        results = await world.all(
            "SELECT erc8004_agent_id, priced_trade_count FROM competition_round_results ORDER BY rank"
        )

    assert prepared == [{"state": "ready"}]
    assert results == [
        {"erc8004_agent_id": 12, "priced_trade_count": 1},
        {"erc8004_agent_id": 11, "priced_trade_count": 1},
        {"erc8004_agent_id": 10, "priced_trade_count": 0},
    ]


@pytest.mark.parametrize(
    ("fields", "detail"),
    [
        ({}, "Give firstStartsAt, a time in unix seconds, to set the rule, or end: true to end it."),
        ({"periodS": 86_400}, "Give firstStartsAt, a time in unix seconds, to set the rule, or end: true to end it."),
        ({"roundId": ROUND_ID}, "rule takes no roundId."),
        ({"roundId": ROUND_ID, "end": True}, "rule takes no roundId."),
        ({"end": True, "firstStartsAt": START_S}, "end takes no other field: it ends the rule."),
        ({"end": True, "rewards": {"volume": 1}}, "end takes no other field: it ends the rule."),
    ],
)
async def test_a_rule_ends_only_if_the_action_says_so(fields: dict[str, Any], detail: str, tmp_path: Path) -> None:
    """An action without its fields, or with those of another, is refused, and the rule stays."""
    async with round_world(tmp_path) as world:
        await world.act("rule", firstStartsAt=START_S)
        answer = await world.act("rule", **fields)
        kept = await world.all("SELECT count(*) AS n FROM competition_round_rule")
        ended = await world.act("rule", end=True)
        left = await world.all("SELECT count(*) AS n FROM competition_round_rule WHERE rule_json <> 'null'")

    assert (answer.ok, answer.http_status, answer.detail) == (False, 400, detail)
    assert kept == [{"n": 1}]
    assert (ended.ok, ended.detail, left) == (True, "the rule has ended", [{"n": 0}])


async def test_a_rule_adds_rounds_before_they_start(tmp_path: Path) -> None:
    """The running round and the next one; after weeks without the service, also those that were missed."""
    async with round_world(tmp_path) as world:
        await world.act("rule", firstStartsAt=START_S, rewards={"overall_pnl": 1_000})
        await world.run(START_S + 10)
        first = [
            row["round_id"] for row in await world.all("SELECT round_id FROM competition_rounds ORDER BY starts_at")
        ]
        result = await world.run(START_S + 3 * 7 * 86_400 + 10)
        later = await world.all("SELECT round_id, status FROM competition_rounds ORDER BY starts_at, round_id")
        await world.act("rule", end=True)
        ended = await world.run(START_S + 5 * 7 * 86_400)

    assert first == ["week-1-2027-01-15", "week-2-2027-01-22"]
    assert [row["round_id"] for row in later] == [
        "week-1-2027-01-15",
        "week-2-2027-01-22",
        "week-3-2027-01-29",
        "week-4-2027-02-05",
        "week-5-2027-02-12",
    ]
    assert result.wake_at == (START_S + 21 * 86_400 + 10 + 10) * 1000
    assert ended.counters["added"] == 0


async def test_a_rule_does_not_reach_into_the_past(tmp_path: Path) -> None:
    """One that started five weeks ago begins with the round that runs when it is set."""
    async with round_world(tmp_path) as world:
        world.clock.at_s = START_S + 5 * WEEK_S
        await world.act("rule", firstStartsAt=START_S, prefix="round")
        await world.run(START_S + 5 * WEEK_S + 10)
        rounds = await world.all(
            "SELECT round_id FROM competition_rounds WHERE round_id LIKE 'round-%' ORDER BY starts_at"
        )

    assert [row["round_id"] for row in rounds] == ["round-6-2027-02-19", "round-7-2027-02-26"]


async def test_a_rule_that_is_set_again_leaves_the_pause_out(tmp_path: Path) -> None:
    """It ended ten weeks ago: those weeks had no round, and get none now. Set while it is in force, it goes on."""
    async with round_world(tmp_path) as world:
        await world.act("rule", firstStartsAt=START_S)
        await world.run(START_S + 10)
        await world.act("rule", end=True)
        await world.run(START_S + 10 * WEEK_S)
        await world.act("rule", firstStartsAt=START_S)
        again = await world.run(START_S + 10 * WEEK_S + 10)
        await world.act("rule", firstStartsAt=START_S, rewards={"volume": 7})
        changed = await world.run(START_S + 11 * WEEK_S)
        rounds = await world.all("SELECT round_id FROM competition_rounds ORDER BY starts_at")

    assert (again.counters["added"], changed.counters["added"]) == (2, 1)
    assert [row["round_id"] for row in rounds] == [
        "week-1-2027-01-15",
        "week-2-2027-01-22",
        "week-11-2027-03-26",
        "week-12-2027-04-02",
        "week-13-2027-04-09",
    ]


@pytest.mark.parametrize(
    ("round_id", "start_s", "length_s"),
    [
        ("week-special", START_S + 60 * 86_400, 86_400),  # another name
        ("week-9-2027-03-12", START_S + 8 * WEEK_S, 86_400),  # another length
        ("week-9-2027-03-12", START_S + 8 * WEEK_S + 60, WEEK_S),  # another start
        ("week-9-2027-03-12", START_S + 8 * WEEK_S, WEEK_S),  # one of the rule's, but far ahead
    ],
)
async def test_a_round_with_the_prefix_of_the_rule_does_not_end_it(
    tmp_path: Path, round_id: str, start_s: int, length_s: int
) -> None:
    """Only rounds added by the rule itself determine the next one."""
    async with round_world(tmp_path) as world:
        await world.act("rule", firstStartsAt=START_S)
        await world.act("add", roundId=round_id, startsAt=start_s, endsAt=start_s + length_s)
        for week in range(3):
            await world.run(START_S + week * WEEK_S + 10)
        rounds = await world.all("SELECT round_id FROM competition_rounds ORDER BY starts_at")

    assert [row["round_id"] for row in rounds] == [
        "week-1-2027-01-15",
        "week-2-2027-01-22",
        "week-3-2027-01-29",
        "week-4-2027-02-05",
        round_id,
    ]


async def test_flags_see_who_funded_a_wallet(tmp_path: Path) -> None:
    """The first funder is captured with the agents, where it is known for certain; a look ahead sees the same."""
    async with round_world(tmp_path) as world:
        for address, funder, complete in ((AGENTS[0], "SPX", 1), (AGENTS[1], "SPX", 1), (AGENTS[2], "SPX", 0)):
            await (
                world.db.prepare("INSERT INTO funders VALUES (?, ?, 5, 10, 0, ?)").bind(address, funder, complete).run()
            )
        await world.swept(GRACE_S)
        ahead = await world.act("finalize", roundId=ROUND_ID, dry_run=True)
        await world.run(GRACE_S)
        agents = await world.all(
            "SELECT stx_address, first_funder FROM competition_round_agents ORDER BY erc8004_agent_id"
        )
        flags = await world.all("SELECT erc8004_agent_id, kind FROM competition_round_flags ORDER BY erc8004_agent_id")

    assert [row["first_funder"] for row in agents] == ["SPX", "SPX", None]
    shared = [row["erc8004_agent_id"] for row in flags if row["kind"] == "shared_funder"]
    assert shared == [10, 11]
    looked = RoundOutcome.from_json(ahead.outcome)
    assert [flag.erc8004_agent_id for flag in looked.flags if flag.kind == "shared_funder"] == shared


async def test_prices_after_the_end_do_not_matter(tmp_path: Path) -> None:
    """The round is captured an hour later, at the prices of its end; one that an operator set holds."""
    async with round_world(tmp_path) as world:
        await world.prices_around(END_S + 3_601, stx="5", ststx="7")
        await world.act("price", roundId=ROUND_ID, tokenId=STSTX, priceUsd="2", decimals=6, reason="a test")
        await world.swept(GRACE_S)
        await world.run(GRACE_S)
        prices = await world.all(
            "SELECT token_id, price_usd_exact, source FROM competition_round_price_snapshots ORDER BY token_id DESC"
        )

    assert [tuple(price.values()) for price in prices] == [("stx", "1", "tenero"), (STSTX, "2", "manual_admin")]


async def test_a_round_that_is_stuck_holds_up_no_other(tmp_path: Path) -> None:
    """Its problem is what it waits for, and the run says so at once. It can be made void."""
    async with round_world(tmp_path) as world:
        await world.act("add", roundId="other", startsAt=START_S, endsAt=END_S + 60, graceS=GRACE_S - END_S - 60)
        await (
            world.db.prepare("INSERT INTO competition_round_price_overrides VALUES (?, ?, '0', 6, '', '', '')")
            .bind(ROUND_ID, STSTX)
            .run()
        )
        await world.swept(GRACE_S)
        first = await world.run(GRACE_S)
        statuses = (await world.status(), await world.status("other"))
        await world.unswap(1)
        second = await world.run(GRACE_S + 300)
        listed = await world.all(
            "SELECT waiting_reason, waiting_since FROM competition_rounds WHERE round_id = ?", ROUND_ID
        )
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
        world.clock.at_s = GRACE_S
        await world.act("close", roundId=ROUND_ID)
        await world.act("snapshot", roundId=ROUND_ID)
        prices = "UPDATE competition_round_price_snapshots SET price_usd_exact = ?"
        await world.db.prepare(prices).bind("0").run()
        stuck = await world.run(GRACE_S + 300)
        await world.db.prepare(prices).bind("1").run()
        done = await world.run(GRACE_S + 600)
        row = await world.all("SELECT status, waiting_reason, waiting_since FROM competition_rounds")

    assert stuck.incomplete is not None
    assert (done.incomplete, done.counters["finalized"]) == (None, 1)
    assert row == [{"status": "finalized", "waiting_reason": None, "waiting_since": None}]
