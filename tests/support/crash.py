"""A scripted run in a separate process that can be killed at any step of any commit.

python crash.py count DIR      run the script to its end, print how many crash points it passed
python crash.py run DIR K      kill itself with -9 at crash point K; print acknowledged steps as they happen
python crash.py read DIR       open what is left, let a due alarm ring, print the state
python crash.py record DIR     run to the end; at each crash point print what a power cut could leave
"""

import asyncio
import json
import os
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any

from support.captured_log import CapturedLog
from support.local_store import make_objects_file
from tocsin.bindings import AlarmInfo, DurableObject
from tocsin.platform.local.clock import SystemClock
from tocsin.platform.local.objects import object_store
from tocsin.platform.local.objects.runtime import Runtime

FAR_MS = 10**12


class Ledger(DurableObject):
    """Two accounts, a few notes, and an alarm that counts its rings."""

    async def put(self, key: str, value: Any) -> None:
        await self.ctx.storage.put(key, value)

    async def put_and_arm(self, key: str) -> None:
        await self.ctx.storage.put(key, "armed")
        await self.ctx.storage.set_alarm(FAR_MS * 3)

    async def move(self, amount: int) -> None:
        async def work(txn: Any) -> None:
            await txn.put("a", (await txn.get("a") or 0) - amount)
            await asyncio.sleep(0.001)
            await txn.put("b", (await txn.get("b") or 0) + amount)

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
        return {"entries": await self.ctx.storage.list(), "alarm": await self.ctx.storage.get_alarm()}

    async def alarm(self, _info: AlarmInfo) -> None:
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
        self.runtime = Runtime(
            make_objects_file(directory), clock=SystemClock(), logger=CapturedLog(), env=None
        )
        self.namespace = self.runtime.namespace("LEDGER", Ledger)

    @property
    def ledger(self) -> Any:
        return self.namespace.get_by_name("x")

    async def steps(self) -> None:
        for number, (method, arguments) in enumerate(STEPS):
            await getattr(self.ledger, method)(*arguments)
            print("acknowledged", number + 1, flush=True)


async def count_or_run(directory: Path, kill_at: int | None) -> None:
    object_store.CHECKPOINT_COMMITS = 4  # so that the log is also copied during the run
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
    print("points", passed, flush=True)
    await process.runtime.close()


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
    # A slow disk, synced in the thread: an acknowledgement that is too early comes long before the sync.
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
    command, home, *rest = sys.argv[1:]
    match command:
        case "count":
            asyncio.run(count_or_run(Path(home), None))
        case "run":
            asyncio.run(count_or_run(Path(home), int(rest[0])))
        case "read":
            print(json.dumps(asyncio.run(read(Path(home)))))
        case "record":
            asyncio.run(record(Path(home)))
