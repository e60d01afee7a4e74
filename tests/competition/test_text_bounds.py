"""Cursors at their limits."""

from typing import Any

import pytest

from tocsin.swaps import trades as page_token


@pytest.mark.parametrize("value", [[], ["pnl:desc", 50], {"t": 1, "x": "0x"}, "ü?>~", None, 7])
def test_a_cursor_comes_back_as_it_went(value: Any) -> None:
    """In letters that an address may have."""
    text = page_token.write(value)

    assert page_token.read(text) == value
    assert "=" not in text
    assert text.replace("-", "").replace("_", "").isalnum()


@pytest.mark.parametrize("text", ["", "!", "W10=x", "W1!0", "\u00fc", "W1 0", "x" * 5_000, "W" * 401])
def test_anything_else_is_no_cursor(text: str) -> None:
    """It is not an error: callers may send anything."""
    assert page_token.read(text) is None


def test_a_long_cursor_is_read_up_to_its_bound() -> None:
    """Four hundred characters."""
    fits, longer = page_token.write("x" * 298), page_token.write("x" * 299)

    assert (len(fits), page_token.read(fits)) == (400, "x" * 298)
    assert (len(longer) > 400, page_token.read(longer)) == (True, None)
