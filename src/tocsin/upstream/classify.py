"""Assigns an HTTP response to a class of answer. Pure; one table for all upstreams.

A 404 is `NotFound` only if it comes from the API itself. An unknown route or an HTML page is a bad request or a
malformed answer: as "not found", it would make every price and every swap disappear.
"""

import re
from dataclasses import dataclass
from typing import ClassVar

from tocsin.bindings import FetchResponse
from tocsin.errors import MalformedBody
from tocsin.upstream.answer import (
    BadRequest,
    Failure,
    Gone,
    Limited,
    Malformed,
    NotFound,
    Ok,
    Unauthorised,
    Unavailable,
)
from tocsin.upstream.decode import decode, printable


@dataclass(frozen=True, slots=True)
class Moved:
    """A redirect; the client decides whether to follow it."""

    kind: ClassVar[str] = "moved"
    url: str


HEALTHY = (Ok, NotFound, Moved)

# The wording of Fastify, Express and Kong.
_UNKNOWN_ROUTE = re.compile(r"(?:Route|Cannot) [A-Z]+[: ]|no route\b", re.IGNORECASE)


def classify(  # noqa: PLR0911 - one return per row of the table
    response: FetchResponse, name: str, key_setting: str, url_setting: str, closed_until: int
) -> NotFound | Moved | Failure | None:
    """The class of a response. None means: parse the body. `closed_until` is when a limited caller may ask again."""
    status = response.status
    match status:
        case 200:
            return None
        case 301 | 302 | 303 | 307 | 308 if response.headers.get("location"):
            return Moved(response.headers["location"])
        case 401 | 403:
            return Unauthorised(f"{name} refuses our key ({status}): check {key_setting}")
        case 404:
            return _not_found(response, name, url_setting)
        case 410:
            return Gone(f"{name} has switched this endpoint off (410): Tocsin must move to its successor")
        case 429:
            return Limited(closed_until, f"{name} answered 429: too many calls")
        case 408 | 425:
            return Unavailable(f"{name} answered {status}")
    if 400 <= status < 500:
        return BadRequest(f"{name} rejects our request ({status})", status, _message(response.body))
    if 500 <= status < 600:
        return Unavailable(f"{name} answered {status}")
    return Malformed(f"{name} answered {status}, which is not expected here")


def _not_found(response: FetchResponse, name: str, url_setting: str) -> NotFound | BadRequest | Malformed:
    if not response.body:
        return NotFound()
    try:
        decode(response.body)
    except MalformedBody:
        return Malformed(f"{name} answered 404 without its usual JSON: check {url_setting}")
    message = _message(response.body)
    if _UNKNOWN_ROUTE.match(message):
        return BadRequest(f"{name} does not know this route: check {url_setting}", 404, message)
    return NotFound()


def _message(body: bytes) -> str:
    """The upstream's error message, if the body is JSON and has one."""
    try:
        value = decode(body)
    except MalformedBody:
        return ""
    message = value.get("message") if isinstance(value, dict) else None
    return printable(message, 200) if isinstance(message, str) else ""
