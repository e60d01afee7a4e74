"""A run or a service that is killed at any moment continues later: exactly one result, the right one.

`TOCSIN_KILLS=100` kills the real service as many more times at random moments.
"""

import asyncio
import os
import shutil
import signal
import sqlite3
import sys
import time
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pytest

from support.local_store import open_competition
from support.processes import ServiceProcess, ask, running, until
from support.round_world import ALONE, GRACE_S, PREPARE_S, ROUND_ID, STSTX, RoundWorld, make_data, round_world
from support.watched_database import Killed, Moment, counting, killed_at
from tocsin.rounds.capture import capture
from tocsin.rounds.finalize import finalize
from tocsin.rounds.store import the_round

MOMENTS: tuple[Moment, ...] = ("before", "after")


async def ended(world: RoundWorld, *, prepared: bool = False) -> None:
    await world.swept(GRACE_S)
    if prepared:
        await world.run(PREPARE_S)
    await world.run(GRACE_S)


@pytest.mark.slow
@pytest.mark.parametrize("prepared", [False, True])
async def test_a_kill_at_every_call_leaves_one_result(tmp_path: Path, prepared: bool) -> None:
    """Before and after every call of preparing, closing, capturing and finalizing; all end with the same bytes."""
    async with round_world(tmp_path / "whole") as world:
        watched = world.wrapped = counting(world.db)
        await ended(world, prepared=prepared)
        expected, calls = await world.everything(), watched.calls
    assert expected["competition_rounds"][0]["status"] == "finalized"
    assert len(expected["competition_round_results"]) == 3
    assert calls > (40 if prepared else 10)

    for moment in MOMENTS:
        for number in range(1, calls + 1):
            async with round_world(tmp_path / f"{number}-{moment}") as world:
                world.wrapped = killed_at(world.db, number, moment)
                with pytest.raises(Killed):
                    await ended(world, prepared=prepared)
                world.wrapped = None
                if await world.status() == "open" and prepared:
                    await world.run(PREPARE_S + 300)
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
                assert await finalize(world.db, before, 1) is None
            everything = await world.everything()

        assert everything["competition_rounds"][0]["status"] == "void"
        assert (before.status, everything["competition_round_results"]) == (status, [])


# The real service, killed with -9


async def everything(data: Path) -> dict[str, list[dict[str, Any]]]:
    async with open_competition(data) as db:
        return await RoundWorld(db).everything()


def killed(data: Path, moment: str, number: int) -> str:
    """Serve until the kill; return the round's status."""
    command = [sys.executable, "-m", "support.serve_until_killed", moment, str(number)]
    path = os.pathsep.join(filter(None, (str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH"))))
    service = ServiceProcess(data, command=command, **ALONE, PYTHONPATH=path)
    code, _, error = service.end()
    assert code == -signal.SIGKILL, error
    with closing(sqlite3.connect(data / "db.sqlite")) as connection:
        return str(connection.execute("SELECT status FROM competition_rounds").fetchone()[0])


def finished(data: Path) -> dict[str, list[dict[str, Any]]]:
    """Serve until the round has its result; return everything that was written."""
    with running(ServiceProcess(data, **ALONE)) as service:
        url = f"{service.url}/api/competition/rounds/{ROUND_ID}"
        until(lambda: ask(url)[0] == 200)
        digest = ask(url)[1]["round"]["digest"]
        until(lambda: [run for run in service.runs("rounds") if run["outcome"] == "ok"])
    found = asyncio.run(everything(data))
    assert [row["digest"] for row in found["competition_rounds"]] == [digest]
    return found


@pytest.mark.slow
def test_killed_at_the_commits_of_a_closing(tmp_path: Path) -> None:
    """Each start is killed one commit later; the last one writes the result of an undisturbed service."""
    data, undisturbed, fresh = (tmp_path / name for name in ("data", "undisturbed", "fresh"))
    make_data(data, [int(time.time()) + 3])  # another process: its time is real
    shutil.copytree(data, undisturbed)
    shutil.copytree(data, fresh)

    assert killed(data, "after", 1) == "closed"
    assert killed(data, "after", 1) == "finalizing"
    assert killed(data, "before", 2) == "finalizing"  # the parts of the file are there, the result is not

    result, expected = finished(data), finished(undisturbed)
    assert result == expected
    assert len(result["competition_round_results"]) == 3
    chance = Random(7)
    for number in range(int(os.environ.get("TOCSIN_KILLS", "0"))):
        copy = tmp_path / f"killed-{number}"
        shutil.copytree(fresh, copy)
        kill_once(copy, chance)
        assert finished(copy) == expected


def kill_once(data: Path, chance: Random) -> None:
    """At one of the four commits of a closing, or at any moment of its first half second."""
    number = chance.randrange(5)
    if number:
        killed(data, chance.choice(("before", "after")), number)
        return
    with running(ServiceProcess(data, **ALONE)) as service:
        time.sleep(chance.uniform(0, 0.5))
        service.kill()
