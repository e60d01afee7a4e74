"""Reads JSON that arrives in pieces, without holding all of it: one value at a time is taken or passed over.

Only what is taken is decoded, by the standard decoder. Of what is passed over only brackets and the ends of texts are
looked at, and nothing is kept. So the memory is that of one piece and of the largest value that is taken.
"""

import json
import re
from collections.abc import AsyncIterator
from typing import NoReturn

from tocsin.bindings import JSON
from tocsin.errors import MalformedBody

NAME_MAX = 1000  # bytes, of an object's member

_BLANKS = re.compile(rb"[ \t\r\n]*+")
_INSIDE = re.compile(rb'(?:[^"{}\[\]]++|"[^"\\]*+")*+')  # up to a bracket, over whole texts without escapes
_TEXT_STOP = re.compile(rb'["\\]')
_SCALAR = re.compile(rb'[^ \t\r\n,:"{}\[\]]*+')
_QUOTE = ord('"')
_OPENING, _CLOSING, _STARTS = b"{[", b"}]", b'"{['


class JsonStream:
    """A place in JSON of any length. Raises `MalformedBody` where it is not JSON."""

    def __init__(self, pieces: AsyncIterator[bytes]) -> None:
        self._pieces = pieces
        self._buffer = bytearray()
        self._at = 0

    async def kind(self) -> str:
        """The first character of what comes next, such as `{`; empty at the end."""
        while True:
            self._at = _after(_BLANKS, self._buffer, self._at)
            if self._at < len(self._buffer):
                return chr(self._buffer[self._at])
            if not await self._more():
                return ""

    async def members(self) -> AsyncIterator[str]:
        """The names of an object's members. The caller takes each value, passes over it or walks through it."""
        async for _ in self._elements("}"):
            raw = await self.take(NAME_MAX)
            name = None if raw is None else decoded(raw)
            if not isinstance(name, str) or await self.kind() != ":":
                raise MalformedBody("not JSON: a member of an object needs a name")
            self._at += 1
            yield name

    async def items(self) -> AsyncIterator[int]:
        """The numbers of a list's elements, from 0. The caller does with each as with a member's value."""
        async for number in self._elements("]"):
            yield number

    async def take(self, size_max: int) -> bytes | None:
        """The next value, not decoded; None if it has more bytes, which are passed over."""
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
        """Pass over the next value."""
        await self.take(0)

    async def finish(self) -> None:
        """Nothing may follow."""
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
        """What is behind is not needed any more."""
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
    """Go on to the end of a value, or of what is there: where, how deep, within a text, and whether it is the end."""
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
    """Where a text ends, or where to go on when more of it is there; and whether it goes on."""
    while True:
        stop = _TEXT_STOP.search(buffer, position)
        if stop is None:
            return len(buffer), True
        position = stop.end()
        if buffer[position - 1] == _QUOTE:
            return position, False
        if position == len(buffer):  # what the backslash escapes is still to come
            return position - 1, True
        position += 1


def _after(pattern: re.Pattern[bytes], buffer: bytearray, position: int) -> int:
    """Where a pattern that always matches ends."""
    match = pattern.match(buffer, position)
    assert match is not None
    return match.end()


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
