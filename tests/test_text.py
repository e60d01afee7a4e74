"""Durations, times, exact numbers and visible text: what is read, what is refused, what is shown."""

import csv
import io
import time
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import UsageError
from tocsin.text import (
    EXACT,
    check_duration,
    decimal_of_float,
    decimal_text,
    exact_text,
    long_duration,
    parse_duration,
    parse_instant_ms,
    ratio,
    read_decimal,
    short_duration,
    shown_ago,
    shown_instant,
    shown_until,
    usd_value,
    without_formulas,
)

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


@pytest.mark.parametrize(
    ("text", "expected"), [("250ms", 250), ("90s", 90_000), ("5m", 300_000), ("2h", 7_200_000), ("1d", 86_400_000)]
)
def test_durations(text: str, expected: int) -> None:
    """A number and a unit, in milliseconds."""
    assert parse_duration(text) == expected


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("=1+1", "'=1+1"),
        ("+1", "'+1"),
        ("-2+3", "'-2+3"),
        ("@SUM(1)", "'@SUM(1)"),
        (" =1+1", "' =1+1"),
        ("\n=1+1", "\n'=1+1"),
        ("\t=1+1", "\t'=1+1"),
        ("\r=1+1", "\r'=1+1"),
        ("\u200b=1+1", "'\u200b=1+1"),
        ("\u202e\ufe0f=1+1", "'\u202e\ufe0f=1+1"),
        ("\uff1d1+1", "'\uff1d1+1"),
        ("\ufe661+1", "'\ufe661+1"),
        ("x;=1+1", "x;'=1+1"),
        ("x; \u200b=1+1;@y", "x;' \u200b=1+1;'@y"),
        ('"=1+1', "'\"=1+1"),
    ],
)
def test_a_formula_gets_an_apostrophe(text: str, cell: str) -> None:
    """At the first visible character of the cell, and of each cell that a spreadsheet could cut out of it."""
    assert without_formulas(text) == cell


@pytest.mark.parametrize("text", ["", " ", "\u200b", "Ada", "a=1", "a-b; c", "1-2", "'=1+1", "漢"])
def test_other_texts_are_unchanged(text: str) -> None:
    """Also those with an operator in the middle, and those without anything visible."""
    assert without_formulas(text) == text


@given(st.text(alphabet="=+-@\uff1d;, \t\r\n\"'x\u200b"))
def test_no_cell_begins_with_a_formula_in_either_locale(text: str) -> None:
    """However a spreadsheet separates the cells of the line, by commas or by semicolons."""
    out = io.StringIO()
    csv.writer(out).writerow([1, without_formulas(text), "SP1"])
    for delimiter in ",;\t":
        for line in csv.reader(io.StringIO(out.getvalue(), newline=""), delimiter=delimiter):
            assert not [cell for cell in line if cell.lstrip(' \t\r\n\u200b"')[:1] in tuple("=+-@\uff1d")]


NOW = 1_778_700_600_000


@pytest.mark.parametrize(("text", "ms"), [("90s", 90_000), ("15m", 900_000), ("2h", 7_200_000), ("1d", 86_400_000)])
def test_durations_of_commands(text: str, ms: int) -> None:
    """A number and a unit; a command passes the text on unchanged."""
    assert parse_duration(text) == ms
    assert check_duration(text) == text


@pytest.mark.parametrize("text", ["", "2", "h", "0h", "-2h", "2H", "1.5h", "2h30"])
def test_a_text_that_is_not_a_duration_is_refused_with_examples(text: str) -> None:
    """The sentence shows how to write one."""
    with pytest.raises(UsageError, match=r"is not a duration: .* such as 90s, 15m, 2h or 1d"):
        check_duration(text)


def test_instants() -> None:
    """ISO with a zone, a date, or unix milliseconds."""
    assert parse_instant_ms("2026-05-13T19:30:00Z") == NOW
    assert parse_instant_ms("2026-05-13T21:30+02:00") == NOW
    assert parse_instant_ms(str(NOW)) == NOW
    with pytest.raises(UsageError, match="unix milliseconds"):
        parse_instant_ms("tomorrow")
    with pytest.raises(UsageError, match="unix milliseconds"):
        parse_instant_ms("9999999999999999")


@pytest.mark.parametrize(
    ("ms", "text"),
    [(0, "0ms"), (210, "210ms"), (48_000, "48s"), (61_000, "1m 1s"), (3_600_000, "1h"), (90_061_000, "1d 1h")],
)
def test_durations_are_shown_in_two_units(ms: int, text: str) -> None:
    """Only as much as can be read at a glance."""
    assert short_duration(ms) == text


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (1_000, "1 second"),
        (90_000, "90 seconds"),
        (840_000, "14 minutes"),
        (5_400_000, "90 minutes"),
        (3_600_000, "1 hour"),
        (7 * 86_400_000, "7 days"),
        (1_500, "1.5 seconds"),
    ],
)
def test_durations_in_sentences_use_the_largest_exact_unit(ms: int, text: str) -> None:
    """In words, with the plural where it belongs."""
    assert long_duration(ms) == text


def test_moments_are_shown_relative_to_now() -> None:
    """Past, present, future and never."""
    assert shown_ago(NOW - 61_000, NOW) == "1m 1s ago"
    assert shown_ago(None, NOW) == "never"
    assert shown_until(NOW + 5_000, NOW) == "in 5s"
    assert shown_until(NOW, NOW) == "now"
    assert shown_until(None, NOW) == "-"
    assert shown_instant(NOW).startswith("2026-05-1")
    assert shown_instant(None) == "-"
    assert shown_instant(10**18) == shown_instant(-1) == "unknown"


@pytest.mark.parametrize(
    ("zone", "shown"), [("UTC", "2026-05-13 19:30:00 UTC"), ("Asia/Kolkata", "2026-05-14 01:00:00 IST")]
)
def test_a_time_is_shown_in_the_local_zone_with_its_name(
    zone: str, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that an operator can compare it with a watch."""
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        assert shown_instant(NOW) == shown
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.slow
@given(st.integers(0, 10**12))
def test_every_duration_can_be_shown(ms: int) -> None:
    """The text is never empty."""
    assert short_duration(ms)
    assert long_duration(ms)
