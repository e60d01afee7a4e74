"""The board of a round or of another period, as it is published by tasks and requests, and as the API shows it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from holdfast.types import KV
from support.asgi import ask
from support.competition_site import healthy
from support.round_world import (
    AGENTS,
    END_S,
    GRACE_S,
    OF_ROUND,
    ROUND_ID,
    RULES,
    START_S,
    STSTX,
    RoundWorld,
    round_world,
)
from support.world import tocsin_in
from tocsin.board import history as agent_days
from tocsin.board import publish as standings
from tocsin.board.board import ROUND_KEY, BoardReader, publish
from tocsin.board.publish import publish_board
from tocsin.prices.store import CachedPrice, put_token_price
from tocsin.rounds.store import round_in_force
from tocsin.swaps.values import value_swaps

BOARD = "/api/competition/leaderboard"
DAY_S = 86_400
DIKO = "SP2C2YFP12AJZB4MABJBAJ55XECVS7E4PMMZ89YZR.arkadiko-token::diko"


@dataclass
class RoundSite:
    """A competition with a round, what is published of it, and the API."""

    world: RoundWorld
    kv: KV
    app: Any

    async def price(self, token: str, usd: float, at_s: int, *, liquidity_usd: float = 20_000.0) -> None:
        known = CachedPrice(usd, 6, at_s * 1000, liquidity_usd=liquidity_usd, volume_usd=700.0)
        await put_token_price(self.kv, token, known)

    async def publish(self, at_s: int) -> None:
        self.world.clock.at_s = float(at_s)
        await publish_board(self.world.db, self.kv, at_s * 1000, RULES)

    async def published(self, at_s: int, *, stx: float = 1.0, ststx: float = 1.0) -> dict[str, Any]:
        """The round's board after a publication by a task at that time, with these prices."""
        await self.price("stx", stx, at_s)
        await self.price(STSTX, ststx, at_s)
        await self.publish(at_s)
        return await self.board("period=round")

    async def board(self, query: str) -> dict[str, Any]:
        self.world.clock.at_s += 20  # older than any response that is kept
        answer = await ask(self.app, f"{BOARD}?{query}")
        assert answer.status == 200, answer.json()
        body: dict[str, Any] = answer.json()
        return body


@asynccontextmanager
async def round_site(directory: Path) -> AsyncIterator[RoundSite]:
    async with (
        round_world(directory) as world,
        tocsin_in(directory, clock=world.clock, db=world.db, log=world.log, **OF_ROUND) as made,
    ):
        yield RoundSite(world, made.kv, made.with_deps(health=healthy))


def pnls(board: dict[str, Any]) -> list[tuple[str, float | None]]:
    return [(row["stxAddress"], row["pnlUsd"]) for row in board["rows"]]


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
        await site.price(thin, 5.0, START_S, liquidity_usd=20.0)
        board = await site.published(START_S + 3_000)

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
        board = await site.published(START_S + 3_000)

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
    assert pnls(over) == expected
    assert pnls(final) == expected
    assert (over["round"]["final"], final["round"]["final"]) == (False, True)
    assert again["rows"] == final["rows"]
    assert [row["displayName"] for row in final["rows"]] == ["Agent 0", "Agent 2", "Agent 1"]


async def test_a_result_that_was_computed_again_is_published(tmp_path: Path) -> None:
    """Reopened and finalized between two publications: the board shows the new version."""
    async with round_site(tmp_path) as site:
        await site.world.swept(GRACE_S)
        await site.world.run(GRACE_S + 2)
        first = await site.published(GRACE_S + 600)
        await site.world.act("reopen", roundId=ROUND_ID, reason="a price was wrong")
        await site.world.act("price", roundId=ROUND_ID, tokenId=STSTX, priceUsd="2", reason="it was wrong")
        await site.world.run(GRACE_S + 900)
        assert await site.world.status() == "finalized"
        second = await site.published(GRACE_S + 1_200)

    assert pnls(first) == [(AGENTS[0], 10.0), (AGENTS[2], 0.0), (AGENTS[1], -10.0)]
    assert pnls(second) == [(AGENTS[1], 180.0), (AGENTS[0], 95.0), (AGENTS[2], 10.0)]


async def test_a_large_round_is_read_less_often(tmp_path: Path) -> None:
    """All its swaps are read each time: one with 40,000 is read again after 40 seconds."""
    async with round_site(tmp_path) as site:
        await site.published(START_S + 100)
        known = await BoardReader(site.kv, ROUND_KEY).read()
        assert known is not None
        large = [replace(row, trade_count=20_000) for row in known.rows[:2]]
        await publish(site.kv, replace(known, rows=large), ROUND_KEY)
        soon = await site.published(START_S + 139)
        later = await site.published(START_S + 141)
        await publish(site.kv, replace(known, rows=large, as_of=(START_S + 500) * 1000), ROUND_KEY)
        set_back = await site.published(START_S + 400)

    assert ([row["tradeCount"] for row in soon["rows"]], len(later["rows"])) == ([20_000, 20_000], 3)
    assert len(set_back["rows"]) == 3  # a board of the future, from before the clock was set back, delays nothing


async def test_no_round_is_an_empty_board(tmp_path: Path) -> None:
    """Before the first one, the answer says that there is none."""
    async with round_site(tmp_path) as site:
        board = await site.published(START_S - DAY_S)

    assert (board["rows"], board["round"], board["since"]) == ([], None, None)


async def test_a_void_round_is_not_shown(tmp_path: Path) -> None:
    """Its board disappears with the next publication: there is none, or that of the previous round."""
    async with round_site(tmp_path) as site:
        await site.published(START_S + DAY_S)
        await site.world.act("void", roundId=ROUND_ID, reason="wrong dates")
        board = await site.published(START_S + DAY_S + 300)
        answer = await ask(site.app, f"/api/competition/agents/{AGENTS[0]}")
        await site.world.add_round(roundId="before", startsAt=START_S - DAY_S, endsAt=START_S + 100)
        other = await site.published(START_S + DAY_S + 600)

    assert (board["rows"], board["round"], board["since"]) == ([], None, None)
    assert "round" not in answer.json()["periodRanks"]
    assert (other["round"]["roundId"], len(other["rows"])) == ("before", 3)


async def test_ranks_of_an_agent_in_every_period(tmp_path: Path) -> None:
    """By every order in which it has a value; a period without any of it is left out."""
    async with round_site(tmp_path) as site:
        await site.world.swap(9, 2, ("stx", 1_000), (STSTX, 5), at_s=START_S - 40 * DAY_S)
        await site.published(START_S + DAY_S)
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
        await site.world.finalized()
        board = await site.published(GRACE_S + 100)
        agents = [(await ask(site.app, f"/api/competition/agents/{each}")).json() for each in AGENTS]
        page = (await ask(site.app, f"/agents/{AGENTS[2]}")).body.decode()

    assert [row["pnlUsd"] for row in board["rows"]] == [10.0, -10.0, None]
    (unknown,) = agents[2]["rounds"]
    values = [unknown[name] for name in ("pnlUsd", "volumeUsd", "pnlPercent", "tradeCount")]
    assert values == [None, None, None, 1]
    assert [agent["rounds"][0]["pnlUsd"] for agent in agents[:2]] == [10.0, -10.0]
    assert "rank 3 of 3 · <span>\u2013</span>" in page


async def test_an_unknown_period_is_explained(tmp_path: Path) -> None:
    """The sentence names those that there are."""
    async with round_site(tmp_path) as site:
        answer = await ask(site.app, f"{BOARD}?period=1y")

    assert answer.status == 400
    assert "period is one of round, 24h, 7d, 30d, all" in answer.json()["error"]


async def test_only_the_swaps_of_the_round_are_read(tmp_path: Path) -> None:
    """By their time: a short round of a long competition costs little."""
    async with round_world(tmp_path) as world:
        plan = await world.all(f"EXPLAIN QUERY PLAN {standings.SQL['trades_of_round']}", "[]", START_S, END_S)

    assert any("SEARCH s USING INDEX swaps_by_time" in step["detail"] for step in plan)


async def test_a_round_that_ends_now_is_over(tmp_path: Path) -> None:
    """The next one, which begins at this moment, is the running one."""
    async with round_world(tmp_path) as world:
        await world.add_round(roundId="week-2", startsAt=END_S, endsAt=END_S + DAY_S)
        shown = [await round_in_force(world.db, at_s * 1000) for at_s in (END_S - 1, END_S, END_S + DAY_S)]

    assert [each and each.round_id for each in shown] == [ROUND_ID, "week-2", "week-2"]


# Other periods


async def keep_points(site: RoundSite) -> None:
    """What the task `snapshot` does."""
    board = await BoardReader(site.kv).read()
    assert board is not None
    await agent_days.append(site.world.db, board.rows, site.world.clock.now())


@pytest.mark.parametrize("hours", [1, 3, 100])
async def test_no_board_has_a_period_of_long_ago(hours: int, tmp_path: Path) -> None:
    """A period is as long as its name says, also after a pause of days."""
    async with round_site(tmp_path) as site:
        at_s = (START_S + 5 * DAY_S) // 3_600 * 3_600
        await site.world.execute("DELETE FROM swaps_to_value")  # what waits makes it look again each time
        await site.published(at_s)
        await site.publish(at_s + hours * 3_600)
        board = await site.board("period=24h")

    assert board["since"] == (at_s + hours * 3_600 - 24 * 3_600) * 1000


async def test_a_pool_that_dries_up_is_no_gain(tmp_path: Path) -> None:
    """A loss with a token that no longer counts leaves the P&L; the period does not show that as a win."""
    async with round_site(tmp_path) as site:
        at_s = START_S + 3 * DAY_S
        await site.world.swap(50, 0, ("stx", 1_000), (DIKO, 100), at_s=START_S + 7_200)
        await site.price(DIKO, 1.0, at_s)
        await site.published(at_s)
        await keep_points(site)
        later_s = at_s + DAY_S
        await site.price(DIKO, 1.0, later_s, liquidity_usd=10.0)
        await site.published(later_s)
        day, everything = await site.board("period=24h"), await site.board("period=all")

    first = next(row for row in day["rows"] if row["stxAddress"] == AGENTS[0])
    others = [row for row in day["rows"] if row["stxAddress"] != AGENTS[0]]
    assert (first["pnlUsd"], first["pnlPercent"], first["tradeCount"]) == (None, None, 0)
    assert first["thinTokens"] == [DIKO]
    assert {row["pnlUsd"] for row in others} == {0.0}
    assert dict(pnls(everything))[AGENTS[0]] == 10.0


async def test_a_swap_that_is_found_days_later_is_no_gain_of_today(tmp_path: Path) -> None:
    """Its trade counts where it belongs, and the P&L of the period is not known."""
    async with round_site(tmp_path) as site:
        at_s = START_S + 3 * DAY_S
        await site.published(at_s)
        await keep_points(site)
        await site.world.swap(60, 0, ("stx", 500), (STSTX, 1_000), at_s=START_S + 100)
        await site.published(at_s + DAY_S)
        day = await site.board("period=24h")

    first = next(row for row in day["rows"] if row["stxAddress"] == AGENTS[0])
    assert (first["pnlUsd"], first["tradeCount"]) == (None, 0)
