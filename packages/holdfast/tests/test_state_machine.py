"""Any sequence of writes, transactions, alarms, failures and restarts, compared with a small model.

The runtime is the real one on a real file; time is virtual. For a crash the files are copied while the
runtime is open, and a new runtime opens the copies.
"""

import asyncio
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from holdfast.errors import ObjectReset
from holdfast.testing.virtual_time import VirtualClock, VirtualLoop
from holdfast.types import AlarmInfo, DurableObject
from holdfast_testing.objects import Objects

KEYS = st.sampled_from(["a", "a\0", "ab", "b", "é", "z"])
VALUES = st.none() | st.integers() | st.text(max_size=3) | st.lists(st.booleans(), max_size=2)
WRITES = st.lists(st.tuples(KEYS, VALUES | st.just("delete")).map(list), max_size=4)
TABLE = "CREATE TABLE IF NOT EXISTS rows (key TEXT PRIMARY KEY, value TEXT)"
DELAYS_MS = st.integers(-5_000, 60_000)


class Subject(DurableObject):
    """Runs the steps of the machine, each write as an entry and as a row, and records each ring of its alarm."""

    def __init__(self, ctx: Any, env: Any) -> None:
        super().__init__(ctx, env)
        self.sql = ctx.storage.sql
        self.sql.exec(TABLE)

    async def write(self, writes: list[Any], how: str) -> None:
        self._apply(writes)
        match how:
            case "raise":
                raise RuntimeError("after writing")
            case "abort":
                self.ctx.abort("before the commit")
            case "suspend and abort":
                await asyncio.sleep(0)
                self._apply([[key, "never"] for key, _ in writes])
                self.ctx.abort("after the commit")

    def _apply(self, writes: list[Any]) -> None:
        for key, value in writes:
            if value == "delete":
                self.ctx.storage.delete(key)
                self.sql.exec("DELETE FROM rows WHERE key = ?", key)
            else:
                self.ctx.storage.put(key, value)
                self.sql.exec("INSERT OR REPLACE INTO rows VALUES (?, ?)", key, json.dumps(value))

    async def transact(self, writes: list[Any], how: str, delay_ms: int | None) -> None:
        async def work(txn: Any) -> None:
            self._apply(writes)
            if delay_ms is not None:
                await txn.set_alarm(self.env.now() + delay_ms)
            await asyncio.sleep(0.01)
            if how == "raise":
                raise RuntimeError("inside the transaction")
            if how == "rollback":
                txn.rollback()

        await self.ctx.storage.transaction(work)

    async def clear(self) -> None:
        await self.ctx.storage.delete_all()
        self.sql.exec(TABLE)

    async def arm(self, delay_ms: int) -> None:
        await self.ctx.storage.set_alarm(self.env.now() + delay_ms)

    async def disarm(self) -> None:
        await self.ctx.storage.delete_alarm()

    async def read(self) -> Any:
        rows = self.sql.exec("SELECT key, value FROM rows ORDER BY key").raw()
        return {
            "entries": await self.ctx.storage.list(),
            "rows": {key: json.loads(value) for key, value in rows},
            "alarm": await self.ctx.storage.get_alarm(),
        }

    async def alarm(self, info: AlarmInfo) -> None:
        self.env.rung.append((info.scheduled_time, info.retry_count, self.env.now()))
        if self.env.failing:
            raise RuntimeError("as the machine asked")


class Machine(RuleBasedStateMachine):
    """The model is a dict and at most one alarm."""

    @initialize()
    def start(self) -> None:
        self.home = Path(tempfile.mkdtemp())
        self.loop = VirtualLoop()
        self.clock = VirtualClock()
        self.entries: dict[str, Any] = {}
        self.alarm_at: int | None = None  # as get_alarm returns it
        self.files = 0
        self._open()

    def _run(self, work: Any) -> Any:
        return self.loop.run_until_complete(work)

    def _open(self) -> None:
        async def opened() -> Objects:
            made = Objects(self.home, Subject, self.clock, chance=lambda: 0.0)
            made.env.rung = []
            made.env.failing = False
            await made.runtime.open()
            return made

        self.made = self._run(opened())

    def _call(self, method: str, *arguments: Any) -> Any:
        async def call() -> Any:
            return await getattr(self.made.stub(), method)(*arguments)

        return self._run(call())

    def _now(self) -> int:
        async def now() -> int:
            return self.clock.now()

        return int(self._run(now()))

    def _model_writes(self, writes: list[Any]) -> None:
        for key, value in writes:
            if value == "delete":
                self.entries.pop(key, None)
            else:
                self.entries[key] = value

    @rule(writes=WRITES, how=st.sampled_from(["return", "raise", "abort", "suspend and abort"]))
    def write(self, writes: list[Any], how: str) -> None:
        """A turn that ends is committed, even if it raises. The writes of an aborted one are dropped."""
        expected = {"raise": RuntimeError, "abort": ObjectReset, "suspend and abort": ObjectReset}
        if how == "return":
            self._call("write", writes, how)
        else:
            with pytest.raises(expected[how]):
                self._call("write", writes, how)
        if how != "abort":
            self._model_writes(writes)

    @rule(
        writes=WRITES,
        how=st.sampled_from(["return", "raise", "rollback"]),
        delay_ms=st.none() | st.integers(1_000, 60_000),
    )
    def transact(self, writes: list[Any], how: str, delay_ms: int | None) -> None:
        """A transaction takes effect completely, with its alarm, or not at all."""
        now = self._now()
        if how == "raise":
            with pytest.raises(RuntimeError, match="inside"):
                self._call("transact", writes, how, delay_ms)
        else:
            self._call("transact", writes, how, delay_ms)
        if how == "return":
            self._model_writes(writes)
            if delay_ms is not None:
                self._armed(now + delay_ms)
        self._check_ring()  # the transaction takes 10 ms: an alarm may have become due

    @rule()
    def clear(self) -> None:
        """delete_all also deletes the alarm."""
        self._call("clear")
        self.entries.clear()
        self.alarm_at = None

    def _armed(self, at: int) -> None:
        self.alarm_at = at

    @rule(delay_ms=DELAYS_MS)
    def arm(self, delay_ms: int) -> None:
        """A time in the past becomes now."""
        now = self._now()
        self._call("arm", delay_ms)
        self._armed(max(now + delay_ms, now))
        self._check_ring()

    @rule()
    def disarm(self) -> None:
        """A deleted alarm never rings."""
        self._call("disarm")
        self.alarm_at = None

    @rule(seconds=st.integers(1, 90))
    def wait(self, seconds: int) -> None:
        """Time passes. An alarm that becomes due rings once, at its time, and is gone."""
        self._run(asyncio.sleep(seconds))
        self._check_ring()

    def _check_ring(self) -> None:
        """Check that an alarm that was due has rung."""
        if self.alarm_at is not None and self._now() >= self.alarm_at:
            self._run(asyncio.sleep(0.01))
            scheduled, _retries, rung_at = self.made.env.rung[-1]
            assert scheduled == self.alarm_at
            assert rung_at >= scheduled
            self.alarm_at = None

    @rule()
    def fail_for_a_while(self) -> None:
        """A failing handler is retried. When it recovers, the same alarm succeeds."""
        if self.alarm_at is not None:
            return
        self.made.env.failing = True
        at = self._now() + 1_000
        self._call("arm", 1_000)
        self._run(asyncio.sleep(4))  # the first run, and its retry after 2 s
        assert [ring[:2] for ring in self.made.env.rung[-2:]] == [(at, 0), (at, 1)]
        assert self._call("read")["alarm"] == at
        self.made.env.failing = False
        self._run(asyncio.sleep(4))
        assert self.made.env.rung[-1][:2] == (at, 2)

    @rule(clean=st.booleans())
    def restart(self, clean: bool) -> None:
        """After a clean end or a crash the next process finds everything that was acknowledged."""
        if clean:
            self._run(self.made.runtime.close())
        else:
            self.files += 1
            copy = self.home / f"after-crash-{self.files}"
            copy.mkdir()
            for file in self.home.glob("objects.sqlite*"):
                shutil.copy(file, copy)
            self._run(self.made.runtime.close())
            for file in copy.iterdir():
                shutil.copy(file, self.home)
            for left in self.home.glob("objects.sqlite*"):
                if not (copy / left.name).exists():
                    left.unlink()
        self._open()
        self._check_ring()

    @invariant()
    def storage_is_what_the_model_says(self) -> None:
        """Compare entries, rows and alarm, read through the object."""
        if not hasattr(self, "made"):
            return
        state = self._call("read")
        assert state["entries"] == self.entries
        assert list(state["entries"]) == sorted(self.entries, key=str.encode)
        assert state["rows"] == self.entries
        assert state["alarm"] == self.alarm_at

    def teardown(self) -> None:
        if hasattr(self, "made"):
            self._run(self.made.runtime.close())
            self.loop.close()
            shutil.rmtree(self.home)


Machine.TestCase.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
TestMachine = pytest.mark.slow(Machine.TestCase)
