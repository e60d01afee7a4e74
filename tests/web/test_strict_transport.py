"""Strict-Transport-Security: only where the client uses https, as a trusted proxy says."""

import asyncio
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path

import pytest

from support.scripted_scheduler import scene
from tocsin.local.server import HttpServer
from tocsin.web.app import create_app
from tocsin.web.pages import page_routes
from tocsin.web.response import static_headers

YEAR = "max-age=31536000"
PATHS = ("/api/prices", "/api/prices", "/healthz", "/leaderboard", "/nothing")  # the second one is cached


@pytest.mark.slow
@pytest.mark.parametrize(
    ("proxies", "proto", "expected"),
    [
        (["127.0.0.0/8"], "https", YEAR),
        (["127.0.0.0/8"], "http", None),
        (["127.0.0.0/8"], None, None),
        (["10.0.0.0/8"], "https", None),
        ([], "https", None),
    ],
)
async def test_it_is_sent_over_https_only(
    tmp_path: Path, proxies: list[str], proto: str | None, expected: str | None
) -> None:
    """On every kind of response, cached prices and errors too; a client that is no proxy cannot ask for it."""

    def visit(port: int) -> list[str | None]:
        with closing(HTTPConnection("127.0.0.1", port)) as client:
            found = []
            for path in PATHS:
                client.request("GET", path, headers={} if proto is None else {"X-Forwarded-Proto": proto})
                response = client.getresponse()
                response.read()
                found.append(response.headers["strict-transport-security"])
            return found

    async with scene(tmp_path) as made:
        server = HttpServer("127.0.0.1", 0, proxies)
        await server.start(create_app(made.site, page_routes()))
        found = await asyncio.to_thread(visit, server.port)
        await server.stop()

    assert found == [expected] * len(PATHS)


def test_cloudflare_sends_it_with_every_file() -> None:
    """Those files do not pass the application."""
    rules = static_headers().split("\n/")

    assert all("strict-transport-security: max-age=31536000" in rule for rule in rules)
