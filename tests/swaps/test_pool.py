"""The pool of units: what comes out of it, what stops it, and how many units are under way."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable

import pytest

from holdfast.errors import StoreUnavailable
from holdfast.testing.virtual_time import START_MS, VirtualClock
from holdfast_testing.captured_log import CapturedLog
from tocsin.errors import RunStopped
from tocsin.scheduler.task import ContextBindings, TaskContext
from tocsin.swaps.pool import IN_FLIGHT_MAX, UnitPool, UnitResult, _groups
from tocsin.swaps.store import Candidate
from tocsin.upstream.answer import Limited, Malformed, NoAnswer, Unauthorised, Unavailable
from tocsin.upstream.limiter import task_session


def pool_with_log(stop_reason: Callable[[], str | None] = lambda: None) -> tuple[UnitPool, CapturedLog]:
    log = CapturedLog()
    bindings = ContextBindings(VirtualClock())
    return UnitPool(TaskContext(bindings, task_session(log), slice_ms=600_000, stop_reason=stop_reason)), log


async def results_of(
    pool: UnitPool, units: Iterable[int], work: Callable[[int], Awaitable[int]]
) -> list[UnitResult[int, int]]:
    results: list[UnitResult[int, int]] = []

    async def ended(result: UnitResult[int, int]) -> None:
        results.append(result)

    await pool.run(units, work, ended)
    return results


async def squared(unit: int) -> int:
    await asyncio.sleep(unit % 3)
    return unit * unit


async def test_all_units_are_done_and_their_results_come_out() -> None:
    """Each once, with what its work returned; without units there is nothing."""
    pool, log = pool_with_log()

    results = await results_of(pool, range(20), squared)
    nothing = await results_of(pool, [], squared)

    assert sorted(results, key=lambda result: result.unit) == [
        UnitResult(unit, "done", unit * unit) for unit in range(20)
    ]
    assert nothing == []
    assert (pool.stop, pool.threw, log.lines) == (None, 0, [])


async def test_a_result_comes_out_as_soon_as_its_unit_has_ended() -> None:
    """Fast units do not wait for slow ones."""
    pool, _ = pool_with_log()

    async def work(unit: int) -> int:
        await asyncio.sleep(unit)
        return unit

    results = await results_of(pool, [5, 1, 3], work)

    assert [result.unit for result in results] == [1, 3, 5]


async def test_a_failing_unit_harms_itself_alone() -> None:
    """Our own error and a malformed answer make it broken, no answer leaves it unanswered; the others are done."""
    errors: dict[int, Exception] = {
        3: ZeroDivisionError("ours"),
        5: NoAnswer(Malformed("not as agreed")),
        7: NoAnswer(Unavailable("no answer in time")),
    }
    pool, log = pool_with_log()

    async def work(unit: int) -> int:
        if unit in errors:
            raise errors[unit]
        return await squared(unit)

    results = await results_of(pool, range(20), work)

    failed = {result.unit: result.end for result in results if result.end != "done"}
    assert failed == {3: "broken", 5: "broken", 7: "unanswered"}
    assert len(results) == 20
    assert (pool.stop, pool.threw) == (None, 1)
    assert log.named("sweep.unit_failed") == [{"unit": "3", "reason": "ZeroDivisionError('ours')"}]
    assert [(line["unit"], line["reason"]) for line in log.named("sweep.unit_unanswered")] == [
        ("5", "not as agreed"),
        ("7", "no answer in time"),
    ]


async def test_a_limited_answer_stops_the_pool() -> None:
    """Units under way end, the rest never start; the latest time to try again counts."""
    pool, log = pool_with_log()
    begun: list[int] = []

    async def work(unit: int) -> int:
        begun.append(unit)
        await asyncio.sleep(2 if unit in {1, 4} else 1)
        if unit in {0, 4}:
            raise NoAnswer(Limited(START_MS + 1_000 * (unit + 1), "too many calls"))
        return unit

    results = await results_of(pool, range(20), work)
    later = await results_of(pool, range(20), work)

    assert begun == list(range(IN_FLIGHT_MAX))
    assert {result.unit: result.end for result in results} == {
        0: "unanswered",
        1: "done",
        2: "done",
        3: "done",
        4: "unanswered",
        5: "done",
    }
    assert later == []
    assert pool.stop == Limited(START_MS + 5_000, "too many calls")
    assert log.lines == []


async def test_a_refused_key_stops_the_pool_with_its_error() -> None:
    """Every other unit would meet it too."""
    pool, _ = pool_with_log()

    async def work(_unit: int) -> int:
        raise NoAnswer(Unauthorised("the key was refused"))

    results = await results_of(pool, range(20), work)

    assert 0 < len(results) <= IN_FLIGHT_MAX
    assert pool.stop == Unauthorised("the key was refused")


@pytest.mark.parametrize(
    "error",
    [RunStopped("the slice is nearly over", outcome="partial"), StoreUnavailable("the disk is full")],
    ids=lambda error: type(error).__name__,
)
async def test_what_ends_the_run_is_raised_after_the_units_under_way(error: Exception) -> None:
    """Their results come out first, and no further unit begins."""
    pool, log = pool_with_log()
    begun: list[int] = []
    results: dict[int, int | None] = {}

    async def work(unit: int) -> int:
        begun.append(unit)
        await asyncio.sleep(unit + 1)
        if unit == 0:
            raise error
        return unit

    async def ended(result: UnitResult[int, int]) -> None:
        results[result.unit] = result.value

    with pytest.raises(type(error)) as raised:
        await pool.run(range(20), work, ended)

    assert raised.value is error
    assert begun == list(range(IN_FLIGHT_MAX))
    assert results == {unit: unit for unit in range(1, IN_FLIGHT_MAX)}
    assert (pool.threw, log.lines) == (0, [])


async def test_a_pause_is_noticed_before_the_next_unit() -> None:
    """The checkpoint between two units stops the run; the units under way are done."""
    paused: list[str] = []
    pool, _ = pool_with_log(lambda: paused[0] if paused else None)
    begun: list[int] = []

    async def work(unit: int) -> int:
        begun.append(unit)
        await asyncio.sleep(1)
        paused[:] = ["the scheduler is paused"]
        return unit

    with pytest.raises(RunStopped, match="the scheduler is paused") as stopped:
        await results_of(pool, range(20), work)

    assert stopped.value.outcome == "stopped"
    assert begun == list(range(IN_FLIGHT_MAX))


async def test_at_most_six_units_are_in_flight() -> None:
    """And six are, as long as there are as many."""
    pool, _ = pool_with_log()
    under_way = 0
    peaks: list[int] = []

    async def work(unit: int) -> int:
        nonlocal under_way
        under_way += 1
        peaks.append(under_way)
        await asyncio.sleep(1 + unit % 4)
        under_way -= 1
        return unit

    results = await results_of(pool, range(50), work)

    assert len(results) == 50
    assert max(peaks) == IN_FLIGHT_MAX == 6


async def test_a_cancelled_pool_leaves_nothing_running() -> None:
    """Units under way are cancelled, and none begins afterwards."""
    pool, _ = pool_with_log()
    begun: list[int] = []
    cancelled: list[int] = []

    async def work(unit: int) -> int:
        begun.append(unit)
        try:
            await asyncio.sleep(unit)
        except asyncio.CancelledError:
            cancelled.append(unit)
            raise
        return unit

    run = asyncio.create_task(pool.run(range(1, 21), work))
    await asyncio.sleep(1.5)
    run.cancel()
    await asyncio.sleep(60)

    assert run.cancelled()
    assert begun == [1, 2, 3, 4, 5, 6, 7]
    assert sorted(cancelled) == [2, 3, 4, 5, 6, 7]


async def test_calls_that_both_refuse_are_refused_by_the_upstream() -> None:
    """Our own budget is named only if nothing else refused; the later end counts, whatever comes first."""
    for order in ([True, False], [False, True], [True, True]):
        pool, _ = pool_with_log()

        async def work(unit: int, order: list[bool] = order) -> int:
            await asyncio.sleep(unit)
            raise NoAnswer(Limited(START_MS + 5_000 - unit, f"no {unit}", by_budget=order[unit]))

        await results_of(pool, [0, 1], work)
        assert pool.stop == Limited(START_MS + 5_000, "no 1", by_budget=all(order))


async def test_the_first_failure_is_kept_up_to_two_hundred_characters() -> None:
    """With its unit; the log has the others."""
    pool, log = pool_with_log()

    async def work(unit: int) -> int:
        await asyncio.sleep(unit)
        raise ValueError("x" * 400)

    await results_of(pool, [0, 1], work)

    assert pool.first_failure == ("0: ValueError('" + "x" * 400)[:200]
    assert pool.threw == 2
    assert [len(line.fields["reason"]) for line in log.of("sweep.unit_failed")] == [300, 300]


def test_twenty_are_verified_together_and_those_that_keep_failing_alone() -> None:
    """After four attempts; none is left out, and none appears twice."""
    candidates = [Candidate(str(n), "cron", attempts=n % 6) for n in range(60)]
    groups = _groups(candidates)

    assert [len(group) for group in groups] == [20, 20, *[1] * 20]
    assert {each.attempts for group in groups[2:] for each in group} == {4, 5}
    assert sorted(int(each.txid) for group in groups for each in group) == list(range(60))
