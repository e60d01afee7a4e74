"""Texts that others chose, for a spreadsheet."""

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.text import without_formulas


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
