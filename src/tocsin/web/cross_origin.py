"""Which pages of other sites may read the public API (CORS). Credentials are never allowed."""

from collections.abc import Sequence

from starlette.types import Message, Scope, Send

from tocsin.web.path_patterns import PathPatterns
from tocsin.web.security import RawHeaders

ANY = "*"
PREFLIGHT_AGE_S = 86_400
READS = ("GET", "HEAD")
READABLE = (b"access-control-expose-headers", b"etag, retry-after")


class CrossOrigin:
    """`origins`: those that may read, such as https://aibtc.com; `*` is any. `paths`: what they may read."""

    def __init__(self, origins: Sequence[str]) -> None:
        self._is_any = ANY in origins
        self._origins = frozenset(origin.encode() for origin in origins)
        self.paths = PathPatterns()

    @property
    def fixed_headers(self) -> RawHeaders:
        """The headers of every public response."""
        if self._is_any:
            return [(b"access-control-allow-origin", b"*"), READABLE]
        return [(b"vary", b"origin")] if self._origins else []

    def own_headers(self, headers: RawHeaders) -> RawHeaders:
        """The additional headers of the response to a request with these headers."""
        if self._is_any or not self._origins:
            return ()
        for name, value in headers:
            if name == b"origin" and value in self._origins:
                return [(b"access-control-allow-origin", value), READABLE]
        return ()

    def allowing(self, scope: Scope, send: Send) -> Send:
        """A `send` that adds missing headers to a response, except for posts, which other sites may not read."""
        asks = scope["method"] in READS or self.is_preflight(scope)
        if not asks or self.paths.find(scope["path"]) is None:
            return send

        async def send_allowing(message: Message) -> None:
            if message["type"] == "http.response.start":
                present = set(message["headers"])
                wanted = [*self.fixed_headers, *self.own_headers(scope["headers"])]
                message["headers"] = [*message["headers"], *(each for each in wanted if each not in present)]
            await send(message)

        return send_allowing

    def is_preflight(self, scope: Scope) -> bool:
        """Whether a browser asks if it may read. A preflight for POST must fail: POST needs no permission by name."""
        if scope["method"] != "OPTIONS" or not self._origins or self.paths.find(scope["path"]) is None:
            return False
        wanted = dict(scope["headers"]).get(b"access-control-request-method", b"")
        return wanted.decode("latin-1") in READS

    async def answer_preflight(self, send: Send) -> None:
        headers = [
            (b"access-control-allow-methods", b"GET, HEAD"),
            (b"access-control-allow-headers", b"*"),
            (b"access-control-max-age", str(PREFLIGHT_AGE_S).encode()),
        ]
        await send({"type": "http.response.start", "status": 204, "headers": headers})
        await send({"type": "http.response.body", "body": b""})
