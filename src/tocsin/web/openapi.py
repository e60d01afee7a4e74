"""`/openapi.json` and `/api/docs`: derived from the operations and their shapes, so neither can be outdated."""

from collections.abc import Iterable, Sequence
from functools import cached_property

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from tocsin.bindings import JSON
from tocsin.shapes.base import FreeForm, SnakeShape, schema_ref, schemas_of
from tocsin.shapes.responses import ErrorBody, RouteDescription
from tocsin.web.docs_page import docs_body
from tocsin.web.html_page import PageHead, html_page
from tocsin.web.operation_docs import OTHER_SHAPES
from tocsin.web.operations import Operation, ResponseDoc, all_responses
from tocsin.web.prepared_response import PreparedResponse
from tocsin.web.respond import json_response

TAGS = {
    "prices": "Token prices, read from the cache.",
    "competition": "Swaps, agents and the leaderboard.",
    "scheduler": "The scheduler, for operators: needs the admin key.",
    "service": "Health, metrics and this documentation.",
}
CACHED = (b"cache-control", b"public, max-age=300")


class ApiDocs:
    """The API for machines and for people. The list of operations may grow, because it includes these two."""

    def __init__(self, version: str, operations: Sequence[Operation], *, compress: bool) -> None:
        self._version = version
        self._operations = operations
        self._compress = compress

    async def machine(self, _request: Request) -> ASGIApp:
        return self._document

    async def human(self, _request: Request) -> ASGIApp:
        return self._page

    @cached_property
    def _document(self) -> PreparedResponse:
        return self._prepared(json_response(openapi(self._version, self._operations)))

    @cached_property
    def _page(self) -> PreparedResponse:
        head = PageHead("API", "Every route of the service: parameters, bodies, responses and examples.")
        return self._prepared(html_page(head, docs_body(self._version, TAGS, self._operations)))

    def _prepared(self, response: Response) -> PreparedResponse:
        return PreparedResponse(
            bytes(response.body), response.headers["content-type"], [CACHED], compress=self._compress
        )


def openapi(version: str, operations: Iterable[Operation]) -> FreeForm:
    paths: dict[str, FreeForm] = {}
    keys: set[str] = set()
    shapes: dict[type[SnakeShape], None] = dict.fromkeys((ErrorBody, *OTHER_SHAPES))
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _described(operation)
        keys |= {operation.doc.key} if operation.doc.key else set()
        shapes |= dict.fromkeys(shape for doc in all_responses(operation).values() for shape in doc.shapes)
        if operation.doc.body is not None:
            shapes[operation.doc.body] = None
    tags: list[JSON] = [{"name": name, "description": text} for name, text in TAGS.items()]
    return {
        "openapi": "3.1.0",
        "info": {"title": "Tocsin", "version": version, "license": {"name": "MIT", "identifier": "MIT"}},
        "tags": tags,
        "paths": {**paths},
        "components": {
            "schemas": schemas_of(shapes),
            "securitySchemes": {key: _scheme(key) for key in sorted(keys)},
        },
    }


def _scheme(header: str) -> FreeForm:
    if header == "Authorization":
        return {"type": "http", "scheme": "bearer"}
    return {"type": "apiKey", "in": "header", "name": header}


def _described(operation: Operation) -> FreeForm:
    doc = operation.doc
    described: FreeForm = {
        "operationId": doc.operation_id,
        "tags": [doc.tag],
        "summary": doc.summary,
        "description": doc.description or doc.summary,
        "responses": {
            str(status): {"description": response.description, **_content_of(response)}
            for status, response in all_responses(operation).items()
        },
    }
    if doc.parameters:
        described["parameters"] = [
            {
                "name": parameter.name,
                "in": parameter.place,
                "description": parameter.description,
                "required": parameter.is_required,
                "schema": parameter.schema,
                **({} if parameter.example is None else {"example": parameter.example}),
                **({"style": "form", "explode": False} if parameter.schema.get("type") == "array" else {}),
            }
            for parameter in doc.parameters
        ]
    if doc.key:
        described["security"] = [{doc.key: []}]
    if doc.has_body:
        schema = schema_ref(doc.body) if doc.body is not None else doc.body_schema
        described["requestBody"] = {"required": True, "content": _content(schema, doc.body_example)}
    return described


def _content_of(response: ResponseDoc) -> FreeForm:
    if not response.shapes:
        return {} if response.media_type == "application/json" else {"content": _text(response.media_type)}
    refs: list[JSON] = [schema_ref(shape) for shape in response.shapes]
    schema: FreeForm = {"anyOf": refs} if len(refs) > 1 else schema_ref(response.shapes[0])
    if response.media_type != "application/json":
        described = _content(schema_ref(RouteDescription)) if RouteDescription in response.shapes else {}
        return {"content": {**_text(response.media_type), **described}}
    example = None if response.example is None else response.example.to_json()
    return {"content": _content(schema, example)}


def _text(media_type: str) -> FreeForm:
    return {media_type: {"schema": {"type": "string"}}}


def _content(schema: FreeForm, example: JSON = None) -> FreeForm:
    return {"application/json": {"schema": schema, **({} if example is None else {"example": example})}}
