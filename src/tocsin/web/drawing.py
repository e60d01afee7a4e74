"""Curves and bars as SVG, for any width and with readable axes. Pure. Their colors come from the page's style sheet."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from math import ceil, floor, log10

from tocsin.web.markup import day_of, signed_usd

GRID_LINES = 4
HINTS = 60  # values that a browser shows below the pointer
TIMES = 4  # parts of the time axis
DAYS_S = 4 * 86_400  # from here on, days are enough on it
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
    return f"{day_of(at_s)}, {datetime.fromtimestamp(at_s, UTC):%H:%M}"
