"""A short history, once for each storage call: that call fails, or the process dies before or after it.

This test uses a few calls, to check that such a history works. CI uses every fourth call with `make sim EVERY_CALL=4`;
`EVERY_CALL=1` uses all of them.
"""

import pytest

from simulation.history import run_history
from simulation.machine import CallFault
from simulation.shrink import FAULTS, broken_by, short_plan

STEP = 48


@pytest.fixture(scope="module")
def calls() -> int:
    """Return how many calls there are if none fails."""
    return run_history(short_plan()).counts["storage calls before the calm"]


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_no_call_is_one_too_many(fault: CallFault, calls: int) -> None:
    """Every promise is kept, whatever happens to any one call."""
    assert calls > 100
    assert broken_by(fault, range(5, calls, STEP)) == {}
