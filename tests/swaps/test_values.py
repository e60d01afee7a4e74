"""What swaps were worth when they were made, and which were worth more than a pool can pay."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import UsageError
from holdfast.testing.virtual_time import run_virtual
from holdfast.types import Database
from support.history_rows import PlainSwap, add_swaps, add_traders, remove_swap
from support.local_store import open_competition, query_plan
from tocsin.prices.price import PoolFloors
from tocsin.prices.store import PricePoint, append
from tocsin.swaps import store
from tocsin.swaps import values as trade_values
from tocsin.swaps.values import SwapWorth, check_worth, excess_of, value_swaps

FLOORS = PoolFloors(10_000.0, 500.0)
ONE, TWO = "SP1", "SP2"
TOKEN = "A.a::a"
USDA = "SP2C2YFP12AJZB4MABJBAJ55XECVS7E4PMMZ89YZR.usda-token::usda"
HOUR_MS = 3_600_000
T_S = 1_800_000_000
T_MS = T_S * 1000


def point(token_id: str, at: int, price_usd: str | None, liquidity_usd: str | None = "20000") -> PricePoint:
    return PricePoint(token_id, at, price_usd, 6, "tenero", liquidity_usd, "700")


@asynccontextmanager
async def traded_at(directory: Path, points: Sequence[PricePoint]) -> AsyncIterator[Database]:
    """Open a database with an agent and these prices."""
    async with open_competition(directory) as db:
        await add_traders(db, [(ONE, 7)])
        if points:
            await db.batch(append(db, points))
        yield db


async def values(db: Database) -> dict[str, tuple[int | None, int | None]]:
    rows = (await db.prepare("SELECT * FROM swap_values").all()).results
    return {row["txid"]: (row["given_micros"], row["received_micros"]) for row in rows}


async def excesses(db: Database) -> dict[str, tuple[str | None, ...]]:
    rows = (await db.prepare("SELECT * FROM excess_swaps").all()).results
    names = ("given_usd", "given_liquidity_usd", "received_usd", "received_liquidity_usd")
    return {row["txid"]: tuple(row[name] for name in names) for row in rows}


async def pair_sums(db: Database) -> list[tuple[Any, ...]]:
    rows = (await db.prepare("SELECT * FROM pair_totals ORDER BY 1, 2, 3").all()).results
    return [
        (
            *(row["sender"], row["token_in"], row["token_out"], row["trades"]),
            *(store.amount(row, side) for side in ("in", "out")),
        )
        for row in rows
    ]


async def waiting(db: Database) -> list[int]:
    rows = (await db.prepare("SELECT due_at FROM swaps_to_value ORDER BY due_at").all()).results
    return [row["due_at"] for row in rows]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("points", "given_micros"),
    [
        ([point("stx", T_MS, "0.85")], 1_700_000),
        ([point("stx", T_MS - 2 * HOUR_MS, "0.85"), point("stx", T_MS + 1, "9")], 1_700_000),
        ([point("stx", T_MS - 2 * HOUR_MS - 1, "0.85"), point("stx", T_MS + HOUR_MS, "0.9")], 1_800_000),
        ([point("stx", T_MS - 1, None), point("stx", T_MS + 1, None), point("stx", T_MS + 2, "1")], 2_000_000),
        ([point("stx", T_MS - 2 * HOUR_MS - 1, "0.85"), point("stx", T_MS + HOUR_MS + 1, "0.9")], None),
        ([point("stx", T_MS - 1, "0.85", "9999"), point("stx", T_MS + 1, "0.9")], None),  # thin then
        ([point("stx", T_MS - 1, "0.85", None)], 1_700_000),  # a core token: its pools need not be told
        ([point("stx", T_MS - 1, "1000000000000", None)], None),  # beyond belief
        ([], None),
    ],
)
async def test_a_swap_is_valued_at_the_price_in_force(
    points: list[PricePoint], given_micros: int | None, tmp_path: Path
) -> None:
    """Else at the first price of the next hour, else it is marked as unknown. Pegs are always known."""
    async with traded_at(tmp_path, [*points, point("other", T_MS, "5")]) as db:
        await add_swaps(db, [PlainSwap(1, ONE, "stx", 2_000_000, USDA, 1_500_000, T_S)])
        done = await value_swaps(db, T_MS + 2 * HOUR_MS, FLOORS)

        assert (done, await values(db)) == (1, {f"0x{1:064x}": (given_micros, 1_500_000)})
        assert await waiting(db) == []
        assert await store.drift(db) == {}


async def test_a_value_is_rounded_once_to_the_even_millionth(tmp_path: Path) -> None:
    """Half a millionth of a dollar is 0."""
    async with traded_at(tmp_path, [point("stx", T_MS, "0.00000025")]) as db:
        await add_swaps(db, [PlainSwap(1, ONE, "stx", 2_000_000, USDA, 1, T_S)])
        await value_swaps(db, T_MS, FLOORS)

        assert list((await values(db)).values()) == [(0, 1)]


async def test_an_excessive_swap_is_recorded_and_has_no_value(tmp_path: Path) -> None:
    """One unit for 10^39 of a token with a price: it stays in the counts, and is in no sum in USD."""
    async with traded_at(tmp_path, [point("stx", T_MS, "1"), point(TOKEN, T_MS, "2", "30000")]) as db:
        honest, minted = (
            PlainSwap(1, ONE, "stx", 4_000_000, TOKEN, 2_000_000, T_S),
            PlainSwap(2, ONE, "stx", 1, TOKEN, 10**39, T_S),
        )
        await add_swaps(db, [honest, minted])
        await value_swaps(db, T_MS, FLOORS)

        assert await values(db) == {honest.txid: (4_000_000, 4_000_000), minted.txid: (None, None)}
        assert await excesses(db) == {minted.txid: ("0.000001", "20000", "2000000000000000000000000000000000", "30000")}
        assert await pair_sums(db) == [(ONE, "stx", TOKEN, 1, 4_000_000, 2_000_000)]
        counted = (await db.prepare("SELECT trades FROM sender_totals").all()).results
        assert counted == [{"trades": 2}]
        assert await store.drift(db) == {}
        await store.rebuild(db)
        assert await pair_sums(db) == [(ONE, "stx", TOKEN, 1, 4_000_000, 2_000_000)]


async def test_an_excess_leaves_with_its_swap(tmp_path: Path) -> None:
    """A reorg removes it, and the swap comes back as an honest one; no sum is off by anything."""
    async with traded_at(tmp_path, [point("stx", T_MS, "1"), point(TOKEN, T_MS, "1")]) as db:
        minted = PlainSwap(1, ONE, "stx", 1, TOKEN, 10**39, T_S)
        await add_swaps(db, [minted])
        await value_swaps(db, T_MS, FLOORS)
        left_out = await pair_sums(db)
        await remove_swap(db, minted)
        removed = (await excesses(db), await pair_sums(db), await store.drift(db))
        await add_swaps(db, [PlainSwap(1, ONE, "stx", 5, TOKEN, 6, T_S)])
        await value_swaps(db, T_MS, FLOORS)

        assert (left_out, removed) == ([], ({}, [], {}))
        assert await pair_sums(db) == [(ONE, "stx", TOKEN, 1, 5, 6)]
        assert await store.drift(db) == {}


@pytest.mark.parametrize(
    ("points", "excessive"),
    [
        ([point("stx", T_MS, "1"), point(TOKEN, T_MS, "1", "9")], True),  # that the token is thin does not matter
        ([point("stx", T_MS, "1")], False),  # no price of what it received
        ([point("stx", T_MS, "1"), point(TOKEN, T_MS, "1", None)], True),  # more than five times what it gave
        ([point(TOKEN, T_MS, "1", None)], False),  # neither what it gave nor the pools are known
        ([point(TOKEN, T_MS, "1", "999.999999")], True),
        ([point(TOKEN, T_MS, "1", "1000")], False),
        ([point("stx", T_MS, "1"), point(TOKEN, T_MS + HOUR_MS + 1, "1", "9")], False),  # no price of its time
    ],
)
async def test_what_is_not_known_is_not_excessive(points: list[PricePoint], excessive: bool, tmp_path: Path) -> None:
    """100 USD for 1,000 USD, where prices and pools are known."""
    async with traded_at(tmp_path, points) as db:
        swap = PlainSwap(1, ONE, "stx", 100_000_000, TOKEN, 1_000_000_000, T_S)
        await add_swaps(db, [swap])
        await value_swaps(db, T_MS + 2 * HOUR_MS, FLOORS)

        assert list(await excesses(db)) == ([swap.txid] if excessive else [])


async def test_a_pool_that_holds_more_than_a_number_can_say_is_not_known(tmp_path: Path) -> None:
    """Its text is too long to be read again; the swap is judged by what it gave."""
    async with traded_at(tmp_path, [point("stx", T_MS, "1"), point(TOKEN, T_MS, "1", "9" * 121)]) as db:
        await add_swaps(db, [PlainSwap(1, ONE, "stx", 2, TOKEN, 10, T_S), PlainSwap(2, ONE, "stx", 2, TOKEN, 11, T_S)])
        await value_swaps(db, T_MS, FLOORS)

        assert list((await values(db)).values()) == [(2, 10), (None, None)]


async def test_a_swap_waits_for_its_price_for_an_hour(tmp_path: Path) -> None:
    """It is checked again every five minutes, and valued when the price is there."""
    async with traded_at(tmp_path, [point("stx", T_MS, "1")]) as db:
        await add_swaps(db, [PlainSwap(n, ONE, "stx", 1_000_000, TOKEN, 1, T_S) for n in (1, 2)])
        seen = [await value_swaps(db, T_MS + minutes * 60_000, FLOORS) for minutes in (0, 4)]
        waits = await waiting(db)
        await value_swaps(db, T_MS + 58 * 60_000, FLOORS)
        at_last = await waiting(db)
        await db.batch(append(db, [point(TOKEN, T_MS + 58 * 60_000, "2000000")]))
        done = await value_swaps(db, T_MS + HOUR_MS + 1, FLOORS)

        assert (seen, waits) == ([0, 0], [T_MS + 300_000] * 2)
        assert at_last == [T_MS + HOUR_MS + 1] * 2
        assert (done, set((await values(db)).values())) == (2, {(1_000_000, 2_000_000)})


async def test_a_price_at_the_end_of_the_hour_still_counts(tmp_path: Path) -> None:
    """So a swap waits through the whole hour, its last millisecond included."""
    async with traded_at(tmp_path, []) as db:
        await add_swaps(db, [PlainSwap(1, ONE, "stx", 1_000_000, USDA, 1_000_000, T_S)])
        early = await value_swaps(db, T_MS + HOUR_MS, FLOORS)
        await db.batch(append(db, [point("stx", T_MS + HOUR_MS, "1")]))
        late = await value_swaps(db, T_MS + HOUR_MS + 1, FLOORS)

        assert (early, late) == (0, 1)
        assert list((await values(db)).values()) == [(1_000_000, 1_000_000)]


async def test_a_value_leaves_with_its_swap(tmp_path: Path) -> None:
    """In the same statement; the swap is valued again when it comes back, as it is then."""
    async with traded_at(tmp_path, [point("stx", T_MS, "1")]) as db:
        swap = PlainSwap(1, ONE, "stx", 3_000_000, USDA, 1_000_000, T_S)
        await add_swaps(db, [swap])
        await value_swaps(db, T_MS, FLOORS)
        before = (await db.prepare("SELECT * FROM sender_values").all()).results
        await remove_swap(db, swap)
        assert (await values(db), (await db.prepare("SELECT * FROM sender_values").all()).results) == ({}, [])
        await add_swaps(db, [PlainSwap(1, ONE, "stx", 4_000_000, USDA, 1_000_000, T_S)])
        await value_swaps(db, T_MS, FLOORS)

        assert before == [{"sender": ONE, "valued": 1, "given_micros": 3_000_000, "received_micros": 1_000_000}]
        assert set((await values(db)).values()) == {(4_000_000, 1_000_000)}
        assert await store.drift(db) == {}


async def test_the_totals_are_rebuilt(tmp_path: Path) -> None:
    """By the same command as the others."""
    async with traded_at(tmp_path, []) as db:
        await add_swaps(db, [PlainSwap(1, ONE, USDA, 3_000_000, USDA.replace("usda", "x"), 1, T_S)])
        await add_swaps(db, [PlainSwap(2, ONE, USDA, 3_000_000, "stx", 1, T_S)])
        await db.batch(append(db, [point("stx", T_MS, "1")]))
        await value_swaps(db, T_MS, FLOORS)
        await db.prepare("UPDATE sender_values SET given_micros = 1").run()
        drifted = await store.drift(db)
        await store.rebuild(db)

        assert drifted == {"sender_values": 2}
        assert await store.drift(db) == {}


times = st.integers(0, 40).map(lambda steps: T_S + steps * 600)


prices = st.tuples(
    st.sampled_from(["stx", TOKEN]), times, st.sampled_from([None, "1", "2.5"]), st.sampled_from(["5", "20000"])
)


swaps = st.tuples(
    st.sampled_from([ONE, TWO]),
    st.permutations(["stx", TOKEN, USDA]),
    st.integers(1, 10**9),
    st.integers(1, 10**9),
    times,
)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.lists(prices, max_size=30), st.lists(swaps, max_size=12), st.sets(st.integers(0, 11)))
def test_values_and_totals_are_those_of_a_plain_search(prices: list[Any], swaps: list[Any], leaving: set[int]) -> None:
    """Each side looked up by hand through all points; totals of the swaps that stayed."""
    points = {(token, at): (price, pool) for token, at, price, pool in prices}
    made = [
        PlainSwap(n, sender, tokens[0], given_, tokens[1], gotten, at)
        for n, (sender, tokens, given_, gotten, at) in enumerate(swaps)
    ]

    def side(token: str, amount: int, at: int) -> tuple[Decimal, str] | None:
        if token == USDA:
            return Decimal(amount), "99999"
        seen = sorted((t, *points[name, t]) for name, t in points if name == token and t <= at and at - t <= 7200)
        later = sorted((t, *points[name, t]) for name, t in points if name == token and at < t <= at + 3600)
        known = seen[-1:] if seen and seen[-1][1] is not None else [each for each in later if each[1] is not None]
        return (Decimal(known[0][1]) * amount, known[0][2]) if known else None

    def value(swap: PlainSwap) -> tuple[int | None, int | None]:
        gave = side(swap.token_in, swap.amount_in, swap.burn_block_time)
        got = side(swap.token_out, swap.amount_out, swap.burn_block_time)
        too_much = any(each is not None and each[0] > int(each[1]) * 10**6 for each in (gave, got))
        if too_much or (gave is not None and got is not None and got[0] > 5 * gave[0]):
            return None, None
        micros = [None if each is None or each[1] == "5" else round(each[0]) for each in (gave, got)]
        return micros[0], micros[1]

    async def check() -> None:
        with TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
            patch.setattr(trade_values, "BATCH", 3)
            async with open_competition(Path(directory)) as db:
                await add_traders(db, [(ONE, 1), (TWO, 2)])
                rows = [point(token, at * 1000, price, pool) for (token, at), (price, pool) in points.items()]
                if rows:
                    await db.batch(append(db, rows))
                if made:
                    await add_swaps(db, made)
                await value_swaps(db, (T_S + 86_400) * 1000, FLOORS)
                assert len(await values(db)) == len(made)
                for number in leaving & set(range(len(made))):
                    await remove_swap(db, made[number])
                stayed = [swap for swap in made if swap.number not in leaving]
                assert await values(db) == {swap.txid: value(swap) for swap in stayed}
                assert await store.drift(db) == {}

    run_virtual(check())


def test_work_is_found_by_indexes() -> None:
    """However many swaps and points there are, only those that are due are read, and nothing is sorted."""
    plan = query_plan(trade_values.SQL["swaps_to_value"], 1, 2, 3, 4)

    assert [line for line in plan if line.startswith("SCAN")] == ["SCAN d", "SCAN s"]  # what was found
    assert "TEMP B-TREE" not in " ".join(plan)


async def test_a_swap_that_moves_meanwhile_is_valued_again(tmp_path: Path) -> None:
    """A reorg moves it between reading and writing: it gets no value of its old time, then that of its new one."""
    async with traded_at(tmp_path, [point("stx", T_MS, "1"), point("stx", T_MS + 3_600_000, "2")]) as db:
        await add_swaps(db, [PlainSwap(1, ONE, "stx", 3_000_000, USDA, 1_000_000, T_S)])
        work = db.prepare(trade_values.SQL["swaps_to_value"]).bind(T_MS, 10, 7_200_000, 3_600_000)
        read = (await work.all()).results
        [swap] = (await db.prepare("SELECT * FROM swaps").all()).results
        moved = {**swap, "block_hash": "0x2", "burn_block_time": T_S + 3_600}
        names = ", ".join(moved)
        again = f"INSERT INTO swaps ({names}) VALUES ({', '.join('?' * len(moved))})"
        await db.batch([db.prepare("DELETE FROM swaps"), db.prepare(again).bind(*moved.values())])
        await trade_values._value_some(db, read, T_MS, FLOORS)
        between = await values(db)
        await value_swaps(db, T_MS + 3_600_000, FLOORS)

        assert between == {}
        assert set((await values(db)).values()) == {(6_000_000, 1_000_000)}


@pytest.mark.parametrize(
    ("figures", "reason"),
    [
        (("100", "250000", "99.7", "250000"), None),
        (("100", None, "500", None), None),
        (
            ("100", None, "500.000001", None),
            "it received 500.00 USD for 100.00 USD, which is more than 5 times as much",
        ),
        (("100", "250000", "20", "250000"), None),  # a bad trade is a trade
        ((None, None, "10000", "10000"), None),
        ((None, None, "10000.01", "10000"), "it received 10,000.01 USD, but the token's pools held 10,000.00 USD"),
        (("10000", "10000", None, None), None),
        (("10000.01", "10000", None, None), "it gave 10,000.01 USD, but the token's pools held 10,000.00 USD"),
        ((None, None, "1000000000000000000000000000000", None), None),
        ((None, "5", None, "5"), None),
        (
            ("0", None, "0.000000000000000001", None),
            "it received 0.00 USD for 0.00 USD, which is more than 5 times as much",
        ),
        (("0", "0", "0", "0"), None),
    ],
)
def test_the_rule(figures: tuple[str | None, str | None, str | None, str | None], reason: str | None) -> None:
    """Neither side above what its pools held, and not more than five times what was given; unknown is not excessive."""
    assert excess_of(SwapWorth("0x1", *figures)) == reason


def test_a_figure_is_a_decimal_number() -> None:
    with pytest.raises(UsageError, match="A decimal number looks like"):
        check_worth(SwapWorth("0x1", None, None, "1e6", None))
