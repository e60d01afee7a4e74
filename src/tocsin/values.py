"""Values as storage and RPC carry them: JSON, checked strictly, copied by being written as text.

Text, integers of any size, finite floats, bool, None, lists and dicts with text keys. Anything else
is refused by name instead of being bent: a tuple would come back as a list, an integer key as text,
NaN not at all. The same rule holds on both platforms, so a class cannot come to lean on one of them.
"""

import json
from collections.abc import Callable

from tocsin.bindings import JSON
from tocsin.errors import ValueRefused

DEPTH_MAX = 200  # lists and dicts inside one another; also what stops a value that contains itself
_DIGITS = 4000  # CPython converts at most 4,300 digits at once; longer integers go in pieces
_PIECE = 10**_DIGITS

_compact = json.JSONEncoder(separators=(",", ":"), allow_nan=False, check_circular=False).encode


def encode(value: JSON, where: str) -> str:
    """The value as JSON text. `where` names it in the refusal: "the value of 'cursor'"."""
    huge = _check(value, lambda: where, 0)
    return _encode_huge(value) if huge else _compact(value)


def decode(text: str) -> JSON:
    try:
        return json.loads(text)
    except ValueError:
        return json.loads(text, parse_int=_parse_int)


def _check(value: JSON, where: Callable[[], str], depth: int) -> bool:
    """Raise on what is not JSON; True when an integer is too long for the standard encoder."""
    kind = type(value)
    if kind is str or kind is bool or value is None:
        return False
    if kind is int:
        return not -_PIECE < value < _PIECE
    if kind is float:
        if value - value != 0:
            raise ValueRefused(f"{where()} is {value!r}: only finite floats are stored; use None or text")
        return False
    if depth >= DEPTH_MAX and kind in {list, dict}:
        raise ValueRefused(f"{where()} is nested deeper than {DEPTH_MAX} levels, or contains itself")
    if kind is list:
        flags = [_check(v, lambda i=i: f"{where()}[{i}]", depth + 1) for i, v in enumerate(value)]  # type: ignore[misc]
        return any(flags)
    if kind is dict:
        huge = False
        for key, item in value.items():
            if type(key) is not str:
                raise ValueRefused(
                    f"{where()} has the key {key!r} of type {type(key).__name__}: keys are text"
                )
            huge |= _check(item, lambda key=key: f"{where()}[{key!r}]", depth + 1)  # type: ignore[misc]
        return huge
    raise ValueRefused(
        f"{where()} is of type {kind.__name__}: storage and RPC carry text, integers, finite floats, "
        "bool, None, lists and dicts (a tuple must be made a list, a dataclass a dict, bytes text)"
    )


def _encode_huge(value: JSON) -> str:
    if type(value) is list:
        return f"[{','.join(map(_encode_huge, value))}]"
    if type(value) is dict:
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
