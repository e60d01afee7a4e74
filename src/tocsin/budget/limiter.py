"""What the client asks before every attempt and tells after it. `scheduler/gatekeeper.py` is the answer.

The client knows only this face, so that a budget may live in another object, or in a test.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


class Lane(StrEnum):
    """On whose behalf a call is made. Requests have a reserved share, so that no task starves them."""

    TASK = "task"
    REQUEST = "request"


@dataclass(frozen=True, slots=True)
class WindowReading:
    """What one answer's headers said of one window; None is "said nothing"."""

    limit: int | None = None
    remaining: int | None = None


NOT_REPORTED = WindowReading()


@dataclass(frozen=True, slots=True)
class LimitReading:
    """What one answer's headers said of our limits."""

    second: WindowReading = NOT_REPORTED
    minute: WindowReading = NOT_REPORTED
    month: WindowReading = NOT_REPORTED
    anonymous: bool | None = None  # the upstream treats us as somebody without a key


@dataclass(frozen=True, slots=True)
class Denial:
    """Not now. `until` is the wall clock's time (unix ms) of `wait_ms` from now."""

    wait_ms: int
    until: int
    reason: str


class Limiter(Protocol):
    """One upstream's budget, as its client sees it."""

    async def enter(self, lane: Lane, patience_s: float) -> Denial | None:
        """Wait for a permit, in line and for `patience_s` at most. None is a permit, already spent."""

    def leave(self, reading: LimitReading | None, *, limited: bool, retry_after_ms: int | None) -> int:
        """Once after every permit: what the answer said; None when there was no answer.

        Returns until when the gate is closed to everybody (unix ms), a past time when it is open.
        """
