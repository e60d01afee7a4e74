"""The wheel, alone: no dependency, small, and its plugin is found by pytest."""

import zipfile
from pathlib import Path

import pytest

from holdfast_testing.processes import python

HOLDFAST = Path(__file__).parents[1]
BUILD = "import sys; from flit_core.buildapi import build_wheel; print(build_wheel(sys.argv[1]))"
# Only the standard library and the wheel can be imported.
ALONE = [
    "-I",
    "-S",
    "-c",
    "import runpy, sys; sys.path.insert(0, sys.argv[1]); runpy.run_path('main.py', run_name='__main__')",
]
IMPORT_MS_MAX = 80
IMPORTED = """
import time
began_at = time.process_time()
from holdfast import DurableObject, open_objects
print((time.process_time() - began_at) * 1000)
"""
TEST = """
import asyncio
import holdfast

async def test_it(objects):
    await objects.advance(days=365)
    print(holdfast.__file__)

async def test_of_nobody():
    pass
"""

pytestmark = pytest.mark.slow


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """The unpacked wheel."""
    pytest.importorskip("flit_core")
    built = python("-c", BUILD, tmp_path, cwd=HOLDFAST).stdout.strip()
    with zipfile.ZipFile(tmp_path / built) as wheel:
        wheel.extractall(tmp_path / "site")
    assert (tmp_path / built).stat().st_size < 120_000
    return tmp_path / "site"


def test_hello_world_runs_with_nothing_else(site: Path, tmp_path: Path) -> None:
    """The first program of the README, twice: the object remembers."""
    code = (HOLDFAST / "README.md").read_text().split("```python\n")[1].split("```")[0]
    (tmp_path / "main.py").write_text(code)
    runs = [python(*ALONE, site, cwd=tmp_path) for _ in range(2)]

    assert [(run.stdout, run.stderr) for run in runs] == [("2\n", ""), ("4\n", "")]


def test_the_import_is_quick(site: Path, tmp_path: Path) -> None:
    """With asyncio and SQLite, by the clock of the CPU; the best of several, because the machine does other work."""
    (tmp_path / "main.py").write_text(IMPORTED)
    runs = [python(*ALONE, site, cwd=tmp_path) for _ in range(7)]

    assert min(float(run.stdout) for run in runs) <= IMPORT_MS_MAX


def test_pytest_finds_the_plugin(site: Path, tmp_path: Path) -> None:
    """By its entry point; an async test without the fixture is left alone."""
    (tmp_path / "test_it.py").write_text(TEST)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    command = ("-m", "pytest", "-rP", "-p", "no:cacheprovider", "test_it.py")
    run = python(*command, cwd=tmp_path, env={"PYTHONPATH": str(site)})

    assert f"{site}/holdfast/__init__.py" in run.stdout
    assert "1 failed, 1 passed" in run.stdout
    assert "async def functions are not natively supported" in run.stdout
