"""How many calls tasks are expected to make, and how often they can afford to run."""

from dataclasses import replace

import pytest

from support.budget_world import MAY, BudgetWorld
from tocsin.upstream.budget import (
    Budget,
    Cadence,
    Demand,
    LimitReading,
    Quota,
    WindowReading,
    cadences,
    overdraft,
    usual_calls,
)
from tocsin.upstream.windows import Lane

JUNE = 1_780_272_000_000  # its first instant
NOW = JUNE - 864_000_000  # ten days before
CONFIGURED = "as configured: the plan allows it"
A_THOUSAND = "stretched: tasks may still use 1,000 of 1,000 calls, for 10.0 days"


@pytest.mark.parametrize(
    ("most", "recent", "expected"),
    [
        (7.0, [], 1.0),
        (7.0, [4, 2, 4], 3.0),
        (7.0, [0, 0], 1.0),
        (7.0, [90, 90], 7.0),
        (None, [90, 90], 1.0),
        (9_000.0, [4_100], 1.0),
        (9_000.0, [2, 4_100, 2], 2.0),
    ],
)
def test_a_run_costs_what_the_newest_ones_did(most: float | None, recent: list[int], expected: float) -> None:
    """Never less than the task's minimum, never more than its maximum; a single long run is an exception."""
    assert usual_calls(1.0, most, recent) == expected


@pytest.mark.parametrize(
    ("plan", "demand", "expected"),
    [
        (Quota(), Demand(1, 1), Cadence(1, CONFIGURED)),
        (Quota(minute=10), Demand(60_000, 9), Cadence(60_000, CONFIGURED)),
        (Quota(minute=10), Demand(60_000, 18), Cadence(120_000, "stretched: tasks may make 9 calls a minute")),
        (Quota(minute=60_000, request_share=0), Demand(1, 1), Cadence(1, CONFIGURED)),
        (
            Quota(minute=59_999, request_share=0),
            Demand(1, 1),
            Cadence(2, "stretched: tasks may make 59999 calls a minute"),
        ),
        (Quota(month=1_000, request_share=0), Demand(864_000, 1), Cadence(864_000, CONFIGURED)),
        (Quota(month=1_000, request_share=0), Demand(864_000, 0), Cadence(864_000, CONFIGURED)),
        (Quota(month=1_000, request_share=0), Demand(432_000, 1), Cadence(864_000, A_THOUSAND)),
        (  # the month needs more than the minute
            Quota(minute=9, month=1_000, request_share=0),
            Demand(60_000, 18),
            Cadence(15_552_000, A_THOUSAND),
        ),
        (  # the minute needs more than the month
            Quota(minute=52, month=1_000_000, request_share=0),
            Demand(864_000, 1_500),
            Cadence(1_730_770, "stretched: tasks may make 52 calls a minute"),
        ),
        (  # a run that is rarer than the month is long is not made less rare
            Quota(month=1, request_share=0),
            Demand(900_000_000, 5),
            Cadence(900_000_000, "stretched: tasks may still use 1 of 1 calls, for 10.0 days"),
        ),
    ],
)
def test_a_cadence_is_stretched_to_what_the_tighter_window_allows(
    plan: Quota, demand: Demand, expected: Cadence
) -> None:
    assert cadences(Budget.begin(plan, NOW), {"a": demand}, NOW) == {"a": expected}


def test_an_empty_month_is_waited_for_however_few_calls_a_run_needs() -> None:
    budget = Budget.begin(Quota(month=1_000, request_share=0), NOW)
    empty = replace(budget, month=replace(budget.month, spent=1_000))
    reason = "stretched: tasks may still use 0 of 1,000 calls, for 10.0 days"
    assert cadences(empty, {"a": Demand(432_000, 0.5)}, NOW) == {"a": Cadence(864_000_000, reason)}


@pytest.mark.parametrize(("cadence_ms", "expected_ms"), [(432_000, 3_600_000), (7_200_000, 7_200_000)])
def test_a_month_that_others_used_up_is_asked_for_every_hour(cadence_ms: int, expected_ms: int) -> None:
    """Only a call shows that the upstream has calls again; its month may begin on another day than ours."""
    budget = Budget.begin(Quota(month=1_000, request_share=0), NOW)
    empty = replace(budget, month=replace(budget.month, spent=21, used_by_others=979))
    reason = "stretched: tasks may still use 0 of 1,000 calls, for 10.0 days"
    assert cadences(empty, {"a": Demand(cadence_ms, 1)}, NOW) == {"a": Cadence(expected_ms, reason)}


@pytest.mark.parametrize(
    ("plan", "calls"),
    [
        (Quota(minute=60_000, month=2_630_016_000), None),
        (Quota(minute=59_999), "60000 calls per minute, the plan has 59999"),
        (Quota(month=2_630_015_999), "2630016000 calls per month, the plan has 2630015999"),
        (Quota(), None),
    ],
)
def test_a_plan_that_is_too_small_is_described_in_numbers(plan: Quota, calls: str | None) -> None:
    expected = calls and (
        f"a and b would make {calls}: they will run less often; choose longer cadences or a larger plan"
    )
    assert overdraft(plan, {"b": Demand(2, 1), "a": Demand(2, 1)}) == expected


def test_the_cadence_is_stretched_to_what_the_month_has_left() -> None:
    """13 calls every 5 minutes exceed 10,000 a month: the cadence shows the longer interval, and why."""
    world = BudgetWorld(Quota(minute=10, month=10_000))
    greedy = {"tenero": Demand(300_000, 13)}
    modest = {"tenero": Demand(300_000, 1)}

    stretched = cadences(world.budget, greedy, world.wall_ms)["tenero"]
    kept = cadences(world.budget, modest, world.wall_ms)["tenero"]

    assert 3_600_000 < stretched.effective_ms < 4_000_000
    assert "9,000 of 10,000 calls" in stretched.reason
    assert "31.0 days" in stretched.reason
    assert kept.effective_ms == 300_000
    assert overdraft(world.plan, modest) is None
    assert "113968 calls per month, the plan has 10000" in str(overdraft(world.plan, greedy))
    shared = replace(world.plan, request_share=0.6)  # half of it is for look-ups of other programs
    assert "113968 calls per month, the plan has 5000" in str(overdraft(shared, greedy))


@pytest.mark.slow
def test_following_the_affordable_cadence_uses_the_month() -> None:
    """A task that runs as often as it can afford, recalculated after each run, uses 90 % of the month."""
    world = BudgetWorld(Quota(minute=30, month=3_000))
    demand = {"sweep": Demand(300_000, 20)}
    withheld = 0
    while world.wall_ms < MAY.ends_at:
        withheld += sum(not world.call(Lane.TASK) for _ in range(20))
        world.wait(cadences(world.budget, demand, world.wall_ms)["sweep"].effective_ms)

    assert world.by_month[(MAY.label, None)] >= 0.9 * 3_000
    assert withheld <= 0.05 * 3_000


def test_tasks_of_one_upstream_share_the_stretch() -> None:
    """Two tasks are slowed down by the same factor; with an empty month, one call is made every hour."""
    world = BudgetWorld(Quota(month=1_000))
    demands = {"a": Demand(60_000, 1), "b": Demand(600_000, 5)}
    both = cadences(world.budget, demands, world.wall_ms)
    assert both["b"].effective_ms == pytest.approx(10 * both["a"].effective_ms, rel=0.01)

    world.hear(LimitReading(month=WindowReading(remaining=0)))
    assert cadences(world.budget, demands, world.wall_ms)["a"].effective_ms == 3_600_000  # others used it up
