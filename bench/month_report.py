"""The table, the incidents and the plot of the compared month; docs get all but the incidents."""

from collections.abc import Sequence
from pathlib import Path
from statistics import mean

from month_incidents import Incident
from month_plot import plot
from month_services import MonthOutcome

from stacks_simulator.http_messages import UpstreamName
from tocsin.text import short_duration

DOCS = Path(__file__).parents[1] / "docs"
PAGE = DOCS / "reference-month.md"
PICTURE = DOCS / "reference-month.svg"
BEGIN, END = "<!-- figures: made by make month -->\n", "<!-- end of figures -->\n"


def delays(outcome: MonthOutcome, days: frozenset[int] | None = None) -> list[float]:
    """The delays in ascending order, of all days or of some."""
    return sorted(delay for day, delay in outcome.delays_s.values() if days is None or day in days)


def share_of(values: Sequence[float], share: float) -> float:
    """The value that this share of the values does not exceed; 0 without values."""
    return values[min(len(values) - 1, int(len(values) * share))] if values else 0.0


def calls_of(outcome: MonthOutcome, upstream: UpstreamName) -> int:
    return sum(count for (name, _), count in outcome.calls.items() if name == upstream)


def _met(value: bool) -> str:
    return "met" if value else "**missed**"


def _lasting(seconds: float) -> str:
    return short_duration(round(seconds * 1000))


def table(ours: MonthOutcome, reference: MonthOutcome) -> list[tuple[str, str, str, str]]:
    """The measurements of both, and whether our goals were met."""
    mine, theirs = delays(ours), delays(reference)
    means = mean(mine or [0.0]), mean(theirs or [0.0])
    hiro = calls_of(ours, "hiro"), calls_of(reference, "hiro")
    lost = ours.missed.total(), reference.missed.total()
    wrong = ours.wrong.total(), reference.wrong.total()
    silent = ours.silent_minutes.total(), reference.silent_minutes.total()
    sooner = means[1] / means[0] if means[0] else 0.0
    return [
        ("swaps that count", f"{ours.swaps:,}", f"{reference.swaps:,}", ""),
        ("missed", f"{lost[0]:,}", f"{lost[1]:,}", f"0: {_met(lost[0] == 0)}"),
        ("of these, found but refused for their shape", f"{ours.refused.total():,}",
         f"{reference.refused.total():,}", ""),
        ("wrong", f"{wrong[0]:,}", f"{wrong[1]:,}", f"0: {_met(wrong[0] == 0)}"),
        ("discovery delay: mean", _lasting(means[0]), _lasting(means[1]),
         f"4 times sooner: {sooner:.0f} times, {_met(sooner >= 4)}"),
        ("discovery delay: p95", _lasting(share_of(mine, 0.95)), _lasting(share_of(theirs, 0.95)), ""),
        ("discovery delay: longest", _lasting(share_of(mine, 1)), _lasting(share_of(theirs, 1)), ""),
        ("calls to Hiro", f"{hiro[0]:,}", f"{hiro[1]:,}",
         f"at most half: {hiro[0] / max(1, hiro[1]):.0%}, {_met(hiro[0] * 2 <= hiro[1])}"),
        ("calls to Tenero", f"{calls_of(ours, 'tenero'):,}", f"{calls_of(reference, 'tenero'):,}", ""),
        ("minutes of stale prices", f"{ours.stale_minutes.total():,}",
         f"{reference.stale_minutes.total():,}", ""),
        ("minutes of silent death", f"{silent[0]:,}", f"{silent[1]:,}", f"0: {_met(silent[0] == 0)}"),
    ]  # fmt: skip


def _days_of(incident: Incident, days: int) -> frozenset[int]:
    first, last = int(incident.hour // 24), int((incident.hour + incident.hours) // 24)
    return frozenset(day for day in range(first, last + 1) if day < days)


def incident_rows(ours: MonthOutcome, reference: MonthOutcome, incidents: Sequence[Incident]) -> list[tuple[str, ...]]:
    """Each incident with the figures of both on its days. A day of several incidents is in each of their rows."""
    rows = []
    seen = set()
    for incident in incidents:
        if incident.number in seen or incident.hour >= ours.days * 24:
            continue
        seen.add(incident.number)
        days = _days_of(incident, ours.days)
        longest = [_lasting(share_of(delays(each, days), 1)) for each in (ours, reference)]
        missed, stale, silent = (
            [sum(counted[day] for day in days) for counted in pair]
            for pair in (
                (ours.missed, reference.missed),
                (ours.stale_minutes, reference.stale_minutes),
                (ours.silent_minutes, reference.silent_minutes),
            )
        )
        hours = f"{incident.hours:g} h" if incident.hours else "once"
        rows.append(
            (
                str(incident.number),
                incident.words,
                f"{int(incident.hour // 24) + 1}, {hours}",
                *(f"{first} / {second}" for first, second in (longest, missed, stale, silent)),
            )
        )
    return rows


INCIDENT_HEAD = ("no.", "what happens", "day, duration", "longest delay", "missed", "stale minutes", "silent minutes")


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def write_docs(
    ours: MonthOutcome, reference: MonthOutcome, incidents: Sequence[Incident], seed: int, page: Path = PAGE
) -> None:
    """Write the figures into the page, and the plot next to it."""
    head, rest = page.read_text().split(BEGIN)
    _, tail = rest.split(END)
    figures = (
        f"\n{ours.days} days, seed {seed}, 430 wallets.\n\n"
        + markdown(("", "Tocsin", "the reference (model)", "goal"), table(ours, reference))
        + "\n![Discovery delay, calls to Hiro and missed swaps, day by day](reference-month.svg)\n\n"
    )
    page.write_text(head + BEGIN + figures + END + tail)
    page.with_suffix(".svg").write_text(plot(ours, reference, incidents))
