"""The forecast of a budget: from the calls of about the last day, not from the calendar."""

from hypothesis import given
from hypothesis import strategies as st

from support.budget_world import HOUR_MS, MAY, BudgetWorld
from tocsin.upstream.budget import DAY_MS, BudgetForecast, Lane, LimitReading, Quota, WaitingCallers, WindowReading

HALF_WAY = MAY.starts_at + 15 * DAY_MS


def forecast(world: BudgetWorld) -> BudgetForecast | None:
    return world.budget.status(world.moment, WaitingCallers(0, 0)).forecast


def call_for(world: BudgetWorld, hours: int, per_hour: int) -> None:
    for _ in range(hours * per_hour):
        assert world.call(Lane.TASK)
        world.wait(HOUR_MS // per_hour)


def test_a_fresh_start_in_the_middle_of_a_month_counts_from_its_first_call() -> None:
    """Started on the 16th with ten calls an hour: 240 a day for the remaining 16 days."""
    world = BudgetWorld(Quota(month=150_000), HALF_WAY)
    call_for(world, 24, 10)

    told = forecast(world)
    assert told is not None
    assert told.per_day == 240
    assert told.used_at_end == 16 * 240
    assert told.runs_out_at is None


def test_a_first_burst_is_no_forecast() -> None:
    """45 calls of the first minute do not stand for a month; after an hour there is a forecast."""
    world = BudgetWorld(Quota(month=150_000), HALF_WAY)
    for _ in range(45):
        assert world.call(Lane.TASK)
    assert forecast(world) is None
    world.wait(HOUR_MS - 1)
    assert forecast(world) is None

    world.wait(1)
    told = forecast(world)
    assert told is not None
    assert told.per_day == 45 * 24


def test_no_call_no_forecast() -> None:
    world = BudgetWorld(Quota(month=150_000), HALF_WAY)
    world.wait(DAY_MS)

    assert forecast(world) is None


def test_the_last_day_counts_not_the_weeks_before() -> None:
    """After a week with 2 calls an hour, a day with 20: the month goes on with 20."""
    world = BudgetWorld(Quota(month=150_000))
    call_for(world, 7 * 24, 2)
    call_for(world, 24, 20)

    told = forecast(world)
    assert told is not None
    assert told.per_day == 480
    assert 12 * HOUR_MS <= world.wall_ms - told.since <= DAY_MS


def test_a_service_that_was_away_is_not_judged_by_its_absence() -> None:
    """Ten days after its last call it starts again: the rate is that of the new start."""
    world = BudgetWorld(Quota(month=150_000))
    call_for(world, 24, 10)
    world.wait(10 * DAY_MS)
    call_for(world, 12, 10)

    told = forecast(world)
    assert told is not None
    assert told.per_day == 240


def test_it_says_when_the_limit_is_reached() -> None:
    """At 10 calls an hour of 1,000, a quarter is used after a day, and the rest lasts a little over three days."""
    world = BudgetWorld(Quota(), HALF_WAY)
    call_for(world, 24, 10)
    month = world.budget.month_at(world.moment)

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

    told = forecast(world)
    assert told is not None
    assert told.per_day == 24 + round(3_000 / (15 + 1 / 24))


@given(steps=st.lists(st.integers(-3 * DAY_MS, 3 * DAY_MS), max_size=30))
def test_whatever_the_clock_does(steps: list[int]) -> None:
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
