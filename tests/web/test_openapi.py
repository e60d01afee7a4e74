"""The API's documentation as OpenAPI, as a page and in docs/api.md, and the checkers that compare responses with it."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from starlette.routing import Route

from holdfast.testing.virtual_time import run_virtual
from support.api_contract import check_response
from support.schemas import references, resolve, violation
from support.world import Tocsin, tocsin_in
from tocsin import shape
from tocsin.prices import price as prices
from tocsin.scheduler import types as scheduler
from tocsin.shape import SnakeShape, schemas_of
from tocsin.swaps import types as competition
from tocsin.text import camel_case
from tocsin.web import openapi as openapi_module
from tocsin.web import route as responses
from tocsin.web.app import WebApp
from tocsin.web.deps import Process

API_PAGE = Path(__file__).parents[2] / "docs" / "api.md"
TEXT = {"content": {"text/plain": {"schema": {"type": "string"}}}}


def paths_of(app: WebApp) -> set[str]:
    return {route.path.replace(":path}", "}") for route in app.routes if isinstance(route, Route)}


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The document as served. Building it takes a third of a second."""

    async def served() -> Any:
        async with tocsin_in(tmp_path_factory.mktemp("docs")) as made:
            return (await made.ask("/openapi.json")).json()

    return run_virtual(served())


def operations(spec: Any) -> list[tuple[str, Any]]:
    return [
        (f"{method.upper()} {path}", operation)
        for path, methods in spec["paths"].items()
        for method, operation in methods.items()
    ]


async def test_every_route_is_documented_everywhere(made: Tocsin, spec: Any) -> None:
    """In openapi.json, on the page, and in docs/api.md."""
    page = (await made.ask("/api/docs")).body.decode()
    assert (await made.ask("/api/openapi.json")).json() == spec  # where the site's clients look

    app = WebApp(made.deps)
    pages = {path for path in paths_of(app) if path.startswith(("/agents/", "/rounds", "/leaderboard"))}
    assert set(spec["paths"]) == paths_of(app) - pages
    for name, _ in operations(spec):
        method, _, path = name.partition(" ")
        assert f"<code>{name}</code>" in page
        assert "`" not in re.sub("<pre>.*?</pre>", "", page, flags=re.DOTALL)
        assert re.search(rf"`{method}[^`]* {re.escape(path)}(?![\w/])", API_PAGE.read_text()), path


def test_every_operation_is_complete(spec: Any) -> None:
    """OpenAPI 3.1: an id of its own, a tag that exists, a description, its errors, and the key that it needs."""
    tags = {tag["name"]: tag["description"] for tag in spec["tags"]}
    ids = [operation["operationId"] for _, operation in operations(spec)]

    assert spec["openapi"] == "3.1.0"
    assert len(ids) == len(set(ids)) == 45
    assert all(re.fullmatch(r"[a-z]+[A-Za-z]+", name) for name in ids)
    assert set(spec["components"]["securitySchemes"]) == {"Authorization", "X-Admin-Key", "X-Api-Key", "X-Cron-Secret"}
    for name, operation in operations(spec):
        assert operation["tags"][0] in tags, name
        assert operation["summary"], name
        assert operation["description"], name
        assert all(response["description"] for response in operation["responses"].values()), name
        needs_key = {"401", "429", "503"} if "security" in operation else set()
        has_body = {"400", "408", "413", "415"} if "requestBody" in operation else set()
        has_parameters = {"400"} if operation.get("parameters") else set()
        assert {"200", "500"} | needs_key | has_body | has_parameters <= set(operation["responses"]), name
    assert all(tags.values())


def test_every_parameter_of_a_path_is_required(spec: Any) -> None:
    """A document with an optional one is invalid, and generators leave its route out."""
    named = {(path, name) for path in spec["paths"] for name in re.findall(r"{(\w+)}", path)}
    required = {
        (path, parameter["name"])
        for path, methods in spec["paths"].items()
        for operation in methods.values()
        for parameter in operation.get("parameters", ())
        if parameter["in"] == "path" and parameter["required"] is True
    }
    assert ("/api/admin/scheduler/runs/{number}", "number") in named
    assert required == named


def test_every_success_declares_its_body(spec: Any) -> None:
    """A generated client returns nothing for a response without a content."""
    bare = [name for name, operation in operations(spec) if "content" not in operation["responses"]["200"]]
    assert bare == []


def test_every_reference_resolves(spec: Any) -> None:
    """And every error has the shape of all errors, except a refused trade, an error of JSON-RPC and a relayed 404."""
    refs = set(references(spec))

    assert {"#/components/schemas/Board", "#/components/schemas/Status"} <= refs
    error = resolve(spec, "#/components/schemas/ErrorBody")
    assert error["required"] == ["error", "code", "retryable"]
    for ref in refs:
        assert resolve(spec, ref)["type"] == "object", ref
        assert resolve(spec, ref)["description"], ref
    for name, operation in operations(spec):
        for status, response in operation["responses"].items():
            if int(status) >= 400:
                shapes = set(references(response))
                assert shapes <= {
                    "#/components/schemas/ErrorBody",
                    "#/components/schemas/RefusedTrade",
                    "#/components/schemas/McpMessage",
                }, f"{name} {status}"
                relayed = "/api/upstream" in name and status == "404"
                assert shapes or relayed, f"{name} {status}"


def test_every_example_fits_its_schema(spec: Any) -> None:
    """In responses and in request bodies."""
    contents = [
        (name, content)
        for name, operation in operations(spec)
        for part in (*operation["responses"].values(), operation.get("requestBody", {}))
        for content in part.get("content", {}).values()
    ]
    examples = [(name, content) for name, content in contents if "example" in content]

    assert len(examples) >= 8
    for name, content in examples:
        assert violation(spec, content["schema"], content["example"]) is None, name


# What fields mean


def test_every_property_has_a_description_with_its_unit(spec: Any) -> None:
    """Times, durations and money say their unit; a name that no shape has would describe nothing."""
    described = {
        f"{shape}.{name}": (name, content.get("description", ""))
        for shape, schema in spec["components"]["schemas"].items()
        for name, content in schema["properties"].items()
    }
    units = {
        r"(At|_at|^at|^now|AsOf|Until|_until)$": r"unix (ms|milliseconds|seconds)|ISO 8601",
        r"(Ms|_ms|graceS|periodS|_s)$": r"milliseconds|seconds",
        r"(Usd|_usd)$": "USD",
        r"(Percent|_percent)$": "per ?cent|fraction",
        r"(burnBlockTime|burn_block_time)$": "unix seconds",
    }
    names = {name for name, _ in described.values()}
    meanings = json.loads((Path(shape.__file__).parent / "fields.json").read_text())

    assert len(described) > 500
    assert [where for where, (_, text) in described.items() if not text] == []
    for pattern, unit in units.items():
        found = {where: text for where, (name, text) in described.items() if re.search(pattern, name)}
        assert {where: text for where, text in found.items() if not re.search(unit, text)} == {}, unit
    assert [name for name in meanings if not {name, camel_case(name)} & names and name != "kind"] == []


def test_descriptions_use_the_names_that_the_json_has() -> None:
    """A reader of the document sees camelCase fields: a description must not name another one."""
    shapes = [
        shape
        for module in (competition, prices, responses, scheduler)
        for shape in vars(module).values()
        if isinstance(shape, type) and issubclass(shape, SnakeShape) and shape.__module__ == module.__name__
    ]
    for name, schema in schemas_of(shapes).items():
        assert isinstance(schema, dict)
        properties = schema["properties"]
        assert isinstance(properties, dict)
        snake = re.findall(r"`([a-z]+_[a-z_]+)`", str(schema["description"]))
        assert set(snake) <= set(properties), name


SPEC: Any = {
    "components": {
        "schemas": {
            "Price": {
                "type": "object",
                "properties": {
                    "usd": {"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"type": "null"}]},
                    "source": {"enum": ["tenero", "peg"]},
                },
                "required": ["usd"],
                "patternProperties": {"^last": {"type": ["integer", "null"]}},
            },
            "ErrorBody": {"type": "object", "required": ["error"], "properties": {"error": {"type": "string"}}},
            "Tree": {
                "type": "object",
                "properties": {"of": {"type": "array", "items": {"$ref": "#/components/schemas/Tree"}}},
                "required": ["of"],
                "additionalProperties": False,
            },
        }
    }
}
PRICE, TREE = {"$ref": "#/components/schemas/Price"}, {"$ref": "#/components/schemas/Tree"}
PRICES = {"type": "array", "items": PRICE}
BY_TOKEN = {"type": "object", "additionalProperties": PRICE, "propertyNames": {"pattern": "^[a-z]+$"}}
NUMBERED = {"type": "object", "patternProperties": {"^n": {"type": "integer"}}, "additionalProperties": False}
TEXT_OR_NULLS = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "null"}}]}


@pytest.mark.parametrize(
    ("schema", "value", "place"),
    [
        (PRICE, {"usd": 1.5, "source": "peg", "lastRun": None, "other": []}, None),
        (PRICE, {"usd": None}, None),
        (PRICE, {"source": "peg"}, "$: usd is missing"),
        (PRICE, {"usd": 0}, "$.usd: fits none of 2"),
        (PRICE, {"usd": True}, "$.usd: fits none of 2"),
        (PRICE, {"usd": 1, "source": "guess"}, "$.source: "),
        (PRICE, {"usd": 1, "lastRun": 1.5}, "$.lastRun: "),
        (PRICE, [], "$: [] is not of type object"),
        (PRICES, [{"usd": 1}, {}], "$[1]: usd is missing"),
        (BY_TOKEN, {"stx": {"usd": 1}}, None),
        (BY_TOKEN, {"stx": {}}, "$.stx: usd is missing"),
        (BY_TOKEN, {"STX": {"usd": 1}}, "$.STX: "),
        ({}, {"a": [1]}, None),
        ({"type": "integer"}, 1, None),
        ({"type": "integer"}, True, "$: true is not of type integer"),
        ({"type": "integer"}, 1.5, "$: "),
        ({"type": "number"}, 1, None),
        ({"type": "number"}, 1.5, None),
        ({"type": ["string", "null"]}, None, None),
        ({"type": ["string", "null"]}, 0, "$: "),
        ({"enum": ["a", "b"]}, "b", None),
        ({"enum": ["a", "b"]}, "c", "$: "),
        ({"const": 3}, 4, "$: "),
        ({"type": "string", "pattern": "^a+$"}, "aa", None),
        ({"type": "string", "pattern": "^a+$"}, "ab", "$: "),
        ({"type": "integer", "minimum": 0, "maximum": 9}, 9, None),
        ({"type": "integer", "minimum": 1, "maximum": 3}, 4, "$: 4 is above 3"),
        ({"type": "number", "exclusiveMinimum": 0}, 0, "$: "),
        (TEXT_OR_NULLS, [None], None),
        (TEXT_OR_NULLS, [1], "$: fits none of 2"),
        (TREE, {"of": [{"of": []}]}, None),
        (TREE, {"of": [{"of": [{}]}]}, "$.of[0].of[0]: of is missing"),
        (TREE, {"of": [], "more": 1}, "$.more: there is no such field"),
        (NUMBERED, {"n1": 1}, None),
        (NUMBERED, {"n1": "1"}, "$.n1: "),
        (NUMBERED, {"m1": 1}, "$.m1: there is no such field"),
        ({"additionalProperties": {"type": "boolean"}}, {"a": True}, None),
        ({"additionalProperties": {"type": "boolean"}}, {"a": 1}, "$.a: "),
    ],
)
def test_the_checker_of_schemas(schema: Any, value: Any, place: str | None) -> None:
    """The other tests are only as good as this."""
    wrong = violation(SPEC, schema, value)

    assert (wrong is None) == (place is None)
    assert wrong is None or wrong.startswith(place or "")


@pytest.mark.parametrize(
    ("path", "status", "body", "message"),
    [
        ("/price", 200, b'{"usd": 1}', None),
        ("/price", 200, b"{}", "usd is missing"),
        ("/price", 418, b'{"error": "x"}', "getPrice does not list the status 418"),
        ("/nowhere", 404, b'{"error": "x"}', None),
        ("/nowhere", 404, b"{}", "error is missing"),
        ("/text", 200, b"{}", "application/json is not one of"),
    ],
)
def test_the_checker_of_responses(path: str, status: int, body: bytes, message: str | None) -> None:
    """It finds a status that is not listed, a body that does not fit, and another media type."""
    paths = {
        "/price": {
            "get": {
                "operationId": "getPrice",
                "responses": {"200": {"content": {"application/json": {"schema": PRICE}}}},
            }
        },
        "/text": {"get": {"operationId": "getText", "responses": {"200": TEXT}}},
    }
    start = {"status": status, "headers": [(b"content-type", b"application/json")]}
    if message is None:
        check_response({**SPEC, "paths": paths}, "GET", path, start, body)
    else:
        with pytest.raises(AssertionError, match=message):
            check_response({**SPEC, "paths": paths}, "GET", path, start, body)


async def test_the_page_runs_nothing(made: Tocsin) -> None:
    """It has no script, and its policy allows our files only; a browser may not frame it."""
    answer = await made.ask("/api/docs")
    policy = answer.headers["content-security-policy"]

    assert answer.headers["content-type"].startswith("text/html")
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'; ")
    assert "frame-ancestors 'none'" in policy
    assert answer.headers["x-frame-options"] == "DENY"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert "<script" not in answer.body.decode()
    assert not re.search(r"(src|href|action)=\S?https?:", answer.body.decode())


@pytest.mark.slow
@pytest.mark.parametrize("in_one_loop", [True, False])
@pytest.mark.parametrize("path", ["/openapi.json", "/api/openapi.json", "/api/docs"])
async def test_the_documentation_is_prepared_once(tmp_path: Path, path: str, in_one_loop: bool) -> None:
    """A client that has it gets a 304, and nobody causes it to be written again."""
    written: list[str] = []

    async with tocsin_in(tmp_path, process=Process(compress=True)) as made:
        first = await made.ask(path, headers={"Accept-Encoding": "gzip"})
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(openapi_module, "json_response", lambda *_: written.append("json"))
            patched.setattr(openapi_module, "html_page", lambda *_: written.append("page"))
            again = await made.ask(path, headers={"Accept-Encoding": "gzip"})
            known = await made.ask(path, headers={"If-None-Match": first.headers["etag"]})

        assert (first.status, first.headers["content-encoding"], again.body) == (200, "gzip", first.body)
        assert first.headers["cache-control"] == "public, max-age=300"
        assert (known.status, known.body) == (304, b"")
        assert written == []
