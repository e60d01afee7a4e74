"""Which lists a sweep reads: those that are due, those that failed, and the others in turn."""

from dataclasses import replace

from tocsin.swaps.position import FAILURES_MAX, Mark
from tocsin.swaps.sweep import choose_visits, due_contracts, reading_order, turn_period

DAY_MS = 86_400_000


def test_urgent_wallets_come_first_and_then_a_share_of_all() -> None:
    """Those never read and those that failed; one that keeps failing waits until it has waited longest."""
    read = Mark(walked_at=5, tried_at=9)
    marks = {
        "A": read,
        "B": replace(read, failures=4),
        "C": replace(read, failures=1, tried_at=7),
        "E": replace(read, failures=FAILURES_MAX, tried_at=8),
        "F": Mark(failures=FAILURES_MAX, tried_at=6),
    }

    def chosen(urgent_max: int, share: int) -> str:
        return "".join(choose_visits("FEDCBA", marks, urgent_max=urgent_max, share=share))

    assert chosen(9, 0) == "DCB"
    assert chosen(2, 2) == "DCF"
    assert chosen(0, 6) == "DFCEAB"
    assert choose_visits([], {}, urgent_max=1, share=1) == []


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
