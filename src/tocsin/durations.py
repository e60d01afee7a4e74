"""Durations as people write and read them. Pure."""

import re
from datetime import UTC, datetime

UNITS_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}

DURATION_PATTERN = r"^\s*([0-9]{1,12})\s*(ms|s|m|h|d)\s*$"  # also used in JSON Schema

_DURATION = re.compile(DURATION_PATTERN)
_NAMES = {"s": "second", "m": "minute", "h": "hour", "d": "day"}


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
