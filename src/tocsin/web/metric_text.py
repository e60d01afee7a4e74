"""Prometheus text: families of gauges, counters and histograms as lines. Pure.

docs/decisions/0006-write-metrics-ourselves.md explains why this uses no library.

Counts requests by route and status, in the memory of this process: a restart resets the counts.

On Cloudflare each isolate counts for itself, so the numbers there are samples.
The values of labels are bounded: an unknown path counts as `other`, a file of the pages as `/static`.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

from starlette.types import Message, Send

from holdfast.types import Clock
from tocsin.scheduler.types import Histogram
from tocsin.web.route import PathPatterns

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
        name: value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n") for name, value in labels.items()
    }
    return "{" + ",".join(f'{name}="{value}"' for name, value in escaped.items()) + "}" if escaped else ""


def metric_text(families: Iterable[MetricFamily | HistogramFamily]) -> str:
    return "\n".join(line for family in families for line in family.lines()) + "\n"


def _head(name: str, text: str, kind: str) -> Iterator[str]:
    yield f"# HELP {PREFIX}{name} {text}"
    yield f"# TYPE {PREFIX}{name} {kind}"


BOUNDS_S = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)
STATIC = "/static"
OTHER = "other"


class HttpMetrics:
    """The responses so far."""

    def __init__(self, clock: Clock) -> None:
        self.now = clock.monotonic
        self._paths = PathPatterns()
        self._routes: dict[str | None, str] = {}
        self._counts: dict[tuple[str, int], int] = {}
        self._seconds = {OTHER: Histogram([*BOUNDS_S])}

    def know(self, paths: Iterable[str]) -> None:
        """Add known paths: each is counted separately, files of the pages together."""
        known = list(paths)
        self._paths = PathPatterns(known)
        self._routes = {path: STATIC if path.startswith(f"{STATIC}/") else path for path in known}
        self._seconds |= {route: Histogram([*BOUNDS_S]) for route in self._routes.values()}

    def count(self, path: str, status: int, began_s: float) -> None:
        """Count a response that begins now, to a request that began at this (monotonic) time."""
        route = self._routes.get(self._paths.find(path), OTHER)
        key = (route, status)
        self._counts[key] = self._counts.get(key, 0) + 1
        self._seconds[route].add(self.now() - began_s)

    def counted(self, path: str, send: Send) -> Send:
        """A `send` that counts the response when it begins, so that streams are counted too."""
        began_s = self.now()

        async def send_counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                self.count(path, message["status"], began_s)
            await send(message)

        return send_counted

    def families(self) -> list[MetricFamily | HistogramFamily]:
        return [
            MetricFamily(
                "http_requests_total",
                "requests by route and status since the process started",
                [(label(route=route, status=str(status)), n) for (route, status), n in self._counts.items()],
                "counter",
            ),
            HistogramFamily(
                "http_request_duration_seconds",
                "from the head of a request to the head of its response",
                [({"route": route}, counted) for route, counted in self._seconds.items() if any(counted.counts)],
            ),
        ]
