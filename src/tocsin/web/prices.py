"""`GET /api/prices`: from the cache, never from an upstream.

An answer is encoded once, kept for a second or until a refresh on this process has ended, and sent as it
is to everybody who asks the same. `tocsin.web.app` looks here first, before any routing: nothing else is
asked for as often.
"""

from dataclasses import dataclass
from typing import TypeAlias

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from tocsin.bindings import JSON
from tocsin.errors import RequestRefused
from tocsin.prices.pricing import prices_of
from tocsin.prices.tokens import is_token_id, tracked_tokens
from tocsin.web.respond import etag_of, is_known, json_bytes
from tocsin.web.security import SECURITY_HEADERS, RawHeaders
from tocsin.web.site import Site

TOKENS_MAX = 100
PAGE_AGE_MAX_S = 1.0
PAGES_MAX = 64

Messages: TypeAlias = tuple[dict[str, JSON], dict[str, JSON]]


@dataclass(frozen=True, slots=True)
class Page:
    """An answer, ready to be sent: an ASGI app of two messages."""

    made: float
    etag: bytes
    whole: Messages
    unchanged: Messages

    @classmethod
    def of(cls, value: JSON, made: float) -> "Page":
        body = json_bytes(value)
        etag = etag_of(body)
        headers = [(b"etag", etag), (b"cache-control", b"public, max-age=30"), *SECURITY_HEADERS]
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


class PricePages:
    """The answers of the last second, by query."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._pages: dict[bytes, Page] = {}

    def fresh(self, query: bytes) -> Page | None:
        page = self._pages.get(query)
        if page is None or self._site.clock.monotonic() - page.made > PAGE_AGE_MAX_S:
            return None
        return page

    def forget(self) -> None:
        """Prices have changed."""
        self._pages.clear()

    async def show(self, request: Request) -> ASGIApp:
        query: bytes = request.scope["query_string"]
        page = self.fresh(query)
        if page is None:
            made = self._site.clock.monotonic()
            page = Page.of(await self._value(request.query_params), made)
            self._pages.pop(query, None)
            if len(self._pages) >= PAGES_MAX:
                del self._pages[next(iter(self._pages))]  # the oldest
            self._pages[query] = page
        return page

    async def _value(self, query: QueryParams) -> JSON:
        kv, now = self._site.kv, self._site.clock.now()
        one = query.get("token")
        if one is not None:
            _check([one])
            price = (await prices_of(kv, [one], now)).get(one)
            if price is None:
                return {"tokenId": one, "priceUsd": None, "decimals": None, "fetchedAt": None}
            return {"tokenId": one, **price.to_json()}
        tracked = await tracked_tokens(kv)
        wanted = _ids(query) if "tokens" in query else list(tracked)
        found = await prices_of(kv, wanted, now)
        return {
            "prices": {token_id: price.to_json() for token_id, price in found.items()},
            "missing": [token_id for token_id in wanted if token_id not in found],
            "supportedTokens": list(tracked),
        }


def _ids(query: QueryParams) -> list[str]:
    ids = list(dict.fromkeys(",".join(query.getlist("tokens")).split(",")))
    if len(ids) > TOKENS_MAX:
        sentence = f"At most {TOKENS_MAX} tokens can be asked for at once, not {len(ids)}: ask in parts."
        raise RequestRefused(400, "too_many_tokens", sentence)
    _check(ids)
    return ids


def _check(ids: list[str]) -> None:
    for token_id in ids:
        if not is_token_id(token_id):
            sentence = f"{token_id[:120]!r} is no token id: give `stx`, a contract, or `contract::asset`."
            raise RequestRefused(400, "malformed_token", sentence, token=token_id[:300])


def _messages(status: int, headers: RawHeaders, body: bytes) -> Messages:
    return (
        {"type": "http.response.start", "status": status, "headers": headers},
        {"type": "http.response.body", "body": body},
    )
