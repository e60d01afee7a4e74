"""Reads JSON that arrives in pieces without holding all of it: the caller takes or skips one value at a time.

Only taken values are decoded, by the standard decoder. In skipped values only brackets and the ends of strings are
checked, and nothing is kept. So memory use is one piece plus the largest value taken.
"""

import json
import re
from collections.abc import AsyncIterator
from typing import NoReturn

from tocsin.bindings import JSON
from tocsin.errors import MalformedBody

NAME_MAX = 1000  # bytes of a member's name

_BLANKS = re.compile(rb"[ \t\r\n]*+")
_INSIDE = re.compile(rb'(?:[^"{}\[\]]++|"[^"\\]*+")*+')  # up to a bracket, over whole strings without escapes
_TEXT_STOP = re.compile(rb'["\\]')
_SCALAR = re.compile(rb'[^ \t\r\n,:"{}\[\]]*+')
_QUOTE = ord('"')
_OPENING, _CLOSING, _STARTS = b"{[", b"}]", b'"{['


class JsonStream:
    """A position in JSON of any length. Raises `MalformedBody` where it is not JSON."""

    def __init__(self, pieces: AsyncIterator[bytes]) -> None:
        self._pieces = pieces
        self._buffer = bytearray()
        self._at = 0

    async def kind(self) -> str:
        """Return the first character of the next value, such as `{`; empty at the end."""
        while True:
            self._at = _after(_BLANKS, self._buffer, self._at)
            if self._at < len(self._buffer):
                return chr(self._buffer[self._at])
            if not await self._more():
                return ""

    async def members(self) -> AsyncIterator[str]:
        """Yield the names of an object's members. The caller takes, skips or walks through each value."""
        async for _ in self._elements("}"):
            raw = await self.take(NAME_MAX)
            name = None if raw is None else decoded(raw)
            if not isinstance(name, str) or await self.kind() != ":":
                raise MalformedBody("not JSON: a member of an object needs a name")
            self._at += 1
            yield name

    async def items(self) -> AsyncIterator[int]:
        """Yield the indexes of a list's elements, from 0. The caller treats each like a member's value."""
        async for number in self._elements("]"):
            yield number

    async def take(self, size_max: int) -> bytes | None:
        """Return the next value, not decoded; None if it is larger than `size_max`, and then skip it."""
        await self.kind()
        self._forget()
        position, depth, in_text, kept = 0, 0, False, True
        while True:
            position, depth, in_text, done = _scan(self._buffer, position, depth, in_text=in_text)
            if done:
                break
            if position > size_max:
                kept, self._at = False, position
                self._forget()
                position = 0
            if not await self._more():
                if depth or in_text or not self._buffer:
                    raise MalformedBody("not JSON: it ends too early")
                break  # a bare number or word
        if position == 0 and kept:
            raise MalformedBody("not JSON: a value is missing")
        value = bytes(self._buffer[:position]) if kept and position <= size_max else None
        self._at = position
        return value

    async def skip(self) -> None:
        """Skip the next value."""
        await self.take(0)

    async def finish(self) -> None:
        """Check that nothing follows."""
        if await self.kind():
            raise MalformedBody("not JSON: something follows the value")

    async def _elements(self, closing: str) -> AsyncIterator[int]:
        self._at += 1
        if await self.kind() == closing:
            self._at += 1
            return
        number = 0
        while True:
            if await self.kind() in {"", ",", ":", "]", "}"}:
                raise MalformedBody("not JSON: a value is missing")
            yield number
            separator = await self.kind()
            self._at += 1
            if separator == closing:
                return
            if separator != ",":
                raise MalformedBody(f"not JSON: expected , or {closing}")
            number += 1

    def _forget(self) -> None:
        """Drop the bytes before the current position."""
        del self._buffer[: self._at]
        self._at = 0

    async def _more(self) -> bool:
        if self._at == len(self._buffer):
            self._forget()
        async for piece in self._pieces:
            if piece:
                self._buffer += piece
                return True
        return False


def decoded(raw: bytes) -> JSON:
    try:
        value: JSON = json.loads(raw.decode("utf-8"), parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise MalformedBody(f"not JSON: {error}") from None
    return value


def _scan(buffer: bytearray, position: int, depth: int, *, in_text: bool) -> tuple[int, int, bool, bool]:
    """Scan to the end of a value or of the buffer.

    Returns the position, the depth, whether it is inside a string, and whether the value has ended.
    """
    size = len(buffer)
    while position < size:
        if in_text:
            position, in_text = _through_text(buffer, position)
            if in_text:
                break
        else:
            position = _after(_INSIDE if depth else _SCALAR, buffer, position)
            if position == size:
                break
            character = buffer[position]
            if not depth and character not in _STARTS:
                return position, 0, False, True  # the end of a number or word
            in_text = character == _QUOTE
            depth += (character in _OPENING) - (character in _CLOSING)
            position += 1
        if not depth and not in_text:
            return position, 0, False, True
    return position, depth, in_text, False


def _through_text(buffer: bytearray, position: int) -> tuple[int, bool]:
    """Return where a string ends, or where to continue once more has arrived, and whether it continues."""
    while True:
        stop = _TEXT_STOP.search(buffer, position)
        if stop is None:
            return len(buffer), True
        position = stop.end()
        if buffer[position - 1] == _QUOTE:
            return position, False
        if position == len(buffer):  # the escaped character has not arrived yet
            return position - 1, True
        position += 1


def _after(pattern: re.Pattern[bytes], buffer: bytearray, position: int) -> int:
    """Return where the match of a pattern that always matches ends."""
    match = pattern.match(buffer, position)
    assert match is not None
    return match.end()


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
