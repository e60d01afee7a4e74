"""`/openapi.json` and `/api/docs`: both made from the list of routes, so that neither can lag behind it."""

import json
from base64 import b64encode
from collections.abc import Iterable, Sequence
from hashlib import sha256
from html import escape

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from tocsin.bindings import JSON
from tocsin.web.operations import Operation, ResponseDoc
from tocsin.web.respond import json_response
from tocsin.web.schemas import ERROR

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
    """The API for machines and for people. The list may still be filled: these two are in it themselves."""

    def __init__(self, version: str, operations: Sequence[Operation]) -> None:
        self._version = version
        self._operations = operations

    async def machine(self, _request: Request) -> ASGIApp:
        return json_response(openapi(self._version, self._operations), headers=CACHED)

    async def human(self, _request: Request) -> ASGIApp:
        headers = {**CACHED, "Content-Security-Policy": POLICY}
        return Response(docs_page(self._version, self._operations), media_type="text/html", headers=headers)


def openapi(version: str, operations: Iterable[Operation]) -> JSON:
    paths: dict[str, dict[str, JSON]] = {}
    keys: set[str] = set()
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _described(operation)
        keys |= {operation.about.key} if operation.about.key else set()
    return {
        "openapi": "3.1.0",
        "info": {"title": "Tocsin", "version": version, "license": {"name": "MIT", "identifier": "MIT"}},
        "paths": paths,
        "components": {
            "schemas": {"Error": ERROR},
            "securitySchemes": {key: _scheme(key) for key in sorted(keys)},
        },
    }


def _scheme(header: str) -> JSON:
    if header == "Authorization":
        return {"type": "http", "scheme": "bearer"}
    return {"type": "apiKey", "in": "header", "name": header}


def _described(operation: Operation) -> JSON:
    error = {"description": "any error", "content": _content({"$ref": "#/components/schemas/Error"})}
    described: dict[str, JSON] = {
        "summary": operation.about.summary,
        "responses": {
            **{
                str(status): {"description": answer.about, **_content_of(answer)}
                for status, answer in operation.about.answers.items()
            },
            "default": error,
        },
    }
    if operation.about.parameters:
        described["parameters"] = [
            {
                "name": parameter.name,
                "in": parameter.place,
                "description": parameter.about,
                "required": parameter.required,
                "schema": parameter.schema,
                **({"style": "form", "explode": False} if parameter.schema.get("type") == "array" else {}),
            }
            for parameter in operation.about.parameters
        ]
    if operation.about.key:
        described["security"] = [{operation.about.key: []}]
    if operation.about.body is not None:
        described["requestBody"] = {
            "required": True,
            "content": _content({"type": "object"}, operation.about.body),
        }
    return described


def _content_of(answer: ResponseDoc) -> dict[str, JSON]:
    if answer.schema is None:
        return {}
    return {"content": _content(answer.schema, answer.example, answer.media_type)}


def _content(schema: JSON, example: JSON = None, media_type: str = "application/json") -> JSON:
    return {media_type: {"schema": schema, **({} if example is None else {"example": example})}}


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
Times are unix milliseconds. Every error is <code>{{error, code, retryable}}</code>: a sentence, a word, and
whether to try again.</p>
{sections}
</html>
"""


def _section(operation: Operation) -> str:
    rows = "".join(
        f"<tr><td><code>{escape(parameter.name)}</code></td><td>{escape(parameter.about)}</td></tr>"
        for parameter in operation.about.parameters
    )
    if operation.about.key:
        rows += f"<tr><td><code>{escape(operation.about.key)}</code></td><td>header: the key</td></tr>"
    answers = "".join(
        f"<p>{status}: {escape(answer.about)}</p>"
        + (f"<pre>{escape(json.dumps(answer.example, indent=2))}</pre>" if answer.example is not None else "")
        for status, answer in operation.about.answers.items()
    )
    heading = f"<h2><code>{escape(f'{operation.method} {operation.path}')}</code></h2>"
    return f"{heading}<p>{escape(operation.about.summary)}</p><table>{rows}</table>{answers}"
