"""kill -9 during writes: every write that returned is there, and every batch is complete."""

import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from holdfast.local import sqlite_file
from holdfast.local.kv import KV_MIGRATIONS
from holdfast.local.migrations import Migration, load
from holdfast_testing.stores import open_dir

TESTS = Path(__file__).parent
PAIRS = Migration(1, "0001_pairs", "", ("CREATE TABLE pairs (n INTEGER, half TEXT, PRIMARY KEY (n, half))",))
SCHEMAS = {"db.sqlite": [PAIRS], "kv.sqlite": load(KV_MIGRATIONS)}


@pytest.mark.slow
@pytest.mark.parametrize("acknowledged", [1, 7, 150])
def test_what_was_acknowledged_survives_kill(tmp_path: Path, acknowledged: int) -> None:
    """The next start finds every write that returned before the kill, and only complete batches."""
    open_dir(tmp_path, SCHEMAS).close()
    process = subprocess.Popen(
        [sys.executable, "-m", "holdfast_testing.processes", "write", str(tmp_path)],
        cwd=TESTS,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    output = [process.stdout.readline() for _ in range(2 * acknowledged)]
    process.send_signal(signal.SIGKILL)
    output += process.stdout.readlines()
    process.stdout.close()
    assert process.wait() == -signal.SIGKILL
    last = {line.split()[0]: int(line.split()[1]) for line in output if line.endswith("\n")}

    open_dir(tmp_path, SCHEMAS).close()
    with closing(sqlite_file.connect(tmp_path / "db.sqlite")) as connection:
        halves = connection.execute("SELECT n, count(*) FROM pairs GROUP BY n ORDER BY n").fetchall()
    with closing(sqlite_file.connect(tmp_path / "kv.sqlite")) as connection:
        (keys,) = connection.execute("SELECT count(*) FROM entries").fetchone()

    assert last["db"] >= acknowledged
    assert len(halves) in {last["db"], last["db"] + 1}
    assert set(halves) == {(number, 2) for number in range(1, len(halves) + 1)}
    assert keys in {last["kv"], last["kv"] + 1}
