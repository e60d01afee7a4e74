"""The curve: where it breaks, and what its axis says."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.web.drawing import CurvePoint, curve_svg, segments, short_usd, ticks

HOUR = 3_600


def points(*hours: int) -> list[CurvePoint]:
    return [CurvePoint(hour * HOUR, float(hour)) for hour in hours]


def test_a_gap_is_not_bridged() -> None:
    """Five hours are missing: two parts; an hour that stands alone is a dot."""
    parts = segments(points(0, 1, 2, 8, 9, 20))

    assert [[point.at_s // HOUR for point in part] for part in parts] == [[0, 1, 2], [8, 9], [20]]
    svg = curve_svg(points(0, 1, 2, 8, 9, 20), "P&L")
    assert (svg.count("<path"), svg.count("<circle")) == (2, 1)
    assert 'aria-label="P&amp;L"' in svg


@pytest.mark.parametrize(("hours", "parts"), [((0, 20), 2), ((0, 10, 20), 3), ((0, 1, 20), 2), ((0, 2), 1)])
def test_a_gap_is_a_gap_however_few_points_there_are(hours: tuple[int, ...], parts: int) -> None:
    """There is a point each hour; one that is missing may be a matter of minutes."""
    assert len(segments(points(*hours))) == parts


@pytest.mark.parametrize(
    ("low", "high", "shown"),
    [(0.0, 100.0, [0, 50, 100]), (-3.0, 7.0, [-5, 0, 5, 10]), (0.0, 0.0, [0, 0.5]), (12.0, 12.0, [10, 15])],
)
def test_the_axis_has_round_numbers(low: float, high: float, shown: list[float]) -> None:
    """Whatever the values are, also when there is only one."""
    assert ticks(low, high) == shown


@given(st.lists(st.floats(-1e12, 1e12), min_size=1, max_size=40))
def test_any_curve_stays_within_its_picture(values: list[float]) -> None:
    """And the axis covers it."""
    svg = curve_svg([CurvePoint(number * HOUR, value) for number, value in enumerate(values)], "any")

    drawn = [float(y) for _, y in re.findall(r"[ML]([0-9.-]+) ([0-9.-]+)", svg)]
    assert all(0 <= y <= 240 for y in drawn)
    marks = ticks(min(values), max(values))
    low, high = min(values), max(values)
    unseen = max(0.01, 1e-8 * (high - low), 1e-8 * abs(high))  # less than a pixel
    assert marks[0] <= low + unseen
    assert marks[-1] >= high - unseen
    assert 2 <= len(marks) <= 8


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "$0"),
        (-12.5, "-$12.50"),
        (999, "$999"),
        (1_250, "$1,250"),
        (12_500, "$12.5k"),
        (-1_234_567, "-$1.23M"),
        (3e12, "$3T"),
        (99.999, "$100"),
        (9_999.4, "$9,999"),
        (9_999.5, "$10k"),
        (999_499, "$999k"),
        (999_500, "$1M"),
        (-999_999, "-$1M"),
        (999_600_000, "$1B"),
        (999_999_999_999, "$1T"),
        (1_234e12, "$1,234T"),
    ],
)
def test_money_is_short(value: float, shown: str) -> None:
    """It stands at an axis."""
    assert short_usd(value) == shown
