"""What many clients request: computed once, kept for a while, and, as a prepared response, sent without routing."""

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from functools import partial
from typing import Any, Generic, TypeAlias, TypeVar

from starlette.requests import Request
from starlette.types import ASGIApp

from tocsin.shape import SnakeShape
from tocsin.web.deps import WebDeps
from tocsin.web.response import SECURITY_HEADERS, PreparedResponse, RawHeaders, etag_of, json_bytes
from tocsin.web.route import Handler, Operation

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
Values: TypeAlias = tuple[Hashable, ...]
AGE_MAX_S = 1.0
QUERIES_MAX = 256


class SharedResults(Generic[K, V]):
    """The newest results, by key, each for `age_max_s`.

    Where requests share a loop, simultaneous requests wait for one computation. Elsewhere a request must not wait for
    work that another one began, so each computes its own.
    """

    def __init__(self, deps: WebDeps, age_max_s: float, count_max: int = 1) -> None:
        self._deps = deps
        self._age_max_s = age_max_s
        self._count_max = count_max
        self._kept: dict[K, tuple[float, V]] = {}  # with the (monotonic) time when its computation began
        self._computing: dict[K, asyncio.Task[V]] = {}
        self._forgotten = 0

    def fresh(self, key: K) -> V | None:
        kept = self._fresh(key)
        return None if kept is None else kept[1]

    async def get(self, key: K, compute: Callable[[], Coroutine[Any, Any, V]]) -> V:
        """The result. Raises what `compute` raises."""
        kept = self._fresh(key)
        if kept is not None:
            return kept[1]
        if not self._deps.in_one_loop:
            return await self._computed(key, compute)
        task = self._computing.get(key)
        if task is None:
            task = self._computing[key] = asyncio.create_task(self._computed(key, compute))
            task.add_done_callback(lambda done: self._ended(key, done))
        return await asyncio.shield(task)

    def forget(self) -> None:
        """Drop all results. Those being computed are outdated too: they may have missed the change."""
        self._forgotten += 1
        self._kept.clear()
        self._computing.clear()

    def _fresh(self, key: K) -> tuple[float, V] | None:
        kept = self._kept.get(key)
        is_fresh = kept is not None and self._deps.clock.monotonic() - kept[0] < self._age_max_s
        return kept if is_fresh else None

    async def _computed(self, key: K, compute: Callable[[], Coroutine[Any, Any, V]]) -> V:
        began_s, forgotten = self._deps.clock.monotonic(), self._forgotten
        value = await compute()
        if forgotten == self._forgotten:
            keep(self._kept, key, (began_s, value), self._count_max)
        return value

    def _ended(self, key: K, task: "asyncio.Task[V]") -> None:
        """Forget the computation. Its error counts as retrieved: the requests that waited may be gone."""
        if self._computing.get(key) is task:
            del self._computing[key]
        if not task.cancelled():
            task.exception()


def keep(values: dict[K, V], key: K, value: V, count_max: int) -> None:
    """Add a value, and drop the oldest if there are too many."""
    values.pop(key, None)
    if len(values) >= count_max:
        del values[next(iter(values))]
    values[key] = value


class ResponseCache:
    """The newest responses of one operation, by the values of its parameters, however they are written.

    `headers` are those of all its responses, besides `Cache-Control`. What the handler returns depends on these values
    alone.
    """

    def __init__(self, deps: WebDeps, headers: RawHeaders, operation: Operation, handler: Handler) -> None:
        aged = (b"cache-control", f"public, max-age={operation.max_age_s}".encode())
        self._headers = [aged, *SECURITY_HEADERS, *headers]
        self._compress = deps.process.compress
        self._handler = handler
        self._responses: SharedResults[Values, PreparedResponse] = SharedResults(deps, AGE_MAX_S, operation.kept)
        self._keys: dict[bytes, Values] = {}  # of queries that the route accepted, by their text
        self.forget = self._responses.forget

    def fresh(self, query: bytes) -> PreparedResponse | None:
        """The cached response to a query that was accepted before; None if the route must answer."""
        key = self._keys.get(query)
        return None if key is None else self._responses.fresh(key)

    async def show(self, request: Request, **values: Hashable) -> ASGIApp:
        key = tuple(values.values())
        keep(self._keys, request.scope["query_string"], key, QUERIES_MAX)
        return await self._responses.get(key, partial(self._compute, request, values))

    async def _compute(self, request: Request, values: dict[str, Hashable]) -> PreparedResponse:
        """A new `asOf` alone does not change the ETag."""
        answer = await self._handler(request, **values)
        assert isinstance(answer, SnakeShape)
        shown = answer.to_json()
        etag = etag_of(json_bytes({**shown, "asOf": None})) if "asOf" in shown else None
        body, kind = json_bytes(shown), "application/json"
        return PreparedResponse(body, kind, self._headers, etag=etag, compress=self._compress)
