"""The service's own HTTP server, on a free port, for as long as a block lasts."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.types import ASGIApp

from support.api_contract import CheckedApp
from tocsin.local.server import HttpServer


@asynccontextmanager
async def serving(app: ASGIApp) -> AsyncIterator[int]:
    """Serve the app; yield the port. The app's OpenAPI document, if any, must list every response."""
    server, checked = HttpServer("127.0.0.1", 0), CheckedApp(app)
    await server.start(checked)
    try:
        yield server.port
    finally:
        await server.stop()
    assert checked.broken == []
