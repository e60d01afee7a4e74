"""Reads rate-limit headers: numbers that may be nonsense, and `Retry-After` in both its forms. Pure.

The module of each upstream (`hiro.py`, `tenero.py`) interprets its own headers.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

NUMBER_MAX = 10**9  # a larger limit is noise
RETRY_AFTER_MAX_MS = 31 * 86_400_000

# Headers that the log line of a failure includes.
LOGGED = re.compile(r"(?:x-)?ratelimit-[a-z-]{1,40}|retry-after")

_SECONDS = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})?")
_DIGITS = re.compile(r"[0-9]{1,10}")


def header_number(headers: Mapping[str, str], name: str) -> int | None:
    """A count in a header; None if it is missing or not a plausible number."""
    value = headers.get(name, "").strip()
    if _DIGITS.fullmatch(value) is None:
        return None
    number = int(value)
    return number if number <= NUMBER_MAX else None


def read_retry_after(headers: Mapping[str, str], now: int) -> int | None:
    """How long to wait, in ms: `Retry-After` as seconds or as a date; None if there is none.

    A date is relative to the answer's own `Date` if there is one, so our clock may be wrong.
    """
    value = headers.get("retry-after", "").strip()
    if _SECONDS.fullmatch(value):
        return min(RETRY_AFTER_MAX_MS, int(float(value) * 1000))
    until = _http_date_ms(value)
    if until is None:
        return None
    sent_at = _http_date_ms(headers.get("date", ""))
    return max(0, min(RETRY_AFTER_MAX_MS, until - (now if sent_at is None else sent_at)))


def _http_date_ms(value: str) -> int | None:
    if not 0 < len(value) <= 64:
        return None
    try:
        date: datetime = parsedate_to_datetime(value)
        if date.tzinfo is None:
            date = date.replace(tzinfo=UTC)
        return int(date.timestamp() * 1000)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
