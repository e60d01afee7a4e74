"""KV on a real file, compared by hypothesis with a model: a dict with expiry times."""

import asyncio
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from holdfast.types import KV, KVList
from support.local_store import open_kv
from support.virtual_time import VirtualClock, VirtualLoop

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
