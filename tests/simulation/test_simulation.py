"""The simulation itself: it repeats exactly, it shrinks what it finds, and it notices each broken promise.

`make sim` runs the histories, in CI too; docs/guarantees.md has the figures.
"""

import asyncio
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast.local.storage import ObjectStorage
from holdfast.types import Database
from simulation.checks import Violation
from simulation.history import Report, run_history
from simulation.plan import Event, Plan, draw_long_plan, draw_plan
from simulation.shrink import shrunk
from tocsin.rounds import capture
from tocsin.rounds import steps as advance
from tocsin.rounds import task as run_rounds
from tocsin.rounds.capture import closing_prices
from tocsin.rounds.round import RoundPrice, RoundRow, due_step
from tocsin.scheduler import health as service_health
from tocsin.scheduler.scheduler_do import SchedulerDO
from tocsin.scheduler.slots import Decision

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


def quiet_plan(days: float = 0.5) -> Plan:
    """A history in which nothing goes wrong."""
    plan = draw_plan(1, days)
    return replace(plan, events=())


def plan_with_rounds() -> Plan:
    """A quiet day with a round every four hours."""
    plan = quiet_plan(1.0)
    hour_ms = 3_600_000
    settings = replace(
        plan.world.settings,
        feed_enabled=True,
        feed_cadence=2 * hour_ms,
        tenero_cadence=hour_ms,
        sweep_cadence=8 * hour_ms,
    )
    rule = {"period_s": 14_400, "grace_s": 900, "begun": 0.3, "prefix": "week"}
    world = replace(plan.world, settings=settings, swaps_per_hour=6.0)
    return replace(plan, world=world, events=(Event(900.0, "round_rule", 0, rule),))


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


def without_alarm(monkeypatch: pytest.MonkeyPatch) -> None:
    """The object sometimes deletes its alarm instead of setting it."""
    real = SchedulerDO._set_alarm
    calls = iter(range(10**9))

    def set_alarm(self: SchedulerDO, decision: Decision) -> None:
        if next(calls) % 20 == 19:
            self.ctx.storage.delete_alarm()
        else:
            real(self, decision)

    monkeypatch.setattr(SchedulerDO, "_set_alarm", set_alarm)


def late_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    """The alarm rings a minute late."""
    real = ObjectStorage.set_alarm
    monkeypatch.setattr(ObjectStorage, "set_alarm", lambda self, at: real(self, at + 60_000))


def always_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    """No task is ever reported as overdue or failing, and none runs to its end."""
    monkeypatch.setattr(service_health, "is_overdue", lambda _: False)
    monkeypatch.setattr(service_health, "is_failing", lambda _: False)

    async def never(_self: SchedulerDO, _run: Any) -> None:
        await asyncio.sleep(10**9)

    monkeypatch.setattr(SchedulerDO, "_execute", never)


def never_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every task is reported as overdue."""
    monkeypatch.setattr(service_health, "is_overdue", lambda _: True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("broken", "expected"),
    [(without_alarm, "armed"), (late_slots, "slots"), (always_ready, "readiness"), (never_ready, "readiness")],
)
def test_it_notices_a_broken_promise(
    broken: Callable[[pytest.MonkeyPatch], None], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check with this name finds the defect, without any fault from outside."""
    broken(monkeypatch)
    report = run_history(quiet_plan())

    assert expected in {each.name for each in report.violations}


@pytest.mark.slow
def test_nothing_is_wrong_on_a_quiet_day() -> None:
    """The same history without a defect."""
    assert run_history(quiet_plan()).violations == []


def closed_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """A round is closed at its end, before the grace."""

    def early(round_: RoundRow, now: int) -> Any:
        return due_step(replace(round_, grace_ends_at=round_.ends_at), now)

    monkeypatch.setattr(run_rounds, "due_step", early)


def captured_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A round does not wait until the chain was read."""
    monkeypatch.setattr(advance, "incomplete_because", lambda _rules, _record: None)


def later_prices(monkeypatch: pytest.MonkeyPatch) -> None:
    """A round is valued at prices from before its end."""

    async def prices(db: Database, token_ids: Collection[str], ends_at: int) -> list[RoundPrice]:
        return await closing_prices(db, token_ids, ends_at - 3_600)

    monkeypatch.setattr(capture, "closing_prices", prices)


def woken_never(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody wakes the task at the end of a round."""
    monkeypatch.setattr(run_rounds, "next_look", lambda *_: None)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("broken", "expected"),
    [
        (None, None),
        (closed_early, "round-on-time"),
        (woken_never, "round-on-time"),
        (captured_at_once, "round-complete"),
        (later_prices, "round-prices"),
    ],
)
def test_it_notices_a_broken_promise_about_rounds(
    broken: Callable[[pytest.MonkeyPatch], None] | None, expected: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As above; without a defect the rounds of the day end."""
    if broken is not None:
        broken(monkeypatch)
    report = run_history(plan_with_rounds())

    assert {each.name for each in report.violations} == ({expected} if expected else set())
    assert expected or report.happened["round finalized"] >= 4
