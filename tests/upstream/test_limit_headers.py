"""Limits in headers, as far as they are plausible; and warnings that are logged once."""

import pytest

from tocsin.upstream.client import LogOnce, header_number, read_retry_after

NOW = 1_778_787_000_000  # Thu, 14 May 2026 19:30:00 GMT
MONTH_MS = 2_678_400_000  # 31 days


@pytest.mark.parametrize(
    ("value", "expected"),
    [("0", 0), (" 7 ", 7), ("1000000000", 10**9), ("1000000001", None), ("-1", None), ("", None), ("1.5", None)],
)
def test_a_count_is_a_plausible_number(value: str, expected: int | None) -> None:
    assert header_number({"x": value}, "x") == expected
    assert header_number({}, "x") is None


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("2678400", MONTH_MS),
        ("2678401", MONTH_MS),
        ("2678399", MONTH_MS - 1_000),
        ("0", 0),
        ("0.001", 1),
        ("Sun, 14 Jun 2026 19:30:00 GMT", MONTH_MS),
        ("Sun, 14 Jun 2026 19:30:01 GMT", MONTH_MS),
        ("Sun, 14 Jun 2026 19:29:59 GMT", MONTH_MS - 1_000),
        ("Thu, 14 May 2026 19:30:00", 0),
        ("Thu, 14 May 2026 19:30:01 GMT" + " (" + "x" * 32 + ")", 1_000),  # 64 characters
        ("Thu, 14 May 2026 19:30:01 GMT" + " (" + "x" * 33 + ")", None),
    ],
)
def test_a_wait_is_at_most_a_month(value: str, expected: int | None) -> None:
    assert read_retry_after({"retry-after": value}, NOW) == expected


def test_two_hundred_warnings_are_remembered() -> None:
    log = LogOnce()
    assert all(log.is_news(str(number)) for number in range(200))
    assert not log.is_news("200")
    log.forget("5")
    assert [log.is_news("5"), log.is_news("5")] == [True, False]
