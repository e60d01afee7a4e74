"""Rounds that wait for prices or for the chain: many take no more queries than one, and none delays another."""

from pathlib import Path

import pytest

from support.round_world import END_S, GRACE_S, ROUND_ID, round_world
from support.watched_database import counting

MINUTE_S = 60


@pytest.mark.parametrize("lacks", ["a sweep", "prices", "both"])
async def test_rounds_that_wait_are_looked_at_with_few_queries(tmp_path: Path, lacks: str) -> None:
    """They may wait for hours: what they wait for is read once for all of them, and nothing else again."""
    async with round_world(tmp_path) as world:
        await world.add_round(roundId="second")
        await world.add_round(roundId="third")
        if lacks != "a sweep":
            await world.db.prepare("DELETE FROM price_points").run()
        if lacks == "prices":
            await world.swept(GRACE_S)
        await world.run(GRACE_S)
        await world.run(GRACE_S + MINUTE_S)
        watched = world.wrapped = counting(world.db)
        waits = await world.run(GRACE_S + 2 * MINUTE_S)

    assert isinstance(waits.counters["waiting"], dict)
    assert sorted(waits.counters["waiting"]) == sorted([ROUND_ID, "second", "third"])
    assert watched.calls <= {"a sweep": 5, "prices": 5, "both": 6}[lacks]


async def test_a_price_that_cannot_be_read_holds_up_no_other_round(tmp_path: Path) -> None:
    async with round_world(tmp_path) as world:
        await world.db.prepare("DELETE FROM price_points").run()
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
