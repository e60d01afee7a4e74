"""A run or a service that is killed at any moment continues later: exactly one result, the right one."""

import asyncio
import shutil
import signal
import sqlite3
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from holdfast.errors import HoldfastError
from holdfast.types import Database
from support.local_store import open_competition
from support.processes import ServiceProcess, ask, running, until
from support.round_world import (
    AGENTS,
    ALONE,
    END_S,
    GRACE_S,
    ROUND_ID,
    START_S,
    STSTX,
    RoundWorld,
    make_data,
    round_world,
)
from support.watched_database import Killed, Moment, WatchedDatabase, counting
from tocsin.rounds.capture import capture
from tocsin.rounds.steps import finalize_round
from tocsin.rounds.store import the_round
from tocsin.scheduler.task import TaskResult

MOMENTS: tuple[Moment, ...] = ("before", "after")


def killed_at(db: Database, dies_at: int, at: Moment) -> WatchedDatabase:
    """Return a database whose process dies at the call with this number."""

    async def die(number: int, moment: Moment) -> None:
        if (number, moment) == (dies_at, at):
            raise Killed

    return WatchedDatabase(db, die)


async def ended(world: RoundWorld) -> None:
    await world.swept(GRACE_S)
    await world.run(GRACE_S)


@pytest.mark.slow
async def test_a_kill_at_every_call_leaves_one_result(tmp_path: Path) -> None:
    """Before and after every call of closing, capturing and finalizing; all end with the same bytes."""
    async with round_world(tmp_path / "whole") as world:
        watched = world.wrapped = counting(world.db)
        await ended(world)
        expected, calls = await world.everything(), watched.calls
    assert expected["competition_rounds"][0]["status"] == "finalized"
    assert len(expected["competition_round_results"]) == 3
    assert calls > 10

    for moment in MOMENTS:
        for number in range(1, calls + 1):
            async with round_world(tmp_path / f"{number}-{moment}") as world:
                world.wrapped = killed_at(world.db, number, moment)
                with pytest.raises(Killed):
                    await ended(world)
                world.wrapped = None
                await world.run(GRACE_S + 300)
                assert await world.everything() == expected, f"killed {moment} call {number}"


async def test_two_runs_at_once_write_one_result(tmp_path: Path) -> None:
    """An operator finalizes while the task does: the second changes nothing."""
    async with round_world(tmp_path) as world:
        await world.swept(GRACE_S)
        await world.closed(captured=True)
        first = await world.act("finalize", roundId=ROUND_ID)
        results = await world.everything()
        second = await world.act("finalize", roundId=ROUND_ID)
        await world.run(GRACE_S + 60)

        assert await world.everything() == results
    assert (first.ok, second.ok, second.http_status, second.code) == (True, False, 409, "wrong_status")


async def test_a_round_that_was_made_void_meanwhile_stays_void(tmp_path: Path) -> None:
    """An operator was faster than the step that a run had begun."""
    for status in ("closed", "finalizing"):
        async with round_world(tmp_path / status) as world:
            await world.swept(GRACE_S)
            await world.closed(captured=status == "finalizing")
            before = await the_round(world.db, ROUND_ID)
            await world.act("void", roundId=ROUND_ID, reason="a test")
            if status == "closed":
                captured = await capture(
                    world.db, before, [], {"stx", STSTX}, allowlist_version="v", complete_until_block=None, now=1
                )
                assert not captured
            else:
                assert await finalize_round(world.work, before) is None
            everything = await world.everything()

        assert everything["competition_rounds"][0]["status"] == "void"
        assert (before.status, everything["competition_round_results"]) == (status, [])


# Changes at every moment

Change: TypeAlias = Callable[[RoundWorld], Awaitable[Any]]


async def moved(world: RoundWorld) -> None:
    await world.unswap(2)
    await world.swap(2, 1, ("stx", 200), (STSTX, 191), at_s=START_S + 61)


async def other_token(world: RoundWorld) -> None:
    """Trade a token that has a price of the end which was not needed before."""
    token = f"{AGENTS[0]}.other::other"
    for at_s in range(END_S - 3_600, END_S + 1, 600):
        await world.price(token, "2", at_s)
    await world.swap(60, 0, ("stx", 3), (token, 4), at_s=START_S + 5)


async def nothing(_world: RoundWorld) -> None:
    """Change nothing."""


CHANGES: dict[str, Change] = {
    "a late swap of another token": other_token,
    "a reorg that moves a swap": moved,
    "a wallet that has become eligible": lambda world: world.claim(3, "verified"),
    "a wallet that is not eligible any more": lambda world: world.claim(2, "failed"),
    "a new refusal": lambda world: world.refuse(110, AGENTS[0]),
}


async def at_every_call(directory: Path, change: Change) -> AsyncIterator[tuple[RoundWorld, TaskResult]]:
    """Yield worlds after the run that ends the round: in each, the change came right before another call."""
    at, calls = 0, 1
    while at < calls:
        at += 1
        async with round_world(directory / f"{at}") as world:
            await world.populate()
            await world.swept(GRACE_S)

            async def hook(number: int, moment: Moment, world: RoundWorld = world, at: int = at) -> None:
                if (number, moment) == (at, "before"):
                    world.wrapped = None  # an operator's action is not a call of the run
                    await change(world)

            watched = world.wrapped = WatchedDatabase(world.db, hook)
            run = await world.run(GRACE_S)
            world.wrapped, calls = None, watched.calls
            yield world, run
    assert calls > 20


async def published(world: RoundWorld) -> dict[str, Any]:
    """Return everything published; a change at the moment of the capture makes it wait for the next run."""
    await world.swept(GRACE_S)
    for _ in range(2):
        await world.run(GRACE_S)
    found = await world.published()
    return {name: rows for name, rows in found.items() if not name.endswith(("_changes", "_discrepancies"))}


async def published_after(directory: Path, change: Change) -> dict[str, Any]:
    async with round_world(directory) as world:
        await world.populate()
        await change(world)
        return await published(world)


@pytest.mark.slow
@pytest.mark.parametrize("name", CHANGES)
async def test_a_change_at_every_moment_of_the_capture(tmp_path: Path, name: str) -> None:
    """The result includes it completely or not at all."""
    change = CHANGES[name]
    possible = [await published_after(tmp_path / "with", change), await published_after(tmp_path / "without", nothing)]
    found = [possible.index(await published(world)) async for world, _ in at_every_call(tmp_path, change)]
    assert found == sorted(found)
    assert set(found) == {0, 1}


@pytest.mark.slow
@pytest.mark.parametrize("action", ["void", "finalize"])
async def test_an_operator_ends_a_round_that_is_finalized(tmp_path: Path, action: str) -> None:
    """Before every call of the run: the run ends well, and the round has one result or none."""
    async for world, run in at_every_call(tmp_path, lambda world: try_to(world, action)):
        results = await world.results("rank")
        assert run.incomplete is None
        assert (await world.status(), len(results)) in {("finalized", 3), ("void", 0), ("void", 3)}


async def try_to(world: RoundWorld, action: str) -> None:
    """The round may not be in a status for it."""
    try:
        await world.act(action, roundId=ROUND_ID, reason="a test")
    except HoldfastError as error:
        assert "409" in repr(error) or "wrong_status" in repr(error)  # noqa: PT017 - any other error is a defect


async def test_a_round_that_is_added_during_a_run_ends_on_time(tmp_path: Path) -> None:
    """The operator's refresh joins the run: that run asks for the alarm at the new round's end."""
    ends_s = GRACE_S + 120
    async with round_world(tmp_path / "world") as world:
        await world.swept(GRACE_S)

        async def hook(number: int, moment: Moment) -> None:
            if (number, moment) == (4, "before"):
                wrapped, world.wrapped = world.wrapped, None
                await world.add_round(roundId="short", startsAt=ends_s - 3_600, endsAt=ends_s, graceS=0)
                world.wrapped = wrapped

        world.wrapped = WatchedDatabase(world.db, hook)
        run = await world.run(GRACE_S)

        assert (await world.status(), run.wake_at) == ("finalized", ends_s * 1000)


# The real service, killed with -9


async def everything(data: Path) -> dict[str, list[dict[str, Any]]]:
    async with open_competition(data) as db:
        return await RoundWorld(db).everything()


def killed(data: Path, moment: str, number: int) -> str:
    """Serve until the kill; return the round's status."""
    command = [sys.executable, str(Path(__file__).with_name("serve_until_killed.py")), moment, str(number)]
    service = ServiceProcess(data, command=command, **ALONE)
    code, _, error = service.end()
    assert code == -signal.SIGKILL, error
    with closing(sqlite3.connect(data / "db.sqlite")) as connection:
        return str(connection.execute("SELECT status FROM competition_rounds").fetchone()[0])


def finished(data: Path) -> dict[str, list[dict[str, Any]]]:
    """Serve until the round has its result; return everything that was written."""
    with running(ServiceProcess(data, **ALONE)) as service:
        url = f"{service.url}/api/competition/rounds/{ROUND_ID}"
        until(lambda: ask(url)[1]["round"]["digest"])
        digest = ask(url)[1]["round"]["digest"]
        until(lambda: [run for run in service.runs("rounds") if run["outcome"] == "ok"])
    found = asyncio.run(everything(data))
    assert [row["digest"] for row in found["competition_rounds"]] == [digest]
    return found


def continued(data: Path, moment: str, number: int) -> tuple[str, dict[str, list[dict[str, Any]]]]:
    """Return the round's status after the kill, and what the next service has written."""
    return killed(data, moment, number), finished(data)


@pytest.mark.slow
def test_killed_at_the_commits_of_a_closing(tmp_path: Path) -> None:
    """At one commit each; the next start writes the result of an undisturbed service."""
    fresh = tmp_path / "fresh"
    make_data(fresh, [int(time.time()) + 3])  # another process: its time is real
    # Before the fourth commit, the parts of the file are there and the result is not.
    kills = {("after", 1): "closed", ("after", 2): "finalizing", ("before", 4): "finalizing"}
    copies = [shutil.copytree(fresh, tmp_path / f"copy-{number}") for number in range(len(kills))]
    with ThreadPoolExecutor() as threads:
        ends = [threads.submit(continued, copy, *kill) for copy, kill in zip(copies, kills, strict=True)]
        expected = finished(shutil.copytree(fresh, tmp_path / "undisturbed"))

    assert [end.result() for end in ends] == [(status, expected) for status in kills.values()]
    assert len(expected["competition_round_results"]) == 3
