"""The budget never exceeds a window, believes headers with care, and backs off without latching."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import UsageError
from support.budget_world import HOUR_MS, MAY, BudgetWorld
from tocsin.upstream.budget import DAY_MS, Lane, LimitReading, Quota, SlidingWindow, WindowReading

lanes = st.sampled_from(list(Lane))
readings = st.builds(
    LimitReading,
    *(st.builds(WindowReading, st.none() | st.integers(1, 12), st.none() | st.integers(0, 15)) for _ in "smm"),
)
steps = st.one_of(
    st.tuples(st.just("call"), lanes),
    st.tuples(st.just("call"), lanes),
    st.tuples(st.just("wait"), st.integers(0, 2_000) | st.integers(0, 70_000) | st.integers(0, 20 * DAY_MS)),
    st.tuples(st.just("jump"), st.integers(-90_000, 90_000) | st.integers(-70 * DAY_MS, 70 * DAY_MS)),
    st.tuples(st.just("restart")),
    st.tuples(st.just("reboot"), st.integers(0, 10**9)),
    st.tuples(st.just("hear"), st.none() | readings),
    st.tuples(st.just("limited"), st.none() | st.integers(0, 10**8)),
)


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(
    plan=st.builds(Quota, st.integers(1, 4), st.integers(2, 8), st.integers(3, 20), st.sampled_from([0, 0.2, 0.5])),
    script=st.lists(steps, max_size=60),
)
def test_no_window_is_ever_exceeded(plan: Quota, script: list[tuple[Any, ...]]) -> None:
    """Every limit holds, whatever the order of calls, waits, clock jumps, restarts and headers."""
    world = BudgetWorld(plan)
    for kind, *values in script:
        if kind == "limited":
            world.hear(LimitReading(), limited=True, retry_after_ms=values[0])
            world.hear(None)
        else:
            getattr(world, kind)(*values)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(script=st.lists(steps, max_size=40), lane=lanes)
def test_a_denial_ends(script: list[tuple[Any, ...]], lane: Lane) -> None:
    """From any state, a caller that waits as long as the denial says gets a permit in a month not used up before."""
    world = BudgetWorld(Quota(2, 5, 10))
    for kind, *values in script:
        getattr(world, kind, lambda _value: None)(*values)
    given_up_at = world.true_ms + (len(world.by_month) + 2) * 31 * DAY_MS
    while (denial := world.budget.ask(lane, world.moment)) is not None:
        assert denial.wait_ms > 0
        assert denial.reason
        world.wait(denial.wait_ms)
        world.hear(None)  # calls that were under way have ended
        assert world.true_ms <= given_up_at


def test_a_reported_limit_replaces_the_plan_and_is_logged() -> None:
    """Headers that contradict the configuration are believed, in both directions, with one event each."""
    world = BudgetWorld(Quota(minute=500, month=150_000))

    lower = world.hear(LimitReading(minute=WindowReading(limit=50, remaining=49)))
    again = world.hear(LimitReading(minute=WindowReading(limit=50, remaining=48)))
    higher = world.hear(LimitReading(month=WindowReading(limit=500_000, remaining=499_000)))

    assert [(event.event, event.fields["reported"]) for event in lower] == [("budget.limit_corrected", 50)]
    assert again == []
    assert [(event.event, event.fields["was"]) for event in higher] == [("budget.limit_corrected", 150_000)]
    assert replace(world.budget.limits, month=None) == Quota(minute=50)
    assert world.budget.limits.month == 500_000


def test_more_remaining_than_the_plan_has_is_reported_once() -> None:
    """An upstream that reports no limit but more remaining calls contradicts the plan; the plan stands."""
    world = BudgetWorld(Quota(minute=10, month=10_000))
    reading = LimitReading(month=WindowReading(remaining=49_000))

    assert [event.event for event in world.hear(reading)] == ["budget.plan_contradicted"]
    assert world.hear(reading) == []
    assert world.budget.limits.month == 10_000


def test_a_low_quota_is_reported_once_and_not_at_the_months_end() -> None:
    """Below a fifth of the header's own limit one line is written, unless the month is nearly over."""
    low = LimitReading(month=WindowReading(limit=150_000, remaining=29_000))
    early, late = (BudgetWorld(Quota(month=150_000)), BudgetWorld(Quota(month=150_000), MAY.ends_at - 3 * DAY_MS))

    assert [event.event for event in early.hear(low)] == ["budget.quota_low"]
    assert early.hear(low) == []
    assert late.hear(low) == []


def test_a_429_closes_the_limiter_for_as_long_as_it_says() -> None:
    """Retry-After is kept to the millisecond, an hour at most; afterwards one call at a time."""
    world = BudgetWorld(Quota())
    assert world.call(Lane.TASK)
    events = world.hear(LimitReading(), limited=True, retry_after_ms=22_000)
    denial = world.budget.ask(Lane.REQUEST, world.moment)

    assert [event.event for event in events] == ["budget.limiter_closed"]
    assert denial is not None
    assert denial.wait_ms == 22_000
    world.wait(22_000)
    assert world.call(Lane.TASK)
    assert not world.call(Lane.TASK)
    world.hear(LimitReading())
    assert world.call(Lane.TASK)
    assert world.call(Lane.TASK)
    world.hear(LimitReading(), limited=True, retry_after_ms=10**9)
    denial = world.budget.ask(Lane.TASK, world.moment)
    assert denial is not None
    assert denial.wait_ms == HOUR_MS


def test_back_off_doubles_with_new_429s_only() -> None:
    """Each 429 while the limiter was open doubles the pause; those of calls already under way do not."""
    world = BudgetWorld(Quota())
    pauses = []
    for _ in range(12):
        for _ in range(3):
            world.hear(LimitReading(), limited=True)
        denial = world.budget.ask(Lane.TASK, world.moment)
        assert denial is not None
        pauses.append(denial.wait_ms)
        world.wait(denial.wait_ms)

    assert pauses[:4] == [1_000, 2_000, 4_000, 8_000]
    assert pauses[-1] == 150_000


def test_windows_and_back_offs_are_exact_after_a_restart() -> None:
    """A process that is restarted often neither starves nor overspends, whatever happens to the wall clock."""
    world = BudgetWorld(Quota(minute=10))
    for _ in range(9):
        assert world.call(Lane.TASK)
        world.wait(1_000)
    assert not world.call(Lane.TASK)  # one of ten is kept for requests
    for _ in range(12):
        world.wait(5_000)
        world.jump(-HOUR_MS)
        world.restart()
    assert world.call(Lane.TASK)

    world.hear(LimitReading(), limited=True, retry_after_ms=30_000)
    world.save()
    world.wait(10_000)
    world.jump(-5 * HOUR_MS)
    world.restart()
    denial = world.budget.ask(Lane.TASK, world.moment)
    assert denial is not None
    assert denial.wait_ms == 20_000


def test_a_back_off_goes_on_after_a_reboot() -> None:
    """The rest of it lasts, by the wall clock; a clock set back does not lengthen it."""
    world = BudgetWorld(Quota())
    world.hear(LimitReading(), limited=True, retry_after_ms=600_000)
    world.save()
    world.wait(200_000)
    world.reboot(5)
    denial = world.budget.ask(Lane.TASK, world.moment)
    assert denial is not None
    assert denial.wait_ms == 400_000

    world.jump(-10 * HOUR_MS)
    world.reboot(5)
    denial = world.budget.ask(Lane.TASK, world.moment)
    assert denial is not None
    assert denial.wait_ms == 600_000


def test_limits_reported_under_another_plan_are_forgotten() -> None:
    """Changing the configured plan takes effect at the next start; what was spent stays spent."""
    world = BudgetWorld(Quota(minute=500, month=1_000))
    assert world.call(Lane.TASK)
    world.hear(LimitReading(minute=WindowReading(limit=50, remaining=40)))
    assert world.call(Lane.TASK)

    world.restart()
    assert world.budget.limits.minute == 50
    world.plan = Quota(minute=300, month=1_000)
    world.restart()
    assert world.budget.limits.minute == 300
    assert world.budget.month.spent == 2


def test_a_plan_that_is_a_cap_is_lowered_by_headers_but_never_raised() -> None:
    """This is for a shared key: others use the upstream's limit as well."""
    world = BudgetWorld(Quota(minute=10, month=1_000, is_cap=True))
    raised = world.hear(LimitReading(minute=WindowReading(limit=500, remaining=499)))
    assert (world.budget.limits.minute, [event.event for event in raised]) == (10, ["budget.plan_contradicted"])
    world.hear(LimitReading(minute=WindowReading(limit=4, remaining=4)))
    assert world.budget.limits.minute == 4
    world.hear(LimitReading(minute=WindowReading(limit=500, remaining=499)))
    assert world.budget.limits.minute == 10


@pytest.mark.parametrize("wrong", [{"minute": 0}, {"month": -1}, {"request_share": 1.0}])
def test_an_impossible_plan_is_refused(wrong: dict[str, Any]) -> None:
    """A limit below 1 or a share that leaves nothing for tasks is a configuration error."""
    with pytest.raises(UsageError, match=r"limit per|share kept"):
        Quota(**wrong)


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


def test_calls_left_of_a_lane_are_its_tokens_or_a_days_worth() -> None:
    """With a month, the content of its bucket; without, a day of the requests' share; without limits, infinity."""
    month = BudgetWorld(Quota(month=31_000))
    for _ in range(10):
        assert month.call(Lane.REQUEST)

    assert month.budget.calls_left(Lane.REQUEST, month.moment) == pytest.approx(90)
    assert month.budget.calls_left(Lane.TASK, month.moment) == pytest.approx(900)
    minute, endless = BudgetWorld(Quota(minute=50)), BudgetWorld(Quota())
    assert minute.budget.calls_left(Lane.REQUEST, minute.moment) == 5 * 1_440
    assert endless.budget.calls_left(Lane.REQUEST, endless.moment) == float("inf")


def test_a_late_answer_does_not_open_a_closed_limiter() -> None:
    """A call that was under way when a 429 arrived may still succeed: everybody waits as long as the 429 said."""
    world = BudgetWorld(Quota())
    assert world.call(Lane.TASK)
    assert world.call(Lane.TASK)
    world.hear(LimitReading(), limited=True, retry_after_ms=60_000)
    world.wait(1_000)

    assert world.hear(LimitReading()) == []
    denial = world.budget.ask(Lane.TASK, world.moment)
    assert denial is not None
    assert denial.wait_ms == 59_000


def test_after_a_reboot_the_calls_of_the_last_minute_count() -> None:
    """Nobody knows how long the machine was off: perhaps not at all."""
    world = BudgetWorld(Quota(minute=10, request_share=0))
    assert all(world.call(Lane.TASK) for _ in range(10))
    world.wait(1_000)
    world.reboot(5)

    assert not world.call(Lane.TASK)
    world.wait(66_000)
    assert world.call(Lane.TASK)


def test_both_lanes_together_stay_within_the_limit() -> None:
    """Four calls by tasks and one by a request are five: a second request waits, although its lane has room."""
    world = BudgetWorld(Quota(minute=5, request_share=0.2))
    assert [world.call(Lane.TASK) for _ in range(5)] == [True] * 4 + [False]

    assert [world.call(Lane.REQUEST) for _ in range(2)] == [True, False]
