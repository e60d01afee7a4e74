"""Responses that many clients request: computed once, kept for a second, and sent without routing."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Hashable
from functools import partial
from typing import Any, Generic, TypeVar

from starlette.requests import Request
from starlette.types import ASGIApp

from holdfast.types import Clock
from tocsin.shape import SnakeShape
from tocsin.web.deps import WebDeps
from tocsin.web.response import SECURITY_HEADERS, PreparedResponse, RawHeaders, etag_of, json_bytes

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
AGE_MAX_S = 1.0
AGE_STALE_MAX_S = 10.0  # while a newer one is computed
RESPONSES_MAX = 64
QUERIES_MAX = 256


class SharedResults(Generic[K, V]):
    """The newest results, by key.

    Where requests share a loop (`in_one_loop`), simultaneous requests wait for one computation. Elsewhere a request
    must not wait for work that another one began, so each computes its own.
    """

    def __init__(self, count_max: int, *, in_one_loop: bool) -> None:
        self._count_max = count_max
        self._in_one_loop = in_one_loop
        self._kept: dict[K, V] = {}
        self._computing: dict[K, asyncio.Task[V]] = {}
        self._forgotten = 0

    def get(self, key: K) -> V | None:
        return self._kept.get(key)

    def is_computing(self, key: K) -> bool:
        return key in self._computing

    def start(self, key: K, compute: Callable[[], Coroutine[Any, Any, V]]) -> None:
        """Compute a result for later requests. Only where requests share a loop."""
        self._task(key, compute)

    async def computed(self, key: K, compute: Callable[[], Coroutine[Any, Any, V]]) -> V:
        """A new result. Raises what `compute` raises."""
        if self._in_one_loop:
            return await asyncio.shield(self._task(key, compute))
        forgotten = self._forgotten
        value = await compute()
        if forgotten == self._forgotten:
            keep(self._kept, key, value, self._count_max)
        return value

    def forget(self) -> None:
        """Drop all results. Those being computed are outdated too: they may have missed the change."""
        self._forgotten += 1
        self._kept.clear()
        self._computing.clear()

    def _task(self, key: K, compute: Callable[[], Coroutine[Any, Any, V]]) -> "asyncio.Task[V]":
        task = self._computing.get(key)
        if task is None:
            task = self._computing[key] = asyncio.create_task(compute())
            task.add_done_callback(lambda done: self._ended(key, done))
        return task

    def _ended(self, key: K, task: "asyncio.Task[V]") -> None:
        """Keep the result, unless it has become outdated. An error is raised in the waiting requests."""
        failed = task.cancelled() or task.exception() is not None
        if self._computing.get(key) is task:
            del self._computing[key]
            if not failed:
                keep(self._kept, key, task.result(), self._count_max)


def keep(values: dict[K, V], key: K, value: V, count_max: int) -> None:
    """Add a value, and drop the oldest if there are too many."""
    values.pop(key, None)
    if len(values) >= count_max:
        del values[next(iter(values))]
    values[key] = value


class ResponseCache(Generic[K]):
    """The newest responses of one path, by the meaning of the query, however it is written.

    Where requests share a loop (`in_one_loop`), each response is computed once however many wait for it, and the
    previous one is sent while a newer one is computed.
    """

    def __init__(
        self,
        clock: Clock,
        max_age_s: int,
        respond: Callable[[K], Awaitable[SnakeShape]],
        *,
        in_one_loop: bool,
        headers: RawHeaders = (),
        compress: bool = False,
        responses_max: int = RESPONSES_MAX,
    ) -> None:
        self._clock = clock
        self._headers = [(b"cache-control", f"public, max-age={max_age_s}".encode()), *SECURITY_HEADERS, *headers]
        self._compress = compress
        self._respond = respond
        self._in_one_loop = in_one_loop
        # Each response with the (monotonic) time when it was made.
        self._responses: SharedResults[K, tuple[float, PreparedResponse]]
        self._responses = SharedResults(responses_max, in_one_loop=in_one_loop)
        self._keys: dict[bytes, K] = {}  # the meaning of queries that the route accepted, by their text
        self.forget = self._responses.forget

    def fresh(self, query: bytes) -> PreparedResponse | None:
        """The cached response to a query that was accepted before; None if the route must answer."""
        key = self._keys.get(query)
        kept = None if key is None else self._responses.get(key)
        if key is None or kept is None:
            return None
        age_s = self._clock.monotonic() - kept[0]
        is_shown = age_s <= AGE_MAX_S or (age_s <= AGE_STALE_MAX_S and self._responses.is_computing(key))
        return kept[1] if is_shown else None

    async def show(self, request: Request, query: K) -> ASGIApp:
        keep(self._keys, request.scope["query_string"], query, QUERIES_MAX)
        kept = self._responses.get(query)
        age_s = AGE_STALE_MAX_S + 1 if kept is None else self._clock.monotonic() - kept[0]
        if kept is None or age_s > (AGE_STALE_MAX_S if self._in_one_loop else AGE_MAX_S):
            kept = await self._responses.computed(query, partial(self._compute, query))
        elif age_s > AGE_MAX_S:
            self._responses.start(query, partial(self._compute, query))
        return kept[1]

    async def _compute(self, query: K) -> tuple[float, PreparedResponse]:
        """A new `asOf` alone does not change the ETag."""
        made = self._clock.monotonic()
        shown = (await self._respond(query)).to_json()
        etag = etag_of(json_bytes({**shown, "asOf": None})) if "asOf" in shown else None
        body, kind = json_bytes(shown), "application/json"
        return made, PreparedResponse(body, kind, self._headers, etag=etag, compress=self._compress)


def cache_for(
    deps: WebDeps,
    headers: RawHeaders,
    max_age_s: int,
    respond: Callable[[K], Awaitable[SnakeShape]],
    responses_max: int = RESPONSES_MAX,
) -> ResponseCache[K]:
    """A cache for a route of this application; `headers` are those of all its responses."""
    options = {"in_one_loop": deps.in_one_loop, "compress": deps.compress}
    return ResponseCache(deps.clock, max_age_s, respond, headers=headers, responses_max=responses_max, **options)
