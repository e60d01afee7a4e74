"""The limiter as its callers see it. `budget_limiter.py` implements it.

A client acquires a permit before every attempt, and releases it with the limits that the answer reports.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


class Lane(StrEnum):
    """On whose behalf a call is made. Requests have a reserved share, so no task can starve them."""

    TASK = "task"
    REQUEST = "request"


@dataclass(frozen=True, slots=True)
class WindowReading:
    """What one answer's headers report about one window; None for what they do not report."""

    limit: int | None = None
    remaining: int | None = None


NOT_REPORTED = WindowReading()


@dataclass(frozen=True, slots=True)
class LimitReading:
    """What one answer's headers report about our limits."""

    second: WindowReading = NOT_REPORTED
    minute: WindowReading = NOT_REPORTED
    month: WindowReading = NOT_REPORTED
    anonymous: bool | None = None  # the upstream treats us as a client without a key


@dataclass(frozen=True, slots=True)
class Denial:
    """No permit now. `until` is the wall-clock time (unix ms) after `wait_ms` have passed.

    `by_budget`: our own budget denied it, not an upstream that asked us to slow down.
    """

    wait_ms: int
    until: int
    reason: str
    by_budget: bool = True


class Limiter(Protocol):
    """Grants permits out of one upstream's budget."""

    async def acquire(self, lane: Lane, patience_s: float) -> Denial | None:
        """Wait in line for a permit, for `patience_s` at most. None means a permit, which is already spent."""

    def calls_left(self, lane: Lane) -> float:
        """How many calls this lane could make in a row at the month's pace; without a monthly limit, in a day."""

    def probe(self, lane: Lane) -> bool:
        """Spend a permit for one call through a limiter that a 429 closed; False if no probe is possible now."""

    def release(
        self,
        reading: LimitReading | None,
        *,
        limited: bool,
        retry_after_ms: int | None,
        probing: bool = False,
    ) -> int:
        """Call this once after every permit, with the limits that the answer reported; None if there was no answer.

        `probing`: the permit was for a probe. If the upstream did not limit that call, the limiter opens.
        Returns until when the limiter is closed to all callers (unix ms); a past time if it is open.
        """
