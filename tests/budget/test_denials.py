"""Who refused a call: the upstream, with a 429, or our own budget. A run refused by our budget is not a failure."""

from support.budget_world import BudgetWorld
from tocsin.budget.budget import Quota
from tocsin.budget.limiter import Lane, LimitReading


def test_a_full_window_is_a_denial_by_the_budget() -> None:
    """Of a second and of a minute; the longer wait is the reason."""
    world = BudgetWorld(Quota(second=1, minute=2, request_share=0))
    world.call(Lane.TASK)
    second = world.budget.ask(Lane.TASK, world.moment)
    world.wait(2_000)
    world.call(Lane.TASK)
    minute = world.budget.ask(Lane.TASK, world.moment)

    assert second is not None
    assert (second.by_budget, second.reason) == (True, "the limit of 1 calls per second is reached")
    assert minute is not None
    assert (minute.by_budget, minute.reason) == (True, "the limit of 2 calls per minute is reached")
    assert minute.wait_ms > second.wait_ms
    assert minute.until == world.moment.wall_ms + minute.wait_ms


def test_a_429_is_a_denial_by_the_upstream() -> None:
    """Even while another window is full that becomes free earlier."""
    world = BudgetWorld(Quota(minute=1, request_share=0))
    world.call(Lane.TASK)
    world.hear(LimitReading(), limited=True, retry_after_ms=600_000)
    denial = world.budget.ask(Lane.TASK, world.moment)

    assert denial is not None
    assert not denial.by_budget
    assert denial.wait_ms == 600_000


def test_a_429_that_ends_before_the_window_is_free_leaves_the_budget_to_say_no() -> None:
    """The longer of the two waits decides who refused."""
    world = BudgetWorld(Quota(minute=1, request_share=0))
    world.call(Lane.TASK)
    world.hear(LimitReading(), limited=True, retry_after_ms=1_000)
    denial = world.budget.ask(Lane.TASK, world.moment)

    assert denial is not None
    assert denial.by_budget
    assert denial.wait_ms > 50_000


def test_a_month_that_is_used_up_is_a_denial_by_the_budget() -> None:
    """We pace it until the month ends."""
    world = BudgetWorld(Quota(month=2, request_share=0))
    while world.budget.ask(Lane.TASK, world.moment) is None:
        world.call(Lane.TASK)
    denial = world.budget.ask(Lane.TASK, world.moment)

    assert denial is not None
    assert denial.by_budget
