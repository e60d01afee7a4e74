"""The real service, killed with -9 while it closes, captures and finalizes a round: one result, the right one.

`TOCSIN_KILLS=100` kills as many more at random moments.
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
from support.round_service import ALONE, make_data
from support.round_world import ROUND_ID, RoundWorld


async def everything(data: Path) -> dict[str, list[dict[str, Any]]]:
    async with open_competition(data) as db:
        return await RoundWorld(db).everything()


def status(data: Path) -> str:
    with closing(sqlite3.connect(data / "db.sqlite")) as connection:
        return str(connection.execute("SELECT status FROM competition_rounds").fetchone()[0])


def killed(data: Path, moment: str, number: int) -> str:
    """Serve until the kill; return the round's status."""
    command = [sys.executable, "-m", "support.serve_until_killed", moment, str(number)]
    path = os.pathsep.join(filter(None, (str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH"))))
    service = ServiceProcess(data, command=command, **ALONE, PYTHONPATH=path)
    code, _, error = service.end()
    assert code == -signal.SIGKILL, error
    return status(data)


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
