"""A route in one value: method, path, handler, limits, and its documentation for `/openapi.json`."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from tocsin.bindings import JSON
from tocsin.errors import RequestRefused
from tocsin.shapes.base import SnakeShape
from tocsin.shapes.responses import ErrorBody, MethodDescription, ParameterDescription, RouteDescription
from tocsin.web.auth import KeyMissing
from tocsin.web.client_limits import ClientLimits
from tocsin.web.compression import CompressedBodies, Compressing
from tocsin.web.request_limits import BODY_MAX, capped, networks_of
from tocsin.web.respond import json_response

Handler: TypeAlias = Callable[[Request], Awaitable[ASGIApp]]
Tag: TypeAlias = Literal["prices", "competition", "scheduler", "service"]


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter in the path, the query or a header. `schema` is JSON Schema."""

    name: str
    schema: dict[str, JSON]
    description: str
    place: Literal["query", "header", "path"] = "query"
    required: bool = False
    example: JSON = None

    @property
    def is_required(self) -> bool:
        """A path without one of its parameters is another path."""
        return self.required or self.place == "path"


@dataclass(frozen=True, slots=True)
class ResponseDoc:
    """One status of an operation: its description, the shapes that its body may have, and an example."""

    description: str
    shapes: tuple[type[SnakeShape], ...] = ()
    example: SnakeShape | None = None
    media_type: str = "application/json"


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationDoc:
    """The documentation of an operation. `responses` need not list errors: see `all_responses`."""

    operation_id: str
    tag: Tag
    summary: str
    responses: dict[int, ResponseDoc]
    description: str = ""
    parameters: tuple[Parameter, ...] = ()
    key: str | None = None  # the header that carries a secret
    body: type[SnakeShape] | None = None
    body_schema: dict[str, JSON] = field(default_factory=dict)  # for a body without a shape
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
    is_prepared: bool = False  # answered by a `PreparedResponse`

    @property
    def is_limited_read(self) -> bool:
        """Whether it counts as a read of its client. Routes for visitors do, routes for supervisors do not."""
        return self.method == "GET" and self.doc.key is None and self.path.startswith("/api/")


def all_responses(operation: Operation) -> dict[int, ResponseDoc]:
    """Every status that an operation can end with: the documented ones, and the errors that follow from its kind."""
    doc = operation.doc
    errors: dict[int, str] = {500: "internal_error: a bug in the service; its log has the cause"}
    if doc.parameters or doc.has_body or is_public(operation):
        errors[400] = "the request is invalid; the sentence states what is accepted"
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
            503: "key_not_configured: the service has no key for this route",
        }
    else:
        what = "posts" if operation.method == "POST" else "reads" if operation.is_limited_read else "requests"
        errors[429] = f"too_many_requests: too many {what} from this client; see Retry-After"
    if doc.store:
        errors[503] = "the store or the scheduler is unavailable; see Retry-After"
    derived = {status: ResponseDoc(text, (ErrorBody,)) for status, text in errors.items()}
    responses = {**derived, **doc.responses}
    if describes_itself(operation):
        usual = responses[200]
        text = f"{usual.description}; with docs=1, a description of this route instead"
        responses[200] = replace(usual, description=text, shapes=(*usual.shapes, RouteDescription))
    return dict(sorted(responses.items()))


def routes_of(
    operations: Iterable[Operation], limits: ClientLimits, *, compress: bool = False
) -> list[Route]:
    """One Starlette route per path. It handles methods itself, so that a 405 names all of them.

    With `compress`, large responses are compressed; a `PreparedResponse` compresses itself.
    """
    listed, by_path = list(operations), dict[str, list[Operation]]()
    for operation in listed:
        by_path.setdefault(operation.path, []).append(operation)
    routes, bodies = [], CompressedBodies()
    for path, methods in by_path.items():
        app: ASGIApp = _Path(methods, limits, foreign_names(listed, path))
        is_prepared = any(operation.is_prepared for operation in methods)
        routes.append(Route(path, Compressing(app, bodies) if compress and not is_prepared else app))
    return routes


def is_public(operation: Operation) -> bool:
    """A read of prices or of the competition, for anybody."""
    doc = operation.doc
    return operation.method == "GET" and doc.key is None and doc.tag in ("prices", "competition")


def describes_itself(operation: Operation) -> bool:
    """Whether `?docs=1` describes the route: the site's agents use it on the competition's routes."""
    return is_public(operation) and operation.doc.tag == "competition"


def query_names(operations: Iterable[Operation]) -> set[str]:
    return {
        parameter.name
        for operation in operations
        for parameter in operation.doc.parameters
        if parameter.place == "query"
    }


def foreign_names(operations: Sequence[Operation], path: str) -> set[str]:
    """Parameters of other public routes. A request with one of them must be meant for another route."""
    own = query_names(operation for operation in operations if operation.path == path)
    return query_names(filter(is_public, operations)) - own


def description_of(operations: Iterable[Operation]) -> RouteDescription:
    """A path and its methods, as `?docs=1` answers it."""
    listed = list(operations)
    methods = [
        MethodDescription(
            method=operation.method,
            summary=operation.doc.summary,
            description=operation.doc.description,
            parameters=[
                ParameterDescription(each.name, each.place, each.is_required, each.description)
                for each in operation.doc.parameters
            ],
            body_example=operation.doc.body_example if isinstance(operation.doc.body_example, dict) else None,
            responses={str(status): doc.description for status, doc in all_responses(operation).items()},
        )
        for operation in listed
    ]
    return RouteDescription(listed[0].path, methods, "/api/openapi.json")


class _Path:
    """All operations of one path, as an ASGI app.

    Where no key is needed, a client's reads and posts are limited; where one is, its wrong keys are.
    """

    def __init__(
        self, operations: Sequence[Operation], limits: ClientLimits, foreign: AbstractSet[str]
    ) -> None:
        self._limits = limits
        self._operations = operations
        self._foreign = foreign
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
        if is_public(operation) and scope["query_string"]:
            names = QueryParams(scope["query_string"])
            if names.get("docs") == "1" and describes_itself(operation):
                await json_response(description_of(self._operations).to_json())(scope, receive, send)
                return
            self._check_names(names)
        try:
            response = await operation.handler(Request(scope, capped(scope, receive, operation.body_max)))
        except RequestRefused as refusal:
            if refusal.status == 401 and not isinstance(refusal, KeyMissing):
                self._limits.wrong_key(networks_of(scope), operation.path)
            raise
        await response(scope, receive, send)

    def _check_names(self, names: Iterable[str]) -> None:
        """Refuse a parameter that other routes know and this one does not: the answer would be misleading."""
        foreign = next((name for name in names if name in self._foreign), None)
        if foreign is not None:
            known = ", ".join(sorted(query_names(self._operations))) or "no parameters"
            sentence = f"This route has no parameter {foreign}. It takes {known}; ?docs=1 describes it."
            raise RequestRefused(400, "unknown_parameter", sentence)
