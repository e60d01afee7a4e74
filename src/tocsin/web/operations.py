"""A route in one value: method, path, handler, limits, and what `/openapi.json` says of it."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from starlette.requests import Request
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from tocsin.bindings import JSON
from tocsin.errors import RequestRefused
from tocsin.web.request_limits import BODY_MAX, ClientRateLimit, capped, client_of

Handler: TypeAlias = Callable[[Request], Awaitable[ASGIApp]]


@dataclass(frozen=True, slots=True)
class Parameter:
    """What a caller may send beside the path: `schema` is JSON Schema."""

    name: str
    schema: dict[str, JSON]
    about: str
    place: Literal["query", "header"] = "query"
    required: bool = False


@dataclass(frozen=True, slots=True)
class ResponseDoc:
    """What comes back: in words, as JSON Schema (None: no body), by example."""

    about: str
    schema: dict[str, JSON] | None
    example: JSON = None
    media_type: str = "application/json"


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationDoc:
    """What a reader of the API must know. Errors have one shape and need no words of their own."""

    summary: str
    answers: dict[int, ResponseDoc]
    parameters: tuple[Parameter, ...] = ()
    key: str | None = None  # the header that carries a secret
    body: JSON = None  # an example of the request's body, where there is one


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path."""

    method: Literal["GET", "POST"]
    path: str
    handler: Handler
    about: OperationDoc
    body_max: int = BODY_MAX


def routes_of(operations: Iterable[Operation], limiter: ClientRateLimit) -> list[Route]:
    """One Starlette route per path; its methods are told apart here, so that a 405 names all of them."""
    by_path: dict[str, list[Operation]] = {}
    for operation in operations:
        by_path.setdefault(operation.path, []).append(operation)
    return [Route(path, _Path(methods, limiter)) for path, methods in by_path.items()]


class _Path:
    """All operations of one path, as an ASGI app.

    A client has so many posts, and so many guesses at a key; who knows the key is not limited by others.
    """

    def __init__(self, operations: Sequence[Operation], limiter: ClientRateLimit) -> None:
        self._limiter = limiter
        self._by_method = {operation.method: operation for operation in operations}
        if "GET" in self._by_method:
            self._by_method |= {"HEAD": self._by_method["GET"]}  # type: ignore[dict-item]  # a GET without its body
        self._allow = ", ".join(self._by_method)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        operation = self._by_method.get(scope["method"])
        if operation is None:
            sentence = f"This path takes {self._allow}, not {scope['method'][:20]}."
            raise RequestRefused(405, "method_not_allowed", sentence, headers={"Allow": self._allow})
        client = client_of(scope)
        if operation.method == "POST" and operation.about.key is None:
            self._limiter.count(client)
        try:
            answer = await operation.handler(Request(scope, capped(scope, receive, operation.body_max)))
        except RequestRefused as refusal:
            if refusal.status == 401:
                self._limiter.count(client)
            raise
        await answer(scope, receive, send)
