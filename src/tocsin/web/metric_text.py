"""Prometheus text: families of gauges, counters and histograms as lines. Pure.

docs/decisions/0006-write-metrics-ourselves.md explains why this uses no library.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

from tocsin.shapes.measures import Histogram

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PREFIX = "tocsin_"


@dataclass(frozen=True, slots=True)
class MetricFamily:
    """A name, its meaning, and its values by label; values that are None are left out."""

    name: str
    help: str
    values: Iterable[tuple[str, float | None]]
    kind: Literal["gauge", "counter"] = "gauge"

    def lines(self) -> Iterator[str]:
        yield from _head(self.name, self.help, self.kind)
        for labels, value in self.values:
            if value is not None:
                yield f"{PREFIX}{self.name}{labels} {float(value):.15g}"


@dataclass(frozen=True, slots=True)
class HistogramFamily:
    """A name, its meaning, and its histograms by label."""

    name: str
    help: str
    values: Iterable[tuple[dict[str, str], Histogram]]

    def lines(self) -> Iterator[str]:
        yield from _head(self.name, self.help, "histogram")
        for labels, counted in self.values:
            name = f"{PREFIX}{self.name}"
            bounds = [*(f"{bound:g}" for bound in counted.bounds), "+Inf"]
            counts = list(accumulate(counted.counts))
            for bound, count in zip(bounds, counts, strict=True):
                yield f"{name}_bucket{label(**labels, le=bound)} {count}"
            shown = label(**labels)
            yield f"{name}_sum{shown} {counted.sum:.15g}"
            yield f"{name}_count{shown} {counts[-1]}"


def label(**labels: str) -> str:
    """Labels in the form that follows a name; empty when there are none."""
    escaped = {
        name: value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
        for name, value in labels.items()
    }
    return "{" + ",".join(f'{name}="{value}"' for name, value in escaped.items()) + "}" if escaped else ""


def metric_text(families: Iterable[MetricFamily | HistogramFamily]) -> str:
    return "\n".join(line for family in families for line in family.lines()) + "\n"


def _head(name: str, text: str, kind: str) -> Iterator[str]:
    yield f"# HELP {PREFIX}{name} {text}"
    yield f"# TYPE {PREFIX}{name} {kind}"
