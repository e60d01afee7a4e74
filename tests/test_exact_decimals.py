"""Decimal numbers: one spelling, no rounding, and an error instead of a wrong digit."""

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import UsageError
from tocsin.text import EXACT, decimal_of_float, decimal_text, exact_text, ratio, read_decimal, usd_value

integers = st.integers(-(10**60), 10**60)


@given(integers, st.integers(0, 50))
def test_a_number_has_one_spelling(digits: int, places: int) -> None:
    """It is read as it was written, and it is the same number."""
    number = Fraction(digits, 10**places)
    text = exact_text(number)
    assert Fraction(text) == number
    assert decimal_text(read_decimal(text)) == text
    assert Fraction(read_decimal(text)) == number


@pytest.mark.parametrize(
    "text",
    [
        *("", "-", ".5", "5.", "1.50", "01", "-0", "+1", "0.0", " 1", "1\n", "1_000", "1,5", "1e3", "0x1"),
        *("NaN", "Infinity", "\u0661", "1E999999999999999999", "1" * 121),
    ],
)
def test_no_other_spelling_is_read(text: str) -> None:
    """Least of all one that would take the memory of the machine to write out."""
    with pytest.raises(UsageError, match=r"A decimal number looks like 0\.85"):
        read_decimal(text)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (Decimal("1E+3"), "1000"),
        (Decimal("-0.00"), "0"),
        (Decimal("7.10E-5"), "0.000071"),
        (decimal_of_float(0.1), "0.1"),
        (decimal_of_float(1e-18), "0.000000000000000001"),
        (decimal_of_float(1e22), "10000000000000000000000"),
    ],
)
def test_numbers_are_written_without_an_exponent(number: Decimal, text: str) -> None:
    assert decimal_text(number) == text


def test_digits_that_do_not_end_are_an_error() -> None:
    with pytest.raises(UsageError, match="The digits of 1/3 do not end"):
        exact_text(Fraction(1, 3))


@given(st.integers(0, 10**40 - 1), st.floats(1e-18, 1e12), st.integers(0, 38))
def test_a_value_is_exact(amount: int, price: float, decimals: int) -> None:
    exact = amount * Fraction(repr(price)) / 10**decimals
    assert Fraction(usd_value(amount, decimal_of_float(price), decimals)) == exact


@pytest.mark.parametrize("price", ["9" * 120, f"0.{'9' * 118}"])
def test_the_largest_values_can_be_added_a_million_times(price: str) -> None:
    """Amounts have at most 40 digits, numbers that are read 120 characters, tokens 38 decimals: it is enough by far."""
    largest = usd_value(10**40 - 1, read_decimal(price), 38)
    assert Fraction(largest) == (10**40 - 1) * Fraction(price) / 10**38
    total = EXACT.multiply(largest, Decimal(10**6 + 1))
    assert Fraction(total) == (10**6 + 1) * Fraction(largest)


def test_more_digits_than_there_is_room_for_are_an_error() -> None:
    with pytest.raises(UsageError, match="more than 250 digits"):
        usd_value(10**200 + 1, Decimal(10**60 + 1), 6)


@given(integers, st.integers(1, 10**60))
def test_a_quotient_is_rounded_once(part: int, whole: int) -> None:
    """To 12 digits, to the nearest."""
    rounded = ratio(Decimal(part), Decimal(whole))
    assert rounded is not None
    exact = Fraction(part, whole)
    unit = Fraction(10) ** (rounded.adjusted() - 11)
    assert abs(Fraction(rounded) - exact) <= unit / 2
    assert len(rounded.as_tuple().digits) <= 12


def test_nothing_is_divided_by_zero() -> None:
    assert ratio(Decimal(1), Decimal(0)) is None
    assert str(ratio(Decimal(1), Decimal(8))) == "0.125"
    assert str(ratio(Decimal(1_000_000_000_005), Decimal(10))) == "100000000000"  # half: to the even digit
    assert str(ratio(Decimal(1_000_000_000_015), Decimal(10))) == "100000000002"
