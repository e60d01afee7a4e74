"""Values come back the same, or are refused with their place and type."""

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.errors import ValueRefused
from holdfast.values import decode, encode

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def same(a: Any, b: Any) -> bool:
    """Equal, of equal types, all the way down: True is not 1, 2.0 is not 2, -0.0 is not 0.0."""
    if type(a) is not type(b):
        return False
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    return bool(a == b) and (not isinstance(a, float) or math.copysign(1, a) == math.copysign(1, b))


@pytest.mark.slow
@given(JSON_VALUES)
@example([{"amount": 10**4300 - 1}, 1 - 10**4300, 0])
@example("\ud800 a lone surrogate, \0 and \U0001f514")
def test_a_value_comes_back_as_it_was(value: Any) -> None:
    """Encoding and decoding keep every value and every type."""
    assert same(decode(encode(value, "it")), value)


@dataclass
class Point:
    x: int = 1


class Word(StrEnum):
    YES = "yes"


@pytest.mark.parametrize(
    ("value", "type_name"),
    [
        ((1, 2), "tuple"),
        ({1}, "set"),
        (b"x", "bytes"),
        (Point(), "Point"),
        (Word.YES, "Word"),
        (datetime.now(UTC), "datetime"),
        (lambda: 1, "function"),
        (1j, "complex"),
    ],
)
def test_other_types_are_refused_with_the_place_and_the_type(value: Any, type_name: str) -> None:
    """The refusal has the path to the value and its type."""
    with pytest.raises(ValueRefused, match=rf"the value of 'k'\['a'\]\[1\] is of type {type_name}:"):
        encode({"a": [0, value]}, "the value of 'k'")


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (float("nan"), "is nan: only finite floats"),
        (float("inf"), "is inf: only finite floats"),
        (float("-inf"), "is -inf: only finite floats"),
        (-(10**4300), "is an integer of more than 4,300 digits: use text"),
    ],
    ids=["nan", "infinite", "minus-infinite", "long"],
)
def test_numbers_that_json_does_not_have_are_refused(value: float, reason: str) -> None:
    """NaN and the infinities have no JSON form, and CPython converts no longer integer."""
    with pytest.raises(ValueRefused, match=rf"it\[0\] {reason}"):
        encode([value, 1], "it")


def test_keys_must_be_text() -> None:
    """An integer key would come back as text, so it is refused."""
    with pytest.raises(ValueRefused, match="it has the key 1 of type int: keys are text"):
        encode({1: "a"}, "it")  # type: ignore[dict-item]  # what the test is about


def test_a_value_that_contains_itself_is_refused() -> None:
    """A cycle ends at the depth limit."""
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(ValueRefused, match="contains itself"):
        encode(loop, "it")
