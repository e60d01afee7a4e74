"""The state of the network's list: how far it was read, and the way in which swaps are found."""

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.types import Clock
from stacks_simulator.traffic import Traffic, start_traffic
from support.competition import World, as_rows, feed, follow, followed, number, sweep
from support.competition import transaction as listed
from tocsin.fetch import FetchResponse
from tocsin.stacks import MinedAt, Page, Transaction
from tocsin.swaps.feed_state import (
    FeedGap,
    FeedMark,
    FeedState,
    FeedStep,
    MeasuredTraffic,
    choose_way,
    joined,
    load_state,
    measured,
    network_calls,
    save_state,
    take_page,
    thinned,
)
from tocsin.swaps.rules import built_in
from tocsin.swaps.walk import Anchor, Position, anchor_at

START_S = 1_000
GAPS_MAX = 8
ALL = 10**9  # an index that no block has
TOP, BOTTOM = (2**53 - 1, 0), (-1, 0)
CONTRACTS = len(built_in().contracts)
NETWORK_LIST = "/extended/v3/transactions"
HOUR_S = 3_600
QUARTER_MS = 900_000  # 96 sweeps a day: forty contracts are 3,840 calls
NOW = 1_778_700_600_000
MINUTE = 60_000
SWEEP_MS = 15 * MINUTE


# A small chain, the list of all its transactions, and a reader that drives `take_page` as the feed does


def transaction(number: int, height: int, index: int, fork: int, time_s: int = START_S) -> Transaction:
    return listed(f"0x{number:x}", "S", mined=MinedAt(height, f"{height}/{fork}", index, time_s))


@dataclass
class ModelChain:
    """Blocks with transactions. `page` is what the list shows: its cursors are positions, like Hiro's."""

    page_rows: int = 5
    height: int = 100
    rows: list[Transaction] = field(default_factory=list)  # oldest first
    made: int = 0
    forks: int = 0

    def grow(self, *sizes: int, time_s: int = START_S) -> None:
        """Add a block for each size."""
        for size in sizes:
            self.height += 1
            for index in range(size):
                self.made += 1
                self.rows.append(transaction(self.made, self.height, index, self.forks, time_s))

    def reorg(self, depth: int) -> None:
        """Remove the newest blocks; the blocks that follow reuse some of their heights."""
        self.forks += 1
        self.height = max(100, self.height - depth)
        while self.rows and position(self.rows[-1])[0] > self.height:
            self.rows.pop()

    def page(self, cursor: str | None = None, lag: int = 0) -> Page[Transaction]:
        """Return a page of five rows instead of fifty. With a lag the newest blocks are not shown yet."""
        end = bisect_right(self.rows, (self.height - lag, ALL), key=position)
        if cursor is not None:
            height, index = cursor.split(":")
            end = min(end, bisect_right(self.rows, (int(height), int(index)), key=position))
        first = max(0, end - self.page_rows)
        next_cursor = "{}:{}".format(*position(self.rows[first - 1])) if first else None
        return Page(tuple(reversed(self.rows[first:end])), next_cursor)

    def has(self, anchor: Anchor) -> bool:
        """Return whether it is still in its block."""
        at = bisect_left(self.rows, anchor.position, key=position)
        return self.rows[at : at + 1] != [] and anchor_at(self.rows[at]) == anchor


def position(row: Transaction) -> Position:
    assert row.mined is not None
    return row.mined.position


def place(row: Transaction) -> tuple[str, str]:
    """A transaction in its block."""
    assert row.mined is not None
    return row.tx_id, row.mined.block_hash


@dataclass
class ModelReader:
    """Reads the list: the head first, then the newest gap, as `feed.py` does."""

    chain: ModelChain
    mark: FeedMark = field(default_factory=FeedMark)
    seen: set[tuple[str, str]] = field(default_factory=set)
    steps: list[FeedStep] = field(default_factory=list)
    since: Position = (0, 0)  # the lists of contracts cover everything below this
    top: Position = (0, 0)  # of the newest look
    rows_read: int = 0
    looked: bool = False  # in the newest run

    def run(self, pages_max: int, lag: int = 0) -> None:
        """Do a run. After a run that left a gap, a page of the gap comes before the head."""
        pages = 0
        if self.mark.gaps and self.looked:
            self._take(self.chain.page(self.mark.gaps[0].cursor, lag), self.mark.gaps[0])
            pages += 1
        self.looked = pages < pages_max
        if self.looked:
            self._take(self.chain.page(lag=lag), None)
            pages += 1
        while self.mark.gaps and pages < pages_max:
            gap = self.mark.gaps[0]
            self._take(self.chain.page(gap.cursor, lag), gap)
            pages += 1

    def refuse_cursor(self) -> None:
        """Refuse the newest gap's cursor."""
        if self.mark.gaps:
            self._read_again_above(self.mark.gaps[0])

    def _read_again_above(self, gap: FeedGap) -> None:
        """Mark everything above the gap as unread until the next look: without the gap, the mark covers none of it."""
        self.mark = self.mark.without(gap)
        self.top = self.mark.anchors[0].position if self.mark.anchors else self.since

    def _take(self, page: Page[Transaction], gap: FeedGap | None) -> None:
        taken = take_page(self.mark, page, gap, START_S)
        self.rows_read += len(page.items)
        self.steps.append(taken)
        if taken.ends_early:  # feed.py refuses it; the mark stays
            if gap is not None:  # the cursor leads nowhere in this model: read from the head again
                self._read_again_above(gap)
            return
        self.mark = joined(taken.mark, GAPS_MAX)
        self.seen |= {place(row) for row in taken.fresh}
        if gap is None and page.items:
            self.top = position(page.items[0])
        if taken.restarted:
            self.since = position(page.items[-1])

    def unread(self) -> list[Transaction]:
        """Return transactions between the restart and the newest look that were never returned and are in no gap."""
        return [
            row
            for row in self.chain.rows
            if self.since <= position(row) <= self.top
            and place(row) not in self.seen
            and not self.in_a_gap(position(row))
        ]

    def in_a_gap(self, at: Position) -> bool:
        """Return whether it is in a declared gap: below its bottom and above the next anchor that still exists."""
        anchors = [anchor for anchor in self.mark.anchors if self.chain.has(anchor)]
        for gap in self.mark.gaps:
            floor = next((anchor.position for anchor in anchors if anchor.position < gap.bottom), (0, 0))
            if floor < at < gap.bottom:
                return True
        return False


Event: TypeAlias = tuple[Literal["grow", "reorg", "run", "lag", "refuse"], int]


events = st.lists(
    st.one_of(
        st.tuples(st.just("grow"), st.integers(1, 25)),
        st.tuples(st.just("grow"), st.integers(1, 25)),
        st.tuples(st.just("run"), st.integers(1, 6)),
        st.tuples(st.just("run"), st.integers(1, 6)),
        st.tuples(st.just("reorg"), st.sampled_from((1, 2, 3, 5, 8, 13, 30, 500))),
        st.tuples(st.just("lag"), st.integers(1, 6)),
        st.tuples(st.just("refuse"), st.just(0)),
    ),
    max_size=40,
)


def happen(reader: ModelReader, event: Event, sizes: st.DataObject | None = None) -> None:
    kind, amount = event
    if kind == "grow":
        blocks = [1] * amount if sizes is None else sizes.draw(st.lists(st.integers(0, 7), min_size=1, max_size=6))
        reader.chain.grow(*blocks)
    elif kind == "reorg":
        reader.chain.reorg(amount)
        reader.chain.grow(1)  # a chain is only replaced by one that has something
    elif kind == "run":
        reader.run(amount)
    elif kind == "lag":
        reader.run(3, lag=amount)
    else:
        reader.refuse_cursor()


@pytest.mark.slow
@settings(max_examples=400)
@given(data=st.data(), history=events)
def test_nothing_is_passed_over(data: st.DataObject, history: list[Event]) -> None:
    """Below the newest look and above the restart, everything is in a gap or was returned in its block."""
    reader = ModelReader(ModelChain())
    reader.chain.grow(3, 3, 3, 3, 3, 3)
    reader.run(1)
    for event in history:
        happen(reader, event, data)
        if event[0] == "run":
            assert_in_order(reader.mark)
            if current(reader):
                assert reader.unread() == []
                assert_complete(reader)
    for _ in range(60):
        reader.run(6)
        if not reader.mark.gaps:
            break
    reader.run(6)

    newest = position(reader.chain.rows[-1])
    assert reader.mark.gaps == ()
    assert reader.top == newest
    assert reader.unread() == []
    assert reader.mark.complete_block == newest[0]


def test_a_block_of_which_a_part_was_read_is_not_complete() -> None:
    """A page of a gap begins in the middle of a block that a reorg has put there; the rest of the block is in a gap."""
    reader = ModelReader(ModelChain())
    reader.chain.grow(3, 3, 3, 3, 3, 3)
    reader.run(1)
    reader.chain.grow(1, 5)
    reader.run(1)
    reader.chain.reorg(3)
    reader.chain.grow(1, 2, 1, 4)
    reader.run(2)

    assert place(reader.chain.rows[-6]) not in reader.seen  # the second of the block 107
    assert reader.mark.complete_block == 106
    assert_complete(reader)


def test_after_a_refused_cursor_the_head_is_read_again() -> None:
    """Even if the next run has a page only for an older gap."""
    reader = ModelReader(ModelChain())
    reader.chain.grow(3, 3, 3, 3, 3, 3)
    reader.run(1)
    reader.chain.grow(1, 7, 7, 6)
    for event in (("run", 1), ("lag", 1), ("run", 2), ("refuse", 0), ("run", 1)):
        happen(reader, event)

    assert reader.mark.complete_block == 109
    reader.run(6)
    assert reader.unread() == []
    assert reader.mark.complete_block == 110


def current(reader: ModelReader) -> bool:
    """Return whether the newest look saw the current chain."""
    return reader.chain.page().items[:1] == tuple(
        row for row in reader.chain.rows if position(row) == reader.top
    ) and any(place(row) in reader.seen for row in reader.chain.page().items[:1])


def assert_in_order(mark: FeedMark) -> None:
    """Anchors and gaps are newest first, and a gap ends at an anchor."""
    assert all(higher.position > lower.position for higher, lower in pairwise(mark.anchors))
    assert all(higher.bottom > lower.bottom for higher, lower in pairwise(mark.gaps))
    for gap in mark.gaps:
        assert any(anchor.position < gap.bottom for anchor in mark.anchors)


def assert_complete(reader: ModelReader) -> None:
    """What is called complete was read."""
    block = reader.mark.complete_block
    assert block is not None
    lowest = reader.mark.gaps[-1].bottom if reader.mark.gaps else None
    floor = next(a for a in reader.mark.anchors if lowest is None or a.position < lowest)
    if not reader.chain.has(floor):  # a reorg that is not read yet may have changed what is below the gap
        return
    assert all(
        place(row) in reader.seen
        for row in reader.chain.rows
        if reader.since <= position(row) and position(row)[0] <= block
    )


@pytest.mark.slow
def test_a_long_life_keeps_few_anchors() -> None:
    """Ten thousand looks over ten thousand blocks, with small reorgs and gaps: at most sixty anchors."""
    reader = ModelReader(ModelChain(page_rows=50))
    most = 0
    for look in range(10_000):
        reader.chain.grow(3)
        if look % 97 == 0:
            reader.chain.reorg(look % 7 + 1)
            reader.chain.grow(2)
        reader.chain.rows = reader.chain.rows[-600:]
        reader.run(2)
        most = max(most, len(reader.mark.anchors))

    assert 10 < most <= 60


@pytest.mark.slow
@pytest.mark.parametrize("age", [2_000, 2_001, 2_030, 2_047])
def test_a_reorg_costs_about_as_much_as_it_is_deep(age: int) -> None:
    """At most four times as many rows as it has removed blocks of one row, and two pages."""
    old = ModelReader(ModelChain(page_rows=20))
    for _ in range(age):
        old.chain.grow(1)
        old.run(1)
    costs = {}
    for depth in (1, 2, 3, 5, 9, 17, 33, 60, 100, 130, 250, 500, 700, 1_000, 1_500):
        chain = replace(old.chain, rows=list(old.chain.rows))
        reader = replace(old, chain=chain, seen=set(old.seen), rows_read=0)
        chain.reorg(depth)
        chain.grow(1)
        reader.run(1_000)
        costs[depth] = reader.rows_read
        assert not reader.steps[-1].restarted
        assert reader.mark.gaps == ()
        assert reader.unread() == []

    assert all(rows <= 4 * depth + 40 for depth, rows in costs.items()), costs


def test_a_reorg_deeper_than_all_anchors_restarts_at_the_head() -> None:
    """One page is read, and the lists of contracts have what is below."""
    reader = ModelReader(ModelChain())
    reader.chain.grow(*[1] * 30)
    for _ in range(20):
        reader.chain.grow(1)
        reader.run(5)
    reader.chain.reorg(40)
    reader.chain.grow(*[1] * 12)
    before = reader.rows_read
    reader.run(5)

    assert [step.restarted for step in reader.steps].count(True) == 2  # the first look, and this one
    assert reader.steps[-1].restarted
    assert reader.rows_read - before == 5
    assert reader.mark.gaps == ()
    assert reader.mark.top_block == reader.mark.complete_block == reader.chain.height
    assert reader.unread() == []


def test_the_newest_come_first_and_gaps_have_their_turn() -> None:
    """One page per run while each minute brings two: every second run reads the head, and later all gaps are filled."""
    reader = ModelReader(ModelChain())
    reader.chain.grow(*[1] * 10)
    reader.run(1)
    start = reader.chain.height
    heads, gaps = [], []
    for _ in range(60):
        reader.chain.grow(*[1] * 10)
        reader.run(1)
        heads.append(reader.top[0])
        gaps.append(len(reader.mark.gaps))
    behind = reader.mark.complete_block
    reader.run(1_000)

    assert heads[::2] == [start + 10 * number for number in range(1, 61, 2)]
    assert max(gaps) == 8
    assert behind == start
    assert reader.mark.gaps == ()
    assert reader.mark.complete_block == reader.chain.height
    assert reader.unread() == []


def test_a_gap_is_filled_by_one_call_in_each_run() -> None:
    """After a long stretch the network is calm: half of the calls read the head, the others fill the gap."""
    reader = ModelReader(ModelChain())
    reader.chain.grow(*[1] * 10)
    reader.run(1)
    reader.chain.grow(*[1] * 100)
    runs = 0
    reader.run(1)
    while reader.mark.gaps:
        reader.chain.grow(1)
        reader.run(1)
        runs += 1

    assert runs <= 2 * 21
    assert reader.unread() == []


def test_a_list_that_stops_above_an_anchor_ends_early() -> None:
    """No reorg can do that: the page is wrong, and so is an empty one."""
    reader = ModelReader(ModelChain())
    reader.chain.grow(*[1] * 20)
    reader.run(1)
    reader.chain.grow(*[1] * 4)
    whole = reader.chain.page()
    cut = replace(whole, items=whole.items[:2], next_cursor=None)
    empty: Page[object] = Page((), None)

    assert take_page(reader.mark, cut, None, START_S).ends_early
    assert not take_page(reader.mark, whole, None, START_S).ends_early
    for mark, gap, early in (
        (reader.mark, None, True),
        (reader.mark, FeedGap("124:0", (124, 0)), True),
        (FeedMark(), None, False),
    ):
        nothing = take_page(mark, empty, gap, START_S)  # type: ignore[arg-type]  # it has no items of any kind
        assert (nothing.fresh, nothing.mark, nothing.restarted, nothing.ends_early) == ((), mark, False, early)


def test_the_start_of_the_campaign_ends_the_list() -> None:
    """What is older is not returned, and no gap is left for it."""
    rows = [transaction(number, 200 - number, 0, 0, START_S - (number > 3)) for number in range(1, 6)]
    taken = take_page(FeedMark(), Page(tuple(rows), "1:0"), None, START_S)

    assert [row.tx_id for row in taken.fresh] == ["0x1", "0x2", "0x3"]
    assert (taken.done, taken.restarted, taken.mark.gaps) == (True, False, ())
    assert taken.mark.complete_block == 199


def test_the_same_transaction_in_another_block_is_not_an_anchor() -> None:
    """It was mined again: the part below it may have changed."""
    kept, moved = transaction(1, 100, 0, 0), transaction(2, 101, 0, 1)
    mark = FeedMark((Anchor("0x2", "101/0", 101, 0), Anchor("0x1", "100/0", 100, 0)))
    taken = take_page(mark, Page((moved, kept), "1:0"), None, START_S)

    assert taken.fresh == (moved,)
    assert (taken.above, taken.done) == ((100, 0), True)
    assert [anchor.block_hash for anchor in taken.mark.anchors] == ["101/1", "100/0"]


# One page in figures


def row(height: int, index: int = 0, time_s: int = START_S) -> Transaction:
    return transaction(height * 16 + index, height, index, 0, time_s)


def anchor(height: int, index: int = 0) -> Anchor:
    return anchor_at(row(height, index))


def gap(height: int, index: int = 0) -> FeedGap:
    return FeedGap(f"{height}:{index}", (height, index))


def mark(anchors: list[Anchor], *gaps: FeedGap) -> FeedMark:
    return FeedMark(tuple(anchors), gaps)


def taken(before: FeedMark, rows: list[Transaction], cursor: str | None, at: FeedGap | None = None) -> FeedStep:
    return take_page(before, Page(tuple(rows), cursor), at, START_S)


def test_the_page_at_the_head_comes_down_to_the_anchor() -> None:
    step = taken(mark([anchor(90), anchor(80)]), [row(95, 1), row(95), row(93), row(90), row(89)], "89:0")

    assert step.fresh == (row(95, 1), row(95), row(93))
    assert (step.above, step.below, step.done, step.restarted, step.ends_early) == ((90, 0), TOP, True, False, False)
    assert step.mark == mark([anchor(95, 1), anchor(90), anchor(80)])


def test_a_page_that_does_not_reach_an_anchor_leaves_a_gap_below_the_others() -> None:
    before = mark([anchor(90), anchor(80)], gap(85, 2))
    step = taken(before, [row(95), row(93, 4)], "93:4")

    assert (step.above, step.done, step.restarted) == ((93, 3), False, False)
    assert step.mark == mark([anchor(95), anchor(90), anchor(80)], gap(93, 4), gap(85, 2))


def test_an_anchor_whose_place_is_taken_is_dropped() -> None:
    before = mark([anchor(94), anchor(93), anchor(80)], gap(93, 5))
    step = taken(before, [row(95), row(93, 1)], "93:1")
    assert step.mark.anchors == (anchor(95), anchor(93), anchor(80))

    gone = taken(mark([replace(anchor(93), block_hash="x"), anchor(80)]), [row(95), row(93)], "93:0")
    assert gone.mark == mark([anchor(95), anchor(80)], gap(93))


def test_without_an_anchor_below_the_list_is_followed_from_its_head() -> None:
    step = taken(mark([anchor(99)], gap(98)), [row(95), row(93)], "93:0")

    assert (step.done, step.restarted, step.above) == (True, True, (93, -1))
    assert step.mark == mark([anchor(95)])


def test_a_gap_is_filled_from_its_cursor_on() -> None:
    """The anchors above it stay; the first row of a whole block becomes one."""
    before = mark([anchor(100), anchor(50)], gap(90, 3), gap(70))
    step = taken(before, [row(90, 3), row(90, 2), row(88, 1), row(88), row(87)], "87:0", gap(90, 3))

    assert len(step.fresh) == 5
    assert (step.above, step.below, step.done) == ((87, -1), (90, 3), False)
    assert step.mark == mark([anchor(100), anchor(88, 1), anchor(50)], gap(87), gap(70))


def test_an_anchor_at_the_end_of_a_gap_stays_above_it() -> None:
    before = mark([anchor(100), anchor(90, 3), anchor(50)], gap(90, 3))
    step = taken(before, [row(90, 3), row(88), row(50)], "49:0", gap(90, 3))

    assert step.mark == mark([anchor(100), anchor(90, 3), anchor(88), anchor(50)])


def test_a_gap_below_the_anchor_that_was_reached_stays() -> None:
    before = mark([anchor(100), anchor(50), anchor(40)], gap(90), gap(50))
    step = taken(before, [row(90), row(60), row(50)], "49:0", gap(90))

    assert step.mark.gaps == (gap(50),)


def test_a_gap_that_is_filled_takes_those_that_it_passed_with_it() -> None:
    before = mark([anchor(100), anchor(50)], gap(90), gap(70))
    step = taken(before, [row(90), row(71), row(60), row(50)], "49:0", gap(90))

    assert (step.above, step.done) == ((50, 0), True)
    assert step.mark == mark([anchor(100), anchor(71), anchor(50)])


@pytest.mark.parametrize(("time_s", "reached"), [(START_S, False), (START_S - 1, True)])
def test_the_campaigns_start_is_the_end_of_the_list(time_s: int, reached: bool) -> None:
    step = taken(FeedMark(), [row(95), row(94, 0, time_s), row(93)], "93:0")

    assert (len(step.fresh), step.restarted) == ((1, False) if reached else (3, True))
    assert step.above == (BOTTOM if reached else (93, -1))


def test_the_end_of_the_list_above_an_anchor_is_wrong() -> None:
    early = taken(mark([anchor(80)]), [row(95)], None)
    assert (early.done, early.ends_early, early.restarted, early.above) == (True, True, False, BOTTOM)
    assert early.mark == mark([anchor(95), anchor(80)])
    for anchors, last in (([], 95), ([anchor(80)], 80)):
        whole = taken(mark(anchors), [row(96), row(last)], None)
        assert (whole.done, whole.ends_early) == (True, False)


def test_an_empty_page_says_nothing() -> None:
    known = mark([anchor(90)], gap(95))
    for at, done, early, below in (
        (None, True, True, TOP),
        (gap(95), False, True, (95, 0)),
        (gap(90), False, False, (90, 0)),
        (gap(90, 1), False, True, (90, 1)),
    ):
        assert taken(known, [], None, at) == FeedStep((), below, below, known, done=done, ends_early=early)


def test_everything_is_read_up_to_the_anchor_below_the_lowest_gap() -> None:
    anchors = [anchor(100), anchor(90, 2), anchor(80)]
    for gaps, complete in (
        ((), 100),
        ((gap(95),), 90),
        ((gap(95), gap(90, 3)), 90),
        ((gap(95), gap(90, 2)), 80),
        ((gap(80),), None),
    ):
        assert mark(anchors, *gaps).complete_block == complete
    assert (FeedMark().complete_block, FeedMark().top_block, mark(anchors).top_block) == (None, None, 100)


def test_a_refused_cursor_forgets_what_is_above_its_gap() -> None:
    known = mark([anchor(100), anchor(90), anchor(89)], gap(95), gap(90), gap(85))
    assert known.without(gap(90)) == mark([anchor(89)], gap(85))
    assert known.without(gap(95)) == mark([anchor(90), anchor(89)], gap(90), gap(85))


def test_the_lowest_gaps_become_one() -> None:
    known = mark([anchor(100), anchor(90), anchor(85), anchor(80), anchor(70)], gap(95), gap(90), gap(85), gap(75))

    assert joined(known, 4) == known
    assert joined(known, 3) == mark([anchor(100), anchor(90), anchor(85), anchor(70)], gap(95), gap(90), gap(85))
    assert joined(known, 1) == mark([anchor(100), anchor(70)], gap(95))


def test_anchors_are_fewer_the_further_down() -> None:
    """The first and the last of each power of two below the head, and one below each gap."""
    heights = [100, 99, 98, 97, 96, 95, 94, 93, 92, 90, 88, 86]
    known = mark([anchor(height) for height in heights])

    assert [each.height for each in thinned(known).anchors] == [100, 99, 98, 97, 96, 93, 92, 86]
    with_gap = thinned(replace(known, gaps=(gap(95, 1), gap(90))))
    assert [each.height for each in with_gap.anchors] == [100, 99, 98, 97, 96, 95, 93, 92, 88, 86]
    assert thinned(FeedMark((), (gap(5),))) == FeedMark((), (gap(5),))
    odd = mark([anchor(9), anchor(12), anchor(11), anchor(8)])  # an anchor above the head counts as at it
    assert [each.height for each in thinned(odd).anchors] == [9, 11, 8]
    one_block = mark([anchor(100, 5), anchor(100, 3), anchor(100, 1)], gap(10))
    assert thinned(one_block).anchors == (anchor(100, 5), anchor(100, 1))


# The network's list or the contracts' lists


async def trade(world: World) -> None:
    """Make a new swap in a block of its own."""
    world.simulator.advance()
    world.simulator.chain.swap(world.simulator.chain.wallets[0])
    world.simulator.chain.mine()


@pytest.mark.slow
@pytest.mark.parametrize("state", ["absent", "gone"])
async def test_without_the_list_the_contracts_lists_are_read(state: str, tmp_path: Path) -> None:
    """The result has the reason; the list is asked for every hour, and followed when its traffic is known again."""
    async with followed(tmp_path, 2) as (world, _):
        world.simulator.hiro.set_network_list(state)
        left = await feed(world)
        await trade(world)
        swept = await sweep(world)
        found = len(await world.rows())
        before = world.calls()
        for _ in range(57):
            await world.clock.sleep(60)
            await feed(world)
        await world.clock.sleep(60)
        quiet = await feed(world)
        asked_within = world.calls() - before
        await world.clock.sleep(180)
        still = await feed(world)
        asked = world.calls() - before
        world.simulator.hiro.set_network_list("served")
        await world.clock.sleep(HOUR_S)
        await feed(world)  # the first look reads the length of the list, the next one shows the traffic
        await world.clock.sleep(HOUR_S)
        back = await feed(world)
        await trade(world)
        await world.clock.sleep(60)
        resumed = await feed(world)
        again = await sweep(world)
        rows = await world.rows()

    missing = "Hiro does not have the list of all transactions"
    assert (left.counters["way"], left.counters["reason"]) == ("contracts", missing)
    assert (left.error, left.incomplete, left.counters["completeUntilBlock"]) == (None, None, None)
    assert (swept.counters["way"], swept.counters["contractsScanned"]) == ("contracts", CONTRACTS)
    assert found == 1
    assert (asked_within, quiet.counters["way"], quiet.counters["reason"]) == (0, "contracts", missing)
    assert (asked, still.counters["way"]) == (1, "contracts")
    assert back.counters["way"] == "network"
    assert resumed.counters["inserted"] == 1
    assert (again.counters["way"], again.counters["contractsScanned"]) == ("network", CONTRACTS)
    assert rows == as_rows(world.simulator.chain.truth())
    changes = [line.fields["way"] for line in world.log.of("feed.way_changed")]
    assert changes == ["contracts", "network"]


@pytest.mark.slow
@pytest.mark.parametrize("state", ["absent", "gone"])
async def test_a_list_that_goes_away_while_much_is_unread(state: str, tmp_path: Path) -> None:
    """However many gaps there are, the way changes within a few runs, and nothing is lost."""
    async with followed(tmp_path, 2) as (world, _):
        kept = await load_state(world.db)
        (anchor, *_) = kept.mark.anchors
        gaps = tuple(FeedGap(f"{anchor.height + at}:0:1", (anchor.height + at, 1)) for at in range(20, 0, -2))
        now = world.clock.now()
        anchors = (*(replace(anchor, height=gap.bottom[0], tx_index=2) for gap in gaps), anchor)
        await save_state(world.db, replace(kept, mark=replace(kept.mark, gaps=gaps, anchors=anchors)), now).run()
        await trade(world)
        world.simulator.hiro.set_network_list(state)
        for _ in range(4):
            await feed(world)
            await world.clock.sleep(60)
        result = await feed(world)
        await sweep(world)
        rows = await world.rows()

    assert len(gaps) == 10
    assert result.counters["way"] == "contracts"
    assert rows == as_rows(world.simulator.chain.truth())


@pytest.mark.slow
async def test_a_list_that_fails_stays_the_way_and_the_sweep_takes_over(tmp_path: Path) -> None:
    """Errors and HTML do not mean that the list is gone. Without a look for half an hour the contracts are read."""
    async with followed(tmp_path, 2) as (world, _):

        def failing(url: str) -> FetchResponse | None:
            page = FetchResponse(500 + 2 * (len(url) % 2), {}, b"<html>Just a moment...</html>")
            return page if f"{NETWORK_LIST}?" in url else None

        ways = []
        with world.answering(failing):
            for _ in range(5):
                await trade(world)
                await feed(world)
                swept = await sweep(world)
                ways.append((swept.counters["way"], len(await world.rows())))
                await world.clock.sleep(900)
        result = await feed(world)
        back = await sweep(world)
        rows = await world.rows()

    assert [way for way, _ in ways] == ["network", "network", "contracts", "contracts", "contracts"]
    assert [found for _, found in ways][2:] == [3, 4, 5]
    assert (result.counters["way"], result.incomplete) == ("network", None)
    assert back.counters["way"] == "network"
    assert rows == as_rows(world.simulator.chain.truth())


@pytest.mark.slow
async def test_a_feed_that_does_not_run_leaves_the_contracts_to_the_sweep(tmp_path: Path) -> None:
    """Paused, or broken: two of the sweep's cadences are trusted, no more."""
    async with followed(tmp_path, 2) as (world, _):
        await feed(world)
        ways = []
        for _ in range(3):
            await world.clock.sleep(900)
            ways.append((await sweep(world)).counters["way"])
        await trade(world)
        await sweep(world)
        rows = await world.rows()

    assert ways == ["network", "network", "contracts"]
    assert rows == as_rows(world.simulator.chain.truth())


async def test_a_sweep_by_hand_reads_all_contracts(tmp_path: Path) -> None:
    async with followed(tmp_path, 2) as (world, _):
        await feed(world)
        await world.clock.sleep(900)
        usual = await sweep(world)
        by_hand = await sweep(world, world.run(by_hand=True))

    assert number(usual.counters, "contractsScanned") <= 1
    assert (by_hand.counters["way"], by_hand.counters["contractsScanned"]) == ("contracts", CONTRACTS)


class Growth:
    """Lets the network's list grow by so many more transactions a day, as its total says."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._base, self._since, self._per_day = 0.0, clock.now(), 0.0

    def set(self, per_day: float) -> None:
        self._base, self._since, self._per_day = self._more(), self._clock.now(), per_day

    def _more(self) -> float:
        return self._base + self._per_day * (self._clock.now() - self._since) / 86_400_000

    def __call__(self, _: str, body: dict[str, Any]) -> None:
        body["total"] += int(self._more())


@pytest.mark.slow
async def test_a_network_that_is_too_busy_is_left_and_found_again(tmp_path: Path) -> None:
    """A million transactions a day would be 20,000 calls; the contracts' lists are 4,000. A calm one is followed."""
    async with followed(tmp_path, 2) as (world, chain):
        others = Traffic(swaps=3, strangers=0, transfers=0, floods=0, reorgs=0, network=60)
        start_traffic(chain, others)
        growth = Growth(world.clock)
        with world.changing(f"{NETWORK_LIST}?", growth):
            growth.set(1_000_000.0)
            busy = [(await follow(world, 60))[-1].counters["way"] for _ in range(4)]
            growth.set(20_000.0)
            last = (await follow(world, 5 * 60))[-1]
        rows = await world.rows()
        swept = await sweep(world)

    assert busy == ["contracts"] * 4
    assert last.counters["way"] == "network"
    assert [line.fields["way"] for line in world.log.of("feed.way_changed")] == ["contracts", "network"]
    assert 15_000 < number(last.counters, "transactionsPerDay") < 25_000
    assert "transactions a day are" in str(last.counters["reason"])
    assert swept.counters["way"] == "network"
    assert rows == as_rows(chain.truth())
    assert len(rows) > 10


@pytest.mark.parametrize(
    ("way", "per_day", "chosen"),
    [
        ("network", None, "network"),
        ("contracts", None, "contracts"),
        ("network", 0, "network"),
        ("network", 235_100, "network"),  # 4,702 + 96 calls: just below 1.25 x 3,840
        ("network", 235_300, "contracts"),
        ("contracts", 235_300, "contracts"),
        ("contracts", 187_200, "contracts"),  # between the bounds the way stays
        ("network", 187_200, "network"),
        ("contracts", 148_900, "contracts"),  # 2,978 + 96: just above 0.8 x 3,840
        ("contracts", 148_700, "network"),
    ],
)
def test_the_way_is_left_and_returned_to_at_different_costs(way: Any, per_day: int | None, chosen: str) -> None:
    """Forty contracts, a sweep every quarter of an hour."""
    assert choose_way(way, per_day, 40, QUARTER_MS)[0] == chosen


def test_a_traffic_between_the_bounds_changes_nothing_ever() -> None:
    """From either side, a rate that swings between the bounds keeps the way."""
    for way in ("network", "contracts"):
        for per_day in (150_000, 230_000, 150_000, 230_000):
            assert choose_way(way, per_day, 40, QUARTER_MS)[0] == way


def test_traffic_is_measured_over_ten_minutes_first_and_then_over_hours() -> None:
    """Shorter times say little; a list that became shorter is measured from there."""
    first = measured(None, 0, 1_000)
    assert first == MeasuredTraffic(0, 1_000, None)
    assert measured(first, 599_999, 2_000) == first
    second = measured(first, 600_000, 1_100)
    assert second == MeasuredTraffic(600_000, 1_100, 14_400)
    assert measured(second, 4_199_999, 9_000) == second
    assert measured(second, 4_200_000, 2_100) == MeasuredTraffic(4_200_000, 2_100, 24_000)
    assert measured(second, 4_200_000, 900) == MeasuredTraffic(4_200_000, 900, 14_400)
    assert measured(second, 500_000, 2_000) == MeasuredTraffic(500_000, 2_000, 14_400)


@pytest.mark.parametrize("stored", ['{"mark": 7}', '{"mark": '])
async def test_a_state_that_cannot_be_read_is_begun_again(stored: str, tmp_path: Path) -> None:
    """As if the feed had never run: it restarts at the head, and the sweep reads everything."""
    async with followed(tmp_path, 1) as (world, _):
        statement = "UPDATE competition_state SET value = ? WHERE key = 'competition_feed'"
        await world.db.prepare(statement).bind(stored).run()
        state = await load_state(world.db)
        swept = await sweep(world)
        await world.clock.sleep(60)
        result = await feed(world)

    assert state == FeedState()
    assert swept.counters["way"] == "contracts"
    assert (result.counters["pages"], result.counters["completeUntilBlock"]) == (1, None)


def test_traffic_is_measured_after_ten_minutes_and_then_every_hour() -> None:
    """By the length of the list; a list that became shorter or a clock that was set back begins again."""
    first = measured(None, NOW, 1_000)
    early = measured(first, NOW + 10 * MINUTE - 1, 1_100)
    known = measured(first, NOW + 10 * MINUTE, 1_100)

    assert (first, early) == (MeasuredTraffic(NOW, 1_000), first)
    assert known == MeasuredTraffic(NOW + 10 * MINUTE, 1_100, 14_400)
    assert measured(known, NOW + 70 * MINUTE - 1, 9_999) == known
    assert measured(known, NOW + 70 * MINUTE, 1_700) == MeasuredTraffic(NOW + 70 * MINUTE, 1_700, 14_400)
    assert measured(known, NOW + 70 * MINUTE, 1_099) == MeasuredTraffic(NOW + 70 * MINUTE, 1_099, 14_400)
    assert measured(known, NOW, 1_100) == MeasuredTraffic(NOW, 1_100, 14_400)
    assert measured(known, NOW + 70 * MINUTE, 1_100) == MeasuredTraffic(NOW + 70 * MINUTE, 1_100, 0)


def test_the_way_that_costs_less_is_used_and_does_not_swing() -> None:
    """Ten contracts are 960 calls a day; the network's list is left at 1,200 of its own, and taken again below 768."""

    def way(now: Any, calls: int) -> str:
        return choose_way(now, (calls - 96) * 50, 10, SWEEP_MS)[0]

    assert network_calls(50_000, SWEEP_MS) == 1_096
    assert [way("network", calls) for calls in (960, 1_200, 1_201)] == ["network", "network", "contracts"]
    assert [way("contracts", calls) for calls in (960, 768, 767)] == ["contracts", "contracts", "network"]
    assert choose_way("network", None, 10, SWEEP_MS) == ("network", "the network's traffic is not measured yet")
    assert choose_way("network", 50_000, 10, SWEEP_MS)[1] == (
        "the network's 50,000 transactions a day are 1,096 calls, the lists of 10 contracts 960"
    )


@pytest.mark.parametrize(
    ("state", "age_ms", "sweep_ms", "relied"),
    [
        (FeedState(complete_at=NOW), 30 * MINUTE, SWEEP_MS, True),
        (FeedState(complete_at=NOW), 30 * MINUTE + 1, SWEEP_MS, False),
        (FeedState(complete_at=NOW), 3 * MINUTE, MINUTE, True),
        (FeedState(complete_at=NOW), 3 * MINUTE + 1, MINUTE, False),
        (FeedState(limited_at=NOW), 30 * MINUTE, SWEEP_MS, True),
        (FeedState(complete_at=NOW), -1, SWEEP_MS, False),
        (FeedState(complete_at=NOW, way="contracts"), 0, SWEEP_MS, False),
        (FeedState(), 0, SWEEP_MS, False),
    ],
)
def test_the_sweep_relies_on_the_feed_for_two_of_its_cadences(
    state: FeedState, age_ms: int, sweep_ms: int, *, relied: bool
) -> None:
    """Three minutes at least; then it reads the contracts' lists itself."""
    assert state.finds_swaps(NOW + age_ms, sweep_ms) is relied
