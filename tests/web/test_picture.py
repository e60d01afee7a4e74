"""Pictures as PNG: rectangles, smooth letters and lines, and the cards that links show elsewhere."""

import struct
import zlib

from support.round_world import AGENTS
from tocsin.web.drawing import CurvePoint
from tocsin.web.picture import LARGE, MIDDLE, SMALL, Card, CardLine, Picture, drawn, fitting, text_width

COLORS = ((255, 255, 255), (200, 30, 30))
FULL = 15  # the level of a pixel that is covered completely


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
    width, height, depth, color_type = struct.unpack(">IIBB", chunks[b"IHDR"][:10])
    assert (depth, color_type, chunks[b"IEND"]) == (8, 3, b"")
    raw = zlib.decompress(chunks[b"IDAT"])
    return [raw[row * (width + 1) + 1 : (row + 1) * (width + 1)] for row in range(height)]


def test_a_rectangle_is_where_it_was_drawn_and_nowhere_else() -> None:
    """What lies outside of the picture is left out."""
    picture = Picture(6, 4, COLORS)
    picture.rectangle(2, 1, 10, 2, 0)
    picture.rectangle(-5, -5, 3, 3, 1)
    row = bytes([0, 0, FULL, FULL, FULL, FULL])

    assert pixels(picture.png()) == [b"\0" * 6, row, row, b"\0" * 6]


def test_letters_are_smooth_and_stay_on_their_line() -> None:
    """Edges have shades between the ground and the color; what the font lacks is a question mark."""
    picture, unknown, question = (Picture(80, 40, COLORS) for _ in range(3))
    picture.text(2, 0, "Tocsin", SMALL, 1)
    unknown.text(0, 0, "漢", SMALL, 1)
    question.text(0, 0, "?", SMALL, 1)
    levels = {pixel - 16 for row in pixels(picture.png()) for pixel in row if pixel >= 16}

    assert {0, FULL} < levels <= set(range(16))
    assert len(levels) > 8
    assert unknown.png() == question.png()
    assert not any(pixels(picture.png())[39])


def test_a_text_that_does_not_fit_is_cut() -> None:
    """With dots; a letter outside of the picture is left out."""
    assert fitting("Ann", MIDDLE, 500) == "Ann"
    cut = fitting("A very long name of an agent", MIDDLE, 300)
    assert cut.startswith("A very")
    assert cut.endswith("…")
    assert text_width(cut, MIDDLE) <= 300
    assert text_width("", LARGE) == 0
    picture = Picture(10, 60, COLORS)
    picture.text(0, 0, "W", MIDDLE, 0)
    assert not any(map(any, pixels(picture.png())))


def test_a_line_has_no_holes_and_smooth_edges() -> None:
    """Every column between two points has at least one pixel, also where it is steep."""
    picture = Picture(40, 40, COLORS)
    picture.line([(0, 39), (10, 0), (39, 30.5)], 2, 1)
    rows = pixels(picture.png())

    assert all(any(row[x] > 16 for row in rows) for x in range(39))
    assert {row[x] for row in rows for x in range(20, 30)} - {0, 16 + FULL}


def test_every_card_is_a_small_picture() -> None:
    """Of an agent with a curve, of one without anything, and of a round with any names and sums."""
    curve = tuple(CurvePoint(hour * 3_600, float(hour % 7)) for hour in range(168))
    lines = tuple(
        CardLine(rank, AGENTS[0], "漢 and a name that is far too long for it", "+$1,210T") for rank in range(1, 6)
    )
    cards = (
        Card("Ann", "Rank 1 of 50", AGENTS[0], "+$1,726.95", "7 days: +$20.00", curve),
        Card("Nobody", "No trade that counts yet", AGENTS[1]),
        Card("Week 2", "ends Sunday", lines=lines),
        Card("Trading leaderboard", ""),
    )
    for card in cards:
        picture = drawn(card)
        assert len(picture) < 40_000
        assert [len(row) for row in pixels(picture)] == [1_200] * 630
    assert len({drawn(card) for card in cards}) == 4
