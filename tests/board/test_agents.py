"""Wins, holding times and draw-down."""

import pytest

from tocsin.board.agents import TradingStats, ValuedSwap, draw_down, trading_stats


def swap(time_s: int, given: tuple[str, int, float | None], received: tuple[str, int, float | None]) -> ValuedSwap:
    return ValuedSwap(time_s, given[0], given[1], received[0], received[1], given[2], received[2])


def test_what_leaves_for_more_than_it_came_in_for_is_a_win() -> None:
    """100 B are received for $10 each; half is given for $6 after an hour, half for $4 after two."""
    stats = trading_stats(
        [
            swap(0, ("a", 10, 10.0), ("b", 100, 10.0)),
            swap(3_600, ("b", 50, 6.0), ("a", 6, 6.0)),
            swap(7_200, ("b", 50, 4.0), ("a", 4, 4.0)),
        ]
    )

    assert stats == TradingStats(closed=2, valued=2, win_rate=0.5, holding_s=5_400)


def test_what_was_brought_along_closes_nothing_and_what_has_no_value_is_neither() -> None:
    """Only tokens received in a swap can be closed; without values there is no win rate."""
    assert trading_stats([swap(0, ("a", 10, 1.0), ("b", 5, 1.0))]) == TradingStats(0, 0, None, None)
    unknown = trading_stats([swap(0, ("a", 10, None), ("b", 5, None)), swap(60, ("b", 9, None), ("a", 9, None))])
    assert unknown == TradingStats(1, 0, None, 60)


def test_what_came_in_first_leaves_first_in_parts() -> None:
    """10 B for $10 at 100 s, 10 B for $30 at 200 s; 15 B leave for $30 at 1,000 s: one win, one loss."""
    stats = trading_stats(
        [
            swap(100, ("a", 1, 10.0), ("b", 10, 10.0)),
            swap(200, ("a", 1, 30.0), ("b", 10, 30.0)),
            swap(1_000, ("b", 15, 30.0), ("a", 1, 30.0)),
        ]
    )

    assert stats == TradingStats(closed=2, valued=2, win_rate=0.5, holding_s=850)


def test_what_is_left_of_a_part_keeps_its_own_value() -> None:
    """10 B for $10: 4 leave for $4, which is no win; the 6 that are left cost $6, and leave for $6.01, which is one."""
    stats = trading_stats(
        [
            swap(0, ("a", 1, 10.0), ("b", 10, 10.0)),
            swap(10, ("b", 4, 4.0), ("c", 1, 4.0)),
            swap(20, ("b", 6, 6.01), ("c", 1, 6.01)),
            swap(30, ("b", 5, 5.0), ("c", 1, 5.0)),  # nothing is left of it
        ]
    )

    assert stats == TradingStats(closed=2, valued=2, win_rate=0.5, holding_s=15)


@pytest.mark.parametrize(
    ("values", "deepest"), [([], 0), ([5], 0), ([1, 2, 3], 0), ([0, 10, 4, 12, 3, 20], 9), ([-1, -5], 4)]
)
def test_the_draw_down_is_the_deepest_fall_from_a_peak(values: list[float], deepest: float) -> None:
    """Not from the first value, and not to the last."""
    assert draw_down(values) == deepest
