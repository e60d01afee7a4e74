"""What a task may be, and what its context gives it."""

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import BindingMissing, ObjectReset, UsageError
from holdfast.testing.virtual_time import VirtualClock
from holdfast_testing.captured_log import CapturedLog
from support.scheduler import MINUTE, Job, scheduler
from support.scripted_fetch import always, response
from support.upstreams import wired_hiro
from tocsin.errors import RunStopped
from tocsin.scheduler.task import ContextBindings, Task, TaskContext, TaskResult
from tocsin.upstream.hiro import HiroClient
from tocsin.upstream.limiter import task_session
from tocsin.upstream.tenero import TeneroClient


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


# Steps that are not repeated


async def test_a_step_is_done_once_in_the_attempts_of_a_slot(tmp_path: Path) -> None:
    """After a crash its stored result is returned; in the next slot it is done again."""
    done: list[str] = []

    async def work(context: TaskContext) -> TaskResult:
        async def charge() -> int:
            done.append(f"charge {context.attempt.number}")
            return 7

        paid = await context.once("charge", charge)
        await asyncio.sleep(30 if len(done) == 1 and context.attempt.number == 1 else 0)
        return TaskResult({"paid": paid})

    task = Job("payouts", 15 * MINUTE, run=work, upstream=None, calls_per_run=0)
    async with scheduler(tmp_path, task, clock=VirtualClock()) as made:
        await asyncio.sleep(5)
        made.reset()
        await made.client().status()
        await asyncio.sleep(10)
        first = (await made.status()).last_result["payouts"]
        again = list(done)
        await asyncio.sleep(15 * 60)

    assert first is not None
    assert (first["paid"], again) == (7, ["charge 1"])
    assert done == ["charge 1", "charge 1"]


async def test_steps_are_bounded(tmp_path: Path) -> None:
    async def long(context: TaskContext) -> TaskResult:
        async def text() -> str:
            return "x" * 4_096

        await context.once("long", text)
        return TaskResult({})

    async def many(context: TaskContext) -> TaskResult:
        async def nothing() -> None:
            return None

        for number in range(21):
            await context.once(f"step {number}", nothing)
        return TaskResult({})

    tasks = [
        Job(name, 15 * MINUTE, run=run, upstream=None, calls_per_run=0)
        for name, run in (("long", long), ("many", many))
    ]
    async with scheduler(tmp_path, *tasks, clock=VirtualClock()) as made:
        await asyncio.sleep(5)
        errors = {
            name: task.last_error and task.last_error.message for name, task in (await made.status()).tasks.items()
        }

    assert errors == {
        "long": "the result of the step 'long' is longer than 4,096 characters",
        "many": "a run can have 20 steps: 'step 20' is one too many",
    }


def two_steps(done: list[str]) -> Job:
    """A task whose runs charge and then mail; `done` has what was done."""

    async def charge() -> str:
        done.append("charge")
        return "charged"

    async def mail() -> str:
        done.append("mail")
        return "mailed"

    async def work(context: TaskContext) -> TaskResult:
        return TaskResult({"steps": [await context.once("charge", charge), await context.once("mail", mail)]})

    return Job("payouts", 15 * MINUTE, run=work, upstream=None, calls_per_run=0)


async def done_with_a_crash(directory: Path, moment: str, number: int) -> list[str]:
    """Run two steps, with a crash at one commit of the object. Return what was done, repeated or not."""
    done: list[str] = []
    left = [number]

    def crash(step: str, _db: Any) -> None:
        left[0] -= step == moment
        if step == moment and left[0] == 0:
            raise OSError(5, "the process is gone")

    async with scheduler(directory, two_steps(done), clock=VirtualClock(), arm=False) as made:
        made.runtime.store.crash_point = crash
        for _ in range(3):  # a supervisor starts it again
            with suppress(ObjectReset):
                await made.stub().arm()
            await asyncio.sleep(10)
        result = (await made.status()).last_result["payouts"]
    assert result is not None
    assert result["steps"] == ["charged", "mailed"]
    return done


@pytest.mark.slow
@pytest.mark.parametrize(("moment", "repeated"), [("before commit", ["charge", "mail"]), ("after commit", [])])
async def test_a_step_is_repeated_only_if_its_result_was_not_stored(
    tmp_path: Path, moment: str, repeated: list[str]
) -> None:
    """At each commit of a run: the one that stores a step's result repeats that step, and no other does."""
    found: list[str] = []
    for number in range(1, 10):
        directory = tmp_path / f"{number}"
        directory.mkdir()
        done = await done_with_a_crash(directory, moment, number)
        found += [name for name in ("charge", "mail") if done.count(name) > 1]

    assert found == repeated
