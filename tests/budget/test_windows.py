"""A sliding window counts each lane exactly, frees a bucket when the last call in it is old enough, and no sooner."""

import pytest

from tocsin.upstream.budget import Lane, SlidingWindow, lane_max, reserve_of

# Two buckets of 100 ms in a window of one second: 10 calls, then 31.
WINDOW = SlidingWindow(1_000, 100, ((0, 2, 3, 5), (1, 7, 11, 13)))


def test_calls_of_a_bucket_are_counted_together_by_lane() -> None:
    """A clock that goes back a little adds to the newest bucket."""
    window = SlidingWindow(1_000, 100).plus(50, tasks=2).plus(99, requests=3).plus(160, others=4)
    assert window.buckets == ((0, 2, 3, 0), (1, 0, 0, 4))
    assert window.plus(199, 1, 2, 3).buckets == ((0, 2, 3, 0), (1, 1, 2, 7))
    assert window.plus(50, tasks=1).buckets == ((0, 2, 3, 0), (1, 1, 0, 4))


def test_a_bucket_counts_until_its_last_instant_has_left_the_window() -> None:
    assert WINDOW.counts(1_099) == (9, 14, 18)
    assert WINDOW.counts(1_100) == (7, 11, 13)
    assert WINDOW.counts(1_199) == (7, 11, 13)
    assert WINDOW.counts(1_200) == (0, 0, 0)
    assert WINDOW.plus(1_100, tasks=1).buckets == ((1, 7, 11, 13), (11, 1, 0, 0))


@pytest.mark.parametrize(
    ("lane", "limit", "most", "expected_ms"),
    [
        (Lane.TASK, 42, 10, 0),
        (Lane.TASK, 41, 10, 940),
        (Lane.TASK, 32, 10, 940),
        (Lane.TASK, 31, 10, 1_040),
        (Lane.TASK, 42, 9, 940),
        (Lane.TASK, 42, 8, 940),
        (Lane.TASK, 42, 7, 1_040),
        (Lane.REQUEST, 42, 15, 0),
        (Lane.REQUEST, 42, 14, 940),
        (Lane.REQUEST, 42, 12, 940),
        (Lane.REQUEST, 42, 11, 1_040),
    ],
)
def test_a_call_waits_until_the_limit_and_its_lane_have_room(
    lane: Lane, limit: int, most: int, expected_ms: int
) -> None:
    assert WINDOW.wait_ms(lane, limit, most, 160) == expected_ms


def test_calls_that_we_did_not_make_are_those_of_others() -> None:
    assert WINDOW.reconcile(50, 9, 460) == WINDOW
    assert WINDOW.reconcile(50, 40, 460) == WINDOW
    assert WINDOW.reconcile(50, 8, 160).buckets == ((0, 2, 3, 5), (1, 7, 11, 14))
    assert WINDOW.reconcile(50, 0, 460).buckets == (*WINDOW.buckets, (4, 0, 0, 9))


def test_after_a_reboot_every_call_counts_as_just_made() -> None:
    assert WINDOW.restarted(5_000).buckets == ((50, 9, 14, 18),)


@pytest.mark.parametrize(
    ("limit", "share", "expected"), [(10, 0.2, 2), (10, 0.0, 0), (10, 1.0, 9), (2, 0.2, 1), (1, 0.5, 0), (3, 0.01, 1)]
)
def test_the_reserve_is_at_least_one_call_and_never_all(limit: int, share: float, expected: int) -> None:
    assert reserve_of(limit, share) == expected
    assert lane_max(Lane.TASK, limit, share) == limit - expected


def test_requests_may_have_the_larger_half() -> None:
    assert [lane_max(Lane.REQUEST, limit, 0.2) for limit in (1, 2, 5, 10)] == [1, 1, 3, 5]
