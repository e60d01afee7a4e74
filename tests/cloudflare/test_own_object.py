"""A custom object on the real runtime: the example of docs/objects.md, next to the scheduler."""

import time
from pathlib import Path

import pytest

from support.patience import PATIENCE_S
from support.workerd import Workerd, require_workerd, running


def beats(workerd: Workerd, at_least: int) -> int:
    """Return the number of beats, once there are enough."""
    deadline = time.monotonic() + PATIENCE_S
    while (count := int(workerd.call("HEART", "v1", "beats"))) < at_least:
        assert time.monotonic() < deadline, f"{count} beats\n{workerd.output()}"
        workerd.call("CONTRACT", "awake", "wait", 0.1)
    return count


@pytest.mark.slow
def test_the_example_beats_and_goes_on_after_kill_9(tmp_path: Path) -> None:
    """The cron trigger starts it. After the kill its alarm rings, and it continues counting where it stopped."""
    require_workerd()
    with running(tmp_path, {"TOCSIN_TENERO_ENABLED": "no", "TOCSIN_SWEEP_ENABLED": "no"}) as workerd:
        workerd.trigger_example()
        before = beats(workerd, at_least=2)
        workerd.kill()
        workerd.start()
        after = beats(workerd, at_least=before + 2)
        printed = [int(line.split()[1]) for line in workerd.output().splitlines() if line.startswith("beat ")]
        armed = workerd.call("SCHEDULER", "v1", "status")["nextAlarmAt"]

    assert printed[0] == 1
    assert printed == sorted(set(printed)), "no beat was counted twice"
    assert len(printed) >= after - 1, "the one at the kill may be counted and not printed"
    assert armed is not None, "the scheduler runs beside it"
