"""How far lists of transactions were read: pure decisions, and the tables that keep the result between runs.

A *position* is a number of anchors and gaps. An anchor is a transaction in its block. A block's hash fixes everything
before it, so while an anchor is found where it was, nothing up to it has changed. A list is read from its head down to
an anchor. What is not read yet is a gap: it leads down to the next anchor, and is stored page by page, so reading may
stop after any page. This one rule covers gaps, floods of dust, and reorgs of any depth. If all anchors are gone:

- The list of a contract or wallet is read back to the start of the campaign. To keep that rare, only a transaction deep
  in the chain becomes its anchor. The part above the anchor is read on every visit.
- The network's list is followed from its head on (`restarted`), and the lists of contracts and wallets cover what is
  below. The first row of its head, and of the first whole block of every other page, becomes an anchor. Few are kept,
  fewer further down, so the cost of a reorg is proportional to its depth. A look that does not reach an anchor leaves a
  gap, and the next look begins at the head again: the newest transactions come first, and gaps are filled after them.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from holdfast.types import Database, Row, Statement
from tocsin.errors import MalformedShape
from tocsin.shape import SnakeShape
from tocsin.sql import read_queries
from tocsin.stacks import Page, Transaction
from tocsin.swaps.rules import Rules

Source: TypeAlias = Literal["network", "contracts"]
Place: TypeAlias = tuple[int, int]  # height, index in the block

ABOVE_ALL: Place = (2**53 - 1, 0)
BELOW_ALL: Place = (-1, 0)

DEEP_BLOCKS = 100  # about 8 minutes; a deeper reorg costs reading a list again, not a swap
DEEP_S = 1_800  # by burn block time, if nothing newer shows how deep a block is
DAY_MS = 86_400_000
FIRST_MEASURE_MS = 600_000
MEASURE_MS = 3_600_000
TRUSTED_SWEEPS = 2  # if incomplete for this many of its cadences, the sweep reads the contracts' lists itself
TRUSTED_MIN_MS = 180_000  # several looks of the default cadence, however short the sweep's cadence is
MONTH_MS = 30 * DAY_MS
FAILURES_MAX = 5  # in a row, after which a wallet's visits are no longer urgent
FEED_KEY = "competition_feed"

ENDS_EARLY = "hiro broke its contract: the list of all transactions ends too early"
NOT_DOWN = "hiro broke its contract: its cursor leads to no older transactions"

SQL = read_queries(__file__)


@dataclass(frozen=True, slots=True)
class Anchor:
    """A transaction of a list, in its block."""

    txid: str
    block_hash: str
    height: int
    tx_index: int

    @property
    def place(self) -> Place:
        return (self.height, self.tx_index)


@dataclass(frozen=True, slots=True)
class Gap:
    """An unread stretch: from below `bottom` down to the next anchor. `cursor` leads there."""

    cursor: str
    bottom: Place


@dataclass(frozen=True, slots=True)
class Position(SnakeShape):
    """Anchors and gaps, newest first."""

    anchors: tuple[Anchor, ...] = ()
    gaps: tuple[Gap, ...] = ()

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
        return next((anchor.height for anchor in self.anchors if anchor.place < lowest), None)

    def without(self, gap: Gap) -> "Position":
        """Return the position without a gap whose cursor is refused: all above its end is read again from the head."""
        return Position(
            tuple(anchor for anchor in self.anchors if anchor.place < gap.bottom),
            tuple(other for other in self.gaps if other.bottom < gap.bottom),
        )

    def with_gaps(self, gaps_max: int) -> "Position":
        """Return the position with at most this many gaps: what is between the lowest ones is read again."""
        anchors, gaps = self.anchors, self.gaps
        while len(gaps) > gaps_max:
            upper, lower = gaps[-2:]
            anchors = tuple(each for each in anchors if not lower.bottom <= each.place < upper.bottom)
            gaps = gaps[:-1]
        return Position(anchors, gaps)

    def thinned(self) -> "Position":
        """Return the position without unneeded anchors: few far below the head, and one below each gap."""
        if not self.anchors:
            return self
        needed = {0} | {_below(self.anchors, gap.bottom) for gap in self.gaps}
        shallowest: dict[int, int] = {}
        deepest: dict[int, int] = {}
        for number, anchor in enumerate(self.anchors):
            distance = max(0, self.anchors[0].height - anchor.height).bit_length()
            shallowest.setdefault(distance, number)
            deepest[distance] = number  # as the head moves on, it becomes the next distance's anchor
        needed |= {*shallowest.values(), *deepest.values()}
        return Position(tuple(anchor for at, anchor in enumerate(self.anchors) if at in needed), self.gaps)


def _below(anchors: Sequence[Anchor], place: Place) -> int:
    return next((at for at, anchor in enumerate(anchors) if anchor.place < place), -1)


@dataclass(frozen=True, slots=True)
class Step:
    """The result of a page: new rows, the stretch of the chain that it covers, and the position after it."""

    fresh: tuple[Transaction, ...]
    above: Place  # the stretch starts after this
    below: Place  # and ends before this
    position: Position
    done: bool  # this page leaves no gap
    restarted: bool = False
    wrong: str | None = None  # why the page cannot be right: it could keep us busy, or make the chain seem to end


def take_page(
    before: Position,
    page: Page[Transaction],
    gap: Gap | None,
    start_s: int,
    deep: Callable[[Transaction], bool] | None = None,
) -> Step:
    """Process the page at the head of a list, or the one that a gap's cursor leads to.

    `deep` selects the anchor of a contract's or wallet's list; None: it is the network's list.
    """
    below = ABOVE_ALL if gap is None else gap.bottom
    higher = [anchor for anchor in before.anchors if anchor.place >= below]
    lower = [anchor for anchor in before.anchors if anchor.place < below]
    if not page.items and deep is None:  # it shows nothing
        return Step((), below, below, before, done=gap is None, wrong=ENDS_EARLY if lower else None)
    fresh, end = _down_to_anchor(page, lower, start_s)
    bottom = anchor_at(page.items[-1]).place if page.items else below
    repeats = deep is None and any(anchor_at(row).place >= below for row in page.items)
    wrong = None
    if end is None and page.next_cursor is None:
        wrong = ENDS_EARLY if lower and deep is None else None  # no reorg can do that to the network's list
        end = BELOW_ALL
    if gap is not None and (repeats or (end is None and bottom >= below)):
        wrong = wrong or NOT_DOWN
    restarted = end is None and not lower and deep is None
    above = (bottom[0], bottom[1] - 1) if end is None else end  # the last row itself is part of the stretch
    passed = BELOW_ALL if restarted else above
    gaps = [each for each in before.gaps if each.bottom > below or each.bottom <= passed]
    if end is None and not restarted and page.next_cursor is not None:
        gaps.append(Gap(page.next_cursor, bottom))
    gaps.sort(key=lambda each: each.bottom, reverse=True)
    if deep is None:
        higher += [anchor_at(row) for row in fresh if gap is None or _ends_block(row, page.items[0])][:1]
        position = Position((*higher, *lower), tuple(gaps)).thinned()
    else:
        higher = (higher or [anchor_at(row) for row in fresh if deep(row)])[:1]
        lower = [] if end == BELOW_ALL else lower
        position = Position((*higher, *lower)[: 1 if end is not None else None], tuple(gaps))
    return Step(tuple(fresh), above, below, position, end is not None or restarted, restarted, wrong)


def _down_to_anchor(
    page: Page[Transaction], lower: list[Anchor], start_s: int
) -> tuple[list[Transaction], Place | None]:
    """Return the rows above the next anchor or the start, and the place where they end; None: that is further down.

    Removes the anchors that a reorg has removed.
    """
    fresh: list[Transaction] = []
    for row in page.items:
        here = anchor_at(row)
        while lower and lower[0] != here and lower[0].place >= here.place:
            lower.pop(0)  # it should have appeared by now
        if lower and lower[0] == here:
            return fresh, here.place
        if row.mined is not None and row.mined.burn_block_time < start_s:
            return fresh, BELOW_ALL
        fresh.append(row)
    return fresh, None


def _ends_block(row: Transaction, first: Transaction) -> bool:
    """Return whether the row is the last of its block: a gap's page may begin in the middle of a block."""
    return anchor_at(row).height < anchor_at(first).height


def is_deep(row: Transaction, tip: int, now: int) -> bool:
    """Return whether a transaction is deep enough to become an anchor. `tip` is the greatest height seen anywhere."""
    mined = row.mined
    assert mined is not None, "lists hold mined transactions only"
    return mined.height <= tip - DEEP_BLOCKS or mined.burn_block_time <= now // 1000 - DEEP_S


def anchor_at(row: Transaction) -> Anchor:
    assert row.mined is not None, "lists hold mined transactions only"
    return Anchor(row.tx_id, row.mined.block_hash, row.mined.height, row.mined.tx_index)


# The lists of contracts and wallets


@dataclass(frozen=True, slots=True)
class Mark:
    """How far the list of a contract or wallet was read. `tried_at` is when it was last requested.

    `looked_at` is when its head was last read, and `walked_at` when the newest completed reading began there: it may
    not have shown newer transactions.
    """

    position: Position = field(default_factory=Position)
    looked_at: int | None = None
    walked_at: int | None = None
    failures: int = 0
    tried_at: int | None = None

    @property
    def gap(self) -> Gap | None:
        """The gap of a reading under way: it is continued before the head is read again."""
        return self.position.gaps[0] if self.position.gaps else None


def after(mark: Mark, taken: Step, now: int) -> Mark:
    """Return the mark after a page that was read now."""
    looked_at = mark.looked_at if mark.gap else now
    if taken.done:
        return Mark(taken.position, looked_at, walked_at=looked_at, tried_at=now)
    return replace(mark, position=taken.position, looked_at=looked_at, tried_at=now)


async def load_marks(db: Database, rules: Rules, principals: Iterable[str] | None = None) -> dict[str, Mark]:
    """Return the marks of these principals, by default of all. Under other rules than a mark's, nothing was read."""
    if principals is None:
        asked = db.prepare(SQL["marks"])
    else:
        asked = db.prepare(SQL["marks_of"]).bind(json.dumps(list(principals)))
    return {row["principal"]: _mark(row, rules) for row in (await asked.all()).results}


def _mark(row: Row, rules: Rules) -> Mark:
    if row["rules"] != rules.for_principal(row["principal"]):
        return Mark(failures=row["failures"], tried_at=row["tried_at"])
    stored = row["position_json"]
    position = Position() if stored is None else Position.from_json(json.loads(stored))
    return Mark(position, row["looked_at"], row["walked_at"], row["failures"], row["tried_at"])


def save_mark(db: Database, principal: str, rules: Rules, mark: Mark) -> Statement:
    values = (json.dumps(mark.position.to_json()), mark.looked_at, mark.walked_at, mark.tried_at)
    return db.prepare(SQL["save_mark"]).bind(principal, rules.for_principal(principal), *values)


def count_failure(db: Database, principal: str, rules: Rules, now: int, *, before: int = 0) -> Statement:
    """Add one failure, and those from `before`, which saving a mark has reset in the same run."""
    return db.prepare(SQL["count_failure"]).bind(principal, rules.for_principal(principal), before + 1, now)


async def list_ages(db: Database, contracts: Iterable[str]) -> dict[str, int | None]:
    """Return when each contract's list was last read to its end: those never read come first, then the oldest."""
    names = sorted(contracts)
    rows = (await db.prepare(SQL["marks_of"]).bind(json.dumps(names)).all()).results
    read_at = {row["principal"]: row["walked_at"] for row in rows}
    return {name: read_at.get(name) for name in sorted(names, key=lambda name: read_at.get(name) or 0)}


# The network's list


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


@dataclass(frozen=True, slots=True)
class FeedState(SnakeShape):
    """The state of the feed. `source` names the lists that find the swaps: the network's, or those of the contracts.

    `started_at`: when the list began to be followed without a break. `looked_at`: the newest look at its head; None if
    what it showed must be read again.
    `complete_at`: the newest look below which nothing is unread, if its newest block was not old. `newest_s`: the time
    of that block (unix s). `limited_at`: when calls were last refused. `asked_at`: while Hiro does not have the list,
    when it was last asked for. `rests_on`: the rules under which all contracts' lists were read since `started_at`,
    which proves that nothing before it is missing either.
    """

    source: Source = "network"
    reason: str = ""
    position: Position = field(default_factory=Position)
    newest_s: int | None = None
    started_at: int | None = None
    looked_at: int | None = None
    complete_at: int | None = None
    limited_at: int | None = None
    asked_at: int | None = None
    rests_on: str | None = None
    traffic: MeasuredTraffic | None = None

    @property
    def blocks_behind(self) -> int:
        """The number of blocks between the newest one seen and the one up to which everything was read."""
        top, complete = self.position.top_block, self.position.complete_block
        return 0 if self.source != "network" or top is None or complete is None else top - complete

    def finds_swaps(self, now: int, sweep_ms: int) -> bool:
        """Return whether the sweep may rely on the feed: it was complete recently, or only lacks calls.

        When calls are scarce, reading forty lists would take the calls that the network's list needs.
        """
        trusted_ms = max(TRUSTED_SWEEPS * sweep_ms, TRUSTED_MIN_MS)
        times = [at for at in (self.complete_at, self.limited_at) if at is not None]
        return self.source == "network" and any(0 <= now - at <= trusted_ms for at in times)


async def load_state(db: Database) -> FeedState:
    return state_of(await get_value(db, FEED_KEY))


def state_of(text: str | None) -> FeedState:
    """Return the stored state; a new one if there is none or it cannot be read."""
    if text is None:
        return FeedState()
    try:
        return FeedState.from_json(json.loads(text))
    except (ValueError, MalformedShape):
        return FeedState()


def save_state(db: Database, state: FeedState, now: int) -> Statement:
    return set_value(db, FEED_KEY, json.dumps(state.to_json()), now)


# Single values that outlive a run, in the table `competition_state`


async def get_value(db: Database, key: str) -> str | None:
    row = await ask_for_values(db, key).first()
    return None if row is None else row["value"]


def ask_for_values(db: Database, *keys: str) -> Statement:
    """Return a query for rows of `key` and `value`; a key without a value has no row."""
    return db.prepare(SQL["values"]).bind(json.dumps(keys))


def set_value(db: Database, key: str, value: str, now: int) -> Statement:
    return db.prepare(SQL["set_value"]).bind(key, value, now)


def clear_value(db: Database, key: str) -> Statement:
    return db.prepare(SQL["clear_value"]).bind(key)
