"""Texts that people and programs read: durations, times, exact decimal numbers, names, what of a text is visible. Pure.

Prices and sums of a result are decimal text, so that two computers compute the same result from the same text. The
visible part of a text follows the same rules as `static/js/agent-name.js`.
"""

import re
import unicodedata
from datetime import UTC, datetime
from decimal import ROUND_HALF_EVEN, Context, Decimal, DivisionByZero, Inexact, InvalidOperation, Overflow
from fractions import Fraction

from holdfast.errors import UsageError

UNITS_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
DURATION_PATTERN = r"^\s*([0-9]{1,12})\s*(ms|s|m|h|d)\s*$"  # also used in JSON Schema
_DURATION = re.compile(DURATION_PATTERN)
_NAMES = {"s": "second", "m": "minute", "h": "hour", "d": "day"}
# Sums of products of the largest amount (40 digits) and the longest price fit; rounding raises an error.
EXACT = Context(prec=250, traps=[Inexact, InvalidOperation, DivisionByZero, Overflow])
RATIO_DIGITS = 12  # a quotient is rounded once, to this many significant digits
_ROUNDING = Context(prec=RATIO_DIGITS, rounding=ROUND_HALF_EVEN)
TEXT_MAX = 120  # the longest number to read, in characters
_SPELLING = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]*[1-9])?")
# Unicode's Default_Ignorable_Code_Point: these are drawn as nothing, whatever their category.
_IGNORED = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
_JOINERS = "\u200d\ufe0f"  # hidden, but they join emoji
_BLANK = "\u2800"  # an empty Braille pattern
_FORMULA = frozenset("=+-@")  # what a spreadsheet takes a cell that begins so for
_CELL_ENDS = re.compile(r"([;\t\r\n\v\f\x85\u2028\u2029])")
INSTANT_MAX_MS = 253_402_300_799_999  # the end of the year 9999


def camel_case(name: str) -> str:
    """`next_alarm_at` as the API spells it: `nextAlarmAt`."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def parse_duration(text: str) -> int:
    """The milliseconds of "90s", "5m", "2h", "1d"; raises ValueError with what is wrong."""
    match = _DURATION.fullmatch(text)
    if match is None or int(match[1]) == 0:
        raise ValueError("is not a duration: a number and ms, s, m, h or d")
    return int(match[1]) * {"ms": 1, **UNITS_MS}[match[2]]


def short_duration(ms: float) -> str:
    """The two largest units: `2h 5m`, `48s`, `210ms`."""
    if ms < 1_000:
        return f"{ms:.0f}ms"
    left = int(ms)
    parts: list[str] = []
    for unit, size in reversed(UNITS_MS.items()):
        count, left = divmod(left, size)
        if count or parts:
            parts.append(f"{count}{unit}")
    return " ".join(part for part in parts[:2] if not part.startswith("0"))


def long_duration(ms: int) -> str:
    """In words, in the largest unit that fits exactly: `5 minutes`, `90 seconds`, `1 hour`."""
    unit = next((unit for unit, size in reversed(UNITS_MS.items()) if ms % size == 0), "s")
    count = ms / UNITS_MS[unit]
    return f"{count:g} {_NAMES[unit]}{'' if count == 1 else 's'}"


def utc_time(at_ms: int) -> str:
    """An instant (unix ms) for people: `2026-05-13 17:40 UTC`, to the minute."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")


def utc_clock(at_ms: int, now: int) -> str:
    """As `utc_time`, without the date if it is less than half a day from now: `17:40 UTC`."""
    text = utc_time(at_ms)
    return text[11:] if abs(at_ms - now) < UNITS_MS["d"] // 2 else text


def decimal_text(value: Decimal) -> str:
    """The canonical text of a number: no exponent, no redundant zeros, no plus sign."""
    text = format(value, "f")
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return "0" if text in {"-0", ""} else text


def decimal_of_float(value: float) -> Decimal:
    """The shortest decimal number that converts to this float, as in the JSON that it came from."""
    return Decimal(repr(value))


def read_decimal(text: str) -> Decimal:
    """Read the canonical text of a decimal number, and no other."""
    if len(text) > TEXT_MAX or not _SPELLING.fullmatch(text) or text == "-0":
        raise UsageError(f"A decimal number looks like 0.85, not {text[:40]!r}.")
    return Decimal(text)


def exact_text(value: Fraction) -> str:
    """The canonical text of a fraction with finitely many decimal digits; others raise `UsageError`."""
    places = value.denominator.bit_length()  # enough if they end: then the denominator has only the factors 2 and 5
    parts, rest = divmod(10**places, value.denominator)
    if rest:
        raise UsageError(f"The digits of {str(value)[:60]} do not end.")
    digits = str(abs(value.numerator) * parts).zfill(places + 1)
    whole, fraction = digits[:-places], digits[-places:].rstrip("0")
    return ("-" if value < 0 else "") + (f"{whole}.{fraction}" if fraction else whole)


def usd_value(amount: int, price_usd: Decimal, decimals: int) -> Decimal:
    """The exact value of an amount in a token's smallest unit; raises `UsageError` if it has too many digits."""
    try:
        return EXACT.multiply(Decimal(amount), EXACT.scaleb(price_usd, -decimals))
    except Inexact:
        raise UsageError(f"An amount times its price has more than {EXACT.prec} digits.") from None


def ratio(part: Decimal, whole: Decimal) -> Decimal | None:
    """`part / whole`, rounded once; None if `whole` is 0."""
    return _ROUNDING.divide(part, whole) if whole else None


def visible(text: str | None) -> str:
    """The text without invisible characters; empty if there is nothing visible."""
    spaced = re.sub(r"\s+", " ", text or "")
    seen = "".join(char for char in spaced if char in _JOINERS or not _is_hidden(char)).strip()
    return seen if any(_is_drawn(char) for char in seen) else ""


def short_address(address: str) -> str:
    """An address that fits into a line."""
    return f"{address[:6]}…{address[-5:]}" if len(address) > 14 else address


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


def check_duration(text: str) -> str:
    """The text, if it is a duration in the format of the settings: `90s`, `15m`, `2h`, `1d`."""
    try:
        parse_duration(text)
    except ValueError as error:
        raise UsageError(f"{text!r} {error}, such as 90s, 15m, 2h or 1d.") from error
    return text


def parse_instant_ms(text: str) -> int:
    """An ISO time, in the local zone unless it names one, or unix milliseconds."""
    if text.isdecimal() and len(text) <= 15:
        return int(text)
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError, OSError) as error:
        raise UsageError(
            f"{text!r} is not a time: write 2026-05-13T21:30, 2026-05-13T19:30Z, or unix milliseconds."
        ) from error


def parse_past_ms(text: str, now: int) -> int:
    """A duration before now, such as `2d`, or a time that `parse_instant_ms` accepts."""
    try:
        return max(0, now - parse_duration(text))
    except ValueError:
        return max(0, parse_instant_ms(text))


def shown_ago(at_ms: int | None, now: int) -> str:
    return "never" if at_ms is None else f"{short_duration(max(0, now - at_ms))} ago"


def shown_until(at_ms: int | None, now: int) -> str:
    if at_ms is None:
        return "-"
    return f"in {short_duration(at_ms - now)}" if at_ms > now else "now"


def shown_instant(at_ms: int | None) -> str:
    """In the local zone; a time after the year 9999, which an upstream may have reported, is unknown."""
    if at_ms is None:
        return "-"
    if not 0 <= at_ms <= INSTANT_MAX_MS:
        return "unknown"
    return datetime.fromtimestamp(at_ms / 1000).astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")
