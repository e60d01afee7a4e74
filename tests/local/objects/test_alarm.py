"""How failures and clock changes move an alarm, without a clock."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from holdfast.local.object_store import Alarm, after_failure, rings_at

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
    backed_off = replace(ALARM, backoff=7, last_failure_counted=False)
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
