"""How responses are written: JSON, one shape for every error, ETags.

An error is an `ErrorBody`. One table maps exceptions to statuses. Any other exception is a bug: it is logged for the
operator and not shown to the client.
"""

import json
from hashlib import blake2b
from http import HTTPStatus
from typing import NamedTuple

from starlette.exceptions import HTTPException
from starlette.responses import Response

from tocsin.bindings import JSON
from tocsin.errors import BindingMissing, ObjectError, RequestRefused, StoreError, UsageError
from tocsin.shapes.responses import ErrorBody

RETRY_S = 5
SITE_UNAVAILABLE = "transient_d1_unavailable"

# Made once, and without the check for cycles: no response contains itself.
_compact = json.JSONEncoder(separators=(",", ":"), allow_nan=False, check_circular=False).encode


class _ErrorResponse(NamedTuple):
    """The response to an exception. Without a sentence, it has the exception's own."""

    status: int
    code: str
    sentence: str | None = None

    @property
    def retryable(self) -> bool:
        return self.status >= 500


# The first match counts.
TABLE: tuple[tuple[type[Exception], _ErrorResponse], ...] = (
    (UsageError, _ErrorResponse(400, "bad_request")),
    (
        StoreError,
        _ErrorResponse(503, "store_unavailable", "The store cannot be used right now: try again soon."),
    ),
    (
        ObjectError,
        _ErrorResponse(503, "scheduler_unavailable", "The scheduler did not answer: try again soon."),
    ),
    (BindingMissing, _ErrorResponse(503, "not_configured")),
    (
        Exception,
        _ErrorResponse(500, "internal_error", "Something went wrong in the service; its log has the cause."),
    ),
)


def json_bytes(value: JSON) -> bytes:
    return _compact(value).encode()


def json_response(value: JSON, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(json_bytes(value), status, headers, "application/json")


def refusal_of(error: Exception) -> RequestRefused:
    """The refusal that a client gets for an exception."""
    if isinstance(error, RequestRefused):
        return error
    if isinstance(error, HTTPException):
        code = HTTPStatus(error.status_code).name.lower()
        return RequestRefused(error.status_code, code, error.detail, headers=error.headers)
    shown = next(shown for kind, shown in TABLE if isinstance(error, kind))
    headers = {"Retry-After": str(RETRY_S)} if shown.status == 503 else {}
    sentence = shown.sentence or str(error)
    return RequestRefused(shown.status, shown.code, sentence, retryable=shown.retryable, headers=headers)


def in_site_shape(refusal: RequestRefused) -> RequestRefused:
    """An unavailable database in the form of the site's competition routes, with the sentence in `message`."""
    fields: dict[str, JSON] = {
        "error": SITE_UNAVAILABLE,
        "message": str(refusal),
        "retry_after": RETRY_S,
    }
    return RequestRefused(
        refusal.status,
        refusal.code,
        str(refusal),
        retryable=True,
        headers=refusal.headers,
        **fields,
    )


def error_response(refusal: RequestRefused) -> Response:
    body = ErrorBody(str(refusal), refusal.code, refusal.retryable).to_json() | refusal.fields
    return json_response(body, refusal.status, {"Cache-Control": "no-store", **refusal.headers})


def etag_of(body: bytes) -> bytes:
    return b'"%s"' % blake2b(body, digest_size=12).hexdigest().encode()


def is_known(if_none_match: bytes, etag: bytes) -> bool:
    """Whether the client has this body, by its `If-None-Match`."""
    known = [part.strip().removeprefix(b"W/") for part in if_none_match.split(b",")]
    return etag in known or known == [b"*"]
