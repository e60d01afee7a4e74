"""One page of a list in figures: what is new, which stretch it covers, and the mark that it leaves."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support.competition import chain_of, open_world
from tocsin.stacks import MinedAt, Page, Transaction
from tocsin.swaps.walk import (
    Anchor,
    Gap,
    Mark,
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
DAY_MS = 86_400_000
NOW = 9_000_000


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
