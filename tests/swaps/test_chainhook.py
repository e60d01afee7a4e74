"""Pushes, and the task that watches our hook at Hiro: what it finds, what it does, what it costs."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast.testing.virtual_time import VirtualClock
from holdfast.types import JSON
from stacks_simulator.faults import SimulatedFault
from stacks_simulator.hiro_hooks import HOOK_UUID
from stacks_simulator.simulator import Simulator
from support.competition import open_world
from support.scheduler import ROOMY, Scheduler, scheduler
from support.simulated import quiet_simulator
from support.simulated_fetch import HIRO_URL, SimulatedFetch
from tocsin.app import tasks
from tocsin.scheduler.task import WorkContext
from tocsin.scheduler.types import RunFilter
from tocsin.settings import Settings
from tocsin.stacks import HookStatus
from tocsin.swaps.chainhook import problem_of, receive, watch_chainhook_tasks
from tocsin.upstream.hiro import hiro_upstream

HOUR_S = 3_600
PATH = f"/chainhooks/v1/me/{HOOK_UUID}"


@asynccontextmanager
async def watching(
    directory: Path, *, path: str = PATH, key: str | None = "our-key", **settings: Any
) -> AsyncIterator[tuple[Scheduler, Simulator]]:
    """A scheduler whose only task is the watch."""
    clock = VirtualClock()
    simulator = quiet_simulator(clock)
    watch = watch_chainhook_tasks(Settings(chainhook_id=path, **settings))
    async with scheduler(
        directory,
        *watch,
        clock=clock,
        fetch=SimulatedFetch(simulator),
        upstreams={"hiro": hiro_upstream(HIRO_URL, key, ROOMY)},
    ) as made:
        yield made, simulator


def test_without_a_hook_there_is_nothing_to_watch() -> None:
    """The task exists when the settings name a hook."""
    assert [task.name for task in tasks(Settings())] == ["tenero", "feed", "sweep", "board", "snapshot", "rounds"]
    assert [task.name for task in tasks(Settings(chainhook_id=PATH))] == [
        "tenero",
        "feed",
        "sweep",
        "board",
        "snapshot",
        "chainhook",
        "rounds",
    ]


async def test_a_streaming_hook_costs_one_call_an_hour(tmp_path: Path) -> None:
    """Of Hiro's budget; and the status shows what Hiro said."""
    async with watching(tmp_path) as (made, simulator):
        await asyncio.sleep(5 * HOUR_S - 1)
        status = await made.client().status()

    shown = status.last_result["chainhook"] or {}
    assert (shown["hook"], shown["enabled"], shown["reenabled"]) == ("streaming", True, False)
    assert isinstance(shown["lastBlock"], int)
    assert status.tasks["chainhook"].condition == "ok"
    assert [request.path for request in simulator.requests] == [PATH] * len(simulator.requests)
    assert len(simulator.requests) in {5, 6}
    assert status.budgets["hiro"].spent.month == len(simulator.requests)
    assert made.log.of("chainhook.interrupted") == []


async def test_an_interrupted_hook_is_reported_and_left_alone(tmp_path: Path) -> None:
    """By default: a warning and a run that is not complete; after two hours the service is not ready."""
    async with watching(tmp_path) as (made, simulator):
        await asyncio.sleep(60)
        simulator.hiro.hooks.state = "interrupted"
        await asyncio.sleep(HOUR_S)
        soon = (await made.client().status()).tasks["chainhook"]
        await asyncio.sleep(2 * HOUR_S)
        later = (await made.client().status()).tasks["chainhook"]

    assert (soon.condition, soon.problem) == ("partial", None)
    assert "enable it again, or set TOCSIN_CHAINHOOK_REENABLE=yes; next run " in soon.sentence
    assert later.condition == "overdue"
    assert {line.level for line in made.log.of("chainhook.interrupted")} == {"WARN"}
    assert made.log.of("chainhook.reenabled") == []
    assert simulator.hiro.hooks.state == "interrupted"


async def test_an_interrupted_hook_is_enabled_again_when_that_is_wanted(tmp_path: Path) -> None:
    """One more call; the next look finds it streaming."""
    async with watching(tmp_path, chainhook_reenable=True) as (made, simulator):
        await asyncio.sleep(60)
        simulator.hiro.hooks.state = "interrupted"
        await asyncio.sleep(HOUR_S)
        status = await made.client().status()
        assert (status.last_result["chainhook"] or {})["reenabled"] is True
        assert status.tasks["chainhook"].condition == "ok"
        await asyncio.sleep(HOUR_S)
        later = (await made.client().status()).last_result["chainhook"] or {}

    assert (simulator.hiro.hooks.state, simulator.hiro.hooks.enabled) == ("streaming", True)
    assert (later["hook"], later["reenabled"]) == ("streaming", False)
    assert [request.path for request in simulator.requests].count(f"{PATH}/enabled") == 1
    assert [line.level for line in made.log.of("chainhook.reenabled")] == ["WARN"]
    assert len(made.log.of("chainhook.interrupted")) == 1


@pytest.mark.parametrize(
    ("hook", "expected"),
    [
        (HookStatus("streaming", True, 5, 1), None),
        (HookStatus("new", True, None, 0), None),
        (HookStatus("streaming", False, 5, 1), "the hook is disabled"),
        (HookStatus("expired", False, 5, 1), "the hook has expired"),
        (HookStatus("interrupted", True, 5, 1), "Hiro has interrupted the hook"),
    ],
)
def test_a_hook_that_does_not_push_is_a_problem_with_its_fix(hook: HookStatus, expected: str | None) -> None:
    """Only an interrupted one may be enabled again: somebody disabled the others, or they ended."""
    problem = problem_of(hook)

    assert (problem is None) == (expected is None)
    assert problem is None or problem.startswith(expected or "")


@pytest.mark.parametrize(
    ("path", "key", "kind", "text"),
    [
        (PATH.replace("be4a", "0000"), "our-key", "NotFound", "check TOCSIN_CHAINHOOK_ID"),
        (PATH, None, "Unauthorised", "check HIRO_API_KEY"),
        (f"/hooks/{HOOK_UUID}", "our-key", "BadRequest", "does not know this route"),
    ],
)
async def test_a_watch_that_cannot_work_fails_with_the_fix(
    path: str, key: str | None, kind: str, text: str, tmp_path: Path
) -> None:
    """It was requested, so it must not fail silently."""
    async with watching(tmp_path, path=path, key=key) as (made, _simulator):
        await asyncio.sleep(60)
        error = (await made.client().status()).tasks["chainhook"].last_error

    assert error is not None
    assert error.kind == kind
    assert text in error.message


async def test_a_limited_hiro_holds_the_watch_back(tmp_path: Path) -> None:
    """Nothing is concluded from a 429."""
    async with watching(tmp_path) as (made, simulator):
        simulator.faults.add(SimulatedFault(kind="limited", retry_after=1_800))
        await asyncio.sleep(60)
        runs = (await made.client().runs(RunFilter("chainhook", 1))).runs

    assert runs[0].outcome == "limited"
    assert made.log.of("chainhook.interrupted") == []


async def test_the_status_says_when_the_last_push_came(tmp_path: Path) -> None:
    """Of each request job that succeeded; it is kept over a restart, and a job that failed does not count."""
    clock = VirtualClock()

    async def receive(_context: WorkContext, argument: JSON) -> JSON:
        if argument is None:
            raise ValueError("no push")
        return argument

    async with scheduler(tmp_path, clock=clock, request_jobs={"receive": receive}) as made:
        assert (await made.client().status()).last_job_at == {}
        await asyncio.sleep(100)
        pushed_at = clock.now()
        assert await made.client().run_job("receive", {"a": 1}) == {"a": 1}
        await asyncio.sleep(100)
        with pytest.raises(Exception, match="no push"):
            await made.client().run_job("receive", None)
    async with scheduler(tmp_path, clock=clock) as made:
        assert (await made.client().status()).last_job_at == {"receive": pushed_at}


async def test_a_push_without_usable_ids_is_reported(tmp_path: Path) -> None:
    """Counted as ignored, with a line of the log; one with ids has none."""
    async with open_world(tmp_path) as world:
        odd = await receive(world.request(), world.rules, {"applied": [], "rolledBack": [], "withoutId": 3})
        lines = world.log.of("chainhook.ids_unusable")
        fine = await receive(world.request(), world.rules, {"applied": [], "rolledBack": [], "withoutId": 0})

        assert (odd.ignored, fine.ignored, fine.queued) == (3, 0, 0)
        assert [(line.level, line.fields["count"]) for line in lines] == [("WARN", 3)]
        assert len(world.log.of("chainhook.ids_unusable")) == 1


@pytest.mark.parametrize("served", ["/chainhooks/me/", "/chainhooks/v1/me/"])
async def test_both_paths_are_tried_and_the_one_that_answers_is_remembered(served: str, tmp_path: Path) -> None:
    """Given the UUID only: the documentation and Hiro's own client name different paths."""
    async with watching(tmp_path, path=HOOK_UUID) as (made, simulator):
        simulator.hiro.hooks.served = served
        await asyncio.sleep(3 * HOUR_S)
        status = await made.client().status()
        simulator.hiro.hooks.served = "/chainhooks/me/"
        await asyncio.sleep(3 * HOUR_S)
        later = await made.client().status()

    assert status.tasks["chainhook"].condition == later.tasks["chainhook"].condition == "ok"
    assert (status.last_result["chainhook"] or {})["path"] == f"{served}{HOOK_UUID}"
    assert (later.last_result["chainhook"] or {})["path"] == f"/chainhooks/me/{HOOK_UUID}"
    assert [request.status for request in simulator.requests].count(404) == 1
