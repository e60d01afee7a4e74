"""The prices of a round's end."""

from decimal import Decimal
from pathlib import Path
from statistics import median_low

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.local_store import open_competition
from tocsin.prices.store import PricePoint, append
from tocsin.rounds.capture import closing_price, closing_prices
from tocsin.rounds.round import RoundPrice

END = 1_800_000_000
END_MS = END * 1000
MINUTE_MS = 60_000
USDA = "SP2C2YFP12AJZB4MABJBAJ55XECVS7E4PMMZ89YZR.usda-token::usda"


def point(minutes_before: int, price_usd: str | None, token_id: str = "stx", decimals: int | None = 6) -> PricePoint:
    return PricePoint(token_id, END_MS - minutes_before * MINUTE_MS, price_usd, decimals, "tenero", "20000", "700")


async def test_the_price_of_the_end_is_the_median_of_its_last_hour(tmp_path: Path) -> None:
    """A spike of the last half hour does not move it, nor does anything after the end. Pegs are always there."""
    async with open_competition(tmp_path) as db:
        steady = [point(10, "0.9"), point(5, "0.8")]
        calm = [point(minutes, "0.85") for minutes in range(30, 120, 5)]
        spike = [point(minutes, "9") for minutes in (25, 20, 15, 0)]
        after = [point(-5, "500")]
        await db.batch(append(db, [*calm, *spike, *steady, *after, point(0, "3", "b"), point(180, "3", "c")]))

        found = await closing_prices(db, ["stx", USDA, "c", "b", "stx", "unknown"], END)

    assert found == [
        RoundPrice(USDA, "1", 6, "peg", END_MS),
        RoundPrice("stx", "0.85", 6, "tenero", END_MS - 35 * MINUTE_MS, "20000", "700"),
    ]


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        ([point(30, "2")], "2"),  # in force at 7 of the 13 instants
        ([point(29, "2")], None),  # at 6
        ([point(150, "2")], "2"),  # until 30 minutes before the end: 7
        ([point(151, "2")], None),
        ([point(60, "2"), point(30, None)], None),  # from then on the source had none
        ([point(60, "2"), point(29, None)], "2"),
        ([point(60, "2", decimals=None)], None),
        ([point(60, "10"), point(30, "9")], "9"),  # 7 against 6, compared as numbers
        ([point(60, "10"), point(34, "9")], "9"),
        ([point(60, "10"), point(29, "9")], "10"),
        # In force at 12 instants, six each: the lower of the two in the middle.
        ([point(55, "10"), point(25, "9")], "9"),
        ([point(55, "9"), point(25, "10")], "9"),
        ([], None),
    ],
)
def test_at_least_seven_of_thirteen_instants_are_known(points: list[PricePoint], expected: str | None) -> None:
    """Otherwise the token has no price of the end."""
    found = closing_price("stx", points, END_MS)

    assert (None if found is None else found.price_usd) == expected


prices = st.one_of(st.none(), st.sampled_from(["0.5", "1", "2", "10", "30"]))


@pytest.mark.slow
@given(st.dictionaries(st.integers(-10, 200), prices))
def test_it_equals_a_plain_search(by_minute: dict[int, str | None]) -> None:
    """Against a model without an index that searches all points for each instant."""
    known = []
    for instant in range(0, 65, 5):
        in_force = [minutes for minutes in by_minute if instant <= minutes <= instant + 120]
        price = by_minute[min(in_force)] if in_force else None
        if price is not None:
            known.append(Decimal(price))
    expected = median_low(known) if len(known) > 6 else None

    points = [point(minutes, by_minute[minutes]) for minutes in sorted(by_minute, reverse=True)]
    found = closing_price("stx", points, END_MS)

    assert (None if found is None else Decimal(found.price_usd)) == expected
