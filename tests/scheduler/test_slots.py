"""When tasks run, decided without a clock or a store."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tocsin.bindings import ALARM_AHEAD_MAX_MS, ALARM_LIMIT_MS
from tocsin.scheduler import slots
from tocsin.scheduler.slots import DueSlot, TaskSchedule, clamped

MINUTE = 60_000
FIVE, FIFTEEN = 5 * MINUTE, 15 * MINUTE
NOON = 1_778_673_600_000  # a round quarter of an hour
BACKOFF = 60 * MINUTE

PRICES = TaskSchedule("tenero", FIVE, FIVE, last_slot_at=NOON)
SWEEP = TaskSchedule("sweep", FIFTEEN, FIFTEEN, last_slot_at=NOON)


def decide(
    *schedules: TaskSchedule, now: int, paused_until: int | None = None
) -> tuple[dict[str, DueSlot], int]:
    decision = slots.decide(schedules, now=now, paused_until=paused_until)
    return decision.due, decision.ring_at


def test_nothing_is_due_before_its_slot() -> None:
    """The next ring is the nearest slot."""
    assert decide(PRICES, SWEEP, now=NOON + 1) == ({}, NOON + FIVE)


def test_both_are_due_when_their_slots_meet() -> None:
    """At the quarter of an hour the 5- and the 15-minute task run together."""
    due, ring_at = decide(replace(PRICES, last_slot_at=NOON + 2 * FIVE), SWEEP, now=NOON + FIFTEEN)

    assert due == {"tenero": DueSlot(NOON + FIFTEEN, 0), "sweep": DueSlot(NOON + FIFTEEN, 0)}
    assert ring_at == NOON + FIFTEEN + FIVE


def test_a_late_start_does_not_move_the_next_slot() -> None:
    """Four minutes late: this run is for the slot that has begun, the next comes a minute later."""
    due, ring_at = decide(PRICES, now=NOON + FIVE + 4 * MINUTE)

    assert due == {"tenero": DueSlot(NOON + FIVE, 0)}
    assert ring_at == NOON + 2 * FIVE


def test_missed_slots_become_one_run_and_are_counted() -> None:
    """After an hour of downtime there is one run, for the newest slot."""
    due, _ = decide(PRICES, now=NOON + 60 * MINUTE + 17)

    assert due == {"tenero": DueSlot(NOON + 60 * MINUTE, 11)}


def test_a_task_that_never_ran_is_due_at_once() -> None:
    """No slot is counted as missed on the very first start."""
    due, _ = decide(replace(PRICES, last_slot_at=0), now=NOON + 7)

    assert due == {"tenero": DueSlot(NOON, 0)}


def test_a_running_task_is_not_due() -> None:
    """Its slot waits until the run has ended, and is one of the missed ones then."""
    busy = replace(PRICES, running=True)

    assert decide(busy, now=NOON + FIVE)[0] == {}


def test_a_task_that_was_cut_off_is_due_at_once_for_its_own_slot() -> None:
    """The run after a crash does not use up another slot."""
    due, ring_at = decide(replace(PRICES, rerun=True), now=NOON + MINUTE)

    assert due == {"tenero": DueSlot(NOON, 0)}
    assert ring_at == NOON + FIVE


def test_a_stretched_cadence_follows_the_last_slot() -> None:
    """Seven minutes are seven minutes, not the next multiple of five."""
    slow = replace(PRICES, effective_ms=7 * MINUTE)

    assert decide(slow, now=NOON + 6 * MINUTE) == ({}, NOON + 7 * MINUTE)
    assert decide(slow, now=NOON + 15 * MINUTE)[0] == {"tenero": DueSlot(NOON + 14 * MINUTE, 1)}


def test_pause_and_back_off_hold_a_task_and_the_ring_waits_for_them() -> None:
    """The later of the two decides."""
    held = replace(PRICES, next_run_after=NOON + 12 * MINUTE)

    assert decide(held, now=NOON + FIVE) == ({}, NOON + 12 * MINUTE)
    assert decide(held, now=NOON + FIVE, paused_until=NOON + 18 * MINUTE) == ({}, NOON + 18 * MINUTE)


def test_the_alarm_rings_again_before_the_platform_would_end_its_handler() -> None:
    """However long a pause is: the wait is 14 minutes, and a handler may take 15."""
    _, ring_at = decide(PRICES, now=NOON, paused_until=NOON + 7 * 24 * 60 * MINUTE)

    assert (ring_at - NOON, ALARM_AHEAD_MAX_MS, ALARM_LIMIT_MS) == (840_000, 840_000, 900_000)


def test_a_disabled_task_is_never_due() -> None:
    """Only the longest wait of the alarm remains."""
    assert decide(replace(PRICES, enabled=False), now=NOON + 60 * MINUTE) == (
        {},
        NOON + 60 * MINUTE + ALARM_AHEAD_MAX_MS,
    )


YEAR = 365 * 86_400_000


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
