"""Answers about the service itself: whether it is alive, whether it is ready, and errors of requests."""

from dataclasses import dataclass

from tocsin.shapes.base import FreeForm, Shape, SnakeShape


@dataclass(frozen=True, slots=True)
class ErrorBody(Shape):
    """Every error has a sentence that explains how to fix it, a code, and whether a retry may help.

    Some errors have further fields.
    """

    error: str
    code: str
    retryable: bool


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
