"""A budget never exceeds a window, believes headers with care, backs off without latching, and forecasts its month."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import UsageError
from support.budget_world import MAY, BudgetWorld
from tocsin.errors import MalformedShape
from tocsin.upstream.budget import Budget, BudgetForecast, LimitReading, Quota, WaitingCallers, WindowReading
from tocsin.upstream.windows import DAY_MS, HOUR_MS, Lane

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
    st.tuples(st.just("hear"), st.none() | readings),
    st.tuples(st.just("limited"), st.none() | st.integers(0, 10**8)),
)
HALF_WAY = MAY.starts_at + 15 * DAY_MS
TOO_LARGE = 10**15 + 1
BUDGET = Budget.begin(Quota(), MAY.starts_at)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
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
@settings(max_examples=100, deadline=None)
@given(script=st.lists(steps, max_size=40), lane=lanes)
def test_a_denial_ends(script: list[tuple[Any, ...]], lane: Lane) -> None:
    """From any state, a caller that waits as long as the denial says gets a permit in a month not used up before."""
    world = BudgetWorld(Quota(2, 5, 10))
    for kind, *values in script:
        getattr(world, kind, lambda _value: None)(*values)
    given_up_at = world.true_ms + (len(world.by_month) + 2) * 31 * DAY_MS
    while (denial := world.budget.ask(lane, world.wall_ms)) is not None:
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
    denial = world.denied(Lane.REQUEST)

    assert [event.event for event in events] == ["budget.limiter_closed"]
    assert denial.wait_ms == 22_000
    world.wait(22_000)
    assert world.call(Lane.TASK)
    assert not world.call(Lane.TASK)
    world.hear(LimitReading())
    assert world.call(Lane.TASK)
    assert world.call(Lane.TASK)
    world.hear(LimitReading(), limited=True, retry_after_ms=10**9)
    assert world.denied().wait_ms == HOUR_MS


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
    assert world.denied().wait_ms == 20_000


def test_a_back_off_goes_on_after_a_restart() -> None:
    """The rest of it lasts, by the clock; one that was set back meanwhile does not lengthen it beyond an hour."""
    world = BudgetWorld(Quota())
    world.hear(LimitReading(), limited=True, retry_after_ms=600_000)
    world.save()
    world.wait(200_000)
    world.restart()
    assert world.denied().wait_ms == 400_000

    world.jump_while_down(-10 * HOUR_MS)
    world.restart()
    assert world.denied().wait_ms == HOUR_MS


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


def test_calls_left_of_a_lane_are_its_tokens_or_a_days_worth() -> None:
    """With a month, the content of its bucket; without, a day of the requests' share; without limits, infinity."""
    month = BudgetWorld(Quota(month=31_000))
    for _ in range(10):
        assert month.call(Lane.REQUEST)

    assert month.budget.calls_left(Lane.REQUEST, month.wall_ms) == pytest.approx(90)
    assert month.budget.calls_left(Lane.TASK, month.wall_ms) == pytest.approx(900)
    minute, endless = BudgetWorld(Quota(minute=50)), BudgetWorld(Quota())
    assert minute.budget.calls_left(Lane.REQUEST, minute.wall_ms) == 5 * 1_440
    assert endless.budget.calls_left(Lane.REQUEST, endless.wall_ms) == float("inf")


@pytest.mark.parametrize("set_back_ms", [0, HOUR_MS])
def test_after_a_restart_the_calls_of_the_last_minute_count(set_back_ms: int) -> None:
    """If the clock was set back meanwhile, they count as just made."""
    world = BudgetWorld(Quota(minute=10, request_share=0))
    assert all(world.call(Lane.TASK) for _ in range(10))
    world.wait(1_000)
    world.jump_while_down(-set_back_ms)
    world.restart()

    assert not world.call(Lane.TASK)
    world.wait(66_000)
    assert world.call(Lane.TASK)


def test_both_lanes_together_stay_within_the_limit() -> None:
    """Four calls by tasks and one by a request are five: a second request waits, although its lane has room."""
    world = BudgetWorld(Quota(minute=5, request_share=0.2))
    assert [world.call(Lane.TASK) for _ in range(5)] == [True] * 4 + [False]

    assert [world.call(Lane.REQUEST) for _ in range(2)] == [True, False]


def test_a_full_window_is_a_denial_by_the_budget() -> None:
    """Of a second and of a minute; the longer wait is the reason."""
    world = BudgetWorld(Quota(second=1, minute=2, request_share=0))
    world.call(Lane.TASK)
    second = world.denied()
    world.wait(2_000)
    world.call(Lane.TASK)
    minute = world.denied()

    assert (second.by_budget, second.reason) == (True, "the limit of 1 calls per second is reached")
    assert (minute.by_budget, minute.reason) == (True, "the limit of 2 calls per minute is reached")
    assert minute.wait_ms > second.wait_ms
    assert minute.until == world.wall_ms + minute.wait_ms


def test_a_429_is_a_denial_by_the_upstream() -> None:
    """Even while another window is full that becomes free earlier."""
    world = BudgetWorld(Quota(minute=1, request_share=0))
    world.call(Lane.TASK)
    world.hear(LimitReading(), limited=True, retry_after_ms=600_000)
    denial = world.denied()

    assert not denial.by_budget
    assert denial.wait_ms == 600_000


def test_a_429_that_ends_before_the_window_is_free_leaves_the_budget_to_say_no() -> None:
    """The longer of the two waits decides who refused."""
    world = BudgetWorld(Quota(minute=1, request_share=0))
    world.call(Lane.TASK)
    world.hear(LimitReading(), limited=True, retry_after_ms=1_000)
    denial = world.denied()

    assert denial.by_budget
    assert denial.wait_ms > 50_000


def test_a_month_that_is_used_up_is_a_denial_by_the_budget() -> None:
    """We pace it until the month ends."""
    world = BudgetWorld(Quota(month=2, request_share=0))
    while world.budget.ask(Lane.TASK, world.wall_ms) is None:
        world.call(Lane.TASK)

    assert world.denied().by_budget


def test_one_probe_goes_through_a_closed_limiter() -> None:
    """Not while it is open, while a call is under way, or while another probe is."""
    world = BudgetWorld(Quota(minute=10, request_share=0))
    open_ = world.budget.may_probe(Lane.TASK, world.wall_ms)
    world.call(Lane.TASK)
    world.hear(LimitReading(), limited=True, retry_after_ms=600_000)
    closed = world.budget.may_probe(Lane.TASK, world.wall_ms)
    under_way = replace(world.budget, in_flight=1).may_probe(Lane.TASK, world.wall_ms)
    probing = replace(world.budget, probing=True).may_probe(Lane.TASK, world.wall_ms)

    assert (open_, closed, under_way, probing) == (False, True, False, False)


def forecast(world: BudgetWorld) -> BudgetForecast | None:
    return world.budget.status(world.wall_ms, WaitingCallers(0, 0)).forecast


def known_forecast(world: BudgetWorld) -> BudgetForecast:
    found = forecast(world)
    assert found is not None
    return found


def call_for(world: BudgetWorld, hours: int, per_hour: int) -> None:
    for _ in range(hours * per_hour):
        assert world.call(Lane.TASK)
        world.wait(HOUR_MS // per_hour)


def test_a_fresh_start_in_the_middle_of_a_month_counts_from_its_first_call() -> None:
    """Started on the 16th with ten calls an hour: 240 a day for the remaining 16 days."""
    world = BudgetWorld(Quota(month=150_000), HALF_WAY)
    call_for(world, 24, 10)

    told = known_forecast(world)
    assert told.per_day == 240
    assert told.used_at_end == 16 * 240
    assert told.runs_out_at is None


def test_a_first_burst_gives_no_forecast() -> None:
    """45 calls of the first minute do not stand for a month; after an hour there is a forecast."""
    world = BudgetWorld(Quota(month=150_000), HALF_WAY)
    for _ in range(45):
        assert world.call(Lane.TASK)
    assert forecast(world) is None
    world.wait(HOUR_MS - 1)
    assert forecast(world) is None

    world.wait(1)
    told = known_forecast(world)
    assert told.per_day == 45 * 24


def test_there_is_no_forecast_without_calls() -> None:
    world = BudgetWorld(Quota(month=150_000), HALF_WAY)
    world.wait(DAY_MS)

    assert forecast(world) is None


def test_the_last_day_counts_not_the_weeks_before() -> None:
    """After a week with 2 calls an hour, a day with 20: the month goes on with 20."""
    world = BudgetWorld(Quota(month=150_000))
    call_for(world, 7 * 24, 2)
    call_for(world, 24, 20)

    told = known_forecast(world)
    assert told.per_day == 480
    assert 12 * HOUR_MS <= world.wall_ms - told.since <= DAY_MS


def test_a_service_that_was_away_is_not_judged_by_its_absence() -> None:
    """Ten days after its last call it starts again: the rate is that of the new start."""
    world = BudgetWorld(Quota(month=150_000))
    call_for(world, 24, 10)
    world.wait(10 * DAY_MS)
    call_for(world, 12, 10)

    told = known_forecast(world)
    assert told.per_day == 240


def test_the_forecast_tells_when_the_limit_is_reached() -> None:
    """At 10 calls an hour of 1,000, a quarter is used after a day, and the rest lasts a little over three days."""
    world = BudgetWorld(Quota(), HALF_WAY)
    call_for(world, 24, 10)
    month = world.budget.month_at(world.wall_ms)

    told = world.budget.call_rate.forecast(month, 1_000, world.wall_ms)
    assert told is not None
    assert told.runs_out_at == world.wall_ms + 76 * HOUR_MS
    used_up = world.budget.call_rate.forecast(month, 100, world.wall_ms)
    assert used_up is not None
    assert used_up.runs_out_at == world.wall_ms


def test_what_others_use_counts_from_the_start_of_the_month() -> None:
    """A header shows on the 16th that others used 3,000 of the month: 200 a day, in addition to our own."""
    world = BudgetWorld(Quota(month=150_000), HALF_WAY)
    call_for(world, 1, 1)
    world.hear(LimitReading(month=WindowReading(limit=150_000, remaining=150_000 - 3_001)))

    told = known_forecast(world)
    assert told.per_day == 24 + round(3_000 / (15 + 1 / 24))


@settings(max_examples=40, deadline=None)
@given(steps=st.lists(st.integers(-3 * DAY_MS, 3 * DAY_MS), max_size=20))
def test_the_forecast_survives_clock_jumps_and_restarts(steps: list[int]) -> None:
    """A clock jump does not give a negative rate; a restart in between changes nothing."""
    world = BudgetWorld(Quota(month=10_000), HALF_WAY)
    for step in steps:
        world.call(Lane.TASK)
        before = forecast(world)
        world.save()
        world.restart()
        assert forecast(world) == before
        assert before is None or (before.per_day >= 0 and before.used_at_end >= 0)
        world.wait(HOUR_MS)
        world.jump(step)


def stored(**changes: Any) -> dict[str, Any]:
    """A budget after one call, as it is stored, with some values changed: `month_spent` is `spent` of the month."""
    world = BudgetWorld(Quota(second=10, minute=100, month=1_000))
    world.call(Lane.TASK)
    budget: dict[str, Any] = world.budget.to_json()
    for name, value in changes.items():
        of, _, inner = name.partition("_")
        (budget[of] if inner else budget)[inner or of] = value
    return budget


def test_a_stored_budget_is_read() -> None:
    """Numbers at their bounds are read too."""
    at_bounds = stored(month_spent=10**15, limits_month=10**15, plan_second=1)

    assert Budget.from_json(stored()).month.spent == 1
    assert Budget.from_json(BUDGET.to_json()) == BUDGET
    assert Budget.from_json(at_bounds).limits.month == 10**15


@pytest.mark.parametrize(
    "changes",
    [
        {"month_spent": -1},
        {"month_spent": TOO_LARGE},
        {"month_offsetMs": 31 * DAY_MS + 1},
        {"month_usedByOthers": -1},
        {"month_seenAt": TOO_LARGE},
        {"month_reported": -1},
        {"month_rolledOverAt": -1},
        {"month_span": ["2026-05", 0, 1]},
        {"month_grantedAt": -1},
        {"month_taskTokens": -0.5},
        {"month_requestTokens": float("nan")},
        {"month_past": {"2026-04": -1}},
        {"second_buckets": [[1, 0, 0]]},
        {"second_bucketMs": 0},
        {"minute_lengthMs": 60_001},
        {"minute_buckets": [[1, 0, 0, -1]]},
        {"callRate_marks": [[1]]},
        {"callRate_marks": [[1, TOO_LARGE]]},
        {"limits_second": 0},
        {"plan_month": TOO_LARGE},
        {"closedUntil": -1},
        {"limitedInARow": -1},
        {"month": 7},
        {"minute": [[1, 2, 3]]},
    ],
    ids=str,
)
def test_implausible_values_of_a_stored_budget_are_refused(changes: dict[str, Any]) -> None:
    """Each value alone makes it unreadable."""
    with pytest.raises((MalformedShape, ValueError)):
        Budget.from_json(stored(**changes))


@pytest.mark.parametrize("value", [{}, [], "x", {"plan": 1}])
def test_what_is_no_budget_is_refused(value: Any) -> None:
    """The error names the field; the scheduler then starts over."""
    with pytest.raises(MalformedShape, match=r"^Budget: "):
        Budget.from_json(value)
