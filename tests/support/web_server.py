"""A real uvicorn on loopback, as the service runs it, for as long as a block lasts."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import uvicorn
from starlette.types import ASGIApp


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def serving(app: ASGIApp) -> AsyncIterator[int]:
    """Gives the port."""
    # Named as TCP, or asyncio leaves Nagle's algorithm on and every answer waits for an ACK.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    config = uvicorn.Config(
        app, lifespan="off", log_config=None, access_log=False, http="httptools", timeout_graceful_shutdown=5
    )
    server = _Server(config)
    running = asyncio.create_task(server.serve(sockets=[listener]))
    await server.ready.wait()
    try:
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        await running
