"""One call to an upstream: the request, how to read the answer, and the attempts so far."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from tocsin.bindings import JSON, FetchResponse
from tocsin.budget.call_session import CallSession
from tocsin.upstream.answer import Unavailable, Versioned
from tocsin.upstream.decode import decode

T = TypeVar("T")

CHANGED = frozenset({200, 201, 202, 204})  # statuses of a successful change
NOT_MODIFIED = 304
JSON_CONTENT = {"content-type": "application/json"}

_ETAG = re.compile(r'(?:W/)?"[!#-~]{1,200}"')


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
    etag: str | None = None  # the upstream answers 304 if the resource still has it
    attempt: int = 0
    redirects: int = 0
    limited: int = 0
    unavailable: int = 0
    retry_after_s: float = 0.0
    failure: Unavailable | None = None
    probing: bool = False

    def headers(self, usual: Mapping[str, str]) -> Mapping[str, str]:
        """The headers of this call, including the usual ones of the upstream."""
        added = {} if self.body is None else dict(JSON_CONTENT)
        if self.etag is not None:
            added["if-none-match"] = self.etag
        return {**usual, **added} if added else usual

    def needs_no_body(self, response: FetchResponse) -> bool:
        """Whether the status is enough: the change was made, or nothing has changed."""
        if self.method != "GET":
            return response.status in CHANGED
        return self.etag is not None and response.status == NOT_MODIFIED


def plain(parse: Callable[[JSON], T]) -> Callable[[FetchResponse], T]:
    """Make a reader of the body."""
    return lambda response: parse(decode(response.body))


def versioned(parse: Callable[[JSON], T]) -> Callable[[FetchResponse], Versioned[T]]:
    """Make a reader of the body and the ETag; there is no body if nothing has changed."""

    def read(response: FetchResponse) -> Versioned[T]:
        value = None if response.status == NOT_MODIFIED else parse(decode(response.body))
        etag = response.headers.get("etag", "")
        return Versioned(value, etag if _ETAG.fullmatch(etag) else None)

    return read
