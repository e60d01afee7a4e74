"""The API's description: as OpenAPI, as a page, and in docs/api.md."""

import re
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.routing import Route

from support.asgi import ask
from support.scripted_scheduler import scene
from tocsin.web.app import create_app

API_PAGE = Path(__file__).parents[2] / "docs" / "api.md"


def paths_of(app: Starlette) -> set[str]:
    return {route.path for route in app.routes if isinstance(route, Route)}


async def test_every_route_is_described_everywhere(tmp_path: Path) -> None:
    """A route that is not in openapi.json, on the page and in docs/api.md does not exist for anybody."""
    async with scene(tmp_path) as made:
        app = create_app(made.site)
        spec = (await ask(app, "/openapi.json")).json()
        page = (await ask(app, "/api/docs")).body.decode()

        assert set(spec["paths"]) == paths_of(app)
        for path, methods in spec["paths"].items():
            for method in methods:
                assert f"<code>{method.upper()} {path}</code>" in page
                assert re.search(rf"`{method.upper()}[^`]* {re.escape(path)}\b", API_PAGE.read_text()), path


async def test_the_document_is_sound(tmp_path: Path) -> None:
    """OpenAPI 3.1: every reference leads somewhere, every operation tells of errors and of its key."""
    async with scene(tmp_path) as made:
        spec = (await ask(create_app(made.site), "/openapi.json")).json()

        assert spec["openapi"] == "3.1.0"
        assert set(spec["components"]["securitySchemes"]) == {"Authorization", "X-Admin-Key", "X-Cron-Secret"}
        for methods in spec["paths"].values():
            for operation in methods.values():
                assert operation["summary"]
                reference = operation["responses"]["default"]["content"]["application/json"]["schema"]["$ref"]
                assert resolve(spec, reference)["required"] == ["error", "code", "retryable"]


def resolve(spec: Any, reference: str) -> Any:
    for step in reference.removeprefix("#/").split("/"):
        spec = spec[step]
    return spec


async def test_the_page_loads_nothing_and_runs_nothing(tmp_path: Path) -> None:
    """Its policy allows its own style and nothing else; a browser may not frame it."""
    async with scene(tmp_path) as made:
        answer = await ask(create_app(made.site), "/api/docs")
        policy = answer.headers["content-security-policy"]

        assert answer.headers["content-type"].startswith("text/html")
        assert policy.startswith("default-src 'none'; style-src 'sha256-")
        assert "frame-ancestors 'none'" in policy
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert "<script" not in answer.body.decode()
        assert "http://" not in answer.body.decode()
        assert "https://" not in answer.body.decode()
