"""Permits are handed out in order, to everybody, and to nobody twice."""

import asyncio
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from support.captured_log import CapturedLog
from support.virtual_time import VirtualClock, run_virtual
from tocsin.bindings import JSON
from tocsin.budget.budget import Quota
from tocsin.budget.budget_limiter import WAITING_MAX, BudgetLimiter
from tocsin.budget.limiter import Denial, Lane, LimitReading, WindowReading
from tocsin.budget.windows import Moment

FOREVER_S = 40 * 86_400.0


class Door:
    """A gatekeeper and what it saved and said."""

    def __init__(self, plan: Quota, stored: JSON = None, clock: VirtualClock | None = None) -> None:
        self.clock = clock or VirtualClock()
        self.log = CapturedLog()
        self.saved: list[JSON] = []
        self.gate = BudgetLimiter.restore(
            "hiro", plan, stored, self.clock, Random(1).random, self.log, self.saved.append
        )
        self.order: list[tuple[str, float]] = []

    async def call(self, name: str, lane: Lane, patience_s: float = FOREVER_S, takes_s: float = 0.0) -> bool:
        """One caller: in, at work, out again."""
        refusal = await self.gate.enter(lane, patience_s)
        if refusal is not None:
            return False
        self.order.append((name, self.clock.monotonic()))
        await self.clock.sleep(takes_s)
        self.gate.leave(LimitReading(), limited=False, retry_after_ms=None)
        return True

    def names(self, prefix: str) -> list[str]:
        return [name for name, _ in self.order if name.startswith(prefix)]


async def test_each_lane_is_served_first_come_first_served() -> None:
    """Callers of a lane leave in the order in which they came, however long it takes."""
    door = Door(Quota(second=2, minute=10, month=5_000))

    await asyncio.gather(
        *(door.call(f"task {n:02}", Lane.TASK) for n in range(30)),
        *(door.call(f"request {n:02}", Lane.REQUEST) for n in range(10)),
    )

    assert door.names("task") == sorted(door.names("task"))
    assert door.names("request") == sorted(door.names("request"))
    assert len(door.order) == 40


@settings(max_examples=60, deadline=None)
@given(
    callers=st.lists(
        st.tuples(st.sampled_from(list(Lane)), st.integers(0, 90_000), st.integers(0, 9_000)), max_size=40
    ),
    plan=st.builds(Quota, st.integers(1, 5), st.integers(1, 10), st.none() | st.integers(3_000, 9_000)),
    limited=st.lists(st.integers(0, 60_000), max_size=3),
)
def test_no_waiting_caller_is_forgotten(
    callers: list[tuple[Lane, int, int]], plan: Quota, limited: list[int]
) -> None:
    """With any arrivals, durations and 429s in between, every patient caller gets its permit."""

    async def play() -> None:
        door = Door(plan)

        async def caller(lane: Lane, at_ms: int, takes_ms: int) -> bool:
            await door.clock.sleep(at_ms / 1000)
            return await door.call("caller", lane, takes_s=takes_ms / 1000)

        async def trouble(at_ms: int) -> None:
            await door.clock.sleep(at_ms / 1000)
            if await door.gate.enter(Lane.TASK, FOREVER_S) is None:
                door.gate.leave(LimitReading(), limited=True, retry_after_ms=None)

        served = await asyncio.gather(
            *(caller(*one) for one in callers), *(trouble(at_ms) for at_ms in limited)
        )

        assert served.count(True) == len(callers)
        assert door.gate.describe()["waiting"] == {"task": 0, "request": 0}
        assert door.gate.budget.in_flight == 0

    run_virtual(play())


async def test_a_sweep_does_not_starve_a_submitter() -> None:
    """While a hundred task calls wait for the minute, a request still gets in at once."""
    door = Door(Quota(minute=10))
    sweep = asyncio.gather(*(door.call("task", Lane.TASK) for _ in range(100)))
    await door.clock.sleep(30)
    before = door.clock.monotonic()

    assert await door.call("request", Lane.REQUEST)

    assert door.clock.monotonic() == before
    await sweep


async def test_a_flood_of_requests_does_not_starve_tasks() -> None:
    """Beyond their share requests go by arrival, so a task that waits gets its turn all the time."""
    door = Door(Quota(minute=10))

    async def flood() -> None:
        while True:
            visitor = asyncio.create_task(door.call("request", Lane.REQUEST, patience_s=5.0))
            await door.clock.sleep(0.1)
            del visitor

    flooding = asyncio.create_task(flood())
    for _ in range(40):
        assert await door.call("task", Lane.TASK, patience_s=70.0)
    flooding.cancel()

    assert door.clock.monotonic() <= 10 * 60
    assert door.names("request")


async def test_impatience_is_told_at_once() -> None:
    """A caller whose permit cannot come in time is refused without waiting, and told until when."""
    door = Door(Quota(minute=2, request_share=0))
    assert await door.call("a", Lane.TASK)
    assert await door.call("b", Lane.TASK)

    refusal = await door.gate.enter(Lane.TASK, 30.0)

    assert isinstance(refusal, Denial)
    assert refusal.until == door.clock.now() + refusal.wait_ms
    assert 60_000 <= refusal.wait_ms <= 65_000
    assert "2 calls per minute" in refusal.reason
    assert door.clock.monotonic() == 0


async def test_those_in_line_are_refused_when_the_gate_closes_for_longer_than_they_wait() -> None:
    """A Retry-After beyond their patience answers the whole queue at once."""
    door = Door(Quota(second=1, request_share=0))
    assert await door.gate.enter(Lane.TASK, 0.0) is None
    queue = [asyncio.create_task(door.call(str(n), Lane.TASK, patience_s=20.0)) for n in range(5)]
    await door.clock.sleep(0.1)
    door.gate.leave(LimitReading(), limited=True, retry_after_ms=60_000)

    assert await asyncio.gather(*queue) == [False] * 5
    assert door.clock.monotonic() < 1


async def test_a_cancelled_caller_leaves_the_line() -> None:
    """Neither a waiting nor a just admitted caller that is cancelled holds anybody up."""
    door = Door(Quota(minute=1, request_share=0))
    assert await door.call("first", Lane.TASK)
    waiting = [asyncio.create_task(door.call(f"{n}", Lane.TASK)) for n in range(3)]
    await door.clock.sleep(1)
    waiting[0].cancel()
    waiting[1].cancel()
    await asyncio.gather(*waiting, return_exceptions=True)

    assert door.names("2") == ["2"]
    assert door.gate.budget.in_flight == 0
    assert door.gate.describe()["waiting"] == {"task": 0, "request": 0}


async def test_a_permit_of_a_cancelled_caller_stays_spent() -> None:
    """Cancelled between grant and use: the call counts, and is not taken for one under way."""
    door = Door(Quota(minute=5, request_share=0))
    assert await door.gate.enter(Lane.TASK, 0.0) is None
    door.gate.leave(LimitReading(), limited=True, retry_after_ms=0)
    assert await door.gate.enter(Lane.TASK, 0.0) is None
    waiting = asyncio.create_task(door.gate.enter(Lane.TASK, 60.0))
    await asyncio.sleep(0)
    door.gate.leave(LimitReading(), limited=False, retry_after_ms=None)
    assert door.gate.budget.in_flight == 1

    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)

    assert door.gate.budget.in_flight == 0
    assert door.gate.describe()["spent"]["minute"] == 3


async def test_an_endless_line_is_refused() -> None:
    """Beyond a thousand waiting callers of a lane the next is sent away."""
    door = Door(Quota(second=1, request_share=0))
    line = [asyncio.create_task(door.gate.enter(Lane.TASK, FOREVER_S)) for _ in range(WAITING_MAX + 1)]
    await asyncio.sleep(0)

    refusal = await door.gate.enter(Lane.TASK, FOREVER_S)

    assert refusal is not None
    assert "waiting already" in refusal.reason
    for one in line:
        one.cancel()
    await asyncio.gather(*line, return_exceptions=True)


async def test_a_permit_is_saved_before_it_is_used() -> None:
    """A process that dies right after a grant has spent it: the next one finds it counted."""
    plan = Quota(minute=3, month=1_000, request_share=0)
    door = Door(plan)
    for _ in range(3):
        assert await door.gate.enter(Lane.TASK, 0.0) is None

    reborn = Door(plan, door.saved[-1], door.clock)

    assert await reborn.gate.enter(Lane.TASK, 0.0) is not None
    assert reborn.gate.describe()["spent"] == {"second": 3, "minute": 3, "month": 3, "monthByOthers": 0}
    assert reborn.gate.budget.in_flight == 0


async def test_an_unreadable_state_begins_anew_and_says_so() -> None:
    """Something else under the storage key is an error in the log, not a crash."""
    unreadable: list[Any] = [
        {},
        [],
        "x",
        {"plan": 1},
        {**Door(Quota()).gate.budget.to_json(Moment(0, 0)), "month": 7},
    ]
    for stored in unreadable:
        door = Door(Quota(minute=1), stored)
        assert [line.event for line in door.log.lines] == ["budget.restore_failed"]
        assert await door.gate.enter(Lane.REQUEST, 0.0) is None


async def test_corrections_are_logged_and_saved() -> None:
    """What a header corrected is in the log with the upstream's name, and in the saved state."""
    door = Door(Quota(minute=500))
    assert await door.gate.enter(Lane.TASK, 0.0) is None
    door.gate.leave(
        LimitReading(minute=WindowReading(limit=50, remaining=49)), limited=False, retry_after_ms=None
    )

    assert [(line.event, line.level) for line in door.log.lines] == [("budget.limit_corrected", "WARN")]
    assert door.log.lines[0].fields["upstream"] == "hiro"
    assert door.saved[-1]["limits"]["minute"] == 50
    assert door.gate.describe()["told"]["minuteRemaining"] == 49


async def test_setting_the_wall_clock_does_not_empty_a_window() -> None:
    """An hour forward on the wall clock frees no call of the minute."""
    door = Door(Quota(minute=1, request_share=0))
    assert await door.gate.enter(Lane.TASK, 0.0) is None
    door.clock.jump(3_600_000)

    assert await door.gate.enter(Lane.TASK, 10.0) is not None
