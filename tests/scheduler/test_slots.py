"""When tasks run, decided without a clock or a store."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import UsageError
from holdfast.types import ALARM_LIMIT_MS
from support.scheduler import MINUTE
from tocsin.scheduler import slots
from tocsin.scheduler.slots import DueSlot, TaskSchedule, check_pause, clamped, current_slot, due_at, slot_after
from tocsin.settings import ALARM_AHEAD_MAX_MS

FIVE, FIFTEEN = 5 * MINUTE, 15 * MINUTE
NOON = 1_778_673_600_000  # a round quarter of an hour
BACKOFF = 60 * MINUTE
PRICES = TaskSchedule("tenero", FIVE, FIVE, last_slot_at=NOON)
SWEEP = TaskSchedule("sweep", FIFTEEN, FIFTEEN, last_slot_at=NOON)
YEAR = 365 * 86_400_000


def decide(*schedules: TaskSchedule, now: int, paused_until: int | None = None) -> tuple[dict[str, DueSlot], int]:
    decision = slots.decide(schedules, now=now, paused_until=paused_until)
    return decision.due, decision.ring_at


LATER = NOON + 60 * MINUTE
STRETCHED = replace(PRICES, effective_ms=7 * MINUTE)
HELD = replace(PRICES, next_run_after=NOON + 7 * MINUTE)
NEW = replace(PRICES, last_slot_at=0)
ASKED = replace(PRICES, last_slot_at=NOON + FIVE, wake_at=NOON + 7 * MINUTE)


@pytest.mark.parametrize(
    ("schedule", "now", "due", "ring_at"),
    [
        (PRICES, NOON + 1, None, NOON + FIVE),
        (PRICES, NOON + FIVE - 1, None, NOON + FIVE),
        (PRICES, NOON + FIVE, DueSlot(NOON + FIVE, 0), NOON + 2 * FIVE),
        # A late start is for the slot that has begun, and does not move the next one.
        (PRICES, NOON + FIVE + 4 * MINUTE, DueSlot(NOON + FIVE, 0), NOON + 2 * FIVE),
        # Missed slots become one run, for the newest slot, and are counted.
        (PRICES, LATER + 17, DueSlot(LATER, 11), LATER + FIVE),
        # A task that never ran is due at once, and has missed no slot. Its next slot lies on the grid.
        (NEW, NOON + 7, DueSlot(NOON + 7, 0), NOON + FIVE),
        (replace(NEW, last_slot_at=NOON + 7), NOON + 8, None, NOON + FIVE),
        # The slot of a running task waits until the run has ended; a task that is switched off never runs.
        (replace(PRICES, running=True), NOON + FIVE, None, NOON + FIVE + ALARM_AHEAD_MAX_MS),
        (replace(PRICES, enabled=False), LATER, None, LATER + ALARM_AHEAD_MAX_MS),
        # The run after a crash does not use up another slot.
        (replace(PRICES, rerun=True), NOON + MINUTE, DueSlot(NOON, 0), NOON + FIVE),
        # Seven minutes are seven minutes, not the next multiple of five.
        (STRETCHED, NOON + 6 * MINUTE, None, NOON + 7 * MINUTE),
        (STRETCHED, NOON + 15 * MINUTE, DueSlot(NOON + 14 * MINUTE, 1), NOON + 21 * MINUTE),
        # A back-off delays the task and the alarm, and ends at its time.
        (HELD, NOON + 7 * MINUTE - 1, None, NOON + 7 * MINUTE),
        (HELD, NOON + 7 * MINUTE, DueSlot(NOON + FIVE, 0), NOON + 2 * FIVE),
        # A requested run adds one slot and moves no other; a slot that has begun replaces it; it waits for a back-off.
        (ASKED, NOON + 7 * MINUTE - 1, None, NOON + 7 * MINUTE),
        (ASKED, NOON + 7 * MINUTE, DueSlot(NOON + 7 * MINUTE, 0), NOON + 2 * FIVE),
        (replace(ASKED, last_slot_at=NOON), NOON + 21 * MINUTE, DueSlot(NOON + 4 * FIVE, 3), NOON + 5 * FIVE),
        (replace(HELD, wake_at=NOON + MINUTE), NOON + MINUTE, None, NOON + 7 * MINUTE),
    ],
)
def test_when_a_task_runs(schedule: TaskSchedule, now: int, due: DueSlot | None, ring_at: int) -> None:
    """What is due now, and when the alarm rings next."""
    assert decide(schedule, now=now) == ({} if due is None else {"tenero": due}, ring_at)


def test_all_tasks_wait_for_the_end_of_a_pause() -> None:
    """It ends at its time; of a pause and a back-off, the later one decides."""
    held = replace(PRICES, next_run_after=NOON + 12 * MINUTE)

    assert decide(PRICES, now=NOON + FIVE, paused_until=NOON + FIVE)[0] == {"tenero": DueSlot(NOON + FIVE, 0)}
    assert decide(held, now=NOON + FIVE, paused_until=NOON + 18 * MINUTE) == ({}, NOON + 18 * MINUTE)
    assert decide(ASKED, now=NOON + 7 * MINUTE, paused_until=NOON + 8 * MINUTE) == ({}, NOON + 8 * MINUTE)


def test_both_are_due_when_their_slots_meet() -> None:
    """At the quarter of an hour the 5- and the 15-minute task run together."""
    due, ring_at = decide(replace(PRICES, last_slot_at=NOON + 2 * FIVE), SWEEP, now=NOON + FIFTEEN)

    assert due == {"tenero": DueSlot(NOON + FIFTEEN, 0), "sweep": DueSlot(NOON + FIFTEEN, 0)}
    assert ring_at == NOON + FIFTEEN + FIVE


def test_the_alarm_rings_again_before_the_platform_would_end_its_handler() -> None:
    """However long a pause is: the wait is 14 minutes, and a handler may take 15."""
    _, ring_at = decide(PRICES, now=NOON, paused_until=NOON + 7 * 24 * 60 * MINUTE)

    assert (ring_at - NOON, ALARM_AHEAD_MAX_MS, ALARM_LIMIT_MS) == (840_000, 840_000, 900_000)


def test_a_disabled_or_running_task_does_not_hide_the_next_one() -> None:
    for left_out in (replace(SWEEP, enabled=False), replace(SWEEP, running=True)):
        assert list(decide(left_out, PRICES, now=NOON + FIFTEEN)[0]) == ["tenero"]


def test_the_alarm_rings_in_time_but_never_in_the_past() -> None:
    for ring_by, expected in ((NOON + MINUTE, NOON + MINUTE), (NOON + 20 * MINUTE, NOON + FIVE), (NOON, NOON + 1)):
        assert slots.decide([PRICES], now=NOON, paused_until=None, ring_by=ring_by).ring_at == expected
    assert slots.decide([PRICES], now=NOON, paused_until=None, ring_by=0).ring_at == NOON + 1


@pytest.mark.parametrize(
    ("last", "effective", "now", "expected"),
    [
        (0, FIVE, NOON + 7, DueSlot(NOON + 7, 0)),
        (1, FIVE, 2 * FIVE, DueSlot(2 * FIVE, 1)),
        (NOON, FIVE, NOON + 2 * FIVE - 1, DueSlot(NOON + FIVE, 0)),
        (NOON, FIVE, NOON + 2 * FIVE, DueSlot(NOON + 2 * FIVE, 1)),
        (NOON + 1, FIVE, NOON + 3 * FIVE, DueSlot(NOON + 3 * FIVE, 2)),
        (NOON, FIVE, NOON + MINUTE, DueSlot(NOON, 0)),
        (NOON + 2 * MINUTE, FIVE, NOON + 3 * MINUTE, DueSlot(NOON + 2 * MINUTE, 0)),
        (NOON + FIVE, FIVE, NOON + MINUTE, DueSlot(NOON + FIVE, 0)),  # the clock was set back a little
        (NOON, 7 * MINUTE, NOON + 7 * MINUTE, DueSlot(NOON + 7 * MINUTE, 0)),
        (NOON, 7 * MINUTE, NOON + 21 * MINUTE, DueSlot(NOON + 21 * MINUTE, 2)),
        (NOON, 7 * MINUTE, NOON + 6 * MINUTE, DueSlot(NOON, 0)),
    ],
)
def test_a_run_is_for_the_newest_slot_that_has_begun(last: int, effective: int, now: int, expected: DueSlot) -> None:
    """A rerun keeps its slot until another has begun."""
    assert current_slot(replace(PRICES, effective_ms=effective, last_slot_at=last), now) == expected


def test_the_next_slot_follows_the_last() -> None:
    stretched = replace(PRICES, effective_ms=FIVE + 1)

    assert [slot_after(last, PRICES, NOON) for last in (-1, 0, 1, NOON)] == [NOON, NOON, FIVE, NOON + FIVE]
    assert slot_after(NOON + 3, stretched, NOON) == NOON + FIVE + 4
    assert due_at(TaskSchedule("new", FIVE, FIVE), now=NOON + 7, paused_until=None) == NOON + 7
    assert due_at(replace(PRICES, rerun=True), now=NOON + 5, paused_until=None) == NOON + 5


def test_a_last_slot_in_the_future_is_brought_back_beyond_one_cadence() -> None:
    at_bound = replace(PRICES, last_slot_at=NOON + 7 + FIVE)

    assert clamped(at_bound, now=NOON + 7) == at_bound
    assert clamped(at_bound, now=NOON + 6) == replace(PRICES, last_slot_at=NOON)


@pytest.mark.parametrize(
    ("until", "message"),
    [
        (NOON + 1, None),
        (NOON + 7 * 86_400_000, None),
        (NOON, "That time is past: it is 2026-05-13 12:00 UTC now."),
        (-1, "That time is past: it is 2026-05-13 12:00 UTC now."),
        (NOON + 7 * 86_400_000 + 1, "That is too far ahead for a pause."),
        ("soon", "A pause ends at a time in unix milliseconds, not 'soon'."),
        (1.5, "A pause ends at a time in unix milliseconds, not 1.5."),
        (None, "A pause ends at a time in unix milliseconds, not None."),
        (True, "A pause ends at a time in unix milliseconds, not True."),
    ],
)
def test_a_pause_ends_in_the_future_and_not_too_far_ahead(until: Any, message: str | None) -> None:
    if message is None:
        check_pause(until, NOON)
        return
    with pytest.raises(UsageError) as refused:
        check_pause(until, NOON)
    assert str(refused.value) == f"{message} Give one at most 7 days ahead, 2026-05-20 12:00 UTC at the latest."


@pytest.mark.slow
@given(
    jumps=st.lists(st.tuples(st.integers(1, 40), st.integers(-YEAR, YEAR)), max_size=6),
    cadence=st.integers(1_000, 3_600_000),
    stretch=st.floats(1, 20),
    backoff_of=st.integers(0, BACKOFF),
)
def test_whatever_the_clock_does_a_task_runs_again_within_a_bound(
    jumps: list[tuple[int, int]], cadence: int, stretch: float, backoff_of: int
) -> None:
    """In real time, after the last jump of the wall clock: no back-off holds a task beyond the bound."""
    effective = int(cadence * stretch)
    bound = BACKOFF + cadence + 2 * effective
    wall, monotonic, last_run = NOON, 0, 0
    schedule = TaskSchedule("t", cadence, effective, NOON)
    jumps_at = {at * effective: by for at, by in jumps}
    ring_in = 0
    while monotonic < 60 * effective:
        monotonic += max(1, ring_in)
        wall += max(1, ring_in)
        for at in [at for at in jumps_at if at <= monotonic]:
            wall, last_run = max(1, wall + jumps_at.pop(at)), monotonic
        held_ms = backoff_of - monotonic  # a back-off is a duration: it does not move with the wall clock
        schedule = replace(schedule, next_run_after=wall + held_ms if held_ms > 0 else None)
        schedule = clamped(schedule, now=wall)
        due, ring_at = decide(schedule, now=wall)
        if due:
            last_run = monotonic
            schedule = replace(schedule, last_slot_at=max(schedule.last_slot_at, due["t"].at))
        assert monotonic - last_run <= bound
        ring_in = min(ring_at - wall, effective)


@given(st.lists(st.integers(0, 3 * FIVE), max_size=200))
def test_no_slot_is_run_twice(pauses: list[int]) -> None:
    """However irregular the rings are, slots only move forward, on the grid, and all are accounted for."""
    now, schedule, taken, missed = NOON + 1, PRICES, [], 0
    for pause in pauses:
        now += pause
        due, _ = decide(schedule, now=now)
        if due:
            slot = due["tenero"]
            taken.append(slot.at)
            missed += slot.missed
            schedule = replace(schedule, last_slot_at=slot.at)

    assert taken == sorted(set(taken))
    assert all(at % FIVE == 0 and NOON < at <= now for at in taken)
    assert len(taken) + missed == (schedule.last_slot_at - NOON) // FIVE


def test_a_clock_set_back_within_a_cadence_runs_no_slot_twice() -> None:
    """The slot of 12:05 has run; at 12:03 by the new clock the next is still 12:10."""
    ran = TaskSchedule("tenero", FIVE, FIVE, last_slot_at=NOON + FIVE)

    kept = clamped(ran, now=NOON + 3 * MINUTE)

    assert due_at(kept, now=NOON + 3 * MINUTE, paused_until=None) == NOON + 2 * FIVE
