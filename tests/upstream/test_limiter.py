"""Permits are granted in order and each only once; answers change the budget to the last call and millisecond."""

import asyncio
from dataclasses import replace
from math import inf
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.testing.virtual_time import VirtualClock, run_virtual
from holdfast_testing.captured_log import CapturedLog
from tocsin.upstream.budget import Budget, Denial, LimitReading, Quota, SpentCalls, WaitingCallers, WindowReading
from tocsin.upstream.limiter import (
    WAITING_MAX,
    BudgetEvent,
    BudgetLimiter,
    CallSession,
    apply_answer,
    request_session,
    restored_budget,
    task_session,
)
from tocsin.upstream.windows import DAY_MS, Lane

FOREVER_S = 40 * 86_400.0
JUNE = 1_780_272_000_000  # its first instant
NOW = JUNE - 10 * DAY_MS
BUDGET = Budget.begin(Quota(month=1_000), NOW)


class LimitedCalls:
    """A limiter and callers of it, and what it saved and logged."""

    def __init__(self, plan: Quota, stored: Budget | None = None, clock: VirtualClock | None = None) -> None:
        self.clock = clock or VirtualClock()
        self.log = CapturedLog()
        self.saved: list[Budget] = []
        self.limiter = BudgetLimiter(
            "hiro", restored_budget(plan, stored, self.clock), self.clock, Random(1).random, self.log, self.saved.append
        )
        self.order: list[tuple[str, float]] = []

    async def call(self, name: str, lane: Lane, patience_s: float = FOREVER_S, takes_s: float = 0.0) -> bool:
        """One caller: waits for a permit, works, and releases it."""
        denial = await self.limiter.acquire(lane, patience_s)
        if denial is not None:
            return False
        self.order.append((name, self.clock.monotonic()))
        await self.clock.sleep(takes_s)
        self.limiter.release(LimitReading(), limited=False, retry_after_ms=None)
        return True

    def names(self, prefix: str) -> list[str]:
        return [name for name, _ in self.order if name.startswith(prefix)]


async def test_each_lane_is_served_first_come_first_served() -> None:
    """Callers of a lane are served in the order in which they arrived, however long it takes."""
    calls = LimitedCalls(Quota(second=2, minute=10, month=5_000))

    await asyncio.gather(
        *(calls.call(f"task {n:02}", Lane.TASK) for n in range(30)),
        *(calls.call(f"request {n:02}", Lane.REQUEST) for n in range(10)),
    )

    assert calls.names("task") == sorted(calls.names("task"))
    assert calls.names("request") == sorted(calls.names("request"))
    assert len(calls.order) == 40


@settings(max_examples=60, deadline=None)
@given(
    callers=st.lists(
        st.tuples(st.sampled_from(list(Lane)), st.integers(0, 90_000), st.integers(0, 9_000)), max_size=40
    ),
    plan=st.builds(Quota, st.integers(1, 5), st.integers(1, 10), st.none() | st.integers(3_000, 9_000)),
    limited=st.lists(st.integers(0, 60_000), max_size=3),
)
def test_no_waiting_caller_is_forgotten(callers: list[tuple[Lane, int, int]], plan: Quota, limited: list[int]) -> None:
    """With any arrivals, durations and 429s in between, every patient caller gets its permit."""

    async def play() -> None:
        calls = LimitedCalls(plan)

        async def caller(lane: Lane, at_ms: int, takes_ms: int) -> bool:
            await calls.clock.sleep(at_ms / 1000)
            return await calls.call("caller", lane, takes_s=takes_ms / 1000)

        async def trouble(at_ms: int) -> None:
            await calls.clock.sleep(at_ms / 1000)
            if await calls.limiter.acquire(Lane.TASK, FOREVER_S) is None:
                calls.limiter.release(LimitReading(), limited=True, retry_after_ms=None)

        served = await asyncio.gather(*(caller(*one) for one in callers), *(trouble(at_ms) for at_ms in limited))

        assert served.count(True) == len(callers)
        assert calls.limiter.status().waiting == WaitingCallers(task=0, request=0)
        assert calls.limiter.budget.in_flight == 0

    run_virtual(play())


async def test_a_sweep_does_not_starve_a_submitter() -> None:
    """While a hundred task calls wait for the minute, a request still gets in at once."""
    calls = LimitedCalls(Quota(minute=10))
    sweep = asyncio.gather(*(calls.call("task", Lane.TASK) for _ in range(100)))
    await calls.clock.sleep(30)
    before = calls.clock.monotonic()

    assert await calls.call("request", Lane.REQUEST)

    assert calls.clock.monotonic() == before
    await sweep


async def test_a_flood_of_requests_does_not_starve_tasks() -> None:
    """Beyond their share, requests are served by arrival, so a waiting task always gets its turn."""
    calls = LimitedCalls(Quota(minute=10))

    async def flood() -> None:
        while True:
            visitor = asyncio.create_task(calls.call("request", Lane.REQUEST, patience_s=5.0))
            await calls.clock.sleep(0.1)
            del visitor

    flooding = asyncio.create_task(flood())
    for _ in range(40):
        assert await calls.call("task", Lane.TASK, patience_s=70.0)
    flooding.cancel()

    assert calls.clock.monotonic() <= 10 * 60
    assert calls.names("request")


async def test_an_impatient_caller_is_denied_at_once() -> None:
    """A caller whose permit cannot come in time is denied without waiting; the denial says until when."""
    calls = LimitedCalls(Quota(minute=2, request_share=0))
    assert await calls.call("a", Lane.TASK)
    assert await calls.call("b", Lane.TASK)

    denial = await calls.limiter.acquire(Lane.TASK, 30.0)

    assert isinstance(denial, Denial)
    assert denial.until == calls.clock.now() + denial.wait_ms
    assert 60_000 <= denial.wait_ms <= 65_000
    assert "2 calls per minute" in denial.reason
    assert calls.clock.monotonic() == 0


async def test_waiting_callers_are_denied_when_the_limiter_closes_for_longer_than_they_wait() -> None:
    """A Retry-After beyond their patience answers the whole queue at once."""
    calls = LimitedCalls(Quota(second=1, request_share=0))
    assert await calls.limiter.acquire(Lane.TASK, 0.0) is None
    queue = [asyncio.create_task(calls.call(str(n), Lane.TASK, patience_s=20.0)) for n in range(5)]
    await calls.clock.sleep(0.1)
    calls.limiter.release(LimitReading(), limited=True, retry_after_ms=60_000)

    assert await asyncio.gather(*queue) == [False] * 5
    assert calls.clock.monotonic() < 1


async def test_a_cancelled_caller_leaves_the_line() -> None:
    """Neither a waiting nor a just admitted caller that is cancelled holds others up."""
    calls = LimitedCalls(Quota(minute=1, request_share=0))
    assert await calls.call("first", Lane.TASK)
    waiting = [asyncio.create_task(calls.call(f"{n}", Lane.TASK)) for n in range(3)]
    await calls.clock.sleep(1)
    waiting[0].cancel()
    waiting[1].cancel()
    await asyncio.gather(*waiting, return_exceptions=True)

    assert calls.names("2") == ["2"]
    assert calls.limiter.budget.in_flight == 0
    assert calls.limiter.status().waiting == WaitingCallers(task=0, request=0)


async def test_a_permit_of_a_cancelled_caller_stays_spent() -> None:
    """If cancelled between grant and use, the call counts as spent, but not as under way."""
    calls = LimitedCalls(Quota(minute=5, request_share=0))
    assert await calls.limiter.acquire(Lane.TASK, 0.0) is None
    calls.limiter.release(LimitReading(), limited=True, retry_after_ms=0)
    assert await calls.limiter.acquire(Lane.TASK, 0.0) is None
    waiting = asyncio.create_task(calls.limiter.acquire(Lane.TASK, 60.0))
    await asyncio.sleep(0)
    calls.limiter.release(LimitReading(), limited=False, retry_after_ms=None)
    assert calls.limiter.budget.in_flight == 1

    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)

    assert calls.limiter.budget.in_flight == 0
    assert calls.limiter.status().spent.minute == 3


async def test_an_endless_line_is_denied() -> None:
    """After a thousand waiting callers of a lane, the next is refused."""
    calls = LimitedCalls(Quota(second=1, request_share=0))
    line = [asyncio.create_task(calls.limiter.acquire(Lane.TASK, FOREVER_S)) for _ in range(WAITING_MAX + 1)]
    await asyncio.sleep(0)

    denial = await calls.limiter.acquire(Lane.TASK, FOREVER_S)

    assert denial is not None
    assert "already waiting" in denial.reason
    for one in line:
        one.cancel()
    await asyncio.gather(*line, return_exceptions=True)


async def test_a_permit_is_saved_before_it_is_used() -> None:
    """A process that dies right after a grant has spent it: the next one finds it counted."""
    plan = Quota(minute=3, month=1_000, request_share=0)
    calls = LimitedCalls(plan)
    for _ in range(3):
        assert await calls.limiter.acquire(Lane.TASK, 0.0) is None

    restarted = LimitedCalls(plan, calls.saved[-1], calls.clock)

    assert await restarted.limiter.acquire(Lane.TASK, 0.0) is not None
    assert restarted.limiter.status().spent == SpentCalls(second=3, minute=3, month=3, month_by_others=0)
    assert restarted.limiter.budget.in_flight == 0


async def test_corrections_are_logged_and_saved() -> None:
    """A correction by a header is in the log with the upstream's name, and in the saved state."""
    calls = LimitedCalls(Quota(minute=500))
    assert await calls.limiter.acquire(Lane.TASK, 0.0) is None
    calls.limiter.release(
        LimitReading(minute=WindowReading(limit=50, remaining=49)), limited=False, retry_after_ms=None
    )

    assert [(line.event, line.level) for line in calls.log.lines] == [("budget.limit_corrected", "WARN")]
    assert calls.log.lines[0].fields["upstream"] == "hiro"
    assert calls.saved[-1].limits.minute == 50
    assert calls.limiter.status().reported.minute_remaining == 49


async def test_setting_the_wall_clock_does_not_empty_a_window() -> None:
    """An hour forward on the wall clock frees no call of the minute."""
    calls = LimitedCalls(Quota(minute=1, request_share=0))
    assert await calls.limiter.acquire(Lane.TASK, 0.0) is None
    calls.clock.jump(3_600_000)

    assert await calls.limiter.acquire(Lane.TASK, 10.0) is not None


def told(budget: Budget, reading: LimitReading | None, **changes: Any) -> tuple[Budget, list[BudgetEvent]]:
    given: dict[str, Any] = {"limited": False, "retry_after_ms": None, "now": NOW, "jitter": 0.5, **changes}
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
    for was_closed_until in (0, NOW):
        before = replace(BUDGET, limited_in_a_row=in_a_row, closed_until=was_closed_until)
        after, events = told(before, LimitReading(), limited=True, retry_after_ms=retry_after_ms, jitter=jitter)
        assert (after.closed_until, after.limited_in_a_row) == (NOW + expected_ms, in_a_row + 1)
        assert events == [BudgetEvent("WARN", "budget.limiter_closed", fields)]


def test_a_429_while_it_is_closed_counts_once_and_never_shortens() -> None:
    closed = replace(BUDGET, limited_in_a_row=2, closed_until=NOW + 1)
    for retry_after_ms, until in ((None, NOW + 1), (0, NOW + 1), (50, NOW + 50)):
        after, _ = told(closed, LimitReading(), limited=True, retry_after_ms=retry_after_ms)
        assert (after.closed_until, after.limited_in_a_row) == (until, 2)


@pytest.mark.parametrize(
    ("closed_until", "probing", "opens"), [(NOW, False, True), (NOW + 1, False, False), (NOW + 1, True, True)]
)
def test_an_answer_opens_the_limiter_after_its_time_or_by_a_probe(
    closed_until: int, probing: bool, opens: bool
) -> None:
    closed = replace(BUDGET, limited_in_a_row=3, closed_until=closed_until)
    after, events = told(closed, LimitReading(), probing=probing)

    assert (after.limited_in_a_row, after.closed_until) == ((0, NOW) if opens else (3, NOW + 1))
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
    now = JUNE - left_ms
    budget = Budget.begin(Quota(month=1_000), now)
    _, events = told(budget, LimitReading(month=WindowReading(remaining=remaining)), now=now)
    fields = {"remaining": remaining, "limit": 1_000, "month_ends_at": JUNE}
    assert events == ([BudgetEvent("WARN", "budget.quota_low", fields)] if low else [])


def session(**options: float) -> CallSession:
    made = task_session(CapturedLog())
    for name, value in options.items():
        setattr(made, name, value)
    return made


def test_a_limited_call_says_nothing_about_whether_the_upstream_answers() -> None:
    """It neither resets the count nor adds to it; then calls do not wait until one was not limited."""
    made = session()
    for _ in range(4):
        made.call_ended(limited=False, answered=False)
    made.call_ended(limited=True, answered=False)
    made.call_ended(limited=True, answered=True)
    assert (made.given_up, made.limited, made.deadline(100.0)) == (False, True, 100.0)

    made.call_ended(limited=False, answered=False)
    assert (made.given_up, made.limited, made.deadline(100.0)) == (True, False, 170.0)


def test_no_call_waits_beyond_the_end_of_the_run() -> None:
    """However patient it is."""
    assert session(ends_at_s=130.0).deadline(100.0) == 130.0
    assert session(ends_at_s=300.0).deadline(100.0) == 170.0


def test_a_task_is_patient_and_a_request_is_not() -> None:
    """A run waits for a full minute window; a visitor is not kept waiting."""
    task, request = task_session(CapturedLog()), request_session(CapturedLog())

    assert (task.lane, task.patience_s, task.retries_left) == (Lane.TASK, 70.0, 20)
    assert (request.lane, request.patience_s, request.retries_left) == (Lane.REQUEST, 5.0, 2)
    assert (task.unanswered_max, task.ends_at_s, task.may_probe, request.may_probe) == (5, inf, False, False)
    assert (task.calls, task.unanswered, task.limited) == (0, 0, False)
    assert request_session(CapturedLog(), patience_s=1.5).patience_s == 1.5
    assert task_session(CapturedLog(), may_probe=True).may_probe
