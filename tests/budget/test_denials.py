"""Who refused a call: the upstream, with a 429, or our own budget. A run refused by our budget is not a failure."""

from dataclasses import replace

from support.budget_world import BudgetWorld
from tocsin.upstream.budget import Lane, LimitReading, Quota


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


def test_one_probe_goes_through_a_closed_limiter() -> None:
    """Not while it is open, while a call is under way, or while another probe is."""
    world = BudgetWorld(Quota(minute=10, request_share=0))
    open_ = world.budget.may_probe(Lane.TASK, world.moment)
    world.call(Lane.TASK)
    world.hear(LimitReading(), limited=True, retry_after_ms=600_000)
    closed = world.budget.may_probe(Lane.TASK, world.moment)
    under_way = replace(world.budget, in_flight=1).may_probe(Lane.TASK, world.moment)
    probing = replace(world.budget, probing=True).may_probe(Lane.TASK, world.moment)

    assert (open_, closed, under_way, probing) == (False, True, False, False)
