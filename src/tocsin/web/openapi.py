"""`/openapi.json` and `/api/docs`: derived from the operations and their shapes, so neither can be outdated."""

import asyncio
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from holdfast.types import JSON
from tocsin.shape import FreeForm, SnakeShape, schema_ref, schemas_of
from tocsin.web.cache import SharedResults
from tocsin.web.docs import OTHER_SHAPES
from tocsin.web.pages import PageHead, html_page
from tocsin.web.response import ErrorBody, PreparedResponse, json_response
from tocsin.web.route import Operation, OperationDoc, Parameter, ResponseDoc, RouteDescription, all_responses

_CODE = re.compile(r"`([^`]+)`")
TAGS = {
    "prices": "Token prices, read from the cache.",
    "competition": "Swaps, agents and the leaderboard.",
    "scheduler": "The scheduler, for operators: needs the admin key.",
    "service": "Health, metrics and this documentation.",
}
CACHED = (b"cache-control", b"public, max-age=300")


def docs_body(version: str, tags: Mapping[str, str], operations: Sequence[Operation]) -> str:
    """The body of the page; tags are its chapters."""
    by_tag = {tag: [each for each in operations if each.doc.tag == tag] for tag in tags}
    contents = "".join(f'<li><a href="#{tag}">{_title(tag)}</a>: {_marked_up(tags[tag])}</li>' for tag in tags)
    chapters = "\n".join(_chapter(tag, each) for tag, each in by_tag.items())
    return f"""<div class="docs"><h1>Tocsin API</h1>
<p>Version {escape(version)}. For machines: <a href="/openapi.json">openapi.json</a>.
Every error is <code>{{error, code, retryable}}</code>: a sentence, a code, and whether trying again may help.</p>
<ul>{contents}</ul>
{chapters}</div>"""


def _chapter(tag: str, operations: Iterable[Operation]) -> str:
    sections = "\n".join(map(_section, operations))
    return f'<section aria-labelledby="{tag}"><h2 id="{tag}">{_title(tag)}</h2>\n{sections}</section>'


def _section(operation: Operation) -> str:
    doc = operation.doc
    name, route = escape(doc.operation_id), escape(f"{operation.method} {operation.path}")
    heading = f'<h3 id="{name}"><a href="#{name}"><code>{route}</code></a></h3>'
    text = doc.summary if not doc.description else f"{doc.summary} {doc.description}"
    responses = "".join(
        f"<dt><code>{status}</code></dt><dd>{_marked_up(response.description)}{_answer(response)}</dd>"
        for status, response in all_responses(operation).items()
    )
    return f"{heading}<p>{_marked_up(text)}</p>{_parameters(doc)}{_body(doc)}<dl>{responses}</dl>"


def _parameters(doc: OperationDoc) -> str:
    rows = "".join(map(_parameter, doc.parameters))
    if doc.key:
        rows += f"<tr><td><code>{escape(doc.key)}</code></td><td>header</td><td>the key; required</td></tr>"
    if not rows:
        return ""
    head = "<thead><tr><th>Parameter</th><th>In</th><th>Meaning</th></tr></thead>"
    return f"<table>{head}<tbody>{rows}</tbody></table>"


def _parameter(parameter: Parameter) -> str:
    required = "; required" if parameter.is_required else ""
    return (
        f"<tr><td><code>{escape(parameter.name)}</code></td><td>{parameter.place}</td>"
        f"<td>{_marked_up(parameter.description)}{required}</td></tr>"
    )


def _body(doc: OperationDoc) -> str:
    if not doc.has_body:
        return ""
    example = "" if doc.body_example is None else _example("Body", doc.body_example)
    return example or f"<p>Body: <code>{escape(_schema_name(doc))}</code>, as JSON.</p>"


def _schema_name(doc: OperationDoc) -> str:
    return "object" if doc.body is None else doc.body.__name__


def _answer(response: ResponseDoc) -> str:
    return "" if response.example is None else _example("Example", response.example.to_json())


def _example(title: str, value: JSON) -> str:
    return f"<details><summary>{title}</summary><pre>{escape(json.dumps(value, indent=2))}</pre></details>"


def _title(tag: str) -> str:
    return escape(tag[:1].upper() + tag[1:])


def _marked_up(text: str) -> str:
    """Escaped text; text between backticks is code."""
    return _CODE.sub(r"<code>\1</code>", escape(text))


class ApiDocs:
    """The API for machines and for people. The list of operations may grow, because it includes these two."""

    def __init__(self, version: str, operations: Sequence[Operation], *, compress: bool, in_one_loop: bool) -> None:
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
        "components": {"schemas": schemas_of(shapes), "securitySchemes": {key: _scheme(key) for key in sorted(keys)}},
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
