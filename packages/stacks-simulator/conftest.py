"""A simulator without traffic and limits, which only the test's commands change."""

import pytest

from stacks_simulator.chain import Chain
from stacks_simulator.simulator import Simulator
from support.simulated import quiet_simulator


@pytest.fixture
def simulator() -> Simulator:
    return quiet_simulator()


@pytest.fixture
def chain(simulator: Simulator) -> Chain:
    return simulator.chain
