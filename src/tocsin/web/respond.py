"""How answers are written: JSON, one shape for every error, ETags.

An error is `{error: "a sentence that says how to fix it", code: "a_word", retryable: bool, ...}`. Which
exception becomes which status is in one table; what is not in it is a defect of ours, logged for the
operator and told to nobody else.
"""

import json
from hashlib import blake2b
from http import HTTPStatus
from typing import NamedTuple

from starlette.exceptions import HTTPException
from starlette.responses import Response

from tocsin.bindings import JSON
from tocsin.errors import BindingMissing, ObjectError, RequestRefused, StoreError, UsageError

RETRY_S = 5


class _Told(NamedTuple):
    """What a client is told of an exception; no sentence: the exception's own, which was made for it."""

    status: int
    code: str
    sentence: str | None = None

    @property
    def retryable(self) -> bool:
        return self.status >= 500


# The first that fits counts.
TABLE: tuple[tuple[type[Exception], _Told], ...] = (
    (UsageError, _Told(400, "bad_request")),
    (StoreError, _Told(503, "store_unavailable", "The store cannot be used right now: try again soon.")),
    (ObjectError, _Told(503, "scheduler_unavailable", "The scheduler gave no answer: try again soon.")),
    (BindingMissing, _Told(503, "not_configured")),
    (Exception, _Told(500, "internal_error", "Something went wrong here; the service's log tells what.")),
)


def json_bytes(value: JSON) -> bytes:
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()


def json_response(value: JSON, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(json_bytes(value), status, headers, "application/json")


def refusal_of(error: Exception) -> RequestRefused:
    """The exception as a client may see it."""
    if isinstance(error, RequestRefused):
        return error
    if isinstance(error, HTTPException):
        code = HTTPStatus(error.status_code).name.lower()
        return RequestRefused(error.status_code, code, error.detail, headers=error.headers)
    told = next(told for kind, told in TABLE if isinstance(error, kind))
    headers = {"Retry-After": str(RETRY_S)} if told.status == 503 else {}
    sentence = told.sentence or str(error)
    return RequestRefused(told.status, told.code, sentence, retryable=told.retryable, headers=headers)


def error_response(refusal: RequestRefused) -> Response:
    shape = {"error": str(refusal), "code": refusal.code, "retryable": refusal.retryable, **refusal.fields}
    return json_response(shape, refusal.status, {"Cache-Control": "no-store", **refusal.headers})


def etag_of(body: bytes) -> bytes:
    return b'"%s"' % blake2b(body, digest_size=12).hexdigest().encode()


def is_known(if_none_match: bytes, etag: bytes) -> bool:
    """Whether the client's `If-None-Match` says that it has this body already."""
    known = [part.strip().removeprefix(b"W/") for part in if_none_match.split(b",")]
    return etag in known or known == [b"*"]
