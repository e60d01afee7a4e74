"""Storage, as an object's code sees it."""

import asyncio
import math
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from contract.contract_do import ContractDO, case, refusal
from holdfast import Schedules
from holdfast.storage import StorageTransaction

VALUES: list[Any] = [
    None, True, False, 0, -1, 2**53 + 1, -(10**40), 2.0, 0.1, 1e300,
    "", "a\0b", "é😀", [], {}, [[1, [2.0]], {"é": None}],
]  # fmt: skip


@case(VALUES)
async def values_come_back_exactly(self: ContractDO) -> Any:
    """Integers over 64 bits, floats as floats, None, nested lists and dicts."""
    for number, value in enumerate(VALUES):
        self.storage.put(f"value:{number:02}", value)
    return list((await self.storage.list(prefix="value:")).values())


@case(["float", "int", "bool", "NoneType"])
async def types_are_kept(self: ContractDO) -> Any:
    """2.0 is a float and 2 an integer, although JavaScript has only one of them."""
    self.storage.put("types", [2.0, 2, True, None])
    return [type(value).__name__ for value in await self.storage.get("types")]


NOT_TAKEN = (
    "storage and RPC carry text, integers, finite floats, bool, None, lists and dicts "
    "(convert a tuple to a list, a dataclass to a dict, bytes to text)"
)
TOO_LONG = "takes 2,097,154 bytes as JSON; key and value together may take 2,097,152"


@case(
    [
        f"ValueRefused: the value of 'k' is of type tuple: {NOT_TAKEN}",
        "ValueRefused: the value of 'k'['a'] is nan: only finite floats are stored; use None or text",
        "ValueRefused: the value of 'k' has the key 1 of type int: keys are text",
        "ValueRefused: the key 7 is of type int: keys are text",
        f"ValueRefused: the value of 'k' {TOO_LONG}",
        {},
    ]
)
async def what_is_not_json_is_refused(self: ContractDO) -> Any:
    """With the same error texts on both platforms, and nothing of the call is written."""
    put: Any = self.storage.put
    bad: list[Any] = [("k", (1, 2)), ("k", {"a": math.nan}), ("k", {1: 2}), ({7: 1},), ("k", "x" * 2**21)]
    refusals = [await refusal(partial(put, *arguments)) for arguments in bad]
    await refusal(lambda: put({"good": 1, "k": (1,)}))
    return [*refusals, await self.storage.list()]


@case([None, 1, {"a": 1, "b": None}, True, False, 2, None])
async def entries_are_read_and_deleted(self: ContractDO) -> Any:
    """A missing key is None. Several at once return those that exist. Deletes return what was there."""
    self.storage.put({"b": None, "a": 1, "c": 3})
    seen: list[Any] = [await self.storage.get("nothing"), await self.storage.get("a")]
    seen.append(await self.storage.get(["c?", "b", "a"]))
    seen += [await self.storage.delete("c"), await self.storage.delete("c")]
    seen += [await self.storage.delete(["a", "b", "c"]), await self.storage.get("a")]
    return seen


@case(1)
async def a_put_that_nobody_awaits_is_a_write(self: ContractDO) -> Any:
    """Calls take effect when they are made."""
    self.storage.put("k", 1)
    return await self.storage.get("k")


@case([{"a": 1}, {"a": 1}])
async def values_are_copies(self: ContractDO) -> Any:
    """Changes to a value after its put, or after a get, are not stored."""
    value: Any = {"a": 1}
    self.storage.put("k", value)
    value["a"] = 2
    first = dict(await self.storage.get("k"))
    (await self.storage.get("k"))["a"] = 3
    return [first, await self.storage.get("k")]


KEYS = ["10", "9", "B", "a", "a\0", "ab", "b", "é", "\uffff", "😀"]


@case(
    [
        KEYS,
        KEYS[::-1],
        ["a", "a\0", "ab"],
        ["ab", "b"],
        ["a\0", "ab"],
        ["b", "ab"],
        ["B", "a", "a\0"],
        [],
        "ValueRefused: list() takes start or start_after, not both",
        "ValueRefused: list() takes a limit of 1 or more, not 0; omit it for all entries",
    ]
)
async def lists_are_in_byte_order(self: ContractDO) -> Any:
    """With start, start_after, end, prefix, reverse and limit."""
    self.storage.put(dict.fromkeys(sorted(KEYS), 1))
    ranges: list[dict[str, Any]] = [
        {},
        {"reverse": True},
        {"prefix": "a"},
        {"start": "ab", "end": "é"},
        {"prefix": "a", "start_after": "a"},
        {"start": "ab", "end": "é", "reverse": True},
        {"start": "B", "limit": 3},
        {"start": "b", "end": "a"},
    ]
    seen: list[Any] = [list(await self.storage.list(**one)) for one in ranges]
    seen.append(await refusal(lambda: self.storage.list(start="a", start_after="a")))
    seen.append(await refusal(lambda: self.storage.list(limit=0)))
    return seen


@case(50)
async def nothing_comes_between_a_get_and_its_put(self: ContractDO) -> Any:
    """While code awaits storage, no other code of the object runs."""
    self.storage.put("n", 0)

    async def add_one() -> None:
        self.storage.put("n", await self.storage.get("n") + 1)

    await asyncio.gather(*[add_one() for _ in range(50)])
    return await self.storage.get("n")


@case(["kept", {"k": "kept"}])
async def a_transaction_keeps_its_writes(self: ContractDO) -> Any:
    """Those through the transaction and those through storage, even after a suspension."""

    async def work(transaction: StorageTransaction) -> str:
        transaction.put("k", "first")
        await self.env.clock.sleep(0.01)
        self.storage.put("k", "kept")
        return "kept"

    return [await self.storage.transaction(work), await self.storage.list()]


@case(["KeyError: 'own'", {"k": 0}, True])
async def a_transaction_that_raises_leaves_nothing(self: ContractDO) -> Any:
    """Neither entries nor the alarm, and the caller gets the same error."""
    self.storage.put("k", 0)

    async def work(transaction: StorageTransaction) -> None:
        transaction.put({"k": 1, "more": 1})
        transaction.set_alarm(self.env.clock.now() + 3_600_000)
        raise KeyError("own")

    error = await refusal(lambda: self.storage.transaction(work))
    return [error, await self.storage.list(), await self.storage.get_alarm() is None]


@case(
    [
        "done",
        "UsageError: Cannot put() on rolled back transaction",
        "UsageError: Cannot call delete_all() within a transaction",
        {},
    ]
)
async def a_transaction_can_be_rolled_back(self: ContractDO) -> Any:
    """Afterwards it cannot be used. delete_all cannot be used in a transaction."""
    seen: list[Any] = []

    async def work(transaction: StorageTransaction) -> str:
        transaction.put("k", 1)
        deleted = await refusal(self.storage.delete_all)
        transaction.rollback()
        seen.extend([await refusal(lambda: transaction.put("k", 2)), deleted])
        return "done"

    return [await self.storage.transaction(work), *seen, await self.storage.list()]


@case(["ValueError: no", {"a": 1, "c": 3}, "result"])
async def a_synchronous_transaction_is_all_or_nothing(self: ContractDO) -> Any:
    """It returns the value of its work, and raises its error."""
    self.storage.put("a", 1)

    def broken() -> None:
        self.storage.put("b", 2)
        raise ValueError("no")

    def fine() -> str:
        self.storage.put("c", 3)
        return "result"

    error = await refusal(lambda: self.storage.transaction_sync(broken))
    result = self.storage.transaction_sync(fine)
    return [error, await self.storage.list(), result]


@case([{}, None, 1])
async def delete_all_deletes_everything(self: ContractDO) -> Any:
    """Entries and alarm. Later writes stay."""
    self.storage.put({"a": 1, "b": 2})
    await self.storage.set_alarm(self.env.clock.now() + 3_600_000)
    await self.storage.delete_all()
    seen = [await self.storage.list(), await self.storage.get_alarm()]
    self.storage.put("c", 1)
    await self.storage.sync()
    return [*seen, await self.storage.get("c")]


@case([1, "long", 2, None, 3, None])
async def a_read_follows_every_write(self: ContractDO) -> Any:
    """Whether the entry is short or long, and also after it was deleted with all others."""
    seen: list[Any] = []

    async def read_later() -> None:
        await self.storage.sync()
        value = await self.storage.get("k")
        seen.append("long" if value == "x" * 5_000 else value)

    for value in (1, "x" * 5_000, 2):
        self.storage.put("k", value)
        await read_later()
    self.storage.delete("k")
    await read_later()
    self.storage.put("k", 3)
    await read_later()
    self.storage.delete_all()
    await read_later()
    return seen


@case([None, 5_000_000_000_000, 6_000_000_000_000, None, True, True])
async def there_is_one_alarm(self: ContractDO) -> Any:
    """The last setting counts, fractions of a millisecond are cut, and a time in the past becomes now."""
    seen: list[Any] = [await self.storage.get_alarm()]
    await self.storage.set_alarm(5_000_000_000_000.75)
    seen.append(await self.storage.get_alarm())
    self.storage.set_alarm(6_000_000_000_000)
    seen.append(await self.storage.get_alarm())
    await self.storage.delete_alarm()
    seen.append(await self.storage.get_alarm())
    before = self.ctx.now()
    self.storage.put({"steps": [], "rings": []})
    self.storage.set_alarm(timedelta(hours=1))
    in_an_hour = await self.storage.get_alarm() or 0
    self.storage.set_alarm(1)
    at = await self.storage.get_alarm()
    return [*seen, 3_600_000 <= in_an_hour - before <= 3_700_000, at is None or at >= before]


@case(
    [
        "ValueRefused: set_alarm() cannot be called with an alarm time <= 0",
        "ValueRefused: set_alarm() cannot be called with nan: it is not a time",
        "ValueRefused: set_alarm() cannot be called with a time after the year 2189",
        "ValueRefused: set_alarm() takes unix milliseconds, an aware datetime or a timedelta, not str",
    ]
)
async def bad_times_are_refused(self: ContractDO) -> Any:
    """With the same error texts."""
    set_alarm: Any = self.storage.set_alarm
    return [await refusal(partial(set_alarm, at)) for at in (0, math.nan, 9e15, "tomorrow")]


class Jobs(Schedules):
    """Uses the storage of another object."""

    async def count(self) -> int:
        count = int(await self.ctx.storage.get("count") or 0) + 1
        await self.ctx.storage.put("count", count)
        return count

    async def fail(self) -> None:
        raise ConnectionError("nobody answers")


@case([[1, 2], True, [None, None], "ConnectionError: nobody answers", [True, None]])
async def an_object_has_jobs(self: ContractDO) -> Any:
    """They run by hand and by the alarm, are recorded, and set the next alarm."""
    jobs = Jobs(self.ctx, self.env)
    await jobs.schedule("count", every=timedelta(minutes=5))
    await jobs.schedule("fail", cron="0 0 1 * *")
    results = [await jobs.run_now("count")]
    await jobs.schedule("count", at=datetime.fromtimestamp(1, UTC))
    await jobs.schedule("fail", at=datetime.fromtimestamp(1, UTC))
    await jobs.alarm()
    stored = await jobs.jobs()
    results.append(await self.storage.get("count"))
    runs = stored["count"]["history"]
    next_times = [stored[name]["next_at"] for name in ("count", "fail")]
    await jobs.schedule("count", cron="*/5 * * * *")
    armed = await self.storage.get_alarm() or 0
    ahead = 0 < armed - self.ctx.now() <= 300_000
    await jobs.unschedule("count")
    error = stored["fail"]["history"][0]["error"]
    return [
        results,
        [run["due_at"] for run in runs] == [1000, None],
        next_times,
        error,
        [ahead, await self.storage.get_alarm()],
    ]


@case([True, True])
async def background_work_and_critical_sections_run(self: ContractDO) -> Any:
    """`wait_until` runs work in the background. `block_concurrency_while` returns the value of its work."""
    done = asyncio.Event()

    async def background() -> None:
        done.set()

    self.ctx.wait_until(background())
    await done.wait()

    async def alone() -> bool:
        await self.env.clock.sleep(0.001)
        return True

    return [done.is_set(), await self.ctx.block_concurrency_while(alone)]
