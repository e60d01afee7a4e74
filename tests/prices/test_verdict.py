"""What happens to a price from the source."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.testing.virtual_time import START_MS
from tocsin.prices.price import PoolFloors
from tocsin.prices.refresh import HeldPrice, Verdict, judge
from tocsin.prices.store import CachedPrice, RemainingCalls
from tocsin.stacks import TokenPrice

LIMIT: RemainingCalls = {"minute": 9, "month": 900}
FLOORS = PoolFloors(10_000.0, 500.0)
NOW = START_MS
MINUTE_MS = 60_000
HOUR_MS = 3_600_000
PRICES = st.none() | st.floats(min_value=1e-12, max_value=1e12)


def seen(price_usd: float | None, decimals: int | None = 6) -> TokenPrice:
    return TokenPrice("a.b::c", price_usd, decimals, 20_000.0, 700.0)


def cached(price_usd: float | None, age_ms: int = MINUTE_MS, decimals: int | None = 6) -> CachedPrice:
    return CachedPrice(price_usd, decimals, NOW - age_ms, LIMIT, 20_000.0, 700.0)


def held_back(price: TokenPrice | None) -> HeldPrice | None:
    return None if price is None else HeldPrice(price.price_usd, price.decimals)


def judged(price: TokenPrice, known: CachedPrice | None, held: TokenPrice | None = None) -> Verdict:
    return judge(price, known, held_back(held), now=NOW, rate_limit=LIMIT, jump_factor=5.0, floors=FLOORS)


def entry(price_usd: float | None, decimals: int | None = 6) -> CachedPrice:
    return CachedPrice(price_usd, decimals, NOW, LIMIT, 20_000.0, 700.0)


@pytest.mark.parametrize(
    ("price", "known", "expected"),
    [
        (seen(0.85), None, Verdict("priced", entry(0.85))),
        (seen(0.85), cached(None), Verdict("priced", entry(0.85))),
        (seen(0.86), cached(0.85), Verdict("priced", entry(0.86))),
        (seen(0.85), cached(0.85), Verdict("priced", None)),
        (seen(0.85), cached(0.85, HOUR_MS - 1), Verdict("priced", None)),
        (seen(0.85), cached(0.85, HOUR_MS), Verdict("priced", entry(0.85))),
        (seen(0.85), cached(0.85, 0), Verdict("priced", None)),
        (seen(0.85), cached(0.85, -1), Verdict("priced", entry(0.85))),
        (seen(0.85), cached(0.85, decimals=None), Verdict("priced", entry(0.85))),
        (seen(0.85, None), cached(0.85), Verdict("priced", None)),
        (seen(0.86, None), cached(0.85), Verdict("priced", entry(0.86))),
        (seen(0.86, None), None, Verdict("priced", entry(0.86, None))),
    ],
)
def test_a_changed_price_is_written_and_an_unchanged_one_once_an_hour(
    price: TokenPrice, known: CachedPrice | None, expected: Verdict
) -> None:
    """Decimals that the source leaves out this time are kept, never guessed."""
    assert judged(price, known) == expected


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        (None, Verdict("unpriced", entry(None))),
        (cached(0.85), Verdict("unpriced", None)),
        (cached(0.85, 30 * 86_400_000), Verdict("unpriced", None)),
        (cached(None), Verdict("unpriced", None)),
        (cached(None, HOUR_MS), Verdict("unpriced", entry(None))),
    ],
)
def test_a_good_price_is_never_overwritten_by_none(known: CachedPrice | None, expected: Verdict) -> None:
    """However old it is: its age is shown with it."""
    assert judged(seen(None), known) == expected


@pytest.mark.parametrize("price", [4.26, 0.169, 1e300, 5e-324])
def test_a_jump_is_held_back(price: float) -> None:
    """A change of more than five times up or down is not believed when first seen."""
    assert judged(seen(price), cached(0.85)) == Verdict("held", None, jumped=True, why="seen once")


@pytest.mark.parametrize("price", [4.25, 0.17, 1.7])
def test_five_times_is_not_a_jump_yet(price: float) -> None:
    """The bound itself is allowed."""
    assert judged(seen(price), cached(0.85)).kind == "priced"


def test_a_jump_seen_twice_is_believed() -> None:
    """The second sighting need not be the same to the digit; the newer one is written."""
    assert judged(seen(9.1), cached(0.85), held=seen(9.0)) == Verdict("priced", entry(9.1), jumped=True)


@pytest.mark.parametrize(
    ("liquidity", "why"),
    [
        (9_999.9, "its pools hold 9,999.90 USD, less than 10,000.00"),
        (500.0, "its pools hold 500.00 USD, less than 10,000.00"),
        (None, "the source does not report what its pools hold"),
    ],
)
def test_a_jump_of_a_small_pool_is_never_believed(liquidity: float | None, why: str) -> None:
    """However often it is seen; and the price that is kept is thin from then on."""
    known = cached(0.85)
    verdict = judged(replace(seen(9.1), liquidity_usd=liquidity), known, held=seen(9.0))
    again = judged(replace(seen(9.1), liquidity_usd=liquidity), verdict.entry, held=seen(9.0))

    assert verdict == Verdict("held", replace(known, liquidity_usd=liquidity), jumped=True, why=why)
    assert again == Verdict("held", None, jumped=True, why=why)


def test_without_a_floor_the_second_sighting_is_enough() -> None:
    """As before there was one."""
    options: dict[str, Any] = {"now": NOW, "rate_limit": LIMIT, "jump_factor": 5.0, "floors": PoolFloors(0, 0)}
    price = replace(seen(9.1), liquidity_usd=None)

    assert judge(price, cached(0.85), held_back(seen(9.0)), **options).kind == "priced"


@pytest.mark.parametrize(
    ("liquidity", "volume", "written"),
    [(10_000.0, 500.0, False), (9_999.0, 700.0, True), (20_000.0, 499.0, True), (20_000.0, None, False)],
)
def test_a_token_that_becomes_thin_is_written_at_once(liquidity: float, volume: float | None, written: bool) -> None:
    """Other changes of its pools wait for the next hour, like an unchanged price."""
    verdict = judged(replace(seen(0.85), liquidity_usd=liquidity, volume_usd=volume), cached(0.85))

    assert (verdict.kind, verdict.entry is not None) == ("priced", written)


def test_another_jump_is_held_back_again() -> None:
    """Two outliers in different directions do not confirm each other."""
    assert judged(seen(0.01), cached(0.85), held=seen(9.0)).kind == "held"


def test_other_decimals_are_a_jump() -> None:
    """They change the value of an amount tenfold, whatever the price is."""
    assert judged(seen(0.85, 8), cached(0.85)).kind == "held"
    assert judged(seen(0.85, 8), cached(0.85), held=seen(0.85, 8)).entry == entry(0.85, 8)
    assert judged(seen(0.85), cached(0.85, decimals=None)).kind == "priced"
    assert judged(seen(4.26), cached(0.85, decimals=None)).kind == "held"
    assert judged(seen(4.26, None), cached(0.85)).kind == "held"


@pytest.mark.slow
@given(st.lists(PRICES, max_size=12), st.floats(min_value=1.1, max_value=100))
def test_whatever_the_source_sends_a_price_stays_and_moves_only_when_confirmed(
    prices: list[float | None], factor: float
) -> None:
    """No sequence loses a price, and none moves it beyond the factor by one sighting."""
    known: CachedPrice | None = None
    held: TokenPrice | None = None
    before: float | None = None
    for number, price_usd in enumerate(prices):
        price = seen(price_usd)
        at = NOW + number
        verdict = judge(price, known, held_back(held), now=at, rate_limit=LIMIT, jump_factor=factor, floors=FLOORS)
        if verdict.entry is not None:
            was = None if known is None else known.price_usd
            if was is not None:
                assert verdict.entry.price_usd is not None
                low, high = sorted((was, verdict.entry.price_usd))
                if high > low * factor:
                    assert before is not None  # the sighting before it was beyond the factor too
                    assert max(was, before) > min(was, before) * factor
            known = verdict.entry
        held = price if verdict.kind == "held" else None
        before = price_usd
