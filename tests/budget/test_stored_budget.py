"""A stored budget that Tocsin cannot have written is refused when it is read, not when it is used."""

from typing import Any

import pytest

from support.budget_world import BudgetWorld
from tocsin.errors import MalformedShape
from tocsin.upstream.budget import Lane, Quota, StoredBudget

DAY_MS = 86_400_000
TOO_LARGE = 10**15 + 1


def stored(**changes: Any) -> dict[str, Any]:
    """A budget after one call, as it is stored, with some values changed: `month_spent` is `spent` of the month."""
    world = BudgetWorld(Quota(second=10, minute=100, month=1_000))
    world.call(Lane.TASK)
    budget: dict[str, Any] = world.budget.to_stored(world.moment).to_json()
    for name, value in changes.items():
        of, _, inner = name.partition("_")
        (budget[of] if inner else budget)[inner or of] = value
    return budget


def test_what_was_stored_is_read() -> None:
    """Numbers at their bounds are read too."""
    at_bounds = stored(month_spent=10**15, month_offsetMs=31 * DAY_MS, limits_month=10**15, plan_second=1)

    assert StoredBudget.from_json(stored()).month.spent == 1
    assert StoredBudget.from_json(at_bounds).month.offset_ms == 31 * DAY_MS


@pytest.mark.parametrize(
    "changes",
    [
        {"month_spent": -1},
        {"month_spent": TOO_LARGE},
        {"month_offsetMs": 31 * DAY_MS + 1},
        {"month_usedByOthers": -1},
        {"month_seenAt": TOO_LARGE},
        {"month_grantedAt": -1},
        {"month_taskTokens": -0.5},
        {"month_requestTokens": float("nan")},
        {"month_past": {"2026-04": -1}},
        {"second": [[1, 0, 0]]},
        {"minute": [[1, 0, 0, -1]]},
        {"callRate": [[1]]},
        {"callRate": [[1, 2, 3]]},
        {"callRate": [[1, TOO_LARGE]]},
        {"limits_second": 0},
        {"plan_month": TOO_LARGE},
        {"closedUntil": -1},
        {"savedAt": TOO_LARGE},
        {"limitedInARow": -1},
        {"savedMonotonicMs": -1},
    ],
    ids=str,
)
def test_what_cannot_have_been_stored_is_refused(changes: dict[str, Any]) -> None:
    """Each value alone makes it unreadable."""
    with pytest.raises((MalformedShape, ValueError)):
        StoredBudget.from_json(stored(**changes))
