"""Decides which step of a round is due, and when to check again. Pure.

A round is open → closed, when the grace is over → finalizing, when everything is known and captured → finalized.
"""

from collections.abc import Iterable
from typing import Literal, TypeAlias

from tocsin.shapes.round_views import RoundRow

Step: TypeAlias = Literal["close", "capture", "finalize"]

WAIT_MS = 15 * 60_000  # what a round usually waits for arrives within this time
TOO_LONG_MS = 2 * 3_600_000  # after this wait the service is not ready
# While a round waits for what usually arrives soon. A look at the chain may end right after the grace did.
LOOK_AGAIN_MIN_MS, LOOK_AGAIN_MAX_MS = 10_000, 60_000

_BY_STATUS: dict[str, Step] = {"closed": "capture", "finalizing": "finalize"}


def step_of(round_: RoundRow, now: int) -> Step | None:
    """Return the step that is due now (unix ms)."""
    if round_.status == "open":
        return "close" if now >= round_.grace_ends_at * 1000 else None
    return _BY_STATUS.get(round_.status)


def may_be_prepared(round_: RoundRow, now: int) -> bool:
    """Return whether a result computed now is likely to hold: most late swaps are found soon after the end."""
    prepared_from = (round_.ends_at + round_.grace_ends_at) * 500  # the middle of the grace
    return round_.status == "closed" or (round_.status == "open" and now >= prepared_from)


def waited_ms(round_: RoundRow, now: int) -> int:
    return 0 if round_.waiting_since is None else max(0, now - round_.waiting_since)


def next_look(rounds: Iterable[RoundRow], now: int, next_start_ms: int | None) -> int | None:
    """Return when to wake the task: at the next end of a grace, or soon if a round has just begun to wait."""
    times = [] if next_start_ms is None else [next_start_ms]
    for each in rounds:
        if each.status == "open":
            times.append(each.grace_ends_at * 1000)
        elif each.status == "closed" and waited_ms(each, now) < WAIT_MS:
            times.append(now + min(max(LOOK_AGAIN_MIN_MS, waited_ms(each, now)), LOOK_AGAIN_MAX_MS))
    return min((at for at in times if at > now), default=None)
