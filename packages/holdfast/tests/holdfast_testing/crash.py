"""A scripted run in a separate process that can be killed at any step of any commit.

python -m holdfast_testing.crash run DISK DIR
    for K from 1 on, in DIR/K: run a process that is killed at crash point K; print the signal, the acknowledged steps,
    and what the next process reads. The last process passes all crash points and ends by itself
python -m holdfast_testing.crash read DIR...
    open what is left in each, let a due alarm ring, print the state
python -m holdfast_testing.crash record DIR
    run to the end; at each crash point print what a power cut could leave

DISK is "quick", where the runtime waits for its disk, or "slow", where a thread does.
"""

import asyncio
import json
import math
import os
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Coroutine
from itertools import count
from pathlib import Path
from typing import Any

from holdfast.local import object_store
from holdfast.local.clock import SystemClock
from holdfast.local.runtime import Runtime
from holdfast.types import AlarmInfo, DurableObject
from holdfast_testing.captured_log import CapturedLog
from holdfast_testing.stores import make_objects_file

FAR_MS = 10**12


class Ledger(DurableObject):
    """Two accounts, a few notes, a table of what was moved, and an alarm that counts its rings."""

    async def put(self, key: str, value: Any) -> None:
        await self.ctx.storage.put(key, value)

    async def put_and_arm(self, key: str) -> None:
        await self.ctx.storage.put(key, "armed")
        await self.ctx.storage.set_alarm(FAR_MS * 3)

    async def move(self, amount: int) -> None:
        async def work(txn: Any) -> None:
            await txn.put("a", (await txn.get("a") or 0) - amount)
            self.ctx.storage.sql.exec("CREATE TABLE IF NOT EXISTS moves (amount INTEGER)")
            await asyncio.sleep(0.001)
            await txn.put("b", (await txn.get("b") or 0) + amount)
            self.ctx.storage.sql.exec("INSERT INTO moves VALUES (?)", amount)

        await self.ctx.storage.transaction(work)

    async def many(self, prefix: str) -> None:
        await self.ctx.storage.put({f"{prefix}{n:03}": "x" * 200 for n in range(100)})

    async def ring_now(self) -> None:
        await self.ctx.storage.set_alarm(1)

    async def wait_for_ring(self, rings: int) -> None:
        while (await self.ctx.storage.get("rings") or 0) < rings:
            await asyncio.sleep(0.001)

    async def clear(self) -> None:
        await self.ctx.storage.delete_all()

    async def state(self) -> Any:
        sql = self.ctx.storage.sql
        has_moves = sql.exec("SELECT count(*) FROM sqlite_master").raw()
        moves = sql.exec("SELECT amount FROM moves ORDER BY amount").raw() if next(has_moves) != [0] else []
        return {
            "entries": await self.ctx.storage.list(),
            "alarm": await self.ctx.storage.get_alarm(),
            "moves": [amount for (amount,) in moves],
        }

    async def alarm(self, _info: AlarmInfo) -> None:
        if "rings" in await self.ctx.storage.list():
            self.ctx.storage.sql.exec("INSERT INTO moves VALUES (0)")
        await self.ctx.storage.put("rings", (await self.ctx.storage.get("rings") or 0) + 1)


# Each step is one commit, except the waits; `ring_now` is followed by the commit of the handler.
STEPS: list[tuple[str, list[Any]]] = [
    ("put", ["a", 100]),
    ("put", ["b", 0]),
    ("move", [10]),
    ("put_and_arm", ["note"]),
    ("many", ["m"]),
    ("ring_now", []),
    ("wait_for_ring", [1]),
    ("move", [25]),
    ("ring_now", []),
    ("wait_for_ring", [2]),
    ("clear", []),
    ("put", ["a", 7]),
    ("put_and_arm", ["again"]),
    ("many", ["n"]),
]


class Process:
    """The runtime on a directory, and the steps."""

    def __init__(self, directory: Path) -> None:
        self.runtime = Runtime(make_objects_file(directory), clock=SystemClock(), logger=CapturedLog(), env=None)
        self.namespace = self.runtime.namespace("LEDGER", Ledger)

    @property
    def ledger(self) -> Any:
        return self.namespace.get_by_name("x")

    async def steps(self) -> None:
        for number, (method, arguments) in enumerate(STEPS):
            await getattr(self.ledger, method)(*arguments)
            print("acknowledged", number + 1, flush=True)


async def run(disk: str, directory: Path, kill_at: int) -> None:
    object_store.CHECKPOINT_BYTES = 20_000  # so that the log is also copied during the run
    object_store.QUICK_DISK_S = {"quick": math.inf, "slow": 0.0}[disk]
    process = Process(directory)
    await process.runtime.open()
    passed = 0

    def crash_point(_point: str, _db: Any) -> None:
        nonlocal passed
        passed += 1
        if passed == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    process.runtime.store.crash_point = crash_point
    await process.steps()
    await process.runtime.close()


def run_and_read(disk: str, home: Path) -> None:
    """Run each in a fork: a separate process that need not import everything again."""
    for point in count(1):
        directory = home / str(point)
        directory.mkdir()
        killed_by, lines = forked(run(disk, directory, point))
        _, state = forked(print_state(directory))
        print(json.dumps([killed_by, lines.count("acknowledged"), json.loads(state)]), flush=True)
        if not killed_by:
            break


async def print_state(directory: Path) -> None:
    print(json.dumps(await read(directory)))


def forked(work: Coroutine[Any, Any, None]) -> tuple[int, str]:
    """Do the work in a separate process; return the signal that ended it, or 0, and its output."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.dup2(write_end, sys.stdout.fileno())
        try:
            asyncio.run(work)
            sys.stdout.flush()
            os._exit(0)
        except BaseException:  # noqa: BLE001 - no code of the parent may run in this process
            traceback.print_exc()
            os._exit(1)
    work.close()  # it belongs to the other process
    os.close(write_end)
    with os.fdopen(read_end) as output:
        text = output.read()
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, "a process failed; its error is above"
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0, text


async def read(directory: Path) -> Any:
    process = Process(directory)
    await process.runtime.open()
    while (await process.ledger.state())["alarm"] not in {None, FAR_MS * 3}:
        await asyncio.sleep(0.001)
    # While a handler runs, its alarm is not visible, but the ring has not ended yet.
    while process.runtime._ringing:
        await asyncio.sleep(0.001)
    state = await process.ledger.state()
    await process.runtime.close()
    return state


async def record(directory: Path) -> None:
    # A slow disk, synced in the thread: a premature acknowledgement would come long before the sync.
    object_store.QUICK_DISK_S = 0.0
    quick_sync = object_store._timed_sync

    def slow_sync(fd: int) -> float:
        time.sleep(0.005)
        return quick_sync(fd)

    object_store._timed_sync = slow_sync
    process = Process(directory)
    await process.runtime.open()
    store = process.runtime.store
    synced = taken = 0
    acknowledged = 0

    def crash_point(point: str, _db: Any) -> None:
        nonlocal synced, taken
        size = os.fstat(store._log_fd).st_size
        if point == "after sync":
            synced = size_before_sync
        if point == "before sync":
            remember(size)
        taken += 1
        copy = directory / f"cut-{taken}"
        copy.mkdir()
        shutil.copy(directory / "objects.sqlite", copy)
        shutil.copy(directory / "objects.sqlite-wal", copy)
        print("cut", json.dumps([copy.name, acknowledged, synced, size]), flush=True)

    size_before_sync = 0

    def remember(size: int) -> None:
        nonlocal size_before_sync
        size_before_sync = size

    store.crash_point = crash_point
    for method, arguments in STEPS:
        await getattr(process.ledger, method)(*arguments)
        acknowledged += 1
    await process.runtime.close()


if __name__ == "__main__":
    command, *rest = sys.argv[1:]
    match command:
        case "run":
            run_and_read(rest[0], Path(rest[1]))
        case "read":
            for name in rest:
                asyncio.run(print_state(Path(name)))
        case "record":
            asyncio.run(record(Path(rest[0])))
