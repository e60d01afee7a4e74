"""The scheduler by its calls, on both platforms: the same object returns the same."""

from pathlib import Path

import pytest

from cloudflare.platforms import LocalPlatform, Platform, WorkerdPlatform
from contract.suite import World
from holdfast.errors import UsageError
from support.service_states import TASKS

MINUTE_MS = 60_000


@pytest.fixture(params=["local", pytest.param("workerd", marks=pytest.mark.slow)])
def platform(request: pytest.FixtureRequest, tmp_path: Path) -> Platform:
    if request.param == "local":
        return LocalPlatform(tmp_path)
    return WorkerdPlatform(request.getfixturevalue("workerd"), request.node.name)


async def settled(world: World) -> None:
    """Armed, and past the runs that its first ring starts."""
    await world.call("v1", "arm")
    await world.call("v1", "refresh_now", "all")
    await world.call("v1", "refresh_now", "board")  # which the others have woken


@pytest.mark.slow
async def test_arming_sets_the_alarm_and_is_harmless_at_any_time(platform: Platform) -> None:
    """The next ring is within the shortest cadence, however often it is armed."""
    async with platform.scheduler() as world:
        await settled(world)
        before = await world.call("v1", "status")
        at = await world.call("v1", "arm")
        after = await world.call("v1", "status")
    assert (after["name"], after["active"]) == ("v1", True)
    assert before["now"] < at <= after["now"] + 5 * MINUTE_MS
    assert before["nextAlarmAt"] <= at <= after["nextAlarmAt"]


async def test_a_refresh_runs_the_task_and_returns_its_result(platform: Platform) -> None:
    """Prices come from one upstream, lists of transactions from the other, and both runs are on record."""
    async with platform.scheduler() as world:
        await world.call("v1", "arm")
        prices = await world.call("v1", "refresh_now", "tenero")
        sweep = await world.call("v1", "refresh_now", "sweep")
        status = await world.call("v1", "status")
        runs = (await world.call("v1", "runs", {"task": "sweep", "limit": 5}))["runs"]
    assert prices["run"]["outcome"] == "ok", prices
    assert prices["tokensAttempted"] > 0
    assert sweep["contractsScanned"] > 0
    assert sweep["run"]["id"] in [run["id"] for run in runs]  # a second sweep may follow the first by itself
    assert status["lastSweepResult"]["contractsScanned"] == sweep["contractsScanned"]
    assert status["consecutiveFailures"] == dict.fromkeys(TASKS, 0)
    assert status["tasks"]["tenero"]["lastSuccessAt"] >= prices["startedAt"]


@pytest.mark.slow
async def test_a_pause_holds_until_it_is_resumed(platform: Platform) -> None:
    """It is in the status, it does not stop a refresh by hand, and resume ends it."""
    async with platform.scheduler() as world:
        await settled(world)
        until = (await world.call("v1", "status"))["now"] + 60 * MINUTE_MS
        assert await world.call("v1", "pause_until", until) == {"name": "v1", "pausedUntil": until}
        paused = await world.call("v1", "status")
        by_hand = await world.call("v1", "refresh_now", "sweep")
        assert await world.call("v1", "resume") == {"name": "v1", "resumed": True}
        resumed = await world.call("v1", "status")
    assert paused["pausedUntil"] == by_hand["run"]["pausedUntil"] == until
    assert by_hand["run"]["outcome"] == "ok"
    assert resumed["pausedUntil"] is None


async def test_mistakes_get_the_same_sentences(platform: Platform) -> None:
    """An unknown task, a time that is past, a pause that is too long."""
    async with platform.scheduler() as world:
        with pytest.raises(UsageError, match=rf"^there is no task 'x': give one of {', '.join(TASKS)}, all$"):
            await world.call("v1", "refresh_now", "x")
        with pytest.raises(UsageError, match=rf"^there is no task 'all': give one of {', '.join(TASKS)}$"):
            await world.call("v1", "runs", {"task": "all"})
        with pytest.raises(UsageError, match=r"^That time is past: it is \d{4}-\d\d-\d\d \d\d:\d\d UTC now\. Give one"):
            await world.call("v1", "pause_until", 1)
        with pytest.raises(UsageError, match=r"^That is too far ahead for a pause\. Give one at most 7 days ahead"):
            await world.call("v1", "pause_until", 9_000_000_000_000)


@pytest.mark.slow
async def test_an_instance_that_is_not_the_active_one_drains(platform: Platform) -> None:
    """It sets no alarm and runs nothing; the active one does."""
    async with platform.scheduler() as world:
        assert await world.call("v0", "arm") is None
        with pytest.raises(UsageError, match=r"not the active one: 'v1' is"):
            await world.call("v0", "refresh_now", "sweep")
        other = await world.call("v0", "status")
        runs = await world.call("v0", "runs")
        await settled(world)
    assert (other["active"], other["nextAlarmAt"]) == (False, None)
    assert runs == {"name": "v0", "runs": [], "next": None}


@pytest.mark.slow
async def test_events_show_what_happened_since(platform: Platform) -> None:
    """A run's start, progress and end are there, in order, under numbers to continue from."""
    async with platform.scheduler() as world:
        await settled(world)
        last = (await world.call("v1", "events", 0))["next"]
        run = (await world.call("v1", "refresh_now", "sweep"))["run"]["id"]
        found = (await world.call("v1", "events", last))["events"]
    of_run = [event["event"] for event in found if event.get("run") == run]
    assert (of_run[0], of_run[-1]) == ("run.started", "run.ended")
    assert set(of_run[1:-1]) == {"run.progressed"}
    assert [event["seq"] for event in found] == sorted(event["seq"] for event in found)
