"""Responses that many clients ask for: encoded once, kept for a second, and sent as they are."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Generic, TypeVar

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.types import ASGIApp

from tocsin.bindings import JSON, Clock
from tocsin.errors import RequestRefused, UsageError
from tocsin.shapes.base import SnakeShape
from tocsin.web.prepared_response import PreparedResponse
from tocsin.web.respond import etag_of, json_bytes
from tocsin.web.security import SECURITY_HEADERS, RawHeaders

K = TypeVar("K", bound=Hashable)
L = TypeVar("L", bound=Hashable)

AGE_MAX_S = 1.0
AGE_STALE_MAX_S = 10.0  # while a newer one is computed
RESPONSES_MAX = 64


@dataclass(frozen=True, slots=True)
class CachedResponse:
    """A response and the (monotonic) time when it was made."""

    made: float
    prepared: PreparedResponse


class ResponseCache(Generic[K]):
    """The newest responses to one path, by what is asked for, however that is written.

    `parse` reads the query; what it does not know has no effect. Where requests share a loop (`in_one_loop`), each
    response is computed once however many wait for it, and the one before is sent while a newer one is computed.
    """

    def __init__(
        self,
        clock: Clock,
        max_age_s: int,
        parse: Callable[[QueryParams], K],
        respond: Callable[[K], Awaitable[SnakeShape]],
        *,
        in_one_loop: bool,
        headers: RawHeaders = (),
        compress: bool = False,
    ) -> None:
        self._clock = clock
        self._headers = [
            (b"cache-control", f"public, max-age={max_age_s}".encode()),
            *SECURITY_HEADERS,
            *headers,
        ]
        self._compress = compress
        self._parse = parse
        self._respond = respond
        self._in_one_loop = in_one_loop
        self.foreign: AbstractSet[str] = frozenset()  # parameters that the route refuses or explains
        self.names: AbstractSet[bytes] | None = (
            None  # of all parameters that have an effect, once they are known
        )
        self._responses: dict[K | None, CachedResponse] = {}
        self._by_text: dict[bytes, CachedResponse] = {}  # the same responses, by query as it was written
        self._computing: dict[K | None, asyncio.Task[CachedResponse]] = {}

    def fresh(self, query: bytes) -> PreparedResponse | None:
        """What is kept for this query, however it is written; None if it must be computed, refused or explained."""
        now = self._clock.monotonic()
        cached = self._by_text.get(query)
        if cached is None:
            cached = self._by_text.get(self._relevant(query))
        if cached is None or now - cached.made > AGE_MAX_S:
            key = self._key_of(query)
            cached = self._responses.get(key)
            if cached is None:
                return None
            age_max_s = AGE_STALE_MAX_S if key in self._computing else AGE_MAX_S
            if now - cached.made > age_max_s:
                return None
        return cached.prepared

    def _relevant(self, query: bytes) -> bytes:
        """Without what has no effect: random parameters must not cost more than none."""
        if self.names is None or not query:
            return query
        return b"&".join(part for part in query.split(b"&") if self._has_effect(part.partition(b"=")[0]))

    def _has_effect(self, name: bytes) -> bool:
        assert self.names is not None
        return name in self.names or b"%" in name or b"+" in name  # an encoded name may be any

    def _key_of(self, query: bytes) -> K | None:
        parameters = QueryParams(query)
        if not self.foreign.isdisjoint(parameters):
            return None
        try:
            return self._parse(parameters)
        except (UsageError, RequestRefused):
            return None

    def forget(self) -> None:
        """What they show has changed."""
        self._responses.clear()
        self._by_text.clear()
        self._computing.clear()  # what is under way may not know of the change

    async def show(self, request: Request) -> ASGIApp:
        query: bytes = request.scope["query_string"]
        prepared = self.fresh(query)
        if prepared is None:
            response = await self._response(self._parse(request.query_params))
            _keep(self._by_text, self._relevant(query), response)
            prepared = response.prepared
        return prepared

    async def _response(self, key: K) -> CachedResponse:
        kept = self._responses.get(key)
        age_s = AGE_STALE_MAX_S + 1 if kept is None else self._clock.monotonic() - kept.made
        if kept is not None and age_s <= AGE_MAX_S:
            return kept
        if not self._in_one_loop:
            return await self._compute(key)
        task = self._computing.get(key)
        if task is None:
            task = self._computing[key] = asyncio.create_task(self._compute(key))
            task.add_done_callback(lambda done: self._computed(key, done))
        return kept if kept is not None and age_s <= AGE_STALE_MAX_S else await asyncio.shield(task)

    async def _compute(self, key: K) -> CachedResponse:
        made = self._clock.monotonic()
        shown = (await self._respond(key)).to_json()
        response = CachedResponse(made, self._prepared(shown))
        if not self._in_one_loop:
            _keep(self._responses, key, response)
        return response

    def _prepared(self, shown: dict[str, JSON]) -> PreparedResponse:
        """A new `asOf` alone does not change the ETag."""
        etag = etag_of(json_bytes({**shown, "asOf": None})) if "asOf" in shown else None
        return PreparedResponse(
            json_bytes(shown), "application/json", self._headers, etag=etag, compress=self._compress
        )

    def _computed(self, key: K, task: "asyncio.Task[CachedResponse]") -> None:
        """Keep what was computed, unless it was outdated meanwhile. An error is for those who wait."""
        failed = task.cancelled() or task.exception() is not None
        if self._computing.get(key) is task:
            del self._computing[key]
            if not failed:
                _keep(self._responses, key, task.result())


def _keep(responses: dict[L, CachedResponse], key: L, response: CachedResponse) -> None:
    responses.pop(key, None)
    if len(responses) >= RESPONSES_MAX:
        del responses[next(iter(responses))]  # the oldest
    responses[key] = response
