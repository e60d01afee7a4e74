"""A round on the whole service: the real feed, sweep, prices and alarm, in virtual time."""

import asyncio
from pathlib import Path

import pytest

from holdfast.testing.virtual_time import VirtualClock
from holdfast.types import JSON
from support.competition import chain_of
from support.whole_service import Service, service
from tocsin.rounds.round import RoundAnswer

HOUR_S = 3_600
ROUND_ID = "two-hours"


async def add_round(made: Service, *, ends_in_s: int, grace_s: int) -> int:
    """Returns when its grace ends, in unix ms."""
    now_s = made.clock.now() // 1000
    action: JSON = {
        "action": "add",
        "roundId": ROUND_ID,
        "startsAt": now_s - HOUR_S,
        "endsAt": now_s + ends_in_s,
        "graceS": grace_s,
    }
    answer = await made.client().run_job("round", {"action": action, "by": "ann"})
    assert RoundAnswer.from_json(answer).ok
    return (now_s + ends_in_s + grace_s) * 1000


async def row(made: Service) -> dict[str, object]:
    found = await made.db.prepare("SELECT * FROM competition_rounds").first()
    assert found is not None
    return found


@pytest.mark.slow
async def test_the_alarm_closes_a_round_on_time(tmp_path: Path) -> None:
    """At the very end of its grace, between two slots; the next look at the network's list gives the result."""
    async with service(tmp_path) as made:
        await asyncio.sleep(100)
        grace_ends_ms = await add_round(made, ends_in_s=2 * HOUR_S + 17, grace_s=611)
        await made.client().refresh("rounds")
        await asyncio.sleep(2 * HOUR_S + 17 + 611 + 180)
        health, found = await made.health(), await row(made)
        runs = [run for run in await made.runs("rounds") if run.slot_at == grace_ends_ms]
        closed, final = made.log.named("round.closed"), made.log.named("round.finalized")

    assert [run.started_at - grace_ends_ms for run in runs] == [0]
    assert [line["late_ms"] for line in closed] == [0]
    assert (found["status"], len(final)) == ("finalized", 1)
    assert (health.ready, health.state) == (True, "ready")


@pytest.mark.slow
async def test_a_process_that_was_away_at_the_end_closes_the_round_later(tmp_path: Path) -> None:
    """With the prices of the end from the series; it first waits for its own sweep."""
    simulator = chain_of(3)
    clock = simulator.clock
    assert isinstance(clock, VirtualClock)
    async with service(tmp_path, simulator, feed_enabled=False) as made:
        await asyncio.sleep(2 * HOUR_S)
        grace_ends_ms = await add_round(made, ends_in_s=60, grace_s=HOUR_S)
        await asyncio.sleep(120)
    await asyncio.sleep(5 * HOUR_S)
    async with service(tmp_path, simulator, feed_enabled=False) as made:
        await asyncio.sleep(1_800)
        found = await row(made)
        late = [line["late_ms"] for line in made.log.named("round.closed")]

    assert clock.now() > grace_ends_ms
    assert found["status"] == "finalized"
    assert len(late) == 1


@pytest.mark.slow
async def test_readiness_tells_of_a_round_that_waits_for_too_long(tmp_path: Path) -> None:
    """Prices were not refreshed at its end, so nothing will come by itself; an operator sets one."""
    async with service(tmp_path, tenero_enabled=False) as made:
        grace_ends_ms = await add_round(made, ends_in_s=60, grace_s=60)
        await made.client().refresh("rounds")
        await asyncio.sleep(120 + 2 * HOUR_S - 600)
        early = await made.health()
        await asyncio.sleep(1_200)
        late = await made.health()
        price: JSON = {
            "action": "price",
            "roundId": ROUND_ID,
            "tokenId": "stx",
            "priceUsd": "1",
            "decimals": 6,
            "reason": "by hand",
        }
        await made.client().run_job("round", {"action": price, "by": "ann"})
        await asyncio.sleep(600)
        after, found = await made.health(), await row(made)

    assert made.clock.now() > grace_ends_ms
    assert not [reason for reason in early.reasons if reason.startswith("rounds")]
    assert [
        reason for reason in late.reasons if reason.startswith("Rounds overdue") and "waits: the price of stx" in reason
    ]
    assert not [reason for reason in after.reasons if reason.startswith("rounds")]
    assert found["status"] == "finalized"
