"""Every call to an upstream ends as exactly one of these classes. Callers `match` on the class.

Only `Ok` and `NotFound` are facts. Everything else means "unknown", and must never be read as "empty". So a 404 is
`NotFound` only if it comes from the API itself: were an unknown route or an HTML page "not found", every price and
every swap would disappear.
"""

import re
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeAlias, TypeVar

from holdfast.errors import HoldfastError
from tocsin.errors import MalformedBody
from tocsin.fetch import FetchResponse
from tocsin.upstream.decode import decode, printable

# The wording of Fastify, Express and Kong.
_UNKNOWN_ROUTE = re.compile(r"Route [A-Z]+:/|Cannot [A-Z]+ /|(?i:no route\b)")

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Ok(Generic[T_co]):
    """The requested value."""

    kind: ClassVar[str] = "ok"
    value: T_co


@dataclass(frozen=True, slots=True)
class NotFound:
    """The upstream answered that the resource does not exist (now)."""

    kind: ClassVar[str] = "not_found"


@dataclass(frozen=True, slots=True)
class Limited:
    """Too many calls: ask again at `until` (unix ms). `by_budget`: our own budget refused it, and no call was made."""

    kind: ClassVar[str] = "limited"
    until: int
    reason: str
    by_budget: bool = False


@dataclass(frozen=True, slots=True)
class Unauthorised:
    """Our key was refused: nothing will work until somebody fixes it."""

    kind: ClassVar[str] = "unauthorised"
    reason: str


@dataclass(frozen=True, slots=True)
class BadRequest:
    """A bug or a wrong setting on our side: any other 4xx, an unknown route, a redirect to another host.

    `message` is the upstream's explanation.
    """

    kind: ClassVar[str] = "bad_request"
    reason: str
    status: int
    message: str = ""


@dataclass(frozen=True, slots=True)
class Gone:
    """The endpoint was switched off permanently."""

    kind: ClassVar[str] = "gone"
    reason: str


@dataclass(frozen=True, slots=True)
class Unavailable:
    """5xx, no connection, no answer in time: nothing is known about the resource. `status`: 0 without an answer."""

    kind: ClassVar[str] = "unavailable"
    reason: str
    status: int = 0


@dataclass(frozen=True, slots=True)
class Malformed:
    """An answer that breaks the upstream's own contract."""

    kind: ClassVar[str] = "malformed"
    reason: str
    too_large: bool = False  # more bytes than the limit: asking for less may help


@dataclass(frozen=True, slots=True)
class Moved:
    """A redirect; the client decides whether to follow it."""

    kind: ClassVar[str] = "moved"
    url: str


Failure: TypeAlias = Limited | Unauthorised | BadRequest | Gone | Unavailable | Malformed
Answer: TypeAlias = Ok[T] | NotFound | Failure
HEALTHY = (Ok, NotFound, Moved)


class NoAnswer(HoldfastError):
    """A call did not end with a fact; `answer` is how it ended."""

    def __init__(self, answer: Failure) -> None:
        super().__init__(answer.reason)
        self.answer = answer


def value_or_raise(answer: Answer[T]) -> T | None:
    """The value, or None for `NotFound`; raises `NoAnswer` for everything that is not a fact."""
    if isinstance(answer, Ok):
        return answer.value
    if isinstance(answer, NotFound):
        return None
    raise NoAnswer(answer)


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
        return Unavailable(f"{name} answered {status}", status)
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
