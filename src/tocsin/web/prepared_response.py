"""A response for many clients: encoded and compressed once, and sent unchanged."""

import gzip
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from starlette.types import Receive, Scope, Send

from tocsin.web.respond import etag_of, is_known
from tocsin.web.security import RawHeaders

STATUS_LINES = {
    200: b"HTTP/1.1 200 OK\r\n",
    304: b"HTTP/1.1 304 Not Modified\r\n",
    429: b"HTTP/1.1 429 Too Many Requests\r\n",
}
PACKET_BYTES = 1_400  # a body that fits into one packet is not worth compressing
LEVEL = 6
LEVEL_LARGE = 1  # a sixth of the time for a fifth more bytes
LARGE_BYTES = 200_000  # other requests wait while a body is compressed


@dataclass(frozen=True, slots=True)
class Form:
    """One form of a response: as two ASGI messages, and as bytes."""

    start: dict[str, Any]
    body: dict[str, Any]
    status_line: bytes
    rest: bytes


class PreparedResponse:
    """An ASGI app that sends two messages: the body, plain or compressed, or a 304 for a client that has it.

    `etag` is that of the content. The compressed body is another representation of it, so its ETag is a weak one.
    """

    def __init__(
        self,
        body: bytes,
        media_type: str,
        headers: RawHeaders = (),
        *,
        etag: bytes | None = None,
        compress: bool,
    ) -> None:
        self.etag = etag_of(body) if etag is None else etag
        self._body = body
        self._is_large = compress and len(body) > PACKET_BYTES
        self._headers = [*headers, *([(b"vary", b"accept-encoding")] if self._is_large else [])]
        self._type = (b"content-type", media_type.encode())
        self.complete = self._form(200, self.etag, body)
        self._unchanged = self._form(304, self.etag, b"")
        self._zipped: tuple[Form, Form] | None = None

    def form_for(self, headers: RawHeaders) -> Form:
        """The response to a request with these headers."""
        is_unchanged = is_zipped = False
        for name, value in headers:
            if name == b"if-none-match":
                is_unchanged = is_known(value, self.etag)
            elif name == b"accept-encoding":
                is_zipped = self._is_large and accepts_gzip(value)
        if is_zipped:
            return self._compressed()[is_unchanged]
        return self._unchanged if is_unchanged else self.complete

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        form = self.form_for(scope["headers"])
        await send(dict(form.start))  # a middleware may add to it
        await send(form.body)

    def _compressed(self) -> tuple[Form, Form]:
        """The compressed forms, with the body and without it. Made on first use."""
        if self._zipped is None:
            weak = b"W/" + self.etag
            body = zipped(self._body)
            complete = self._form(200, weak, body, (b"content-encoding", b"gzip"))
            self._zipped = complete, self._form(304, weak, b"")
        return self._zipped

    def _form(self, status: int, etag: bytes, body: bytes, *more: tuple[bytes, bytes]) -> Form:
        entity = [self._type, (b"content-length", str(len(body)).encode()), *more] if status == 200 else []
        return form_of(status, [*entity, (b"etag", etag), *self._headers], body)


def form_of(status: int, headers: RawHeaders, body: bytes) -> Form:
    head = b"".join(b"%b: %b\r\n" % header for header in headers)
    return Form(
        {"type": "http.response.start", "status": status, "headers": headers},
        {"type": "http.response.body", "body": body},
        STATUS_LINES[status],
        head + b"\r\n" + body,
    )


def zipped(body: bytes) -> bytes:
    return gzip.compress(body, LEVEL if len(body) < LARGE_BYTES else LEVEL_LARGE, mtime=0)


@lru_cache(maxsize=64)
def accepts_gzip(accept_encoding: bytes) -> bool:
    """Whether `Accept-Encoding` allows gzip: by its name or by *, and not with a weight of zero."""
    weights = dict(_weight(part) for part in accept_encoding.decode("latin-1").lower().split(","))
    return weights.get("gzip", weights.get("*", 0.0)) > 0


def _weight(part: str) -> tuple[str, float]:
    name, _, parameters = part.partition(";")
    quality = parameters.strip().removeprefix("q=") if parameters.strip().startswith("q=") else "1"
    try:
        return name.strip(), float(quality)
    except ValueError:
        return name.strip(), 0.0
