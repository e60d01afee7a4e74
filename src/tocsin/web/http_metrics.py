"""Counts requests by route and status, in the memory of this process: a restart resets the counts.

On Cloudflare each isolate counts for itself, so the numbers there are samples.
The values of labels are bounded: an unknown path counts as `other`, a file of the pages as `/static`.
"""

from collections.abc import Iterable

from starlette.types import Message, Send

from tocsin.bindings import Clock
from tocsin.shapes.measures import Histogram
from tocsin.web.metric_text import HistogramFamily, MetricFamily, label
from tocsin.web.path_patterns import PathPatterns

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
                [
                    ({"route": route}, counted)
                    for route, counted in self._seconds.items()
                    if any(counted.counts)
                ],
            ),
        ]
