"""Alarms: the schedule in memory, and what a failed run makes of one."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.local.alarms import Alarm, AlarmSchedule, after_failure, rings_at
from holdfast.local.object_id import LocalObjectId
from holdfast.testing.virtual_time import VirtualClock


class Timer(VirtualClock):
    """A clock that keeps what its timer was set to."""

    def __init__(self) -> None:
        super().__init__()
        self.waits_for: int | None = None

    def ring_at(self, at_ms: int) -> None:
        self.waits_for = at_ms
        super().ring_at(at_ms)


class Schedule:
    """A schedule on a virtual clock, and what rang when, in milliseconds since the start."""

    def __init__(self) -> None:
        self.clock = Timer()
        self.rung: list[tuple[str, int]] = []
        self.alarms = AlarmSchedule(self.clock, self._ring)
        self._generation = 0

    def open(self) -> None:
        self.began_at = self.clock.now()
        self.alarms.open()

    def _ring(self, owner: LocalObjectId, _alarm: Alarm) -> None:
        self.rung.append((owner.hex, self.since_start()))

    def since_start(self) -> int:
        return self.clock.now() - self.began_at

    def set(self, name: str, after_ms: int | None) -> None:
        """Set the alarm of an object this long after the start; None deletes it."""
        alarm = None
        if after_ms is not None:
            self._generation += 1
            at = self.began_at + after_ms
            alarm = Alarm(at, at, self.clock.now(), self._generation)
        self.alarms.set(LocalObjectId(name, "TEST", name), alarm)

    def waits_for(self) -> int | None:
        at = self.clock.waits_for
        return None if at is None else at - self.began_at


@asynccontextmanager
async def schedule() -> AsyncIterator[Schedule]:
    made = Schedule()
    made.open()
    try:
        yield made
    finally:
        made.alarms.close()


@pytest.mark.parametrize("order", list(permutations([1_000, 2_000, 3_000])))
async def test_the_timer_waits_for_the_earliest_alarm(order: tuple[int, ...]) -> None:
    """In whatever order they are set; after each ring, for the next one; each rings at its time."""
    async with schedule() as made:
        for after_ms in order:
            made.set(str(after_ms), after_ms)
        waits = []
        for _ in range(3):
            waits.append(made.waits_for())
            await asyncio.sleep(1)
        await asyncio.sleep(1)

    assert waits == [1_000, 2_000, 3_000]
    assert made.rung == [("1000", 1_000), ("2000", 2_000), ("3000", 3_000)]


async def test_an_alarm_that_is_set_while_another_rings_gets_the_timer() -> None:
    """The timer is free then: it takes the alarm set next, even if that is later than the one that rang."""
    async with schedule() as made:
        made.set("a", 1_000)
        await asyncio.sleep(2)
        made.set("b", 5_000)
        waits = made.waits_for()
        await asyncio.sleep(4)

    assert waits == 5_000
    assert made.rung == [("a", 1_000), ("b", 5_000)]


async def test_a_replaced_or_deleted_alarm_does_not_ring_and_nobody_wakes_up_for_it() -> None:
    """After the first ring the timer skips times at which nothing is to be done."""
    async with schedule() as made:
        made.set("first", 1_000)
        made.set("deleted", 2_000)
        made.set("moved", 3_000)
        made.set("last", 5_000)
        made.set("deleted", None)
        made.set("moved", 9_000)
        await asyncio.sleep(1.5)
        waits = made.waits_for()
        await asyncio.sleep(10)

    assert waits == 5_000
    assert made.rung == [("first", 1_000), ("last", 5_000), ("moved", 9_000)]


async def test_an_alarm_more_than_a_second_late_waits_behind_others_of_its_kind() -> None:
    """Those that are a second late or less ring at once, the others 5 ms apart, the first of them at once."""
    async with schedule() as made:
        for name in ("late 1", "late 2", "late 3"):
            made.set(name, 60_000 - 1_001)
        made.set("on time 1", 60_000 - 1_000)
        made.set("on time 2", 60_000)
        made.clock.jump(60_000)
        made.began_at += 60_000
        await asyncio.sleep(1)

    assert made.rung == [("on time 1", 0), ("on time 2", 0), ("late 1", 0), ("late 2", 5), ("late 3", 10)]


async def test_overdue_alarms_that_come_later_join_the_row() -> None:
    """A second jump while overdue alarms ring does not start a second series."""
    async with schedule() as made:
        for n in range(4):
            made.set(f"first {n}", 10_000)
        for n in range(2):
            made.set(f"second {n}", 100_000)
        made.clock.jump(20_000)
        await asyncio.sleep(0.006)  # two have rung
        made.clock.jump(100_000)
        await asyncio.sleep(1)

    names = [name for name, _ in made.rung]
    times = [at % 10_000 for _, at in made.rung]
    assert names == ["first 0", "first 1", "first 2", "first 3", "second 0", "second 1"]
    assert times == [0, 5, 10, 15, 20, 25]


async def test_after_the_end_nothing_rings() -> None:
    """Neither later alarms nor the rest of a series of overdue ones."""
    async with schedule() as made:
        made.set("late 1", 1_000)
        made.set("late 2", 1_000)
        made.set("later", 70_000)
        made.clock.jump(60_000)
        await asyncio.sleep(0.001)
    await asyncio.sleep(60)

    assert [name for name, _ in made.rung] == ["late 1"]


async def test_a_clock_that_is_set_back_starts_the_wait_again() -> None:
    """After a jump an hour back, alarms due in 10 s and in 20 s ring after 10 s and after 20 s by the new clock."""
    async with schedule() as made:
        made.set("b", 20_000)
        made.set("a", 10_000)
        began_s = made.clock.monotonic()
        made.clock.jump(-3_600_000)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        waits = made.waits_for()
        await asyncio.sleep(30)
        times = [at for _, at in made.rung]
        took_s = made.clock.monotonic() - began_s

    assert took_s == 30
    assert waits == 10_000 - 3_600_000
    assert times == [10_000 - 3_600_000, 20_000 - 3_600_000]


async def test_an_alarm_that_is_set_again_and_again_takes_no_more_memory() -> None:
    """An object moves its alarm at every call: a hundred thousand times leave a few hundred entries."""
    async with schedule() as made:
        for n in range(2_000):
            made.set("a", 600_000 - n)
        entries = len(made.alarms._heap)
        await asyncio.sleep(600)

    assert entries <= 258
    assert made.rung == [("a", 600_000 - 1_999)]


NOW = 1_778_700_600_000
ALARM = Alarm(scheduled_at=NOW, due_at=NOW, decided_at=NOW - 5_000, generation=1)
chances = st.floats(0, 0.999999)
instants = st.integers(1, 4_000_000_000_000)


@given(st.lists(chances, min_size=7, max_size=7))
def test_a_failing_handler_is_run_seven_times_over_126_to_158_seconds(chosen: list[float]) -> None:
    """The waits are 2 s, doubling, each longer by up to a quarter, counted from the failure."""
    alarm, waits = ALARM, []
    for chance in chosen[:6]:
        retry = after_failure(alarm, counted=True, now=NOW, chance=chance)
        assert retry is not None
        waits.append(retry.due_at - NOW)
        alarm = retry

    assert all(2000 * 2**n <= wait <= 2500 * 2**n for n, wait in enumerate(waits))
    assert 126_000 <= sum(waits) <= 157_500
    assert alarm.retry_count == 6
    assert alarm.scheduled_at == ALARM.scheduled_at
    assert after_failure(alarm, counted=True, now=NOW, chance=chosen[6]) is None


@given(st.lists(chances, min_size=1, max_size=40))
def test_failures_before_the_handler_never_end_an_alarm(chosen: list[float]) -> None:
    """They back off to at most 1,024 s (and a quarter), without end, and are not counted."""
    alarm = ALARM
    for n, chance in enumerate(chosen):
        retry = after_failure(alarm, counted=False, now=NOW, chance=chance)
        assert retry is not None
        assert retry.retry_count == 0
        shortest = min(2000 * 2**n, 1_024_000)
        assert shortest <= retry.due_at - NOW <= shortest * 1.25
        alarm = retry


def test_a_counted_failure_after_uncounted_ones_restarts_the_back_off() -> None:
    """The first failure of the handler itself waits 2 s, however long the constructor failed before."""
    backed_off = ALARM._replace(backoff=7, last_failure_counted=False)
    retry = after_failure(backed_off, counted=True, now=NOW, chance=0)

    assert retry is not None
    assert retry.due_at - NOW == 2000


@given(decided_at=instants, delay=st.integers(0, 10**10), now=instants)
def test_no_change_of_the_clock_makes_an_alarm_wait_longer(decided_at: int, delay: int, now: int) -> None:
    """If the clock is set back by years, the original wait starts again."""
    alarm = Alarm(decided_at + delay, decided_at + delay, decided_at, 1)

    assert rings_at(alarm, now) - now <= delay + 1000


@given(delay=st.integers(0, 10**10), passed=st.integers(0, 10**10))
def test_an_alarm_is_due_when_its_time_has_come(delay: int, passed: int) -> None:
    """With a clock that only moves forward, it rings at exactly the time that was set."""
    alarm = Alarm(NOW + delay, NOW + delay, NOW, 1)

    assert rings_at(alarm, NOW + passed) == NOW + delay


def test_the_longest_back_off_is_1024_seconds() -> None:
    """Reached after nine failures before the handler, and never exceeded; with the longest jitter a quarter more."""
    waits = []
    for chance in (0.0, 0.999999):
        alarm = ALARM
        for _ in range(15):
            retry = after_failure(alarm, counted=False, now=NOW, chance=chance)
            assert retry is not None
            alarm = retry
            waits.append((alarm.due_at - NOW) / 1000)

    assert waits[:15] == [2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 1024, 1024, 1024, 1024, 1024]
    assert max(waits[15:]) == 1280


def test_a_clock_set_back_by_more_than_a_second_starts_the_wait_again() -> None:
    """At exactly a second the alarm stays where it is; a millisecond more and its five seconds begin now."""
    alarm = Alarm(NOW + 5_000, NOW + 5_000, NOW, 1)

    assert rings_at(alarm, NOW - 1_000) == NOW + 5_000
    assert rings_at(alarm, NOW - 1_001) == NOW - 1_001 + 5_000
