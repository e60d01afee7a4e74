"""Live objects at their bounds: what a reset takes with it, when one is evicted, how long code may run."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from support.objects import objects
from support.virtual_time import VirtualClock
from tocsin.bindings import DurableObject
from tocsin.errors import ObjectReset
from tocsin.platform.local.objects import object_store


class Counted(DurableObject):
    """Counts its instances, and hands its storage out."""

    def __init__(self, ctx: Any, env: Any) -> None:
        super().__init__(ctx, env)
        env.built = getattr(env, "built", 0) + 1

    async def leak(self) -> None:
        self.env.leaked = self.ctx.storage

    async def put(self, key: str, value: Any) -> None:
        await self.ctx.storage.put(key, value)

    async def get(self, key: str) -> Any:
        return await self.ctx.storage.get(key)

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


async def test_the_storage_of_a_reset_object_is_broken_with_it(tmp_path: Path) -> None:
    """Code that outlives its object can neither read nor write, and is told why."""
    async with objects(tmp_path, Counted) as made:
        await made.stub().leak()
        await made.stub().put("k", 1)
        storage = made.env.leaked
        with pytest.raises(ObjectReset, match="the object gave up"):
            await made.stub().put_and_abort("k")
        uses = [
            lambda: storage.get("k"),
            lambda: storage.put("k", 2),
            lambda: storage.delete("k"),
            lambda: storage.list(),
            lambda: storage.get_alarm(),
            lambda: storage.delete_alarm(),
            lambda: storage.transaction_sync(lambda: None),
        ]
        for use in uses:
            with pytest.raises(ObjectReset, match="the object gave up"):
                await use()
        kept = await made.stub().get("k")

    assert kept == 1
    assert made.env.built == 2


async def test_an_object_is_evicted_after_ten_idle_seconds(tmp_path: Path) -> None:
    """Counted from its last work: at 9.9 s it is the same instance, at 10.1 s another."""
    async with objects(tmp_path, Counted) as made:
        await made.stub().get("k")
        for _ in range(3):
            await asyncio.sleep(9.9)
            await made.stub().get("k")
        same = made.env.built
        await asyncio.sleep(10.1)
        await made.stub().get("k")

    assert (same, made.env.built) == (1, 2)


async def test_a_section_may_take_thirty_seconds(tmp_path: Path) -> None:
    """One that takes longer resets the object, which says that it is overloaded."""
    async with objects(tmp_path, Counted) as made:
        in_time = await made.stub().hang_in_section(29.9)
        with pytest.raises(ObjectReset, match="the limit is 30 s") as reset:
            await made.stub().hang_in_section(30.1)

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
async def test_an_alarm_may_take_fifteen_minutes(tmp_path: Path, takes_s: float, resets: int) -> None:
    """One that takes longer is a failure, and is retried."""
    async with objects(tmp_path, Slow) as made:
        made.env.ended = False
        await made.stub().arm(takes_s)
        await asyncio.sleep(901)
        ended = made.env.ended
        metrics = made.runtime.metrics

        assert (metrics.objects_reset, metrics.alarms_failed, ended) == (resets, resets, not resets)


async def test_a_failure_that_nobody_waits_for_is_in_the_log(tmp_path: Path) -> None:
    """Of `wait_until`; the object goes on."""
    async with objects(tmp_path, Counted) as made:
        await made.stub().fail_later()
        await asyncio.sleep(2)
        lines = made.log.named("wait_until.failed")

    assert [line["error"] for line in lines] == ["RuntimeError('nobody waits for this')"]
    assert made.env.built == 1


async def test_every_open_call_fails_with_the_reason_of_a_reset(tmp_path: Path) -> None:
    """Each with an error of its own; calls on a stub that was there before fail, too, a new stub works."""
    async with objects(tmp_path, Counted) as made:
        stub = made.stub()
        waiting = [stub.hang(60) for _ in range(3)]
        await asyncio.sleep(1)
        with pytest.raises(ObjectReset):
            await stub.put_and_abort("k")
        failures = await asyncio.gather(*waiting, return_exceptions=True)
        with pytest.raises(ObjectReset, match="the object gave up"):
            await stub.get("k")
        fresh = await made.stub().get("k")

    assert [str(failure) for failure in failures] == ["the object gave up"] * 3
    assert len({id(failure) for failure in failures}) == 3
    assert fresh is None


async def test_a_runtime_that_closes_ends_all_code(tmp_path: Path) -> None:
    """Who waits is told that the process stops; nothing runs on, and no timer is left."""
    async with objects(tmp_path, Counted) as made:
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
    """Two hours of failures later the alarm rings; a call meanwhile gets the reason."""
    async with objects(tmp_path, Picky, chance=lambda: 0.0) as made:
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


class Disk:
    """Syncs that take as long as a test says, by their own measure."""

    def __init__(self, *took_s: float) -> None:
        self.took_s = list(took_s)
        self.in_thread: list[bool] = []

    def sync(self, _fd: int) -> float:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            self.in_thread.append(True)
        else:
            self.in_thread.append(False)
        return self.took_s.pop(0) if self.took_s else 0.0001


async def test_after_a_slow_sync_the_next_ones_are_made_in_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A millisecond is slow; when syncs stay quick, they return to the loop after a while."""
    disk = Disk(0.0009, 0.0011)
    async with objects(tmp_path, Counted) as made:
        await made.stub().get("k")
        monkeypatch.setattr(object_store, "_timed_sync", disk.sync)
        for number in range(12):
            await made.stub().put("k", number)

    assert disk.in_thread[:3] == [False, False, True]
    assert not disk.in_thread[-1]
    assert sum(disk.in_thread) == 5  # until 0.0011 s has decayed by 2 % for each sync


async def test_writes_that_are_refused_reset_the_object_and_are_not_kept(tmp_path: Path) -> None:
    """As after a file was deleted under the process: the reason reaches the caller, reads go on."""
    async with objects(tmp_path, Counted) as made:
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
    """An alarm that is set for the same millisecond as one before is another one: each rings once."""
    clock = VirtualClock()
    async with objects(tmp_path, Picky, clock=clock) as made:
        await made.stub().arm(1_000)
        before = made.runtime.store.next_generation()
    async with objects(tmp_path, Picky, clock=clock) as made:
        after = made.runtime.store.next_generation()

    assert (before, after) == (2, 2)  # one alarm is stored, and each process counts on from it
