"""Times as people write and read them."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import UsageError
from tocsin.text import (
    check_duration,
    long_duration,
    parse_duration,
    parse_instant_ms,
    short_duration,
    shown_ago,
    shown_instant,
    shown_until,
)

NOW = 1_778_700_600_000


@pytest.mark.parametrize(("text", "ms"), [("90s", 90_000), ("15m", 900_000), ("2h", 7_200_000), ("1d", 86_400_000)])
def test_durations(text: str, ms: int) -> None:
    """A number and a unit; a command passes the text on unchanged."""
    assert parse_duration(text) == ms
    assert check_duration(text) == text


@pytest.mark.parametrize("text", ["", "2", "h", "0h", "-2h", "2H", "1.5h", "2h30"])
def test_a_text_that_is_not_a_duration_is_refused_with_examples(text: str) -> None:
    """The sentence shows how to write one."""
    with pytest.raises(UsageError, match=r"is not a duration: .* such as 90s, 15m, 2h or 1d"):
        check_duration(text)


def test_instants() -> None:
    """ISO with a zone, a date, or unix milliseconds."""
    assert parse_instant_ms("2026-05-13T19:30:00Z") == NOW
    assert parse_instant_ms("2026-05-13T21:30+02:00") == NOW
    assert parse_instant_ms(str(NOW)) == NOW
    with pytest.raises(UsageError, match="unix milliseconds"):
        parse_instant_ms("tomorrow")
    with pytest.raises(UsageError, match="unix milliseconds"):
        parse_instant_ms("9999999999999999")


@pytest.mark.parametrize(
    ("ms", "text"),
    [(0, "0ms"), (210, "210ms"), (48_000, "48s"), (61_000, "1m 1s"), (3_600_000, "1h"), (90_061_000, "1d 1h")],
)
def test_durations_are_shown_in_two_units(ms: int, text: str) -> None:
    """Only as much as can be read at a glance."""
    assert short_duration(ms) == text


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (1_000, "1 second"),
        (90_000, "90 seconds"),
        (840_000, "14 minutes"),
        (5_400_000, "90 minutes"),
        (3_600_000, "1 hour"),
        (7 * 86_400_000, "7 days"),
        (1_500, "1.5 seconds"),
    ],
)
def test_durations_in_sentences_use_the_largest_exact_unit(ms: int, text: str) -> None:
    """In words, with the plural where it belongs."""
    assert long_duration(ms) == text


def test_moments_are_shown_relative_to_now() -> None:
    """Past, present, future and never."""
    assert shown_ago(NOW - 61_000, NOW) == "1m 1s ago"
    assert shown_ago(None, NOW) == "never"
    assert shown_until(NOW + 5_000, NOW) == "in 5s"
    assert shown_until(NOW, NOW) == "now"
    assert shown_until(None, NOW) == "-"
    assert shown_instant(NOW).startswith("2026-05-1")
    assert shown_instant(None) == "-"
    assert shown_instant(10**18) == shown_instant(-1) == "unknown"


@pytest.mark.parametrize(
    ("zone", "shown"), [("UTC", "2026-05-13 19:30:00 UTC"), ("Asia/Kolkata", "2026-05-14 01:00:00 IST")]
)
def test_a_time_is_shown_in_the_local_zone_with_its_name(
    zone: str, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that an operator can compare it with a watch."""
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        assert shown_instant(NOW) == shown
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.slow
@given(st.integers(0, 10**12))
def test_every_duration_can_be_shown(ms: int) -> None:
    """The text is never empty."""
    assert short_duration(ms)
    assert long_duration(ms)
