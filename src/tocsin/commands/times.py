"""Times as people write and read them. Pure: now is passed in."""

from datetime import UTC, datetime

from tocsin.errors import UsageError
from tocsin.settings import duration

UNITS_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_duration_ms(text: str) -> int:
    """`90s`, `15m`, `2h`, `1d`: as in the settings."""
    try:
        return duration(text)
    except ValueError as error:
        raise UsageError(f"{text!r} {error}, such as 90s, 15m, 2h or 1d.") from error


def parse_instant_ms(text: str) -> int:
    """An ISO time, in the local zone unless it names one, or unix milliseconds."""
    if text.isdecimal() and len(text) <= 15:
        return int(text)
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError, OSError) as error:
        raise UsageError(
            f"{text!r} is no time: write 2026-05-13T21:30, 2026-05-13T19:30Z, or unix milliseconds."
        ) from error


def shown_duration(ms: float) -> str:
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


def shown_ago(at_ms: int | None, now: int) -> str:
    return "never" if at_ms is None else f"{shown_duration(max(0, now - at_ms))} ago"


def shown_until(at_ms: int | None, now: int) -> str:
    if at_ms is None:
        return "-"
    return f"in {shown_duration(at_ms - now)}" if at_ms > now else "now"


def shown_instant(at_ms: int | None) -> str:
    if at_ms is None:
        return "-"
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
