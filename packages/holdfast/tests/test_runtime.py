"""Objects, calls and alarms: what the recordings do not show. Virtual time, real SQLite."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import ObjectReset, RemoteError, UsageError, ValueRefused
from holdfast.local import object_store
from holdfast.testing import VirtualObjects
from holdfast.testing.virtual_time import VirtualClock
from holdfast.types import AlarmInfo, DurableObject
from holdfast_testing.objects import objects as opened
from holdfast_testing.stores import broken_disk, full_disk

HOUR_MS = 3_600_000
YEAR_MS = 365 * 24 * HOUR_MS


class Bell(DurableObject):
    """Records when it rings, and fails as often as a test asks for."""

    async def arm(self, delay_ms: int) -> int:
        at: int = self.env.now() + delay_ms
        await self.ctx.storage.set_alarm(at)
        return at

    async def fail(self, times: int) -> None:
        await self.ctx.storage.put("fail", times)

    async def rings(self) -> Any:
        return await self.ctx.storage.get("rings") or []

    async def next_alarm(self) -> Any:
        return await self.ctx.storage.get_alarm()

    async def alarm(self, info: AlarmInfo) -> None:
        rings = await self.rings()
        await self.ctx.storage.put("rings", [*rings, [self.env.now(), info.retry_count]])
        left = await self.ctx.storage.get("fail") or 0
        if left:
            await self.ctx.storage.put("fail", left - 1)
            raise RuntimeError("as the test asked")


async def test_exhaustion_is_reported_and_the_hook_can_arm_again(tmp_path: Path) -> None:
    """The seventh failure is logged as an error, counted, and passed to the hook."""
    reported: list[str] = []

    async def exhausted(object_id: Any, error: Exception) -> None:
        reported.append(f"{object_id.name}: {error}")
        await made.stub().arm(60_000)

    async with opened(tmp_path, Bell, on_exhausted=exhausted, chance=lambda: 0.0) as made:
        await made.stub().fail(7)
        at = await made.stub().arm(1000)
        await asyncio.sleep(400)

        rings = await made.stub().rings()

    assert reported == ["x: as the test asked"]
    assert [count for _, count in rings] == [0, 1, 2, 3, 4, 5, 6, 0]
    assert rings[6][0] - at == 126_000
    assert rings[7][0] - at == 126_000 + 60_000
    assert made.runtime.metrics.alarms_exhausted == 1
    assert [line["runs"] for line in made.log.named("alarm.exhausted")] == [7]


async def test_a_hook_under_way_ends_before_the_runtime_is_closed(tmp_path: Path) -> None:
    """It may write to the object that it was called for, so the store stays open until it has returned."""
    done: list[str] = []

    async def exhausted(_object_id: Any, _error: Exception) -> None:
        await asyncio.sleep(5)
        done.append("returned")

    async with opened(tmp_path, Bell, on_exhausted=exhausted, chance=lambda: 0.0) as made:
        await made.stub().fail(7)
        await made.stub().arm(1000)
        while not made.log.named("alarm.exhausted"):
            await asyncio.sleep(1)

        assert done == []

    assert done == ["returned"]


async def test_retry_count_and_back_off_survive_a_restart(tmp_path: Path) -> None:
    """After a restart the retries continue where they were, with the time that was set."""
    clock = VirtualClock()
    async with opened(tmp_path, Bell, clock=clock, chance=lambda: 0.0) as made:
        await made.stub().fail(99)
        at = await made.stub().arm(0)
        await asyncio.sleep(3)  # the first run and the retry after 2 s have failed
    async with opened(tmp_path, Bell, clock=clock, chance=lambda: 0.0) as made:
        assert await made.stub().next_alarm() == at
        await asyncio.sleep(4)
        rings = await made.stub().rings()

    assert [(when - at, count) for when, count in rings] == [(0, 0), (2000, 1), (6000, 2)]


@pytest.mark.slow
async def test_a_thousand_overdue_alarms_are_paced_at_start(tmp_path: Path) -> None:
    """After a downtime they ring one after the other, 5 ms apart, not all at once."""
    clock = VirtualClock()
    async with opened(tmp_path, Bell, clock=clock) as made:
        for n in range(1000):
            await made.stub(str(n)).arm(60_000)
    clock.jump(HOUR_MS)
    async with opened(tmp_path, Bell, clock=clock) as made:
        began_at = clock.now()
        await asyncio.sleep(6)
        late = sorted([(await made.stub(str(n)).rings())[0][0] - began_at for n in range(1000)])

    assert late == [5 * n for n in range(1000)]


@pytest.mark.slow
async def test_an_alarm_on_time_does_not_wait_behind_overdue_ones(tmp_path: Path) -> None:
    """Only alarms that are already late are delayed."""
    clock = VirtualClock()
    async with opened(tmp_path, Bell, clock=clock) as made:
        for n in range(1000):
            await made.stub(str(n)).arm(60_000)
        punctual = await made.stub("punctual").arm(HOUR_MS + 100)
    clock.jump(HOUR_MS)
    async with opened(tmp_path, Bell, clock=clock) as made:
        await asyncio.sleep(1)

        assert await made.stub("punctual").rings() == [[punctual, 0]]


@pytest.mark.parametrize("jump_ms", [HOUR_MS, YEAR_MS, -HOUR_MS, -YEAR_MS])
@pytest.mark.parametrize("restart", [False, True])
async def test_a_jump_of_the_wall_clock_neither_stalls_nor_repeats(tmp_path: Path, jump_ms: int, restart: bool) -> None:
    """Forward: the alarm is overdue and rings once. Back: its original wait starts again."""
    clock = VirtualClock()
    async with opened(tmp_path, Bell, clock=clock) as made:
        await made.stub().arm(300_000)
        await asyncio.sleep(60)
        if not restart:
            clock.jump(jump_ms)
            await asyncio.sleep(301)
            assert len(await made.stub().rings()) == 1
    if restart:
        clock.jump(jump_ms)
        async with opened(tmp_path, Bell, clock=clock) as made:
            await asyncio.sleep(301)
            assert len(await made.stub().rings()) == 1


async def test_a_clock_that_goes_back_by_a_little_never_rings_early(objects: VirtualObjects) -> None:
    """After a correction of half a second the alarm rings at its time."""
    at = await objects.get(Bell, "x").arm(10_000)
    await asyncio.sleep(5)
    objects.clock.jump(-500)
    await asyncio.sleep(10)

    assert await objects.get(Bell, "x").rings() == [[at, 0]]


class Calls(DurableObject):
    """Methods for the rules of RPC."""

    async def echo(self, value: Any) -> Any:
        return value

    def plain(self) -> str:
        return "not a coroutine"

    async def bad_result(self) -> Any:
        return {1, 2}

    async def raise_key_error(self) -> None:
        raise KeyError("missing")

    async def raise_own(self) -> None:
        class OwnError(Exception):
            pass

        raise OwnError("of my own")

    async def cancel_myself(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(1)

    def _private(self) -> None: ...

    @property
    def attribute(self) -> int:
        return 1


async def test_arguments_and_results_are_copies(objects: VirtualObjects) -> None:
    """Nothing mutable is shared between caller and object."""
    stub: Any = objects.get(Calls, "x")
    sent = {"a": [1]}
    got = await stub.echo(sent)
    got["a"].append(2)

    assert sent == {"a": [1]}
    assert await stub.plain() == "not a coroutine"


async def test_values_that_are_not_json_are_refused_in_both_directions(objects: VirtualObjects) -> None:
    """Arguments before the call is sent, results before they are returned."""
    stub: Any = objects.get(Calls, "x")
    with pytest.raises(ValueRefused, match=r"the arguments of echo\(\)\[0\] is of type tuple"):
        stub.echo((1, 2))
    with pytest.raises(ValueRefused, match=r"the result of bad_result\(\) is of type set"):
        await stub.bad_result()


@pytest.mark.parametrize("name", ["_private", "attribute", "ctx", "env", "nothing"])
async def test_only_public_methods_of_the_class_can_be_called(tmp_path: Path, name: str) -> None:
    """Every other name is reported as not implemented, whether it exists or not."""
    async with opened(tmp_path, Calls) as made:
        with pytest.raises(TypeError, match=f'does not implement the method "{name}"'):
            await getattr(made.stub(), name)()


async def test_errors_keep_their_class_or_their_name(objects: VirtualObjects) -> None:
    """Built-in classes stay. Others become RemoteError with their name."""
    with pytest.raises(KeyError) as builtin:
        await objects.get(Calls, "x").raise_key_error()
    with pytest.raises(RemoteError, match="OwnError: of my own"):
        await objects.get(Calls, "x").raise_own()
    with pytest.raises(RemoteError, match="was cancelled"):
        await objects.get(Calls, "x").cancel_myself()

    assert builtin.value.remote is True  # type: ignore[attr-defined]


class Notes(DurableObject):
    """Writes from code that is not an ordinary turn."""

    async def write_from_a_timer(self) -> None:
        asyncio.get_running_loop().call_later(1, lambda: self.ctx.storage.put("timer", 1))

    async def write_from_a_child(self) -> None:
        async def child() -> None:
            await self.ctx.storage.put("child", 1)
            await asyncio.sleep(1)
            self.ctx.abort("after the first turn of the child")

        self.child = asyncio.create_task(child())

    async def read(self, *keys: str) -> Any:
        return await self.ctx.storage.get(list(keys))

    async def block(self, seconds: float) -> None:
        async def work() -> None:
            await asyncio.sleep(seconds)

        await self.ctx.block_concurrency_while(work)

    async def child_ticks(self, times: int) -> list[int]:
        ticks: list[int] = []

        async def tick() -> None:
            for _ in range(times):
                await asyncio.sleep(1)
                ticks.append(self.env.now())

        await asyncio.gather(tick(), tick())
        return ticks

    async def call_another(self, key: str) -> Any:
        self.ctx.storage.put(key, 1)
        return await self.env.TEST.get_by_name("other").read("x")

    async def nested(self) -> Any:
        async def outer(txn: Any) -> Any:
            await txn.put("a", 1)
            await txn.put("b", 1)

            async def inner(txn: Any) -> None:
                await txn.put("a", 2)
                await asyncio.sleep(1)
                raise RuntimeError("inner")

            with pytest.raises(RuntimeError, match="inner"):
                await self.ctx.storage.transaction(inner)
            return await txn.get(["a", "b"])

        return await self.ctx.storage.transaction(outer)


async def test_writes_of_a_bare_timer_are_committed_too(tmp_path: Path) -> None:
    """A callback outside of any task has no turn. The next iteration of the loop commits its writes."""
    async with opened(tmp_path, Notes) as made:
        await made.stub().write_from_a_timer()
        await asyncio.sleep(2)
    async with opened(tmp_path, Notes) as made:
        assert await made.stub().read("timer") == {"timer": 1}


async def test_a_child_task_takes_turns_of_its_own(objects: VirtualObjects) -> None:
    """Writes of a child before it suspended stay, even if it resets the object later."""
    await objects.get(Notes, "x").write_from_a_child()
    await asyncio.sleep(2)

    assert await objects.get(Notes, "x").read("child") == {"child": 1}
    assert objects._runtime.metrics.objects_reset == 1


async def test_child_tasks_wait_at_the_gate(objects: VirtualObjects) -> None:
    """While a critical section runs, the children of other calls wait."""
    stub, began_at = objects.get(Notes, "x"), objects.now()
    ticks = stub.child_ticks(2)
    await asyncio.sleep(0.5)
    await stub.block(3)

    assert [at - began_at for at in await ticks] == [3500, 3500, 4500, 4500]


async def test_a_call_to_another_object_leaves_after_the_writes_are_durable(tmp_path: Path) -> None:
    """The output gate also holds calls between objects: after a failed commit the call is never made."""
    async with opened(tmp_path, Notes) as made:
        made.runtime.store.crash_point = full_disk
        with pytest.raises(ObjectReset, match="No space left"):
            await made.stub().call_another("x")

        assert made.runtime.metrics.calls == 1
        assert "other" not in [live.id.name for live in made.runtime._live.values()]


async def test_a_transaction_inside_another_rolls_back_alone(objects: VirtualObjects) -> None:
    """The writes of the inner one are undone, those of the outer one stay."""
    assert await objects.get(Notes, "x").nested() == {"a": 1, "b": 1}


async def test_a_class_must_be_an_object(objects: VirtualObjects) -> None:
    """Binding a plain class is refused, with the fix."""
    with pytest.raises(UsageError, match="make it a subclass of DurableObject"):
        objects._runtime.namespace("WRONG", int)  # type: ignore[arg-type]


async def test_a_disk_that_fails_to_sync_stops_everything_loudly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a failed sync nothing more is acknowledged, even when the disk works again."""
    async with opened(tmp_path, Notes) as made:
        await made.stub().read("x")
        with monkeypatch.context() as patch:
            patch.setattr(object_store, "_timed_sync", broken_disk)
            with pytest.raises(ObjectReset, match="Input/output error"):
                await made.stub().call_another("x")
        with pytest.raises(ObjectReset, match="Input/output error"):
            await made.stub().call_another("x")

    assert made.log.named("store.failed") == [{"error": "OSError(5, 'Input/output error')"}]
