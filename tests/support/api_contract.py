"""Compares what the web app sends with what its own `/openapi.json` promises.

`ask` and `serving` of `support.asgi` put this around every app that has such a document, so each test
that makes a request checks the document too: the status is listed, and the body fits its schema.
"""

import asyncio
import gzip
import json
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from support.schemas import violation
from tocsin.web.app import WebApp
from tocsin.web.route import PathPatterns

DOCUMENT = "/openapi.json"
ERROR = {"$ref": "#/components/schemas/ErrorBody"}

_documents: dict[str, Any] = {}  # the same for every app: only the version may differ


class CheckedApp:
    """An app that raises AssertionError after a response that its document does not describe.

    `read_document` asks the app for it; an app without one is not checked. `broken` keeps the messages, for servers
    that only log what an app raises.
    """

    def __init__(self, app: ASGIApp, read_document: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        self.app = app
        self._read_document = read_document
        self.broken: list[str] = []
        routes = app.routes if isinstance(app, WebApp) else []
        self._documented = any(isinstance(route, Route) and route.path == DOCUMENT for route in routes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self._documented or scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        messages: list[Message] = []

        async def send_and_keep(message: Message) -> None:
            messages.append(message)
            await send(message)

        await self.app(scope, receive, send_and_keep)
        if not messages or messages[-1].get("more_body", False):
            return  # the client has left
        document = self._document()
        start, *bodies = messages
        body = b"".join(message.get("body", b"") for message in bodies)
        try:
            check_response(document, scope["method"], scope["path"], start, body)
        except AssertionError as error:
            self.broken.append(str(error))
            raise

    def _document(self) -> Any:
        """Ask for the document once, in a loop of its own: a simulated history must not depend on earlier ones."""
        if DOCUMENT not in _documents:
            with ThreadPoolExecutor(1) as thread:
                _documents[DOCUMENT] = thread.submit(asyncio.run, self._read_document()).result()
        return _documents[DOCUMENT]


@cache
def _patterns(paths: tuple[str, ...]) -> PathPatterns:
    """Patterns of the document's paths. Only `{path}` stands for several parts, which OpenAPI cannot say."""
    return PathPatterns(path.replace("{path}", "{path:path}") for path in paths)


def check_response(document: Any, method: str, path: str, start: Message, body: bytes) -> None:
    """Assert that the document lists the response, and that the body fits its schema."""
    status = start["status"]
    headers = {name.decode().lower(): value.decode("latin-1") for name, value in start["headers"]}
    media_type = headers.get("content-type", "").partition(";")[0]
    route = (_patterns(tuple(document["paths"])).find(path) or "").replace(":path}", "}")
    operation = document["paths"].get(route, {}).get("get" if method == "HEAD" else method.lower())
    if operation is None:  # a page, one of its files, or nothing that exists
        content = {"application/json": {"schema": ERROR}} if status >= 400 else {}
        if content and not path.startswith("/api/"):
            content["text/html"] = {}
    else:
        name = operation["operationId"]
        assert str(status) in operation["responses"], f"{name} does not list the status {status}"
        content = operation["responses"][str(status)].get("content", {})
    if not content or not body:
        return
    documented = {key.partition(";")[0]: value for key, value in content.items()}
    assert media_type in documented, f"{method} {path} {status}: {media_type} is not one of {list(documented)}"
    if media_type == "application/json":
        plain = gzip.decompress(body) if headers.get("content-encoding") == "gzip" else body
        wrong = violation(document, documented[media_type]["schema"], json.loads(plain))
        assert wrong is None, f"{method} {path} {status}: {wrong}"
