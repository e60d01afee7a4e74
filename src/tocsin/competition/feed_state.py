"""What is kept of the network's list between runs, as one value in the database."""

import json
from dataclasses import dataclass, field

from tocsin.bindings import Database, Statement
from tocsin.competition.feed_choice import MeasuredTraffic, Way
from tocsin.competition.feed_mark import FeedMark
from tocsin.competition.kept_values import get_value, set_value
from tocsin.errors import MalformedShape
from tocsin.shapes.base import SnakeShape

KEY = "competition_feed"
TRUSTED_SWEEPS = 2  # incomplete for this many of its cadences, the sweep reads the contracts' lists itself
TRUSTED_MIN_MS = 180_000  # two looks while nobody trades, however short the sweep's cadence is


@dataclass(frozen=True, slots=True)
class FeedState(SnakeShape):
    """`started_at`: since then the list is followed without a break. `looked_at`: the newest look at its head.

    `complete_at`: the newest look below which nothing is unread. `limited_at`: calls were refused then. `quiet`: the
    newest look showed nothing for us. `etag` is that of the head, while nothing is unread. `asked_at`: when the other
    way is used, the newest look at the length of the list. `rests_on`: the rules under which all contracts' lists were
    read since `started_at`, so that nothing is missing before it either.
    """

    way: Way = "network"
    reason: str = ""
    mark: FeedMark = field(default_factory=FeedMark)
    etag: str | None = None
    started_at: int | None = None
    looked_at: int | None = None
    complete_at: int | None = None
    limited_at: int | None = None
    quiet: bool = False
    asked_at: int | None = None
    rests_on: str | None = None
    traffic: MeasuredTraffic | None = None

    def finds_swaps(self, now: int, sweep_ms: int) -> bool:
        """Whether the sweep may rely on it: it was complete recently, or only lacks calls.

        Where calls are few, forty lists would take those that the network's one needs.
        """
        trusted_ms = max(TRUSTED_SWEEPS * sweep_ms, TRUSTED_MIN_MS)
        times = [at for at in (self.complete_at, self.limited_at) if at is not None]
        return self.way == "network" and any(0 <= now - at <= trusted_ms for at in times)


async def load_state(db: Database) -> FeedState:
    return state_of(await get_value(db, KEY))


def state_of(text: str | None) -> FeedState:
    """The kept state; a new one when there is none, or none that can be read."""
    if text is None:
        return FeedState()
    try:
        return FeedState.from_json(json.loads(text))
    except (ValueError, MalformedShape):
        return FeedState()


def save_state(db: Database, state: FeedState, now: int) -> Statement:
    return set_value(db, KEY, json.dumps(state.to_json()), now)
