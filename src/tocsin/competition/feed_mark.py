"""How far the network's list was read: anchors and gaps. Pure.

The list is read from its head down to an anchor: a transaction that is still in the block in which it was seen. A
block's hash fixes everything before it, so nothing has changed below an anchor. The first row of the head, and of the
first whole block of every other page, becomes an anchor. Few anchors are kept, fewer further down, so the cost of a
reorg is proportional to its depth. If a reorg is deeper than all anchors, or nothing was read yet, the list is followed
from its head on (`restarted`), and the lists of contracts and wallets cover what is below.

A look that does not reach an anchor leaves a gap, and the next look begins at the head again: the newest transactions
come first, and gaps are filled after them. If there are too many gaps, the lowest are joined.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tocsin.chain_model import Page, Transaction
from tocsin.competition.walk import ABOVE_ALL, BELOW_ALL, Anchor, Position, anchor_at


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
