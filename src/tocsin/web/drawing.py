"""A curve as SVG with readable axes, and a picture of a few colours as PNG for link previews, which show no SVG. Pure.

The curve's colours come from the page's style sheet. A preview needs only rectangles, lines and text in a small
built-in font, so no library is needed, and it also runs on Cloudflare.
"""

import itertools
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from math import ceil, floor, log10
from typing import TypeAlias

from tocsin.web.markup import day_of, signed_usd

GRID_LINES = 4
HINTS = 60  # values that a browser shows below the pointer
TIMES = 4  # parts of the time axis
DAYS_S = 4 * 86_400  # from here on, days are enough on it
CENT = 0.01  # smaller differences are not drawn
GAP_S = 9_000  # each hour has a point, at any minute: two and a half hours without one are a gap
Colour: TypeAlias = tuple[int, int, int]
GLYPH_WIDTH, GLYPH_HEIGHT = 5, 7
ADVANCE = GLYPH_WIDTH + 1
# Each glyph is five columns of seven bits, the lowest bit at the top. From the space to the tilde.
_FONT = bytes.fromhex(
    """
    0000000000 00005f0000 0007000700 147f147f14 242a7f2a12 2313086462 3649552250 0005030000 001c224100
    0041221c00 14083e0814 08083e0808 0050300000 0808080808 0060600000 2010080402 3e5149453e 00427f4000
    4261514946 2141454b31 1814127f10 2745454539 3c4a494930 0171090503 3649494936 064949291e 0036360000
    0056360000 0814224100 1414141414 0041221408 0201510906 324979413e 7e1111117e 7f49494936 3e41414122
    7f4141221c 7f49494941 7f09090901 3e4149497a 7f0808087f 00417f4100 2040413f01 7f08142241 7f40404040
    7f020c027f 7f0408107f 3e4141413e 7f09090906 3e4151215e 7f09192946 4649494931 01017f0101 3f4040403f
    1f2040201f 3f4038403f 6314081463 0708700807 6151494543 007f414100 0204081020 0041417f00 0402010204
    4040404040 0001020400 2054545478 7f48444438 3844444420 384444487f 3854545418 087e090102 0c5252523e
    7f08040478 00447d4000 2040443d00 7f10284400 00417f4000 7c04180478 7c08040478 3844444438 7c14141408
    081414187c 7c08040408 4854545420 043f444020 3c4040207c 1c2040201c 3c4030403c 4428102844 0c5050503c
    4464544c44 0008364100 00007f0000 0041360800 0804080810
    """
)
_FIRST, _LAST, _UNKNOWN = ord(" "), ord("~"), ord("?")


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """A value at a time, in unix seconds."""

    at_s: int
    value: float


def segments(points: Sequence[CurvePoint]) -> list[list[CurvePoint]]:
    """The parts of a curve between gaps, which are not drawn."""
    if not points:
        return []
    parts = [[points[0]]]
    for before, after in itertools.pairwise(points):
        if after.at_s - before.at_s > GAP_S:
            parts.append([])
        parts[-1].append(after)
    return parts


def ticks(low: float, high: float, wanted: int = GRID_LINES) -> list[float]:
    """Round numbers that cover this range: steps of 1, 2 or 5 times a power of ten."""
    span = high - low if high - low >= CENT else max(abs(high), 1.0)
    rough = span / wanted
    power = 10.0 ** floor(log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * 0.999)
    first, last = floor(low / step + 1e-9), ceil(high / step - 1e-9)
    return [round(number * step, 12) for number in range(first, max(last, first + 1) + 1)]


def curve_svg(points: Sequence[CurvePoint], title: str) -> str:
    """The curve, as wide as its place, with labels that keep their size; screen readers read `title`.

    Below the pointer, a browser shows the value of each `HINTS`th of the time.
    """
    values = [point.value for point in points]
    marks = ticks(min(values), max(values))
    first, last = points[0].at_s, points[-1].at_s
    span_s, span = (last - first) or 1, marks[-1] - marks[0]

    def x(at_s: int) -> float:
        return round(100 * (at_s - first) / span_s, 2)

    def y(value: float) -> float:
        return round(100 * (marks[-1] - value) / span, 2)

    path = "".join(
        "".join(f"{'L' if number else 'M'}{x(point.at_s)} {y(point.value)}" for number, point in enumerate(segment))
        + ("h.01" if len(segment) == 1 else "")
        for segment in segments(points)
    )
    lines = "".join(
        f'<line class="{"zero" if mark == 0 else ""}" x2="100%" y1="{y(mark)}%" y2="{y(mark)}%"/>'
        f'<text y="{y(mark)}%" dy="{".9em" if mark == marks[-1] else "-.3em"}">{_label(mark)}</text>'
        for mark in marks
    )
    newest = {int(HINTS * (point.at_s - first) / span_s): point for point in points}
    hints = "".join(
        f'<rect x="{100 * place / HINTS:g}%" width="{100 / HINTS:g}%" height="100%">'
        f"<title>{_moment(point.at_s)}: {signed_usd(point.value)}</title></rect>"
        for place, point in newest.items()
    )
    shown = _moment if span_s < DAYS_S else day_of
    times = "".join(f"<span>{shown(first + span_s * number // TIMES)}</span>" for number in range(TIMES + 1))
    return (
        f'<div class="plot"><svg role="img" aria-label="{escape(title)}">{lines}<svg viewBox="0 0 100 100"'
        f' preserveAspectRatio="none" width="100%" height="100%"><path d="{path}"/></svg>{hints}</svg>'
        f'<div class="times" aria-hidden="true">{times}</div></div>'
    )


def columns_svg(items: Sequence[tuple[str, int]], title: str) -> str:
    """Bars side by side, each with its words."""
    most, step = max(1, *(value for _, value in items)), 100 / len(items)
    bars = "".join(
        f'<rect x="{step * (number + 0.12):.2f}%" y="{100 - height:.0f}%" width="{step * 0.76:.2f}%"'
        f' height="{height:.0f}%" rx="2"{"" if value else " class=nothing"}><title>{escape(words)}</title></rect>'
        for number, (words, value) in enumerate(items)
        for height in (max(6.0, 100 * value / most) if value else 2.0,)
    )
    return f'<svg class="columns" role="img" aria-label="{escape(title)}">{bars}</svg>'


def _label(value: float) -> str:
    return signed_usd(value, 10_000).removesuffix(".00")


def _moment(at_s: int) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%b %d, %H:%M")


class Picture:
    """A picture whose pixels are indexes into `colours`; `colours[0]` is the background."""

    def __init__(self, width: int, height: int, colours: Sequence[Colour]) -> None:
        self.width = width
        self.height = height
        self._colours = colours
        self._rows = [bytearray(width) for _ in range(height)]

    def rectangle(self, left: int, top: int, width: int, height: int, colour: int) -> None:
        """Fill a rectangle. Parts outside the picture are left out."""
        first, last = max(0, left), min(self.width, left + width)
        if first >= last:
            return
        line = bytes([colour]) * (last - first)
        for row in self._rows[max(0, top) : max(0, top + height)]:
            row[first:last] = line

    def text(self, left: int, top: int, text: str, size: int, colour: int) -> None:
        """Write one line; `size` is the pixels per dot of the font. A missing character becomes a question mark."""
        for number, char in enumerate(text):
            code = ord(char) if _FIRST <= ord(char) <= _LAST else _UNKNOWN
            start = (code - _FIRST) * GLYPH_WIDTH
            for column, bits in enumerate(_FONT[start : start + GLYPH_WIDTH]):
                x = left + (number * ADVANCE + column) * size
                for dot in range(GLYPH_HEIGHT):
                    if bits >> dot & 1:
                        self.rectangle(x, top + dot * size, size, size, colour)

    def line(self, points: Sequence[tuple[int, int]], thickness: int, colour: int) -> None:
        """Draw a line from point to point, left to right."""
        for (x0, y0), (x1, y1) in itertools.pairwise(points):
            steps = max(1, x1 - x0)
            for step in range(steps + 1):
                low, high = sorted((y0 + (y1 - y0) * step // steps, y0 + (y1 - y0) * min(steps, step + 1) // steps))
                self.rectangle(x0 + step, low - thickness // 2, 1, high - low + thickness, colour)

    def png(self) -> bytes:
        header = struct.pack(">IIBBBBB", self.width, self.height, 8, 3, 0, 0, 0)
        palette = b"".join(bytes(colour) for colour in self._colours)
        pixels = zlib.compress(b"".join(b"\0" + row for row in self._rows), 6)
        chunks = ((b"IHDR", header), (b"PLTE", palette), (b"IDAT", pixels), (b"IEND", b""))
        return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in chunks)


def text_width(text: str, size: int) -> int:
    return max(0, len(text) * ADVANCE - 1) * size


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
