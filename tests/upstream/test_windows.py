"""A sliding window counts each lane exactly; a month lasts, is used up when there is demand, and rolls over."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.testing.virtual_time import VirtualClock
from support.budget_world import MAY, BudgetWorld
from tocsin.upstream.budget import LimitReading, Quota, WindowReading
from tocsin.upstream.windows import (
    DAY_MS,
    HOUR_MS,
    ClockSteps,
    Lane,
    Month,
    SlidingWindow,
    lane_max,
    reserve_of,
    span_of,
)

# Two buckets of 100 ms in a window of one second: 10 calls, then 31.
WINDOW = SlidingWindow(1_000, 100, ((0, 2, 3, 5), (1, 7, 11, 13)))
JUNE = 1_780_272_000_000  # its first instant
AT = JUNE - 10 * DAY_MS  # ten days before the end of May
MONTH = Month(span_of(AT), AT).primed(AT, 1_000, 0.2)


def spend_all_day_long(world: BudgetWorld, until_ms: int, request_every_ms: int = 0) -> list[int]:
    """Call for tasks as often as the budget allows, and sometimes for requests; return the calls per day."""
    per_day: Counter[int] = Counter()
    request_at = world.wall_ms
    while world.wall_ms < until_ms:
        waits_ms = [until_ms - world.wall_ms]
        for lane in Lane:
            if lane is Lane.REQUEST:
                if not request_every_ms or world.wall_ms < request_at:
                    continue
                request_at += request_every_ms
            while (denial := world.budget.ask(lane, world.wall_ms)) is None:
                world.budget = world.budget.granted(lane, world.wall_ms)
                per_day[(world.wall_ms - MAY.starts_at) // DAY_MS] += 1
            waits_ms.append(denial.wait_ms)
        world.wait(min(waits_ms))
    return [per_day[day] for day in range((until_ms - MAY.starts_at) // DAY_MS)]


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


def test_calls_of_the_future_count_as_just_made() -> None:
    assert WINDOW.not_after(460) == WINDOW
    assert WINDOW.not_after(99).buckets == ((0, 9, 14, 18),)


def test_a_window_moves_with_a_clock_that_is_set() -> None:
    """By whole buckets, upwards: the calls count for a part of a bucket longer, never shorter."""
    first = WINDOW.buckets[0]
    moved = [WINDOW.moved(by_ms).buckets[0] for by_ms in (1_000, 1_001, -1, -(10**9))]

    assert moved == [(first[0] + by, *first[1:]) for by in (10, 11, 0)] + [(0, *first[1:])]


@pytest.mark.parametrize(
    ("limit", "share", "expected"), [(10, 0.2, 2), (10, 0.0, 0), (10, 1.0, 5), (2, 0.2, 1), (1, 0.5, 0), (3, 0.01, 1)]
)
def test_the_reserve_is_at_least_one_call_and_never_all(limit: int, share: float, expected: int) -> None:
    assert reserve_of(limit, share) == expected
    assert lane_max(Lane.TASK, limit, share) == limit - expected


def test_requests_may_have_the_larger_half() -> None:
    assert [lane_max(Lane.REQUEST, limit, 0.2) for limit in (1, 2, 5, 10)] == [1, 1, 3, 5]


@given(calls=st.lists(st.integers(0, 3_000), max_size=40), limit=st.integers(1, 5))
def test_a_sliding_window_frees_exactly_when_it_says(calls: list[int], limit: int) -> None:
    """After exactly that wait a call fits, and a millisecond earlier it does not."""
    window, now = SlidingWindow(1_000, 100), 0
    for gap in calls:
        now += gap
        wait_ms = window.wait_ms(Lane.REQUEST, limit, limit, now)
        if wait_ms:
            assert window.wait_ms(Lane.REQUEST, limit, limit, now + wait_ms - 1) == 1
            now += wait_ms
        assert window.wait_ms(Lane.REQUEST, limit, limit, now) == 0
        window = window.plus(now, requests=1)


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@given(
    month=st.integers(200, 1_500),
    share=st.floats(0, 0.5),
    request_every_ms=st.sampled_from([0, HOUR_MS, 6 * HOUR_MS]),
    first_day=st.integers(0, 25),
    quiet_days=st.integers(0, 4),
)
def test_any_plan_lasts_and_is_used(
    month: int, share: float, request_every_ms: int, first_day: int, quiet_days: int
) -> None:
    """Begun on any day, after any quiet time, with any mix of lanes: the plan lasts and is used."""
    world = BudgetWorld(Quota(minute=30, month=month, request_share=share), MAY.starts_at + first_day * DAY_MS)
    world.wait(quiet_days * DAY_MS)

    per_day = spend_all_day_long(world, MAY.ends_at, request_every_ms)[first_day + quiet_days :]

    assert 0.9 * month - 2 <= sum(per_day) <= month
    assert min(per_day) >= 1


def test_a_quiet_week_may_be_made_up_for_and_no_more() -> None:
    """Unused calls are available at once, with a day's worth; the rest of the month keeps its share."""
    world = BudgetWorld(Quota(month=3_100, request_share=0))
    for _ in range(7 * 24):
        world.budget = replace(world.budget, month=world.budget.month_at(world.wall_ms))
        world.wait(HOUR_MS)

    burst = sum(world.call(Lane.TASK) for _ in range(3_100))

    assert 7 * 100 <= burst <= 8 * 100


def test_calls_by_others_on_the_same_account_are_paced_around() -> None:
    """When others use up half of the month in a day, what is left still lasts to its end."""
    world = BudgetWorld(Quota(minute=10, month=2_000))
    first = sum(spend_all_day_long(world, MAY.starts_at + DAY_MS))
    world.hear(LimitReading(month=WindowReading(remaining=1_000 - first)))

    per_day = spend_all_day_long(world, MAY.ends_at)[1:]

    assert 0.9 * (1_000 - first) <= sum(per_day) <= 1_000 - first
    assert min(per_day) >= 20


@pytest.mark.slow
def test_requests_find_their_share_when_tasks_take_all_they_can() -> None:
    """At any hour of the month a submitter gets through, although tasks never stop asking."""
    world = BudgetWorld(Quota(minute=10, month=2_000))
    for day in range(1, 31):
        spend_all_day_long(world, MAY.starts_at + day * DAY_MS)
        served = sum(world.call(Lane.REQUEST) for _ in range(2))
        assert served == 2


@pytest.mark.slow
def test_tasks_find_their_share_when_requests_never_stop() -> None:
    """A flood of requests leaves tasks at least their part of the month."""
    world = BudgetWorld(Quota(minute=10, month=500))
    by_lane: Counter[Lane] = Counter()
    while world.wall_ms < MAY.ends_at:
        called = [lane for lane in (Lane.REQUEST, Lane.TASK) if world.call(lane)]
        by_lane.update(called)
        world.wait(1_000 if called else 600_000)

    assert by_lane[Lane.TASK] >= 0.85 * 500
    assert sum(by_lane.values()) >= 0.9 * 500


def test_a_month_emptied_by_others_is_probed_hourly() -> None:
    """When its headers show nothing remaining, one call an hour is made; a better value opens the month again."""
    world = BudgetWorld(Quota(minute=10, month=1_000))
    assert world.call(Lane.TASK)
    world.hear(LimitReading(month=WindowReading(remaining=0)))
    calls = 0
    for _ in range(24 * 60):
        calls += world.call(Lane.TASK)
        world.wait(60_000)

    assert calls in {23, 24}
    world.hear(LimitReading(month=WindowReading(remaining=900)))
    assert world.call(Lane.TASK)
    assert world.call(Lane.REQUEST)


def test_the_month_rolls_over_with_the_calendar() -> None:
    """At midnight UTC on the first the count starts over, with calls available at once."""
    world = BudgetWorld(Quota(minute=100, month=50), MAY.ends_at - HOUR_MS)
    while world.call(Lane.TASK) or world.call(Lane.REQUEST):
        pass

    assert world.denied().until <= MAY.ends_at
    world.wait(MAY.ends_at - world.wall_ms)
    assert world.call(Lane.TASK)
    assert world.budget.month.spent == 1


def test_an_upstream_whose_month_rolls_over_on_another_day_is_followed() -> None:
    """A rise in the remaining calls shows the rollover; the next one is expected on the same day and time."""
    world = BudgetWorld(Quota(minute=100, month=1_000))
    spend_all_day_long(world, MAY.starts_at + 14 * DAY_MS)
    spent = world.budget.month.spent
    world.hear(LimitReading(month=WindowReading(remaining=1_000 - spent)))
    assert world.budget.month.spent == spent

    events = world.hear(LimitReading(month=WindowReading(remaining=999)))

    assert [event.event for event in events] == ["budget.month_rolled_over"]
    assert world.budget.month.spent == 1
    assert world.budget.month.span.starts_at == MAY.starts_at + 14 * DAY_MS
    assert world.budget.month.span.ends_at == MAY.ends_at + 14 * DAY_MS
    world.hear(LimitReading(month=WindowReading(remaining=300)))
    assert world.hear(LimitReading(month=WindowReading(remaining=1_000))) == []


def test_without_month_limit_nothing_is_paced_until_a_header_reports_one() -> None:
    """No configured month: calls go freely; a reported limit begins a paced month with a day's worth."""
    world = BudgetWorld(Quota())
    assert all(world.call(Lane.TASK) for _ in range(500))
    world.hear(LimitReading(month=WindowReading(limit=3_100, remaining=3_100 - 500)))

    left = sum(world.call(Lane.TASK) for _ in range(200))

    assert 50 <= left <= 100


def test_a_plan_that_we_used_up_ourselves_is_not_probed_before_the_rollover() -> None:
    """There is no hourly probe: we know that nothing has changed."""
    world = BudgetWorld(Quota(month=50))
    world.budget = replace(world.budget, month=replace(world.budget.month, spent=50))
    world.wait(3 * HOUR_MS)

    assert world.denied().until == MAY.ends_at


def tokens(month: Month) -> tuple[float, float]:
    return round(month.task_tokens, 6), round(month.request_tokens, 6)


@pytest.mark.parametrize(
    ("wall_ms", "offset_ms", "expected"),
    [
        (JUNE - 1, 0, ("2026-05", 1_777_593_600_000, JUNE)),
        (JUNE, 0, ("2026-06", JUNE, 1_782_864_000_000)),
        (JUNE + DAY_MS - 1, DAY_MS, ("2026-05", 1_777_593_600_000 + DAY_MS, JUNE + DAY_MS)),
        (JUNE + DAY_MS, DAY_MS, ("2026-06", JUNE + DAY_MS, 1_782_864_000_000 + DAY_MS)),
        (1_795_000_000_000, 0, ("2026-11", 1_793_491_200_000, 1_796_083_200_000)),
        (1_798_700_000_000, 0, ("2026-12", 1_796_083_200_000, 1_798_761_600_000)),
        (-5, 0, ("1970-01", 0, 2_678_400_000)),
        (10**18, 0, ("2100-01", 4_102_444_800_000, 4_105_123_200_000)),
    ],
)
def test_a_month_has_a_label_a_start_and_an_end(wall_ms: int, offset_ms: int, expected: tuple[str, int, int]) -> None:
    assert span_of(wall_ms, offset_ms) == expected


@pytest.mark.parametrize(
    ("left_ms", "limit", "spent", "expected"),
    [
        (10 * DAY_MS, 1_000, 0, (80, 20)),
        (10 * DAY_MS, 1_000, 500, (40, 10)),
        (DAY_MS // 2, 1_000, 0, (800, 200)),
        (10 * DAY_MS, 10, 0, (1, 1)),
        (10 * DAY_MS, 9, 0, (1, 0)),  # a fifth of it is less than two calls
        (10 * DAY_MS, 1_000, 1_000, (0, 0)),
        (10 * DAY_MS, 1_000, 2_000, (0, 0)),
        (DAY_MS // 2, 10, 0, (8, 2)),
    ],
)
def test_a_month_begins_with_a_days_worth_of_tokens(
    left_ms: int, limit: int, spent: int, expected: tuple[float, float]
) -> None:
    at = JUNE - left_ms
    assert tokens(replace(MONTH, spent=spent).primed(at, limit, 0.2)) == expected
    assert MONTH.primed(at, 1_000, 0.2).seen_at == at


def test_both_lanes_together_never_have_more_than_the_calls_left() -> None:
    assert tokens(Month(span_of(AT), AT).primed(AT, 3, 0.9)) == (1.0, 1.0)
    assert tokens(Month(span_of(AT), AT).primed(JUNE - 1, 3, 0.9)) == (0.3, 2.7)


@pytest.mark.parametrize(
    ("month", "now", "expected"),
    [
        (MONTH, AT, (80, 20)),
        (MONTH, AT + DAY_MS, (152, 38)),
        (MONTH, AT - 60_000, (80, 20)),
        (MONTH, AT - 60_001, (79.994_445, 19.998_611)),  # a jump back: as if it began
        (MONTH.moved(-DAY_MS), AT, (145.454_545, 36.363_636)),  # the clock was set, and a day passed
        (MONTH.moved(DAY_MS), AT + DAY_MS, (80, 20)),
        (replace(MONTH, task_tokens=5, request_tokens=195), AT + DAY_MS, (80, 200)),  # the rest overflows
        (replace(MONTH, spent=990), AT + DAY_MS, (8, 2)),
        (replace(MONTH, spent=950), AT, (40, 10)),
    ],
)
def test_tokens_come_back_evenly(month: Month, now: int, expected: tuple[float, float]) -> None:
    refilled = month.at(now, 1_000, 0.2)
    assert tokens(refilled) == expected
    assert refilled.seen_at == now


def test_the_next_month_has_its_own_count_and_the_last_one_is_kept() -> None:
    past = {f"{year}-{month:02}": 7 for year in (2024, 2025) for month in range(1, 13)}
    may = replace(MONTH, spent=400, used_by_others=50, past={**past, "2026-06": 3})
    june = may.at(JUNE, 1_000, 0.2)

    assert (june.span.label, june.spent, june.used_by_others) == ("2026-06", 3, 0)
    assert june.past == {**{label: 7 for label in past if label != "2024-01"}, "2026-05": 400}
    assert MONTH.at(JUNE, 1_000, 0.2).spent == 0
    back = june.at(JUNE - 1, 1_000, 0.2)
    assert (back.span.label, back.spent) == ("2026-05", 400)
    assert tokens(june) == (26.586_667, 6.646_667)


@pytest.mark.parametrize(
    ("month", "lane", "limit", "expected_ms"),
    [
        (MONTH, Lane.TASK, 1_000, 0),
        (replace(MONTH, task_tokens=1.0), Lane.TASK, 1_000, 0),
        (replace(MONTH, task_tokens=0.5, request_tokens=0.5), Lane.TASK, 1_000, 540_542),
        (replace(MONTH, task_tokens=0.5, request_tokens=0.0), Lane.REQUEST, 1_000, 4_322_163),
        (replace(MONTH, task_tokens=9, request_tokens=0.5), Lane.REQUEST, 1_000, 2_180_718),
        (replace(MONTH, task_tokens=0.5), Lane.REQUEST, 9, 864_000_000),  # both lanes have one bucket
        (replace(MONTH, task_tokens=0, request_tokens=0), Lane.REQUEST, 9, 96_000_001),
        (replace(MONTH, task_tokens=0, request_tokens=0), Lane.TASK, 1, 864_000_000),
        (replace(MONTH, task_tokens=0, request_tokens=0), Lane.TASK, 2, 432_000_001),
        (replace(MONTH, spent=1_000), Lane.TASK, 1_000, 864_000_000),
        (replace(MONTH, task_tokens=0.5, request_tokens=0.5), Lane.TASK, 1, 864_000_000),
        (replace(MONTH, task_tokens=0.5, request_tokens=0.5), Lane.TASK, 2, 432_000_001),
    ],
)
def test_a_call_waits_for_its_token(month: Month, lane: Lane, limit: int, expected_ms: int) -> None:
    assert month.wait_ms(lane, limit, 0.2, probing=False) == expected_ms


@pytest.mark.parametrize(
    ("ago_ms", "expected_ms"), [(None, 0), (0, 3_600_000), (3_599_999, 1), (3_600_000, 0), (-1, 0), (1, 3_599_999)]
)
def test_an_empty_month_is_probed_once_an_hour(ago_ms: int | None, expected_ms: int) -> None:
    """A grant in the future means that the clock was set back."""
    granted_at = None if ago_ms is None else AT - ago_ms
    empty = replace(MONTH, used_by_others=1_000, granted_at=granted_at)
    assert empty.wait_ms(Lane.TASK, 1_000, 0.2, probing=True) == expected_ms


def test_a_call_takes_a_token_of_its_lane() -> None:
    for lane, limit, held, expected in (
        (Lane.TASK, 1_000, 80, (79, 20)),
        (Lane.REQUEST, 1_000, 20, (80, 19)),
        (Lane.REQUEST, 9, 80, (79, 20)),  # the task bucket, when the share would be less than two calls
        (Lane.REQUEST, 10, 20, (80, 19)),
    ):
        spent = MONTH.spend(lane, limit, 0.2)
        assert (tokens(spent), spent.spent, spent.granted_at) == (expected, 1, AT)
        assert MONTH.tokens(lane, limit, 0.2) == held
    empty = replace(MONTH, task_tokens=0.5, request_tokens=0.5)
    assert tokens(empty.spend(Lane.TASK, 1_000, 0.2)) == (0, 0.5)
    assert tokens(empty.spend(Lane.REQUEST, 1_000, 0.2)) == (0.5, 0)


def test_calls_that_we_did_not_make_count_as_those_of_others() -> None:
    month = replace(MONTH, spent=100)
    for remaining, others in ((900, 0), (899, 1), (950, 0), (0, 900), (2_000, 0)):
        told = month.reconcile(remaining, 1_000, 0.2)
        assert (told.used_by_others, told.reported, told.spent) == (others, remaining, 100)
        assert tokens(told) == (80, 20)


def test_calls_that_become_available_again_come_with_tokens() -> None:
    empty = replace(MONTH, spent=100, used_by_others=900, task_tokens=0, request_tokens=0)
    assert tokens(empty.reconcile(500, 1_000, 0.2)) == (40, 10)
    assert tokens(empty.reconcile(0, 1_000, 0.2)) == (0, 0)
    assert tokens(empty.reconcile(1, 1_000, 0.2)) == (1, 0)
    left = replace(empty, used_by_others=899)
    assert tokens(left.reconcile(500, 1_000, 0.2)) == (0, 0)


@pytest.mark.parametrize(
    ("limit", "spent", "reported", "remaining", "rolled_ago_ms", "rolls"),
    [
        (1_000, 900, 100, 200, None, True),
        (1_000, 900, 100, 199, None, False),
        (1_000, 899, 100, 200, None, False),
        (1_000, 900, None, 200, None, False),
        (1_005, 905, 100, 200, None, True),
        (50, 30, 20, 30, None, True),
        (50, 30, 21, 30, None, False),
        (50, 29, 20, 30, None, False),
        (1_000, 900, 100, 200, 27 * DAY_MS, True),
        (1_000, 900, 100, 200, 27 * DAY_MS - 1, False),
        (1_000, 900, 100, 200, 0, False),
        (1_000, 900, 100, 200, -1, True),  # the clock was set back
    ],
)
def test_a_rollover_shows_in_what_remains(
    limit: int, spent: int, reported: int | None, remaining: int, rolled_ago_ms: int | None, rolls: bool
) -> None:
    """It rises by a tenth of the limit, or ten calls, and far fewer count as used than we made."""
    rolled_at = None if rolled_ago_ms is None else AT - rolled_ago_ms
    month = replace(MONTH, spent=spent, reported=reported, rolled_over_at=rolled_at)
    told = month.reconcile(remaining, limit, 0.2)
    assert (told.span.starts_at == AT) is rolls
    assert told.spent == (limit - remaining if rolls else spent)
    assert told.rolled_over_at == (AT if rolls else rolled_at)


def test_after_a_rollover_months_begin_at_that_day() -> None:
    told = replace(MONTH, spent=900, reported=100, task_tokens=0).reconcile(950, 1_000, 0.2)

    assert told.span == ("2026-05", AT, JUNE + 21 * DAY_MS)
    assert (told.offset_ms, told.used_by_others) == (21 * DAY_MS, 0)
    assert tokens(told) == (24.516_129, 6.129_032)
    assert replace(MONTH, spent=900, reported=100).reconcile(1_005, 1_000, 0.2).spent == 0


def test_a_clock_beyond_every_month_does_not_open_an_empty_one() -> None:
    broken = 10**15
    month = Month.begin(broken, 1_000, 0.2)

    assert tokens(month) == (800, 200)
    assert tokens(month.at(broken, 1_000, 0.2)) == (800, 200)
    assert replace(month, spent=1_000).wait_ms(Lane.TASK, 1_000, 0.2, probing=False) == 1


def test_the_calls_left_for_tasks() -> None:
    assert MONTH.for_tasks(1_000, 0.2) == 80 + 900 * 0.8
    assert replace(MONTH, spent=950).for_tasks(1_000, 0.2) == 80
    assert MONTH.time_left_ratio() == 10 / 31
    assert [MONTH.calls_left(limit) for limit in (0, 1_000)] == [0, 1_000]
    assert replace(MONTH, spent=7, used_by_others=5).calls_left(20) == 8


def test_a_stored_month_is_refilled_for_the_time_in_between() -> None:
    stored = replace(MONTH, spent=3, past={"2026-04": 9})
    again = Month.from_json(stored.to_json())

    assert again == stored
    assert tokens(again.at(AT + DAY_MS, 1_000, 0.2)) == tokens(stored.at(AT + DAY_MS, 1_000, 0.2))


async def test_a_clock_that_is_set_is_noticed_once() -> None:
    """A drift of two seconds is none, however often it is looked at."""
    clock = VirtualClock()
    steps = ClockSteps(clock)
    noticed = []
    for step_ms in (0, 2_000, 1, 0, -HOUR_MS, 0):
        clock.jump(step_ms)
        noticed.append(steps.newest())

    assert noticed == [0, 0, 2_001, 0, -HOUR_MS, 0]
