"""The address that the server reports, and how it treats many clients at once."""

import asyncio
import socket
from contextlib import ExitStack

import pytest
import uvloop
from starlette.responses import Response

from tocsin.local.server import HttpServer, authority

CLIENTS = 60  # as many as are accepted where a process may open 256 files


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", "127.0.0.1:8787"),
        ("0.0.0.0", "127.0.0.1:8787"),
        ("::", "127.0.0.1:8787"),
        ("::1", "[::1]:8787"),
        ("2001:db8::7", "[2001:db8::7]:8787"),
        ("localhost", "localhost:8787"),
    ],
)
def test_the_address_can_be_opened_as_it_is(host: str, expected: str) -> None:
    """An IPv6 address has brackets in a URL. An address that means "all" is shown as this machine's own."""
    assert authority(host, 8787) == expected


def test_many_clients_that_come_at_once_are_accepted_together() -> None:
    """Libuv accepts one connection per loop iteration: under load, the last would wait for a second."""

    async def accepted() -> tuple[int, int]:
        server = HttpServer("127.0.0.1", 0, trusted_proxies=["127.0.0.1"])
        loop, looks = asyncio.get_running_loop(), 0

        def look() -> None:
            nonlocal looks
            looks += 1
            if server.connections.count < CLIENTS and looks < 10 * CLIENTS:
                loop.call_soon(look)

        with ExitStack() as stack:
            for _ in range(CLIENTS):
                stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            await server.start(Response("fine"))
            look()
            while server.connections.count < CLIENTS and looks < 10 * CLIENTS:
                await asyncio.sleep(0)
            count = server.connections.count
        await server.stop()
        return count, looks

    count, looks = uvloop.run(accepted())

    assert count == CLIENTS
    assert looks < CLIENTS / 4
