"""Answers that many ask for: encoded once, kept for a second, and sent as they are to everybody."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from tocsin.bindings import JSON, Clock
from tocsin.web.respond import etag_of, is_known, json_bytes
from tocsin.web.security import SECURITY_HEADERS, RawHeaders

PAGE_AGE_MAX_S = 1.0
PAGES_MAX = 64

Messages: TypeAlias = tuple[dict[str, JSON], dict[str, JSON]]


@dataclass(frozen=True, slots=True)
class CachedResponse:
    """An answer, ready to be sent: an ASGI app of two messages."""

    made: float
    etag: bytes
    whole: Messages
    unchanged: Messages

    @classmethod
    def of(cls, value: dict[str, JSON], made: float, max_age_s: int) -> "CachedResponse":
        """`asOf` alone makes no other answer: whoever has the rest is told that it is unchanged."""
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
        """The whole answer, or a 304 for whoever has it."""
        for name, value in headers:
            if name == b"if-none-match" and is_known(value, self.etag):
                return self.unchanged
        return self.whole

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        start, body = self.messages(scope["headers"])
        await send(dict(start))  # a middleware may add to it
        await send(body)


class ResponseCache:
    """The answers of the last second to one path, by query."""

    def __init__(
        self, clock: Clock, max_age_s: int, answer: Callable[[QueryParams], Awaitable[dict[str, JSON]]]
    ) -> None:
        self._clock = clock
        self._max_age_s = max_age_s
        self._answer = answer
        self._pages: dict[bytes, CachedResponse] = {}

    def fresh(self, query: bytes) -> CachedResponse | None:
        page = self._pages.get(query)
        if page is None or self._clock.monotonic() - page.made > PAGE_AGE_MAX_S:
            return None
        return page

    def forget(self) -> None:
        """What they tell has changed."""
        self._pages.clear()

    async def show(self, request: Request) -> ASGIApp:
        query: bytes = request.scope["query_string"]
        page = self.fresh(query)
        if page is None:
            made = self._clock.monotonic()
            page = CachedResponse.of(await self._answer(request.query_params), made, self._max_age_s)
            self._pages.pop(query, None)
            if len(self._pages) >= PAGES_MAX:
                del self._pages[next(iter(self._pages))]  # the oldest
            self._pages[query] = page
        return page


def _messages(status: int, headers: RawHeaders, body: bytes) -> Messages:
    return (
        {"type": "http.response.start", "status": status, "headers": headers},
        {"type": "http.response.body", "body": body},
    )
