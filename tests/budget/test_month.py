"""The month lasts, is used up when there is demand, and rolls over when the upstream's does."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.budget_world import HOUR_MS, MAY, BudgetWorld, spend_all_day_long
from tocsin.upstream.budget import DAY_MS, Lane, LimitReading, Quota, WindowReading, span_of
from tocsin.upstream.cadence import Demand, cadences, overdraft


@pytest.mark.slow
def test_ten_thousand_calls_last_the_month_and_are_used() -> None:
    """Under higher demand the plan of 10,000 calls is used up to 90 % and more, every day has its calls."""
    world = BudgetWorld(Quota(minute=10, month=10_000))

    per_day = spend_all_day_long(world, MAY.ends_at)

    assert 9_000 <= sum(per_day) <= 10_000
    assert min(per_day) >= 200
    assert world.budget.month.spent == sum(per_day)


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
        world.budget = replace(world.budget, month=world.budget.month_at(world.moment))
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
    world = BudgetWorld(Quota(minute=10, month=5_000))
    for day in range(1, 31):
        spend_all_day_long(world, MAY.starts_at + day * DAY_MS)
        served = sum(world.call(Lane.REQUEST) for _ in range(2))
        assert served == 2


@pytest.mark.slow
def test_tasks_find_their_share_when_requests_never_stop() -> None:
    """A flood of requests leaves tasks at least their part of the month."""
    world = BudgetWorld(Quota(minute=10, month=2_000))
    by_lane: Counter[Lane] = Counter()
    while world.wall_ms < MAY.ends_at:
        called = [lane for lane in (Lane.REQUEST, Lane.TASK) if world.call(lane)]
        by_lane.update(called)
        world.wait(1_000 if called else 60_000)

    assert by_lane[Lane.TASK] >= 0.85 * 2_000
    assert sum(by_lane.values()) >= 0.9 * 2_000


def test_a_month_emptied_by_others_is_looked_at_hourly() -> None:
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
    denial = world.budget.ask(Lane.TASK, world.moment)

    assert denial is not None
    assert denial.until <= MAY.ends_at
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


def test_a_clock_that_jumps_over_the_rollover_and_back_finds_its_count() -> None:
    """A month is remembered after the clock left it."""
    world = BudgetWorld(Quota(month=100))
    spent = sum(world.call(Lane.TASK) for _ in range(5))
    world.jump(40 * DAY_MS)
    assert world.call(Lane.TASK)
    assert world.budget.month.spent == 1
    world.jump(-40 * DAY_MS)

    assert world.budget.month_at(world.moment).spent == spent


def test_without_month_limit_nothing_is_paced_until_a_header_reports_one() -> None:
    """No configured month: calls go freely; a reported limit begins a paced month with a day's worth."""
    world = BudgetWorld(Quota())
    assert all(world.call(Lane.TASK) for _ in range(500))
    world.hear(LimitReading(month=WindowReading(limit=3_100, remaining=3_100 - 500)))

    left = sum(world.call(Lane.TASK) for _ in range(200))

    assert 50 <= left <= 100


def test_the_cadence_is_stretched_to_what_the_month_has_left() -> None:
    """13 calls every 5 minutes exceed 10,000 a month: the cadence shows the longer interval, and why."""
    world = BudgetWorld(Quota(minute=10, month=10_000))
    greedy = {"tenero": Demand(300_000, 13)}
    modest = {"tenero": Demand(300_000, 1)}

    stretched = cadences(world.budget, greedy, world.moment)["tenero"]
    kept = cadences(world.budget, modest, world.moment)["tenero"]

    assert 3_600_000 < stretched.effective_ms < 4_000_000
    assert "10000" in stretched.reason
    assert "31.0 days" in stretched.reason
    assert kept.effective_ms == 300_000
    assert overdraft(world.plan, modest) is None
    assert "113968 calls per month, the plan has 10000" in str(overdraft(world.plan, greedy))


@pytest.mark.slow
def test_following_the_affordable_cadence_uses_the_month() -> None:
    """A task that runs as often as it can afford, recalculated after each run, uses 90 % of the month."""
    world = BudgetWorld(Quota(minute=30, month=3_000))
    demand = {"sweep": Demand(300_000, 20)}
    withheld = 0
    while world.wall_ms < MAY.ends_at:
        withheld += sum(not world.call(Lane.TASK) for _ in range(20))
        world.wait(cadences(world.budget, demand, world.moment)["sweep"].effective_ms)

    assert world.by_month[(MAY.label, None)] >= 0.9 * 3_000
    assert withheld <= 0.05 * 3_000


def test_tasks_of_one_upstream_share_the_stretch() -> None:
    """Two tasks are slowed down by the same factor; with an empty month, one call is made every hour."""
    world = BudgetWorld(Quota(month=1_000))
    demands = {"a": Demand(60_000, 1), "b": Demand(600_000, 5)}
    both = cadences(world.budget, demands, world.moment)
    assert both["b"].effective_ms == pytest.approx(10 * both["a"].effective_ms, rel=0.01)

    world.hear(LimitReading(month=WindowReading(remaining=0)))
    assert cadences(world.budget, demands, world.moment)["a"].effective_ms == 3_600_000  # others used it up


def test_months_are_the_calendars() -> None:
    """The month around an instant, over a year's end, and beyond what a sane clock shows."""
    assert MAY.label == "2026-05"
    december = span_of(1_798_700_000_000)
    assert (december.label, span_of(december.ends_at).label) == ("2026-12", "2027-01")
    assert span_of(-5).label == "1970-01"
    assert span_of(10**18).label == "2100-01"


def test_headers_that_flap_do_not_begin_a_month_again() -> None:
    """One rollover is believed; an apparent second one within 27 days is not, and our own count stands."""
    world = BudgetWorld(Quota(month=1_000))
    spend_all_day_long(world, MAY.starts_at + 10 * DAY_MS)
    world.hear(LimitReading(month=WindowReading(remaining=1_000 - world.budget.month.spent)))
    first = world.hear(LimitReading(month=WindowReading(remaining=1_000)))
    spend_all_day_long(world, MAY.starts_at + 20 * DAY_MS)
    spent = world.budget.month.spent

    again = []
    for remaining in (1_000 - spent, 1_000, 1_000 - spent, 1_000):
        again += world.hear(LimitReading(month=WindowReading(remaining=remaining)))

    assert [event.event for event in first] == ["budget.month_rolled_over"]
    assert spent > 200
    assert again == []
    assert world.budget.month.spent == spent


def test_calls_by_others_end_with_their_month() -> None:
    """The use of others in May says nothing about June."""
    world = BudgetWorld(Quota(month=1_000))
    world.hear(LimitReading(month=WindowReading(remaining=100)))
    assert world.budget.month_at(world.moment).calls_left(1_000) == 100

    world.wait(MAY.ends_at - world.wall_ms)

    assert world.budget.month_at(world.moment).calls_left(1_000) == 1_000


def test_a_plan_that_we_used_up_ourselves_is_not_tried_again_before_the_rollover() -> None:
    """There is no hourly probe: we know that nothing has changed."""
    world = BudgetWorld(Quota(month=50))
    world.budget = replace(world.budget, month=replace(world.budget.month, spent=50))
    world.wait(3 * HOUR_MS)

    denial = world.budget.ask(Lane.TASK, world.moment)

    assert denial is not None
    assert denial.until == MAY.ends_at
