"""`open_objects` as a reader of the README uses it, in real processes: killed, stopped and resumed, started twice."""

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
from holdfast import open_objects
from holdfast.local.open_objects import StandardLogger

HOLDFAST = Path(__file__).parents[1]
HEARTBEAT = [sys.executable, str(HOLDFAST / "examples" / "heartbeat.py")]


def python_blocks(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


def test_the_example_of_the_readme_runs_and_remembers(tmp_path: Path) -> None:
    """As it is printed, twice in the same directory; at most 20 lines."""
    [example] = python_blocks(HOLDFAST / "README.md")
    runs = [
        subprocess.run([sys.executable, "-c", example], cwd=tmp_path, capture_output=True, text=True, check=True)
        for _ in range(2)
    ]

    assert [(run.stdout, run.stderr) for run in runs] == [("2\n", ""), ("4\n", "")]
    assert example.count("\n") <= 20


def test_the_package_imports_neither_asyncio_nor_sqlite() -> None:
    """A class can be imported where there is no SQLite, such as on Pyodide."""
    code = "import holdfast, sys; print(holdfast.DurableObject.__name__, {'asyncio', 'sqlite3'} & {*sys.modules})"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert shown == "DurableObject set()\n"
    assert not hasattr(holdfast, "close_objects")
    assert holdfast.open_objects is open_objects


def test_without_a_logger_lines_go_to_the_standard_library(caplog: pytest.LogCaptureFixture) -> None:
    """To the logger "holdfast": the event, then all fields as JSON."""
    logger = StandardLogger(namespace="HEART").bind(name="v1")
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
            [*HEARTBEAT, str(directory)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
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
        second = subprocess.run([*HEARTBEAT, str(tmp_path)], capture_output=True, text=True, check=False)

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
