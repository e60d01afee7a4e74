"""A curve as SVG, with readable axes. Pure. Its colours come from the page's style sheet."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from math import ceil, floor, log10

WIDTH, HEIGHT = 720, 240
LEFT, RIGHT, TOP, BOTTOM = 64, 8, 10, 26
GRID_LINES = 4
CENT = 0.01  # smaller differences are not drawn
GAP_S = 9_000  # each hour has a point, at any minute: two and a half hours without one are a gap


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
    """The curve; screen readers read `title`."""
    values = [point.value for point in points]
    marks = ticks(min(values), max(values))
    scale = _Scale(points[0].at_s, points[-1].at_s, marks[0], marks[-1])
    parts = [
        f'<svg class="curve" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">',
        f"<title>{escape(title)}</title>",
    ]
    for mark in marks:
        y = scale.y(mark)
        kind = "zero" if mark == 0 else "grid"
        parts.append(f'<line class="{kind}" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4}" text-anchor="end">{escape(short_usd(mark))}</text>')
    for at_s, anchor in ((points[0].at_s, "start"), (points[-1].at_s, "end")):
        when = datetime.fromtimestamp(at_s, UTC).strftime("%b %d, %H:%M UTC")
        parts.append(
            f'<text x="{scale.x(at_s)}" y="{HEIGHT - 6}" text-anchor="{anchor}">{escape(when)}</text>'
        )
    for segment in segments(points):
        if len(segment) == 1:
            [only] = segment
            parts.append(f'<circle cx="{scale.x(only.at_s)}" cy="{scale.y(only.value)}" r="2"/>')
            continue
        path = " ".join(
            f"{'M' if number == 0 else 'L'}{scale.x(point.at_s)} {scale.y(point.value)}"
            for number, point in enumerate(segment)
        )
        parts.append(f'<path d="{path}"/>')
    return "".join([*parts, "</svg>"])


@dataclass(frozen=True, slots=True)
class _Scale:
    """Where a time and a value are drawn."""

    first_s: int
    last_s: int
    low: float
    high: float

    def x(self, at_s: int) -> float:
        span = (self.last_s - self.first_s) or 1
        return round(LEFT + (WIDTH - LEFT - RIGHT) * (at_s - self.first_s) / span, 1)

    def y(self, value: float) -> float:
        span = (self.high - self.low) or 1.0
        return round(TOP + (HEIGHT - TOP - BOTTOM) * (self.high - value) / span, 1)


def short_usd(value: float) -> str:
    """Four figures at most: $1,250, -$1.2M."""
    sign, size = "-" if value < 0 else "", abs(value)
    if size < 9_999.5:  # what rounds to $10,000 is $10k
        text = f"{size:,.0f}" if size >= 99.995 or size == int(size) else f"{size:.2f}"
        return f"{sign}${text}"
    for unit, letter in ((1e3, "k"), (1e6, "M"), (1e9, "B")):
        if size < 999.5 * unit:
            return f"{sign}${size / unit:.3g}{letter}"
    return f"{sign}${size / 1e12:.3g}T" if size < 999.5e12 else f"{sign}${size / 1e12:,.0f}T"
