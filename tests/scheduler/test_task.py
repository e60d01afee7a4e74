"""What a task may be, and what its context gives it."""

from typing import Any

import pytest

from holdfast.errors import BindingMissing, UsageError
from holdfast.testing.virtual_time import VirtualClock
from holdfast_testing.captured_log import CapturedLog
from support.scripted_fetch import always, response
from support.upstreams import wired_hiro
from tocsin.errors import RunStopped
from tocsin.scheduler.task import ContextBindings, Task, TaskContext, TaskResult
from tocsin.upstream.hiro import HiroClient
from tocsin.upstream.limiter import task_session
from tocsin.upstream.tenero import TeneroClient

MINUTE = 60_000


async def nothing(_context: TaskContext) -> TaskResult:
    return TaskResult({})


def task(**options: Any) -> Task:
    return Task(**{"name": "agents", "cadence_ms": 20 * MINUTE, "slice_ms": MINUTE, "run": nothing, **options})


def context(slice_ms: int = MINUTE, **clients: object) -> TaskContext:
    return TaskContext(ContextBindings(VirtualClock(), clients), task_session(CapturedLog()), slice_ms=slice_ms)


def test_a_slice_is_shorter_than_what_the_platform_allows_an_alarm() -> None:
    """A slice of 16 minutes would never end: after 15 the object is reset. The maximum is 14."""
    with pytest.raises(UsageError) as refused:
        task(slice_ms=16 * MINUTE)

    assert str(refused.value) == (
        "The task agents has a time slice of 16 minutes every 20: a slice may take 14 minutes at most,"
        " because an alarm's handler must end soon after."
    )
    with pytest.raises(UsageError, match="14 minutes at most"):
        task(slice_ms=14 * MINUTE + 1)
    assert task(slice_ms=14 * MINUTE).slice_ms == 840_000


@pytest.mark.parametrize("wrong", [{"slice_ms": 0}, {"cadence_ms": 0}, {"slice_ms": -1}])
def test_a_task_without_time_is_refused(wrong: dict[str, int]) -> None:
    """A slice and a cadence are at least a millisecond."""
    with pytest.raises(UsageError, match="The task agents has a time slice of"):
        task(**wrong)


@pytest.mark.parametrize("name", ["", "all", "Agents", "a-b", "9", "a" * 41])
def test_a_name_is_a_lower_case_word(name: str) -> None:
    """It is a part of keys, settings and commands, where `all` means every task."""
    with pytest.raises(UsageError, match="A task's name is a lower-case word"):
        task(name=name)


def test_calls_belong_to_an_upstream() -> None:
    """Without one there is no budget to pay for them."""
    with pytest.raises(UsageError, match="The task agents makes calls: name the upstream whose budget it"):
        task(calls_per_run=3)
    assert task(calls_per_run=3, upstream="hiro").upstream == "hiro"


async def test_a_context_gives_the_client_of_an_upstream() -> None:
    """By its name and class."""
    hiro = wired_hiro(always(response({}))).hiro

    assert context(hiro=hiro).upstream("hiro", HiroClient) is hiro


async def test_an_unknown_upstream_is_missing_and_the_known_ones_are_named() -> None:
    """A wrong name, a wrong class, and a deployment without any."""
    hiro = wired_hiro(always(response({}))).hiro
    with pytest.raises(BindingMissing) as unknown:
        context(hiro=hiro, other=object()).upstream("nowhere", HiroClient)
    with pytest.raises(BindingMissing, match="no upstream 'hiro' with a TeneroClient; the upstreams are: hiro"):
        context(hiro=hiro).upstream("hiro", TeneroClient)
    with pytest.raises(BindingMissing, match="the upstreams are: none"):
        context().upstream("hiro", HiroClient)

    assert str(unknown.value) == ("There is no upstream 'nowhere' with a HiroClient; the upstreams are: hiro, other.")


@pytest.mark.parametrize(("slice_ms", "stops_after_s"), [(240_000, 225), (60_000, 45), (8_000, 6)])
async def test_a_checkpoint_stops_a_run_before_its_slice_is_over(slice_ms: int, stops_after_s: int) -> None:
    """15 seconds before, or a quarter of a short slice."""
    run = context(slice_ms)
    await run.clock.sleep(stops_after_s - 0.001)
    run.checkpoint()
    assert run.time_left_s() == pytest.approx(0.001)
    await run.clock.sleep(0.001)
    with pytest.raises(RunStopped, match=f"its time slice of {slice_ms // 1000} s is nearly over") as stopped:
        run.checkpoint()

    assert (stopped.value.outcome, run.time_left_s()) == ("partial", 0)
