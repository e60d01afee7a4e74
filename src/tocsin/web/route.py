"""A route in one value: method, path, handler, limits, and its documentation for `/openapi.json` and `?docs=1`.

Keys in headers are compared in constant time with all configured keys, and refused while none is configured. `capped`
bounds the size of a body before it is read as JSON.
"""

import json
from collections.abc import Awaitable, Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from re import Pattern
from typing import Literal, NoReturn, TypeAlias

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.routing import Route, compile_path
from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.types import JSON
from tocsin.errors import RequestRefused
from tocsin.settings import AccessKey, matching_key
from tocsin.shape import FreeForm, Shape, SnakeShape
from tocsin.web.limits import BODY_MAX, ClientLimits, capped, networks_of
from tocsin.web.response import CompressedBodies, Compressing, ErrorBody, json_response

Handler: TypeAlias = Callable[[Request], Awaitable[ASGIApp]]
Tag: TypeAlias = Literal["prices", "competition", "scheduler", "service"]


class KeyMissing(RequestRefused):
    """There is no key. That is not a guess: a page of another site can make a visitor's browser send it."""


def require_key(request: Request, header: str, keys: Sequence[AccessKey], setting: str) -> AccessKey:
    """The key in the header; refuses the request if it is none of these."""
    return _found(
        request.headers.get(header, ""), keys, setting, f"Send the value of {setting} in the header {header}."
    )


def require_secret(request: Request, keys: Sequence[AccessKey], setting: str) -> AccessKey:
    """The secret, sent as a bearer token or in Chainhook's header."""
    scheme, _, sent = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer":
        sent = request.headers.get("x-chainhook-consumer-secret", "")
    return _found(sent.strip(), keys, setting, f"Send the value of {setting}: Authorization: Bearer SECRET.")


def _found(sent: str, keys: Sequence[AccessKey], setting: str, sentence: str) -> AccessKey:
    if not keys:
        off = f"This route is switched off: set {setting} and restart the service."
        raise RequestRefused(503, "key_not_configured", off, headers={"Retry-After": "60"})
    found = matching_key(sent, keys)
    if found is None:
        raise (RequestRefused if sent else KeyMissing)(401, "unauthorised", sentence)
    return found


@dataclass(frozen=True, slots=True)
class ParameterDescription(Shape):
    """A parameter that a caller may send."""

    name: str
    place: str
    required: bool
    description: str


@dataclass(frozen=True, slots=True)
class MethodDescription(Shape):
    """One method of a route. `responses` explains each status."""

    method: str
    summary: str
    description: str
    parameters: list[ParameterDescription]
    body_example: FreeForm | None
    responses: dict[str, str]


@dataclass(frozen=True, slots=True)
class RouteDescription(Shape):
    """The answer to `?docs=1`: a description of one route. `openapi` has all routes."""

    route: str
    methods: list[MethodDescription]
    openapi: str


@dataclass(frozen=True, slots=True)
class ApiDocument(Shape):
    """An OpenAPI document: its version of OpenAPI, the routes by path, and the shapes in `components`."""

    openapi: str
    info: FreeForm
    tags: list[FreeForm]
    paths: FreeForm
    components: FreeForm


@dataclass(frozen=True, slots=True)
class Alive(Shape):
    """The process answers."""

    ok: bool
    version: str


@dataclass(frozen=True, slots=True)
class CronDescription(Shape):
    """What `POST /api/competition/cron` does, and what to use instead."""

    route: str
    does: str
    needed: bool
    why: str
    instead: str


@dataclass(frozen=True, slots=True)
class AgentSkill(Shape):
    """One thing that a program can request: a route, and what it returns."""

    id: str
    description: str
    method: str
    path: str


@dataclass(frozen=True, slots=True)
class AgentCard(Shape):
    """What the service offers to programs. Addresses are relative to that of the service."""

    name: str
    description: str
    version: str
    documentation_url: str
    openapi_url: str
    skills: list[AgentSkill]


@dataclass(frozen=True, slots=True)
class McpMessage(SnakeShape):
    """A JSON-RPC response: it has a `result` or an `error`, and the `id` of its request."""

    jsonrpc: str
    id: int | str | None = None
    result: FreeForm | None = None
    error: FreeForm | None = None


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


def routes_of(operations: Iterable[Operation], limits: ClientLimits, *, compress: bool = False) -> list[Route]:
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

    def __init__(self, operations: Sequence[Operation], limits: ClientLimits, foreign: AbstractSet[str]) -> None:
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


class PathPatterns:
    """The paths of routes. A path without parameters is found without trying the others."""

    def __init__(self, paths: Iterable[str] = ()) -> None:
        self._plain: set[str] = set()
        self._patterns: list[tuple[Pattern[str], str]] = []
        for path in paths:
            if "{" in path:
                self._patterns.append((compile_path(path)[0], path))
            else:
                self._plain.add(path)

    def find(self, path: str) -> str | None:
        """The matching route's path; None when there is none."""
        if path in self._plain:
            return path
        return next((known for pattern, known in self._patterns if pattern.match(path)), None)


async def json_body(request: Request) -> JSON:
    """The body as JSON. Refuses anything that is not JSON in UTF-8."""
    check_media_type(request)
    return parsed(await request.body())


def parsed(body: bytes) -> JSON:
    """The value of JSON in UTF-8. Refuses anything else, and what is nested too deeply."""
    try:
        value: JSON = json.loads(body.decode("utf-8"), parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise not_json() from None
    return value


def check_media_type(request: Request) -> None:
    """Refuse a body that a page of another site sends without a preflight.

    Browsers send `Origin`, and send a preflight when the media type is JSON. Programs need no media type.
    """
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    is_json = media_type == "application/json" or media_type.endswith("+json")
    if "origin" in request.headers and not is_json:
        sentence = f"Send JSON, with the header Content-Type: application/json, not {media_type[:80]!r}."
        raise RequestRefused(415, "unsupported_media_type", sentence)


def not_json() -> RequestRefused:
    return RequestRefused(400, "malformed_body", "The body is not JSON in UTF-8.")


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
