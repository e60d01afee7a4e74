"""`/openapi.json` and `/api/docs`: both are derived from the operations and their shapes, so neither can lag behind."""

import json
from base64 import b64encode
from collections.abc import Iterable, Sequence
from hashlib import sha256
from html import escape

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from tocsin.bindings import JSON
from tocsin.shapes.base import FreeForm, SnakeShape, schema_ref, schemas_of
from tocsin.shapes.responses import ErrorBody, RouteDescription
from tocsin.web.operation_docs import OTHER_SHAPES
from tocsin.web.operations import Operation, ResponseDoc, all_responses
from tocsin.web.respond import json_response

TAGS = {
    "prices": "Token prices, read from the cache.",
    "competition": "Swaps, agents and the leaderboard.",
    "scheduler": "The scheduler, for operators: needs the admin key.",
    "service": "Health, metrics and this documentation.",
}
STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
  color: #1c1c1c; background: #fff; }
h2 { font-size: 1.05rem; margin: 2.5rem 0 0.25rem; border-top: 1px solid #ccc; padding-top: 1rem; }
code, pre { font: 0.9em/1.4 ui-monospace, monospace; }
pre { background: #f3f3f3; padding: 0.75rem; overflow-x: auto; }
table { border-collapse: collapse; }
td { padding: 0.15rem 1rem 0.15rem 0; vertical-align: top; }
@media (prefers-color-scheme: dark) {
  body { color: #e6e6e6; background: #161616; } pre { background: #242424; } a { color: #8ab4f8; }
}
"""
POLICY = (
    f"default-src 'none'; style-src 'sha256-{b64encode(sha256(STYLE.encode()).digest()).decode()}'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
CACHED = {"Cache-Control": "public, max-age=300"}


class ApiDocs:
    """The API for machines and for people. The list of operations may grow: these two are in it themselves."""

    def __init__(self, version: str, operations: Sequence[Operation]) -> None:
        self._version = version
        self._operations = operations
        self._document: FreeForm | None = None

    async def machine(self, _request: Request) -> ASGIApp:
        if self._document is None:
            self._document = openapi(self._version, self._operations)
        return json_response(self._document, headers=CACHED)

    async def human(self, _request: Request) -> ASGIApp:
        headers = {**CACHED, "Content-Security-Policy": POLICY}
        return Response(docs_page(self._version, self._operations), media_type="text/html", headers=headers)


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
                "required": parameter.required,
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


def docs_page(version: str, operations: Iterable[Operation]) -> str:
    sections = "\n".join(map(_section, operations))
    return f"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Tocsin API</title>
<style>{STYLE}</style>
<h1>Tocsin API</h1>
<p>Version {escape(version)}. For machines: <a href="/openapi.json">openapi.json</a>.
Times are unix milliseconds. Every error is <code>{{error, code, retryable}}</code>: a sentence, a code, and
whether trying again may help.</p>
{sections}
</html>
"""


def _section(operation: Operation) -> str:
    doc = operation.doc
    rows = "".join(
        f"<tr><td><code>{escape(parameter.name)}</code></td><td>{escape(parameter.description)}</td></tr>"
        for parameter in doc.parameters
    )
    if doc.key:
        rows += f"<tr><td><code>{escape(doc.key)}</code></td><td>header: the key</td></tr>"
    responses = "".join(
        f"<p>{status}: {escape(response.description)}</p>{_example(response)}"
        for status, response in all_responses(operation).items()
    )
    heading = f"<h2><code>{escape(f'{operation.method} {operation.path}')}</code></h2>"
    text = doc.summary if not doc.description else f"{doc.summary} {doc.description}"
    return f"{heading}<p>{escape(text)}</p><table>{rows}</table>{responses}"


def _example(response: ResponseDoc) -> str:
    if response.example is None:
        return ""
    return f"<pre>{escape(json.dumps(response.example.to_json(), indent=2))}</pre>"
