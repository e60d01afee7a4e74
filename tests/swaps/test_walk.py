"""Walking a list back to its mark: whatever happens to the chain in between, no row is skipped."""

from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.competition import chain_of, open_world
from tocsin.stacks import MinedAt, Page, Transaction
from tocsin.swaps.walk import (
    ABOVE_ALL,
    BELOW_ALL,
    DEEP_BLOCKS,
    DEEP_S,
    FAILURES_MAX,
    Anchor,
    Gap,
    Mark,
    Step,
    Visits,
    anchor_at,
    choose_visits,
    count_failure,
    due_contracts,
    is_deep,
    list_ages,
    load_marks,
    reading_order,
    save_mark,
    step,
    turn_period,
)

START_S = 1_000
PAGE = 4
DAY_MS = 86_400_000
NOW = 9_000_000


def listed_row(number: int, height: int, index: int = 0, fork: int = 0, burn_time: int | None = None) -> Transaction:
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
            self.rows.append(listed_row(self.count, self.height, index, self.forks))

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
                mined = listed_row(0, height, index, self.forks).mined
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
    page = Page((listed_row(2, 9, burn_time=START_S), listed_row(1, 8, burn_time=START_S - 1)), "7:0")
    taken = step(Mark(), page, start_s=START_S, tip=9, now=0)

    assert [tx.tx_id for tx in taken.fresh] == ["0x2"]
    assert taken.done
    assert taken.above == BELOW_ALL


def test_what_is_old_by_the_clock_is_deep_too() -> None:
    """If nothing newer shows how deep a block is, its age does; the newest of those is the anchor."""
    now = (START_S + 100 + DEEP_S) * 1000
    page = Page((listed_row(3, 101), listed_row(2, 100), listed_row(1, 50)), None)

    assert step(Mark(), page, start_s=START_S, tip=101, now=now).mark.anchor == anchor_at(page.items[1])
    assert step(Mark(), page, start_s=START_S, tip=101, now=now - 1000).mark.anchor == anchor_at(page.items[2])
    assert step(Mark(), page, start_s=START_S, tip=101, now=0).mark.anchor is None


def test_a_block_becomes_an_anchor_when_a_hundred_are_above_it() -> None:
    """A reorg of the newest blocks leaves the anchor where it is."""
    page = Page((listed_row(2, 901), listed_row(1, 900)), None)

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


# One page in figures


def row(height: int, index: int = 0, time_s: int = 100_000) -> Transaction:
    mined = MinedAt(height, f"block {height}", index, time_s)
    return Transaction(f"0x{height}-{index}", "SP", False, 0, "success", "contract_call", None, mined, True, None)


def taken(mark: Mark, rows: list[Transaction], cursor: str | None = None, tip: int = 0) -> Any:
    return step(mark, Page(tuple(rows), cursor), start_s=START_S, tip=tip, now=NOW)


def test_a_row_is_deep_a_hundred_blocks_below_or_half_an_hour_old() -> None:
    assert [is_deep(row(height), 300, NOW) for height in (199, 200, 201)] == [True, True, False]
    assert [is_deep(row(300, time_s=time_s), 300, NOW) for time_s in (7_199, 7_200, 7_201)] == [True, True, False]


def test_the_anchor_ends_a_walk_and_stays_when_nothing_above_it_is_deep() -> None:
    anchor = anchor_at(row(200))
    done = taken(Mark(anchor, walked_at=5), [row(205), row(203), row(200), row(150)], "more", tip=205)

    assert [each.tx_id for each in done.fresh] == ["0x205-0", "0x203-0"]
    assert (done.above, done.below, done.done) == ((200, 0), (2**53 - 1, 0), True)
    assert done.mark == Mark(anchor, None, NOW, 0, NOW)


def test_the_newest_deep_row_becomes_the_anchor() -> None:
    done = taken(Mark(anchor_at(row(200))), [row(401), row(400), row(399), row(200)], tip=500)
    assert done.mark.anchor == anchor_at(row(400))


@pytest.mark.parametrize(
    ("place", "kept"), [(row(201), True), (row(200, 1), True), (row(200), False), (row(199), False)]
)
def test_an_anchor_that_is_not_where_it_was_is_forgotten(place: Transaction, kept: bool) -> None:
    """A list that ends without it, or that shows something else in its place, was changed below it."""
    anchor = replace(anchor_at(row(200)), block_hash="another")
    on = taken(Mark(anchor), [row(260), place], "next")
    ended = taken(Mark(anchor), [row(260), place], None)

    assert on.mark.anchor == (anchor if kept else None)
    assert (ended.done, ended.above, ended.mark.anchor) == (True, (-1, 0), None)


def test_a_page_that_leads_on_leaves_a_gap() -> None:
    first = taken(Mark(walked_at=5, failures=2), [row(260, 3), row(255), row(150, 7)], "150:7", tip=300)

    assert (first.above, first.below, first.done) == ((150, 6), (2**53 - 1, 0), False)
    gap = Gap("150:7", (150, 7), anchor_at(row(150, 7)), NOW)
    assert first.mark == Mark(None, gap, 5, 2, NOW)
    later = step(first.mark, Page((row(140),), None), start_s=START_S, tip=999, now=NOW + 1)
    assert (later.below, later.done) == ((150, 7), True)
    assert later.mark == Mark(anchor_at(row(150, 7)), None, NOW, 0, NOW + 1)
    empty = step(first.mark, Page((), "150:7"), start_s=START_S, tip=999, now=NOW + 1)
    assert (empty.above, empty.below, empty.done) == ((150, 6), (150, 7), False)


def test_what_is_older_than_the_campaign_ends_the_walk() -> None:
    done = taken(Mark(), [row(9, time_s=1_000), row(8, time_s=999), row(7)], "more")
    assert ([each.tx_id for each in done.fresh], done.done, done.above) == (["0x9-0"], True, (-1, 0))


def test_every_fourth_list_is_a_wallets() -> None:
    marks = {"c": Mark(tried_at=1), "a": Mark(tried_at=2), "b": Mark(tried_at=2), "e": Mark(tried_at=9)}
    assert reading_order("abcde", ["w", "x", "y"], marks) == ["d", "c", "a", "w", "b", "e", "x", "y"]
    assert reading_order("abcdef", ["w"], {}) == ["a", "b", "c", "w", "d", "e", "f"]


def test_a_contracts_list_has_its_turn_once_a_day_or_less_often() -> None:
    assert turn_period(40, 60_000) == DAY_MS
    assert turn_period(44, 216_000) == DAY_MS
    assert turn_period(44, 216_001) == 86_400_400
    assert turn_period(45, 1) == 88_363_636
    assert turn_period(88, 1) == 2 * DAY_MS


def test_contracts_that_were_not_read_since_then_are_due_at_once() -> None:
    marks = {"b": Mark(walked_at=99), "a": Mark(walked_at=100), "c": Mark(walked_at=None)}
    assert due_contracts("cba", marks, 100, now=10_000, period_ms=1_000) == ("b", "c")
    assert due_contracts("bca", marks, 1, now=10_000, period_ms=1_000) == ("c",)


def test_each_contract_has_its_own_time_in_the_period() -> None:
    """Of four in a second: at 0, 250, 500 and 750 ms. At most two at a time, those asked longest ago first."""
    marks = {name: Mark(walked_at=9_800, tried_at=number) for number, name in enumerate("dcba")}

    def due(now: int) -> tuple[str, ...]:
        return due_contracts("abcd", marks, 1, now=now, period_ms=1_000)

    assert [due(now) for now in (9_999, 10_000, 10_249, 10_250, 10_500, 10_749)] == [
        (),
        ("a",),
        ("a",),
        ("b", "a"),
        ("c", "b"),
        ("c", "b"),
    ]
    assert due(10_750) == ("d", "c")
    of_three = {name: Mark(walked_at=10_000) for name in "abc"}
    for now, expected in ((10_332, ()), (10_333, ("b",)), (10_666, ("b", "c"))):
        assert due_contracts("abc", of_three, 1, now=now, period_ms=1_000) == expected


def test_urgent_wallets_and_the_next_part_of_the_pass() -> None:
    walked = Mark(walked_at=5)
    marks = {
        "A": walked,
        "B": replace(walked, failures=4),
        "C": replace(walked, failures=1),
        "E": replace(walked, failures=5),
        "F": Mark(failures=5),
    }
    wallets = list("ABCDEF")

    def chosen(cursor: str | None, urgent_max: int, share: int) -> Visits:
        return choose_visits(wallets, marks, cursor, urgent_max=urgent_max, pass_share=share)

    assert chosen(None, 9, 2) == Visits(("D", "C", "B"), ("A", "B"), ends_pass=False)
    assert chosen("B", 2, 3) == Visits(("D", "C"), ("C", "D", "E"), ends_pass=False)
    assert chosen("C", 2, 3) == Visits(("D", "C"), ("D", "E", "F"), ends_pass=True)
    assert chosen("F", 0, 6) == Visits((), tuple("ABCDEF"), ends_pass=True)


async def test_a_mark_is_stored_and_comes_back_as_it_was(tmp_path: Path) -> None:
    gap = Gap("150:7", (150, 7), anchor_at(row(150, 7)), NOW)
    marks = {
        "a": Mark(anchor_at(row(9, 3)), None, 5, 0, 6),
        "b": Mark(None, gap, None, 0, 7),
        "c": Mark(None, replace(gap, top=None), 2, 0, 8),
    }
    async with open_world(tmp_path, chain_of(1)) as world:
        for name, each in marks.items():
            await save_mark(world.db, name, f"rules of {name}", each).run()
        stored = await load_marks(world.db)
        some = await load_marks(world.db, ["b", "x"])
        ages = await list_ages(world.db, "xcba")
        for _ in range(2):
            await count_failure(world.db, "a", "later rules", 70).run()
        failed = await load_marks(world.db, ["a"])

    assert stored == {name: (f"rules of {name}", each) for name, each in marks.items()}
    assert some == {"b": ("rules of b", marks["b"])}
    assert list(ages.items()) == [("b", None), ("x", None), ("c", 2), ("a", 5)]
    assert failed == {"a": ("rules of a", replace(marks["a"], failures=2, tried_at=70))}


def test_an_anchor_has_a_position() -> None:
    assert Anchor("0x1", "b", 7, 3).position == (7, 3)
