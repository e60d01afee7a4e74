"""The tasks: why they have their cadence, and the recipe of docs/tasks.md, followed to the letter."""

import asyncio
import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast.testing.virtual_time import VirtualClock
from holdfast_testing.stores import open_kv
from support.local_store import open_competition
from support.scheduler import Job, scheduler
from tocsin.app import tasks
from tocsin.scheduler.task import Task
from tocsin.scheduler.types import RunFilter
from tocsin.settings import Settings

RECIPE = Path(__file__).parents[1] / "docs" / "tasks.md"


def why(settings: Settings) -> dict[str, str]:
    return {task.name: task.why for task in tasks(settings)}


def test_the_defaults_are_explained() -> None:
    """Prices every 5 minutes are 8,928 calls in a month of 31 days."""
    sentences = why(Settings())

    assert "5 minutes old" in sentences["tenero"]
    assert "8,928 calls in a month of 31 days" in sentences["tenero"]
    assert "within 1 minute of its block" in sentences["feed"]
    assert "43,200 calls in 30 days" in sentences["feed"]
    assert "2,880 calls in 30 days" in sentences["sweep"]


def test_without_the_feed_the_sweep_finds_the_swaps() -> None:
    """Forty lists every 15 minutes are 115,200 calls in 30 days."""
    sentences = why(Settings(feed_enabled=False))

    assert "feed" not in sentences
    assert "within 15 minutes of its block" in sentences["sweep"]
    assert "115,200 calls in 30 days" in sentences["sweep"]


def test_another_cadence_has_its_own_sentence() -> None:
    """Nothing of the default is left in it."""
    sentences = why(Settings(tenero_cadence=10_000, tenero_slice=9_000, sweep_cadence=90_000, feed_enabled=False))

    assert "10 seconds old" in sentences["tenero"]
    assert "267,840 calls" in sentences["tenero"]
    assert "within 90 seconds of its block" in sentences["sweep"]
    for default in ("5 minutes", "8,928", "15 minutes"):
        assert default not in sentences["tenero"] + sentences["sweep"]


# A third job is a file and a line


def code_of_the_recipe() -> str:
    """What a reader would have in `board/count_agents.py`."""
    (code,) = re.findall(r"```python\n# board/count_agents.py\n(.*?)```", RECIPE.read_text(), re.DOTALL)
    assert isinstance(code, str)
    return code


def task_of_the_recipe() -> Task:
    names: dict[str, Any] = {}
    exec(code_of_the_recipe(), names)
    task: Task = names["COUNT_AGENTS"]
    return task


@pytest.mark.slow
def test_the_recipe_passes_the_checks(tmp_path: Path) -> None:
    """Code that follows it to the letter has the right types for `make check`."""
    file = tmp_path / "count_agents.py"
    file.write_text(code_of_the_recipe())
    arguments = ["--strict", "--cache-dir", str(tmp_path / "cache"), "--follow-imports", "silent", str(file)]
    checked = subprocess.run([sys.executable, "-m", "mypy", *arguments], capture_output=True, text=True, check=False)

    assert checked.returncode == 0, checked.stdout


def test_the_line_of_the_recipe_fits_the_list_that_there_is() -> None:
    """`tasks()` returns one tuple with a line for each task, to which the recipe adds one."""
    assert "    return (\n        ...\n        COUNT_AGENTS,\n    )\n" in RECIPE.read_text()
    assert re.search(r"\n    return \(\n(        [^\n]+,\n)+    \)\n$", inspect.getsource(tasks))


async def test_a_third_job_is_a_file_and_a_line(tmp_path: Path) -> None:
    """It runs on its own cadence next to the others; it is in status, refresh, readiness and runs."""
    clock = VirtualClock()
    first, third = Job("tenero", 300_000), task_of_the_recipe()
    async with (
        open_competition(tmp_path) as db,
        open_kv(tmp_path, clock) as kv,
        scheduler(tmp_path, first, third, clock=clock, db=db, kv=kv) as made,
    ):
        await db.prepare("INSERT INTO agents (btc_address, stx_address) VALUES ('bc1', 'SP1')").run()
        await asyncio.sleep(2 * 3600)
        status = await made.client().status()
        refreshed = await made.client().refresh("agents")

        assert await kv.get("agents:count") == "1"
        assert (status.last_result["agents"] or {})["agents"] == 1
        assert status.tasks["agents"].cadence_ms == 3_600_000
        assert status.tasks["agents"].upstream is None
        assert status.tasks["agents"].title == "Number of agents"
        assert refreshed.summary["agents"] == 1
        assert len((await made.client().runs(RunFilter("agents", 50))).runs) == 4
        assert {task.problem for task in status.tasks.values()} == {None}
