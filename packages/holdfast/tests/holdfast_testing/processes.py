"""Programs that tests run in a process of its own, and kill.

python -m holdfast_testing.processes hold DIRECTORY [MIGRATIONS...]
    opens a data directory, prints "open", and holds it until its input ends; MIGRATIONS is `file.sqlite=directory`
python -m holdfast_testing.processes count FILE...
    writes a counter to one SQLite file after the other, again and again
"""

import os
import subprocess
import sys
from collections.abc import Mapping
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from holdfast.errors import StartError
from holdfast.local.clock import SystemClock
from holdfast.local.data_dir import DataDir
from holdfast.local.kv import KV_MIGRATIONS
from holdfast.local.migrations import load
from holdfast.local.sqlite_file import connect
from holdfast_testing.captured_log import CapturedLog

TESTS = Path(__file__).parents[1]


def run(*command: Any, cwd: Path = TESTS, env: Mapping[str, str] | None = None) -> "subprocess.CompletedProcess[str]":
    """Run a program to its end, without input. `env` is added to the environment."""
    return subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        env={**os.environ, **(env or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


python = partial(run, sys.executable)


def holding(directory: Path) -> list[str]:
    """The command that holds this directory, with a KV."""
    return [sys.executable, "-m", "holdfast_testing.processes", "hold", f"{directory}", f"kv.sqlite={KV_MIGRATIONS}"]


def hold(directory: str, *pairs: str) -> int:
    schemas = {name: load(Path(where)) for name, _, where in (pair.partition("=") for pair in pairs)}
    try:
        data = DataDir(Path(directory), schemas, now=SystemClock().now(), logger=CapturedLog())
    except StartError as error:
        print(f"{type(error).__name__}: {error}")
        return 1
    print("open", flush=True)
    sys.stdin.read()
    data.close()
    return 0


def write_counter(*paths: str) -> None:
    connections = [connect(Path(path)) for path in paths]
    for connection in connections:
        connection.execute("PRAGMA synchronous = OFF")  # the process is killed here, not the machine
    for number in count(1):
        for connection in connections:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("UPDATE counter SET number = ?", (number,))
            connection.execute("UPDATE pages SET number = ? WHERE rowid = 400", (number,))  # at the file's other end
            connection.execute("COMMIT")
        if number == 1:
            print("writing", flush=True)


if __name__ == "__main__":
    command, *arguments = sys.argv[1:]
    match command:
        case "hold":
            sys.exit(hold(*arguments))
        case "count":
            write_counter(*arguments)
