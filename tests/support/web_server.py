"""The service's own HTTP server, on a free port, for as long as a block lasts."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.types import ASGIApp

from tocsin.platform.local.http.http_server import HttpServer


@asynccontextmanager
async def serving(app: ASGIApp) -> AsyncIterator[int]:
    """Gives the port."""
    server = HttpServer("127.0.0.1", 0)
    await server.start(app)
    try:
        yield server.port
    finally:
        await server.stop()
