"""Invalid answers of an upstream: an odd status, a value of another type, or a contradiction.

None of them can be mistaken for a true answer with other values: nobody could notice an upstream that lies.
"""

import json
from dataclasses import dataclass
from random import Random
from typing import Any

from simulation.contradictions import contradicted
from stacks_simulator.http_messages import UpstreamName
from tocsin.fetch import FetchResponse

ODD_STATUSES = (400, 403, 408, 418, 425, 451, 600)
ELSEWHERE = "https://elsewhere.example/"
RETRY_AFTER = ("soon", "-3", "Wed, 20 May 2026 07:28:00", "Wed, 20 May 2026 07:28:00 GMT", "9" * 30)
KINDS = ("value", "value", "contradiction", "contradiction", "status", "moved", "limited")


@dataclass
class SpoiltAnswers:
    """Spoils a share of the answers of one upstream for a while."""

    upstream: UpstreamName = "hiro"
    share: float = 0.0
    until_s: float = 0.0
    only: str | None = None  # the only kind to use

    def spoil(self, answer: FetchResponse, url: str, rng: Random) -> FetchResponse:
        """Return what arrives instead of this answer."""
        if rng.random() >= self.share:
            return answer
        kind = self.only or rng.choice(KINDS)
        if kind == "contradiction":
            return contradicted(answer, url, rng)
        if kind == "status":
            return FetchResponse(rng.choice(ODD_STATUSES), {}, b"")
        if kind == "moved":
            status = rng.choice((301, 302, 307, 308))
            return FetchResponse(status, {"location": rng.choice((url, url, ELSEWHERE))}, b"")
        if kind == "limited":
            return FetchResponse(429, {"retry-after": rng.choice(RETRY_AFTER)}, b"")
        return self._with_odd_value(answer, rng)

    @staticmethod
    def _with_odd_value(answer: FetchResponse, rng: Random) -> FetchResponse:
        try:
            body = json.loads(answer.body)
        except ValueError:
            return answer
        return FetchResponse(answer.status, answer.headers, json.dumps(with_odd_part(body, rng)).encode())


def with_odd_part(value: Any, rng: Random) -> Any:
    """Return the value with one part, at any depth, of another type."""
    if isinstance(value, dict) and value and rng.random() < 0.95:
        name = rng.choice(list(value))
        return {**value, name: with_odd_part(value[name], rng)}
    if isinstance(value, list) and value and rng.random() < 0.95:
        at = rng.randrange(len(value))
        return [*value[:at], with_odd_part(value[at], rng), *value[at + 1 :]]
    if isinstance(value, dict | str) or value is None:
        return ["odd"]
    return {"odd": True} if isinstance(value, list) else "odd"
