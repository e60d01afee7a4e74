"""The schedule of faults. `test_simulator_http.py` has what a caller sees of each."""

from itertools import pairwise

import pytest

from stacks_simulator.faults import ANY_REPLY_FAULTS, BadTimes, FaultInjector
from stacks_simulator.simulator import Simulator
from support.simulated import ask


@pytest.mark.slow
def test_bad_times_follow_their_seed() -> None:
    """The schedule is the same for a seed, its faults last about as long as set, and every kind occurs."""
    times = BadTimes(seed=3, every_s=600, lasting_s=60)
    moments = [times.fault_at(second * 1000) for second in range(0, 86_400, 5)]
    faults = [fault for fault in moments if fault]

    assert moments == [BadTimes(seed=3, every_s=600, lasting_s=60).fault_at(s * 1000) for s in range(0, 86_400, 5)]
    assert 0.05 < len(faults) / len(moments) < 0.2
    assert {fault.kind for fault in faults} == set(ANY_REPLY_FAULTS)


def test_scheduled_faults_reach_requests(simulator: Simulator) -> None:
    """The scheduled fault applies to requests during a bad time, and not outside of it."""
    simulator.faults = FaultInjector(1, BadTimes(seed=1, every_s=3600, lasting_s=1200, share=1.0, kinds=("status",)))
    for _ in range(720):
        ask(simulator, "/extended")
        simulator.clock.now_ms += 5_000  # type: ignore[attr-defined]  # the test's own clock

    faults = [request.fault for request in simulator.requests]
    assert "status" in faults
    assert None in faults
    assert sum(1 for a, b in pairwise(faults) if a != b) <= 4, "a bad time is one stretch of time"
