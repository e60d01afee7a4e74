"""Walking a list back to its mark: whatever happens to the chain in between, no row is skipped."""

from dataclasses import dataclass, field, replace
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tocsin.stacks import MinedAt, Page, Transaction
from tocsin.swaps.walk import (
    ABOVE_ALL,
    BELOW_ALL,
    DEEP_BLOCKS,
    DEEP_S,
    FAILURES_MAX,
    Anchor,
    Mark,
    Step,
    Visits,
    anchor_at,
    choose_visits,
    step,
)

START_S = 1_000
PAGE = 4


def row(number: int, height: int, index: int = 0, fork: int = 0, burn_time: int | None = None) -> Transaction:
    mined = MinedAt(
        height, f"block {height} of fork {fork}", index, START_S + height if burn_time is None else burn_time
    )
    return Transaction(f"0x{number}", "SP", False, 0, "success", "contract_call", None, mined, True, None)


@dataclass
class ListedChain:
    """A principal's list that grows and is reorganised, and a reader of it that may be cut off."""

    rows: list[Transaction] = field(default_factory=list)  # oldest first
    height: int = 0
    forks: int = 0
    count: int = 0
    mark: Mark = field(default_factory=Mark)
    seen: set[tuple[str, str]] = field(default_factory=set)  # transaction and block
    pages: int = 0

    def mine(self, gap: int, size: int) -> None:
        self.height += gap
        for index in range(size):
            self.count += 1
            self.rows.append(row(self.count, self.height, index, self.forks))

    def reorg(self, depth: int, returned: Random) -> None:
        """Abandon blocks; some of their transactions are mined again, in other blocks of the same heights."""
        first = max(1, self.height - depth + 1)
        orphans = [tx for tx in self.rows if anchor_at(tx).height >= first]
        self.rows = [tx for tx in self.rows if anchor_at(tx).height < first]
        self.forks += 1
        height = first
        for tx in orphans:
            if returned.random() < 0.6:
                height = min(self.height, height + returned.randrange(3))
                index = sum(anchor_at(other).height == height for other in self.rows)
                mined = row(0, height, index, self.forks).mined
                self.rows.append(replace(tx, mined=mined))

    def page(self, cursor: str | None) -> Page[Transaction]:
        """Return a page including the cursor's position, newest first, like Hiro's."""
        newest_first = list(reversed(self.rows))
        if cursor is not None:
            position = tuple(int(part) for part in cursor.split(":"))
            newest_first = [tx for tx in newest_first if anchor_at(tx).position <= position]
        left = newest_first[PAGE : PAGE + 1]
        after = ":".join(str(part) for part in anchor_at(left[0]).position) if left else None
        return Page(tuple(newest_first[:PAGE]), after)

    def visit(self, pages_max: int) -> bool:
        """Read the rest of an earlier walk, then what is new; return whether it reached the end."""
        resumed = self.mark.gap is not None
        for _ in range(pages_max):
            page = self.page(self.mark.gap.cursor if self.mark.gap else None)
            self.pages += 1
            taken = step(self.mark, page, start_s=START_S, tip=self.height, now=0)
            self.seen |= {(tx.tx_id, anchor_at(tx).block_hash) for tx in taken.fresh}
            self.mark = taken.mark
            if taken.done and not resumed:
                return True
            resumed = resumed and not taken.done
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
    chain = ListedChain()
    for kind, a, b in steps:
        if kind == "mine":
            chain.mine(a, b)
        elif kind == "reorg":
            chain.reorg(a, Random(b))
        else:
            chain.visit(a)
    assert chain.visit(1_000)

    assert {(tx.tx_id, anchor_at(tx).block_hash) for tx in chain.rows} <= chain.seen


def test_a_quiet_list_costs_one_page() -> None:
    """Once its rows are deep in the chain, a list without new rows is read to its first row."""
    chain = ListedChain()
    for _ in range(30):
        chain.mine(2 * DEEP_BLOCKS, 3)
    chain.height += 2 * DEEP_BLOCKS
    chain.visit(1_000)
    before = chain.pages
    chain.visit(1_000)

    assert chain.pages == before + 1


def test_a_long_walk_continues_where_it_was_cut_off() -> None:
    """Visits of two pages read a list of twenty in eleven, without starting over each time."""
    chain = ListedChain()
    for _ in range(80):
        chain.mine(2 * DEEP_BLOCKS, 1)
    visits = 0
    while not chain.visit(2):
        visits += 1

    assert visits <= 11
    assert len(chain.seen) == 80


def test_a_page_names_the_stretch_of_the_chain_that_it_covers() -> None:
    """Stretches follow each other without a hole, from above everything to the anchor."""
    chain = ListedChain()
    for _ in range(3):
        chain.mine(2 * DEEP_BLOCKS, 3)
    chain.visit(1_000)
    anchor = chain.mark.anchor
    assert anchor is not None
    chain.mine(2 * DEEP_BLOCKS, 7)
    taken: list[Step] = []
    mark = chain.mark
    while not taken or not taken[-1].done:
        page = chain.page(mark.gap.cursor if mark.gap else None)
        taken.append(step(mark, page, start_s=START_S, tip=chain.height, now=0))
        mark = taken[-1].mark

    assert taken[0].below == ABOVE_ALL
    assert taken[-1].above == anchor.position
    for upper, lower in pairwise(taken):
        height, index = upper.above
        assert lower.below == (height, index + 1)


def test_the_walk_ends_where_the_campaign_begins() -> None:
    """Older rows are left out, and do not keep the walk going."""
    page = Page((row(2, 9, burn_time=START_S), row(1, 8, burn_time=START_S - 1)), "7:0")
    taken = step(Mark(), page, start_s=START_S, tip=9, now=0)

    assert [tx.tx_id for tx in taken.fresh] == ["0x2"]
    assert taken.done
    assert taken.above == BELOW_ALL


def test_what_is_old_by_the_clock_is_deep_too() -> None:
    """If nothing newer shows how deep a block is, its age does; the newest of those is the anchor."""
    now = (START_S + 100 + DEEP_S) * 1000
    page = Page((row(3, 101), row(2, 100), row(1, 50)), None)

    assert step(Mark(), page, start_s=START_S, tip=101, now=now).mark.anchor == anchor_at(page.items[1])
    assert step(Mark(), page, start_s=START_S, tip=101, now=now - 1000).mark.anchor == anchor_at(page.items[2])
    assert step(Mark(), page, start_s=START_S, tip=101, now=0).mark.anchor is None


def test_a_block_becomes_an_anchor_when_a_hundred_are_above_it() -> None:
    """A reorg of the newest blocks leaves the anchor where it is."""
    page = Page((row(2, 901), row(1, 900)), None)

    assert step(Mark(), page, start_s=START_S, tip=1_000, now=0).mark.anchor == anchor_at(page.items[1])
    assert step(Mark(), page, start_s=START_S, tip=999, now=0).mark.anchor is None


def test_visits_urgent_wallets_first_then_the_daily_pass() -> None:
    """Wallets never read and failed ones come at once; one that keeps failing waits for its turn."""
    walked = Mark(Anchor("0x1", "0x", 1, 0), None, walked_at=5)
    marks = {"A": walked, "B": replace(walked, failures=2), "D": replace(walked, failures=FAILURES_MAX), "E": walked}
    wallets = ["A", "B", "C", "D", "E"]

    def choose(cursor: str | None, share: int, urgent_max: int = 10) -> Visits:
        return choose_visits(wallets, marks, cursor, urgent_max=urgent_max, pass_share=share)

    assert choose(None, 2) == Visits(("C", "B"), ("A", "B"), ends_pass=False)
    assert choose("C", 2, 1) == Visits(("C",), ("D", "E"), ends_pass=True)
    assert choose("D", 3).daily_pass == ("E",)
    assert choose("E", 5) == Visits(("C", "B"), tuple(wallets), ends_pass=True)
    assert choose_visits([], {}, "E", urgent_max=1, pass_share=1) == Visits((), (), ends_pass=True)
