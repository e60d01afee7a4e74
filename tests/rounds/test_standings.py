"""The board of the round that runs, or of the last one, as it is published and asked for."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from holdfast.types import KV
from holdfast_testing.stores import open_kv
from support.asgi import ask
from support.competition_site import healthy
from support.round_world import AGENTS, END_S, GRACE_S, ROUND_ID, RULES, START_S, STSTX, RoundWorld, round_world
from support.scripted_scheduler import KEYS
from tocsin.board import standings
from tocsin.board.publish import publish_board
from tocsin.board.published import ROUND_KEY, BoardReader, publish
from tocsin.prices.store import CachedPrice, put_token_price
from tocsin.scheduler.client import SchedulerClient
from tocsin.scheduler.task import ContextBindings, WorkContext
from tocsin.swaps.values import value_swaps
from tocsin.upstream.limiter import request_session
from tocsin.web.app import create_app
from tocsin.web.deps import InForce, WebDeps

BOARD = "/api/competition/leaderboard"
DAY_S = 86_400


@dataclass
class RoundSite:
    """A competition with a round, what is published of it, and the API."""

    world: RoundWorld
    kv: KV
    app: Any

    async def published(self, at_s: int, **prices: float) -> dict[str, Any]:
        """The round's board after a publication at that time, with these prices."""
        self.world.clock.at_s = float(at_s)
        for token, price in prices.items():
            known = CachedPrice(price, 6, at_s * 1000, liquidity_usd=20_000.0, volume_usd=700.0)
            await put_token_price(self.kv, STSTX if token == "ststx" else token, known)
        bindings = ContextBindings(self.world.clock, {}, self.world.db, self.kv)
        await publish_board(WorkContext(bindings, request_session(self.world.log)), RULES, follow_max=1_000)
        return await self.board("period=round")

    async def board(self, query: str) -> dict[str, Any]:
        self.world.clock.at_s += 20  # older than any response that is kept
        answer = await ask(self.app, f"{BOARD}?{query}")
        assert answer.status == 200, answer.json()
        body: dict[str, Any] = answer.json()
        return body


@asynccontextmanager
async def round_site(directory: Path) -> AsyncIterator[RoundSite]:
    async with round_world(directory) as world, open_kv(directory, world.clock) as kv:
        deps = WebDeps(
            scheduler=lambda: SchedulerClient(None),  # nobody asks it
            kv=kv,
            db=world.db,
            clock=world.clock,
            logger=world.log,
            in_force=InForce(KEYS, RULES),
            health=healthy,
            version="1",
        )
        yield RoundSite(world, kv, create_app(deps))


def figures(board: dict[str, Any]) -> list[tuple[Any, ...]]:
    names = ("rank", "stxAddress", "tradeCount", "volumeUsd", "pnlUsd", "pnlPercent")
    return [tuple(row[name] for name in names) for row in board["rows"]]


async def test_the_running_round_counts_its_own_swaps(tmp_path: Path) -> None:
    """At current prices, by the round's rules: percent of the volume, and no agent that did not trade in it."""
    async with round_site(tmp_path) as site:
        await site.world.swap(9, 0, ("stx", 1_000), (STSTX, 5), at_s=START_S - 60)  # before the round
        await site.world.unswap(3)
        await site.world.swap(4, 2, ("stx", 10), (STSTX, 10), at_s=START_S - 60)
        board = await site.published(START_S + DAY_S, stx=1.0, ststx=2.0)
        everything = await site.board("")

    assert figures(board) == [(1, AGENTS[1], 1, 200.0, 180.0, 90.0), (2, AGENTS[0], 1, 75.0, 95.0, 126.66666666666666)]
    assert (board["period"], board["since"]) == ("round", START_S * 1000)
    assert board["round"] == {
        "roundId": ROUND_ID,
        "startsAt": START_S * 1000,
        "endsAt": END_S * 1000,
        "final": False,
        "minVolumeUsd": 50.0,
        "minPricedTradeCount": 3,
    }
    assert (everything["period"], everything["since"], everything["round"]) == ("all", None, None)
    assert {row["stxAddress"]: row["tradeCount"] for row in everything["rows"]}[AGENTS[0]] == 2


async def test_a_thin_token_does_not_count_in_a_round(tmp_path: Path) -> None:
    """By the round's own floors; such a trade is counted, and has no value."""
    thin = "SP2XD7417HGPRTREMKF748VNEQPDRR0RMANB7X1NK.thin::thin"
    async with round_site(tmp_path) as site:
        await site.world.swap(9, 0, ("stx", 1), (thin, 1_000))
        await put_token_price(site.kv, thin, CachedPrice(5.0, 6, START_S * 1000, liquidity_usd=20.0))
        board = await site.published(START_S + 3_000, stx=1.0, ststx=1.0)

    first = board["rows"][0]
    assert (first["stxAddress"], first["tradeCount"], first["pnlUsd"]) == (AGENTS[0], 2, 10.0)
    assert first["thinTokens"] == [thin]


async def test_an_excessive_swap_does_not_count_in_a_round(tmp_path: Path) -> None:
    """It is counted as a trade, has no value, and makes no token thin or unpriced."""
    async with round_site(tmp_path) as site:
        await site.world.price("stx", "1", START_S)
        await site.world.price(STSTX, "1", START_S)
        await site.world.swap(9, 0, ("stx", 1), (STSTX, 10**30))
        await value_swaps(site.world.db, (START_S + 60) * 1000, RULES.floors)
        board = await site.published(START_S + 3_000, stx=1.0, ststx=1.0)

    first = board["rows"][0]
    assert (first["stxAddress"], first["tradeCount"], first["pnlUsd"]) == (AGENTS[0], 2, 10.0)
    assert (first["uncountedTradeCount"], first["excessTradeCount"], first["thinTokens"]) == (1, 1, [])


async def test_a_round_with_a_result_shows_it(tmp_path: Path) -> None:
    """The last round stays until the next one runs: over, at the prices of its end; final, by its result."""
    async with round_site(tmp_path) as site:
        await site.world.swept(GRACE_S + 1)
        over = await site.published(END_S + 60, stx=9.0, ststx=1.0)
        await site.world.run(END_S + 120)
        await site.world.run(GRACE_S + 2)
        assert await site.world.status() == "finalized"
        final = await site.published(GRACE_S + 600, stx=9.0, ststx=1.0)
        again = await site.published(GRACE_S + 6_000, stx=3.0, ststx=5.0)

    expected = [(AGENTS[0], 10.0), (AGENTS[2], 0.0), (AGENTS[1], -10.0)]
    assert [(row["stxAddress"], row["pnlUsd"]) for row in over["rows"]] == expected
    assert [(row["stxAddress"], row["pnlUsd"]) for row in final["rows"]] == expected
    assert (over["round"]["final"], final["round"]["final"]) == (False, True)
    assert again["rows"] == final["rows"]
    assert [row["displayName"] for row in final["rows"]] == ["Agent 0", "Agent 2", "Agent 1"]


async def test_a_result_that_was_computed_again_is_published(tmp_path: Path) -> None:
    """Reopened and finalized between two publications: the board shows the new version."""
    async with round_site(tmp_path) as site:
        await site.world.swept(GRACE_S)
        await site.world.run(GRACE_S + 2)
        first = await site.published(GRACE_S + 600, stx=1.0, ststx=1.0)
        await site.world.act("reopen", roundId=ROUND_ID, reason="a price was wrong")
        await site.world.act("price", roundId=ROUND_ID, tokenId=STSTX, priceUsd="2", reason="it was wrong")
        await site.world.run(GRACE_S + 900)
        assert await site.world.status() == "finalized"
        second = await site.published(GRACE_S + 1_200, stx=1.0, ststx=1.0)

    assert [(row["stxAddress"], row["pnlUsd"]) for row in first["rows"]] == [
        (AGENTS[0], 10.0),
        (AGENTS[2], 0.0),
        (AGENTS[1], -10.0),
    ]
    assert [(row["stxAddress"], row["pnlUsd"]) for row in second["rows"]] == [
        (AGENTS[1], 180.0),
        (AGENTS[0], 95.0),
        (AGENTS[2], 10.0),
    ]


async def test_a_large_round_is_read_less_often(tmp_path: Path) -> None:
    """All its swaps are read each time: one with 40,000 is read again after 40 seconds."""
    async with round_site(tmp_path) as site:
        await site.published(START_S + 100, stx=1.0, ststx=1.0)
        known = await BoardReader(site.kv, ROUND_KEY).read()
        assert known is not None
        large = [replace(row, trade_count=20_000) for row in known.rows[:2]]
        await publish(site.kv, replace(known, rows=large), ROUND_KEY)
        soon = await site.published(START_S + 139, stx=1.0, ststx=1.0)
        later = await site.published(START_S + 141, stx=1.0, ststx=1.0)
        await publish(site.kv, replace(known, rows=large, as_of=(START_S + 500) * 1000), ROUND_KEY)
        set_back = await site.published(START_S + 400, stx=1.0, ststx=1.0)

    assert ([row["tradeCount"] for row in soon["rows"]], len(later["rows"])) == ([20_000, 20_000], 3)
    assert len(set_back["rows"]) == 3  # a board of the future, from before the clock was set back, delays nothing


async def test_no_round_is_an_empty_board(tmp_path: Path) -> None:
    """Before the first one, the answer says that there is none."""
    async with round_site(tmp_path) as site:
        board = await site.published(START_S - DAY_S, stx=1.0, ststx=1.0)

    assert (board["rows"], board["round"], board["since"]) == ([], None, None)


async def test_a_void_round_is_not_shown(tmp_path: Path) -> None:
    """Its board disappears with the next publication: there is none, or that of the previous round."""
    async with round_site(tmp_path) as site:
        await site.published(START_S + DAY_S, stx=1.0, ststx=1.0)
        await site.world.act("void", roundId=ROUND_ID, reason="wrong dates")
        board = await site.published(START_S + DAY_S + 300, stx=1.0, ststx=1.0)
        answer = await ask(site.app, f"/api/competition/agents/{AGENTS[0]}")
        await site.world.add_round(roundId="before", startsAt=START_S - DAY_S, endsAt=START_S + 100)
        other = await site.published(START_S + DAY_S + 600, stx=1.0, ststx=1.0)

    assert (board["rows"], board["round"], board["since"]) == ([], None, None)
    assert "round" not in answer.json()["periodRanks"]
    assert (other["round"]["roundId"], len(other["rows"])) == ("before", 3)


async def test_ranks_of_an_agent_in_every_period(tmp_path: Path) -> None:
    """By every order in which it has a value; a period without any of it is left out."""
    async with round_site(tmp_path) as site:
        await site.world.swap(9, 2, ("stx", 1_000), (STSTX, 5), at_s=START_S - 40 * DAY_S)
        await site.published(START_S + DAY_S, stx=1.0, ststx=1.0)
        answer = await ask(site.app, f"/api/competition/agents/{AGENTS[2]}")
        page = await site.board("period=7d&sort=pnl&limit=1")
        following = await site.board(f"period=7d&sort=pnl&limit=2&cursor={page['next']}")
        misused = await ask(site.app, f"{BOARD}?sort=pnl&cursor={page['next']}")

    body = answer.json()
    assert body["ranks"] == {"trades": 1, "volume": 1, "pnl": 3, "latest": 3}
    assert body["periodRanks"]["round"] == {"trades": 2, "volume": 3, "pnl": 2, "latest": 2}
    assert "pnl" not in body["periodRanks"]["7d"]  # nothing was kept of its start
    assert body["periodRanks"]["7d"]["trades"] == 3
    assert [row["pnlUsd"] for row in page["rows"] + following["rows"]] == [10.0, -10.0, None]
    assert misused.status == 400


async def test_a_result_without_a_price_is_unknown_and_not_nothing(tmp_path: Path) -> None:
    """None of the agent's trades counts: its P&L and volume are null in its rounds, as on the round's board."""
    unpriced = f"{AGENTS[0]}.a-token::a"
    async with round_site(tmp_path) as site:
        await site.world.unswap(3)
        await site.world.swap(9, 2, ("stx", 10), (unpriced, 10))
        await site.world.swept(GRACE_S)
        await site.world.run(GRACE_S)
        board = await site.published(GRACE_S + 100, stx=1.0, ststx=1.0)
        agents = [(await ask(site.app, f"/api/competition/agents/{each}")).json() for each in AGENTS]
        page = (await ask(site.app, f"/agents/{AGENTS[2]}")).body.decode()

    assert [row["pnlUsd"] for row in board["rows"]] == [10.0, -10.0, None]
    (unknown,) = agents[2]["rounds"]
    assert (unknown["pnlUsd"], unknown["volumeUsd"], unknown["pnlPercent"], unknown["tradeCount"]) == (
        None,
        None,
        None,
        1,
    )
    assert [agent["rounds"][0]["pnlUsd"] for agent in agents[:2]] == [10.0, -10.0]
    assert '<td class="num">3 of 3</td><td class="num">\u2013</td>' in page


async def test_an_unknown_period_is_explained(tmp_path: Path) -> None:
    """The sentence names those that there are."""
    async with round_site(tmp_path) as site:
        answer = await ask(site.app, f"{BOARD}?period=1y")

    assert answer.status == 400
    assert "period is one of round, 24h, 7d, 30d, all" in answer.json()["error"]


async def test_only_the_swaps_of_the_round_are_read(tmp_path: Path) -> None:
    """By their time: a short round of a long competition costs little."""
    async with round_world(tmp_path) as world:
        plan = await world.all(f"EXPLAIN QUERY PLAN {standings._TRADED}", "[]", START_S, END_S)

    assert any("SEARCH s USING INDEX swaps_by_time" in step["detail"] for step in plan)
