"""A picture of a few colours, drawn here and written as PNG, for link previews, which do not show SVG.

A preview needs only rectangles, lines and text in a small built-in font. Pure Python, so that it also runs on
Cloudflare.
"""

import itertools
import struct
import zlib
from collections.abc import Sequence
from typing import TypeAlias

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
                low, high = sorted(
                    (y0 + (y1 - y0) * step // steps, y0 + (y1 - y0) * min(steps, step + 1) // steps)
                )
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
