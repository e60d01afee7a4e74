"""An alarm as it is stored, and how a failed run changes it. Pure: time and chance are passed in.

A failed `alarm()` is retried after 2 s, doubling, each wait longer by up to a quarter. Failures of the
handler itself are counted, and the seventh ends the alarm. Failures before the handler was reached (the
constructor raised) are not counted and never end it. Count and back-off are part of the stored alarm, so a
restart neither loses nor repeats them.
"""

from dataclasses import dataclass, replace

RETRY_FIRST_MS = 2_000
RETRY_COUNT_MAX = 6  # seven runs in all
BACKOFF_MAX = 9  # doublings: 2 s … 1,024 s
JITTER_MAX = 0.25
CLOCK_SLACK_MS = 1_000  # a smaller change of the wall clock is not treated as a jump


@dataclass(frozen=True, slots=True)
class Alarm:
    """`scheduled_at` is the time that was set, `due_at` when it rings next, as decided at `decided_at`.

    The generation distinguishes alarms that were set for the same millisecond.
    """

    scheduled_at: int
    due_at: int
    decided_at: int
    generation: int
    retry_count: int = 0
    backoff: int = 0
    last_failure_counted: bool = False


def after_failure(alarm: Alarm, *, counted: bool, now: int, chance: float) -> Alarm | None:
    """The alarm after a failed run, or None if its retries are exhausted. 0 <= chance < 1."""
    if counted and alarm.retry_count >= RETRY_COUNT_MAX:
        return None
    backoff = 0 if counted and not alarm.last_failure_counted else alarm.backoff
    delay_ms = RETRY_FIRST_MS * 2 ** min(backoff, BACKOFF_MAX) * (1 + JITTER_MAX * chance)
    return replace(
        alarm,
        due_at=now + round(delay_ms),
        decided_at=now,
        retry_count=alarm.retry_count + counted,
        backoff=backoff + 1,
        last_failure_counted=counted,
    )


def rings_at(alarm: Alarm, now: int) -> int:
    """When the alarm rings by the present clock.

    If the clock was set back since `decided_at`, the alarm would ring late by the same amount. Then its
    original wait starts again from now, so that no alarm waits longer than it was meant to.
    """
    if alarm.decided_at > now + CLOCK_SLACK_MS:
        return now + (alarm.due_at - alarm.decided_at)
    return alarm.due_at
