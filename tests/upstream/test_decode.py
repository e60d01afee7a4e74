"""Values from outside are taken as they are, within their bounds, or refused with the field's name."""

from collections.abc import Callable
from typing import Any

import pytest

from holdfast.types import JSON
from tocsin.errors import MalformedBody
from tocsin.upstream.decode import (
    amount,
    decode,
    each,
    flag,
    optional_record,
    optional_text,
    optional_whole,
    printable,
    record,
    signed_amount,
    text,
    whole,
)

Reader = Callable[[dict[str, Any], str], object]


def test_a_body_has_at_most_two_hundred_thousand_values() -> None:
    """Commas, brackets and braces count alike."""
    assert decode(b"[" + b"1," * 199_998 + b"{}]") == [*[1] * 199_998, {}]
    for body in (b"[" + b"1," * 199_999 + b"{}]", b"," * 200_001, b"{" * 200_001, b"[" * 200_001):
        with pytest.raises(MalformedBody, match="more than 200000 JSON values"):
            decode(body)


def test_json_nested_too_deeply_is_refused() -> None:
    with pytest.raises(MalformedBody, match="JSON nested too deeply"):
        decode(b"[" * 100_000)


def test_text_for_a_log_line_has_no_control_characters_and_is_cut() -> None:
    assert printable("a\nb\x00c", 4) == "a·b·"


@pytest.mark.parametrize(
    ("read", "value"),
    [
        (text, "a"),
        (text, "a" * 512),
        (whole, 0),
        (whole, 1_000_000_000),
        (flag, False),
        (amount, "0"),
        (amount, "9" * 39),
        (signed_amount, "-" + "9" * 39),
        (record, {}),
        (optional_record, {"a": 1}),
        (optional_record, None),
        (optional_text, None),
        (optional_text, "b"),
        (optional_whole, None),
        (optional_whole, 0),
    ],
)
def test_a_value_within_its_bounds_is_taken_as_it_is(read: Reader, value: JSON) -> None:
    expected = int(value) if read in {amount, signed_amount} and isinstance(value, str) else value
    assert read({"field": value}, "field") == expected


@pytest.mark.parametrize(
    ("read", "value", "message"),
    [
        (text, "", "field: expected 1 to 512 printable characters, found '' (str)"),
        (text, "a" * 513, f"field: expected 1 to 512 printable characters, found '{'a' * 59} (str)"),
        (text, "a" * 1_001, "field: expected 1 to 512 printable characters, found more (str)"),
        (text, "a" * 1_000, f"field: expected 1 to 512 printable characters, found '{'a' * 59} (str)"),
        (text, "a b", "field: expected 1 to 512 printable characters, found 'a b' (str)"),
        (text, "ä", "field: expected 1 to 512 printable characters, found 'ä' (str)"),
        (text, "a\n", r"field: expected 1 to 512 printable characters, found 'a\n' (str)"),
        (text, 5, "field: expected 1 to 512 printable characters, found 5 (int)"),
        (optional_text, 5, "field: expected 1 to 512 printable characters, found 5 (int)"),
        (whole, -1, "field: expected a whole number from 0 to 1000000000, found -1 (int)"),
        (whole, 10**9 + 1, "field: expected a whole number from 0 to 1000000000, found 1000000001 (int)"),
        (whole, 10**30, "field: expected a whole number from 0 to 1000000000, found more (int)"),
        (whole, 10**30 - 1, f"field: expected a whole number from 0 to 1000000000, found {'9' * 30} (int)"),
        (whole, True, "field: expected a whole number from 0 to 1000000000, found True (bool)"),
        (whole, 1.0, "field: expected a whole number from 0 to 1000000000, found 1.0 (float)"),
        (whole, None, "field: expected a whole number from 0 to 1000000000, found nothing (NoneType)"),
        (optional_whole, [1], "field: expected a whole number from 0 to 1000000000, found more (list)"),
        (flag, 1, "field: expected true or false, found 1 (int)"),
        (amount, "-1", "field: expected an amount of 0 or more, found -1 (int)"),
        (signed_amount, "1" * 40, f"field: expected an amount in decimal digits, found '{'1' * 40}' (str)"),
        (signed_amount, "", "field: expected an amount in decimal digits, found '' (str)"),
        (signed_amount, 1, "field: expected an amount in decimal digits, found 1 (int)"),
        (record, [], "field: expected an object, found more (list)"),
        (optional_record, 0, "field: expected an object, found 0 (int)"),
    ],
)
def test_other_values_are_refused_with_the_expectation(read: Reader, value: JSON, message: str) -> None:
    with pytest.raises(MalformedBody) as refused:
        read({"field": value}, "field")
    assert str(refused.value) == message


def test_a_list_is_read_whole_or_its_bad_element_is_named() -> None:
    def parse(row: dict[str, Any]) -> int:
        return whole(row, "n", 3, 4)

    assert each({"rows": [{"n": 3}, {"n": 4}]}, "rows", parse) == (3, 4)
    for rows, message in (
        ([{"n": 3}, {"n": 5}], "rows[1]: n: expected a whole number from 3 to 4, found 5 (int)"),
        ([{"n": 2}], "rows[0]: n: expected a whole number from 3 to 4, found 2 (int)"),
        ([7], "rows[0]: element: expected an object, found 7 (int)"),
        (None, "rows: expected a list, found nothing (NoneType)"),
    ):
        with pytest.raises(MalformedBody) as refused:
            each({"rows": rows}, "rows", parse)
        assert str(refused.value) == message
