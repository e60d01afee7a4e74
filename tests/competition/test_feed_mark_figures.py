"""One page of the network's list in figures: new rows, the stretch, anchors and gaps."""

from dataclasses import replace

import pytest

from support.feed_model import START_S, transaction
from tocsin.stacks import Page, Transaction
from tocsin.swaps.feed_state import FeedGap, FeedMark, FeedStep, joined, take_page, thinned
from tocsin.swaps.walk import Anchor, anchor_at

TOP, BOTTOM = (2**53 - 1, 0), (-1, 0)


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
