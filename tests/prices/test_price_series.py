"""The price series: what a refresh appends, and which price is in force at a time."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.types import Database
from holdfast_testing.virtual_time import START_MS
from support.local_store import open_competition
from support.market import Market
from support.task_run import task_bench
from tocsin.prices.refresh import refresh_prices_task
from tocsin.prices.store import PricePoint, append, in_force, points_between
from tocsin.prices.tokens import STATIC_TOKENS
from tocsin.settings import Settings

TASK = refresh_prices_task(Settings())
SBTC, STSTX = STATIC_TOKENS[1:]
MINUTE_MS = 60_000
TWO_HOURS_MS = 7_200_000


def point(token_id: str, at: int, price_usd: str | None = "1") -> PricePoint:
    return PricePoint(token_id, at, price_usd, 6, "tenero", "250000", None)


async def all_points(db: Database, *token_ids: str) -> list[PricePoint]:
    series = await points_between(db, token_ids, 0, 10**15)
    return [point for token_id in token_ids for point in series.get(token_id, [])]


async def test_each_refresh_appends_what_it_accepted(tmp_path: Path) -> None:
    """Exact text, with the time; unchanged prices too. A jump and a good price's disappearance append nothing."""
    market = Market([{"stx": 0.1, SBTC: 103_420.5, STSTX: None}])
    async with task_bench(tmp_path, market) as bench:
        await bench.run(TASK)
        await bench.wired.clock.sleep(300)
        market.pages = [{"stx": 0.1, SBTC: 900_000.0, STSTX: 1e-7}]
        await bench.run(TASK)
        await bench.wired.clock.sleep(300)
        market.pages = [{"stx": None, SBTC: 103_421.0, STSTX: 1e-7}]
        await bench.run(TASK)

        found = await all_points(bench.db, "stx", SBTC, STSTX)

    assert [(each.token_id, each.at - START_MS, each.price_usd) for each in found] == [
        ("stx", 0, "0.1"),
        ("stx", 300_000, "0.1"),
        (SBTC, 0, "103420.5"),
        (SBTC, 600_000, "103421"),
        (STSTX, 0, None),
        (STSTX, 300_000, "0.0000001"),
        (STSTX, 600_000, "0.0000001"),
    ]
    assert {(each.decimals, each.source, each.liquidity_usd) for each in found} == {(6, "tenero", "250000")}


async def test_what_pools_hold_is_kept_with_the_price(tmp_path: Path) -> None:
    """To the cent."""
    market = Market([{"stx": 0.85}])
    market.pools = {"stx": (250_000.129, 18_000.0)}
    async with task_bench(tmp_path, market) as bench:
        await bench.run(TASK)
        (found,) = await all_points(bench.db, "stx")

    assert (found.liquidity_usd, found.volume_usd) == ("250000.13", "18000")


async def test_a_point_is_never_changed(tmp_path: Path) -> None:
    """Appended again it stays as it was; only what was asked for is returned, oldest first."""
    async with open_competition(tmp_path) as db:
        await db.batch(append(db, [point("a", 20), point("a", 10, None), point("b", 10)]))
        await db.batch(append(db, [point("a", 20, "2"), point("a", 30)]))

        assert await points_between(db, ["a", "c"], 10, 20) == {"a": [point("a", 10, None), point("a", 20)]}
        assert append(db, []) == []


times = st.integers(0, 5 * TWO_HOURS_MS // MINUTE_MS).map(lambda minutes: minutes * MINUTE_MS)


@pytest.mark.slow
@given(st.lists(times, unique=True).map(sorted), times)
def test_in_force_is_the_newest_point_of_the_last_two_hours(ats: list[int], at: int) -> None:
    """As a search through all points finds it."""
    expected = [each for each in ats if at - 7_200_000 <= each <= at]

    found = in_force([point("a", each) for each in ats], at)

    assert (None if found is None else found.at) == (expected[-1] if expected else None)
