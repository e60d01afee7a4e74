"""Calls to an object are linearizable, whatever is killed and when: the checker itself, and the real runtime.

In virtual time the files are copied at a random moment or at a random step of a commit, as a kill leaves them (all that
was written) or a power cut (only what was synced), and the next runtime opens the copy. Once, real processes get
SIGKILL. Rings of alarms are not part of it: they are delivered at least once, which `test_crash.py` checks.
"""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Generic, TypeVar

import pytest

from holdfast.local import object_store
from holdfast.local.live_object import LiveObject
from holdfast.testing.virtual_time import VirtualClock
from holdfast.types import DurableObject
from holdfast_testing.objects import Objects
from holdfast_testing.registers import CALLERS, EMPTY, KEYS, Numbers, Operation, Registered, Registers, use_registers

TESTS = Path(__file__).parent

S = TypeVar("S", bound=Hashable)


def apply_to_registers(state: Registered, operation: Operation) -> tuple[Registered, Hashable]:
    """Apply an operation to a single copy."""
    values: dict[str, Any] = dict(state)
    result: Hashable = None
    match operation.name, operation.arguments:
        case "put", (str(key), value):
            values[key] = value
        case "get", (str(key),):
            result = values.get(key)
        case "delete", (str(key),):
            result = values.pop(key, None) is not None
        case "put_all", (value,):
            values = dict.fromkeys(KEYS, value)
        case "get_all", ():
            result = tuple(values.get(key) for key in KEYS)
        case "compare_and_set", (str(key), expected, value):
            result = values.get(key) == expected
            if result:
                values[key] = value
        case "exchange", ():
            swapped = zip(KEYS, reversed([values.get(key) for key in KEYS]), strict=True)
            values = {key: value for key, value in swapped if value is not None}
        case _:
            raise AssertionError(f"no such operation: {operation}")
    return tuple(sorted(values.items())), result


@dataclass
class HistoryRecorder:
    """Records operations as their callers see them. Results that arrive after `kill` are ignored."""

    operations: list[Operation] = field(default_factory=list)
    _places: int = 0
    _under_way: dict[int, tuple[str, tuple[Any, ...]]] = field(default_factory=dict)

    def call(self, name: str, arguments: tuple[Any, ...]) -> int:
        self._places += 1
        self._under_way[self._places] = name, arguments
        return self._places

    def end(self, called: int, result: Any, *, known: bool = True) -> None:
        if called not in self._under_way:
            return  # the process was killed before the caller could learn this
        name, arguments = self._under_way.pop(called)
        self._places += 1
        shown = tuple(result) if isinstance(result, list) else result
        self.operations.append(Operation(name, arguments, called, self._places, shown, known))

    def kill(self) -> None:
        """Note the kill: every operation under way has taken effect by now, or never will."""
        self._places += 1
        for called, (name, arguments) in self._under_way.items():
            self.operations.append(Operation(name, arguments, called, self._places, known=False))
        self._under_way.clear()


@dataclass(frozen=True, slots=True)
class LinearizabilityVerdict:
    """`order` explains the history, or is the longest one found; `unplaced` are the operations that did not fit."""

    linearizable: bool
    order: tuple[Operation, ...]
    unplaced: tuple[Operation, ...]

    def __str__(self) -> str:
        placed = "\n".join(map(str, self.order[-10:]))
        return f"after\n{placed}\nnone of these fits:\n" + "\n".join(map(str, self.unplaced[:10]))


@dataclass(frozen=True, slots=True)
class _Step(Generic[S]):
    """The placed operations as a bit set, the resulting state, and the previous step."""

    placed: int
    state: S
    last: Operation | None
    before: "_Step[S] | None"

    def order(self) -> tuple[Operation, ...]:
        operations, step = [], self
        while step.before is not None:
            if step.last is not None:
                operations.append(step.last)
            step = step.before
        return tuple(reversed(operations))


def check_history(
    history: Sequence[Operation], start: S, apply: Callable[[S, Operation], tuple[S, Hashable]]
) -> LinearizabilityVerdict:
    """Check a history. `apply` is what a single copy does: from state and operation to next state and result.

    It is linearizable if each operation can be assigned an instant between its call and its end such that all results
    are those of a single copy that does one operation after the other. An operation whose caller never learned the
    result, because the process was killed, may have taken effect at any instant until then, or not at all.

    The search is that of Wing and Gong: take any operation that no unplaced one precedes, and backtrack if its result
    does not fit. As Lowe proposes, failed combinations of placed operations and state are remembered, so that none is
    tried twice.
    """
    operations = sorted(history, key=lambda each: each.called)
    complete = (1 << len(operations)) - 1
    todo, seen = [_Step(0, start, None, None)], {(0, start)}
    furthest = todo[0]
    while todo:
        step = todo.pop()
        if step.placed == complete:
            return LinearizabilityVerdict(True, step.order(), ())
        if step.placed.bit_count() > furthest.placed.bit_count():
            furthest = step
        for following in _following(operations, step, apply):
            if (following.placed, following.state) not in seen:
                seen.add((following.placed, following.state))
                todo.append(following)
    unplaced = [each for number, each in enumerate(operations) if not furthest.placed >> number & 1]
    return LinearizabilityVerdict(False, furthest.order(), tuple(unplaced))


def _following(
    operations: Sequence[Operation], step: _Step[S], apply: Callable[[S, Operation], tuple[S, Hashable]]
) -> list[_Step[S]]:
    """Return all possible next steps: no unplaced operation may have ended before the call of the next one."""
    steps: list[_Step[S]] = []
    first_end = min(each.ended for number, each in enumerate(operations) if not step.placed >> number & 1)
    for number, operation in enumerate(operations):
        if operation.called > first_end:
            break
        if step.placed >> number & 1:
            continue
        placed = step.placed | 1 << number
        if not operation.known:
            steps.append(_Step(placed, step.state, None, step))  # it did not take effect
        state, result = apply(step.state, operation)
        if not operation.known or result == operation.result:
            steps.append(_Step(placed, state, operation, step))
    return steps


def op(name: str, *arguments: Any, at: tuple[int, int], result: Any = None, known: bool = True) -> Operation:
    return Operation(name, arguments, *at, result, known)


def is_linearizable(*history: Operation) -> bool:
    return check_history(history, EMPTY, apply_to_registers).linearizable


# The checker


@pytest.mark.parametrize(
    "history",
    [
        (),
        (op("put", "a", 1, at=(1, 2)), op("get", "a", at=(3, 4), result=1)),
        # A read during a write may see either.
        (op("put", "a", 1, at=(1, 4)), op("get", "a", at=(2, 3), result=None)),
        (op("put", "a", 1, at=(1, 4)), op("get", "a", at=(2, 3), result=1)),
        # Two writes at once: in either order.
        (op("put", "a", 1, at=(1, 4)), op("put", "a", 2, at=(2, 3)), op("get", "a", at=(5, 6), result=1)),
        # A killed write was done, or was not.
        (op("put", "a", 1, at=(1, 2), known=False), op("get", "a", at=(3, 4), result=1)),
        (op("put", "a", 1, at=(1, 2), known=False), op("get", "a", at=(3, 4), result=None)),
        # Of two callers one sets it.
        (
            op("compare_and_set", "a", None, 1, at=(1, 3), result=True),
            op("compare_and_set", "a", None, 2, at=(2, 4), result=False),
        ),
        # The classic of Herlihy and Wing, as registers: reads that overlap writes and agree on an order.
        (
            op("put", "a", 1, at=(1, 6)),
            op("get", "a", at=(2, 4), result=None),
            op("get", "a", at=(3, 5), result=1),
            op("get", "a", at=(7, 8), result=1),
        ),
    ],
)
def test_linearizable_histories(history: tuple[Operation, ...]) -> None:
    assert is_linearizable(*history)


@pytest.mark.parametrize(
    "history",
    [
        # An acknowledged write is lost.
        (op("put", "a", 1, at=(1, 2)), op("get", "a", at=(3, 4), result=None)),
        # A read sees what was never written, or not yet.
        (op("get", "a", at=(1, 2), result=1),),
        (op("get", "a", at=(1, 2), result=1), op("put", "a", 1, at=(3, 4))),
        # Two reads in a row see the old value after the new one.
        (op("put", "a", 1, at=(1, 6)), op("get", "a", at=(2, 3), result=1), op("get", "a", at=(4, 5), result=None)),
        # Both set it.
        (
            op("compare_and_set", "a", None, 1, at=(1, 3), result=True),
            op("compare_and_set", "a", None, 2, at=(2, 4), result=True),
        ),
        # Half of a transaction.
        (op("put_all", 1, at=(1, 4)), op("get_all", at=(2, 3), result=(1, None))),
        # A killed write takes effect after the next process has begun.
        (
            op("put", "a", 1, at=(1, 2), known=False),
            op("get", "a", at=(3, 4), result=None),
            op("get", "a", at=(5, 6), result=1),
        ),
        # What a read has shown cannot be undone by a power cut.
        (
            op("put", "a", 1, at=(1, 4), known=False),
            op("get", "a", at=(2, 3), result=1),
            op("get", "a", at=(5, 6), result=None),
        ),
    ],
)
def test_histories_that_are_not_linearizable(history: tuple[Operation, ...]) -> None:
    assert not is_linearizable(*history)


def test_the_verdict_shows_an_order_or_what_does_not_fit() -> None:
    put, late = op("put", "a", 1, at=(1, 4)), op("get", "a", at=(2, 3), result=None)
    lost = op("get", "a", at=(5, 6), result=None)

    assert check_history([put, late], EMPTY, apply_to_registers).order == (late, put)
    verdict = check_history([put, late, lost], EMPTY, apply_to_registers)
    assert verdict.unplaced == (lost,)
    assert "5-6 get('a',) -> None" in str(verdict)


def test_many_operations_at_once_are_decided() -> None:
    """Nine concurrent puts, any of which may be the last: without memoization this is 9! orders."""
    puts = [op("put", "a", number, at=(number, 100 + number)) for number in range(1, 10)]

    assert is_linearizable(*puts, op("get", "a", at=(200, 201), result=5))
    assert not is_linearizable(*puts, op("get", "a", at=(200, 201), result=10))


# The runtime, in virtual time


class Kill:
    """Copies what is on the disk, at a random time or step of a commit."""

    def __init__(self, made: Objects, directory: Path, copy: Path, random: Random) -> None:
        self._store = made.runtime.store
        self._directory, self._copy = directory, copy
        self._power_cut = random.random() < 0.5
        self._steps_left = random.randrange(1, 60) if random.random() < 0.7 else None
        self._synced = self._size = os.fstat(self._store._log_fd).st_size
        self.happened = asyncio.Event()
        self.recorder: HistoryRecorder | None = None
        self._store.crash_point = self._step
        if self._steps_left is None:
            asyncio.get_running_loop().call_later(random.uniform(0.0, 0.03), self.now)

    def _step(self, step: str, _connection: Any) -> None:
        if step == "before sync":
            self._size = os.fstat(self._store._log_fd).st_size
        elif step == "after sync":
            self._synced = self._size
        if self._steps_left is not None:
            self._steps_left -= 1
            if self._steps_left == 0:
                self.now()

    def now(self) -> None:
        if self.happened.is_set() or self.recorder is None:
            return
        self._copy.mkdir()
        shutil.copy(self._directory / "objects.sqlite", self._copy)
        log = (self._directory / "objects.sqlite-wal").read_bytes()
        (self._copy / "objects.sqlite-wal").write_bytes(log[: self._synced] if self._power_cut else log)
        self.recorder.kill()
        self.happened.set()


async def life(home: Path, cls: type[DurableObject], seed: int, kills: int) -> HistoryRecorder:
    """Processes one after the other, each killed; the last one reads everything and ends by itself."""
    random, recorder, numbers, clock = Random(seed), HistoryRecorder(), Numbers(), VirtualClock()
    directory = home / "0"
    directory.mkdir()
    for number in range(1, kills + 1):
        made = Objects(directory, cls, clock)
        await made.runtime.open()
        copy = home / str(number)
        kill = Kill(made, directory, copy, random)
        kill.recorder = recorder
        callers = [
            asyncio.ensure_future(use_registers(made.stub(), Random(random.random()), numbers, recorder, 10**6))
            for _ in range(CALLERS)
        ]
        await kill.happened.wait()
        for caller in callers:
            caller.cancel()
        await asyncio.gather(*callers, return_exceptions=True)
        await made.runtime.close()
        directory = copy
    last = Objects(directory, cls, clock)
    await last.runtime.open()
    called = recorder.call("get_all", ())
    recorder.end(called, await last.stub().get_all())
    await last.runtime.close()
    return recorder


async def first_violation(home: Path, cls: type[DurableObject], seeds: range) -> LinearizabilityVerdict | None:
    """The verdict on the first history of these seeds that is not linearizable."""
    for seed in seeds:
        place = home / f"seed-{seed}"
        place.mkdir()
        history = (await life(place, cls, seed, kills=4)).operations
        assert len(history) > 10
        verdict = check_history(history, EMPTY, apply_to_registers)
        if not verdict.linearizable:
            return verdict
    return None


@pytest.mark.slow
@pytest.mark.parametrize("disk_s", [10.0, 0.0], ids=["quick disk", "slow disk"])
async def test_calls_are_linearizable_under_kills(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, disk_s: float
) -> None:
    monkeypatch.setattr(object_store, "QUICK_DISK_S", disk_s)
    violation = await first_violation(tmp_path, Registers, range(8))
    assert violation is None, violation


async def test_the_order_of_one_seed_is_always_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_store, "QUICK_DISK_S", 10.0)
    (tmp_path / "first").mkdir()
    (tmp_path / "second").mkdir()
    first = await life(tmp_path / "first", Registers, 1, kills=2)
    second = await life(tmp_path / "second", Registers, 1, kills=2)

    assert first.operations == second.operations


# Runtimes and objects that are broken: the checker must find it


@pytest.mark.slow
async def test_replies_before_the_commit_is_durable_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def at_once(_self: LiveObject) -> None:
        return

    monkeypatch.setattr(LiveObject, "durable", at_once)
    sync = object_store._timed_sync

    def slow_sync(fd: int) -> float:
        time.sleep(0.002)
        return sync(fd)

    monkeypatch.setattr(object_store, "QUICK_DISK_S", 0.0)  # on a quick disk nothing could happen in between
    monkeypatch.setattr(object_store, "_timed_sync", slow_sync)
    assert await first_violation(tmp_path, Registers, range(8, 24))


@pytest.mark.slow
async def test_a_lost_commit_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    apply, commits = object_store.ObjectStore._apply, Numbers()

    def forgetful(store: object_store.ObjectStore, owner: Any, changes: Any) -> None:
        if commits() % 20:
            apply(store, owner, changes)

    monkeypatch.setattr(object_store.ObjectStore, "_apply", forgetful)
    assert await first_violation(tmp_path, Registers, range(4, 10))


class TornRegisters(Registers):
    """Compares and sets in two steps, between which others have their turn."""

    async def compare_and_set(self, key: str, expected: int | None, value: int) -> Any:
        if await self.ctx.storage.get(key) != expected:
            return False
        await asyncio.sleep(0.001)
        await self.ctx.storage.put(key, value)
        return True

    async def exchange(self) -> None:
        values = [await self.ctx.storage.get(key) for key in ("a", "b")]
        await asyncio.sleep(0.001)
        for key, value in zip(("b", "a"), values, strict=True):
            await (self.ctx.storage.delete(key) if value is None else self.ctx.storage.put(key, value))


async def test_steps_that_are_not_one_transaction_are_found(tmp_path: Path) -> None:
    assert await first_violation(tmp_path, TornRegisters, range(4))


# Real processes


@pytest.mark.slow
def test_calls_are_linearizable_under_kill_9(tmp_path: Path) -> None:
    recorder, random = HistoryRecorder(), Random(5)
    for seed in range(1, 4):
        live_until_killed(tmp_path, seed, random.randrange(40, 160), recorder)

    assert len(recorder.operations) > 60
    verdict = check_history(recorder.operations, EMPTY, apply_to_registers)
    assert verdict.linearizable, verdict


def live_until_killed(directory: Path, seed: int, ends: int, recorder: HistoryRecorder) -> None:
    """Run a process with callers; kill it when this many operations have ended, in the middle of others."""
    command = [sys.executable, "-m", "holdfast_testing.registers", str(directory), str(seed)]
    with subprocess.Popen(command, cwd=TESTS, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        calls: dict[int, int] = {}
        for line in process.stdout:
            if not line.endswith("\n"):
                break  # it was killed while it printed
            kind, number, values = json.loads(line)
            if kind == "call":
                calls[number] = recorder.call(values[0], tuple(values[1]))
            else:
                recorder.end(calls[number], values[0], known=values[1])
                ends -= 1
            if ends == 0:
                process.send_signal(signal.SIGKILL)
        process.wait()
    recorder.kill()
