"""What tasks are taken to ask for."""

import pytest

from tocsin.budget.cadence import usual_calls


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
    """Never less than the task says, never more than it says to be the most; one long run is an exception."""
    assert usual_calls(1.0, most, recent) == expected
