"""The pictures that links to the pages show elsewhere, as PNG: previews show no SVG.

The letters are copied from `glyphs.json`, which `tools/glyphs.py` renders from a font once. So no library is needed,
and pictures are drawn on Cloudflare, too.
"""

import asyncio
import base64
import itertools
import json
import struct
import zlib
from collections.abc import Sequence
from colorsys import hls_to_rgb
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache, lru_cache
from math import ceil
from pathlib import Path
from typing import Any, TypeAlias

from starlette.responses import Response

from tocsin.web.drawing import CurvePoint, segments
from tocsin.web.markup import MINUS, hue_of, identicon_cells
from tocsin.web.pages import AGED

Color: TypeAlias = tuple[int, int, int]
LEVELS = 16  # of coverage: a color of the palette is so many steps from the ground to the color itself
SMALL, MIDDLE, LARGE = 28, 52, 96  # the sizes of the letters, in pixels
INK, MUTED, ACCENT, GOOD, BAD = range(5)
COLORS = ((243, 239, 235), (170, 161, 154), (245, 176, 76), (95, 211, 139), (255, 138, 128))
GROUND = (19, 17, 16)
WIDTH, HEIGHT, MARGIN = 1200, 630, 64
LINES = 4  # agents in a picture of several
PICTURES_MAX = 100  # of at most 40 kB each
READS_PER_PICTURE = 10  # it costs as much


@dataclass(frozen=True, slots=True)
class CardLine:
    """An agent's line in a picture of several."""

    rank: int
    address: str
    name: str
    pnl: str


@dataclass(frozen=True, slots=True)
class Card:
    """What a picture shows: of one agent its P&L and its curve, of a round or the board the best agents."""

    title: str
    facts: str
    address: str | None = None
    pnl: str = ""
    note: str = ""  # beside the P&L
    curve: tuple[CurvePoint, ...] = ()
    lines: tuple[CardLine, ...] = ()


@cache
def _letters(size: int) -> dict[str, tuple[int, list[bytes]]]:
    """The width and the rows of each letter."""
    font: dict[str, Any] = json.loads(Path(__file__).with_name("glyphs.json").read_text())["sizes"][str(size)]
    pixels, at = zlib.decompress(base64.b64decode(font["pixels"])), 0
    letters = {}
    for letter, width in font["widths"].items():
        rows = range(at, at + width * font["height"], width)
        letters[letter] = width, [pixels[row : row + width] for row in rows]
        at += width * font["height"]
    return letters


def text_width(text: str, size: int) -> int:
    letters = _letters(size)
    return sum(letters.get(letter, letters.get("?", (0, [])))[0] for letter in text)


def fitting(text: str, size: int, width: int) -> str:
    """The text, or as much of it as fits, with dots."""
    if text_width(text, size) <= width:
        return text
    return fitting(f"{text.removesuffix('…')[:-1]}…", size, width)


class Picture:
    """A picture of a few colors; each pixel is an index into the palette."""

    def __init__(self, width: int, height: int, colors: Sequence[Color]) -> None:
        self.width = width
        self.height = height
        self._colors = colors
        self._rows = [bytearray(width) for _ in range(height)]

    def rectangle(self, left: int, top: int, width: int, height: int, color: int, level: int = LEVELS - 1) -> None:
        """Fill a rectangle. Parts outside the picture are left out."""
        first, last = max(0, left), min(self.width, left + width)
        line = bytes([color * LEVELS + level]) * max(0, last - first)
        for row in self._rows[max(0, top) : max(0, top + height)] if line else ():
            row[first:last] = line

    def text(self, left: int, top: int, text: str, size: int, color: int) -> None:
        """Write one line. A missing letter becomes a question mark."""
        letters = _letters(size)
        shades = bytes(color * LEVELS + level for level in range(LEVELS)).ljust(256, b"\0")
        for letter in text:
            width, rows = letters.get(letter, letters.get("?", (0, [])))
            if left + width <= self.width:
                for row, shown in zip(self._rows[top:], rows, strict=False):
                    row[left : left + width] = shown.translate(shades)
            left += width

    def line(self, points: Sequence[tuple[float, float]], thickness: float, color: int) -> None:
        """Draw a line from point to point, left to right, with smooth edges."""
        for (x0, y0), (x1, y1) in itertools.pairwise(points):
            slope = (y1 - y0) / max(1.0, x1 - x0)
            for x in range(round(x0), max(round(x1), round(x0) + 1)):
                low, high = sorted((y0 + slope * (x - x0), y0 + slope * (x + 1 - x0)))
                self._column(x, low - thickness / 2, high + thickness / 2, color)

    def _column(self, x: int, top: float, bottom: float, color: int) -> None:
        for y in range(max(0, int(top)), min(self.height, ceil(bottom))):
            covered = min(y + 1.0, bottom) - max(float(y), top)
            shade = color * LEVELS + round((LEVELS - 1) * max(0.0, covered))
            if 0 <= x < self.width and shade > self._rows[y][x]:
                self._rows[y][x] = shade

    def png(self) -> bytes:
        header = struct.pack(">IIBBBBB", self.width, self.height, 8, 3, 0, 0, 0)
        palette = bytes(
            (GROUND[part] * (LEVELS - 1 - level) + color[part] * level) // (LEVELS - 1)
            for color in self._colors
            for level in range(LEVELS)
            for part in range(3)
        )
        pixels = zlib.compress(b"".join(b"\0" + row for row in self._rows), 6)
        chunks = ((b"IHDR", header), (b"PLTE", palette), (b"IDAT", pixels), (b"IEND", b""))
        return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in chunks)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


@lru_cache(maxsize=PICTURES_MAX)
def drawn(card: Card) -> bytes:
    """The picture. One that did not change is not drawn again."""
    addresses = [card.address, *(line.address for line in card.lines)]
    owners = [address for address in addresses if address is not None]
    picture = Picture(WIDTH, HEIGHT, [*COLORS, *(_color_of(address) for address in owners)])
    picture.rectangle(0, 0, WIDTH, 10, ACCENT)
    picture.text(MARGIN, 48, "Tocsin", SMALL, ACCENT)
    picture.text(MARGIN + 110, 48, "AIBTC trading competition", SMALL, MUTED)
    left = MARGIN
    if card.address is not None:
        _identicon(picture, MARGIN, 120, 14, card.address, len(COLORS))
        left += 126
    picture.text(left, 112, fitting(card.title, MIDDLE, WIDTH - left - MARGIN), MIDDLE, INK)
    picture.text(left, 184, fitting(card.facts, SMALL, WIDTH - left - MARGIN), SMALL, MUTED)
    picture.text(MARGIN, 256, card.pnl, LARGE, _sign(card.pnl))
    picture.text(MARGIN + text_width(card.pnl, LARGE) + 32, 316, card.note, SMALL, MUTED)
    _draw_curve(picture, card.curve)
    for number, line in enumerate(card.lines[:LINES]):
        top = 262 + number * 84
        picture.text(MARGIN, top, str(line.rank), MIDDLE, ACCENT)
        _identicon(picture, MARGIN + 84, top + 4, 8, line.address, len(COLORS) + number + (card.address is not None))
        width = text_width(line.pnl, MIDDLE)
        picture.text(MARGIN + 164, top, fitting(line.name, MIDDLE, WIDTH - 2 * MARGIN - 200 - width), MIDDLE, INK)
        picture.text(WIDTH - MARGIN - width, top, line.pnl, MIDDLE, _sign(line.pnl))
    return picture.png()


def _sign(text: str) -> int:
    return GOOD if text.startswith("+") else BAD if text.startswith(MINUS) else INK


def _color_of(address: str) -> Color:
    red, green, blue = hls_to_rgb(hue_of(address) / 360, 0.65, 0.5)
    return int(red * 255), int(green * 255), int(blue * 255)


def _identicon(picture: Picture, left: int, top: int, size: int, address: str, color: int) -> None:
    picture.rectangle(left, top, 7 * size, 7 * size, color, level=3)
    for x, y in identicon_cells(address):
        picture.rectangle(left + (x + 1) * size, top + (y + 1) * size, size, size, color)


def _draw_curve(picture: Picture, curve: Sequence[CurvePoint]) -> None:
    if len(curve) < 2:
        return
    low, high = min(point.value for point in curve), max(point.value for point in curve)
    first, span_s, span = curve[0].at_s, (curve[-1].at_s - curve[0].at_s) or 1, (high - low) or 1.0
    for segment in segments(curve):
        points = [
            (MARGIN + (WIDTH - 2 * MARGIN) * (point.at_s - first) / span_s, 580 - 160 * (point.value - low) / span)
            for point in segment
        ]
        picture.line(points if len(points) > 1 else points * 2, 5, ACCENT)


class Pictures:
    """Sends pictures. Drawing blocks every request of the loop, so it lets others go first before the next one."""

    def __init__(self, *, in_one_loop: bool) -> None:
        self._drawing = asyncio.Lock() if in_one_loop else nullcontext()

    async def response(self, card: Card) -> Response:
        async with self._drawing:
            picture = drawn(card)
            await asyncio.sleep(0)
        return Response(picture, headers=AGED, media_type="image/png")
