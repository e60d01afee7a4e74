"""A route in one value: method, path, handler, limits, and its documentation for `/openapi.json`."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from starlette.requests import Request
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from tocsin.bindings import JSON
from tocsin.errors import RequestRefused
from tocsin.shapes.base import SnakeShape
from tocsin.shapes.responses import ErrorBody
from tocsin.web.client_limits import ClientLimits
from tocsin.web.request_limits import BODY_MAX, capped, networks_of

Handler: TypeAlias = Callable[[Request], Awaitable[ASGIApp]]
Tag: TypeAlias = Literal["prices", "competition", "scheduler", "service"]


@dataclass(frozen=True, slots=True)
class Parameter:
    """What a caller may send besides the path: `schema` is JSON Schema."""

    name: str
    schema: dict[str, JSON]
    description: str
    place: Literal["query", "header"] = "query"
    required: bool = False


@dataclass(frozen=True, slots=True)
class ResponseDoc:
    """One status of an operation: its description, the shapes that its body may have, and an example."""

    description: str
    shapes: tuple[type[SnakeShape], ...] = ()
    example: SnakeShape | None = None
    media_type: str = "application/json"


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationDoc:
    """What a reader of the API must know. `responses` need not list errors: see `all_responses`."""

    operation_id: str
    tag: Tag
    summary: str
    responses: dict[int, ResponseDoc]
    description: str = ""
    parameters: tuple[Parameter, ...] = ()
    key: str | None = None  # the header that carries a secret
    body: type[SnakeShape] | None = None
    body_schema: dict[str, JSON] = field(default_factory=dict)  # of a body that has no shape of ours
    body_example: JSON = None
    store: bool = True  # reads or writes the store or the scheduler, which may be unavailable

    @property
    def has_body(self) -> bool:
        return self.body is not None or bool(self.body_schema)


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path."""

    method: Literal["GET", "POST"]
    path: str
    handler: Handler
    doc: OperationDoc
    body_max: int = BODY_MAX

    @property
    def is_limited_read(self) -> bool:
        """Whether it counts as a read of its client: what visitors ask for, not what supervisors do."""
        return self.method == "GET" and self.doc.key is None and self.path.startswith("/api/")


def all_responses(operation: Operation) -> dict[int, ResponseDoc]:
    """Every status that an operation can end with: the documented ones, and the errors that follow from its kind."""
    doc = operation.doc
    errors: dict[int, str] = {500: "internal_error: a defect of the service; its log has the reason"}
    if doc.parameters or doc.has_body:
        errors[400] = "the request is wrong; the sentence says what is accepted"
    if doc.has_body:
        errors |= {
            408: "body_too_slow: the body did not arrive in time",
            413: f"body_too_large: more than {operation.body_max} bytes",
            415: "unsupported_media_type: the body must be JSON",
        }
    if doc.key is not None:
        errors |= {
            401: "unauthorised: the key is missing or wrong",
            429: "too_many_requests: too many wrong keys from this client; see Retry-After",
            503: "key_not_configured: the key of this route is not set",
        }
    elif operation.method == "POST":
        errors[429] = "too_many_requests: too many posts from this client; see Retry-After"
    elif operation.is_limited_read:
        errors[429] = "too_many_requests: too many reads from this client; see Retry-After"
    if doc.store:
        errors[503] = "the store or the scheduler is unavailable; see Retry-After"
    derived = {status: ResponseDoc(text, (ErrorBody,)) for status, text in errors.items()}
    return dict(sorted({**derived, **doc.responses}.items()))


def routes_of(operations: Iterable[Operation], limits: ClientLimits) -> list[Route]:
    """One Starlette route per path. It distinguishes methods itself, so that a 405 names all of them."""
    by_path: dict[str, list[Operation]] = {}
    for operation in operations:
        by_path.setdefault(operation.path, []).append(operation)
    return [Route(path, _Path(methods, limits)) for path, methods in by_path.items()]


class _Path:
    """All operations of one path, as an ASGI app.

    A client has a limited number of reads and posts where no key is needed, and of wrong keys where one is.
    """

    def __init__(self, operations: Sequence[Operation], limits: ClientLimits) -> None:
        self._limits = limits
        self._by_method: dict[str, Operation] = {operation.method: operation for operation in operations}
        if "GET" in self._by_method:
            self._by_method["HEAD"] = self._by_method["GET"]
        self._allow = ", ".join(self._by_method)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        operation = self._by_method.get(scope["method"])
        if operation is None:
            sentence = f"This path takes {self._allow}, not {scope['method'][:20]}."
            raise RequestRefused(405, "method_not_allowed", sentence, headers={"Allow": self._allow})
        if operation.doc.key is not None:
            self._limits.before_key(networks_of(scope))
        elif operation.method == "POST":
            self._limits.posts.count(networks_of(scope))
        elif operation.is_limited_read:
            self._limits.before_read(scope)
        try:
            response = await operation.handler(Request(scope, capped(scope, receive, operation.body_max)))
        except RequestRefused as refusal:
            if refusal.status == 401:
                self._limits.wrong_key(networks_of(scope), operation.path)
            raise
        await response(scope, receive, send)
