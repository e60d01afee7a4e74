"""How often and how long to try: per call (`RetryPolicy`) and per run (`CallSession`)."""

from dataclasses import dataclass
from math import inf

from tocsin.bindings import Logger
from tocsin.budget.limiter import Lane
from tocsin.upstream.answer import Answer, Limited, Unavailable

TASK_PATIENCE_S = 70.0  # a full minute window turns in 65 s
REQUEST_PATIENCE_S = 5.0  # a visitor is waiting


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Extra attempts of one call, counted apart for 429 and for 5xx, timeouts and cut connections."""

    limited_max: int = 2
    unavailable_max: int = 2
    backoff_s: float = 0.5
    backoff_max_s: float = 8.0

    def backoff(self, retry: int, jitter: float) -> float:
        """Seconds to wait before the n-th retry (from 1): full jitter, `jitter` in [0, 1)."""
        ceiling_s: float = self.backoff_s * 2 ** (retry - 1)
        return jitter * min(self.backoff_max_s, ceiling_s)


@dataclass(slots=True)
class CallSession:
    """One run of a task, or one visitor's request: everything that its calls share.

    `retries_left` is the ceiling for all its calls together: a storm of retries ends here. After
    `unanswered_max` calls in a row without any answer the session gives up, and its further calls are
    answered `Unavailable` without being made. After a call that was limited, further calls go out if they
    may at once, but do not wait. All three end with the session, so none can latch. Nobody waits beyond
    `ends_at_s` (on the steady clock): who cannot call before it is told at once when to come back.
    """

    lane: Lane
    logger: Logger
    patience_s: float
    retries_left: int = 20
    unanswered_max: int = 5
    unanswered: int = 0
    limited: bool = False
    calls: int = 0  # made so far, retries and redirects included
    ends_at_s: float = inf

    @property
    def given_up(self) -> bool:
        return self.unanswered >= self.unanswered_max

    def deadline(self, now_s: float) -> float:
        """Until when a call that begins now may wait for its permits."""
        return min(now_s + (0.0 if self.limited else self.patience_s), self.ends_at_s)

    def note(self, answer: Answer[object]) -> None:
        """Learn from how a call ended."""
        self.limited = isinstance(answer, Limited)
        if isinstance(answer, Unavailable):
            self.unanswered += 1
        elif not self.limited:
            self.unanswered = 0

    def take_retry(self) -> bool:
        """Spend one retry of the run's ceiling; False when it is used up."""
        if self.retries_left <= 0:
            return False
        self.retries_left -= 1
        return True


def task_session(
    logger: Logger, *, patience_s: float = TASK_PATIENCE_S, retries_max: int = 20
) -> CallSession:
    """An session for one run of a task."""
    return CallSession(Lane.TASK, logger, patience_s, retries_max)


def request_session(
    logger: Logger, *, patience_s: float = REQUEST_PATIENCE_S, retries_max: int = 2
) -> CallSession:
    """An session for one visitor's request."""
    return CallSession(Lane.REQUEST, logger, patience_s, retries_max)
