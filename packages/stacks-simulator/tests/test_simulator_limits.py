"""The rate limits of both upstreams: windows, headers, keys."""

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stacks_simulator.http_messages import SimulatedReply
from stacks_simulator.rate_limits import (
    HIRO_ANONYMOUS,
    HIRO_KEYED,
    TENERO_ANONYMOUS,
    TENERO_STARTER,
    HiroRateLimit,
    LimitDecision,
    LimitPlan,
    TeneroRateLimit,
    seconds_left,
)
from support.simulated import HandClock

NOON_MS = int(datetime(2026, 6, 10, 12, 0, 0, tzinfo=UTC).timestamp() * 1000)
KEY = {"x-api-key": "k"}


def error_reply(decision: LimitDecision) -> SimulatedReply:
    assert decision.error_reply is not None
    return decision.error_reply


def test_a_key_raises_the_limit_of_the_minute() -> None:
    """Without a key, or with the key in the old header, a caller has the anonymous limits."""
    rate_limit = HiroRateLimit()

    def minute(headers: dict[str, str]) -> str:
        return rate_limit.admit(headers, NOON_MS).headers["x-ratelimit-limit-stacks-minute"]

    assert minute(KEY) == str(HIRO_KEYED.minute) == "500"
    assert minute({}) == minute({"x-hiro-api-key": "k"}) == str(HIRO_ANONYMOUS.minute) == "50"
    rate_limit.keys_ignored = True
    assert minute(KEY) == "50"


def test_hiro_counts_three_windows() -> None:
    """Each reply has what remains of every window; the headers without a suffix describe the second."""
    rate_limit = HiroRateLimit()
    rate_limit.admit(KEY, NOON_MS)

    headers = rate_limit.admit(KEY, NOON_MS + 1_000).headers

    remaining = {window: headers[f"x-ratelimit-remaining-stacks-{window}"] for window in ("second", "minute", "month")}
    assert remaining == {"second": "19", "minute": "498", "month": "149998"}
    assert (headers["ratelimit-limit"], headers["ratelimit-remaining"]) == ("20", "19")
    assert "retry-after" not in headers


@pytest.mark.parametrize(
    ("plan", "window", "wait_s"),
    [
        (LimitPlan(second=2, minute=100, month=100), "second", 1),
        (LimitPlan(second=100, minute=2, month=100), "minute", 50),
        (LimitPlan(second=100, minute=100, month=2), "month", 20 * 86_400 + 12 * 3600 - 10),
    ],
)
def test_requests_are_rejected_until_the_full_window_ends(plan: LimitPlan, window: str, wait_s: int) -> None:
    """The 429 names the window and how long it lasts exactly; then requests are accepted again."""
    rate_limit = HiroRateLimit(keyed=plan)
    now_ms = NOON_MS + 10_000
    assert [rate_limit.admit(KEY, now_ms).error_reply for _ in range(2)] == [None, None]

    decision = rate_limit.admit(KEY, now_ms)

    reply = error_reply(decision)
    assert (reply.status, reply.headers["retry-after"]) == (429, str(wait_s))
    assert decision.headers["ratelimit-reset"] == str(wait_s)
    assert reply.body.decode().startswith(f"Per-{window} rate limit exceeded")
    assert error_reply(rate_limit.admit(KEY, now_ms + wait_s * 1000 - 1)).status == 429
    assert rate_limit.admit(KEY, now_ms + wait_s * 1000).error_reply is None


def test_the_longest_full_window_decides() -> None:
    """When the minute and the month are both full, the wait is the month's."""
    rate_limit = HiroRateLimit(keyed=LimitPlan(second=1, minute=1, month=1))
    rate_limit.admit(KEY, NOON_MS)

    assert error_reply(rate_limit.admit(KEY, NOON_MS)).body.startswith(b"Per-month")


def test_callers_do_not_use_each_others_windows() -> None:
    """Every key has its own windows; all callers without a key share theirs."""
    rate_limit = HiroRateLimit()
    rate_limit.spend(50, NOON_MS)

    assert error_reply(rate_limit.admit({}, NOON_MS)).status == 429
    assert rate_limit.admit(KEY, NOON_MS).error_reply is None
    rate_limit.spend(500, NOON_MS, "k")
    assert error_reply(rate_limit.admit(KEY, NOON_MS)).status == 429


def test_tenero_counts_minute_and_month_and_names_the_rule() -> None:
    """Anonymous callers get more than the Starter plan; headers show what remains, not the limit."""
    rate_limit = TeneroRateLimit()

    anonymous, keyed = rate_limit.admit({}, NOON_MS).headers, rate_limit.admit(KEY, NOON_MS).headers

    assert anonymous == {
        "x-ratelimit-type": "web-ui-ip",
        "x-ratelimit-minute-remaining": str(TENERO_ANONYMOUS.minute - 1),
        "x-ratelimit-month-remaining": str(TENERO_ANONYMOUS.month - 1),
    }
    assert keyed["x-ratelimit-minute-remaining"] == str(TENERO_STARTER.minute - 1)
    assert keyed["x-ratelimit-type"] != "web-ui-ip"


def test_tenero_sends_retry_after_for_the_minute_but_not_the_month() -> None:
    """The 429 for a full minute has Retry-After, the one for a full month does not."""
    rate_limit = TeneroRateLimit(anonymous=LimitPlan(minute=1, month=2))
    rate_limit.admit({}, NOON_MS)

    minute = error_reply(rate_limit.admit({}, NOON_MS + 15_000))
    rate_limit.admit({}, NOON_MS + 60_000)
    month = error_reply(rate_limit.admit({}, NOON_MS + 120_000))

    assert (minute.status, minute.headers["retry-after"]) == (429, "45")
    assert (month.status, "retry-after" in month.headers) == (429, False)
    assert json.loads(month.body) == {"statusCode": 429, "message": "Too Many Requests"}


@given(st.lists(st.integers(0, 90_000), min_size=1, max_size=80))
@settings(max_examples=60, deadline=None)
def test_no_window_ever_admits_more_than_its_limit(gaps: list[int]) -> None:
    """For every pattern of calls, each calendar window admits as many as its limit, and no more."""
    plan = LimitPlan(second=2, minute=5, month=40)
    rate_limit, clock = HiroRateLimit(keyed=plan), HandClock(NOON_MS)
    admitted: list[int] = []
    for gap in gaps:
        clock.now_ms += gap
        decision = rate_limit.admit(KEY, clock.now())
        in_second = sum(1 for at in admitted if at // 1000 == clock.now_ms // 1000)
        in_minute = sum(1 for at in admitted if at // 60_000 == clock.now_ms // 60_000)
        full = in_second >= plan.second or in_minute >= plan.minute or len(admitted) >= plan.month
        assert (decision.error_reply is not None) == full
        if decision.error_reply is None:
            admitted.append(clock.now_ms)


def test_december_ends_with_the_year() -> None:
    """The window of December ends when the year ends."""
    eve = int(datetime(2026, 12, 31, 23, 59, 58, tzinfo=UTC).timestamp() * 1000)

    assert seconds_left("month", eve) == 2
