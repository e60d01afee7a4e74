"""Render the letters of the link previews once: `src/tocsin/web/glyphs.json`, which the service only copies from.

Needs Pillow and the fonts of Debian's package fonts-inter, which neither the service nor its tests need:

    python tools/glyphs.py /usr/share/fonts/opentype/inter
"""

import base64
import json
import sys
import zlib
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont  # type: ignore[import-not-found]  # installed for this tool only

TARGET = Path(__file__).parents[1] / "src" / "tocsin" / "web" / "glyphs.json"
LEVELS = 16  # of coverage
EVERY = "".join(map(chr, range(32, 127))) + "\u2212\u00b7\u2013\u2026"
# The pixels of each size, its font, and its characters.
SIZES = (
    (28, "Inter-Medium", EVERY),
    (52, "Inter-SemiBold", EVERY),
    (96, "InterDisplay-Bold", "$+\u2212,.0123456789KMBT>%"),
)


def rendered(font: ImageFont.FreeTypeFont, characters: str) -> dict[str, object]:
    """Every character in a box of the same height, row by row, one byte for each pixel."""
    ascent, descent = font.getmetrics()
    widths, pixels = {}, bytearray()
    for character in characters:
        widths[character] = width = max(1, round(font.getlength(character)))
        box = Image.new("L", (width, ascent + descent))
        ImageDraw.Draw(box).text((0, 0), character, 255, font)
        pixels += bytes(level * LEVELS // 256 for level in box.tobytes())
    packed = base64.b64encode(zlib.compress(bytes(pixels), 9)).decode()
    return {"height": ascent + descent, "widths": widths, "pixels": packed}


def main() -> None:
    folder = Path(sys.argv[1])
    sizes = {size: rendered(ImageFont.truetype(folder / f"{name}.otf", size), text) for size, name, text in SIZES}
    about = {
        "font": "Inter 4.0, Copyright 2016-2022 The Inter Project Authors (https://github.com/rsms/inter)",
        "license": "SIL Open Font License 1.1 (https://openfontlicense.org)",
    }
    TARGET.write_text(json.dumps(about | {"sizes": sizes}, ensure_ascii=True) + "\n")


if __name__ == "__main__":
    main()
