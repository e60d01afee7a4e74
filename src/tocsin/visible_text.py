"""The visible part of a text, by the same rules as `static/js/agent-name.js`. Pure."""

import re
import unicodedata

# Unicode's Default_Ignorable_Code_Point: these are drawn as nothing, whatever their category.
_IGNORED = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
_JOINERS = "\u200d\ufe0f"  # hidden, but they join emoji
_BLANK = "\u2800"  # an empty Braille pattern
_FORMULA = frozenset("=+-@")  # what a spreadsheet takes a cell that begins so for
_CELL_ENDS = re.compile(r"([;\t\r\n\v\f\x85\u2028\u2029])")


def visible(text: str | None) -> str:
    """The text without invisible characters; empty if there is nothing visible."""
    spaced = re.sub(r"\s+", " ", text or "")
    seen = "".join(char for char in spaced if char in _JOINERS or not _is_hidden(char)).strip()
    return seen if any(_is_drawn(char) for char in seen) else ""


def without_formulas(text: str) -> str:
    """The text with an apostrophe before each formula, for a cell of a spreadsheet.

    A spreadsheet looks at the first visible character, in any width. Where a comma separates decimals, it also begins
    a new cell after a semicolon, a tab or a line break in a name, and quotes do not protect it.
    """
    return "".join(f"'{cell}" if _is_formula(cell) else cell for cell in _CELL_ENDS.split(text))


def _is_formula(cell: str) -> bool:
    first = next((char for char in cell if char != '"' and _is_drawn(char) and not _is_hidden(char)), "")
    return unicodedata.normalize("NFKC", first) in _FORMULA


def _is_hidden(char: str) -> bool:
    return unicodedata.category(char) in {"Cc", "Cf"} or _IGNORED.match(char) is not None


def _is_drawn(char: str) -> bool:
    return char not in _JOINERS + _BLANK and not unicodedata.category(char).startswith("Z")
