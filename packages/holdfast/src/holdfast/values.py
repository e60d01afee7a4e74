"""Values in storage and RPC: strict JSON, copied by writing them as text.

Allowed are text, integers of up to 4,300 digits (as many as CPython converts), finite floats, bool, None, lists, and
dicts with text keys. Anything else is refused with its type and place, instead of being changed silently: a tuple would
come back as a list, an integer key as text, NaN not at all. Both platforms have the same rule, so a class cannot depend
on one of them.
"""

import json
from collections.abc import Iterable
from typing import Any, TypeAlias

from holdfast.errors import ValueRefused
from holdfast.sql import SqlRow

JSON: TypeAlias = bool | int | float | str | list["JSON"] | dict[str, "JSON"] | None

DEPTH_MAX = 200  # levels of lists and dicts; this also ends a value that contains itself

_TEXT = frozenset({str})
_DICTS: frozenset[type] = frozenset((dict, SqlRow))
IMMUTABLE = frozenset({str, int, bool, type(None)})  # always valid, and need no copy
_SCALARS = IMMUTABLE | {float}

_compact = json.JSONEncoder(separators=(",", ":"), allow_nan=False, check_circular=False).encode


def encode(value: JSON, where: str) -> str:
    """The value as JSON text. `where` names it in an error, such as "the value of 'cursor'"."""
    if _are_plain((value,), 0):
        try:
            return _compact(value)
        except ValueError:  # a float that is not finite, or an integer that is too long
            pass
    raise ValueRefused(f"{where}{_fault(value, 0)}")


def decode(text: str) -> Any:  # noqa: ANN401 - the caller knows what it encoded
    return json.loads(text)


def _are_plain(items: Iterable[Any], depth: int) -> bool:
    """Whether these values are JSON, except for numbers that the standard encoder refuses."""
    if depth > DEPTH_MAX:
        return False
    if _SCALARS.issuperset(map(type, items)):
        return True
    for item in items:
        kind = type(item)
        if kind in _SCALARS:
            continue
        if kind in _DICTS:
            if not _TEXT.issuperset(map(type, item)) or not _are_plain(item.values(), depth + 1):
                return False
        elif kind is not list or not _are_plain(item, depth + 1):
            return False
    return True


def _fault(value: Any, depth: int) -> str | None:  # noqa: ANN401 - compared by its kind, which mypy does not follow
    """The place of what is not JSON in the value, and why it is not."""
    kind = type(value)
    if kind is not list and kind not in _DICTS:
        return _fault_of_scalar(value)
    if depth == DEPTH_MAX:
        return f" is nested deeper than {DEPTH_MAX} levels, or contains itself"
    for step, item in enumerate(value) if kind is list else value.items():
        if kind is not list and type(step) is not str:
            return f" has the key {step!r} of type {type(step).__name__}: keys are text"
        fault = _fault(item, depth + 1)
        if fault is not None:
            return f"[{step!r}]{fault}"
    return None


def _fault_of_scalar(value: Any) -> str | None:  # noqa: ANN401 - as above
    if type(value) not in _SCALARS:
        return (
            f" is of type {type(value).__name__}: storage and RPC carry text, integers, finite floats, bool, None, "
            "lists and dicts (convert a tuple to a list, a dataclass to a dict, bytes to text)"
        )
    try:
        _compact(value)
    except ValueError:
        if type(value) is int:
            return " is an integer of more than 4,300 digits: use text"
        return f" is {value!r}: only finite floats are stored; use None or text"
    return None
