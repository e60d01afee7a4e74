"""A final result: later events are reported and change nothing, unless an operator reopens the round."""

from pathlib import Path
from random import Random
from typing import Any

import pytest

from holdfast.types import Statement
from support.round_world import AGENTS, END_S, GRACE_S, ROUND_ID, START_S, STSTX, RoundWorld, round_world, txid
from tocsin.prices.store import PricePoint, append
from tocsin.rounds.store import latest_result, round_detail


async def finalized(world: RoundWorld) -> None:
    await world.swept(GRACE_S)
    result = await world.run(GRACE_S)
    assert result.counters["finalized"] == 1


@pytest.mark.slow
async def test_ten_thousand_later_changes_change_no_byte(tmp_path: Path) -> None:
    """Price moves before and after the end, late swaps, reorgs and lost agents: the result stays the same."""
    random = Random(16)
    async with round_world(tmp_path) as world:
        await finalized(world)
        expected = await world.everything()
        moves, kept = 0, set(range(1, 4))
        while moves < 10_000:
            points = random.randrange(1, 200)
            for token in ("stx", STSTX):
                at_s = END_S + random.randrange(-7_200, 86_400)
                await world.db.batch(_points(world, random, token, at_s, points))
            moves += 2 * points
            number = random.randrange(1, 60)
            if number in kept:
                await world.unswap(number)
                kept.discard(number)
            else:
                await world.swap(
                    number,
                    random.randrange(3),
                    ("stx", random.randrange(1, 900)),
                    (STSTX, random.randrange(1, 900)),
                    at_s=random.randrange(START_S, END_S),
                )
                kept.add(number)
            moves += 1
            if random.random() < 0.2:
                await world.run(GRACE_S + moves)

        assert await world.everything() == expected
    assert world.log.named("round.discrepancy")


def _points(world: RoundWorld, random: Random, token: str, at_s: int, count: int) -> list[Statement]:
    points = [
        PricePoint(token, at_s * 1000 + number, str(random.randrange(1, 500)), 6, "tenero", "20000", "700")
        for number in range(count)
    ]
    return append(world.db, points)


async def test_what_differs_later_is_told(tmp_path: Path) -> None:
    """A late swap, a withdrawn one, a moved one, and an agent that is no longer eligible."""
    async with round_world(tmp_path) as world:
        await finalized(world)
        await world.swap(50, 0, ("stx", 1), (STSTX, 500), at_s=START_S + 5)
        await world.unswap(1)
        await world.unswap(2)
        await world.swap(2, 1, ("stx", 200), (STSTX, 191))
        await world.unswap(3)
        await world.swap(3, 2, ("stx", 10), (STSTX, 10))  # the same again
        await world.swap(60, 0, ("stx", 1), (STSTX, 1), at_s=END_S)  # not within the round
        await world.db.prepare("UPDATE claims SET status = 'failed' WHERE btc_address = 'bc1q2'").run()
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
        await world.db.prepare("UPDATE agents SET erc8004_agent_id = 10").run()
        await world.unswap(3)
        await finalized(world)
        placed = await round_detail(world.db, ROUND_ID)
        before = [await latest_result(world.db, wallet) for wallet in AGENTS]
        await world.db.prepare("UPDATE claims SET status = 'failed' WHERE btc_address <> 'bc1q0'").run()
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
        await finalized(world)
        await world.unswap(1)
        await world.db.prepare("UPDATE claims SET status = 'failed' WHERE btc_address = 'bc1q2'").run()
        await world.run(GRACE_S + 300)
        away = await round_detail(world.db, ROUND_ID)
        await world.swap(1, 0, ("stx", 75), (STSTX, 85))
        await world.db.prepare("UPDATE claims SET status = 'verified' WHERE btc_address = 'bc1q2'").run()
        await world.run(GRACE_S + 600)
        back = await round_detail(world.db, ROUND_ID)

    assert [each.kind for each in away.discrepancies] == ["withdrawn", "agent_ineligible"]
    assert back.discrepancies == []


async def test_reopening_makes_a_new_version(tmp_path: Path) -> None:
    """It needs a reason, captures again, and keeps the file of the previous version. What was paid stays."""
    async with round_world(tmp_path) as world:
        await finalized(world)
        first = await round_detail(world.db, ROUND_ID)
        await world.swap(50, 1, ("stx", 1), (STSTX, 500), at_s=START_S + 5)
        silent = await world.act("reopen", roundId=ROUND_ID, reason="")
        reopened = await world.act("reopen", roundId=ROUND_ID, reason="a swap came late: Hiro was down")
        await world.run(GRACE_S + 300)
        second = await round_detail(world.db, ROUND_ID)
        files = await world.all("SELECT DISTINCT version FROM competition_round_files ORDER BY version")
        await world.act("pay", roundId=ROUND_ID, category="overall_pnl", payoutTxid="ab" * 32)
        paid = await world.act("reopen", roundId=ROUND_ID, reason="again")

    assert (silent.ok, silent.http_status) == (False, 400)
    assert reopened.round is not None
    assert (reopened.round.status, reopened.round.version) == ("closed", 2)
    assert (first.round.version, second.round.version) == (1, 2)
    assert first.round.digest != second.round.digest
    assert second.round.note == "a swap came late: Hiro was down"
    assert [row.erc8004_agent_id for row in second.results] == [11, 10, 12]
    assert [row["version"] for row in files] == [1, 2]
    assert (paid.http_status, paid.code) == (409, "already_paid")


async def test_a_prize_that_is_not_there_cannot_be_paid(tmp_path: Path) -> None:
    """Nobody qualified for it; a dry run says the same."""
    async with round_world(tmp_path) as world:
        await finalized(world)
        pay = {"roundId": ROUND_ID, "category": "return", "payoutTxid": "ab" * 32}
        answers = [await world.act("pay", dry_run=dry_run, **pay) for dry_run in (True, False)]
        there = await world.act("pay", dry_run=True, **{**pay, "category": "volume"})
        status = await world.status()

    assert [(answer.http_status, answer.code) for answer in answers] == [(409, "no_open_reward")] * 2
    assert (there.ok, there.detail, status) == (True, "volume: paid", "finalized")


async def test_a_void_prize_is_not_a_paid_one(tmp_path: Path) -> None:
    """A round without paid prizes can be reopened; its new result has all prizes again."""
    async with round_world(tmp_path) as world:
        await finalized(world)
        void: dict[str, Any] = {"roundId": ROUND_ID, "status": "void", "reason": "nobody claimed it"}
        statuses = []
        for category in ("volume", "overall_pnl"):
            await world.act("pay", category=category, **void)
            statuses.append(await world.status())
        reopened = await world.act("reopen", roundId=ROUND_ID, reason="a price was wrong")
        await world.run(GRACE_S + 300)
        rewards = await world.all("SELECT category, status FROM competition_rewards ORDER BY category")
        await world.act("pay", roundId=ROUND_ID, category="volume", payoutTxid="ab" * 32)
        statuses.append(await world.status())
        await world.act("pay", category="overall_pnl", **void)
        statuses.append(await world.status())

    assert reopened.ok
    assert statuses == ["finalized", "finalized", "partially_paid", "paid"]
    assert [row["status"] for row in rewards] == ["pending", "pending"]


async def test_a_payment_that_failed_can_be_made_again(tmp_path: Path) -> None:
    """The round is not paid until it was: one prize paid and one payment failed is partially paid."""
    async with round_world(tmp_path) as world:
        await finalized(world)
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


async def test_what_differs_after_a_prize_was_paid_is_told(tmp_path: Path) -> None:
    """Whether some were paid or all."""
    async with round_world(tmp_path) as world:
        await finalized(world)
        told = []
        for number, category in enumerate(("overall_pnl", "volume", "return")):
            await world.act("pay", roundId=ROUND_ID, category=category, payoutTxid="ab" * 32)
            await world.swap(50 + number, 0, ("stx", 1), (STSTX, 500), at_s=START_S + 5)
            await world.run(GRACE_S + 300 * (number + 1))
            told.append((await world.status(), len((await round_detail(world.db, ROUND_ID)).discrepancies)))

    assert [count for _, count in told] == [1, 2, 3]
    assert (told[0][0], told[-1][0]) == ("partially_paid", "paid")
