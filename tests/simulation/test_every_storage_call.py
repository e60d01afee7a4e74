"""A short history, once for each call of its storage: that one fails, or the process dies before or after it.

Here a few calls have their turn, to test that such a history works; CI takes every fourth with `make sim
EVERY_CALL=4`, and `EVERY_CALL=1` all of them.
"""

import pytest

from simulation.disk import CallFault
from simulation.every_call import FAULTS, broken_by, short_plan
from simulation.history import run_history

STEP = 48


@pytest.fixture(scope="module")
def calls() -> int:
    """How many there are when none fails."""
    return run_history(short_plan()).counts["storage calls before the calm"]


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_no_call_is_one_too_many(fault: CallFault, calls: int) -> None:
    """Whatever becomes of any one call, every promise is kept."""
    assert calls > 100
    assert broken_by(fault, range(5, calls, STEP)) == {}
