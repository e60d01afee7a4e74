"""The rules that are the same on both platforms: for the entries and the alarm of an object, and for KV.

The limits are Cloudflare's.
"""

import math
from collections.abc import Sequence
from datetime import datetime, timedelta

from holdfast.errors import UsageError, ValueRefused
from holdfast.values import JSON, encode

ENTRY_MAX = 2 * 1024 * 1024  # bytes of key and value together
ALARM_MAX_MS = 6_942_585_600_000  # the end of the year 2189

# KV
KEY_BYTES_MAX = 512
VALUE_BYTES_MAX = 25 * 1024 * 1024
TTL_MIN_S = 60
TTL_MAX_S = 10**10  # 317 years; a larger number is probably not in seconds
GET_MANY_MAX = 100
LIST_MAX = 1000


def checked_key(key: str) -> str:
    if type(key) is not str:
        raise ValueRefused(f"the key {key!r} is of type {type(key).__name__}: keys are text")
    if not key.isascii():
        try:
            key.encode()
        except UnicodeEncodeError:
            raise ValueRefused(f"the key {key!r} is not valid Unicode text") from None
    return key


def entry_text(key: str, value: JSON) -> str:
    text = encode(value, f"the value of {key!r}")
    if len(key.encode()) + len(text) > ENTRY_MAX:  # the text is ASCII
        raise ValueRefused(
            f"the value of {key!r} takes {len(text):,} bytes as JSON; key and value together may take {ENTRY_MAX:,}"
        )
    return text


def instant(value: float | datetime | timedelta, now: int) -> int:
    """The time of an alarm in unix milliseconds."""
    if isinstance(value, timedelta):
        value = now + value // timedelta(milliseconds=1)
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise ValueRefused("set_alarm() takes an aware datetime: give it a time zone")
        value = value.timestamp() * 1000
    if type(value) is not int and type(value) is not float:
        kind = type(value).__name__
        raise ValueRefused(f"set_alarm() takes unix milliseconds, an aware datetime or a timedelta, not {kind}")
    if type(value) is float and not math.isfinite(value):
        raise ValueRefused(f"set_alarm() cannot be called with {value}: it is not a time")
    if value <= 0:
        raise ValueRefused("set_alarm() cannot be called with an alarm time <= 0")
    if value >= ALARM_MAX_MS:
        raise ValueRefused("set_alarm() cannot be called with a time after the year 2189")
    return int(value)


def check_range(start: str | None, start_after: str | None, limit: int | None) -> None:
    if start is not None and start_after is not None:
        raise ValueRefused("list() takes start or start_after, not both")
    if limit is not None and (type(limit) is not int or limit <= 0):
        raise ValueRefused(f"list() takes a limit of 1 or more, not {limit!r}; omit it for all entries")


def check_keys(keys: Sequence[str]) -> None:
    for key in keys:
        check_key(key)
    if len(keys) > GET_MANY_MAX:
        raise UsageError(f"KV.get_many takes {GET_MANY_MAX} keys at most, not {len(keys)}: split the call")


def check_entry(key: str, value: object, ttl: object) -> None:
    check_key(key)
    if not isinstance(value, str):
        raise ValueRefused(f"KV.put {key!r}: the value is of type {type(value).__name__}; KV holds text")
    if (size := utf8_size(value, f"the value of {key!r}")) > VALUE_BYTES_MAX:
        raise ValueRefused(f"KV.put {key!r}: the value has {size} bytes; at most {VALUE_BYTES_MAX} are allowed")
    if ttl is None:
        return
    if not isinstance(ttl, int) or isinstance(ttl, bool) or not TTL_MIN_S <= ttl <= TTL_MAX_S:
        raise UsageError(f"KV.put {key!r}: expiration_ttl is {ttl!r}; give whole seconds, {TTL_MIN_S} to {TTL_MAX_S}")


def check_page(prefix: str, limit: int) -> None:
    if not 1 <= limit <= LIST_MAX:
        raise UsageError(f"KV.list: limit is {limit}; give 1 to {LIST_MAX}")
    utf8_size(prefix, "the prefix")


def check_key(key: object) -> None:
    if not isinstance(key, str) or key in {"", ".", ".."}:
        raise UsageError(f"KV: {key!r} cannot be a key; use any other text")
    if (size := utf8_size(key, "the key")) > KEY_BYTES_MAX:
        raise UsageError(f"KV: the key {key[:40]!r}… has {size} bytes; at most {KEY_BYTES_MAX} are allowed")


def utf8_size(text: str, what: str) -> int:
    try:
        return len(text) if text.isascii() else len(text.encode())
    except UnicodeEncodeError as error:
        raise ValueRefused(f"KV: {what} is not valid Unicode: a lone surrogate at position {error.start}") from error
