"""One call to an upstream: the request, how to read the answer, and the attempts so far."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from tocsin.bindings import JSON, FetchResponse
from tocsin.budget.call_session import CallSession
from tocsin.upstream.answer import Unavailable
from tocsin.upstream.decode import decode

T = TypeVar("T")

CHANGED = frozenset({200, 201, 202, 204})  # statuses of a successful change
JSON_CONTENT = {"content-type": "application/json"}


@dataclass(slots=True)
class Call(Generic[T]):
    """One call and its attempts so far."""

    target: str  # path and query, as shown in the log
    url: str
    read: Callable[[FetchResponse], T]
    session: CallSession
    deadline: float
    method: str = "GET"
    body: bytes | None = None
    attempt: int = 0
    redirects: int = 0
    limited: int = 0
    unavailable: int = 0
    retry_after_s: float = 0.0
    failure: Unavailable | None = None
    probing: bool = False

    def headers(self, usual: Mapping[str, str]) -> Mapping[str, str]:
        """The headers of this call, including the usual ones of the upstream."""
        return usual if self.body is None else {**usual, **JSON_CONTENT}

    def needs_no_body(self, response: FetchResponse) -> bool:
        """Whether the status is enough: the change was made."""
        return self.method != "GET" and response.status in CHANGED


def plain(parse: Callable[[JSON], T]) -> Callable[[FetchResponse], T]:
    """Make a reader of the body."""
    return lambda response: parse(decode(response.body))
