"""Measures runs, calls and alarms. The counts are stored, because an object does not live long on Cloudflare."""

from tocsin.scheduler.types import Histogram, Measures, RunRecord

MEASURES_KEY = "measures"
RUN_BOUNDS_S = (0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
CALL_BOUNDS_S = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 8)  # an attempt ends after 8 s
LATENESS_BOUNDS_S = (0.01, 0.05, 0.1, 0.5, 1, 5, 15, 60, 300)


class Measurements:
    """The counts so far. `is_new`: something was counted that is not stored yet."""

    def __init__(self, stored: Measures | None = None) -> None:
        self._runs: dict[str, Histogram] = {}
        self._calls: dict[str, dict[str, Histogram]] = {}
        self._lateness = Histogram([*LATENESS_BOUNDS_S])
        self.is_new = False
        if stored is not None:
            self._restore(stored)

    def _restore(self, stored: Measures) -> None:
        """Continue from the stored counts where they use the same bounds."""
        self._runs = {name: found for name, found in stored.run_seconds.items() if found.has(RUN_BOUNDS_S)}
        self._calls = {
            upstream: {kind: found for kind, found in kinds.items() if found.has(CALL_BOUNDS_S)}
            for upstream, kinds in stored.call_seconds.items()
        }
        if stored.alarm_lateness.has(LATENESS_BOUNDS_S):
            self._lateness = stored.alarm_lateness

    def run_ended(self, record: RunRecord) -> None:
        """Count a run. The duration of an interrupted run is not known."""
        if record.outcome != "interrupted":
            counted = self._runs.setdefault(record.task, Histogram([*RUN_BOUNDS_S]))
            counted.add((record.duration_ms or 0) / 1000)
            self.is_new = True

    def call_answered(self, upstream: str, kind: str, seconds: float) -> None:
        """Count one attempt of a call by the class of its answer."""
        kinds = self._calls.setdefault(upstream, {})
        kinds.setdefault(kind, Histogram([*CALL_BOUNDS_S])).add(seconds)
        self.is_new = True

    def alarm_rang(self, late_ms: int) -> None:
        self._lateness.add(max(0, late_ms) / 1000)
        self.is_new = True

    def measures(self) -> Measures:
        return Measures(self._runs, self._calls, self._lateness)
