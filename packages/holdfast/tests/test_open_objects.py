"""`open_objects` as a reader of the README uses it, in real processes: killed, stopped and resumed, started twice."""

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast import DurableObject, open_objects
from holdfast.errors import UsageError
from holdfast.local.open_objects import StandardLogger
from holdfast.testing.virtual_time import VirtualClock
from holdfast_testing.processes import python

HOLDFAST = Path(__file__).parents[1]
HEARTBEAT = HOLDFAST / "examples" / "heartbeat.py"


def python_blocks(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


def test_the_example_of_the_readme_runs_and_remembers(tmp_path: Path) -> None:
    """As it is printed, twice in the same directory; at most 11 lines with code, two of them imports."""
    example = python_blocks(HOLDFAST / "README.md")[0]
    runs = [python("-c", example, cwd=tmp_path) for _ in range(2)]

    assert [(run.stdout, run.stderr) for run in runs] == [("2\n", ""), ("4\n", "")]
    code = list(filter(None, example.splitlines()))
    assert len(code) <= 11
    assert sum("import" in line for line in code) == 2


@pytest.mark.slow
def test_a_type_checker_knows_the_methods_of_a_stub(tmp_path: Path) -> None:
    """The example passes mypy --strict; a wrong argument and a wrong result do not."""
    example = python_blocks(HOLDFAST / "README.md")[0]
    (tmp_path / "right.py").write_text(example)
    (tmp_path / "wrong.py").write_text(example.replace("add(n=2)", 'add("x").upper()'))
    command = ("-m", "mypy", "--strict", f"--cache-dir={tmp_path}", "right.py", "wrong.py")
    run = python(*command, cwd=tmp_path, env={"MYPYPATH": str(HOLDFAST / "src")})

    assert "right.py" not in run.stdout
    assert 'Argument 1 to "add" of "Counter" has incompatible type "str"; expected "int"' in run.stdout
    assert 'has no attribute "upper"' in run.stdout
    assert run.stdout.endswith("Found 2 errors in 1 file (checked 2 source files)\n")


class Greeter(DurableObject):
    """Calls another class through its environment."""

    async def greet(self, name: str, *, loud: bool = False) -> str:
        text: str = await self.env.get(Names, name).title()
        return f"{self.env.greeting}, {text.upper() if loud else text}"


class Names(DurableObject):
    """Knows its own name."""

    async def title(self) -> str:
        return f"Dr. {self.ctx.id.name}"


async def test_objects_reach_each_other_and_take_keywords(tmp_path: Path) -> None:
    """The environment has what was passed to it, a binding for each class, and `get`."""
    async with open_objects(tmp_path, Names, env={"greeting": "Hello"}, GREETER=Greeter) as objects:
        assert await objects.get(Greeter, "g").greet("Ada") == "Hello, Dr. Ada"
        assert await objects.GREETER.get_by_name("g").greet("Ada", loud=True) == "Hello, DR. ADA"
        with pytest.raises(TypeError, match="unexpected keyword argument 'soft'"):
            await objects.GREETER.get_by_name("g").greet("Ada", soft=True)
        with pytest.raises(UsageError, match="Heart is not one of the classes"):
            objects.get(type("Heart", (DurableObject,), {}), "h")
        with pytest.raises(AttributeError, match="no class is bound as HEART"):
            _ = objects.HEART


async def test_a_class_or_a_name_is_bound_once(tmp_path: Path) -> None:
    """A second binding with one name would hide the first."""
    with pytest.raises(UsageError, match="Names cannot be bound as Other"):
        async with open_objects(tmp_path, Names, Other=Names):
            pass
    with pytest.raises(UsageError, match="Names cannot be bound as get"):
        async with open_objects(tmp_path, get=Names):
            pass


class Memory(DurableObject):
    """Counts the calls since its construction."""

    calls = 0

    async def count(self) -> int:
        self.calls += 1
        return self.calls


@pytest.mark.parametrize(("idle_s", "expected"), [(None, 2), (60.0, 2), (5.0, 1)])
async def test_idle_objects_are_dropped_after_the_given_time(
    idle_s: float | None, expected: int, tmp_path: Path
) -> None:
    """Or never, with None."""
    async with open_objects(tmp_path, Memory, clock=VirtualClock(), idle_s=idle_s) as objects:
        await objects.get(Memory, "m").count()
        await asyncio.sleep(30)
        assert await objects.get(Memory, "m").count() == expected


def test_the_package_imports_neither_asyncio_nor_sqlite() -> None:
    """A class can be imported where there is no SQLite, such as on Pyodide."""
    code = "import holdfast, sys; print(holdfast.DurableObject.__name__, {'asyncio', 'sqlite3'} & {*sys.modules})"

    assert python("-c", code).stdout == "DurableObject set()\n"
    assert not hasattr(holdfast, "close_objects")
    assert holdfast.open_objects is open_objects


def test_without_a_logger_lines_go_to_the_standard_library(caplog: pytest.LogCaptureFixture) -> None:
    """To the logger "holdfast": the event, then all fields as JSON."""
    logger = StandardLogger().bind(namespace="HEART").bind(name="v1")
    with caplog.at_level("DEBUG", logger="holdfast"):
        logger.debug("alarm.set")
        logger.info("migration.applied", file="objects.sqlite")
        logger.warning("alarm.failed", retry_at=None)
        logger.error("store.failed", error="no room")

    bound = '{"namespace": "HEART", "name": "v1"'
    assert caplog.record_tuples == [
        ("holdfast", 10, f"alarm.set {bound}}}"),
        ("holdfast", 20, f'migration.applied {bound}, "file": "objects.sqlite"}}'),
        ("holdfast", 30, f'alarm.failed {bound}, "retry_at": null}}'),
        ("holdfast", 40, f'store.failed {bound}, "error": "no room"}}'),
    ]


class Heartbeat:
    """The example, run as a reader would."""

    def __init__(self, directory: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, HEARTBEAT, directory], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def beats(self, count: int) -> list[int]:
        assert self.process.stdout is not None
        return [int(self.process.stdout.readline().split()[1]) for _ in range(count)]

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@contextlib.contextmanager
def heartbeat(directory: Path) -> Iterator[Heartbeat]:
    running = Heartbeat(directory)
    try:
        yield running
    finally:
        running.kill()


@pytest.mark.slow
def test_the_example_survives_kill_9(tmp_path: Path) -> None:
    """It continues counting where it stopped, and rings without a call."""
    with heartbeat(tmp_path) as first:
        assert first.beats(2) == [1, 2]
    with heartbeat(tmp_path) as second:
        third, fourth = second.beats(2)

    assert third >= 3  # the first may have beaten once more before the kill arrived
    assert fourth == third + 1


@pytest.mark.slow
def test_a_second_process_is_refused_with_the_reason(tmp_path: Path) -> None:
    """Two processes on one directory would be two writers. The message contains the id of the first."""
    with heartbeat(tmp_path) as first:
        first.beats(1)
        second = python(HEARTBEAT, tmp_path)

        assert second.returncode == 1
        assert str(first.process.pid) in second.stderr.splitlines()[-1]
        assert str(tmp_path) in second.stderr.splitlines()[-1]


@pytest.mark.slow
def test_a_stopped_process_catches_up_once_per_alarm(tmp_path: Path) -> None:
    """After a SIGSTOP of three seconds each alarm rings once, late, and none is lost or repeated."""
    with heartbeat(tmp_path) as running:
        running.beats(1)
        os.kill(running.process.pid, signal.SIGSTOP)
        time.sleep(3)  # real time: this tests the timer of the kernel
        os.kill(running.process.pid, signal.SIGCONT)
        caught_up = running.beats(5)

    assert caught_up == [2, 3, 4, 5, 6]
