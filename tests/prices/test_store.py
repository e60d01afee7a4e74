"""Prices: the entries in KV, what a token costs, and the series."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.testing.virtual_time import START_MS, VirtualClock
from holdfast.types import Database
from holdfast_testing.stores import open_kv
from stacks_simulator.addresses import address_of
from support.examples import example
from support.local_store import open_competition
from support.market import Market
from support.task_run import task_bench
from tocsin.prices.price import Price
from tocsin.prices.refresh import refresh_prices_task
from tocsin.prices.store import (
    PEGS,
    STATIC_TOKENS,
    CachedPrice,
    PricePoint,
    append,
    get_cached_token_price,
    get_cached_token_prices,
    in_force,
    peg_of,
    points_between,
    price_key,
    price_of,
    prices_of,
    put_token_price,
    read_price,
)
from tocsin.settings import Settings

USDCX = "SP120SBRBQJ00MCWS7TM5R8WJNTTKD5K0HFRC2CNE.usdcx::usdcx-token"
TASK = refresh_prices_task(Settings())
SBTC, STSTX = STATIC_TOKENS[1:]
MINUTE_MS = 60_000
TWO_HOURS_MS = 7_200_000


async def test_an_entry_has_the_documented_key_and_shape(tmp_path: Path) -> None:
    """Other readers of the same KV rely on these names."""
    async with open_kv(tmp_path, VirtualClock()) as kv:
        price = CachedPrice(0.85, 6, START_MS, {"minute": 99, "month": 49_000}, 2.5, None)
        await put_token_price(kv, "stx", price)

        assert json.loads(await kv.get("tenero:price:stx") or "") == {
            "priceUsd": 0.85,
            "decimals": 6,
            "fetchedAt": START_MS,
            "rateLimit": {"minute": 99, "month": 49_000},
            "liquidityUsd": 2.5,
            "volumeUsd": None,
        }
        assert await get_cached_token_price(kv, "stx") == price
        assert await get_cached_token_price(kv, USDCX) is None


async def test_an_entry_expires(tmp_path: Path) -> None:
    """After a week without any refresh a price is gone, not a moment before."""
    clock = VirtualClock()
    async with open_kv(tmp_path, clock) as kv:
        await put_token_price(kv, "stx", CachedPrice(0.85, 6, START_MS))
        clock.jump(604_800_000 - 1)
        assert await get_cached_token_price(kv, "stx") is not None
        clock.jump(1)
        assert await get_cached_token_price(kv, "stx") is None


@pytest.mark.parametrize(
    ("price", "decimals", "fetched_at", "readable"),
    [
        (1e-18, 0, 0, True),
        (1e12, 38, 253_402_300_799_999, True),
        (None, None, 5, True),
        (0.9e-18, 6, 5, False),
        (1.1e12, 6, 5, False),
        (1.0, 6, -1, False),
        (1.0, 6, 253_402_300_800_000, False),
        (0, 6, 5, False),
        (-1.0, 6, 5, False),
        (1.0, -1, 5, False),
        (1.0, 39, 5, False),
    ],
)
def test_an_entry_beyond_every_bound_counts_as_missing(
    price: float | None, decimals: int | None, fetched_at: int, readable: bool
) -> None:
    entry = read_price(json.dumps({"priceUsd": price, "decimals": decimals, "fetchedAt": fetched_at}))
    assert entry == (CachedPrice(price, decimals, fetched_at) if readable else None)


@pytest.mark.parametrize("price", [0.0, -1.0, float("inf"), float("nan")])
def test_what_is_no_price_is_not_stored(price: float) -> None:
    with pytest.raises(ValueError, match="a price is finite and above 0"):
        CachedPrice(price, 6, START_MS)


async def test_more_tokens_than_kv_takes_at_once_are_read_in_parts(tmp_path: Path) -> None:
    """250 tokens, of which every tenth has a price."""
    async with open_kv(tmp_path, VirtualClock()) as kv:
        names = [f"{address_of('deployer')}.t-{number}" for number in range(250)]
        for name in names[::10]:
            await put_token_price(kv, name, CachedPrice(1.0, 6, START_MS))

        assert list(await get_cached_token_prices(kv, names)) == names[::10]


async def test_an_entry_that_cannot_be_read_counts_as_none(tmp_path: Path) -> None:
    """Other bytes under our key never become a price."""
    entry = '{{"priceUsd": {}, "decimals": {}, "fetchedAt": {}, "rateLimit": {}}}'.format
    prices = ('"1"', "0", "NaN", "true", "1e-300", "1e13", "1" + "0" * 400)
    times = ("null", "1e15", "1000000000000000000")
    wrong = [*(entry(price, 6, 1, "{}") for price in prices), *(entry(1, 6, at, "{}") for at in times)]
    async with open_kv(tmp_path, VirtualClock()) as kv:
        await kv.put(price_key("stx"), entry(1, 6, 1, "{}"))
        assert await get_cached_token_price(kv, "stx") is not None
        for text in (*wrong, entry(1, -1, 1, "{}"), entry(1, 6, 1, 7), "", "[]", "null", "{}", '{"priceUsd": 1}'):
            await kv.put(price_key("stx"), text)
            assert await get_cached_token_price(kv, "stx") is None, text


def test_the_pegs_are_the_known_stablecoins() -> None:
    """Price and decimals of every peg are the reference's."""
    known = example("stablecoins")["tokens"]
    assert {contract: (peg.price_usd, peg.decimals) for contract, peg in PEGS.items()} == {
        contract: (row["price_usd"], row["decimals"]) for contract, row in known.items()
    }


def test_a_peg_is_by_contract_whatever_the_asset_is_called() -> None:
    """Ids with, without and with another asset name are the same stablecoin."""
    bare = USDCX.partition("::")[0]
    assert peg_of(USDCX) == peg_of(bare) == peg_of(f"{bare}::other")
    assert peg_of("stx") is None


@pytest.mark.parametrize(
    ("token_id", "cached", "expected"),
    [
        ("stx", None, None),
        ("stx", CachedPrice(0.85, 6, START_MS), Price(0.85, 6, START_MS, stale=False, source="tenero")),
        ("stx", CachedPrice(None, None, START_MS), Price(None, None, START_MS, stale=False, source="tenero")),
        (USDCX, None, Price(1, 6, None, stale=False, source="peg")),
        (USDCX, CachedPrice(None, None, START_MS), Price(1, 6, None, stale=False, source="peg")),
        (USDCX, CachedPrice(0.998, 6, START_MS), Price(0.998, 6, START_MS, stale=False, source="tenero")),
    ],
)
def test_the_cache_comes_before_the_peg_and_the_peg_before_none(
    token_id: str, cached: CachedPrice | None, expected: Price | None
) -> None:
    """A source that says "no price" of a stablecoin does not unprice it."""
    assert price_of(token_id, cached, START_MS) == expected


@pytest.mark.parametrize(("age_ms", "stale"), [(0, False), (7_200_000, False), (7_200_001, True), (-1, True)])
def test_an_old_price_is_marked_stale(age_ms: int, stale: bool) -> None:
    """So is one from the future: its age is not known."""
    price = price_of("stx", CachedPrice(0.85, 6, START_MS), START_MS + age_ms)
    assert price is not None
    assert price.stale is stale


async def test_all_readers_get_prices_the_same_way(tmp_path: Path) -> None:
    """Cached and pegged tokens are there, unknown ones are not."""
    async with open_kv(tmp_path, VirtualClock()) as kv:
        await put_token_price(kv, "stx", CachedPrice(0.85, 6, START_MS))

        found = await prices_of(kv, ["stx", USDCX, f"{address_of('deployer')}.t"], START_MS)

        assert {token_id: price.source for token_id, price in found.items()} == {"stx": "tenero", USDCX: "peg"}


@pytest.mark.parametrize("usd", [-0.01, 1e15 + 1, float("nan"), float("inf")])
def test_a_pool_holds_and_trades_between_nothing_and_a_bound(usd: float) -> None:
    """What Tenero cannot have meant is no entry; nothing at all and small change are."""
    for pool in ((usd, None), (None, usd)):
        with pytest.raises(ValueError, match="what a pool holds or trades"):
            CachedPrice(0.85, 6, START_MS, {}, *pool)

    assert CachedPrice(0.85, 6, START_MS, liquidity_usd=0.0, volume_usd=0.5).volume_usd == 0.5


# The series


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
