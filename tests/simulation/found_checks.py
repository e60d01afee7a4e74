"""Checks how long a swap is missing while the service reports that it is ready."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tocsin.scheduler.types import Status
from tocsin.settings import Settings

if TYPE_CHECKING:
    from simulation.history import History

CADENCES_MAX = 2
# A list that stands still is told after this time; an index that lags has four attempts in half an hour.
UNTOLD_S = Settings().block_age_max / 1000 + 1_800
_SWAPS = "SELECT txid FROM swaps"


@dataclass(slots=True)
class _Span:
    """A time in which the state may have been the same, and the longest cadence in it."""

    from_s: float = 0.0
    cadence_s: float = 0.0


class FoundChecks:
    """Follows the swaps that are on the chain and not recorded.

    `longest` has the longest time that the same swap was missing, in cadences of the task that finds swaps: while the
    state was `ready`, and while /readyz was 200, which it also is for some time after incomplete runs. Looks are rare,
    so the time since the last look with another state counts.
    """

    def __init__(self, history: "History") -> None:
        self._history = history
        self._spans = {"ready": _Span(), "200": _Span()}
        self.longest: dict[str, float] = {"ready": 0.0, "200": 0.0}

    def look(self, status: Status, state: str, *, is_200: bool) -> None:
        history, now_s = self._history, self._history.time.now_s
        cadence_s = self._finding_cadence_s(status)
        for name, holds in (("ready", state == "ready"), ("200", is_200)):
            span = self._spans[name]
            if not holds or history.checks.excuses.cover(span.from_s, now_s) is not None:
                self._spans[name] = _Span(now_s, cadence_s)
            self._spans[name].cadence_s = max(self._spans[name].cadence_s, cadence_s)
        if min(span.from_s for span in self._spans.values()) >= now_s:
            return
        for txid, mined_s in self._missing().items():
            for name, span in self._spans.items():
                missing_s = now_s - max(mined_s, span.from_s)
                self.longest[name] = max(self.longest[name], missing_s / span.cadence_s)
                too_long = missing_s > CADENCES_MAX * span.cadence_s + UNTOLD_S
                if name == "ready" and too_long:
                    text = f"{txid} is missing for {missing_s:.0f} s at a cadence of {span.cadence_s:.0f} s"
                    history.broken("found", text)

    def _finding_cadence_s(self, status: Status) -> float:
        """Return the cadence of the feed, or of the sweep if that finds the swaps."""
        followed = (status.last_result.get("feed") or {}).get("way") == "network"
        task = status.tasks.get("feed" if followed else "sweep")
        return 1e9 if task is None else max(task.effective_cadence_ms, task.cadence_ms) / 1000

    def _missing(self) -> Mapping[str, float]:
        """Return the swaps that must be recorded and are not, with the time of their block in the history."""
        outside = self._history.outside
        recorded = {row["txid"] for row in self._history.reader.rows(_SWAPS)}
        start_s = outside.time.start_ms / 1000
        return {
            swap.txid: outside.mined_s(swap.txid) - start_s
            for swap in outside.truth()
            if swap.txid not in recorded
            and outside.mined_s(swap.txid) >= outside.counted_since_s(swap.sender)
            and not outside.may_be_left_out(swap.txid)
        }
