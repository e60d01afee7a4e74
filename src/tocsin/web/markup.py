"""Numbers, times, names and pictures as the pages show them: the same text as `static/js` makes. Pure.

Every function returns HTML that is safe to insert: names and texts of others are escaped here.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from math import floor, log10

NONE = "\u2013"  # a dash
MINUS = "\u2212"
HUGE = 1e18  # a larger figure is a source's error; it must not break the layout
CENT = 0.005  # smaller is shown as zero, without a sign
EXPLORER = "https://explorer.hiro.so/txid/"
SECONDS_MAX = 253_402_300_799  # the end of the year 9999
WEEK_S = 7 * 86_400


def usd(value: float | None, short_from: float = 10_000_000) -> str:
    """`$1,250.00`, and from `short_from` on `$12.35M`."""
    if value is None:
        return NONE
    size = abs(value)
    return f"{MINUS if value < 0 else ''}{_size(size, short_from)}"


def _size(size: float, short_from: float) -> str:
    if size >= HUGE:
        return ">$999,999T"
    if size >= 1e15:
        return f"${size / 1e12:,.0f}T"
    if size < short_from:
        return f"${size:,.2f}"
    return f"${_compact(size, 4)}"


def _compact(size: float, digits: int) -> str:
    unit, letter = next((each for each in ((1e12, "T"), (1e9, "B"), (1e6, "M")) if size >= each[0]), (1e3, "K"))
    return f"{_digits(size / unit, digits)}{letter}"


def _digits(size: float, digits: int) -> str:
    """A number with so many significant digits, without an exponent."""
    places = max(0, digits - 1 - floor(log10(size))) if size else 0
    text = f"{size:,.{places}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def signed_usd(value: float | None, short_from: float = 10_000_000) -> str:
    """With its sign: color alone must not mark a gain."""
    return NONE if value is None else _signed(value, _size(abs(value), short_from))


def signed_percent(value: float | None) -> str:
    """`+20.24%`."""
    if value is None:
        return NONE
    size = abs(value)
    if size >= 1e15:
        return ">999T%"
    if size >= 100_000:
        return _signed(value, f"{_compact(size, 3)}%")
    places = 0 if size >= 1000 else 1 if size >= 100 else 2
    return _signed(value, f"{size:,.{places}f}%")


def _signed(value: float, text: str) -> str:
    if abs(value) < CENT or text.startswith(">"):
        return text
    return f"+{text}" if value > 0 else f"{MINUS}{text}"


def sign_of(value: float | None) -> str:
    """The attribute that colors a gain or a loss."""
    if value is None or abs(value) < CENT:
        return ""
    return ' data-sign="gain"' if value > 0 else ' data-sign="loss"'


def exact_amount(units: int, decimals: int) -> str:
    digits = str(abs(units)).rjust(decimals + 1, "0")
    whole, fraction = digits[: len(digits) - decimals], digits[len(digits) - decimals :].rstrip("0")
    return f"{MINUS if units < 0 else ''}{int(whole):,}{f'.{fraction}' if fraction else ''}"


def short_amount(units: int, decimals: int) -> str:
    """The digits worth reading: eight places below one, two from a thousand on; cut toward zero."""
    whole = abs(units) // 10**decimals
    places = min(decimals, 2 if whole >= 1000 else 4 if whole >= 1 else 8)
    cut = 10 ** (decimals - places)
    return exact_amount((abs(units) // cut) * (-1 if units < 0 else 1), places)


def time_of(seconds: int) -> str:
    """A time as an element: `Nov 18, 08:50 UTC`."""
    moment = datetime.fromtimestamp(min(seconds, SECONDS_MAX), UTC)
    return f'<time datetime="{moment.isoformat()}">{day_of(seconds)}, {moment:%H:%M} UTC</time>'


def day_of(seconds: int) -> str:
    return datetime.fromtimestamp(min(seconds, SECONDS_MAX), UTC).strftime("%b %d").replace(" 0", " ")


def soon(seconds: int, now_ms: int) -> str:
    """A time in the next days with its countdown: `Friday 00:00 UTC, in <time …>1 d 15 h</time>`."""
    moment = datetime.fromtimestamp(min(seconds, SECONDS_MAX), UTC)
    is_soon = seconds * 1000 - now_ms < WEEK_S * 1000
    shown = f"{moment:%A}" if is_soon else f"{day_of(seconds)},"
    left = span_words(seconds * 1000 - now_ms)
    countdown = f'<time datetime="{moment.isoformat()}" data-left="{seconds * 1000}">{left}</time>'
    return f"{shown} {moment:%H:%M} UTC, in {countdown}"


def ago(ms: int) -> str:
    """`4 min ago`, in the largest unit."""
    minutes = round(ms / 60_000)
    if ms < 45_000:
        return "just now"
    hours = minutes // 60
    return f"{minutes} min ago" if minutes < 60 else f"{hours} h ago" if hours < 48 else f"{hours // 24} days ago"


def span_words(ms: int) -> str:
    """A length of time in two units: `1 d 15 h`, `15 h 20 min`, `4 min`."""
    minutes = max(0, ms) // 60_000
    if minutes >= 1_440:
        return f"{minutes // 1_440} d {minutes // 60 % 24} h"
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min"


def hash_of(text: str) -> int:
    """The number that an address is drawn by: FNV-1a, mixed."""
    number = 2166136261
    for character in text:
        number = (number ^ ord(character)) * 16777619 & 0xFFFFFFFF
    return (number ^ (number >> 15)) * 2246822507 & 0xFFFFFFFF


def identicon_cells(address: str) -> list[tuple[int, int]]:
    """The cells of its picture, in a field of five by five."""
    number = hash_of(address)
    cells = []
    for index in range(15):
        if number >> index & 1:
            x, y = divmod(index, 5)
            cells += [(column, y) for column in sorted({x, 4 - x})]
    return cells


def hue_of(address: str) -> int:
    return (hash_of(address) >> 16) % 360


def identicon(address: str) -> str:
    """A small picture, always the same for an address. Decoration: its name is next to it."""
    path = "".join(f"M{x + 1} {y + 1}h1v1h-1z" for x, y in identicon_cells(address))
    return (
        f'<svg class="identicon" width="36" height="36" viewBox="0 0 7 7" fill="oklch(65% .13 {hue_of(address)})"'
        f' aria-hidden="true"><rect width="7" height="7" rx="2" opacity=".16"/><path d="{path}"/></svg>'
    )


def section(title: str, body: str, note: str = "") -> str:
    small = f" <small>{escape(note)}</small>" if note else ""
    return f'<section class="card"><h2>{escape(title)}{small}</h2>{body}</section>'


def table(columns: Sequence[str], rows: Iterable[str], numbers: Sequence[str] = (), wide: Sequence[str] = ()) -> str:
    """A table of rows that are HTML already. Numbers are right-aligned; `wide` columns are numbers for wide screens."""

    def kind(name: str) -> str:
        return ' class="num wide"' if name in wide else ' class="num"' if name in numbers else ""

    head = "".join(f'<th scope="col"{kind(name)}>{escape(name)}</th>' for name in columns)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def tiles(values: Iterable[tuple[str, str, str]]) -> str:
    """Figures: a name, a text, and an attribute of the value."""
    shown = "".join(f"<div><dt>{escape(name)}</dt><dd{sign}>{escape(text)}</dd></div>" for name, text, sign in values)
    return f'<dl class="tiles">{shown}</dl>'


def transaction(txid: str) -> str:
    return f'<a href="{EXPLORER}{escape(txid)}?chain=mainnet" rel="noopener">{escape(txid[:10])}…</a>'
