"""The server at its limits: where it listens, how it stops, and how long it waits for requests under way."""

import asyncio
import json
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from holdfast.errors import StartError
from tocsin.local.server import HttpServer, listen

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


class App:
    """Answers at once, after a while, or when it must stop."""

    def __init__(self) -> None:
        self.ended: list[float] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        text = "fine"
        if scope["path"].startswith("/for/"):
            try:
                await asyncio.sleep(float(scope["path"].removeprefix("/for/")))
            except asyncio.CancelledError:
                self.ended.append(asyncio.get_running_loop().time())
                text = "cut off"
        await Response(text)(scope, receive, send)


@asynccontextmanager
async def server() -> AsyncIterator[HttpServer]:
    made = HttpServer("127.0.0.1", 0)
    await made.start(App())
    try:
        yield made
    finally:
        await made.stop()


async def connect(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", port)


def test_an_inherited_socket_says_where_it_listens() -> None:
    """Not the host and the port of the settings."""
    with listen("127.0.0.1", 0) as passed:
        port = passed.getsockname()[1]
        made = HttpServer("192.0.2.1", 1, inherited=[passed])

        assert (made.port, made.url) == (port, f"http://127.0.0.1:{port}")
        made.close()


async def test_a_server_that_never_started_can_be_stopped() -> None:
    """Its port is free again."""
    made = HttpServer("127.0.0.1", 0)
    await made.stop()
    with listen("127.0.0.1", made.port) as again:
        assert again.getsockname()[1] == made.port


def test_a_port_that_is_taken_is_named() -> None:
    """With the fix; the socket that failed is closed."""
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(StartError, match=rf"cannot listen on 127\.0\.0\.1:{port}: .*; another port: --port"):
            listen("127.0.0.1", port)


@pytest.mark.skipif(sys.platform != "linux", reason="the open files are counted in /proc")
async def test_a_stopped_server_leaves_no_file_open() -> None:
    """Neither its sockets nor those of its clients."""

    def open_files() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    before = open_files()
    async with server() as running:
        _, writer = await connect(running.port)
        writer.write(GET)
        await asyncio.sleep(0.1)
        writer.close()
        await asyncio.sleep(0.1)
    await asyncio.sleep(1)

    assert open_files() == before


async def stopped_while(path: str) -> tuple[bytes, float, list[float]]:
    """Return the answer to a request under way when the server stops, how long that took, and when it was cut off."""
    app, loop = App(), asyncio.get_running_loop()
    made = HttpServer("127.0.0.1", 0)
    await made.start(app)
    reader, writer = await connect(made.port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    await asyncio.sleep(0.2)
    began = loop.time()
    await made.stop()
    took = loop.time() - began
    answer = await reader.read()
    writer.close()
    return answer, took, [at - began for at in app.ended]


async def test_a_request_under_way_is_answered_before_the_end() -> None:
    """It has three seconds; its connection ends with it."""
    answer, took, cut_off = await stopped_while("/for/2.5")

    assert answer.endswith(b"fine")
    assert b"connection: close" in answer
    assert (2 < took < 3, cut_off) == (True, [])


async def test_a_request_that_takes_longer_is_cut_off_and_can_still_answer() -> None:
    """After three seconds it is cancelled; then it has another one."""
    answer, took, cut_off = await stopped_while("/for/60")

    assert answer.endswith(b"cut off")
    assert cut_off == [pytest.approx(3, abs=0.2)]
    assert took < 4


async def test_a_connection_that_waits_for_a_request_has_half_a_second_when_the_server_stops() -> None:
    """A request on its way is answered; a later one finds the connection closed."""
    answers = []
    for wait_s in (0.3, 0.8):
        made = HttpServer("127.0.0.1", 0)
        await made.start(App())
        reader, writer = await connect(made.port)
        writer.write(GET)
        await reader.readuntil(b"fine")
        stopping = asyncio.create_task(made.stop())
        await asyncio.sleep(wait_s)
        writer.write(GET)
        answers.append((await reader.read()).partition(b"\r\n")[0])
        writer.close()
        await stopping

    assert answers == [b"HTTP/1.1 200 OK", b""]


@pytest.mark.parametrize(("sent", "expected"), [(b"", None), (b"GET / HTTP/1.1\r\nHost: x\r\n", "head_too_slow")])
async def test_a_head_has_ten_seconds(sent: bytes, expected: str | None) -> None:
    """A client that sent a part of it gets an answer, one that sent nothing does not. A request ends the wait."""
    loop = asyncio.get_running_loop()
    async with server() as running:
        reader, writer = await connect(running.port)
        began = loop.time()
        writer.write(sent)
        answer = await reader.read()
        took = loop.time() - began
        writer.close()

    assert took == pytest.approx(10, abs=0.5)
    assert (json.loads(answer.partition(b"\r\n\r\n")[2])["code"] if answer else None) == expected


async def test_a_connection_is_kept_for_further_requests() -> None:
    """The wait for the first head ends with it: a second request eleven seconds later is answered."""
    async with server() as running:
        reader, writer = await connect(running.port)
        writer.write(b"GET /for/11 HTTP/1.1\r\nHost: x\r\n\r\n")
        first = await reader.readuntil(b"fine")
        writer.write(GET)
        second = await reader.readuntil(b"fine")
        writer.close()

    assert first.startswith(b"HTTP/1.1 200 OK")
    assert second.startswith(b"HTTP/1.1 200 OK")


def test_a_listening_socket_takes_many_connections_at_once() -> None:
    """A burst must not be refused by the system while the loop is busy for a moment."""
    with listen("127.0.0.1", 0) as listening:
        clients = []
        for _ in range(200):
            client = socket.socket()
            client.setblocking(False)
            client.connect_ex(listening.getsockname())
            clients.append(client)
        accepted = 0
        listening.settimeout(5)
        for _ in range(200):
            listening.accept()[0].close()
            accepted += 1
        for client in clients:
            client.close()

    assert accepted == 200
