"""Live objects at their limits: what a reset ends, when one is evicted, how long code may run."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import ObjectReset
from holdfast.testing import VirtualObjects
from holdfast.testing.virtual_time import VirtualClock
from holdfast.types import DurableObject
from holdfast_testing.objects import Register
from holdfast_testing.objects import objects as opened
from holdfast_testing.stores import full_disk


class Counted(Register):
    """Counts its instances, and hands its storage out."""

    def __init__(self, ctx: Any, env: Any) -> None:
        super().__init__(ctx, env)
        env.built = getattr(env, "built", 0) + 1

    async def leak(self) -> None:
        self.env.leaked = self.ctx.storage

    async def put_and_abort(self, key: str) -> None:
        self.ctx.storage.put(key, "not kept")
        self.ctx.abort("the object gave up")

    async def hang(self, seconds: float) -> str:
        await asyncio.sleep(seconds)
        return "done"

    async def hang_in_section(self, seconds: float) -> str:
        async def section() -> str:
            await asyncio.sleep(seconds)
            return "done"

        return await self.ctx.block_concurrency_while(section)

    async def fail_later(self) -> None:
        async def work() -> None:
            await asyncio.sleep(1)
            raise RuntimeError("nobody waits for this")

        self.ctx.wait_until(work())

    async def leave_and_abort(self) -> None:
        self.ctx.wait_until(asyncio.sleep(1))
        self.ctx.abort("the object gave up")


async def test_the_storage_of_a_reset_object_is_broken_with_it(objects: VirtualObjects) -> None:
    """Code that outlives its object can neither read nor write, and gets the reason."""
    await objects.get(Counted, "x").leak()
    await objects.get(Counted, "x").put("k", 1)
    storage = objects.leaked
    with pytest.raises(ObjectReset, match="the object gave up"):
        await objects.get(Counted, "x").put_and_abort("k")
    uses: list[tuple[Any, ...]] = [
        (storage.get, "k"),
        (storage.put, "k", 2),
        (storage.delete, "k"),
        (storage.list,),
        (storage.get_alarm,),
        (storage.delete_alarm,),
        (storage.transaction_sync, dict),
        (storage.delete_all,),
        (storage.set_alarm, 1),
        (storage.sync,),
        (storage.transaction, dict),
    ]
    for use, *arguments in uses:
        with pytest.raises(ObjectReset, match="the object gave up"):
            await use(*arguments)
    kept = await objects.get(Counted, "x").get("k")

    assert kept == 1
    assert objects.built == 2


async def test_an_object_is_evicted_after_ten_idle_seconds(objects: VirtualObjects) -> None:
    """Counted from its last work: at 9.9 s it is the same instance, at 10.1 s another."""
    await objects.get(Counted, "x").get("k")
    for _ in range(3):
        await asyncio.sleep(9.9)
        await objects.get(Counted, "x").get("k")
    same = objects.built
    await asyncio.sleep(10.1)
    await objects.get(Counted, "x").get("k")

    assert (same, objects.built) == (1, 2)


async def test_a_section_may_take_thirty_seconds(objects: VirtualObjects) -> None:
    """One that takes longer resets the object, with the error that it is overloaded."""
    in_time = await objects.get(Counted, "x").hang_in_section(29.9)
    with pytest.raises(ObjectReset, match="the limit is 30 s") as reset:
        await objects.get(Counted, "x").hang_in_section(30.1)

    assert in_time == "done"
    assert reset.value.overloaded


class Slow(DurableObject):
    """An alarm that takes as long as a test wants."""

    async def arm(self, takes_s: float) -> None:
        self.ctx.storage.put("takes", takes_s)
        await self.ctx.storage.set_alarm(self.env.now())

    async def alarm(self) -> None:
        await asyncio.sleep(await self.ctx.storage.get("takes"))
        self.env.ended = True


@pytest.mark.parametrize(("takes_s", "resets"), [(899.9, 0), (900.1, 1)])
async def test_an_alarm_may_take_fifteen_minutes(objects: VirtualObjects, takes_s: float, resets: int) -> None:
    """One that takes longer is a failure, and is retried."""
    objects.bind(ended=False)
    await objects.get(Slow, "x").arm(takes_s)
    await asyncio.sleep(901)
    ended = objects.ended
    metrics = objects._runtime.metrics

    assert (metrics.objects_reset, metrics.alarms_failed, ended) == (resets, resets, not resets)


async def test_a_failure_that_nobody_waits_for_is_in_the_log(tmp_path: Path) -> None:
    """Work of `wait_until`; the object continues."""
    async with opened(tmp_path, Counted) as made:
        await made.stub().fail_later()
        await asyncio.sleep(2)
        lines = made.log.named("wait_until.failed")

    assert [line["error"] for line in lines] == ["RuntimeError('nobody waits for this')"]
    assert made.env.built == 1


async def test_a_reset_ends_what_was_left_behind_before_it_began(objects: VirtualObjects) -> None:
    """Python would warn of a coroutine that was never awaited, and a warning fails this test."""
    with pytest.raises(ObjectReset, match="the object gave up"):
        await objects.get(Counted, "x").leave_and_abort()


async def test_every_open_call_fails_with_the_reason_of_a_reset(objects: VirtualObjects) -> None:
    """Each gets its own error; calls on an older stub fail as well, a new stub works."""
    stub = objects.get(Counted, "x")
    waiting = [stub.hang(60) for _ in range(3)]
    await asyncio.sleep(1)
    with pytest.raises(ObjectReset):
        await stub.put_and_abort("k")
    failures = await asyncio.gather(*waiting, return_exceptions=True)
    with pytest.raises(ObjectReset, match="the object gave up"):
        await stub.get("k")
    fresh = await objects.get(Counted, "x").get("k")

    assert [str(failure) for failure in failures] == ["the object gave up"] * 3
    assert len({id(failure) for failure in failures}) == 3
    assert fresh is None


async def test_a_runtime_that_closes_ends_all_code(tmp_path: Path) -> None:
    """Waiting callers get an error that the process stops; nothing continues to run, and no timer is left."""
    async with opened(tmp_path, Counted) as made:
        await made.stub("idle").get("k")
        waiting = made.stub().hang(3_600)
        await asyncio.sleep(1)
    with pytest.raises(ObjectReset, match=r"^The process is shutting down\.$"):
        await waiting
    handles = [each for each in asyncio.get_running_loop()._scheduled if not each._cancelled]  # type: ignore[attr-defined]

    assert handles == []


class Picky(DurableObject):
    """Cannot be built while the test says so."""

    def __init__(self, ctx: Any, env: Any) -> None:
        super().__init__(ctx, env)
        if getattr(env, "broken", False):
            raise RuntimeError("no configuration")

    async def arm(self, delay_ms: int) -> None:
        await self.ctx.storage.set_alarm(self.env.now() + delay_ms)

    async def alarm(self) -> None:
        self.env.rung = self.env.now()


async def test_a_constructor_that_fails_does_not_use_up_the_retries(tmp_path: Path) -> None:
    """After two hours of failures the alarm rings; a call in the meantime gets the reason."""
    async with opened(tmp_path, Picky, chance=lambda: 0.0) as made:
        await made.stub().arm(30_000)
        await asyncio.sleep(11)  # it is evicted: the next event builds it again
        made.env.broken = True
        with pytest.raises(ObjectReset, match="no configuration"):
            await made.stub().arm(1_000)
        await asyncio.sleep(7_200)
        failed = made.runtime.metrics.alarms_failed
        made.env.broken, repaired_at = False, made.clock.now()
        await asyncio.sleep(1_025)

        assert failed > 12
        assert made.env.rung > repaired_at
        assert made.runtime.metrics.alarms_exhausted == 0


async def test_writes_that_are_refused_reset_the_object_and_are_not_kept(tmp_path: Path) -> None:
    """As if a file was deleted under the process: the caller gets the reason, and reads still work."""
    async with opened(tmp_path, Counted) as made:
        await made.stub().put("k", 1)
        made.runtime.store.refusal = "objects.sqlite was deleted"
        with pytest.raises(ObjectReset, match=r"objects\.sqlite was deleted") as reset:
            await made.stub().put("k", 2)
        read = await made.stub().get("k")
        made.runtime.store.refusal = None
        await made.stub().put("k", 3)
        again = await made.stub().get("k")

    assert reset.value.by_platform
    assert (read, again) == (1, 3)


async def test_the_generation_of_alarms_goes_on_after_a_restart(tmp_path: Path) -> None:
    """An alarm set for the same millisecond as an earlier one is a new alarm: each rings once."""
    clock = VirtualClock()
    async with opened(tmp_path, Picky, clock=clock) as made:
        await made.stub().arm(1_000)
        before = made.runtime.store.next_generation()
    async with opened(tmp_path, Picky, clock=clock) as made:
        after = made.runtime.store.next_generation()

    assert (before, after) == (2, 2)  # one alarm is stored, and each process counts on from it


class Parent(DurableObject):
    """Starts work of its own, in and after its sections."""

    async def start(self) -> None:
        self.env.context = self.ctx
        self.env.child = asyncio.create_task(self._later())

    async def _later(self) -> None:
        await asyncio.sleep(5)
        self.env.effects.append("later")

    async def abort(self) -> None:
        self.ctx.abort("the object gave up")

    async def start_in_section(self) -> None:
        """A section that leaves a task behind, and then a section in which nothing else may run."""

        async def first() -> None:
            self.env.child = asyncio.create_task(self._tick())
            await asyncio.sleep(0.5)

        async def second() -> None:
            self.env.inside = True
            await asyncio.sleep(5)
            self.env.inside = False

        await self.ctx.block_concurrency_while(first)
        await self.ctx.block_concurrency_while(second)

    async def _tick(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0.4)
            self.env.effects.append(self.env.inside)


async def test_a_reset_ends_the_tasks_that_the_code_has_started(objects: VirtualObjects) -> None:
    """No code of the old instance runs beside the new one; its context allows no more sections."""
    objects.bind(effects=[])
    await objects.get(Parent, "x").start()
    with pytest.raises(ObjectReset, match="the object gave up"):
        await objects.get(Parent, "x").abort()
    await asyncio.sleep(10)
    with pytest.raises(ObjectReset, match="the object gave up"):
        objects.context.block_concurrency_while(lambda: asyncio.sleep(0))

    assert objects.effects == []
    assert objects.child.cancelled()


async def test_a_task_that_outlives_its_section_waits_for_the_next_one(tmp_path: Path) -> None:
    """It then belongs to the code around the section, and does not run within another section."""
    async with opened(tmp_path, Parent) as made:
        made.env.effects, made.env.inside = [], False
        await made.stub().start_in_section()
        await made.env.child

    assert len(made.env.effects) == 20
    assert not any(made.env.effects)


class Keys(DurableObject):
    """Lists what it has."""

    async def fill(self, keys: list[str]) -> None:
        for key in keys:
            self.ctx.storage.put(key, 1)

    async def keys(self, options: dict[str, Any]) -> list[str]:
        return list(await self.ctx.storage.list(**options))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"prefix": "b"},
        {"end": "ba"},
        {"prefix": "b", "end": "ba"},
        {"prefix": "b", "end": "c"},
        {"prefix": "b", "end": "a"},
        {"prefix": "b", "start": "ba"},
        {"start_after": "b", "end": "bb"},
        {"prefix": "b", "limit": 2},
        {"prefix": "\U0010ffff"},
    ],
)
async def test_a_range_is_the_same_backwards(objects: VirtualObjects, options: dict[str, Any]) -> None:
    """From the file, where all of it is committed; the last of it first."""
    keys = ["a", "b", "ba", "bb", "c", "\U0010ffff", "\U0010ffffx"]
    expected = [
        key
        for key in keys
        if key.startswith(options.get("prefix", ""))
        and key >= options.get("start", "")
        and key > options.get("start_after", "")
        and key < options.get("end", "\U0010ffff" * 2)
    ]
    limit = options.get("limit")
    await objects.get(Keys, "x").fill(keys)
    forwards = await objects.get(Keys, "x").keys(options)
    backwards = await objects.get(Keys, "x").keys({**options, "reverse": True})

    assert forwards == expected[:limit]
    assert backwards == expected[::-1][:limit]


class Failing(DurableObject):
    """An alarm that fails, and lets a test break the store in the meantime."""

    async def arm(self) -> None:
        await self.ctx.storage.set_alarm(self.env.now() + 1_000)

    async def alarm(self) -> None:
        self.env.break_store()
        raise RuntimeError("as the test asked")


@pytest.mark.parametrize("refused", [False, True])
async def test_a_retry_that_cannot_be_stored_is_made_all_the_same(tmp_path: Path, *, refused: bool) -> None:
    """It is in memory; the log reports it, unless everything is refused, which was already reported."""
    async with opened(tmp_path, Failing) as made:

        def break_store() -> None:
            if refused:
                made.runtime.store.refusal = "the file was deleted"
            else:
                made.runtime.store.crash_point = full_disk

        made.env.break_store = break_store
        await made.stub().arm()
        await asyncio.sleep(10)
        failed = made.runtime.metrics.alarms_failed

    assert failed >= 2
    assert bool(made.log.of("alarm.unsaved")) is not refused


async def test_answered_calls_are_not_remembered(objects: VirtualObjects) -> None:
    """However many there were: a busy object lives for weeks."""
    for number in range(20):
        await objects.get(Counted, "x").put("k", number)
    await asyncio.sleep(0)
    [live] = objects._runtime._live.values()

    assert (len(live._replies), len(live._tasks)) == (0, 0)
