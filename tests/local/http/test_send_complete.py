"""A whole response in one write: the client sees what it would see of the usual messages."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from starlette.types import Receive, Scope, Send

from support.scripted_scheduler import scene
from tocsin.local.server import HttpServer
from tocsin.web.app import create_app
from tocsin.web.response import SEND_COMPLETE

GET = b"GET /api/prices HTTP/1.1\r\nHost: x\r\n"
DATE = re.compile(rb"date: [^\r]+\r\n")


@asynccontextmanager
async def served(directory: Path, *, offered: bool = True) -> AsyncIterator[tuple[HttpServer, list[bool]]]:
    """The app on a real server, and for each response whether it was sent in one write."""
    at_once: list[bool] = []
    async with scene(directory) as made:
        site = create_app(made.with_site(in_one_loop=True))

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            extension = scope["extensions"].pop(SEND_COMPLETE)

            def noted(status_line: bytes, rest: bytes) -> bool:
                at_once.append(extension(status_line, rest))
                return at_once[-1]

            if offered:
                scope["extensions"][SEND_COMPLETE] = noted
            await site(scope, receive, send)

        server = HttpServer("127.0.0.1", 0)
        await server.start(app)
        try:
            yield server, at_once
        finally:
            await server.stop()


async def exchange(server: HttpServer, *requests: bytes) -> bytes:
    """Return everything that one connection gets for these requests, sent at once; the last one ends it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(b"".join(requests))
    everything = await asyncio.wait_for(reader.read(), 10)
    writer.close()
    return DATE.sub(b"", everything)


REQUESTS = [
    [GET + b"\r\n"],
    [GET + b"\r\n"] * 5,
    [GET + b"\r\n", b"HEAD /api/prices HTTP/1.1\r\nHost: x\r\n\r\n", GET + b"\r\n"],
    [GET + b"\r\n", b"GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n", GET + b"\r\n"],
    [GET + b"If-None-Match: *\r\n\r\n", GET + b"\r\n"],
    [GET + b"Content-Length: 3\r\n\r\nabc", GET + b"\r\n"],
]


@pytest.mark.slow
@pytest.mark.parametrize("requests", REQUESTS, ids=range(len(REQUESTS)))
async def test_the_bytes_are_the_same(requests: list[bytes], tmp_path: Path) -> None:
    """Even for several requests on one connection, sent before the first response arrived."""
    last = GET + b"Connection: close\r\n\r\n"
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    async with served(tmp_path / "a") as (server, at_once):
        await exchange(server, last)  # so that it is cached
        got = await exchange(server, *requests, last)
    async with served(tmp_path / "b", offered=False) as (server, _):
        await exchange(server, last)
        usual = await exchange(server, *requests, last)

    assert got == usual
    assert got.count(b"HTTP/1.1 ") == len(requests) + 1
    assert any(at_once)
    assert not at_once[-1]  # the last response must say that the connection ends


async def test_an_old_client_gets_the_usual_messages(tmp_path: Path) -> None:
    """HTTP/1.0 has no persistent connections."""
    async with served(tmp_path) as (server, at_once):
        await exchange(server, GET + b"Connection: close\r\n\r\n")
        got = await exchange(server, b"GET /api/prices HTTP/1.0\r\n\r\n")

    assert got.startswith(b"HTTP/1.1 200 OK\r\n")
    assert at_once == [False]
