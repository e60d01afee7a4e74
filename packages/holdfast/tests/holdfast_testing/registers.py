"""Registers in a durable object, the behavior of a single copy, and callers that use them concurrently.

python -m holdfast_testing.registers DIRECTORY SEED
    runs callers until it is killed; prints calls and ends
"""

import asyncio
import json
import os
import sys
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, TypeAlias

from holdfast.errors import HoldfastError
from holdfast.local.clock import SystemClock
from holdfast.local.runtime import Runtime
from holdfast.types import DurableObject
from holdfast_testing.captured_log import CapturedLog
from holdfast_testing.stores import make_objects_file

KEYS = ("a", "b")
CALLERS = 4

Registered: TypeAlias = tuple[tuple[str, int], ...]  # of the keys that have a value, in order
EMPTY: Registered = ()


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation. `called` and `ended` are positions in one order of all calls and ends.

    If the result is not `known`, `ended` is the latest time at which the operation can have taken effect.
    """

    name: str
    arguments: tuple[Hashable, ...]
    called: int
    ended: int
    result: Hashable = None
    known: bool = True

    def __str__(self) -> str:
        shown = repr(self.result) if self.known else "?"
        return f"{self.called}-{self.ended} {self.name}{self.arguments} -> {shown}"


class Registers(DurableObject):
    """A few keys with numbers. Each atomic step is a turn or a transaction."""

    async def put(self, key: str, value: int) -> None:
        await self.ctx.storage.put(key, value)

    async def get(self, key: str) -> Any:
        return await self.ctx.storage.get(key)

    async def delete(self, key: str) -> Any:
        return await self.ctx.storage.delete(key)

    async def put_all(self, value: int) -> None:
        for key in KEYS:
            self.ctx.storage.put(key, value)

    async def get_all(self) -> Any:
        return [await self.ctx.storage.get(key) for key in KEYS]

    async def compare_and_set(self, key: str, expected: int | None, value: int) -> Any:
        async def work(txn: Any) -> bool:
            if await txn.get(key) != expected:
                return False
            await asyncio.sleep(0.001)
            await txn.put(key, value)
            return True

        return await self.ctx.storage.transaction(work)

    async def exchange(self) -> None:
        async def work(txn: Any) -> None:
            values = [await txn.get(key) for key in KEYS]
            await asyncio.sleep(0.001)
            for key, value in zip(KEYS, reversed(values), strict=True):
                await (txn.delete(key) if value is None else txn.put(key, value))

        await self.ctx.storage.transaction(work)


def draw_operation(random: Random, numbers: Callable[[], int]) -> tuple[str, tuple[Any, ...]]:
    """Draw any operation. Each number is written only once, so a read shows which write it saw."""
    key = random.choice(KEYS)
    expected = None if random.random() < 0.3 else max(0, numbers() - random.randrange(1, 6))
    return random.choice(
        [
            ("put", (key, numbers())),
            ("get", (key,)),
            ("get_all", ()),
            ("delete", (key,)),
            ("put_all", (numbers(),)),
            ("compare_and_set", (key, expected, numbers())),
            ("exchange", ()),
        ]
    )


class Numbers:
    """Counts 1, 2, 3 and so on; another process uses other numbers."""

    def __init__(self, first: int = 0) -> None:
        self._next = first

    def __call__(self) -> int:
        self._next += 1
        return self._next


async def use_registers(stub: Any, random: Random, numbers: Numbers, recorder: Any, count: int) -> None:
    """Act as one caller that does one operation after the other."""
    for _ in range(count):
        name, arguments = draw_operation(random, numbers)
        called = recorder.call(name, arguments)
        try:
            recorder.end(called, await getattr(stub, name)(*arguments))
        except HoldfastError:
            recorder.end(called, None, known=False)
        await asyncio.sleep(random.choice((0, 0, 0.001)))


class PrintingRecorder:
    """Prints each call and end at once, so the output survives whatever happens to the process."""

    def __init__(self) -> None:
        self._calls = 0

    def call(self, name: str, arguments: tuple[Any, ...]) -> int:
        self._calls += 1
        self._print("call", self._calls, [name, list(arguments)])
        return self._calls

    def end(self, called: int, result: Any, *, known: bool = True) -> None:
        self._print("end", called, [result, known])

    @staticmethod
    def _print(*line: Any) -> None:
        os.write(1, json.dumps(line).encode() + b"\n")


async def use_until_killed(directory: Path, seed: int) -> None:
    path = make_objects_file(directory)
    runtime = Runtime(path, clock=SystemClock(), logger=CapturedLog(), env=None)
    stub = runtime.namespace("TEST", Registers).get_by_name("x")
    await runtime.open()
    recorder, numbers = PrintingRecorder(), Numbers(seed * 1_000_000)
    callers = [use_registers(stub, Random(seed * 10 + n), numbers, recorder, 10**6) for n in range(CALLERS)]
    await asyncio.gather(*callers)


if __name__ == "__main__":
    asyncio.run(use_until_killed(Path(sys.argv[1]), int(sys.argv[2])))
