"""`GET /api/competition/history`."""

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from support.competition_site import competition_site
from support.pages_world import sample_row
from tocsin.board import history as agent_days
from tocsin.board.curves import publish_curves
from tocsin.board.types import AgentCurve, Curves

HISTORY = "/api/competition/history"
HOUR_MS = 3_600_000
MINUTE_MS = 60_000


async def test_points_of_a_period_with_their_gaps(tmp_path: Path) -> None:
    """Oldest first, as they were kept; an agent without any has none."""
    async with competition_site(tmp_path, wallets=2) as made:
        one, other = made.world.simulator.chain.wallets
        start = made.world.clock.now()
        row = replace(sample_row(Random(1), 1, start), rank=2, trade_count=4, volume_usd=9.123, pnl_usd=-0.5)
        assert one.erc8004_agent_id is not None
        for hours in (0, 1, 30):
            rows = [replace(row, erc8004_agent_id=one.erc8004_agent_id)]
            await agent_days.append(made.world.db, rows, start + hours * HOUR_MS)
        await made.world.clock.sleep(31 * 3_600)
        day = await made.get(f"{HISTORY}?address={one.address}&period=24h")
        week = await made.get(f"{HISTORY}?address={one.address}")
        everything = await made.get(f"{HISTORY}?address={one.address}&period=all")
        nothing = await made.get(f"{HISTORY}?address={other.address}")
        await made.world.clock.sleep(2)
        unchanged = await made.get(f"{HISTORY}?address={one.address}", **{"if-none-match": week.headers["etag"]})

    assert day.json()["points"] == [
        {
            "at": (start + 30 * HOUR_MS) // MINUTE_MS * MINUTE_MS,
            "rank": 2,
            "tradeCount": 4,
            "volumeUsd": 9.12,
            "pnlUsd": -0.5,
            "pnlAtTradeUsd": None,
        }
    ]
    assert len(week.json()["points"]) == len(everything.json()["points"]) == 3
    assert (week.json()["period"], week.json()["erc8004AgentId"]) == ("7d", one.erc8004_agent_id)
    assert (nothing.status, nothing.json()["points"]) == (200, [])
    assert (week.headers["cache-control"], unchanged.status) == ("public, max-age=60", 304)


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ("address=SP1", "address must be a Stacks mainnet address"),
        ("", "address must be a Stacks mainnet address"),
        ("address={address}&period=1y", "period is one of 24h, 7d, 30d, 90d, all"),
    ],
)
async def test_a_wrong_question_is_explained(tmp_path: Path, query: str, named: str) -> None:
    """The sentence says what is accepted."""
    async with competition_site(tmp_path, wallets=1) as made:
        address = made.world.simulator.chain.wallets[0].address
        answer = await made.get(f"{HISTORY}?{query.format(address=address)}")

    assert answer.status == 400
    assert named in answer.json()["error"]


async def test_the_curves_of_everybody_are_sent_as_published(tmp_path: Path) -> None:
    """Empty before the first publication; then its bytes, with their ETag, until the next one."""
    async with competition_site(tmp_path, wallets=2) as made:
        now = made.world.clock.now()
        before = await made.get("/api/competition/curves")
        curve = AgentCurve(7, "SP1", None, [None, 1.5])
        await publish_curves(made.site.kv, Curves(now, now, 2, [curve]))
        published = await made.get("/api/competition/curves")
        known = {"if-none-match": published.headers["etag"]}
        unchanged = await made.get("/api/competition/curves", **known)
        await publish_curves(made.site.kv, Curves(now + 1, now, 2, [curve]))
        changed = await made.get("/api/competition/curves", **known)

    assert (before.status, before.json()["agents"], before.json()["days"]) == (200, [], 0)
    assert published.json() == {
        "asOf": now,
        "firstDayAt": now,
        "days": 2,
        "agents": [{"erc8004AgentId": 7, "stxAddress": "SP1", "displayName": None, "pnlUsd": [None, 1.5]}],
    }
    assert published.headers["cache-control"] == "public, max-age=60"
    assert (unchanged.status, changed.status) == (304, 200)


@pytest.mark.parametrize("stored", ['["odd"]', "{}", '{"asOf": 1, "agents": [7]}', "not JSON"])
async def test_curves_that_cannot_be_read_are_not_sent(tmp_path: Path, stored: str) -> None:
    """As if none had been published, until the next publication."""
    async with competition_site(tmp_path, wallets=1) as made:
        now = made.world.clock.now()
        await made.site.kv.put("curves:v1", stored)
        damaged = [await made.get("/api/competition/curves") for _ in range(2)]
        await publish_curves(made.site.kv, Curves(now, now, 2, [AgentCurve(7, "SP1", None, [None, 1.5])]))
        published = await made.get("/api/competition/curves")

    assert [(answer.status, answer.json()["agents"]) for answer in damaged] == [(200, [])] * 2
    assert len(published.json()["agents"]) == 1
