"""Pictures for previews of links: real PNGs."""

import struct
import zlib

from tocsin.web.drawing import Picture, text_width

COLOURS = ((255, 255, 255), (0, 0, 0), (200, 30, 30))


def pixels(png: bytes) -> list[bytes]:
    """The rows of an indexed PNG without filters; checks every chunk."""
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    chunks: dict[bytes, bytes] = {}
    at = 8
    while at < len(png):
        (length,) = struct.unpack(">I", png[at : at + 4])
        kind, data = png[at + 4 : at + 8], png[at + 8 : at + 8 + length]
        assert struct.unpack(">I", png[at + 8 + length : at + 12 + length]) == (zlib.crc32(kind + data),)
        chunks[kind] = data
        at += 12 + length
    width, height, depth, colour_type = struct.unpack(">IIBB", chunks[b"IHDR"][:10])
    assert (depth, colour_type, chunks[b"IEND"]) == (8, 3, b"")
    raw = zlib.decompress(chunks[b"IDAT"])
    return [raw[row * (width + 1) + 1 : (row + 1) * (width + 1)] for row in range(height)]


def test_a_rectangle_is_where_it_was_drawn_and_nowhere_else() -> None:
    """What lies outside of the picture is left out."""
    picture = Picture(6, 4, COLOURS)
    picture.rectangle(2, 1, 10, 2, 1)
    picture.rectangle(-5, -5, 3, 3, 2)

    assert pixels(picture.png()) == [b"\0" * 6, b"\0\0\1\1\1\1", b"\0\0\1\1\1\1", b"\0" * 6]


def test_text_has_the_dots_of_its_letters() -> None:
    """An L of five by seven dots; what the font lacks is a question mark."""
    picture = Picture(5, 7, COLOURS)
    picture.text(0, 0, "L", 1, 1)
    unknown, question = Picture(5, 7, COLOURS), Picture(5, 7, COLOURS)
    unknown.text(0, 0, "漢", 1, 1)
    question.text(0, 0, "?", 1, 1)

    assert pixels(picture.png()) == [b"\1\0\0\0\0"] * 6 + [b"\1\1\1\1\1"]
    assert unknown.png() == question.png()
    assert (text_width("ab", 2), text_width("", 2)) == (22, 0)


def test_a_line_has_no_holes() -> None:
    """Every column between two points has at least one pixel, also where it is steep."""
    picture = Picture(40, 40, COLOURS)
    picture.line([(0, 39), (10, 0), (39, 30)], 2, 2)

    rows = pixels(picture.png())
    assert all(any(row[x] == 2 for row in rows) for x in range(40))
