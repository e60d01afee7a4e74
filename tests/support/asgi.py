"""Sends requests to an ASGI application without a server, or serves it on a free port."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from starlette.types import ASGIApp, Receive, Scope, Send

from support.api_contract import DOCUMENT, CheckedApp
from tocsin.local.server import HttpServer


@dataclass(frozen=True, slots=True)
class Answer:
    """A complete response. Header names are lower-case."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


async def ask(
    app: ASGIApp,
    target: str,
    *,
    method: str = "GET",
    headers: Mapping[str, str] | None = None,
    body: bytes | AsyncIterator[bytes] = b"",
    client: str = "192.0.2.1",
) -> Answer:
    """Send one request; a body in pieces is sent without a Content-Length.

    The response must be one that the app's own OpenAPI document lists, if it has one.
    """
    path, _, query = target.partition("?")
    sent = {"host": "tocsin.test", **(headers or {})}
    pieces: list[bytes] = [body] if isinstance(body, bytes) else [piece async for piece in body]
    if isinstance(body, bytes) and body:
        sent["content-length"] = str(len(body))
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(path),
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in sent.items()],
        "client": (client, 4711),
        "server": ("tocsin.test", 80),
        "state": {},
    }
    messages: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        if pieces:
            piece = pieces.pop(0)
            return {"type": "http.request", "body": piece, "more_body": bool(pieces)}
        await asyncio.Event().wait()  # the client stays
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        messages.append(message)

    await checked(app)(scope, receive, send)
    start, *rest = messages
    received = {name.decode().lower(): value.decode("latin-1") for name, value in start["headers"]}
    assert len(received) == len(start["headers"]), "a header was sent twice"
    return Answer(start["status"], received, b"".join(message.get("body", b"") for message in rest))


def checked(app: ASGIApp) -> CheckedApp:
    async def read_document() -> Any:
        return (await ask(unchecked(app), DOCUMENT, client="192.0.2.254")).json()  # with limits of its own

    return CheckedApp(app, read_document)


def unchecked(app: ASGIApp) -> ASGIApp:
    """Return the app without the check against the API's document, for frequent requests."""

    async def passed_on(scope: Scope, receive: Receive, send: Send) -> None:
        await app(scope, receive, send)

    return passed_on


@asynccontextmanager
async def open_server(app: ASGIApp, *proxies: str) -> AsyncIterator[HttpServer]:
    """Serve the app. Requests of the proxies name the address of their client."""
    server = HttpServer("127.0.0.1", 0, proxies)
    await server.start(app)
    try:
        yield server
    finally:
        await server.stop()


@asynccontextmanager
async def serving(app: ASGIApp) -> AsyncIterator[int]:
    """Serve the app; yield the port. The app's OpenAPI document, if any, must list every response."""
    with_check = checked(app)
    async with open_server(with_check) as server:
        yield server.port
    assert with_check.broken == []
