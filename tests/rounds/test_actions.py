"""The actions of operators: prices, payments, a new version of a result, and the rule by which rounds follow."""

from pathlib import Path
from typing import Any

import pytest

from support.round_world import AGENTS, END_S, GRACE_S, ROUND_ID, START_S, STSTX, RoundWorld, round_world
from tocsin.prices.price import NO_FLOORS
from tocsin.prices.store import PricePoint, append
from tocsin.rounds.actions import next_start_ms, rounds_until
from tocsin.rounds.round import RoundAnswer, RoundRule
from tocsin.rounds.store import round_detail

DAY_S = 86_400
WEEK_S = 7 * DAY_S
RULE = RoundRule(first_starts_at=START_S, prefix="day", first_number=1, period_s=DAY_S, grace_s=3_600)
SBTC = "SM3VDXK3WZZSA84XXFKAFAF15NNZX32CTSG82JFQ4.sbtc-token::sbtc-token"
SUSDT = "SP3K8BC0PPEVCV7NZ6QSRWPQ2JE9E5B6N3PA0KBR9.token-susdt::bridged-usdt"
UNKNOWN = f"{AGENTS[0]}.a-token::a"

# Prices


async def set_price(
    world: RoundWorld, token: str, usd: str, decimals: int | None = None, *, dry_run: bool = False
) -> RoundAnswer:
    given = {} if decimals is None else {"decimals": decimals}
    return await world.act(
        "price", dry_run=dry_run, roundId=ROUND_ID, tokenId=token, priceUsd=usd, reason="why", **given
    )


@pytest.mark.parametrize(
    ("usd", "decimals", "sentence"),
    [
        ("0", 6, "A price is above 0. A token without one is left out."),
        ("-1", 6, "An amount in USD is a decimal number such as 0.85, as text."),
        ("1", 39, "A token has 0 to 38 decimals, not 39."),
        ("1", -1, "A token has 0 to 38 decimals, not -1."),
    ],
)
async def test_a_price_that_cannot_be_is_refused_when_it_is_set(
    tmp_path: Path, usd: str, decimals: int, sentence: str
) -> None:
    """Not when the round is captured and nothing can be changed any more; a dry run says the same."""
    async with round_world(tmp_path) as world:
        looked = await set_price(world, UNKNOWN, usd, decimals, dry_run=True)
        answer = await set_price(world, UNKNOWN, usd, decimals)
        kept = await world.all("SELECT * FROM competition_round_price_overrides")

    assert (answer.ok, answer.http_status, answer.detail, kept) == (False, 400, sentence, [])
    assert looked.detail == sentence


async def test_decimals_are_those_that_prices_have_told(tmp_path: Path) -> None:
    """Of the price series, also of one that ended long before; of a fixed price; of STX always."""
    async with round_world(tmp_path) as world:
        old = PricePoint(SBTC, (END_S - 30 * 86_400) * 1000, "60000", 8, "tenero", "1", "1")
        gone = PricePoint(SBTC, (END_S - 29 * 86_400) * 1000, None, None, "tenero", None, None)
        await world.db.batch(append(world.db, [old, gone]))
        answers = [await set_price(world, token, "60000") for token in (SBTC, SUSDT, STSTX)]
        await world.execute("DELETE FROM price_points")
        answers.append(await set_price(world, "stx", "0.85"))
        kept = await world.all("SELECT token_id, decimals FROM competition_round_price_overrides")

    assert [answer.detail for answer in answers] == [
        f"{SBTC} is 60000 USD, with 8 decimals",
        f"{SUSDT} is 60000 USD, with 8 decimals",
        f"{STSTX} is 60000 USD, with 6 decimals",
        "stx is 0.85 USD, with 6 decimals",
    ]
    assert {row["token_id"]: row["decimals"] for row in kept} == {SBTC: 8, SUSDT: 8, STSTX: 6, "stx": 6}


async def test_decimals_are_never_guessed(tmp_path: Path) -> None:
    """They are required if no price has them."""
    async with round_world(tmp_path) as world:
        missing = await set_price(world, UNKNOWN, "2")
        given = await set_price(world, UNKNOWN, "2", 3)

    assert (missing.ok, missing.http_status) == (False, 400)
    sentence = f"It is not known how many decimals {UNKNOWN} has: no price of it was ever seen. Give decimals."
    assert missing.detail == sentence
    assert (given.ok, given.detail) == (True, f"{UNKNOWN} is 2 USD, with 3 decimals")


async def test_other_decimals_than_the_tokens_own_are_refused(tmp_path: Path) -> None:
    """A hundredth of a bitcoin would count as a whole one. With the token's own decimals the sums are right."""
    async with round_world(tmp_path) as world:
        for at_s in range(END_S - 3_600, END_S + 1, 600):
            point = PricePoint(SBTC, at_s * 1000, "60000", 8, "tenero", "2000000", "70000")
            await world.db.batch(append(world.db, [point]))
        await world.swap(90, 2, ("stx", 600), (SBTC, 1))  # a million units: 0.01 sBTC
        wrong = await set_price(world, SBTC, "60000", 6)
        right = await set_price(world, SBTC, "60000", 8)
        await world.finalized()
        results = await world.results("erc8004_agent_id, pnl_usd")

    assert (wrong.ok, wrong.http_status, wrong.code) == (False, 409, "wrong_decimals")
    assert wrong.detail == (f"{SBTC} has 8 decimals, not 6: amounts would count wrong. Leave its decimals out.")
    assert right.ok
    assert dict(results)[12] == 0.0


# Prizes and versions


async def test_reopening_makes_a_new_version(tmp_path: Path) -> None:
    """It needs a reason, captures again, and keeps the file of the previous version. What was paid stays."""
    async with round_world(tmp_path) as world:
        await world.finalized()
        first = await round_detail(world.db, ROUND_ID)
        await world.swap(50, 1, ("stx", 1), (STSTX, 500), at_s=START_S + 5)
        silent = await world.act("reopen", roundId=ROUND_ID, reason="")
        reopened = await world.act("reopen", roundId=ROUND_ID, reason="a swap came late: Hiro was down")
        await world.run(GRACE_S + 300)
        second = await round_detail(world.db, ROUND_ID)
        files = await world.column("SELECT DISTINCT version FROM competition_round_files ORDER BY version")
        await world.act("pay", roundId=ROUND_ID, category="overall_pnl", payoutTxid="ab" * 32)
        paid = await world.act("reopen", roundId=ROUND_ID, reason="again")

    assert (silent.ok, silent.http_status) == (False, 400)
    assert reopened.round is not None
    assert (reopened.round.status, reopened.round.version) == ("closed", 2)
    assert (first.round.version, second.round.version) == (1, 2)
    assert first.round.digest != second.round.digest
    assert second.round.note == "a swap came late: Hiro was down"
    assert [row.erc8004_agent_id for row in second.results] == [11, 10, 12]
    assert files == [1, 2]
    assert (paid.http_status, paid.code) == (409, "already_paid")


async def test_a_prize_that_is_not_there_cannot_be_paid(tmp_path: Path) -> None:
    """Nobody qualified for it; a dry run says the same."""
    async with round_world(tmp_path) as world:
        await world.finalized()
        pay = {"roundId": ROUND_ID, "category": "return", "payoutTxid": "ab" * 32}
        answers = [await world.act("pay", dry_run=dry_run, **pay) for dry_run in (True, False)]
        there = await world.act("pay", dry_run=True, **{**pay, "category": "volume"})
        status = await world.status()

    assert [(answer.http_status, answer.code) for answer in answers] == [(409, "no_open_reward")] * 2
    assert (there.ok, there.detail, status) == (True, "volume: paid", "finalized")


async def test_a_void_prize_is_not_a_paid_one(tmp_path: Path) -> None:
    """A round without paid prizes can be reopened; its new result has all prizes again."""
    async with round_world(tmp_path) as world:
        await world.finalized()
        void: dict[str, Any] = {"roundId": ROUND_ID, "status": "void", "reason": "nobody claimed it"}
        statuses = []
        for category in ("volume", "overall_pnl"):
            await world.act("pay", category=category, **void)
            statuses.append(await world.status())
        reopened = await world.act("reopen", roundId=ROUND_ID, reason="a price was wrong")
        await world.run(GRACE_S + 300)
        rewards = await world.column("SELECT status FROM competition_rewards")
        await world.act("pay", roundId=ROUND_ID, category="volume", payoutTxid="ab" * 32)
        statuses.append(await world.status())
        await world.act("pay", category="overall_pnl", **void)
        statuses.append(await world.status())

    assert reopened.ok
    assert statuses == ["finalized", "finalized", "partially_paid", "paid"]
    assert rewards == ["pending", "pending"]


async def test_a_payment_that_failed_can_be_made_again(tmp_path: Path) -> None:
    """The round is not paid until it was: one prize paid and one payment failed is partially paid."""
    async with round_world(tmp_path) as world:
        await world.finalized()
        paid = {"roundId": ROUND_ID, "payoutTxid": "ab" * 32}
        steps: list[dict[str, Any]] = [
            {"category": "overall_pnl", **paid},
            {"category": "volume", "status": "failed", "roundId": ROUND_ID, "reason": "wrong address"},
            {"category": "volume", **paid},
        ]
        told = []
        for step in steps:
            answer = await world.act("pay", **step)
            told.append((answer.ok, await world.status()))
        rewards = await world.all(
            "SELECT category, status, payout_txid, notes FROM competition_rewards ORDER BY category"
        )

    assert told == [(True, "partially_paid"), (True, "partially_paid"), (True, "paid")]
    assert rewards == [
        {"category": "overall_pnl", "status": "paid", "payout_txid": "ab" * 32, "notes": None},
        {"category": "volume", "status": "paid", "payout_txid": "ab" * 32, "notes": "wrong address"},
    ]


# The rule


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
        kept = await world.column("SELECT count(*) FROM competition_round_rule")
        ended = await world.act("rule", end=True)
        left = await world.column("SELECT count(*) FROM competition_round_rule WHERE rule_json <> 'null'")

    assert (answer.ok, answer.http_status, answer.detail) == (False, 400, detail)
    assert (kept, left) == ([1], [0])
    assert (ended.ok, ended.detail) == (True, "the rule has ended")


async def test_a_rule_adds_rounds_before_they_start(tmp_path: Path) -> None:
    """The running round and the next one; after weeks without the service, also those that were missed."""
    async with round_world(tmp_path) as world:
        await world.act("rule", firstStartsAt=START_S, rewards={"overall_pnl": 1_000})
        await world.run(START_S + 10)
        first = await world.round_ids()
        result = await world.run(START_S + 3 * WEEK_S + 10)
        later = await world.round_ids()
        await world.act("rule", end=True)
        ended = await world.run(START_S + 5 * WEEK_S)

    assert first == ["week-1-2027-01-15", "week-2-2027-01-22"]
    assert later == [*first, "week-3-2027-01-29", "week-4-2027-02-05", "week-5-2027-02-12"]
    assert result.wake_at == (START_S + 3 * WEEK_S + 10 + 10) * 1000
    assert ended.counters["added"] == 0


async def test_a_rule_does_not_reach_into_the_past(tmp_path: Path) -> None:
    """One that started five weeks ago begins with the round that runs when it is set."""
    async with round_world(tmp_path) as world:
        world.clock.at_s = START_S + 5 * WEEK_S
        await world.act("rule", firstStartsAt=START_S, prefix="round")
        await world.run(START_S + 5 * WEEK_S + 10)
        rounds = await world.round_ids()

    assert rounds == [ROUND_ID, "round-6-2027-02-19", "round-7-2027-02-26"]


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
        rounds = await world.round_ids()

    assert (again.counters["added"], changed.counters["added"]) == (2, 1)
    assert rounds == [
        *("week-1-2027-01-15", "week-2-2027-01-22"),
        *("week-11-2027-03-26", "week-12-2027-04-02", "week-13-2027-04-09"),
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
        rounds = await world.round_ids()

    assert rounds == [*("week-1-2027-01-15", "week-2-2027-01-22", "week-3-2027-01-29", "week-4-2027-02-05"), round_id]


@pytest.mark.parametrize(
    ("set_at_s", "newest", "now_s", "expected"),
    [
        (START_S, None, START_S, [0, 1]),
        (START_S, START_S, START_S + DAY_S - 1, [1]),
        (START_S, START_S + DAY_S, START_S + DAY_S - 1, []),
        (START_S, START_S + DAY_S, START_S + DAY_S, [2]),
        (START_S + 5 * DAY_S, None, START_S + 6 * DAY_S, [5, 6, 7]),
        (START_S + 5 * DAY_S, None, START_S + 2 * DAY_S, [2, 3]),  # the clock was set back
        (START_S, None, START_S + 100 * DAY_S, list(range(20))),  # no more in one run
    ],
)
def test_the_running_round_and_the_next_exist(
    set_at_s: int, newest: int | None, now_s: int, expected: list[int]
) -> None:
    """From the one that ran when the rule was set; at most twenty are added in one run."""
    found = rounds_until(RULE, set_at_s, newest, now_s, NO_FLOORS)
    assert [(rules.starts_at - START_S) // DAY_S for rules in found] == expected


@pytest.mark.parametrize(("now_s", "at"), [(-1, 0), (0, 1), (DAY_S - 1, 1), (DAY_S, 2)])
def test_the_next_turn_of_a_rule_lies_ahead(now_s: int, at: int) -> None:
    """At a turn, it is the one after it."""
    assert next_start_ms(RULE, START_S + now_s) == (START_S + at * DAY_S) * 1000
