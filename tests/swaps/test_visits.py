"""Which lists a sweep reads: those that are due, those that failed, and the others in turn."""

from dataclasses import replace

from tocsin.swaps.position import FAILURES_MAX, Mark
from tocsin.swaps.sweep import Visits, choose_visits, due_contracts, reading_order, turn_period

DAY_MS = 86_400_000


def test_visits_urgent_wallets_first_then_the_daily_pass() -> None:
    """Wallets never read and failed ones come at once; one that keeps failing waits for its turn."""
    walked = Mark(walked_at=5)
    marks = {"A": walked, "B": replace(walked, failures=2), "D": replace(walked, failures=FAILURES_MAX), "E": walked}
    wallets = ["A", "B", "C", "D", "E"]

    def choose(cursor: str | None, share: int, urgent_max: int = 10) -> Visits:
        return choose_visits(wallets, marks, cursor, urgent_max=urgent_max, pass_share=share)

    assert choose(None, 2) == Visits(("C", "B"), ("A", "B"), ends_pass=False)
    assert choose("C", 2, 1) == Visits(("C",), ("D", "E"), ends_pass=True)
    assert choose("D", 3).daily_pass == ("E",)
    assert choose("E", 5) == Visits(("C", "B"), tuple(wallets), ends_pass=True)
    assert choose_visits([], {}, "E", urgent_max=1, pass_share=1) == Visits((), (), ends_pass=True)


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
