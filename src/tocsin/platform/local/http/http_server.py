"""HTTP on our own loop: uvicorn, started and stopped like every other part."""

import asyncio
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tocsin.errors import StartError

GRACE_S = 3  # for requests under way when the process stops
BACKLOG = 1024


# Said before there is a request, so by nobody who knows the application's errors.
MALFORMED = (
    b'{"error":"This is no HTTP request: check method, path and headers.",'
    b'"code":"malformed_request","retryable":false}'
)


class HttpProtocol(HttpToolsProtocol):
    """Refuses what is not HTTP in the shape of every other error."""

    def send_400_response(self, _msg: str) -> None:
        head = b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\nconnection: close\r\n"
        length = b"content-length: %d\r\n\r\n" % len(MALFORMED)
        self.transport.write(head + length + MALFORMED)
        self.transport.close()


class HttpServer:
    """Listens from the moment it is made, so that the port is known; answers when it is started."""

    def __init__(self, host: str, port: int, trusted_proxies: Sequence[str] = ()) -> None:
        """Of `trusted_proxies` the client's address is taken from `X-Forwarded-For`."""
        self._trusted_proxies = list(trusted_proxies)
        self._socket = listen(host, port)
        self.port: int = self._socket.getsockname()[1]
        shown = "127.0.0.1" if host in {"0.0.0.0", "::", ""} else host  # noqa: S104 - compared, not bound
        self.url = f"http://{shown}:{self.port}"
        self._server: _Server | None = None

    async def start(self, app: ASGIApp, **options: Any) -> None:
        """Serve the app; the options are uvicorn's, beside our own."""
        config = uvicorn.Config(
            app,
            **{"http": HttpProtocol, **options},
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=bool(self._trusted_proxies),
            forwarded_allow_ips=self._trusted_proxies,
            server_header=False,
            timeout_graceful_shutdown=GRACE_S,
        )
        self._server = _Server(config)
        self._serving = asyncio.create_task(self._server.serve(sockets=[self._socket]))
        await self._server.ready.wait()

    async def stop(self) -> None:
        if self._server is not None:
            self._server.should_exit = True
            with suppress(asyncio.CancelledError):
                await self._serving
        self.close()

    def close(self) -> None:
        self._socket.close()


class _Server(uvicorn.Server):
    """Tells when it is ready, and leaves signals to the service."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def listen(host: str, port: int) -> socket.socket:
    """A listening TCP socket. Named as TCP: else asyncio leaves Nagle's delay on, 40 ms for every answer."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((host, port))
        found.listen(BACKLOG)
    except OSError as error:
        found.close()
        raise StartError(
            f"cannot listen on {host}:{port}: {error.strerror}; another port: --port, 0 for any"
        ) from error
    return found
