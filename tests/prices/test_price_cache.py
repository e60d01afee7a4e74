"""The entries in KV, and what they cost according to the one pricing function."""

import json
from pathlib import Path

import pytest

from holdfast_testing.stores import open_kv
from holdfast_testing.virtual_time import START_MS, VirtualClock
from stacks_simulator.addresses import address_of
from support.examples import example
from tocsin.prices.price import Price
from tocsin.prices.store import (
    PEGS,
    CachedPrice,
    RemainingCalls,
    get_cached_token_price,
    get_cached_token_prices,
    peg_of,
    price_key,
    price_of,
    prices_of,
    put_token_price,
    read_price,
)

USDCX = "SP120SBRBQJ00MCWS7TM5R8WJNTTKD5K0HFRC2CNE.usdcx::usdcx-token"


async def test_an_entry_has_the_documented_key_and_shape(tmp_path: Path) -> None:
    """Other readers of the same KV rely on these names."""
    async with open_kv(tmp_path, VirtualClock()) as kv:
        await put_token_price(kv, "stx", CachedPrice(0.85, 6, START_MS, RemainingCalls(99, 49_000), 2.5, None))

        assert json.loads(await kv.get("tenero:price:stx") or "") == {
            "priceUsd": 0.85,
            "decimals": 6,
            "fetchedAt": START_MS,
            "rateLimit": {"minute": 99, "month": 49_000},
            "liquidityUsd": 2.5,
            "volumeUsd": None,
        }
        assert await get_cached_token_price(kv, "stx") == CachedPrice(
            0.85, 6, START_MS, RemainingCalls(99, 49_000), 2.5
        )
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


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "null",
        "{}",
        '{"priceUsd": 1}',
        '{"priceUsd": "1", "decimals": 6, "fetchedAt": 1}',
        '{"priceUsd": 0, "decimals": 6, "fetchedAt": 1}',
        '{"priceUsd": NaN, "decimals": 6, "fetchedAt": 1}',
        '{"priceUsd": true, "decimals": 6, "fetchedAt": 1}',
        '{"priceUsd": 1, "decimals": -1, "fetchedAt": 1}',
        '{"priceUsd": 1, "decimals": 6, "fetchedAt": null}',
        '{"priceUsd": 1e-300, "decimals": 6, "fetchedAt": 1}',
        '{"priceUsd": 1e13, "decimals": 6, "fetchedAt": 1}',
        '{"priceUsd": 1%s, "decimals": 6, "fetchedAt": 1}' % ("0" * 400),
        '{"priceUsd": 1, "decimals": 6, "fetchedAt": 1e15}',
        '{"priceUsd": 1, "decimals": 6, "fetchedAt": 1000000000000000000}',
        '{"priceUsd": 1, "decimals": 6, "fetchedAt": 1, "rateLimit": 7}',
    ],
)
async def test_an_entry_that_cannot_be_read_counts_as_none(tmp_path: Path, text: str) -> None:
    """Other bytes under our key never become a price."""
    async with open_kv(tmp_path, VirtualClock()) as kv:
        await kv.put(price_key("stx"), text)

        assert await get_cached_token_price(kv, "stx") is None


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
            CachedPrice(0.85, 6, START_MS, RemainingCalls(), *pool)

    assert CachedPrice(0.85, 6, START_MS, liquidity_usd=0.0, volume_usd=0.5).volume_usd == 0.5
