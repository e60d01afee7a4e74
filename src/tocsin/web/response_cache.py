"""Responses that many clients ask for: encoded once, kept for a second, and sent as they are."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from tocsin.bindings import JSON, Clock
from tocsin.shapes.base import SnakeShape
from tocsin.web.respond import etag_of, is_known, json_bytes
from tocsin.web.security import SECURITY_HEADERS, RawHeaders

AGE_MAX_S = 1.0
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


class ResponseCache:
    """The responses of the last second to one path, by query."""

    def __init__(
        self, clock: Clock, max_age_s: int, respond: Callable[[QueryParams], Awaitable[SnakeShape]]
    ) -> None:
        self._clock = clock
        self._max_age_s = max_age_s
        self._respond = respond
        self._responses: dict[bytes, CachedResponse] = {}

    def fresh(self, query: bytes) -> CachedResponse | None:
        cached = self._responses.get(query)
        if cached is None or self._clock.monotonic() - cached.made > AGE_MAX_S:
            return None
        return cached

    def forget(self) -> None:
        """What they show has changed."""
        self._responses.clear()

    async def show(self, request: Request) -> ASGIApp:
        query: bytes = request.scope["query_string"]
        cached = self.fresh(query)
        if cached is None:
            made = self._clock.monotonic()
            cached = CachedResponse.of(
                (await self._respond(request.query_params)).to_json(), made, self._max_age_s
            )
            self._responses.pop(query, None)
            if len(self._responses) >= RESPONSES_MAX:
                del self._responses[next(iter(self._responses))]  # the oldest
            self._responses[query] = cached
        return cached


def _messages(status: int, headers: RawHeaders, body: bytes) -> Messages:
    return (
        {"type": "http.response.start", "status": status, "headers": headers},
        {"type": "http.response.body", "body": body},
    )
