"""KV: text under keys, with expiry, in byte order, within Cloudflare's limits."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from holdfast.errors import ObjectReset, StoreUnavailable, UsageError, ValueRefused
from holdfast.local.kv import SqliteKV
from holdfast.local.turns import GATE
from holdfast.rules import KEY_BYTES_MAX, VALUE_BYTES_MAX
from holdfast.testing.virtual_time import VirtualClock, VirtualLoop
from holdfast.types import KV, KVList
from holdfast_testing.stores import open_kv

EVERY_PLANE = "".join(chr(plane * 0x10000 + 0x42) for plane in range(17)) + "\0\x7f\x80\ud7ff\ue000\uffff\U0010ffff"


NOT_TEXT: tuple[Any, ...] = (b"bytes", 1, None, {"a": 1})


async def rows(kv: SqliteKV) -> int:
    count = await kv._thread.run(lambda connection: connection.execute("SELECT count(*) FROM entries").fetchone()[0])
    assert isinstance(count, int)
    return count


@pytest.mark.parametrize("text", ["", "plain", "a\0b\0", EVERY_PLANE, "\r\n\u2028", '{"priceUsd": null}'])
async def test_text_comes_back_as_it_went(tmp_path: Path, text: str) -> None:
    """Any text is a valid value and, after a letter, a valid key: with NULs and all planes of Unicode."""
    async with open_kv(tmp_path, VirtualClock()) as kv:
        await kv.put(f"k{text}", text)

        assert await kv.get(f"k{text}") == text
        assert await kv.get_many(["absent", f"k{text}"]) == {f"k{text}": text}
        assert (await kv.list()).keys == [f"k{text}"]

        await kv.delete(f"k{text}")

        assert await kv.get(f"k{text}") is None


@pytest.mark.slow
async def test_the_largest_value_fits_and_one_byte_more_does_not(tmp_path: Path) -> None:
    """The limit counts bytes of UTF-8, not characters."""
    async with open_kv(tmp_path, VirtualClock()) as kv:
        largest = "é" * (VALUE_BYTES_MAX // 2)
        await kv.put("k", largest)
        with pytest.raises(ValueRefused, match=f"{VALUE_BYTES_MAX + 1} bytes"):
            await kv.put("k", largest + "x")

        assert await kv.get("k") == largest


@pytest.mark.parametrize("key", ["", ".", "..", "x" * (KEY_BYTES_MAX + 1), "é" * (KEY_BYTES_MAX // 2 + 1), None, 7])
async def test_a_key_that_cloudflare_refuses_is_refused(tmp_path: Path, key: str) -> None:
    """Each call names the key's problem before it does anything."""
    async with open_kv(tmp_path, VirtualClock()) as kv:
        calls: list[Callable[[], Awaitable[object]]] = [
            lambda: kv.get(key),
            lambda: kv.get_many(["fine", key]),
            lambda: kv.put(key, "v"),
            lambda: kv.delete(key),
        ]
        for call in calls:
            with pytest.raises(UsageError, match="key"):
                await call()


@pytest.mark.parametrize(
    ("call", "error", "sentence"),
    [
        (lambda kv: kv.put("k\ud800", "v"), ValueRefused, "surrogate at position 1"),
        (lambda kv: kv.put("k", "\udfff"), ValueRefused, "value of .k. .*surrogate"),
        (lambda kv: kv.list(prefix="\ud800"), ValueRefused, "prefix"),
        *(
            (lambda kv, value=value: kv.put("k", value), ValueRefused, f"'k'.*{type(value).__name__}")
            for value in NOT_TEXT
        ),
        *(
            (lambda kv, ttl=ttl: kv.put("k", "v", expiration_ttl=ttl), UsageError, "whole seconds, 60 to")
            for ttl in (0, -1, 1, 59, 60.0, True, "60", 10**12)
        ),
        *((lambda kv, limit=limit: kv.list(limit=limit), UsageError, "1 to 1000") for limit in (0, -1, 1001)),
        (lambda kv: kv.list(prefix="b:", cursor="a:1"), UsageError, "another prefix"),
        (lambda kv: kv.get_many([f"k{number}" for number in range(101)]), UsageError, "split the call"),
    ],
)
async def test_what_cloudflare_refuses_is_refused(
    tmp_path: Path, call: Callable[[SqliteKV], Awaitable[object]], error: type[Exception], sentence: str
) -> None:
    """With the reason, and nothing is written."""
    async with open_kv(tmp_path, VirtualClock()) as kv:
        with pytest.raises(error, match=sentence):
            await call(kv)

        assert await rows(kv) == 0


async def test_an_entry_is_returned_until_it_expires_and_never_after(tmp_path: Path) -> None:
    """It is there until the last millisecond, then gone for get, get_many and list."""
    clock = VirtualClock()
    async with open_kv(tmp_path, clock) as kv:
        await kv.put("k", "v", expiration_ttl=60)
        clock.jump(59_999)

        assert await kv.get("k") == "v"

        clock.jump(1)

        assert await kv.get("k") is None
        assert await kv.get_many(["k"]) == {}
        assert (await kv.list()).keys == []


async def test_a_new_value_replaces_the_expiry_too(tmp_path: Path) -> None:
    """Each put sets when its entry expires, or that it does not."""
    clock = VirtualClock()
    async with open_kv(tmp_path, clock) as kv:
        await kv.put("longer", "1", expiration_ttl=60)
        await kv.put("longer", "2", expiration_ttl=120)
        await kv.put("for ever", "1", expiration_ttl=60)
        await kv.put("for ever", "2")
        clock.jump(60_000)

        assert await kv.get_many(["longer", "for ever"]) == {"longer": "2", "for ever": "2"}


async def test_pages_follow_each_other_without_loss_or_repetition(tmp_path: Path) -> None:
    """The cursor continues after the last name, even if names were added and removed in between."""
    async with open_kv(tmp_path, VirtualClock()) as kv:
        for name in ("a", "b", "c", "d"):
            await kv.put(name, "v")
        first = await kv.list(limit=2)
        await kv.delete("b")
        await kv.put("b\0", "v")
        second = await kv.list(limit=2, cursor=first.cursor)
        third = await kv.list(limit=2, cursor=second.cursor)

    assert (first.keys, second.keys, third.keys, third.cursor) == (["a", "b"], ["b\0", "c"], ["d"], None)


async def test_a_hundred_keys_at_once_are_read(tmp_path: Path) -> None:
    """No keys give no values."""
    async with open_kv(tmp_path, VirtualClock()) as kv:
        await kv.put("k7", "v")

        assert await kv.get_many([f"k{number}" for number in range(100)]) == {"k7": "v"}
        assert await kv.get_many([]) == {}


async def test_every_call_waits_for_the_output_gate(tmp_path: Path) -> None:
    """An object that was reset neither reads nor writes."""

    async def reset() -> None:
        raise ObjectReset("reset")

    async with open_kv(tmp_path, VirtualClock()) as kv:
        await kv.put("k", "v")
        GATE.set(reset)
        calls: list[Callable[[], Awaitable[object]]] = [
            lambda: kv.get("k"),
            lambda: kv.get_many(["k"]),
            lambda: kv.put("k", "x"),
            lambda: kv.delete("k"),
            kv.list,
        ]
        for call in calls:
            with pytest.raises(ObjectReset):
                await call()
        GATE.set(None)

        assert await kv.get("k") == "v"


async def test_entries_survive_a_restart_and_a_closed_store_raises(tmp_path: Path) -> None:
    """Entries are there when the file is opened again. Calls on the closed store raise StoreUnavailable."""
    clock = VirtualClock()
    async with open_kv(tmp_path, clock) as kv:
        await asyncio.gather(*(kv.put(f"k{number}", str(number)) for number in range(20)))
    for call in (kv.get("k1"), kv.put("k1", "x")):
        with pytest.raises(StoreUnavailable, match="closed"):
            await call
    async with open_kv(tmp_path, clock) as kv:
        assert len((await kv.list()).keys) == 20


async def test_one_write_removes_a_hundred_expired_entries(tmp_path: Path) -> None:
    """No write takes long, however many have expired at once. Live entries stay."""
    clock = VirtualClock()
    async with open_kv(tmp_path, clock) as kv:
        for number in range(250):
            await kv.put(f"k{number}", "v", expiration_ttl=60)
        clock.jump(60_000)
        left = []
        for _ in range(3):
            await kv.put("live", "v")
            left.append(await rows(kv))

        assert left == [151, 51, 1]
        assert (await kv.list()).keys == ["live"]


T = TypeVar("T")

# Few letters, so that keys collide; among them those that are hard to order and to use as a prefix.
LETTERS = st.sampled_from(["a", "b", ":", "\0", "\x7f", "é", "\ud7ff", "\ue000", "\uffff", "🐍", "\U0010ffff"])
PREFIXES = st.text(LETTERS, max_size=2)
KEYS = st.text(LETTERS, min_size=1, max_size=3)
TTLS = st.none() | st.integers(60, 70)


class KVModel(RuleBasedStateMachine):
    """Every step runs on both, and both must return the same."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner(loop_factory=VirtualLoop)
        self.stack = AsyncExitStack()
        self.directory = TemporaryDirectory()
        self.clock = VirtualClock()
        self.model: dict[str, tuple[str, int | None]] = {}
        self.kv: KV

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    def now(self) -> int:
        async def read() -> int:
            return self.clock.now()

        return self.do(read())

    def live(self) -> dict[str, str]:
        now = self.now()
        return {key: value for key, (value, at) in self.model.items() if at is None or at > now}

    @initialize()
    def open(self) -> None:
        self.kv = self.do(self.stack.enter_async_context(open_kv(Path(self.directory.name), self.clock)))

    @rule(key=KEYS, value=st.text(max_size=5), ttl=TTLS)
    def put(self, key: str, value: str, ttl: int | None) -> None:
        self.do(self.kv.put(key, value, expiration_ttl=ttl))
        self.model[key] = (value, None if ttl is None else self.now() + ttl * 1000)

    @rule(key=KEYS)
    def delete(self, key: str) -> None:
        self.do(self.kv.delete(key))
        self.model.pop(key, None)

    @rule(seconds=st.sampled_from([1, 30, 59, 60, 61]))
    def time_passes(self, seconds: int) -> None:
        self.clock.jump(seconds * 1000)

    @rule()
    def restart(self) -> None:
        self.do(self.stack.aclose())
        self.open()

    @rule(prefix=PREFIXES, limit=st.integers(1, 4))
    def list_in_pages(self, prefix: str, limit: int) -> None:
        keys: list[str] = []
        page = KVList([], None)
        while not keys or page.cursor is not None:
            page = self.do(self.kv.list(prefix=prefix, limit=limit, cursor=page.cursor))
            assert len(page.keys) == limit or page.cursor is None
            keys += page.keys
            if not page.keys:
                break

        assert keys == sorted((key for key in self.live() if key.startswith(prefix)), key=str.encode)

    @rule(keys=st.lists(KEYS, max_size=5))
    def get_many(self, keys: list[str]) -> None:
        live = self.live()

        assert self.do(self.kv.get_many(keys)) == {key: live[key] for key in keys if key in live}

    @invariant()
    def every_key_has_the_value_of_the_model(self) -> None:
        if hasattr(self, "kv"):
            live = self.live()
            for key in self.model:
                assert self.do(self.kv.get(key)) == live.get(key)

    def teardown(self) -> None:
        self.do(self.stack.aclose())
        self.runner.close()
        self.directory.cleanup()


TestKVModel = KVModel.TestCase
TestKVModel.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)
