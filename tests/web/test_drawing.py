"""Curves and bars as SVG."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.pages_driver import MINUS
from tocsin.web.drawing import CurvePoint, columns_svg, curve_svg, segments, ticks

HOUR = 3_600


def points(*hours: int) -> list[CurvePoint]:
    return [CurvePoint(hour * HOUR, float(hour)) for hour in hours]


def test_a_gap_is_not_bridged() -> None:
    """Five hours are missing: two parts; an hour that stands alone is a dot."""
    parts = segments(points(0, 1, 2, 8, 9, 20))

    assert [[point.at_s // HOUR for point in part] for part in parts] == [[0, 1, 2], [8, 9], [20]]
    svg = curve_svg(points(0, 1, 2, 8, 9, 20), "P&L")
    (path,) = re.findall('<path d="([^"]*)"', svg)
    assert (path.count("M"), path.count("h.01")) == (3, 1)
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

    drawn = [(float(x), float(y)) for x, y in re.findall(r"[ML]([0-9.-]+) ([0-9.-]+)", svg)]
    assert all(0 <= x <= 100 and 0 <= y <= 100 for x, y in drawn)
    marks = ticks(min(values), max(values))
    low, high = min(values), max(values)
    unseen = max(0.01, 1e-8 * (high - low), 1e-8 * abs(high))  # less than a pixel
    assert marks[0] <= low + unseen
    assert marks[-1] >= high - unseen
    assert 2 <= len(marks) <= 8


def test_the_axes_are_labeled_and_show_values_below_the_pointer() -> None:
    """Five times, round values with their sign, and what was known at each sixtieth of the time."""
    svg = curve_svg([CurvePoint(hour * HOUR, 100.0 * hour - 150) for hour in range(4)], "P&L")

    assert re.findall("<span>([^<]*)</span>", svg) == [
        "Jan 1, 00:00", "Jan 1, 00:45", "Jan 1, 01:30", "Jan 1, 02:15", "Jan 1, 03:00"
    ]  # fmt: skip
    assert re.findall("<text[^>]*>([^<]*)</text>", svg) == [
        f"{MINUS}$200", f"{MINUS}$100", "$0", "+$100", "+$200"
    ]  # fmt: skip
    assert svg.count("<title>") == 4
    assert f"<title>Jan 1, 01:00: {MINUS}$50.00</title>" in svg


def test_bars_have_their_words_and_nothing_is_a_thin_line() -> None:
    svg = columns_svg([("Jan 1: 0", 0), ("Jan 2: 8", 8), ("Jan 3: 2", 2)], "Trades & days")

    assert re.findall('height="([0-9]+)%"', svg) == ["2", "100", "25"]
    assert svg.count("class=nothing") == 1
    assert "<title>Jan 2: 8</title>" in svg
    assert 'aria-label="Trades &amp; days"' in svg
