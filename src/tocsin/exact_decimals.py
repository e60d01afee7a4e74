"""Decimal numbers without rounding, and their canonical text. Pure.

Prices and sums of a result are decimal text, so that two computers compute the same result from the same text.
"""

import re
from decimal import ROUND_HALF_EVEN, Context, Decimal, DivisionByZero, Inexact, InvalidOperation, Overflow
from fractions import Fraction

from tocsin.errors import UsageError

# Sums of products of the largest amount (40 digits) and the longest price fit; rounding raises an error.
EXACT = Context(prec=250, traps=[Inexact, InvalidOperation, DivisionByZero, Overflow])
RATIO_DIGITS = 12  # a quotient is rounded once, to this many significant digits

_ROUNDING = Context(prec=RATIO_DIGITS, rounding=ROUND_HALF_EVEN)
TEXT_MAX = 120  # the longest number to read, in characters
_SPELLING = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]*[1-9])?")


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
    places = (
        value.denominator.bit_length()
    )  # enough if they end: then the denominator has only the factors 2 and 5
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
