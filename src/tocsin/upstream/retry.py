"""How often one call is retried, and how long to wait in between. Pure."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Extra attempts of one call, counted separately for 429, and for 5xx, timeouts and lost connections."""

    limited_max: int = 2
    unavailable_max: int = 2
    backoff_s: float = 0.5
    backoff_max_s: float = 8.0

    def backoff(self, retry: int, jitter: float) -> float:
        """Seconds to wait before the n-th retry (from 1): full jitter, `jitter` in [0, 1)."""
        ceiling_s: float = self.backoff_s * 2 ** (retry - 1)
        return jitter * min(self.backoff_max_s, ceiling_s)
