"""How responses are written: JSON, one shape for every error, ETags, security headers, compression.

An error is an `ErrorBody`. One table maps exceptions to statuses. Any other exception is a bug: it is logged for the
operator and not shown to the client. A `PreparedResponse` for many clients is encoded and compressed once, and sent
unchanged; a large response for one request is compressed as it is sent.
"""

import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from holdfast.errors import BindingMissing, ObjectError, StoreError, UsageError
from holdfast.types import JSON
from tocsin.errors import RequestRefused
from tocsin.shape import Shape

# An ASGI extension of our server: sends a response at once, given its status, and the bytes of its headers and body.
# It returns False if the response must be sent as messages. uvicorn formats each header again for each response, which
# costs as much as everything else.
SEND_COMPLETE = "tocsin.send_complete"
RETRY_S = 5
NO_STORE = {"Cache-Control": "no-store"}
PRIVATE = {**NO_STORE, "X-Robots-Tag": "noindex"}  # of routes that need a key
SITE_UNAVAILABLE = "transient_d1_unavailable"
PACKET_BYTES = 1_400  # a body that fits into one packet is not worth compressing
LEVEL = 6
LEVEL_LARGE = 1  # a sixth of the time for a fifth more bytes
LARGE_BYTES = 200_000  # other requests wait while a body is compressed
RawHeaders = Sequence[tuple[bytes, bytes]]
PAGES: Final = ("console",)  # static ones
SECURITY_HEADERS: Final[RawHeaders] = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
)
# For a year, browsers use https only. Sent over https only: over http it could be forged.
STRICT_TRANSPORT: Final = (b"strict-transport-security", b"max-age=31536000")
PAGE_POLICY: Final = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    b"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    b"require-trusted-types-for 'script'; trusted-types 'none'"
)
REVALIDATED: Final = (b"cache-control", b"no-cache")  # cached, but revalidated: a new version shows at once
# Made once, and without the check for cycles: no response contains itself.
_compact = json.JSONEncoder(separators=(",", ":"), allow_nan=False, check_circular=False).encode


@dataclass(frozen=True, slots=True)
class ErrorBody(Shape):
    """Every error has a sentence that explains how to fix it, a code, and whether a retry may help.

    Some errors have further fields.
    """

    error: str
    code: str
    retryable: bool


_NO_ANSWER = "The scheduler did not answer: try again soon; /readyz says why."
# The status, the code and the sentence for an exception; without a sentence, its own. The first match counts.
TABLE: tuple[tuple[type[Exception], int, str, str], ...] = (
    (UsageError, 400, "bad_request", ""),
    (StoreError, 503, "store_unavailable", "The store cannot be used right now: try again soon."),
    (ObjectError, 503, "scheduler_unavailable", _NO_ANSWER),
    (BindingMissing, 503, "not_configured", ""),
    (Exception, 500, "internal_error", "Something went wrong in the service; its log has the cause."),
)


def json_bytes(value: JSON) -> bytes:
    return _compact(value).encode()


def aged(seconds: int) -> dict[str, str]:
    return {"Cache-Control": f"public, max-age={seconds}"}


def json_response(value: JSON, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(json_bytes(value), status, headers, "application/json")


def refusal_of(error: Exception) -> RequestRefused:
    """The refusal that a client gets for an exception."""
    if isinstance(error, RequestRefused):
        return error
    _, status, code, sentence = next(row for row in TABLE if isinstance(error, row[0]))
    headers = {"Retry-After": str(RETRY_S)} if status == 503 else {}
    return RequestRefused(status, code, sentence or str(error), retryable=status >= 500, headers=headers)


def in_site_shape(refusal: RequestRefused) -> RequestRefused:
    """An unavailable database in the form of the site's competition routes, with the sentence in `message`."""
    fields: dict[str, JSON] = {"error": SITE_UNAVAILABLE, "message": str(refusal), "retry_after": RETRY_S}
    return RequestRefused(refusal.status, refusal.code, str(refusal), retryable=True, headers=refusal.headers, **fields)


def error_response(refusal: RequestRefused) -> Response:
    body = ErrorBody(str(refusal), refusal.code, refusal.retryable).to_json() | refusal.fields
    return json_response(body, refusal.status, {**NO_STORE, **refusal.headers})


def etag_of(body: bytes) -> bytes:
    return b'"%s"' % blake2b(body, digest_size=12).hexdigest().encode()


def is_known(if_none_match: bytes, etag: bytes) -> bool:
    """Whether the client has this body, by its `If-None-Match`."""
    known = [part.strip().removeprefix(b"W/") for part in if_none_match.split(b",")]
    return etag in known or known == [b"*"]


def is_https(scope: Mapping[str, object]) -> bool:
    """Whether the client uses https, according to Cloudflare or a trusted proxy (`X-Forwarded-Proto`)."""
    return scope.get("scheme") == "https"


def with_security(headers: RawHeaders, *, https: bool) -> list[tuple[bytes, bytes]]:
    """The headers, plus missing security headers; pages also get a content security policy."""
    names = {name.lower() for name, _ in headers}
    may_be_framed = any(
        name.lower() == b"content-security-policy" and b"frame-ancestors *" in value for name, value in headers
    )
    wanted = [header for header in SECURITY_HEADERS if not (may_be_framed and header[0] == b"x-frame-options")]
    if https:
        wanted.append(STRICT_TRANSPORT)
    if any(name.lower() == b"content-type" and value.startswith(b"text/html") for name, value in headers):
        wanted.append((b"content-security-policy", PAGE_POLICY))
    return [*headers, *((name, value) for name, value in wanted if name not in names)]


def static_headers() -> str:
    """The headers for files that Cloudflare serves itself: the text of its `_headers` file."""
    common = [*SECURITY_HEADERS, STRICT_TRANSPORT, REVALIDATED]
    page = [*common, (b"content-security-policy", PAGE_POLICY)]
    rules = {f"/{name}": page for name in PAGES} | {"/static/*": common}
    return "".join(
        f"{path}\n" + "".join(f"  {name.decode()}: {value.decode()}\n" for name, value in headers)
        for path, headers in rules.items()
    )


class Form(NamedTuple):
    """One form of a response: as two ASGI messages, and as the bytes after its status line."""

    start: dict[str, Any]
    body: dict[str, Any]
    content: bytes


class PreparedResponse:
    """An ASGI app that sends two messages: the body, plain or compressed, or a 304 for a client that has it.

    `etag` is that of the content. The compressed body is another representation of it, so its ETag is a weak one.
    """

    def __init__(
        self, body: bytes, media_type: str, headers: RawHeaders = (), *, etag: bytes | None = None, compress: bool
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
        headers = [*entity, (b"etag", etag), *self._headers]
        start = {"type": "http.response.start", "status": status, "headers": headers}
        lines = b"".join(b"%b: %b\r\n" % header for header in headers)
        return Form(start, {"type": "http.response.body", "body": body}, lines + b"\r\n" + body)


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
