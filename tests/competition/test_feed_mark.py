"""How far the network's list was read: nothing is skipped, whatever the chain and the runs do."""

from dataclasses import replace
from itertools import pairwise
from typing import Literal, TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.feed_model import START_S, ModelChain, ModelReader, place, position, transaction
from tocsin.stacks import Page
from tocsin.swaps.feed_state import FeedGap, FeedMark, take_page
from tocsin.swaps.walk import Anchor

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
    for number in range(10_000):
        reader.chain.grow(3)
        if number % 97 == 0:
            reader.chain.reorg(number % 7 + 1)
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
