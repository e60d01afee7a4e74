"""`/openapi.json` and `/api/docs`: derived from the operations and their shapes, so neither can be outdated."""

import asyncio
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import inf

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from holdfast.types import JSON
from tocsin import __version__
from tocsin.board.types import News
from tocsin.scheduler.types import EventBatch
from tocsin.shape import FreeForm, Shape, SnakeShape, schema_ref, schemas_of
from tocsin.web.cache import SharedResults
from tocsin.web.deps import WebDeps
from tocsin.web.pages import PageHead, html_page
from tocsin.web.parameters import Parameter
from tocsin.web.response import ErrorBody, PreparedResponse, json_response
from tocsin.web.route import Handler, Operation, ResponseDoc, RouteDescription, all_responses, get

_CODE = re.compile(r"`([^`]+)`")
TAGS = {
    "prices": "Token prices, read from the cache.",
    "competition": "Swaps, agents and the leaderboard.",
    "scheduler": "The scheduler, for operators: needs the admin key.",
    "upstreams": "What other programs may ask Hiro and Tenero through this service: needs a key of its own.",
    "service": "Health, metrics and this documentation.",
}
CACHED = (b"cache-control", b"public, max-age=300")
OTHER_SHAPES = (EventBatch, News)  # not responses themselves, but a reader of the API needs them


@dataclass(frozen=True, slots=True)
class ApiDocument(Shape):
    """An OpenAPI document: its version of OpenAPI, the routes by path, and the shapes in `components`."""

    openapi: str
    info: FreeForm
    tags: list[FreeForm]
    paths: FreeForm
    components: FreeForm


def docs_body(version: str, tags: Mapping[str, str], operations: Sequence[Operation]) -> str:
    """The body of the page; tags are its chapters."""
    by_tag = {tag: [each for each in operations if each.tag == tag] for tag in tags}
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
    name, route = escape(operation.operation_id), escape(f"{operation.method} {operation.path}")
    heading = f'<h3 id="{name}"><a href="#{name}"><code>{route}</code></a></h3>'
    text = " ".join(filter(None, (operation.summary, operation.description)))
    responses = "".join(
        f"<dt><code>{status}</code></dt><dd>{_marked_up(response.description)}{_answer(response)}</dd>"
        for status, response in all_responses(operation).items()
    )
    return f"{heading}<p>{_marked_up(text)}</p>{_parameters(operation)}{_body(operation)}<dl>{responses}</dl>"


def _parameters(operation: Operation) -> str:
    rows = "".join(map(_parameter, operation.parameters))
    if operation.key_header:
        rows += f"<tr><td><code>{operation.key_header}</code></td><td>header</td><td>the key; required</td></tr>"
    if not rows:
        return ""
    head = "<thead><tr><th>Parameter</th><th>In</th><th>Meaning</th></tr></thead>"
    return f"<table>{head}<tbody>{rows}</tbody></table>"


def _parameter(parameter: Parameter) -> str:
    required = "; required" if parameter.required else ""
    return (
        f"<tr><td><code>{escape(parameter.name)}</code></td><td>{parameter.place}</td>"
        f"<td>{_marked_up(parameter.description)}{required}</td></tr>"
    )


def _body(operation: Operation) -> str:
    if not operation.has_body:
        return ""
    if operation.body_example is not None:
        return _example("Body", operation.body_example)
    name = "object" if operation.body is None else operation.body.__name__
    return f"<p>Body: <code>{escape(name)}</code>, as JSON.</p>"


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

    def __init__(self, deps: WebDeps, handlers: Sequence[tuple[Operation, Handler]]) -> None:
        self._deps = deps
        self._handlers = handlers
        self._made: SharedResults[str, PreparedResponse] = SharedResults(deps, inf, 2)

    @get("/openapi.json", "getOpenApi", "a document", ApiDocument, store=False, prepared=True)
    async def machine(self, _request: Request) -> ASGIApp:
        """This API as OpenAPI 3.1."""
        return await self._made.get("document", lambda: self._prepared(self._document))

    @get("/api/openapi.json", "getSiteOpenApi", "a document", ApiDocument, store=False, prepared=True)
    async def for_site(self, request: Request) -> ASGIApp:
        """The same document, at the path that the site's clients use."""
        return await self.machine(request)

    @get("/api/docs", "getApiDocs", "a page", media_type="text/html", store=False, prepared=True)
    async def human(self, _request: Request) -> ASGIApp:
        """This API as a page."""
        return await self._made.get("page", lambda: self._prepared(self._page))

    def _operations(self) -> list[Operation]:
        return [operation for operation, _ in self._handlers]

    def _document(self) -> Response:
        return json_response(openapi(__version__, self._operations()))

    def _page(self) -> Response:
        head = PageHead("API", "Every route of the service: parameters, bodies, responses and examples.")
        return html_page(head, docs_body(__version__, TAGS, self._operations()))

    async def _prepared(self, make: Callable[[], Response]) -> PreparedResponse:
        """Made once, which takes a third of a second: in a thread, where other requests would wait for it."""
        response = await asyncio.to_thread(make) if self._deps.in_one_loop else make()
        body, media_type = bytes(response.body), response.headers["content-type"]
        return PreparedResponse(body, media_type, [CACHED], compress=self._deps.process.compress)


def openapi(version: str, operations: Iterable[Operation]) -> FreeForm:
    paths: dict[str, FreeForm] = {}
    keys: set[str] = set()
    shapes: dict[type[SnakeShape], None] = dict.fromkeys((ErrorBody, *OTHER_SHAPES))
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _described(operation)
        keys |= {operation.key_header} if operation.key_header else set()
        shapes |= dict.fromkeys(shape for each in all_responses(operation).values() for shape in each.shapes)
        if operation.body is not None:
            shapes[operation.body] = None
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
    described: FreeForm = {
        "operationId": operation.operation_id,
        "tags": [operation.tag],
        "summary": operation.summary,
        "description": operation.description or operation.summary,
        "responses": {
            str(status): {"description": response.description, **_content_of(response)}
            for status, response in all_responses(operation).items()
        },
    }
    if operation.parameters:
        described["parameters"] = [
            {
                "name": parameter.name,
                "in": parameter.place,
                "description": parameter.description,
                "required": parameter.required,
                "schema": dict(parameter.schema),
                **({} if parameter.example is None else {"example": parameter.example}),
                **({"style": "form", "explode": False} if parameter.schema.get("type") == "array" else {}),
            }
            for parameter in operation.parameters
        ]
    if operation.key_header:
        described["security"] = [{operation.key_header: []}]
    if operation.has_body:
        schema = schema_ref(operation.body) if operation.body is not None else operation.body_schema
        described["requestBody"] = {"required": True, "content": _content(schema, operation.body_example)}
    return described


def _content_of(response: ResponseDoc) -> FreeForm:
    if response.is_any_json:
        return {"content": _content({})}
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
