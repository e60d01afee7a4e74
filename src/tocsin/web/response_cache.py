"""Responses that many clients ask for: encoded once, kept for a second, and sent as they are."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from tocsin.bindings import JSON, Clock
from tocsin.shapes.base import SnakeShape
from tocsin.web.respond import etag_of, is_known, json_bytes
from tocsin.web.security import SECURITY_HEADERS, RawHeaders

K = TypeVar("K", bound=Hashable)
L = TypeVar("L", bound=Hashable)

AGE_MAX_S = 1.0
AGE_STALE_MAX_S = 10.0  # while a newer one is computed
RESPONSES_MAX = 64

Messages: TypeAlias = tuple[dict[str, Any], dict[str, Any]]  # two ASGI messages


@dataclass(frozen=True, slots=True)
class CachedResponse:
    """A response that is ready to be sent: an ASGI app of two messages."""

    made: float
    etag: bytes
    complete: Messages
    unchanged: Messages

    @classmethod
    def of(cls, value: dict[str, JSON], made: float, max_age_s: int) -> "CachedResponse":
        """A new `asOf` alone does not change the ETag."""
        body = json_bytes(value)
        etag = etag_of(json_bytes({**value, "asOf": None}) if "asOf" in value else body)
        headers = [
            (b"etag", etag),
            (b"cache-control", f"public, max-age={max_age_s}".encode()),
            *SECURITY_HEADERS,
        ]
        entity = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            *headers,
        ]
        return cls(made, etag, _messages(200, entity, body), _messages(304, headers, b""))

    def messages(self, headers: RawHeaders) -> Messages:
        """The complete response, or a 304 for a client that has it."""
        for name, value in headers:
            if name == b"if-none-match" and is_known(value, self.etag):
                return self.unchanged
        return self.complete

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        start, body = self.messages(scope["headers"])
        await send(dict(start))  # a middleware may add to it
        await send(body)


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
    ) -> None:
        self._clock = clock
        self._max_age_s = max_age_s
        self._parse = parse
        self._respond = respond
        self._in_one_loop = in_one_loop
        self._responses: dict[K, CachedResponse] = {}
        self._by_text: dict[bytes, CachedResponse] = {}  # the same responses, by query as it was written
        self._computing: dict[K, asyncio.Task[CachedResponse]] = {}

    def fresh(self, query: bytes) -> CachedResponse | None:
        cached = self._by_text.get(query)
        if cached is None or self._clock.monotonic() - cached.made > AGE_MAX_S:
            return None
        return cached

    def forget(self) -> None:
        """What they show has changed."""
        self._responses.clear()
        self._by_text.clear()
        self._computing.clear()  # what is under way may not know of the change

    async def show(self, request: Request) -> ASGIApp:
        query: bytes = request.scope["query_string"]
        response = self.fresh(query)
        if response is None:
            response = await self._response(self._parse(request.query_params))
            _keep(self._by_text, query, response)
        return response

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
        response = CachedResponse.of(shown, made, self._max_age_s)
        if not self._in_one_loop:
            _keep(self._responses, key, response)
        return response

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


def _messages(status: int, headers: RawHeaders, body: bytes) -> Messages:
    return (
        {"type": "http.response.start", "status": status, "headers": headers},
        {"type": "http.response.body", "body": body},
    )
