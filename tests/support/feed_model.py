"""A small chain, the list of all its transactions, and a reader that drives `take_page` as the feed does."""

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field

from tocsin.stacks import MinedAt, Page, Transaction
from tocsin.swaps.feed_state import FeedGap, FeedMark, FeedStep, joined, take_page
from tocsin.swaps.walk import Anchor, Position, anchor_at

START_S = 1_000
GAPS_MAX = 8
ALL = 10**9  # an index that no block has


def transaction(number: int, height: int, index: int, fork: int, time_s: int = START_S) -> Transaction:
    return Transaction(
        tx_id=f"0x{number:x}",
        sender="S",
        sponsored=False,
        fee=0,
        status="success",
        type="token_transfer",
        contract_call=None,
        mined=MinedAt(height, f"{height}/{fork}", index, time_s),
        canonical=True,
        event_count=None,
    )


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
