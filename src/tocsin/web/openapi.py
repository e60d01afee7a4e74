"""`/openapi.json` and `/api/docs`: derived from the operations and their shapes, so neither can be outdated."""

import asyncio
from collections.abc import Callable, Iterable, Sequence

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
from tocsin.web.shared_results import SharedResults

TAGS = {
    "prices": "Token prices, read from the cache.",
    "competition": "Swaps, agents and the leaderboard.",
    "scheduler": "The scheduler, for operators: needs the admin key.",
    "service": "Health, metrics and this documentation.",
}
CACHED = (b"cache-control", b"public, max-age=300")


class ApiDocs:
    """The API for machines and for people. The list of operations may grow, because it includes these two."""

    def __init__(
        self, version: str, operations: Sequence[Operation], *, compress: bool, in_one_loop: bool
    ) -> None:
        self._version = version
        self._operations = operations
        self._compress = compress
        self._in_one_loop = in_one_loop
        self._made: SharedResults[str, PreparedResponse] = SharedResults(2, in_one_loop=in_one_loop)

    async def machine(self, _request: Request) -> ASGIApp:
        return self._made.get("document") or await self._made.computed(
            "document", lambda: self._prepared(self._document)
        )

    async def human(self, _request: Request) -> ASGIApp:
        return self._made.get("page") or await self._made.computed("page", lambda: self._prepared(self._page))

    def _document(self) -> Response:
        return json_response(openapi(self._version, self._operations))

    def _page(self) -> Response:
        head = PageHead("API", "Every route of the service: parameters, bodies, responses and examples.")
        return html_page(head, docs_body(self._version, TAGS, self._operations))

    async def _prepared(self, make: Callable[[], Response]) -> PreparedResponse:
        """Made once, which takes a third of a second: in a thread, where other requests would wait for it."""
        response = await asyncio.to_thread(make) if self._in_one_loop else make()
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
