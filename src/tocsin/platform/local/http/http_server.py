"""The HTTP server: uvicorn on the loop of the service, started and stopped like its other parts."""

import asyncio
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from tocsin.errors import StartError
from tocsin.platform.local.http.connections import Connections, connections_max, raise_descriptor_limit
from tocsin.platform.local.http.http_protocol import HttpProtocol

GRACE_S = 3  # for requests under way when the process stops
ANSWER_S = 1  # for their responses, when that time is over
BACKLOG = 1024
ACCEPTED_AT_ONCE = 16  # libuv accepts one connection per socket in each round of the loop


class HttpServer:
    """Listens as soon as it is created, so that the port is known. Serves requests after `start`."""

    def __init__(
        self,
        host: str,
        port: int,
        trusted_proxies: Sequence[str] = (),
        inherited: Sequence[socket.socket] = (),
    ) -> None:
        """Requests from `trusted_proxies` have the client's address in `X-Forwarded-For`.

        `inherited` sockets already listen and are used instead of host and port. The process that passed them also has
        them open: when this server stops, new connections wait there for its successor.
        """
        self._trusted_proxies = list(trusted_proxies)
        self._sockets = list(inherited) or [listen(host, port)]
        bound_host, bound_port = self._sockets[0].getsockname()[:2]
        self.port: int = bound_port
        host = bound_host if inherited else host
        self.url = f"http://{authority(host, self.port)}"
        self._server: _Server | None = None
        self.connections = Connections(connections_max(raise_descriptor_limit()), trusted_proxies)

    async def start(self, app: ASGIApp, **options: Any) -> None:  # noqa: ANN401 - uvicorn's own options
        """Serve the app. The options are uvicorn's and are added to ours."""
        config = uvicorn.Config(
            app,
            **{"http": partial(HttpProtocol, places=self.connections), **options},
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=bool(self._trusted_proxies),
            forwarded_allow_ips=self._trusted_proxies,
            server_header=False,
            ws="none",
            timeout_graceful_shutdown=GRACE_S + ANSWER_S,
        )
        self._server = _Server(config)
        copies = [each.dup() for each in self._sockets for _ in range(ACCEPTED_AT_ONCE - 1)]
        self._serving = asyncio.create_task(self._server.serve(sockets=[*self._sockets, *copies]))
        await self._server.ready.wait()

    async def stop(self) -> None:
        self.connections.stopping = True
        if self._server is not None:
            self._server.should_exit = True
            with suppress(asyncio.CancelledError):
                await self._serving
        self.close()

    def close(self) -> None:
        for each in self._sockets:
            each.close()


class _Server(uvicorn.Server):
    """Has an event for "ready", leaves signals to the service, and lets the application answer when it stops."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Cancel requests that are still under way after `GRACE_S`. They can still send a response.

        uvicorn itself would exit immediately after cancelling them.
        """
        timer = asyncio.get_running_loop().call_later(GRACE_S, self._cancel_requests)
        try:
            await super().shutdown(sockets)
        finally:
            timer.cancel()

    def _cancel_requests(self) -> None:
        for request in self.server_state.tasks:
            request.cancel()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def listen(host: str, port: int) -> socket.socket:
    """A listening TCP socket."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Without IPPROTO_TCP asyncio leaves Nagle's algorithm on, which delays every response by 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise StartError(
            f"cannot listen on {_bracketed(host)}:{port}: {error.strerror};"
            " another port: --port, or TOCSIN_PORT= with make; 0 for any"
        ) from error
    return listener


def authority(host: str, port: int) -> str:
    """The host and port of a URL under which this machine reaches a server that listens there."""
    address = "127.0.0.1" if host in {"0.0.0.0", "::", ""} else host  # noqa: S104 - compared, not bound
    return f"{_bracketed(address)}:{port}"


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
