"""What all upstream calls of one run or one request share."""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import TypeAlias

from tocsin.bindings import Logger
from tocsin.budget.limiter import Lane

TASK_PATIENCE_S = 70.0  # a full minute window is free again after 65 s
REQUEST_PATIENCE_S = 5.0  # a visitor is waiting
TASK_RETRIES_MAX = 20
REQUEST_RETRIES_MAX = 2

OnAnswer: TypeAlias = Callable[[str, str, float], object]  # upstream, class of answer, seconds


def ignore(_upstream: str, _kind: str, _seconds: float) -> None:
    """Do nothing with an answer."""


@dataclass(slots=True)
class CallSession:
    """Limits the calls of one run or request as a whole.

    `retries_left` applies to all its calls together, which prevents a storm of retries. After `unanswered_max` calls
    in a row without any answer the session gives up: its further calls end as `Unavailable` without being made.
    After a limited call, further calls go out only if they need not wait. These three states end with the session,
    so none can persist. No call waits beyond `ends_at_s` (monotonic): a caller that cannot get a permit before then
    is denied at once. With `may_probe`, its first call may go through a limiter that a 429 closed. `on_answer` is
    called after each attempt.
    """

    lane: Lane
    logger: Logger
    patience_s: float
    retries_left: int
    unanswered_max: int = 5
    unanswered: int = 0
    limited: bool = False
    calls: int = 0  # made so far, retries and redirects included
    ends_at_s: float = inf
    may_probe: bool = False
    on_answer: OnAnswer = ignore

    @property
    def given_up(self) -> bool:
        return self.unanswered >= self.unanswered_max

    def deadline(self, now_s: float) -> float:
        """Until when a call that begins now may wait for its permits."""
        return min(now_s + (0.0 if self.limited else self.patience_s), self.ends_at_s)

    def call_ended(self, *, limited: bool, answered: bool) -> None:
        """Record how a call ended. A limited call does not show whether the upstream answers."""
        self.limited = limited
        if not limited:
            self.unanswered = 0 if answered else self.unanswered + 1

    def take_retry(self) -> bool:
        """Spend one retry; False if none is left."""
        if self.retries_left <= 0:
            return False
        self.retries_left -= 1
        return True


def task_session(logger: Logger, on_answer: OnAnswer = ignore, *, may_probe: bool = False) -> CallSession:
    """A session for one run of a task."""
    patience_s, retries = TASK_PATIENCE_S, TASK_RETRIES_MAX
    return CallSession(Lane.TASK, logger, patience_s, retries, may_probe=may_probe, on_answer=on_answer)


def request_session(
    logger: Logger, on_answer: OnAnswer = ignore, *, patience_s: float = REQUEST_PATIENCE_S
) -> CallSession:
    """A session for one request."""
    return CallSession(Lane.REQUEST, logger, patience_s, REQUEST_RETRIES_MAX, on_answer=on_answer)
