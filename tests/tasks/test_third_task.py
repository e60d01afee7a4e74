"""The recipe of docs/tasks.md, followed to the letter: a third job is a file and a line."""

import asyncio
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from support.local_store import open_competition, open_kv
from support.scheduler import Job, scheduler
from support.virtual_time import VirtualClock
from tocsin.health import reasons
from tocsin.scheduler.task import Task

RECIPE = Path(__file__).parents[2] / "docs" / "tasks.md"


def code_of_the_recipe() -> str:
    """What a reader would have in `tasks/count_agents.py`."""
    (code,) = re.findall(r"```python\n# tasks/count_agents.py\n(.*?)```", RECIPE.read_text(), re.DOTALL)
    assert isinstance(code, str)
    return code


def job_of_the_recipe() -> Task:
    names: dict[str, Any] = {}
    exec(code_of_the_recipe(), names)
    task: Task = names["COUNT_AGENTS"]
    return task


class Written(Job):
    """A task that is already one."""

    def task(self) -> Task:
        return job_of_the_recipe()


def test_the_recipe_passes_the_checks(tmp_path: Path) -> None:
    """Who follows it to the letter is not told by `make check` that its types are wrong."""
    file = tmp_path / "count_agents.py"
    file.write_text(code_of_the_recipe())
    arguments = ["--strict", "--cache-dir", str(tmp_path / "cache"), "--follow-imports", "silent", str(file)]
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", *arguments], capture_output=True, text=True, check=False
    )

    assert checked.returncode == 0, checked.stdout


async def test_a_third_job_is_a_file_and_a_line(tmp_path: Path) -> None:
    """It runs on its own cadence beside the others; status, refresh, readiness and runs know it."""
    clock = VirtualClock()
    first, third = Job("tenero", 300_000), Written("agents", 3_600_000)
    async with (
        open_competition(tmp_path) as db,
        open_kv(tmp_path, clock) as kv,
        scheduler(tmp_path, first, third, clock=clock, arm=False) as made,
    ):
        made.env.DB, made.env.KV = db, kv
        await made.stub().arm()
        await db.prepare("INSERT INTO agents (btc_address, stx_address) VALUES ('bc1', 'SP1')").run()
        await asyncio.sleep(2 * 3600)
        status = await made.stub().status()
        answer = await made.stub().refresh_now("agents")

        assert await kv.get("agents:count") == "1"
        assert status["lastAgentsResult"]["agents"] == 1
        assert status["tasks"]["agents"]["cadenceMs"] == 3_600_000
        assert answer["agents"] == 1
        assert len((await made.stub().runs("agents"))["runs"]) == 4
        assert reasons(status) == []
