"""How far a list was read: whatever happens to the chain in between, no row is passed over."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Literal, TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.competition import chain_of, open_world
from support.competition import transaction as listed
from tocsin.stacks import MinedAt, Page, Transaction
from tocsin.swaps.position import (
    DEEP_BLOCKS,
    DEEP_S,
    ENDS_EARLY,
    NOT_DOWN,
    Anchor,
    Gap,
    Mark,
    Place,
    Position,
    Step,
    after,
    anchor_at,
    count_failure,
    is_deep,
    list_ages,
    load_marks,
    save_mark,
    take_page,
)

Deep: TypeAlias = Callable[[Transaction], bool] | None

START_S = 1_000
GAPS_MAX = 8
ALL = 10**9  # an index that no block has
TOP, BOTTOM = (2**53 - 1, 0), (-1, 0)
NOW = 9_000_000


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
        while self.rows and place(self.rows[-1])[0] > self.height:
            self.rows.pop()

    def page(self, cursor: str | None = None, lag: int = 0) -> Page[Transaction]:
        """Return a page of five rows instead of fifty. With a lag the newest blocks are not shown yet."""
        end = bisect_right(self.rows, (self.height - lag, ALL), key=place)
        if cursor is not None:
            height, index = cursor.split(":")
            end = min(end, bisect_right(self.rows, (int(height), int(index)), key=place))
        first = max(0, end - self.page_rows)
        next_cursor = "{}:{}".format(*place(self.rows[first - 1])) if first else None
        return Page(tuple(reversed(self.rows[first:end])), next_cursor)

    def has(self, anchor: Anchor) -> bool:
        """Return whether it is still in its block."""
        at = bisect_left(self.rows, anchor.place, key=place)
        return self.rows[at : at + 1] != [] and anchor_at(self.rows[at]) == anchor


def place(row: Transaction) -> Place:
    assert row.mined is not None
    return row.mined.position


def in_block(row: Transaction) -> tuple[str, str]:
    """A transaction in its block."""
    assert row.mined is not None
    return row.tx_id, row.mined.block_hash


@dataclass
class ModelReader:
    """Reads the list: the head first, then the newest gap, as `feed.py` does."""

    chain: ModelChain
    position: Position = field(default_factory=Position)
    seen: set[tuple[str, str]] = field(default_factory=set)
    steps: list[Step] = field(default_factory=list)
    since: Place = (0, 0)  # the lists of contracts cover everything below this
    top: Place = (0, 0)  # of the newest look
    rows_read: int = 0
    looked: bool = False  # in the newest run

    def run(self, pages_max: int, lag: int = 0) -> None:
        """Do a run. After a run that left a gap, a page of the gap comes before the head."""
        pages = 0
        if self.position.gaps and self.looked:
            self._take(self.chain.page(self.position.gaps[0].cursor, lag), self.position.gaps[0])
            pages += 1
        self.looked = pages < pages_max
        if self.looked:
            self._take(self.chain.page(lag=lag), None)
            pages += 1
        while self.position.gaps and pages < pages_max:
            gap = self.position.gaps[0]
            self._take(self.chain.page(gap.cursor, lag), gap)
            pages += 1

    def refuse_cursor(self) -> None:
        """Refuse the newest gap's cursor."""
        if self.position.gaps:
            self._read_again_above(self.position.gaps[0])

    def _read_again_above(self, gap: Gap) -> None:
        """Mark everything above the gap as unread until the next look: without the gap, the mark covers none of it."""
        self.position = self.position.without(gap)
        self.top = self.position.anchors[0].place if self.position.anchors else self.since

    def _take(self, page: Page[Transaction], gap: Gap | None) -> None:
        taken = take_page(self.position, page, gap, START_S)
        self.rows_read += len(page.items)
        self.steps.append(taken)
        if taken.wrong is not None:  # feed.py refuses it; the mark stays
            if gap is not None:  # the cursor leads nowhere in this model: read from the head again
                self._read_again_above(gap)
            return
        self.position = taken.position.with_gaps(GAPS_MAX)
        self.seen |= {in_block(row) for row in taken.fresh}
        if gap is None and page.items:
            self.top = place(page.items[0])
        if taken.restarted:
            self.since = place(page.items[-1])

    def unread(self) -> list[Transaction]:
        """Return transactions between the restart and the newest look that were never returned and are in no gap."""
        return [
            row
            for row in self.chain.rows
            if self.since <= place(row) <= self.top and in_block(row) not in self.seen and not self.in_a_gap(place(row))
        ]

    def in_a_gap(self, at: Place) -> bool:
        """Return whether it is in a declared gap: below its bottom and above the next anchor that still exists."""
        anchors = [anchor for anchor in self.position.anchors if self.chain.has(anchor)]
        for gap in self.position.gaps:
            floor = next((anchor.place for anchor in anchors if anchor.place < gap.bottom), (0, 0))
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
            assert_in_order(reader.position)
            if current(reader):
                assert reader.unread() == []
                assert_complete(reader)
    for _ in range(60):
        reader.run(6)
        if not reader.position.gaps:
            break
    reader.run(6)

    newest = place(reader.chain.rows[-1])
    assert reader.position.gaps == ()
    assert reader.top == newest
    assert reader.unread() == []
    assert reader.position.complete_block == newest[0]


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

    assert in_block(reader.chain.rows[-6]) not in reader.seen  # the second of the block 107
    assert reader.position.complete_block == 106
    assert_complete(reader)


def test_after_a_refused_cursor_the_head_is_read_again() -> None:
    """Even if the next run has a page only for an older gap."""
    reader = ModelReader(ModelChain())
    reader.chain.grow(3, 3, 3, 3, 3, 3)
    reader.run(1)
    reader.chain.grow(1, 7, 7, 6)
    for event in (("run", 1), ("lag", 1), ("run", 2), ("refuse", 0), ("run", 1)):
        happen(reader, event)

    assert reader.position.complete_block == 109
    reader.run(6)
    assert reader.unread() == []
    assert reader.position.complete_block == 110


def current(reader: ModelReader) -> bool:
    """Return whether the newest look saw the current chain."""
    return reader.chain.page().items[:1] == tuple(row for row in reader.chain.rows if place(row) == reader.top) and any(
        in_block(row) in reader.seen for row in reader.chain.page().items[:1]
    )


def assert_in_order(position: Position) -> None:
    """Anchors and gaps are newest first, and a gap ends at an anchor."""
    assert all(higher.place > lower.place for higher, lower in pairwise(position.anchors))
    assert all(higher.bottom > lower.bottom for higher, lower in pairwise(position.gaps))
    for gap in position.gaps:
        assert any(anchor.place < gap.bottom for anchor in position.anchors)


def assert_complete(reader: ModelReader) -> None:
    """What is called complete was read."""
    block = reader.position.complete_block
    assert block is not None
    lowest = reader.position.gaps[-1].bottom if reader.position.gaps else None
    floor = next(a for a in reader.position.anchors if lowest is None or a.place < lowest)
    if not reader.chain.has(floor):  # a reorg that is not read yet may have changed what is below the gap
        return
    assert all(
        in_block(row) in reader.seen
        for row in reader.chain.rows
        if reader.since <= place(row) and place(row)[0] <= block
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
        most = max(most, len(reader.position.anchors))

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
        assert reader.position.gaps == ()
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
    assert reader.position.gaps == ()
    assert reader.position.top_block == reader.position.complete_block == reader.chain.height
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
        gaps.append(len(reader.position.gaps))
    behind = reader.position.complete_block
    reader.run(1_000)

    assert heads[::2] == [start + 10 * number for number in range(1, 61, 2)]
    assert max(gaps) == 8
    assert behind == start
    assert reader.position.gaps == ()
    assert reader.position.complete_block == reader.chain.height
    assert reader.unread() == []


def test_a_gap_is_filled_by_one_call_in_each_run() -> None:
    """After a long stretch the network is calm: half of the calls read the head, the others fill the gap."""
    reader = ModelReader(ModelChain())
    reader.chain.grow(*[1] * 10)
    reader.run(1)
    reader.chain.grow(*[1] * 100)
    runs = 0
    reader.run(1)
    while reader.position.gaps:
        reader.chain.grow(1)
        reader.run(1)
        runs += 1

    assert runs <= 2 * 21
    assert reader.unread() == []


# One page in figures


def row(height: int, index: int = 0, time_s: int = START_S) -> Transaction:
    return transaction(height * 16 + index, height, index, 0, time_s)


def anchor(height: int, index: int = 0) -> Anchor:
    return anchor_at(row(height, index))


def gap(height: int, index: int = 0) -> Gap:
    return Gap(f"{height}:{index}", (height, index))


def at(anchors: list[Anchor], *gaps: Gap) -> Position:
    return Position(tuple(anchors), gaps)


def taken(before: Position, rows: list[Transaction], cursor: str | None, at: Gap | None = None) -> Step:
    return take_page(before, Page(tuple(rows), cursor), at, START_S)


def test_the_page_at_the_head_comes_down_to_the_anchor() -> None:
    step = taken(at([anchor(90), anchor(80)]), [row(95, 1), row(95), row(93), row(90), row(89)], "89:0")

    assert step.fresh == (row(95, 1), row(95), row(93))
    assert (step.above, step.below, step.done, step.restarted, step.wrong) == ((90, 0), TOP, True, False, None)
    assert step.position == at([anchor(95, 1), anchor(90), anchor(80)])


def test_a_page_that_does_not_reach_an_anchor_leaves_a_gap_below_the_others() -> None:
    before = at([anchor(90), anchor(80)], gap(85, 2))
    step = taken(before, [row(95), row(93, 4)], "93:4")

    assert (step.above, step.done, step.restarted) == ((93, 3), False, False)
    assert step.position == at([anchor(95), anchor(90), anchor(80)], gap(93, 4), gap(85, 2))


def test_an_anchor_whose_place_is_taken_is_dropped() -> None:
    before = at([anchor(94), anchor(93), anchor(80)], gap(93, 5))
    step = taken(before, [row(95), row(93, 1)], "93:1")
    assert step.position.anchors == (anchor(95), anchor(93), anchor(80))

    gone = taken(at([replace(anchor(93), block_hash="x"), anchor(80)]), [row(95), row(93)], "93:0")
    assert gone.position == at([anchor(95), anchor(80)], gap(93))


def test_without_an_anchor_below_the_list_is_followed_from_its_head() -> None:
    step = taken(at([anchor(99)], gap(98)), [row(95), row(93)], "93:0")

    assert (step.done, step.restarted, step.above) == (True, True, (93, -1))
    assert step.position == at([anchor(95)])


def test_a_gap_is_filled_from_its_cursor_on() -> None:
    """The anchors above it stay; the first row of a whole block becomes one."""
    before = at([anchor(100), anchor(50)], gap(90, 3), gap(70))
    step = taken(before, [row(90, 3), row(90, 2), row(88, 1), row(88), row(87)], "87:0", gap(90, 3))

    assert len(step.fresh) == 5
    assert (step.above, step.below, step.done) == ((87, -1), (90, 3), False)
    assert step.position == at([anchor(100), anchor(88, 1), anchor(50)], gap(87), gap(70))


def test_an_anchor_at_the_end_of_a_gap_stays_above_it() -> None:
    before = at([anchor(100), anchor(90, 3), anchor(50)], gap(90, 3))
    step = taken(before, [row(90, 3), row(88), row(50)], "49:0", gap(90, 3))

    assert step.position == at([anchor(100), anchor(90, 3), anchor(88), anchor(50)])


def test_a_gap_below_the_anchor_that_was_reached_stays() -> None:
    before = at([anchor(100), anchor(50), anchor(40)], gap(90), gap(50))
    step = taken(before, [row(90), row(60), row(50)], "49:0", gap(90))

    assert step.position.gaps == (gap(50),)


def test_a_gap_that_is_filled_takes_those_that_it_passed_with_it() -> None:
    before = at([anchor(100), anchor(50)], gap(90), gap(70))
    step = taken(before, [row(90), row(71), row(60), row(50)], "49:0", gap(90))

    assert (step.above, step.done) == ((50, 0), True)
    assert step.position == at([anchor(100), anchor(71), anchor(50)])


@pytest.mark.parametrize("deep", [None, lambda _: False], ids=["network", "contract"])
@pytest.mark.parametrize(("time_s", "reached"), [(START_S, False), (START_S - 1, True)])
def test_the_campaigns_start_is_the_end_of_the_list(time_s: int, reached: bool, deep: Deep) -> None:
    """What is older is not returned, and no gap is left for it."""
    rows = (row(95), row(94, 0, time_s), row(93))
    step = take_page(Position(), Page(rows, "93:0"), None, START_S, deep)

    assert len(step.fresh) == (1 if reached else 3)
    assert (step.restarted, step.done) == (not reached and deep is None, reached or deep is None)
    assert (step.position.gaps == ()) == step.done
    assert step.above == (BOTTOM if reached else (93, -1))


def test_the_end_of_the_list_above_an_anchor_is_wrong() -> None:
    early = taken(at([anchor(80)]), [row(95)], None)
    assert (early.done, early.wrong, early.restarted, early.above) == (True, ENDS_EARLY, False, BOTTOM)
    assert early.position == at([anchor(95), anchor(80)])
    for anchors, last in (([], 95), ([anchor(80)], 80)):
        whole = taken(at(anchors), [row(96), row(last)], None)
        assert (whole.done, whole.wrong) == (True, None)


def test_an_empty_page_says_nothing() -> None:
    known = at([anchor(90)], gap(95))
    for where, done, wrong, below in (
        (None, True, ENDS_EARLY, TOP),
        (gap(95), False, ENDS_EARLY, (95, 0)),
        (gap(90), False, None, (90, 0)),
        (gap(90, 1), False, ENDS_EARLY, (90, 1)),
    ):
        assert taken(known, [], None, where) == Step((), below, below, known, done=done, wrong=wrong)


@pytest.mark.parametrize("deep", [None, lambda _: True], ids=["network", "contract"])
def test_a_gaps_page_that_does_not_lead_down_is_wrong(deep: Deep) -> None:
    """It could keep us busy forever. A contract's list may repeat its last row, but must come further down."""
    known = at([anchor(99), anchor(90)], gap(95, 2))

    def wrong(*rows: Transaction, cursor: str | None = "next") -> str | None:
        return take_page(known, Page(rows, cursor), gap(95, 2), START_S, deep).wrong

    assert wrong(row(95, 1), row(94)) is None
    assert wrong(row(95, 2), row(94)) == (NOT_DOWN if deep is None else None)
    assert wrong(row(95, 2)) == wrong(row(97), row(96)) == NOT_DOWN
    assert wrong(row(96), row(90)) == (NOT_DOWN if deep is None else None)  # it reaches the anchor
    if deep is not None:
        assert wrong() == NOT_DOWN
        assert wrong(cursor=None) is None


def test_everything_is_read_up_to_the_anchor_below_the_lowest_gap() -> None:
    anchors = [anchor(100), anchor(90, 2), anchor(80)]
    for gaps, complete in (
        ((), 100),
        ((gap(95),), 90),
        ((gap(95), gap(90, 3)), 90),
        ((gap(95), gap(90, 2)), 80),
        ((gap(80),), None),
    ):
        assert at(anchors, *gaps).complete_block == complete
    assert (Position().complete_block, Position().top_block, at(anchors).top_block) == (None, None, 100)


def test_a_refused_cursor_forgets_what_is_above_its_gap() -> None:
    known = at([anchor(100), anchor(90), anchor(89)], gap(95), gap(90), gap(85))
    assert known.without(gap(90)) == at([anchor(89)], gap(85))
    assert known.without(gap(95)) == at([anchor(90), anchor(89)], gap(90), gap(85))


def test_the_lowest_gaps_become_one() -> None:
    known = at([anchor(100), anchor(90), anchor(85), anchor(80), anchor(70)], gap(95), gap(90), gap(85), gap(75))

    assert known.with_gaps(4) == known
    assert known.with_gaps(3) == at([anchor(100), anchor(90), anchor(85), anchor(70)], gap(95), gap(90), gap(85))
    assert known.with_gaps(1) == at([anchor(100), anchor(70)], gap(95))


def test_anchors_are_fewer_the_further_down() -> None:
    """The first and the last of each power of two below the head, and one below each gap."""
    heights = [100, 99, 98, 97, 96, 95, 94, 93, 92, 90, 88, 86]
    known = at([anchor(height) for height in heights])

    assert [each.height for each in known.thinned().anchors] == [100, 99, 98, 97, 96, 93, 92, 86]
    with_gap = replace(known, gaps=(gap(95, 1), gap(90))).thinned()
    assert [each.height for each in with_gap.anchors] == [100, 99, 98, 97, 96, 95, 93, 92, 88, 86]
    assert Position((), (gap(5),)).thinned() == Position((), (gap(5),))
    odd = at([anchor(9), anchor(12), anchor(11), anchor(8)])  # an anchor above the head counts as at it
    assert [each.height for each in odd.thinned().anchors] == [9, 11, 8]
    one_block = at([anchor(100, 5), anchor(100, 3), anchor(100, 1)], gap(10))
    assert one_block.thinned().anchors == (anchor(100, 5), anchor(100, 1))


# The lists of contracts and wallets


@dataclass
class OwnList:
    """The list of a contract on a chain, and its reader, which may be cut off."""

    chain: ModelChain = field(default_factory=lambda: ModelChain(page_rows=4))
    mark: Mark = field(default_factory=Mark)
    seen: set[tuple[str, str]] = field(default_factory=set)
    steps: list[Step] = field(default_factory=list)

    def mine(self, blocks: int, size: int) -> None:
        """Mine that many blocks; the last has transactions of this list."""
        self.chain.grow(*[0] * (blocks - 1), size)

    def reorg(self, depth: int, returned: Random) -> None:
        """Abandon blocks; some of their transactions are mined again, in other blocks of the same heights."""
        before, height = list(self.chain.rows), self.chain.height
        self.chain.reorg(depth)
        lowest, self.chain.height = self.chain.height + 1, height
        at = lowest
        for row in before[len(self.chain.rows) :]:
            if returned.random() < 0.6:
                at = min(height, at + returned.randrange(3))
                index = sum(place(other)[0] == at for other in self.chain.rows)
                mined = transaction(0, at, index, self.chain.forks).mined
                self.chain.rows.append(replace(row, mined=mined))

    def read(self) -> Step:
        """Read one page: of the gap, or the head."""
        page = self.chain.page(self.mark.gap.cursor if self.mark.gap else None)
        step = take_page(
            self.mark.position, page, self.mark.gap, START_S, lambda row: is_deep(row, self.chain.height, 0)
        )
        self.steps.append(step)
        self.seen |= {in_block(row) for row in step.fresh}
        self.mark = after(self.mark, step, 0)
        return step

    def visit(self, pages_max: int) -> bool:
        """Read the rest of an earlier reading, then what is new; return whether it reached the end."""
        resumed = self.mark.gap is not None
        for _ in range(pages_max):
            done = self.read().done
            if done and not resumed:
                return True
            resumed = resumed and not done
        return False


moves = st.one_of(
    st.tuples(st.just("mine"), st.integers(1, 2 * DEEP_BLOCKS), st.integers(1, 9)),
    st.tuples(st.just("reorg"), st.integers(1, 5 * DEEP_BLOCKS), st.integers(0, 99)),
    st.tuples(st.just("visit"), st.integers(1, 4), st.just(0)),
)


@pytest.mark.slow
@settings(max_examples=500, deadline=None)
@given(st.lists(moves, max_size=25))
def test_after_a_finished_visit_every_row_was_seen_in_its_block(steps: list[tuple[str, int, int]]) -> None:
    """Through growth, reorgs of any depth and visits cut off after any page, nothing is skipped."""
    own = OwnList()
    for kind, a, b in steps:
        if kind == "mine":
            own.mine(a, b)
        elif kind == "reorg":
            own.reorg(a, Random(b))
        else:
            own.visit(a)
    assert own.visit(1_000)

    assert {in_block(row) for row in own.chain.rows} <= own.seen
    assert own.mark.position.gaps == ()
    assert len(own.mark.position.anchors) <= 1


def test_a_quiet_list_costs_one_page() -> None:
    """Once its rows are deep in the chain, a list without new rows is read to its first row."""
    own = OwnList()
    for _ in range(30):
        own.mine(2 * DEEP_BLOCKS, 3)
    own.chain.height += 2 * DEEP_BLOCKS
    own.visit(1_000)
    before = len(own.steps)
    own.visit(1_000)

    assert len(own.steps) == before + 1


def test_a_long_reading_continues_where_it_was_cut_off() -> None:
    """Visits of two pages read a list of twenty in eleven, without starting over each time."""
    own = OwnList()
    for _ in range(80):
        own.mine(2 * DEEP_BLOCKS, 1)
    visits = 0
    while not own.visit(2):
        visits += 1

    assert visits <= 11
    assert len(own.seen) == 80


def test_a_page_names_the_stretch_of_the_chain_that_it_covers() -> None:
    """Stretches follow each other without a hole, from above everything to the anchor."""
    own = OwnList()
    for _ in range(3):
        own.mine(2 * DEEP_BLOCKS, 3)
    own.visit(1_000)
    [kept] = own.mark.position.anchors
    own.mine(2 * DEEP_BLOCKS, 7)
    steps = [own.read()]
    while not steps[-1].done:
        steps.append(own.read())

    assert steps[0].below == TOP
    assert steps[-1].above == kept.place
    for upper, lower in pairwise(steps):
        height, index = upper.above
        assert lower.below == (height, index + 1)


def own_step(
    known: Position, rows: list[Transaction], cursor: str | None = None, at: Gap | None = None, tip: int = 0
) -> Step:
    return take_page(known, Page(tuple(rows), cursor), at, START_S, lambda row: is_deep(row, tip, NOW))


def test_a_row_is_deep_a_hundred_blocks_below_or_half_an_hour_old() -> None:
    young = NOW // 1000
    assert [is_deep(row(height, 0, young), 300, NOW) for height in (199, 200, 201)] == [True, True, False]
    times = (young - DEEP_S - 1, young - DEEP_S, young - DEEP_S + 1)
    assert [is_deep(row(300, 0, time_s), 300, NOW) for time_s in times] == [True, True, False]


def test_the_newest_deep_row_becomes_the_anchor() -> None:
    """By its height or, if nothing newer shows how deep a block is, by its age."""
    young = NOW // 1000
    rows = [row(height, 0, young) for height in (401, 400, 399, 200)]
    assert own_step(at([anchor(200)]), rows, tip=500).position == at([anchor(400)])
    assert own_step(Position(), rows, tip=499).position == at([anchor(399)])
    old = [row(101, 0, young), row(100, 0, young - DEEP_S), row(50, 0, young - DEEP_S)]
    assert own_step(Position(), old, tip=101).position == at([anchor(100)])


def test_the_anchor_ends_a_reading_and_stays_when_nothing_above_it_is_deep() -> None:
    young = NOW // 1000
    rows = [row(205, 0, young), row(203, 0, young), row(200), row(150)]
    done = own_step(at([anchor(200)]), rows, "more", tip=205)

    assert [each.tx_id for each in done.fresh] == [each.tx_id for each in rows[:2]]
    assert (done.above, done.below, done.done) == ((200, 0), TOP, True)
    assert done.position == at([anchor(200)])


@pytest.mark.parametrize(
    ("seen", "kept"), [(row(201), True), (row(200, 1), True), (row(200), False), (row(199), False)]
)
def test_an_anchor_that_is_not_where_it_was_is_forgotten(seen: Transaction, kept: bool) -> None:
    """A list that ends without it, or that shows something else in its place, was changed below it."""
    other = replace(anchor(200), block_hash="another")

    def step(cursor: str | None) -> Step:
        page = Page((row(260), seen), cursor)
        return take_page(at([other]), page, None, START_S, lambda _: False)

    assert step("next").position.anchors == ((other,) if kept else ())
    ended = step(None)
    assert (ended.done, ended.above, ended.position) == (True, BOTTOM, Position())


def test_a_reading_is_continued_at_its_gap() -> None:
    """Its anchor is the newest deep row of all its pages; the mark says when it began."""
    young = NOW // 1000
    first = own_step(Position(), [row(260, 3, young), row(255, 0, young), row(150, 7, young)], "150:7", tip=300)
    mark = after(Mark(walked_at=5, failures=2), first, NOW)

    assert (first.above, first.below, first.done) == ((150, 6), TOP, False)
    assert mark == Mark(at([anchor(150, 7)], gap(150, 7)), NOW, 5, 2, NOW)
    later = own_step(mark.position, [row(140)], None, mark.gap, tip=999)
    assert (later.below, later.done) == ((150, 7), True)
    assert after(mark, later, NOW + 1) == Mark(at([anchor(150, 7)]), NOW, NOW, 0, NOW + 1)


async def test_a_mark_is_stored_and_comes_back_as_it_was(tmp_path: Path) -> None:
    marks = {
        "a": Mark(at([anchor(9, 3)]), 4, 5, 0, 6),
        "b": Mark(at([anchor(150, 7)], gap(150, 7)), NOW, None, 0, 7),
        "c": Mark(at([], gap(150, 7)), NOW, 2, 0, 8),
    }
    async with open_world(tmp_path, chain_of(1)) as world:
        for name, each in marks.items():
            await save_mark(world.db, name, world.rules, each).run()
        stored = await load_marks(world.db, world.rules)
        some = await load_marks(world.db, world.rules, ["b", "x"])
        ages = await list_ages(world.db, "xcba")
        for name in ("a", "a", "d"):
            await count_failure(world.db, name, world.rules, 70).run()
        failed = await load_marks(world.db, world.rules, ["a", "d"])
        void = await load_marks(world.db, replace(world.rules, start_s=1), ["a"])

    assert stored == marks
    assert some == {"b": marks["b"]}
    assert void == {"a": Mark(failures=2, tried_at=70)}
    assert list(ages.items()) == [("b", None), ("x", None), ("c", 2), ("a", 5)]
    assert failed == {"a": replace(marks["a"], failures=2, tried_at=70), "d": Mark(failures=1, tried_at=70)}
