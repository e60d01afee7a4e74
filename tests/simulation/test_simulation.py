"""The simulation itself: it keeps every promise, repeats exactly, and shrinks what it finds.

`make sim` runs the histories, in CI too; docs/guarantees.md has the figures.
"""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from simulation.checks import Violation
from simulation.history import Report, run_history
from simulation.plan import Plan, draw_long_plan, draw_plan
from simulation.shrink import shrunk

TESTS = Path(__file__).parents[1]


@pytest.mark.slow
@pytest.mark.parametrize("draw", [draw_plan, draw_long_plan])
def test_every_promise_is_kept(draw: Callable[[int, float], Plan]) -> None:
    """Every promise is kept through bad days and a calm."""
    report = run_history(draw(9_001, 3.0))

    assert [str(each) for each in report.violations] == []
    assert report.days > 4
    assert report.counts["runs"] > 20


@pytest.mark.slow
def test_a_seed_repeats_itself_in_another_process() -> None:
    """The traces are equal to the last byte, whatever the order of sets in the other process."""
    code = "from simulation.test_simulation import digest_of; print(digest_of(11), end='')"
    hash_seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"  # ours is random, or the other one
    other = subprocess.run(
        [sys.executable, "-c", code],
        cwd=TESTS,
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout

    assert len(other) == 64
    assert digest_of(11) == other
    assert digest_of(12) != other


def digest_of(seed: int) -> str:
    """Run a bad day and a short calm: the faults, not the calm, make histories differ."""
    plan = draw_plan(seed, 1.0)
    return run_history(replace(plan, world=replace(plan.world, calm_s=7_200.0))).digest


def test_shrinking_keeps_what_matters() -> None:
    """If two of 60 events together break a promise, exactly these two remain."""
    plan = draw_plan(5, 3.0)
    guilty = {plan.events[17], plan.events[40]}

    def run(candidate: Plan) -> Report:
        violations = [Violation("slots", 200_000.0, "")] if guilty <= set(candidate.events) else []
        return Report(candidate.seed, candidate.days, "", violations, [], Counter())

    smallest, report = shrunk(plan, "slots", run, tries_max=400)

    assert set(smallest.events) == guilty
    assert report.violations[0].name == "slots"
