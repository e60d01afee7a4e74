"""The state of the network's list between runs: how far it was read, which way finds swaps, and how busy it is. Pure.

The list is read from its head down to an anchor: a transaction that is still in the block in which it was seen. A
block's hash fixes everything before it, so nothing has changed below an anchor. The first row of the head, and of the
first whole block of every other page, becomes an anchor. Few anchors are kept, fewer further down, so the cost of a
reorg is proportional to its depth. If a reorg is deeper than all anchors, or nothing was read yet, the list is followed
from its head on (`restarted`), and the lists of contracts and wallets cover what is below. A look that does not reach
an anchor leaves a gap, and the next look begins at the head again: the newest transactions come first, and gaps are
filled after them. If there are too many gaps, the lowest are joined.

The network's list costs one call for fifty transactions of anybody, however many contracts and wallets there are. The
contracts' lists cost one call for each contract in every sweep, however busy the network is. The cheaper way is used.
Both costs are compared at the cadence of the sweep; two thresholds keep the choice from flapping. If the server does
not have the network's list, there is no choice, and Tocsin asks again from time to time.

The state is one of the single values that outlive a run, in the table `competition_state`.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from holdfast.types import Database, Statement
from tocsin.errors import MalformedShape
from tocsin.shape import SnakeShape
from tocsin.stacks import Page, Transaction
from tocsin.swaps.walk import ABOVE_ALL, BELOW_ALL, DAY_MS, Anchor, Position, anchor_at
from tocsin.upstream.hiro import LIST_PAGE

Way: TypeAlias = Literal["network", "contracts"]

LEAVE_AT = 1.25  # leave the network's list when it costs this many times as much as the contracts'
RETURN_AT = 0.8  # and return to it at this
FIRST_MEASURE_MS = 600_000
MEASURE_MS = 3_600_000
ASK_AGAIN_MS = 3_600_000  # how often one call asks for the network's list while the other way is used
TRUSTED_SWEEPS = 2  # if incomplete for this many of its cadences, the sweep reads the contracts' lists itself
TRUSTED_MIN_MS = 180_000  # several looks of the default cadence, however short the sweep's cadence is
KEY = "competition_feed"

_GET = "SELECT value FROM competition_state WHERE key = ?"
_GET_MANY = "SELECT key, value FROM competition_state WHERE key IN (SELECT value FROM json_each(?))"
_SET = """
INSERT INTO competition_state (key, value, updated_at) VALUES (?, ?, ?)
ON CONFLICT (key) DO UPDATE SET value = excluded.value, updated_at = excluded.updated_at"""
_CLEAR = "DELETE FROM competition_state WHERE key = ?"


@dataclass(frozen=True, slots=True)
class MeasuredTraffic:
    """How busy the network is: the length of its list at a time, and the rate since an earlier time."""

    at: int
    total: int
    per_day: int | None = None


def measured(before: MeasuredTraffic | None, now: int, total: int) -> MeasuredTraffic:
    """Return the traffic after another reading of the list's length. If a reorg shortened it, measuring starts over."""
    if before is None or total < before.total or now < before.at:
        return MeasuredTraffic(now, total, None if before is None else before.per_day)
    elapsed = now - before.at
    if elapsed < (FIRST_MEASURE_MS if before.per_day is None else MEASURE_MS):
        return before
    return MeasuredTraffic(now, total, round((total - before.total) * DAY_MS / elapsed))


def network_calls(per_day: int, sweep_ms: int) -> float:
    """Return the calls a day that it takes to read the network's list once per sweep."""
    return per_day / LIST_PAGE + DAY_MS / sweep_ms


def contract_calls(contracts: int, sweep_ms: int) -> float:
    return contracts * DAY_MS / sweep_ms


def choose_way(way: Way, per_day: int | None, contracts: int, sweep_ms: int) -> tuple[Way, str]:
    """Return the way to use from now on, and why."""
    if per_day is None:
        return way, "the network's traffic is not measured yet"
    network, lists = network_calls(per_day, sweep_ms), contract_calls(contracts, sweep_ms)
    costs = (
        f"the network's {per_day:,} transactions a day are {network:,.0f} calls,"
        f" the lists of {contracts} contracts {lists:,.0f}"
    )
    if way == "network":
        return ("contracts" if network > LEAVE_AT * lists else "network"), costs
    return ("network" if network < RETURN_AT * lists else "contracts"), costs


@dataclass(frozen=True, slots=True)
class FeedGap:
    """An unread stretch: from below `bottom` down to the next anchor. `cursor` leads there."""

    cursor: str
    bottom: Position


@dataclass(frozen=True, slots=True)
class FeedMark:
    """Anchors and gaps, newest first."""

    anchors: tuple[Anchor, ...] = ()
    gaps: tuple[FeedGap, ...] = ()

    @property
    def top_block(self) -> int | None:
        """The newest block seen."""
        return self.anchors[0].height if self.anchors else None

    @property
    def complete_block(self) -> int | None:
        """The block up to which everything was read. An anchor is the last transaction of its block."""
        if not self.gaps:
            return self.top_block
        lowest = self.gaps[-1].bottom
        return next((anchor.height for anchor in self.anchors if anchor.position < lowest), None)

    def without(self, gap: FeedGap) -> "FeedMark":
        """Return the mark without a gap whose cursor is not accepted: all above its end is read again from the head."""
        return FeedMark(
            tuple(anchor for anchor in self.anchors if anchor.position < gap.bottom),
            tuple(other for other in self.gaps if other.bottom < gap.bottom),
        )


@dataclass(frozen=True, slots=True)
class FeedStep:
    """The result of a page: new rows, the stretch of the chain that it covers, and the mark after it."""

    fresh: tuple[Transaction, ...]
    above: Position  # the stretch starts after this
    below: Position  # and ends before this
    mark: FeedMark
    done: bool  # no gap is left behind
    restarted: bool = False
    ends_early: bool = False  # the list ends above an anchor; no reorg can cause that, so the page is wrong


def take_page(mark: FeedMark, page: Page[Transaction], gap: FeedGap | None, start_s: int) -> FeedStep:
    """Process the page at the head of the list, or the one that a gap's cursor leads to."""
    below = ABOVE_ALL if gap is None else gap.bottom
    if not page.items:  # it shows nothing
        early = any(anchor.position < below for anchor in mark.anchors)
        return FeedStep((), below, below, mark, done=gap is None, ends_early=early)
    higher = [anchor for anchor in mark.anchors if anchor.position >= below]
    lower = [anchor for anchor in mark.anchors if anchor.position < below]
    fresh: list[Transaction] = []
    reached = False
    above = BELOW_ALL
    for row in page.items:
        place = anchor_at(row)
        while lower and lower[0] != place and lower[0].position >= place.position:
            lower.pop(0)  # it should have appeared by now: a reorg removed it
        if lower and lower[0] == place:
            reached, above = True, place.position
            break
        if row.mined is not None and row.mined.burn_block_time < start_s:
            reached = True
            break
        fresh.append(row)
    ends_early = not reached and page.next_cursor is None and bool(lower)
    reached = reached or page.next_cursor is None
    restarted = not reached and not lower
    bottom = anchor_at(page.items[-1]).position
    if not reached:
        above = (bottom[0], bottom[1] - 1)  # the last row itself is part of the stretch
    passed = BELOW_ALL if restarted else above
    gaps = [each for each in mark.gaps if each.bottom > below or each.bottom <= passed]
    if not reached and not restarted:
        assert page.next_cursor is not None
        gaps.append(FeedGap(page.next_cursor, bottom))
    higher += [anchor_at(row) for row in fresh if gap is None or _ends_block(row, page.items[0])][:1]
    gaps.sort(key=lambda each: each.bottom, reverse=True)
    new = thinned(FeedMark((*higher, *lower), tuple(gaps)))
    return FeedStep(tuple(fresh), above, below, new, reached or restarted, restarted, ends_early)


def joined(mark: FeedMark, gaps_max: int) -> FeedMark:
    """Return the mark with at most this many gaps: the lowest are joined, and the parts between them are read again."""
    anchors, gaps = mark.anchors, mark.gaps
    while len(gaps) > gaps_max:
        upper, lower = gaps[-2:]
        anchors = tuple(each for each in anchors if not lower.bottom <= each.position < upper.bottom)
        gaps = gaps[:-1]
    return FeedMark(anchors, gaps)


def thinned(mark: FeedMark) -> FeedMark:
    """Return the mark without unneeded anchors: it keeps few far below the head, and one below each gap."""
    if not mark.anchors:
        return mark
    needed = {0} | {_below(mark.anchors, gap.bottom) for gap in mark.gaps}
    shallowest: dict[int, int] = {}
    deepest: dict[int, int] = {}
    for number, anchor in enumerate(mark.anchors):
        kind = max(0, mark.anchors[0].height - anchor.height).bit_length()
        shallowest.setdefault(kind, number)
        deepest[kind] = number  # as the head moves on, it becomes the next kind's anchor
    needed |= {*shallowest.values(), *deepest.values()}
    return FeedMark(tuple(anchor for at, anchor in enumerate(mark.anchors) if at in needed), mark.gaps)


def _ends_block(row: Transaction, first: Transaction) -> bool:
    """Return whether the row is the last of its block: a gap's page may begin in the middle of a block."""
    return anchor_at(row).height < anchor_at(first).height


def _below(anchors: Sequence[Anchor], position: Position) -> int:
    return next((at for at, anchor in enumerate(anchors) if anchor.position < position), -1)


async def get_value(db: Database, key: str) -> str | None:
    row = await db.prepare(_GET).bind(key).first()
    return None if row is None else row["value"]


def ask_for_values(db: Database, *keys: str) -> Statement:
    """Return a query for rows of `key` and `value`; a key without a value has no row."""
    return db.prepare(_GET_MANY).bind(json.dumps(keys))


def set_value(db: Database, key: str, value: str, now: int) -> Statement:
    return db.prepare(_SET).bind(key, value, now)


def clear_value(db: Database, key: str) -> Statement:
    return db.prepare(_CLEAR).bind(key)


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
