"""Every call to an upstream ends as exactly one of these. Callers `match` on the class.

Ok            the value
NotFound      the upstream answered: there is no such thing (now)
Limited       too many calls, by the upstream or by our own budget; `until` says when to ask again
Unauthorised  our key was refused: nothing will work until somebody fixes it
BadRequest    any other 4xx, an unknown route, a redirect to another host: a defect or a wrong setting of ours
Gone          the endpoint was switched off for good
Unavailable   5xx, no connection, no answer in time: says nothing about the thing asked for
Malformed     an answer that breaks the upstream's own contract

Only `Ok` and `NotFound` are facts. Everything else is "unknown", and must never be read as "empty".
"""

from dataclasses import dataclass
from typing import ClassVar, Generic, TypeAlias, TypeVar

from tocsin.errors import NoAnswer

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Ok(Generic[T_co]):
    """The answer."""

    kind: ClassVar[str] = "ok"
    value: T_co


@dataclass(frozen=True, slots=True)
class Versioned(Generic[T_co]):
    """A value and its ETag. None when it is still what that ETag stood for."""

    value: T_co | None
    etag: str | None


@dataclass(frozen=True, slots=True)
class NotFound:
    """The upstream says that there is no such thing."""

    kind: ClassVar[str] = "not_found"


@dataclass(frozen=True, slots=True)
class Limited:
    """Not now: ask again at `until` (unix ms). `by_budget`: our own budget said so, and no call was made."""

    kind: ClassVar[str] = "limited"
    until: int
    reason: str
    by_budget: bool = False


@dataclass(frozen=True, slots=True)
class Unauthorised:
    """The key was refused."""

    kind: ClassVar[str] = "unauthorised"
    reason: str


@dataclass(frozen=True, slots=True)
class BadRequest:
    """We asked wrongly. `message` is what the upstream said about it."""

    kind: ClassVar[str] = "bad_request"
    reason: str
    status: int
    message: str = ""


@dataclass(frozen=True, slots=True)
class Gone:
    """The endpoint does not exist any more."""

    kind: ClassVar[str] = "gone"
    reason: str


@dataclass(frozen=True, slots=True)
class Unavailable:
    """No usable answer."""

    kind: ClassVar[str] = "unavailable"
    reason: str


@dataclass(frozen=True, slots=True)
class Malformed:
    """An answer, but not one that the contract allows."""

    kind: ClassVar[str] = "malformed"
    reason: str
    too_large: bool = False  # more bytes than we read: asking for less may help


Failure: TypeAlias = Limited | Unauthorised | BadRequest | Gone | Unavailable | Malformed
Answer: TypeAlias = Ok[T] | NotFound | Failure


def value_or_raise(answer: Answer[T]) -> T | None:
    """The value, or None for `NotFound`; raises `NoAnswer` for everything that is not a fact."""
    if isinstance(answer, Ok):
        return answer.value
    if isinstance(answer, NotFound):
        return None
    raise NoAnswer(answer)
