"""Decimal numbers without rounding, and their one spelling. Pure.

Prices and sums of a result are decimal text, so that two computers that read the same text compute the same result.
"""

import re
from decimal import ROUND_HALF_EVEN, Context, Decimal, DivisionByZero, Inexact, InvalidOperation, Overflow
from fractions import Fraction

from tocsin.errors import UsageError

# Sums of products of the largest amount (40 digits) and the longest price fit; what would be rounded is an error.
EXACT = Context(prec=250, traps=[Inexact, InvalidOperation, DivisionByZero, Overflow])
RATIO_DIGITS = 12  # a quotient is rounded once, to this many significant digits

_ROUNDING = Context(prec=RATIO_DIGITS, rounding=ROUND_HALF_EVEN)
TEXT_MAX = 120  # characters of a number that is read
_SPELLING = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]*[1-9])?")


def decimal_text(value: Decimal) -> str:
    """The one spelling: no exponent, no zeros that say nothing, no plus."""
    text = format(value, "f")
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return "0" if text in {"-0", ""} else text


def decimal_of_float(value: float) -> Decimal:
    """The shortest decimal number that names this float: what the JSON that it came from said."""
    return Decimal(repr(value))


def read_decimal(text: str) -> Decimal:
    """Reads the one spelling of a decimal number, and nothing else."""
    if len(text) > TEXT_MAX or not _SPELLING.fullmatch(text) or text == "-0":
        raise UsageError(f"A decimal number looks like 0.85, not {text[:40]!r}.")
    return Decimal(text)


def exact_text(value: Fraction) -> str:
    """The one spelling of a fraction whose decimal digits end; others raise `UsageError`."""
    places = (
        value.denominator.bit_length()
    )  # enough, if they end at all: the denominator has the factors 2 and 5 only
    parts, rest = divmod(10**places, value.denominator)
    if rest:
        raise UsageError(f"The digits of {str(value)[:60]} do not end.")
    digits = str(abs(value.numerator) * parts).zfill(places + 1)
    whole, fraction = digits[:-places], digits[-places:].rstrip("0")
    return ("-" if value < 0 else "") + (f"{whole}.{fraction}" if fraction else whole)


def usd_value(amount: int, price_usd: Decimal, decimals: int) -> Decimal:
    """What an amount in a token's smallest unit is worth, exactly; raises `UsageError` if that has too many digits."""
    try:
        return EXACT.multiply(Decimal(amount), EXACT.scaleb(price_usd, -decimals))
    except Inexact:
        raise UsageError(f"An amount times its price has more than {EXACT.prec} digits.") from None


def ratio(part: Decimal, whole: Decimal) -> Decimal | None:
    """`part / whole`, rounded once; None when there is nothing to divide by."""
    return _ROUNDING.divide(part, whole) if whole else None
