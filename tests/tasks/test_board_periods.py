"""The board of a period, as it is published by tasks and by requests."""

from pathlib import Path

import pytest

from rounds.test_standings import DAY_S, RoundSite, round_site
from support.round_world import AGENTS, RULES, START_S, STSTX
from tocsin.board import history as agent_days
from tocsin.board.publish import publish_board
from tocsin.board.published import BoardReader
from tocsin.prices.store import CachedPrice, put_token_price
from tocsin.scheduler.task import ContextBindings, WorkContext
from tocsin.upstream.limiter import request_session

DIKO = "SP2C2YFP12AJZB4MABJBAJ55XECVS7E4PMMZ89YZR.arkadiko-token::diko"


async def keep_points(site: RoundSite) -> None:
    """What the task `snapshot` does."""
    board = await BoardReader(site.kv).read()
    assert board is not None
    await agent_days.append(site.world.db, board.rows, site.world.clock.now())


@pytest.mark.parametrize(("hours", "longer"), [(1, 1), (3, 0), (100, 0)])
async def test_a_request_publishes_no_period_of_long_ago(hours: int, longer: int, tmp_path: Path) -> None:
    """Between two runs it may be an hour longer than its name says, and after a pause of days not more."""
    async with round_site(tmp_path) as site:
        at_s = (START_S + 5 * DAY_S) // 3_600 * 3_600
        await site.world.db.prepare("DELETE FROM swaps_to_value").run()  # what waits makes it look again each time
        await site.published(at_s, stx=1.0, ststx=1.0)
        site.world.clock.at_s = float(at_s + hours * 3_600)
        bindings = ContextBindings(site.world.clock, {}, site.world.db, site.kv)
        await publish_board(WorkContext(bindings, request_session(site.world.log)), RULES)
        board = await site.board("period=24h")

    assert board["since"] == (at_s + hours * 3_600 - (24 + longer) * 3_600) * 1000


async def test_a_pool_that_dries_up_is_no_gain(tmp_path: Path) -> None:
    """A loss with a token that no longer counts leaves the P&L; the period does not show that as a win."""
    async with round_site(tmp_path) as site:
        at_s = START_S + 3 * DAY_S
        await site.world.swap(50, 0, ("stx", 1_000), (DIKO, 100), at_s=START_S + 7_200)
        await put_token_price(site.kv, DIKO, CachedPrice(1.0, 6, at_s * 1000, liquidity_usd=20_000.0, volume_usd=700.0))
        await site.published(at_s, stx=1.0, ststx=1.0)
        await keep_points(site)
        later_s = at_s + DAY_S
        await put_token_price(site.kv, DIKO, CachedPrice(1.0, 6, later_s * 1000, liquidity_usd=10.0, volume_usd=700.0))
        await site.published(later_s, stx=1.0, ststx=1.0)
        day, everything = await site.board("period=24h"), await site.board("period=all")

    first = next(row for row in day["rows"] if row["stxAddress"] == AGENTS[0])
    others = [row for row in day["rows"] if row["stxAddress"] != AGENTS[0]]
    assert (first["pnlUsd"], first["pnlPercent"], first["tradeCount"]) == (None, None, 0)
    assert first["thinTokens"] == [DIKO]
    assert {row["pnlUsd"] for row in others} == {0.0}
    assert next(row for row in everything["rows"] if row["stxAddress"] == AGENTS[0])["pnlUsd"] == 10.0


async def test_a_swap_that_is_found_days_later_is_no_gain_of_today(tmp_path: Path) -> None:
    """Its trade counts where it belongs, and the P&L of the period is not known."""
    async with round_site(tmp_path) as site:
        at_s = START_S + 3 * DAY_S
        await site.published(at_s, stx=1.0, ststx=1.0)
        await keep_points(site)
        await site.world.swap(60, 0, ("stx", 500), (STSTX, 1_000), at_s=START_S + 100)
        await site.published(at_s + DAY_S, stx=1.0, ststx=1.0)
        day = await site.board("period=24h")

    first = next(row for row in day["rows"] if row["stxAddress"] == AGENTS[0])
    assert (first["pnlUsd"], first["tradeCount"]) == (None, 0)
