"""What the limit headers of both upstreams mean, and `Retry-After` in both its forms."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from tocsin.budget.limiter import LimitReading, WindowReading

HIRO_ANONYMOUS_MINUTE_MAX = 50  # calls a minute that Hiro grants to a client without a key
TENERO_ANONYMOUS_TYPE = "web-ui-ip"  # Tenero's name for the same

NUMBER_MAX = 10**9  # a limit beyond this is noise
RETRY_AFTER_MAX_MS = 31 * 86_400_000

# Headers worth a place in a failure's log line.
LOGGED = re.compile(r"(?:x-)?ratelimit-[a-z-]{1,40}|retry-after")

_SECONDS = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})?")
_DIGITS = re.compile(r"[0-9]{1,10}")


def read_hiro(headers: Mapping[str, str]) -> LimitReading:
    """Hiro's `stacks` quota. Its `ratelimit-remaining` is the second's window, told here anyway."""
    minute = _hiro_window(headers, "minute")
    return LimitReading(
        second=_hiro_window(headers, "second"),
        minute=minute,
        month=_hiro_window(headers, "month"),
        anonymous=None if minute.limit is None else minute.limit <= HIRO_ANONYMOUS_MINUTE_MAX,
    )


def read_tenero(headers: Mapping[str, str]) -> LimitReading:
    """Tenero tells what remains of the minute and of the month, and on whose account; never a limit."""
    account = headers.get("x-ratelimit-type")
    return LimitReading(
        minute=WindowReading(remaining=_number(headers, "x-ratelimit-minute-remaining")),
        month=WindowReading(remaining=_number(headers, "x-ratelimit-month-remaining")),
        anonymous=None if account is None else account.strip().lower() == TENERO_ANONYMOUS_TYPE,
    )


def read_retry_after(headers: Mapping[str, str], now: int) -> int | None:
    """How long to wait, in ms: `Retry-After` as seconds or as a date, None when it says nothing.

    A date is measured from the answer's own `Date` where there is one, so that our clock may be wrong.
    """
    value = headers.get("retry-after", "").strip()
    if _SECONDS.fullmatch(value):
        return min(RETRY_AFTER_MAX_MS, int(float(value) * 1000))
    until = _http_date_ms(value)
    if until is None:
        return None
    asked_at = _http_date_ms(headers.get("date", ""))
    return max(0, min(RETRY_AFTER_MAX_MS, until - (now if asked_at is None else asked_at)))


def _hiro_window(headers: Mapping[str, str], name: str) -> WindowReading:
    limit = _number(headers, f"x-ratelimit-limit-stacks-{name}")
    return WindowReading(
        limit=None if limit == 0 else limit,
        remaining=_number(headers, f"x-ratelimit-remaining-stacks-{name}"),
    )


def _number(headers: Mapping[str, str], name: str) -> int | None:
    value = headers.get(name, "").strip()
    if _DIGITS.fullmatch(value) is None:
        return None
    number = int(value)
    return number if number <= NUMBER_MAX else None


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
