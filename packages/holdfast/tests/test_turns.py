"""Events wait for critical sections, output waits for the disk. Virtual time, real SQLite."""

import asyncio
import gc
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.errors import ObjectReset
from holdfast.local import object_store
from holdfast.local.turns import Activity, InputGate, Turns, output_gate
from holdfast.testing import VirtualObjects
from holdfast.types import DurableObject
from holdfast_testing.objects import Objects, Register
from holdfast_testing.objects import objects as opened
from holdfast_testing.stores import LOG_FRAME, broken_disk


def on_disk(directory: Path, key: str) -> Any:
    """Return what another process would find."""
    with closing(sqlite3.connect(directory / "objects.sqlite")) as connection:
        row = connection.execute("SELECT value FROM entries WHERE key = ?", (key,)).fetchone()
    return None if row is None else json.loads(row[0])


def is_durable(made: Objects) -> bool:
    return made.runtime.store.synced == made.runtime.store.commits


class Sender(DurableObject):
    """Writes, and lets something out in the same turn."""

    async def write_and_send(self) -> None:
        self.ctx.storage.put("k", 1)
        await output_gate()  # as fetch, KV and DB do before they act
        self.env.sent()

    async def write_and_return(self) -> str:
        self.ctx.storage.put("k", 3)
        return "written"

    async def write_and_sync(self) -> None:
        self.ctx.storage.put("k", 4)
        await self.ctx.storage.sync()
        self.env.synced()

    async def write_and_raise(self) -> None:
        await self.ctx.storage.put("k", 2)
        raise RuntimeError("after the write")


async def test_what_leaves_finds_the_writes_before_it_on_disk(tmp_path: Path) -> None:
    """`put(k)` and a fetch in one turn: k is durable before the request arrives anywhere."""
    seen: list[tuple[Any, bool]] = []
    async with opened(tmp_path, Sender) as made:
        made.env.sent = lambda: seen.append((on_disk(tmp_path, "k"), is_durable(made)))
        await made.stub().write_and_send()

    assert seen == [(1, True)]


async def test_a_reply_waits_for_the_sync_of_its_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The method returned, but the sync failed: its caller gets the error instead of the result."""
    async with opened(tmp_path, Sender) as made:
        monkeypatch.setattr(object_store, "_timed_sync", broken_disk)
        with pytest.raises(ObjectReset, match="Input/output error"):
            await made.stub().write_and_return()


async def test_sync_returns_when_the_writes_before_it_are_durable(tmp_path: Path) -> None:
    """Code that goes on after it may rely on them."""
    seen: list[tuple[Any, bool]] = []
    async with opened(tmp_path, Sender) as made:
        made.env.synced = lambda: seen.append((on_disk(tmp_path, "k"), is_durable(made)))
        await made.stub().write_and_sync()

    assert seen == [(4, True)]


async def test_an_error_leaves_after_the_writes_before_it(tmp_path: Path) -> None:
    """An exception is an answer: writes before it are on disk when the caller gets it."""
    async with opened(tmp_path, Sender) as made:
        with pytest.raises(RuntimeError, match="after the write"):
            await made.stub().write_and_raise()

        assert on_disk(tmp_path, "k") == 2


class Sections(DurableObject):
    """Counts how much of its code runs at the same time."""

    def __init__(self, ctx: Any, env: Any) -> None:
        super().__init__(ctx, env)
        self.inside = 0
        self.most = 0
        self.ticks: list[int] = []

    async def _section(self) -> None:
        self.inside += 1
        self.most = max(self.most, self.inside)
        await asyncio.sleep(1)
        self.inside -= 1

    async def queue_sections(self, count: int) -> int:
        await asyncio.gather(*[self.ctx.block_concurrency_while(self._section) for _ in range(count)])
        return self.most

    async def tick(self) -> None:
        """Repeatedly notes how many sections run at the same time."""
        for _ in range(20):
            self.ticks.append(self.inside)
            await asyncio.sleep(0.3)

    async def seen(self) -> Any:
        return self.ticks


async def test_queued_sections_run_one_at_a_time(objects: VirtualObjects) -> None:
    """However many wait when one ends, one of them runs next."""
    began_at = objects.now()

    assert await objects.get(Sections, "x").queue_sections(4) == 1
    assert objects.now() - began_at == 4_000


async def test_nothing_else_runs_between_queued_sections(objects: VirtualObjects) -> None:
    """Code that waits at the gate checks again when it wakes: the next section may have closed it."""
    sections = objects.get(Sections, "x").queue_sections(3)
    await asyncio.sleep(0.5)
    await objects.get(Sections, "x").tick()
    await sections
    seen = await objects.get(Sections, "x").seen()

    assert len(seen) == 20
    assert set(seen) == {0}


async def test_a_section_that_ended_resets_nothing_later(objects: VirtualObjects) -> None:
    """Its limit of 30 seconds ends with it: an object that stays busy is not reset."""
    await objects.get(Sections, "x").queue_sections(2)
    for _ in range(12):
        await asyncio.sleep(5)
        await objects.get(Sections, "x").seen()

    assert objects._runtime.metrics.objects_reset == 0


class Worker(DurableObject):
    """Knows which instance it is."""

    instances = 0

    def __init__(self, ctx: Any, env: Any) -> None:
        super().__init__(ctx, env)
        Worker.instances += 1
        self.number = Worker.instances

    async def work(self, seconds: float) -> int:
        await asyncio.sleep(seconds)
        return self.number


async def test_an_object_that_works_is_not_evicted(objects: VirtualObjects) -> None:
    """Idle once, busy again: ten seconds after it was idle there is still one instance."""
    first = await objects.get(Worker, "x").work(0)
    await asyncio.sleep(5)
    busy = objects.get(Worker, "x").work(20)
    await asyncio.sleep(10)

    assert await objects.get(Worker, "x").work(0) == first
    assert await busy == first


class Alarmed(DurableObject):
    """Records when its alarm rings."""

    async def arm(self, delay_ms: int) -> None:
        await self.ctx.storage.set_alarm(self.env.now() + delay_ms)

    async def rings(self) -> Any:
        return await self.ctx.storage.get("rings") or []

    async def alarm(self) -> None:
        await self.ctx.storage.put("rings", [*await self.rings(), self.env.now()])


async def test_a_ring_that_ended_resets_nothing_later(objects: VirtualObjects) -> None:
    """The limit of 15 minutes for alarm() ends with it: an object that stays busy is not reset."""
    await objects.get(Alarmed, "x").arm(1_000)
    for _ in range(200):
        await asyncio.sleep(5)
        await objects.get(Alarmed, "x").rings()

    assert objects._runtime.metrics.alarms_rung == 1
    assert objects._runtime.metrics.objects_reset == 0


async def test_an_alarm_whose_writes_are_not_durable_has_not_rung(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The handler returned, but the sync of its last writes failed: that is a failure."""
    async with opened(tmp_path, Alarmed) as made:
        await made.stub().arm(1_000)
        monkeypatch.setattr(object_store, "_timed_sync", broken_disk)
        await asyncio.sleep(1.5)

        assert made.runtime.metrics.alarms_rung == 0
        assert made.runtime.metrics.alarms_failed == 1
        with pytest.raises(ObjectReset, match="Input/output error"):
            await made.stub().arm(1_000)


async def test_the_log_is_copied_back_and_stays_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commits of one page each, copied when there are a hundred: the log has about those of the last hundred."""
    monkeypatch.setattr(object_store, "CHECKPOINT_BYTES", 100 * LOG_FRAME)
    log = tmp_path / "objects.sqlite-wal"
    sizes = []
    async with opened(tmp_path, Register) as made:
        stub = made.stub()
        for number in range(350):
            await stub.put("number", number)
            if number % 50 == 49:
                await asyncio.sleep(0.01)  # a copy in the thread may end
                sizes.append(log.stat().st_size)

    assert max(sizes) < 160 * LOG_FRAME


@pytest.mark.holdfast(real_threads=True)
async def test_a_commit_during_a_sync_waits_for_the_next_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sync covers commits from before it began: later callers are answered after the next one."""
    ends = [Event(), Event()]
    begun: list[int] = []

    def slow_sync(fd: int) -> float:
        begun.append(fd)
        ends[min(len(begun), 2) - 1].wait(10)
        return 1.0

    async with opened(tmp_path, Register) as made:
        await made.stub().put("number", 0)
        monkeypatch.setattr(object_store, "QUICK_DISK_S", 0.0)  # the disk is slow: a thread waits for it
        monkeypatch.setattr(object_store, "_timed_sync", slow_sync)
        first = made.stub("a").put("number", 1)
        while not begun:
            await asyncio.sleep(0)
        second = made.stub("b").put("number", 2)
        for _ in range(20):
            await asyncio.sleep(0)
        ends[0].set()
        await first
        for _ in range(20):
            await asyncio.sleep(0)
        early = second.done()
        ends[1].set()
        await second

    assert not early


async def test_code_that_outlives_a_reset_reports_nothing_of_its_own(objects: VirtualObjects) -> None:
    """Its callers got the reset error. A task that then fails because of it is not an uncaught error."""
    not_caught: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: not_caught.append(context))

    class Stubborn(DurableObject):
        async def work(self) -> None:
            asyncio.create_task(self._go_on())  # noqa: RUF006 - it belongs to the object
            await asyncio.sleep(1)
            self.ctx.abort("enough")

        async def _go_on(self) -> None:
            try:
                await asyncio.sleep(60)
            finally:
                await self.ctx.storage.put("late", 1)

    with pytest.raises(ObjectReset, match="enough"):
        await objects.get(Stubborn, "x").work()
    await asyncio.sleep(5)
    gc.collect()

    assert not_caught == []


async def test_code_that_waits_at_the_gate_can_be_closed() -> None:
    """Like a task without references that the collector ends: it ends there and does not wait again."""
    gate = InputGate()
    gate.holder = InputGate(gate)
    began = []

    async def work() -> None:
        began.append(1)

    waiting = Turns(work(), Activity(SimpleNamespace(broken=False), gate, 1)).__await__()
    next(waiting)
    waiting.close()

    assert began == []
