"""The state of the network's list that is kept between runs, as one value in the database."""

import json
from dataclasses import dataclass, field

from tocsin.bindings import Database, Statement
from tocsin.competition.feed_choice import MeasuredTraffic, Way
from tocsin.competition.feed_mark import FeedMark
from tocsin.competition.kept_values import get_value, set_value
from tocsin.errors import MalformedShape
from tocsin.shapes.base import SnakeShape

KEY = "competition_feed"
TRUSTED_SWEEPS = 2  # if incomplete for this many of its cadences, the sweep reads the contracts' lists itself
TRUSTED_MIN_MS = 180_000  # several looks of the default cadence, however short the sweep's cadence is


@dataclass(frozen=True, slots=True)
class FeedState(SnakeShape):
    """The state of the feed.

    `started_at`: when the list began to be followed without a break. `looked_at`: the newest look at its head; None if
    what it showed must be read again.
    `complete_at`: the newest look below which nothing is unread, if its newest block was not old. `newest_s`: the time
    of that block (unix s). `limited_at`: when calls were last refused. `asked_at`: while the other way is used, when
    the length of the list was last read. `rests_on`: the rules under which all contracts' lists were read since
    `started_at`, which proves that nothing before it is missing either.
    """

    way: Way = "network"
    reason: str = ""
    mark: FeedMark = field(default_factory=FeedMark)
    newest_s: int | None = None
    started_at: int | None = None
    looked_at: int | None = None
    complete_at: int | None = None
    limited_at: int | None = None
    asked_at: int | None = None
    rests_on: str | None = None
    traffic: MeasuredTraffic | None = None

    def finds_swaps(self, now: int, sweep_ms: int) -> bool:
        """Return whether the sweep may rely on the feed: it was complete recently, or only lacks calls.

        When calls are scarce, reading forty lists would take the calls that the network's list needs.
        """
        trusted_ms = max(TRUSTED_SWEEPS * sweep_ms, TRUSTED_MIN_MS)
        times = [at for at in (self.complete_at, self.limited_at) if at is not None]
        return self.way == "network" and any(0 <= now - at <= trusted_ms for at in times)


async def load_state(db: Database) -> FeedState:
    return state_of(await get_value(db, KEY))


def state_of(text: str | None) -> FeedState:
    """Return the stored state; a new one if there is none or it cannot be read."""
    if text is None:
        return FeedState()
    try:
        return FeedState.from_json(json.loads(text))
    except (ValueError, MalformedShape):
        return FeedState()


def save_state(db: Database, state: FeedState, now: int) -> Statement:
    return set_value(db, KEY, json.dumps(state.to_json()), now)
