"""The plot of the compared month as SVG, without a library: three panels over the same days."""

import math
from collections.abc import Callable, Sequence

from month_incidents import Incident
from month_services import MonthOutcome

WIDTH, PANEL, LEFT, TOP, GAP = 860, 150, 74, 46, 44
PLOTTED = WIDTH - LEFT - 16
STYLE = """
text{font:12px system-ui,sans-serif;fill:#333}.quiet{fill:#666}.title{font-weight:600}
.grid{stroke:#ddd}.day{fill:#f3ead3}.ours{stroke:#0b6e4f;fill:#0b6e4f}.reference{stroke:#b3261e;fill:#b3261e}
polyline{fill:none!important;stroke-width:2}.back{fill:#fff}
@media(prefers-color-scheme:dark){text{fill:#ddd}.quiet{fill:#aaa}.grid{stroke:#444}.day{fill:#3a3426}.back{fill:#16181d}
.ours{stroke:#4cc79a;fill:#4cc79a}.reference{stroke:#ff8a80;fill:#ff8a80}}
"""

Series = Sequence[float]
Scale = Callable[[float], float]


def plot(ours: MonthOutcome, reference: MonthOutcome, incidents: Sequence[Incident]) -> str:
    days = ours.days
    panels = [
        _log_panel(0, days, "Longest discovery delay of a day", _longest(ours), _longest(reference)),
        _linear_panel(1, days, "Calls to Hiro per day", _calls(ours), _calls(reference)),
        _linear_panel(2, days, "Missed swaps, added up", _missed(ours), _missed(reference)),
    ]
    height = TOP + 3 * (PANEL + GAP)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="Tocsin and the reference over {days} days">'
        f'<style>{STYLE}</style><rect class="back" width="{WIDTH}" height="{height}"/>'
        f"{_bands(days, incidents, height)}{_legend()}{''.join(panels)}</svg>\n"
    )


def _longest(outcome: MonthOutcome) -> Series:
    longest = [0.0] * outcome.days
    for day, delay in outcome.delays_s.values():
        longest[day] = max(longest[day], delay)
    return longest


def _calls(outcome: MonthOutcome) -> Series:
    return [outcome.calls["hiro", day] for day in range(outcome.days)]


def _missed(outcome: MonthOutcome) -> Series:
    return [sum(outcome.missed[each] for each in range(day + 1)) for day in range(outcome.days)]


def _x(day: float, days: int) -> float:
    return LEFT + PLOTTED * day / days


def _bands(days: int, incidents: Sequence[Incident], height: int) -> str:
    """The days of the incidents, with their numbers."""
    parts, labeled = [], set()
    for incident in incidents:
        if incident.hour >= days * 24:
            continue
        first, last = incident.hour / 24, (incident.hour + max(2.0, incident.hours)) / 24
        left, right = _x(first, days), _x(min(last, days), days)
        parts.append(
            f'<rect class="day" x="{left:.1f}" y="{TOP - 8}" width="{right - left:.1f}" height="{height - TOP - 28}"/>'
        )
        if incident.number not in labeled:
            labeled.add(incident.number)
            parts.append(f'<text class="quiet" x="{left:.1f}" y="{TOP - 12}">{incident.number}</text>')
    return "".join(parts)


def _legend() -> str:
    return (
        f'<text class="ours" stroke="none" style="stroke:none" x="{LEFT}" y="16">Tocsin</text>'
        f'<text class="reference" style="stroke:none" x="{LEFT + 60}" y="16">the reference (model)</text>'
        f'<text class="quiet" x="{LEFT + 210}" y="16">shaded: incidents, by their number</text>'
    )


def _panel(number: int, days: int, title: str, lines: Sequence[Series], scale: Scale, marks: dict[float, str]) -> str:
    top = TOP + number * (PANEL + GAP)
    parts = [f'<text class="title" x="{LEFT}" y="{top + 4}">{title}</text>']
    low, bottom = top + 14, top + PANEL

    def y(value: float) -> float:
        return bottom - (bottom - low) * scale(value)

    for value, words in marks.items():
        at = y(value)
        parts.append(
            f'<line class="grid" x1="{LEFT}" x2="{WIDTH - 16}" y1="{at:.1f}" y2="{at:.1f}"/>'
            f'<text class="quiet" text-anchor="end" x="{LEFT - 6}" y="{at + 4:.1f}">{words}</text>'
        )
    for kind, line in zip(("ours", "reference"), lines, strict=True):
        points = " ".join(f"{_x(day + 0.5, days):.1f},{y(value):.1f}" for day, value in enumerate(line))
        parts.append(f'<polyline class="{kind}" points="{points}"/>')
    every = max(1, days // 6)
    parts += [
        f'<text class="quiet" text-anchor="middle" x="{_x(day, days):.1f}" y="{bottom + 16}">{day}</text>'
        for day in range(0, days + 1, every)
    ]
    return "".join(parts)


def _log_panel(number: int, days: int, title: str, *lines: Series) -> str:
    """From ten seconds to a week."""
    low, high = math.log(10), math.log(7 * 86_400)

    def scale(value: float) -> float:
        return min(1.0, max(0.0, (math.log(max(value, 10)) - low) / (high - low)))

    marks = {10.0: "10 s", 60.0: "1 min", 600.0: "10 min", 3_600.0: "1 h", 86_400.0: "1 day"}
    return _panel(number, days, title, lines, scale, marks)


def _linear_panel(number: int, days: int, title: str, *lines: Series) -> str:
    top = max((value for line in lines for value in line), default=0.0) or 1.0
    marks = {0.0: "0", top / 2: f"{top / 2:,.0f}", top: f"{top:,.0f}"}
    return _panel(number, days, title, lines, lambda value: value / top, marks)
