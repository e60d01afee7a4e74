"""How an answer changes a budget, to the last call and the last millisecond."""

from dataclasses import replace
from typing import Any

import pytest

from tocsin.upstream.budget import Budget, LimitReading, Moment, Quota, WindowReading
from tocsin.upstream.limiter import BudgetEvent, apply_answer

DAY_MS = 86_400_000
JUNE = 1_780_272_000_000  # its first instant
NOW = Moment(JUNE - 10 * DAY_MS, 700_000)
BUDGET = Budget.begin(Quota(month=1_000), NOW)


def told(budget: Budget, reading: LimitReading | None, **changes: Any) -> tuple[Budget, list[BudgetEvent]]:
    given: dict[str, Any] = {"limited": False, "retry_after_ms": None, "moment": NOW, "jitter": 0.5, **changes}
    return apply_answer(budget, reading, **given)


def test_a_call_that_has_ended_is_no_longer_under_way() -> None:
    """With or without an answer; a probe ends only with its own call."""
    for in_flight, expected in ((0, 0), (1, 0), (2, 1), (3, 2)):
        assert told(replace(BUDGET, in_flight=in_flight), None)[0].in_flight == expected
    probed = replace(BUDGET, probing=True)
    assert told(probed, None)[0].probing
    assert not told(probed, None, probing=True)[0].probing
    assert not told(BUDGET, None)[0].probing


@pytest.mark.parametrize(
    ("in_a_row", "retry_after_ms", "jitter", "expected_ms"),
    [
        (0, None, 1.0, 2_000),
        (0, None, 0.5, 1_000),
        (1, None, 1.0, 4_000),
        (7, None, 1.0, 256_000),
        (8, None, 1.0, 300_000),
        (500, None, 1.0, 300_000),
        (0, 5, 1.0, 5),  # a first one is taken as it is
        (0, 0, 1.0, 0),
        (1, 5, 1.0, 4_000),
        (1, 9_000, 1.0, 9_000),
        (0, 3_600_001, 1.0, 3_600_000),
        (0, 3_599_999, 1.0, 3_599_999),
    ],
)
def test_a_429_closes_the_limiter(in_a_row: int, retry_after_ms: int | None, jitter: float, expected_ms: int) -> None:
    fields = {"for_ms": expected_ms, "limited_in_a_row": in_a_row + 1, "retry_after_ms": retry_after_ms}
    for was_closed_until in (0, 700_000):
        before = replace(BUDGET, limited_in_a_row=in_a_row, closed_until=was_closed_until)
        after, events = told(before, LimitReading(), limited=True, retry_after_ms=retry_after_ms, jitter=jitter)
        assert (after.closed_until, after.limited_in_a_row) == (700_000 + expected_ms, in_a_row + 1)
        assert events == [BudgetEvent("WARN", "budget.limiter_closed", fields)]


def test_a_429_while_it_is_closed_counts_once_and_never_shortens() -> None:
    closed = replace(BUDGET, limited_in_a_row=2, closed_until=700_001)
    for retry_after_ms, until in ((None, 700_001), (0, 700_001), (50, 700_050)):
        after, _ = told(closed, LimitReading(), limited=True, retry_after_ms=retry_after_ms)
        assert (after.closed_until, after.limited_in_a_row) == (until, 2)


@pytest.mark.parametrize(
    ("closed_until", "probing", "opens"), [(700_000, False, True), (700_001, False, False), (700_001, True, True)]
)
def test_an_answer_opens_the_limiter_after_its_time_or_by_a_probe(
    closed_until: int, probing: bool, opens: bool
) -> None:
    closed = replace(BUDGET, limited_in_a_row=3, closed_until=closed_until)
    after, events = told(closed, LimitReading(), probing=probing)

    assert (after.limited_in_a_row, after.closed_until) == ((0, 700_000) if opens else (3, 700_001))
    assert events == ([BudgetEvent("INFO", "budget.limiter_opened", {"limited_in_a_row": 3})] if opens else [])


@pytest.mark.parametrize(
    ("left_ms", "remaining", "low"),
    [
        (16 * DAY_MS, 199, True),  # more than half of the month is left
        (16 * DAY_MS, 200, False),
        (669_600_000, 124, True),  # a quarter of May
        (669_600_000, 125, False),
    ],
)
def test_a_quota_is_low_below_a_fifth_and_half_of_the_time_left(left_ms: int, remaining: int, low: bool) -> None:
    moment = Moment(JUNE - left_ms, 0)
    budget = Budget.begin(Quota(month=1_000), moment)
    _, events = told(budget, LimitReading(month=WindowReading(remaining=remaining)), moment=moment)
    fields = {"remaining": remaining, "limit": 1_000, "month_ends_at": JUNE}
    assert events == ([BudgetEvent("WARN", "budget.quota_low", fields)] if low else [])
