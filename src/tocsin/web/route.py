"""A route in one value: method, path, parameters, key, limits and documentation.

The key of a request is compared in constant time with all configured keys before anything else is read, and refused
while none is configured. `capped` bounds the size of a body before it is read as JSON.

Emits `auth.forbidden` when a viewer tries to act.
"""

import inspect
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import partial
from re import Pattern
from typing import Any, Literal, NoReturn, TypeAlias, TypeVar

from starlette.datastructures import QueryParams
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.routing import Route, compile_path
from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.types import JSON, Logger
from tocsin.errors import RequestRefused
from tocsin.settings import AccessKey, Settings, matching_key
from tocsin.shape import FreeForm, Shape, SnakeShape
from tocsin.web.limits import BODY_MAX, ClientLimits, capped, networks_of
from tocsin.web.parameters import Parameter, parameters, read_values, sent_text, text
from tocsin.web.response import LEVEL, NO_STORE, PACKET_BYTES, PRIVATE, ErrorBody, aged, json_response

# Of the request, and of the parameters of the route. A shape is sent as JSON.
Handler: TypeAlias = Callable[..., Awaitable[ASGIApp | SnakeShape]]
F = TypeVar("F", bound=Handler)
Access: TypeAlias = Literal["viewer", "operator", "cron", "chainhook", "lookup"]
# The header of each key, and the setting that has the keys.
KEYS: Mapping[Access, tuple[str, str]] = {
    "viewer": ("X-Admin-Key", "ADMIN_KEY"),
    "operator": ("X-Admin-Key", "ADMIN_KEY"),
    "cron": ("X-Cron-Secret", "CRON_SECRET"),
    "chainhook": ("Authorization", "CHAINHOOK_SECRET"),
    "lookup": ("X-Api-Key", "TOCSIN_LOOKUP_KEY"),  # Hiro's own header
}
LOOKUP_HEADER = b"x-api-key"
IF_NONE_MATCH = replace(text("the ETag that you have: 304 if it is unchanged", "If-None-Match"), place="header")


class KeyMissing(RequestRefused):
    """There is no key. That is not a guess: a page of another site can make a visitor's browser send it."""


def admin_keys(settings: Settings) -> tuple[AccessKey, ...]:
    """The keys of operators and of viewers."""
    return (*settings.admin_key, *settings.viewer_key)


def authorize(request: Request, access: Access, settings: Settings, logger: Logger) -> AccessKey:
    """The key of the request; refuses one without a key that gives this access."""
    header, setting = KEYS[access]
    own = {"cron": settings.cron_secret, "chainhook": settings.chainhook_secret, "lookup": settings.lookup_key}
    known = own.get(access, admin_keys(settings))
    if not known:
        apply = "restart" if access == "lookup" else "run `tocsin reload`, or restart with it"
        off = f"This route is switched off: set {setting} in .env and {apply}."
        raise RequestRefused(503, "key_not_configured", off, headers={"Retry-After": "60"})
    sent = request.headers.get(header, "")
    example = f"Send the value of {setting} in the header {header}."
    if access == "chainhook":
        scheme, _, sent = sent.partition(" ")
        sent = (sent if scheme.lower() == "bearer" else request.headers.get("x-chainhook-consumer-secret", "")).strip()
        example = f"Send the value of {setting}: Authorization: Bearer SECRET."
    key = matching_key(sent, known)
    if key is None:
        wrong = f"This is not a key of {setting}. {example}"
        raise RequestRefused(401, "unauthorised", wrong) if sent else KeyMissing(401, "unauthorised", example)
    if access == "operator" and key.role != "operator":
        logger.warning("auth.forbidden", key=key.name, client=networks_of(request.scope)[0])
        sentence = f"The key {key.name} is read-only: this action needs a key from ADMIN_KEY."
        raise RequestRefused(403, "read_only_key", sentence)
    return key


def key_of(request: Request) -> AccessKey:
    """The key that the route has accepted."""
    key: AccessKey = request.scope["key"]
    return key


@dataclass(frozen=True, slots=True)
class ParameterDescription(Shape):
    """A parameter that a caller may send: its `name`, `description`, and where it stands."""

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
class ResponseDoc:
    """One status of an operation: its description, the shapes that its body may have, and an example."""

    description: str
    shapes: tuple[type[SnakeShape], ...] = ()
    example: SnakeShape | None = None
    media_type: str = "application/json"
    is_any_json: bool = False


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path. In `responses`, a text describes an error; `all_responses` adds the usual ones."""

    method: Literal["GET", "POST"]
    path: str
    operation_id: str
    summary: str
    description: str = ""
    responses: Mapping[int, ResponseDoc | str] = field(default_factory=dict)
    arguments: Mapping[str, Parameter] = field(default_factory=dict)  # of the handler
    access: Access | None = None  # the key that it needs
    body: type[SnakeShape] | None = None
    body_schema: FreeForm = field(default_factory=dict)  # for a body without a shape
    body_example: JSON = None
    body_max: int = BODY_MAX
    store: bool = True  # reads or writes the store or the scheduler, which may be unavailable
    prepared: bool = False  # the handler returns a `PreparedResponse`
    max_age_s: int = 0  # of a shape that the handler returns; 0: clients do not cache it
    kept: int = 0  # how many responses the service keeps for a second

    @property
    def tag(self) -> str:
        starts = ("/api/prices", "prices"), ("/api/competition", "competition"), ("/api/chainhook", "competition")
        own = next((tag for start, tag in starts if self.path.startswith(start)), "service")
        own = "upstreams" if self.access == "lookup" else own
        return "scheduler" if self.access in {"viewer", "operator"} else own

    @property
    def is_prepared(self) -> bool:
        """Whether it is answered by a `PreparedResponse`."""
        return self.prepared or self.kept > 0

    @property
    def has_body(self) -> bool:
        return self.body is not None or bool(self.body_schema)

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        own = tuple(self.arguments.values())
        return (*own, IF_NONE_MATCH) if self.is_prepared else own

    @property
    def query_names(self) -> set[str]:
        return {each.name for each in self.parameters if each.place == "query"}

    @property
    def key_header(self) -> str | None:
        return None if self.access is None else KEYS[self.access][0]

    @property
    def headers(self) -> dict[str, str]:
        """The headers of a shape."""
        if self.access in {"viewer", "operator"}:
            return PRIVATE
        return aged(self.max_age_s) if self.max_age_s else NO_STORE

    @property
    def is_limited_read(self) -> bool:
        """Whether it counts as a read of its client. Routes for visitors do, routes for supervisors do not."""
        return self.method == "GET" and self.access is None and self.path.startswith("/api/")

    @property
    def is_public(self) -> bool:
        """A read of prices or of the competition, for anybody."""
        return self.method == "GET" and self.access is None and self.tag in ("prices", "competition")

    @property
    def describes_itself(self) -> bool:
        """Whether `?docs=1` describes the route: the site's agents use it on the competition's routes."""
        return self.is_public and self.tag == "competition"


def all_responses(operation: Operation) -> dict[int, ResponseDoc]:
    """Every status that an operation can end with: the documented ones, and those that follow from its kind."""
    found: dict[int, ResponseDoc | str] = {500: "internal_error: a bug in the service; its log has the cause"}
    if operation.parameters or operation.has_body or operation.is_public:
        found[400] = "the request is invalid; the sentence states what is accepted"
    if operation.has_body:
        found |= {
            408: "body_too_slow: the body did not arrive in time",
            413: f"body_too_large: more than {operation.body_max} bytes",
            415: "unsupported_media_type: the body must be JSON",
        }
    if operation.access is not None:
        found |= {
            401: "unauthorised: the key is missing or wrong",
            429: "too_many_requests: too many wrong keys from this client; see Retry-After",
            503: "key_not_configured: the service has no key for this route",
        }
    else:
        what = "posts" if operation.method == "POST" else "reads" if operation.is_limited_read else "requests"
        found[429] = f"too_many_requests: too many {what} from this client; see Retry-After"
    if operation.access == "operator":
        found[403] = "read_only_key: a viewer's key may not act"
    if operation.store:
        found[503] = "the store or the scheduler is unavailable; see Retry-After"
    if operation.is_prepared:
        found[304] = ResponseDoc("unchanged since the ETag that was sent")
    found |= operation.responses
    listed = {
        status: ResponseDoc(each, (ErrorBody,)) if isinstance(each, str) else each for status, each in found.items()
    }
    if operation.describes_itself:
        usual = listed[200]
        described = f"{usual.description}; with docs=1, a description of this route instead"
        listed[200] = replace(usual, description=described, shapes=(*usual.shapes, RouteDescription))
    return dict(sorted(listed.items()))


def declare(
    method: Literal["GET", "POST"],
    path: str,
    operation_id: str,
    returns: str,
    *shapes: type[SnakeShape],
    example: SnakeShape | None = None,
    media_type: str = "application/json",
    errors: Mapping[int, ResponseDoc | str] | None = None,
    **options: Any,  # noqa: ANN401 - further fields of `Operation`
) -> Callable[[F], F]:
    """Declare the handler of an operation: its docstring is the summary, and its arguments are the parameters.

    `shapes` are those of the response, if it is not the one that the handler returns.
    """

    def declared(handler: F) -> F:
        summary, _, description = inspect.cleandoc(handler.__doc__ or "").partition("\n\n")
        texts = {"summary": " ".join(summary.split()), "description": " ".join(description.split()), **options}
        returned = handler.__annotations__.get("return")
        own = (returned,) if isinstance(returned, type) and issubclass(returned, SnakeShape) else ()
        responses = {200: ResponseDoc(returns, shapes or own, example, media_type), **(errors or {})}
        arguments = parameters(handler)
        handler.operation = Operation(method, path, operation_id, responses=responses, arguments=arguments, **texts)  # type: ignore[attr-defined]
        return handler

    return declared


get, post = partial(declare, "GET"), partial(declare, "POST")


def operation_of(handler: Handler) -> Operation:
    operation: Operation = handler.operation  # type: ignore[attr-defined]
    return operation


def handlers_of(routes: object) -> list[tuple[Operation, Handler]]:
    """The operations of an object, with the methods that handle them."""
    names = [name for name, member in vars(type(routes)).items() if hasattr(member, "operation")]
    handlers: list[Handler] = [getattr(routes, name) for name in names]
    return [(operation_of(handler), handler) for handler in handlers]


def routes_of(
    handlers: Iterable[tuple[Operation, Handler]], limits: ClientLimits, *, compress: bool = False
) -> list[Route]:
    """One Starlette route per path. It handles methods itself, so that a 405 names all of them.

    With `compress`, large responses are compressed; a `PreparedResponse` compresses itself.
    """
    by_path: dict[str, dict[str, tuple[Operation, Handler]]] = {}
    for operation, handler in handlers:
        by_path.setdefault(operation.path, {})[operation.method] = (operation, handler)
    public = [each for methods in by_path.values() for each, _ in methods.values() if each.is_public]
    names = set[str]().union(*(each.query_names for each in public))
    routes: list[Route] = []
    for path, methods in by_path.items():
        app: ASGIApp = _Path(methods, limits, names)
        if compress and not any(operation.is_prepared for operation, _ in methods.values()):
            app = GZipMiddleware(app, minimum_size=PACKET_BYTES, compresslevel=LEVEL)
        routes.append(Route(path.replace("{path}", "{path:path}"), app))  # the rest of the path, slashes included
    return routes


def description_of(operations: Sequence[Operation]) -> RouteDescription:
    """A path and its methods, as `?docs=1` answers it."""
    methods = [
        MethodDescription(
            method=operation.method,
            summary=operation.summary,
            description=operation.description,
            parameters=[
                ParameterDescription(each.name, each.place, each.required, each.description)
                for each in operation.parameters
            ],
            body_example=operation.body_example if isinstance(operation.body_example, dict) else None,
            responses={str(status): each.description for status, each in all_responses(operation).items()},
        )
        for operation in operations
    ]
    return RouteDescription(operations[0].path, methods, "/api/openapi.json")


class _Path:
    """All operations of one path, as an ASGI app.

    Where no key is needed, a client's reads and posts are limited; where one is, its wrong keys are.
    """

    def __init__(
        self, methods: Mapping[str, tuple[Operation, Handler]], limits: ClientLimits, public_names: AbstractSet[str]
    ) -> None:
        self._limits = limits
        self._operations = [operation for operation, _ in methods.values()]
        self._own_names = set[str]().union(*(operation.query_names for operation in self._operations))
        self._foreign = public_names - self._own_names
        self._by_method = {**methods, "HEAD": methods["GET"]} if "GET" in methods else {**methods}
        self._allow = ", ".join(self._by_method)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] not in self._by_method:
            sentence = f"This path takes {self._allow}, not {scope['method'][:20]}."
            raise RequestRefused(405, "method_not_allowed", sentence, headers={"Allow": self._allow})
        operation, handler = self._by_method[scope["method"]]
        request = Request(scope, capped(scope, receive, operation.body_max))
        self._check(operation, request)
        if operation.describes_itself and request.query_params.get("docs") == "1":
            await json_response(description_of(self._operations).to_json())(scope, receive, send)
            return
        if operation.is_public:
            self._check_names(request.query_params)
        answer = await handler(request, **read_values(operation.arguments, partial(sent_text, request)))
        if isinstance(answer, SnakeShape):
            answer = json_response(answer.to_json(), headers=operation.headers)
        await answer(scope, receive, send)

    def _check(self, operation: Operation, request: Request) -> None:
        """Refuse a client over its limit, and a request without the key that the operation needs."""
        networks = networks_of(request.scope)
        if operation.access is not None:
            self._limits.before_key(networks)
            try:
                request.scope["key"] = self._limits.key_of(request, operation.access)
            except RequestRefused as refusal:
                if refusal.status == 401 and not isinstance(refusal, KeyMissing):
                    self._limits.wrong_key(networks, operation.path)
                raise
        elif operation.method == "POST":
            self._limits.posts.count(networks)
        elif operation.is_limited_read:
            self._limits.before_read(request.scope)

    def _check_names(self, sent: QueryParams) -> None:
        """Refuse a parameter that other routes know and this one does not: the answer would be misleading."""
        foreign = next((name for name in sent if name in self._foreign), None)
        if foreign is not None:
            known = ", ".join(sorted(self._own_names)) or "no parameters"
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
        raise RequestRefused(400, "malformed_body", "The body is not JSON in UTF-8.") from None
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


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
