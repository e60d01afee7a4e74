"""Values in storage and RPC: strict JSON, copied by writing them as text.

Allowed are text, integers of any size, finite floats, bool, None, lists, and dicts with text keys. Anything
else is refused with its type and place, instead of being changed silently: a tuple would come back as a list,
an integer key as text, NaN not at all. Both platforms have the same rule, so a class cannot depend on one of
them.
"""

import json
from collections.abc import Iterable
from typing import Any

from holdfast.errors import ValueRefused
from holdfast.sql import SqlRow
from holdfast.types import JSON

DEPTH_MAX = 200  # levels of lists and dicts; this also ends a value that contains itself
_DIGITS = 4000  # CPython converts at most 4,300 digits at once; longer integers are split
_PIECE = 10**_DIGITS

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
    try:
        huge = _check(value, 0)
    except _Refused as refused:
        raise ValueRefused(f"{where}{refused.path} {refused.reason}") from None
    return _encode_huge(value) if huge else _compact(value)


def decode(text: str) -> Any:  # noqa: ANN401 - the caller knows what it encoded
    try:
        return json.loads(text)
    except ValueError:
        return json.loads(text, parse_int=_parse_int)


class _Refused(Exception):
    """Collects the path of the refused part as it leaves the value."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        self.path = ""


def _are_plain(items: Iterable[Any], depth: int) -> bool:
    """Whether the standard encoder can encode these values. If not, `_check` examines them."""
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


def _check(value: Any, depth: int) -> bool:  # noqa: ANN401 - compared by its kind, which mypy does not follow
    """Raise on a value that is not JSON. Returns True if an integer is too long for the standard encoder."""
    kind = type(value)
    if kind is str or kind is bool or value is None:
        return False
    if kind is int:
        return not -_PIECE < value < _PIECE
    if kind is float and value - value == 0:
        return False
    if kind is list:
        return _check_items(enumerate(value), depth)
    if kind in _DICTS:
        for key in value:
            if type(key) is not str:
                raise _Refused(f"has the key {key!r} of type {type(key).__name__}: keys are text")
        return _check_items(value.items(), depth)
    if kind is float:
        raise _Refused(f"is {value!r}: only finite floats are stored; use None or text")
    raise _Refused(
        f"is of type {kind.__name__}: storage and RPC carry text, integers, finite floats, bool, None, "
        "lists and dicts (convert a tuple to a list, a dataclass to a dict, bytes to text)"
    )


def _check_items(items: Iterable[tuple[object, Any]], depth: int) -> bool:
    if depth >= DEPTH_MAX:
        raise _Refused(f"is nested deeper than {DEPTH_MAX} levels, or contains itself")
    huge = False
    for step, item in items:
        try:
            huge |= _check(item, depth + 1)
        except _Refused as refused:
            refused.path = f"[{step!r}]{refused.path}"
            raise
    return huge


def _encode_huge(value: object) -> str:
    if type(value) is list:
        return f"[{','.join(map(_encode_huge, value))}]"
    if isinstance(value, dict):
        return f"{{{','.join(f'{_compact(k)}:{_encode_huge(v)}' for k, v in value.items())}}}"
    if type(value) is int and not -_PIECE < value < _PIECE:
        return ("-" if value < 0 else "") + _digits(abs(value))
    return _compact(value)


def _digits(value: int) -> str:
    pieces: list[str] = []
    while value >= _PIECE:
        value, piece = divmod(value, _PIECE)
        pieces.append(str(piece).zfill(_DIGITS))
    return str(value) + "".join(reversed(pieces))


def _parse_int(text: str) -> int:
    digits = text.lstrip("-")
    value = 0
    for start in range(0, len(digits), _DIGITS):
        piece = digits[start : start + _DIGITS]
        value = value * 10 ** len(piece) + int(piece)
    return -value if text[0] == "-" else value
