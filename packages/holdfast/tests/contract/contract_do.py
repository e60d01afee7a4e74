"""The object of the contract suite. It runs unchanged on both platforms and does not depend on either.

`observe` runs a case by name and returns its observation. The alarm follows a script of what each ring does.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from holdfast.errors import UsageError
from holdfast.storage import Storage
from holdfast.types import AlarmInfo, DurableObject


@dataclass(frozen=True)
class Case:
    """A piece of an object's code, and what it must observe. Its docstring states the rule."""

    name: str
    expected: Any
    run: Callable[["ContractDO"], Awaitable[Any]]


def case(expected: Any) -> Callable[[Callable[["ContractDO"], Awaitable[Any]]], Case]:
    return lambda run: Case(run.__name__, expected, run)


async def refusal(attempt: Callable[[], Any]) -> str:
    """Class and message of the error that an attempt raises."""
    try:
        result = attempt()
        if hasattr(result, "__await__"):
            await result
    except Exception as error:  # noqa: BLE001 - any error is the observation
        return f"{type(error).__name__}: {error}"
    return "accepted"


class ContractDO(DurableObject):
    """Bound as CONTRACT on workerd, as TEST on the local platform."""

    def __init__(self, ctx: Any, env: Any) -> None:
        super().__init__(ctx, env)
        self.storage: Storage = ctx.storage
        self.sql = ctx.storage.sql
        self._rung = asyncio.Event()
        self._constructed_at = env.clock.now()

    async def observe(self, name: str) -> Any:
        return await self.env.cases[name].run(self)

    # Calls

    async def echo(self, value: Any) -> Any:
        return value

    async def fail(self, kind: str) -> None:
        if kind == "usage":
            raise UsageError("give something else")
        if kind == "builtin":
            raise ValueError("not this value")
        raise _OwnError("of my own")

    async def _hidden(self) -> str:
        return "must not be reachable"

    async def get(self, key: str) -> Any:
        return await self.storage.get(key)

    async def put(self, key: str, value: Any) -> None:
        self.storage.put(key, value)

    async def constructed_at(self) -> int:
        at: int = self._constructed_at
        return at

    async def who(self) -> Any:
        return [self.ctx.id.name, str(self.ctx.id)]

    async def bind(self, value: Any) -> None:
        self.env.DB.prepare("SELECT ?").bind(value)

    async def type_of_bound(self, value: Any) -> str:
        row = await self.env.DB.prepare("SELECT CAST(? AS REAL) AS value").bind(value).first()
        return type(row["value"]).__name__

    async def fetched(self, url: str, options: dict[str, Any], body: str | None = None) -> Any:
        content = None if body is None else body.encode()
        try:
            response = await self.env.fetch(url, body=content, **options)
        except Exception as error:  # noqa: BLE001 - the observation
            return f"{type(error).__name__}: {error}"
        return [response.status, dict(response.headers), response.body.decode()]

    async def fetched_at_once(self, url: str, count: int) -> dict[str, int]:
        """Make all calls at the same time. Returns the number of responses, and of each class of error."""
        results = await asyncio.gather(*[self.fetched(url, {}) for _ in range(count)])
        return dict(Counter(result.partition(":")[0] if isinstance(result, str) else "answered" for result in results))

    async def fetched_after_stores(self, url: str, count: int) -> dict[str, int]:
        """The same, after ten calls to each store."""
        for number in range(5):
            await self.env.KV.put("subrequests", str(number))
            await self.env.KV.get("subrequests")
            await self.env.DB.prepare("SELECT 1").all()
            await self.env.DB.batch([self.env.DB.prepare("SELECT 1"), self.env.DB.prepare("SELECT 2")])
        return await self.fetched_at_once(url, count)

    async def rows(self, sql: str) -> list[Any]:
        rows: list[Any] = (await self.env.DB.prepare(sql).all()).results
        return rows

    async def kv_get(self, key: str) -> str | None:
        value: str | None = await self.env.KV.get(key)
        return value

    async def kv_put(self, key: str, value: str) -> None:
        await self.env.KV.put(key, value)

    async def kv_delete(self, key: str) -> None:
        await self.env.KV.delete(key)

    async def wait(self, seconds: float) -> None:
        await self.env.clock.sleep(seconds)

    # The alarm

    async def script(self, in_ms: int, *steps: str) -> int:
        """Arm the alarm. Each ring runs the next step, which may contain "rearm", "delete" and "raise"."""
        at: int = self.env.clock.now() + in_ms
        self.storage.put({"steps": list(steps), "rings": []})
        await self.storage.set_alarm(at)
        return at

    async def alarm(self, info: AlarmInfo) -> None:
        now = self.env.clock.now()
        steps, rings = await self.storage.get("steps"), await self.storage.get("rings")
        step = steps[len(rings)] if len(rings) < len(steps) else "end"
        seen = await self.storage.get_alarm()
        rings.append([step, info.retry_count, info.is_retry, info.scheduled_time, seen])
        late = [*(await self.storage.get("late") or []), now - info.scheduled_time]
        self.storage.put({"rings": rings, "late": late, "rung_in": self._constructed_at, "rung_as": self.ctx.id.name})
        self._rung.set()
        if "rearm" in step:
            self.storage.set_alarm(self.env.clock.now() + 20)
        if "delete" in step:
            self.storage.delete_alarm()
        if "raise" in step:
            raise RuntimeError("as the script says")

    async def rings(self, count: int) -> Any:
        """Wait for this many rings, then return all."""
        while len(rings := await self.storage.get("rings")) < count:
            self._rung.clear()
            await self._rung.wait()
        return rings

    async def alarm_at(self) -> int | None:
        return await self.storage.get_alarm()


class _OwnError(Exception):
    pass
