"""Every call to an upstream ends as exactly one of these. Callers `match` on the class.

Ok            the value
NotFound      the upstream answered that the resource does not exist (now)
Limited       refused by the upstream or by our own budget: too many calls; `until` is when to ask again
Unauthorised  our key was refused: nothing will work until somebody fixes it
BadRequest    any other 4xx, an unknown route, a redirect to another host: a bug or a wrong setting on our side
Gone          the endpoint was switched off permanently
Unavailable   5xx, no connection, no answer in time: nothing is known about the resource
Malformed     an answer that breaks the upstream's own contract

Only `Ok` and `NotFound` are facts. Everything else means "unknown", and must never be read as "empty".
"""

from dataclasses import dataclass
from typing import ClassVar, Generic, TypeAlias, TypeVar

from tocsin.errors import NoAnswer

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Ok(Generic[T_co]):
    """The requested value."""

    kind: ClassVar[str] = "ok"
    value: T_co


@dataclass(frozen=True, slots=True)
class NotFound:
    """The upstream answered that the resource does not exist."""

    kind: ClassVar[str] = "not_found"


@dataclass(frozen=True, slots=True)
class Limited:
    """Not now: ask again at `until` (unix ms). `by_budget`: our own budget refused it, and no call was made."""

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
    """Our request was wrong. `message` is the upstream's explanation."""

    kind: ClassVar[str] = "bad_request"
    reason: str
    status: int
    message: str = ""


@dataclass(frozen=True, slots=True)
class Gone:
    """The endpoint no longer exists."""

    kind: ClassVar[str] = "gone"
    reason: str


@dataclass(frozen=True, slots=True)
class Unavailable:
    """No usable answer."""

    kind: ClassVar[str] = "unavailable"
    reason: str


@dataclass(frozen=True, slots=True)
class Malformed:
    """An answer that breaks the contract."""

    kind: ClassVar[str] = "malformed"
    reason: str
    too_large: bool = False  # more bytes than the limit: asking for less may help


Failure: TypeAlias = Limited | Unauthorised | BadRequest | Gone | Unavailable | Malformed
Answer: TypeAlias = Ok[T] | NotFound | Failure


def value_or_raise(answer: Answer[T]) -> T | None:
    """The value, or None for `NotFound`; raises `NoAnswer` for everything that is not a fact."""
    if isinstance(answer, Ok):
        return answer.value
    if isinstance(answer, NotFound):
        return None
    raise NoAnswer(answer)
