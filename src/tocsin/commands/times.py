"""Times as people write and read them. Pure: the current time is an argument."""

from datetime import datetime

from tocsin.durations import parse_duration, short_duration
from tocsin.errors import UsageError

INSTANT_MAX_MS = 253_402_300_799_999  # the end of the year 9999


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
