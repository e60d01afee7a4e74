"""Decodes external bytes into values: bounded JSON, and readers that validate every field. Pure.

A reader takes a JSON object and a field's name, and returns the value or raises `MalformedBody`, which names the
field. Nothing is coerced, defaulted or guessed. Every reader looks a field up with `get`, so that a test can observe
which fields are read.
"""

import json
import re
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

from holdfast.types import JSON
from tocsin.errors import MalformedBody

T = TypeVar("T")

JsonObject: TypeAlias = dict[str, Any]  # external: every reader validates what it finds

# Three bytes of JSON can become a hundred bytes of objects; counting separators first limits that.
STRUCTURE_MAX = 200_000
TEXT_MAX = 512  # a cursor may hold a whole asset id
WHOLE_MAX = 10**9  # for a count, a height or an index: 158 years at a block every five seconds

_AMOUNT = re.compile(r"-?[0-9]{1,39}")  # 2^128 - 1, the chain's largest integer, has 39 digits


def decode(body: bytes) -> JSON:
    """Parse JSON of bounded size."""
    if value_count(body) > STRUCTURE_MAX:
        raise MalformedBody(f"more than {STRUCTURE_MAX} JSON values")
    try:
        value: JSON = json.loads(body.decode())
    except RecursionError:
        raise MalformedBody("JSON nested too deeply") from None
    except ValueError as error:  # the base of UnicodeDecodeError and JSONDecodeError
        raise MalformedBody(f"not JSON: {error}") from None
    return value


def value_count(body: bytes) -> int:
    """How many values JSON may hold at most, found without parsing it."""
    return body.count(b",") + body.count(b"[") + body.count(b"{")


def printable(text: str, length_max: int) -> str:
    """External text made safe for a log line: control characters become `·`."""
    return "".join(c if c.isprintable() else "·" for c in text[:length_max])


def as_record(value: JSON, name: str) -> JsonObject:
    if not isinstance(value, dict):
        raise _wrong(name, "an object", value)
    return value


def record(row: JsonObject, key: str) -> JsonObject:
    return as_record(row.get(key), key)


def optional_record(row: JsonObject, key: str) -> JsonObject | None:
    value = row.get(key)
    return None if value is None else as_record(value, key)


def each(row: JsonObject, key: str, parse: Callable[[JsonObject], T]) -> tuple[T, ...]:
    """Parse every element of a list of objects; an error names the element."""
    values = row.get(key)
    if not isinstance(values, list):
        raise _wrong(key, "a list", values)
    parsed = []
    for index, value in enumerate(values):
        try:
            parsed.append(parse(as_record(value, "element")))
        except MalformedBody as error:
            raise MalformedBody(f"{key}[{index}]: {error}") from None
    return tuple(parsed)


def text(row: JsonObject, key: str) -> str:
    """Printable ASCII without spaces: a name, an id, a hash or a cursor."""
    value = row.get(key)
    if (
        type(value) is not str
        or not 0 < len(value) <= TEXT_MAX
        or not value.isascii()
        or not value.isprintable()
        or " " in value
    ):
        raise _wrong(key, f"1 to {TEXT_MAX} printable characters", value)
    return value


def optional_text(row: JsonObject, key: str) -> str | None:
    """The same as `text`, but null, empty and missing become None."""
    value = row.get(key)
    return None if value is None or value == "" else text(row, key)


def flag(row: JsonObject, key: str) -> bool:
    value = row.get(key)
    if type(value) is not bool:
        raise _wrong(key, "true or false", value)
    return value


def whole(row: JsonObject, key: str, low: int = 0, high: int = WHOLE_MAX) -> int:
    """A count, height or index, or a time with its own bounds."""
    value = row.get(key)
    if type(value) is not int or not low <= value <= high:
        raise _wrong(key, f"a whole number from {low} to {high}", value)
    return value


def optional_whole(row: JsonObject, key: str) -> int | None:
    return None if row.get(key) is None else whole(row, key)


def signed_amount(row: JsonObject, key: str) -> int:
    """An exact amount, written as text."""
    value = row.get(key)
    if type(value) is not str or _AMOUNT.fullmatch(value) is None:
        raise _wrong(key, "an amount in decimal digits", value)
    return int(value)


def amount(row: JsonObject, key: str) -> int:
    value = signed_amount(row, key)
    if value < 0:
        raise _wrong(key, "an amount of 0 or more", value)
    return value


def _wrong(key: str, expected: str, value: object) -> MalformedBody:
    shown = "nothing" if value is None else printable(repr(value), 60) if _is_small(value) else "more"
    return MalformedBody(f"{key}: expected {expected}, found {shown} ({type(value).__name__})")


def _is_small(value: object) -> bool:
    """Whether its repr is short: that of a hostile number or container may be megabytes long."""
    if isinstance(value, bool | float):
        return True
    return (isinstance(value, str) and len(value) <= 1000) or (isinstance(value, int) and abs(value) < 10**30)
